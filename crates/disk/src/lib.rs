//! The on-disk format of Btrfs: keys, items, superblock, tree blocks, names, and the tree checker that says whether
//! a block may be trusted. Bytes in, facts out: this crate does no I/O and knows no locks.
//!
//! Start at [`node`] for the shape of a tree block, [`key`] for what an item's name means, [`check`] for the rules.
#![forbid(unsafe_code)]

pub mod check;
pub mod chunk;
pub mod dir;
pub mod edit;
pub mod extent;
pub mod inode;
pub mod key;
pub mod node;
pub mod profile;
pub mod root;
pub mod superblock;

pub use key::{Key, TreeId, item, objectid};
pub use node::Node;
pub use zerocopy;
