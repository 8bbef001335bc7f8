//! Inodes and what is in them.

pub mod extents;
pub mod read;

use crate::tree::Tree;
use crate::{Engine, Error, Result};
use buttery_disk::inode::InodeItem;
use buttery_disk::zerocopy::FromBytes;
use buttery_disk::{Key, item};

/// The key of an inode's item.
pub fn inode_key(ino: u64) -> Key {
    Key::new(ino, item::INODE_ITEM, 0)
}

/// Reads an inode item. `NotFound` if there is none.
pub fn inode(engine: &Engine, tree: &Tree, ino: u64) -> Result<InodeItem> {
    let view = tree.read(engine.store());
    let found = view.get(inode_key(ino))?.ok_or(Error::NotFound)?;
    InodeItem::read_from_bytes(found.data())
        .map_err(|_| Error::corrupt(tree.id(), inode_key(ino), "an inode item has 160 bytes"))
}

/// The target of a symbolic link: its inline extent.
pub fn read_link(engine: &Engine, tree: &Tree, ino: u64) -> Result<Vec<u8>> {
    let inode = inode(engine, tree, ino)?;
    let len = usize::try_from(inode.size.get()).map_err(|_| Error::TooLarge)?;
    if len > engine.store().nodesize() {
        return Err(Error::corrupt(tree.id(), inode_key(ino), "a symbolic link is longer than a node"));
    }
    let mut target = vec![0; len];
    let read = read::read(engine, tree, ino, 0, &mut target)?;
    target.truncate(read);
    Ok(target)
}
