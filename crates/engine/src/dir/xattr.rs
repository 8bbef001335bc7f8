//! Extended attributes.

use super::edit;
use crate::tree::Tree;
use crate::txn::Trans;
use crate::{Engine, Error, Result};
use buttery_disk::dir::{self, DirItem, Entry, file_type, name_hash};
use buttery_disk::node::{ITEM_LEN, leaf_data_size};
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

/// The longest name of an attribute.
pub const NAME_MAX: usize = 255;

/// Whether a value fits: name and value of one attribute share an item, and with it a leaf.
pub fn can_set(engine: &Engine, tree: &Tree, ino: u64, name: &[u8], value: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Error::Range);
    }
    let max = leaf_data_size(engine.store().nodesize()) - ITEM_LEN;
    if size_of::<DirItem>() + name.len() + value.len() > max {
        return Err(Error::NoSpace); // as the kernel answers
    }
    let view = tree.read(engine.store());
    let Some(found) = view.get(key(ino, name))? else { return Ok(()) };
    let others = edit::without(found.data(), name).unwrap_or_else(|| found.data().to_vec());
    let fits = others.len() + size_of::<DirItem>() + name.len() + value.len() <= max;
    if fits { Ok(()) } else { Err(Error::NoSpace) }
}

/// Sets an attribute, a new one or one that is there.
pub fn set(trans: &mut Trans<'_>, tree: &Tree, ino: u64, name: &[u8], value: &[u8]) -> Result<()> {
    let location = Key::new(0, 0, 0);
    let entry = Entry { location, transid: trans.id(), kind: file_type::XATTR, name, data: value }.to_bytes();
    let mut editor = tree.write(trans);
    match editor.get(key(ino, name))? {
        Some(old) => {
            let others = edit::without(&old, name).unwrap_or(old);
            editor.replace(key(ino, name), &[others, entry].concat())
        }
        None => editor.insert(key(ino, name), &entry),
    }
}

/// Removes an attribute that is there.
pub fn remove(trans: &mut Trans<'_>, tree: &Tree, ino: u64, name: &[u8]) -> Result<()> {
    let mut editor = tree.write(trans);
    let data = editor.get(key(ino, name))?.ok_or(Error::NoAttribute)?;
    let others = edit::without(&data, name).ok_or(Error::NoAttribute)?;
    if others.is_empty() { editor.remove(key(ino, name)) } else { editor.replace(key(ino, name), &others) }
}
