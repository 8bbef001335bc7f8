//! Looking names up and listing directories.

use crate::tree::Tree;
use crate::{Engine, Error, Result};
use buttery_disk::dir::{self, NAME_MAX, file_type, name_hash};
use buttery_disk::{Key, TreeId, inode, item, objectid};

/// What a name leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Target {
    /// An inode of the same subvolume.
    Inode(u64),
    /// The top directory of another subvolume.
    Subvolume(TreeId),
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Its place in the directory, ascending; stable as long as the entry exists.
    pub index: u64,
    pub name: Vec<u8>,
    pub target: Target,
    /// One of [`file_type`].
    pub kind: u8,
}

fn target(tree: TreeId, key: Key, location: Key) -> Result<Target> {
    match location.kind {
        item::INODE_ITEM => Ok(Target::Inode(location.objectid)),
        // the offset of a subvolume's location is −1 or 0, depending on who wrote it
        item::ROOT_ITEM => Ok(Target::Subvolume(TreeId(location.objectid))),
        _ => Err(Error::corrupt(tree, key, format!("an entry leads to {location}"))),
    }
}

/// Looks a name up in a directory: the target and its type.
pub fn lookup(engine: &Engine, tree: &Tree, dir: u64, name: &[u8]) -> Result<(Target, u8)> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    let key = Key::new(dir, item::DIR_ITEM, name_hash(name));
    let view = tree.read(engine.store());
    let found = view.get(key)?.ok_or(Error::NotFound)?;
    let entry = dir::entries(found.data()).find(|e| e.name == name).ok_or(Error::NotFound)?;
    Ok((target(tree.id(), key, entry.location)?, entry.kind & !file_type::ENCRYPTED))
}

/// Calls `visit` with each entry of a directory whose index is `from` or above, until it answers `false`.
pub fn read_dir(
    engine: &Engine,
    tree: &Tree,
    dir: u64,
    from: u64,
    visit: &mut dyn FnMut(DirEntry) -> Result<bool>,
) -> Result<()> {
    let view = tree.read(engine.store());
    let mut cursor = view.seek(Key::new(dir, item::DIR_INDEX, from))?;
    while let Some((key, data)) = cursor.item() {
        if (key.objectid, key.kind) != (dir, item::DIR_INDEX) {
            break;
        }
        for entry in dir::entries(data) {
            let found = DirEntry {
                index: key.offset,
                name: entry.name.to_vec(),
                target: target(tree.id(), key, entry.location)?,
                kind: entry.kind & !file_type::ENCRYPTED,
            };
            if !visit(found)? {
                return Ok(());
            }
        }
        cursor.advance()?;
    }
    Ok(())
}

/// A directory's parent in the same subvolume and its name there; `None` for a subvolume's top directory.
pub fn parent_of(engine: &Engine, tree: &Tree, ino: u64) -> Result<Option<(u64, Vec<u8>)>> {
    if ino == objectid::FIRST_FREE {
        return Ok(None);
    }
    let view = tree.read(engine.store());
    let mut cursor = view.seek(Key::new(ino, item::INODE_REF, 0))?;
    while let Some((key, data)) = cursor.item() {
        match (key.objectid == ino, key.kind) {
            (true, item::INODE_REF) => {
                if let Some((_, name)) = inode::inode_refs(data).next() {
                    return Ok(Some((key.offset, name.to_vec())));
                }
            }
            (true, item::INODE_EXTREF) => {
                if let Some((parent, _, name)) = inode::inode_extrefs(data).next() {
                    return Ok(Some((parent, name.to_vec())));
                }
            }
            _ => break,
        }
        cursor.advance()?;
    }
    Err(Error::NotFound)
}
