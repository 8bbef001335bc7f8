//! Extended attributes.

use crate::tree::Tree;
use crate::{Engine, Error, Result};
use buttery_disk::dir::{self, name_hash};
use buttery_disk::{Key, item};

pub(crate) fn key(ino: u64, name: &[u8]) -> Key {
    Key::new(ino, item::XATTR_ITEM, name_hash(name))
}

/// The value of an attribute.
pub fn get(engine: &Engine, tree: &Tree, ino: u64, name: &[u8]) -> Result<Vec<u8>> {
    let view = tree.read(engine.store());
    let found = view.get(key(ino, name))?.ok_or(Error::NoAttribute)?;
    let entry = dir::entries(found.data()).find(|e| e.name == name).ok_or(Error::NoAttribute)?;
    Ok(entry.data.to_vec())
}

/// All attributes, name and value, in the tree's order.
pub fn list(engine: &Engine, tree: &Tree, ino: u64) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let view = tree.read(engine.store());
    let mut cursor = view.seek(Key::new(ino, item::XATTR_ITEM, 0))?;
    let mut out = Vec::new();
    while let Some((found, data)) = cursor.item() {
        if (found.objectid, found.kind) != (ino, item::XATTR_ITEM) {
            break;
        }
        out.extend(dir::entries(data).map(|e| (e.name.to_vec(), e.data.to_vec())));
        cursor.advance()?;
    }
    Ok(out)
}
