//! Names: directory entries and extended attributes.

pub mod edit;
pub mod read;
pub mod xattr;

pub use read::{DirEntry, Target, lookup, parent_of, read_dir};
