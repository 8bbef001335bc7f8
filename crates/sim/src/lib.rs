//! Test support: a file system so small that it can be believed, and random operations that the library must do as it
//! does them.
//!
//! [`model`] is the small file system, [`op`] the operations and what picks them, [`sim`] runs them on both and
//! compares; [`facts`] tells an image as the library sees it, [`image`] makes images in memory, [`crash`] is a device
//! that remembers every write and flush, [`watched`] one that counts writes and can fail. Every failure names its seed and
//! step.
#![forbid(unsafe_code)]

pub mod content;
pub mod crash;
pub mod facts;
pub mod image;
pub mod model;
pub mod op;
pub mod several;
pub mod sim;
pub mod turns;
pub mod watched;

pub use model::{Fail, Ino, Model};
pub use op::{Op, Weights};
pub use sim::Sim;
