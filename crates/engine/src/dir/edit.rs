//! Putting names into directories and taking them out: DIR_ITEM, DIR_INDEX and the back link in the inode.
//!
//! These are the parts; which of them make up a creation, a link or a rename is the library's to say. Everything that
//! can be refused is to be asked before ([`can_add`]), since a transaction that fails half way ends writing.

use super::read::Target;
use crate::tree::Tree;
use crate::txn::Trans;
use crate::{Engine, Error, Result};
use buttery_disk::dir::{self, Entry, NAME_MAX, extref_hash, name_hash};
use buttery_disk::inode::{InodeExtref, InodeRef, inode_extrefs, inode_refs};
use buttery_disk::node::{ITEM_LEN, leaf_data_size};
use buttery_disk::superblock::incompat;
use buttery_disk::zerocopy::IntoBytes;
use buttery_disk::{Key, TreeId, item, objectid};

/// The first index of a directory's entries; 0 and 1 are `.` and `..`.
const FIRST_INDEX: u64 = 2;

/// The largest item.
fn item_max(engine: &Engine) -> usize {
    leaf_data_size(engine.store().nodesize()) - ITEM_LEN
}

/// Whether a name can be added to a directory: `Exists` if it is there, `Overflow` if too many names share its hash.
pub fn can_add(engine: &Engine, tree: &Tree, dir: u64, name: &[u8]) -> Result<()> {
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
        return Err(Error::Invalid);
    }
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    let view = tree.read(engine.store());
    let Some(found) = view.get(Key::new(dir, item::DIR_ITEM, name_hash(name)))? else { return Ok(()) };
    if dir::entries(found.data()).any(|e| e.name == name) {
        return Err(Error::Exists);
    }
    let more = size_of::<dir::DirItem>() + name.len();
    if found.data().len() + more > item_max(engine) { Err(Error::Overflow) } else { Ok(()) }
}

/// Whether an inode can get one more link in a directory: `TooManyLinks` where neither kind of back link has room.
pub fn can_link(engine: &Engine, tree: &Tree, ino: u64, dir: u64, name: &[u8]) -> Result<()> {
    let view = tree.read(engine.store());
    let max = item_max(engine);
    let room = |key: Key, more: usize| -> Result<bool> {
        Ok(view.get(key)?.is_none_or(|f| f.data().len() + more <= max))
    };
    if room(Key::new(ino, item::INODE_REF, dir), size_of::<InodeRef>() + name.len())? {
        return Ok(());
    }
    let extended = engine.superblock().has_incompat(incompat::EXTENDED_IREF);
    let key = Key::new(ino, item::INODE_EXTREF, extref_hash(dir, name));
    match extended && room(key, size_of::<InodeExtref>() + name.len())? {
        true => Ok(()),
        false => Err(Error::TooManyLinks),
    }
}

/// The index that the next entry of a directory gets.
pub fn next_index(engine: &Engine, tree: &Tree, dir: u64) -> Result<u64> {
    let view = tree.read(engine.store());
    let last = Key::new(dir, item::DIR_INDEX, u64::MAX);
    let found = view.last_at_or_before(last, Key::new(dir, item::DIR_INDEX, 0))?;
    Ok(found.map_or(FIRST_INDEX, |f| f.key().offset.saturating_add(1).max(FIRST_INDEX)))
}

/// Adds the two entries of a name to a directory.
pub fn add_entry(
    trans: &mut Trans<'_>,
    tree: &Tree,
    dir: u64,
    name: &[u8],
    target: Target,
    kind: u8,
    index: u64,
) -> Result<()> {
    let location = match target {
        Target::Inode(ino) => Key::new(ino, item::INODE_ITEM, 0),
        Target::Subvolume(id) => Key::new(id.0, item::ROOT_ITEM, u64::MAX),
    };
    let entry = Entry { location, transid: trans.id(), kind, name, data: b"" }.to_bytes();
    let mut editor = tree.write(trans);
    let key = Key::new(dir, item::DIR_ITEM, name_hash(name));
    match editor.get(key)? {
        Some(old) => editor.replace(key, &[old, entry.clone()].concat())?,
        None => editor.insert(key, &entry)?,
    }
    editor.insert(Key::new(dir, item::DIR_INDEX, index), &entry)
}

/// Removes the two entries of a name from a directory.
pub fn remove_entry(trans: &mut Trans<'_>, tree: &Tree, dir: u64, name: &[u8], index: u64) -> Result<()> {
    let mut editor = tree.write(trans);
    let key = Key::new(dir, item::DIR_ITEM, name_hash(name));
    let data = editor.get(key)?.ok_or_else(|| missing(tree, key))?;
    let kept = without(&data, name).ok_or_else(|| missing(tree, key))?;
    if kept.is_empty() {
        editor.remove(key)?
    } else {
        editor.replace(key, &kept)?
    }
    let key = Key::new(dir, item::DIR_INDEX, index);
    editor.remove(key).map_err(|_| missing(tree, key))
}

fn missing(tree: &Tree, key: Key) -> Error {
    Error::corrupt(tree.id(), key, "the entry of a name that is being removed is missing")
}

/// The entries of an item but the one with this name; `None` if it is not there.
pub(super) fn without(data: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let mut at = 0;
    for entry in dir::entries(data) {
        let len = entry.len_bytes();
        if entry.name == name {
            return Some([&data[..at], &data[at + len..]].concat());
        }
        at += len;
    }
    None
}

/// Adds an inode's back link, as an INODE_REF or, when that is full, an INODE_EXTREF.
pub fn add_ref(
    trans: &mut Trans<'_>,
    tree: &Tree,
    ino: u64,
    dir: u64,
    name: &[u8],
    index: u64,
) -> Result<()> {
    let max = item_max(trans.engine());
    let fixed = InodeRef { index: index.into(), name_len: (name.len() as u16).into() };
    let entry = [fixed.as_bytes(), name].concat();
    let mut editor = tree.write(trans);
    let key = Key::new(ino, item::INODE_REF, dir);
    let Some(old) = editor.get(key)? else { return editor.insert(key, &entry) };
    if old.len() + entry.len() <= max {
        return editor.replace(key, &[old, entry].concat());
    }
    let fixed = InodeExtref { parent: dir.into(), index: index.into(), name_len: (name.len() as u16).into() };
    let entry = [fixed.as_bytes(), name].concat();
    let key = Key::new(ino, item::INODE_EXTREF, extref_hash(dir, name));
    match editor.get(key)? {
        Some(old) => editor.replace(key, &[old, entry].concat()),
        None => editor.insert(key, &entry),
    }
}

/// Removes an inode's back link. Answers the index that it held.
pub fn remove_ref(trans: &mut Trans<'_>, tree: &Tree, ino: u64, dir: u64, name: &[u8]) -> Result<u64> {
    let mut editor = tree.write(trans);
    let key = Key::new(ino, item::INODE_REF, dir);
    if let Some(data) = editor.get(key)?
        && let Some((index, kept)) = cut_ref(&data, name)
    {
        if kept.is_empty() {
            editor.remove(key)?
        } else {
            editor.replace(key, &kept)?
        }
        return Ok(index);
    }
    let key = Key::new(ino, item::INODE_EXTREF, extref_hash(dir, name));
    let data = editor.get(key)?.ok_or_else(|| missing(tree, key))?;
    let (index, kept) = cut_extref(&data, dir, name).ok_or_else(|| missing(tree, key))?;
    if kept.is_empty() {
        editor.remove(key)?
    } else {
        editor.replace(key, &kept)?
    }
    Ok(index)
}

fn cut_ref(data: &[u8], name: &[u8]) -> Option<(u64, Vec<u8>)> {
    let mut at = 0;
    for (index, found) in inode_refs(data) {
        let len = size_of::<InodeRef>() + found.len();
        if found == name {
            return Some((index, [&data[..at], &data[at + len..]].concat()));
        }
        at += len;
    }
    None
}

fn cut_extref(data: &[u8], dir: u64, name: &[u8]) -> Option<(u64, Vec<u8>)> {
    let mut at = 0;
    for (parent, index, found) in inode_extrefs(data) {
        let len = size_of::<InodeExtref>() + found.len();
        if parent == dir && found == name {
            return Some((index, [&data[..at], &data[at + len..]].concat()));
        }
        at += len;
    }
    None
}

/// The index under which a name stands in its directory.
pub fn index_of(engine: &Engine, tree: &Tree, dir: u64, name: &[u8], target: Target) -> Result<u64> {
    match target {
        Target::Inode(ino) => {
            let view = tree.read(engine.store());
            if let Some(found) = view.get(Key::new(ino, item::INODE_REF, dir))?
                && let Some((index, _)) = inode_refs(found.data()).find(|(_, n)| *n == name)
            {
                return Ok(index);
            }
            let key = Key::new(ino, item::INODE_EXTREF, extref_hash(dir, name));
            let found = view.get(key)?.ok_or_else(|| missing(tree, key))?;
            inode_extrefs(found.data())
                .find(|(parent, _, n)| *parent == dir && *n == name)
                .map(|(_, index, _)| index)
                .ok_or_else(|| missing(tree, key))
        }
        Target::Subvolume(id) => index_of_subvolume(engine, tree, dir, name, id),
    }
}

/// A subvolume's index stands in its ROOT_REF; in a snapshot of its parent it has none, and the directory is searched.
fn index_of_subvolume(engine: &Engine, tree: &Tree, dir: u64, name: &[u8], id: TreeId) -> Result<u64> {
    if let Some(index) = crate::subvol::index_from(engine, tree.id(), dir, name, id)? {
        return Ok(index);
    }
    let mut index = None;
    super::read_dir(engine, tree, dir, 0, &mut |entry| {
        if entry.name == name {
            index = Some(entry.index);
        }
        Ok(index.is_none())
    })?;
    let key = Key::new(tree.id().0, item::ROOT_REF, id.0);
    index.ok_or_else(|| Error::corrupt(TreeId(objectid::ROOT_TREE), key, "the name has no index"))
}
