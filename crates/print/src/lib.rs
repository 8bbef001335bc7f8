//! Btrfs structures as text, in the layout of btrfs-progs 6.14: superblocks as `btrfs inspect-internal dump-super`
//! shows them, tree blocks as `dump-tree` does, subvolumes as `btrfs subvolume list` does. Structures in, text out:
//! this crate reads no device and walks no tree.
//!
//! Every function takes bytes that nobody has checked. What is too short or leads outside its block is printed as a
//! line that says so (`ERROR: ...`), and printing goes on with the next item.
//!
//! * [`superblock`]: one copy of a superblock; the module says how several copies follow one another.
//! * [`tree_block`]: one leaf or node.
//! * [`heading`]: the lines around the blocks of a dump, and which trees each option of `dump-tree` walks.
//! * [`subvolume`]: lists of subvolumes.
#![forbid(unsafe_code)]

mod block;
mod fail;
pub mod heading;
mod item;
mod name;
pub mod subvolume;
pub mod superblock;
mod text;
mod time;

pub use block::{Context, Options, tree_block};
pub use name::{KeyText, ObjectIdText};
pub use superblock::{CsumState, SuperOptions, superblock};
pub use text::Uuid;
pub use time::Zone;
