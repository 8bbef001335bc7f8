//! Test support: judges that this project did not write, and the images they make.
//!
//! Everything here looks at Buttery from outside: the kernel's driver, `btrfs check`, public test images. Nothing
//! here may depend on a product crate, so that a mistake in the product cannot hide itself.
//!
//! Start at [`oracle::need`] (is the judge here?), then [`image::kernel_image`] (an image the kernel made, with the
//! [`facts`] about its contents), [`check::btrfs_check`] and [`dmesg::Mark`] (what the judges say about ours).
#![forbid(unsafe_code)]

pub mod check;
pub mod collide;
pub mod compare;
pub mod corpus;
pub mod dmesg;
pub mod facts;
pub mod golden;
pub mod guard;
pub mod image;
pub mod oracle;
pub mod render;
pub mod sparse;
pub mod walk;
pub mod workload;

pub use compare::{Compare, compare};
pub use facts::{ContentHasher, Fact, Kind, Time};
pub use guard::{KernelMount, Loop, TempDir};
pub use image::{ImageSpec, KernelImage, kernel_image};
pub use oracle::{Need, need};
pub use walk::walk;
