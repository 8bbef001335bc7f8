//! Inodes and what is in them.
//!
//! [`inode`] is the item, [`extents`] the extents as they stand in the tree, [`read`], [`write`], [`truncate`],
//! [`fallocate`] and [`clone`] what is done with them; `replace` is where extents are dropped and inserted, `in_place`
//! where data are written over what is there.

mod alone;
pub mod clone;
pub mod delalloc;
pub mod extents;
pub mod fallocate;
mod grow;
mod in_place;
pub mod inode;
mod inodes;
mod packing;
mod put;
pub mod read;
mod replace;
pub mod truncate;
pub mod write;

pub(crate) use alone::Alone;
pub(crate) use inodes::Inodes;

use crate::tree::Tree;
use crate::{Engine, Error, Result};

/// The target of a symbolic link: its inline extent.
pub fn read_link(engine: &Engine, tree: &Tree, ino: u64) -> Result<Vec<u8>> {
    let item = inode::read(engine, tree, ino)?;
    let len = usize::try_from(item.size.get()).map_err(|_| Error::TooLarge)?;
    if len > engine.store().nodesize() {
        return Err(Error::corrupt(tree.id(), inode::key(ino), "a symbolic link is longer than a node"));
    }
    let mut target = vec![0; len];
    let read = read::read(engine, tree, ino, 0, &mut target)?;
    target.truncate(read);
    Ok(target)
}
