//! Making a subvolume, and choosing the default one.

use crate::dir::{self, Target};
use crate::file::inode::{self, NewInode};
use crate::tree::{RootPtr, Tree};
use crate::txn::{Purpose, Trans};
use crate::{Engine, Error, Result};
use buttery_disk::dir::{Entry, file_type, name_hash};
use buttery_disk::inode::{InodeItem, Timespec, flags, mode};
use buttery_disk::node::{ITEM_LEN, leaf_data_size};
use buttery_disk::root::{RootItem, RootRef, flags as flags_of_root};
use buttery_disk::superblock::incompat;
use buttery_disk::zerocopy::IntoBytes;
use buttery_disk::{Key, TreeId, item, objectid};
use std::sync::Arc;

/// What a new subvolume is to be.
#[derive(Clone, Copy, Debug)]
pub struct NewSubvolume<'a> {
    /// Where its name goes: subvolume, directory, name.
    pub tree: TreeId,
    pub dir: u64,
    pub name: &'a [u8],
    pub uuid: [u8; 16],
    pub uid: u32,
    pub gid: u32,
    /// Permission bits of its top directory.
    pub mode: u32,
    pub now: Timespec,
}

/// An id for a new tree.
pub(super) fn new_id(engine: &Engine) -> Result<TreeId> {
    let id = engine.root_tree().next_ino(|| {
        let view = engine.root_tree().read(engine.store());
        let last = Key::new(objectid::LAST_FREE, u8::MAX, u64::MAX);
        let found = view.last_at_or_before(last, Key::new(objectid::FIRST_FREE, 0, 0))?;
        Ok(found.map_or(objectid::FIRST_FREE, |f| f.key().objectid + 1))
    })?;
    Ok(TreeId(id))
}

/// Makes an empty subvolume. Whether the name is free was asked before.
pub fn create(engine: &Engine, new: &NewSubvolume<'_>) -> Result<TreeId> {
    let parent = engine.tree(new.tree)?;
    dir::edit::can_add(engine, &parent, new.dir, new.name)?;
    let id = new_id(engine)?;
    let index = dir::edit::next_index(engine, &parent, new.dir)?;
    engine.change(16, Purpose::Change, |trans| {
        let tree = new_tree(trans, id, new)?;
        let inode = NewInode {
            mode: mode::DIR | new.mode & 0o7777,
            uid: new.uid,
            gid: new.gid,
            rdev: 0,
            flags: 0,
            now: new.now,
        };
        inode::insert(trans, &tree, objectid::FIRST_FREE, &inode)?;
        inode::update(trans, &tree, objectid::FIRST_FREE, |item| item.nlink = 1.into())?;
        dir::edit::add_ref(trans, &tree, objectid::FIRST_FREE, objectid::FIRST_FREE, b"..", 0)?;
        link(trans, &parent, id, Name { dir: new.dir, name: new.name, index }, new.now)?;
        add_uuids(trans, &tree)?;
        Ok(id)
    })
}

/// A tree with an empty root leaf and its root item.
fn new_tree(trans: &mut Trans<'_>, id: TreeId, new: &NewSubvolume<'_>) -> Result<Arc<Tree>> {
    let engine = trans.engine();
    let mut item = RootItem::zeroed();
    item.inode = InodeItem {
        generation: 1.into(),
        size: 3.into(),
        nbytes: (engine.store().nodesize() as u64).into(),
        nlink: 1.into(),
        mode: (mode::DIR | 0o755).into(),
        flags: flags::ROOT_ITEM_INIT.into(),
        ..InodeItem::default()
    };
    item.root_dirid = objectid::FIRST_FREE.into();
    item.refs = 1.into();
    item.uuid = new.uuid;
    item.ctransid = trans.id().into();
    item.otransid = trans.id().into();
    item.ctime = new.now;
    item.otime = new.now;
    let key = Key::new(id.0, item::ROOT_ITEM, 0);
    let tree = Arc::new(Tree::new(key, RootPtr { bytenr: 0, level: 0, generation: trans.id() }, item));
    tree.write(trans).create_root()?;
    engine.trees.write().insert(id.0, tree.clone());
    Ok(tree)
}

/// A subvolume's name: the directory that has it, and its index there.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    pub dir: u64,
    pub name: &'a [u8],
    pub index: u64,
}

/// Links a subvolume into a directory: entries there, ROOT_REF and ROOT_BACKREF in the root tree.
pub fn link(
    trans: &mut Trans<'_>,
    parent: &Tree,
    id: TreeId,
    Name { dir, name, index }: Name<'_>,
    now: Timespec,
) -> Result<()> {
    dir::edit::add_entry(trans, parent, dir, name, Target::Subvolume(id), file_type::DIR, index)?;
    inode::update(trans, parent, dir, |item| {
        item.size = (item.size.get() + 2 * name.len() as u64).into();
        item.mtime = now;
        item.ctime = now;
    })?;
    let fixed = RootRef { dirid: dir.into(), sequence: index.into(), name_len: (name.len() as u16).into() };
    let data = [fixed.as_bytes(), name].concat();
    let root_tree = trans.engine().root_tree().clone();
    let mut editor = root_tree.write(trans);
    editor.insert(Key::new(id.0, item::ROOT_BACKREF, parent.id().0), &data)?;
    editor.insert(Key::new(parent.id().0, item::ROOT_REF, id.0), &data)
}

/// Removes the ROOT_REF and ROOT_BACKREF of a subvolume's name.
pub fn unlink_refs(trans: &mut Trans<'_>, parent: TreeId, id: TreeId) -> Result<()> {
    let root_tree = trans.engine().root_tree().clone();
    let mut editor = root_tree.write(trans);
    editor.remove(Key::new(id.0, item::ROOT_BACKREF, parent.0))?;
    editor.remove(Key::new(parent.0, item::ROOT_REF, id.0))
}

/// The keys under which the UUID tree has a subvolume: of its uuid, and of that which it was received with.
fn uuid_keys(item: &RootItem) -> impl Iterator<Item = Key> {
    let number = |b: &[u8]| u64::from_le_bytes(b.try_into().expect("8 bytes"));
    let uuids = [(item::UUID_SUBVOL, item.uuid), (item::UUID_RECEIVED_SUBVOL, item.received_uuid)];
    let known = uuids.into_iter().filter(|(_, uuid)| *uuid != [0; 16]);
    known.map(move |(kind, uuid)| Key::new(number(&uuid[..8]), kind, number(&uuid[8..])))
}

/// The UUID tree. A file system may have none.
fn uuid_tree(engine: &Engine) -> Result<Option<Arc<Tree>>> {
    match engine.tree(TreeId(objectid::UUID_TREE)) {
        Ok(tree) => Ok(Some(tree)),
        Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether it has room for the uuids of one more: those with which the same one was received share an item. `Overflow` if
/// not.
pub(super) fn can_add_uuids(engine: &Engine, item: &RootItem) -> Result<()> {
    let Some(tree) = uuid_tree(engine)? else { return Ok(()) };
    let view = tree.read(engine.store());
    for key in uuid_keys(item) {
        let used = view.get(key)?.map_or(0, |found| found.data().len());
        if used + 8 > leaf_data_size(engine.store().nodesize()) - ITEM_LEN {
            return Err(Error::Overflow);
        }
    }
    Ok(())
}

/// The UUID tree finds a subvolume by its uuids from now on.
pub(super) fn add_uuids(trans: &mut Trans<'_>, of: &Tree) -> Result<()> {
    let Some(tree) = uuid_tree(trans.engine())? else { return Ok(()) };
    let id = of.id().0.to_le_bytes();
    for key in uuid_keys(&of.item()) {
        let mut editor = tree.write(trans);
        match editor.get(key)? {
            Some(old) => editor.replace(key, &[&old[..], &id].concat())?,
            None => editor.insert(key, &id)?,
        }
    }
    Ok(())
}

/// It does so no longer. What is not there was never noted.
pub(super) fn remove_uuids(trans: &mut Trans<'_>, of: &Tree) -> Result<()> {
    let Some(tree) = uuid_tree(trans.engine())? else { return Ok(()) };
    let id = of.id().0.to_le_bytes();
    for key in uuid_keys(&of.item()) {
        let mut editor = tree.write(trans);
        let Some(old) = editor.get(key)? else { continue };
        let kept: Vec<u8> = old.chunks(8).filter(|chunk| **chunk != id).flatten().copied().collect();
        match (kept.is_empty(), kept.len() == old.len()) {
            (true, _) => editor.remove(key)?,
            (_, false) => editor.replace(key, &kept)?,
            _ => {}
        }
    }
    Ok(())
}

/// Makes a subvolume read-only, or writable again.
pub fn set_read_only(engine: &Engine, tree: &Tree, yes: bool) -> Result<()> {
    engine.change(2, Purpose::Change, |trans| {
        trans.mark_modified();
        tree.update_item(|item| {
            let other = item.flags.get() & !flags_of_root::RDONLY;
            item.flags = (other | if yes { flags_of_root::RDONLY } else { 0 }).into();
        });
        Ok(())
    })
}

/// Gives the file system a label: at most 255 bytes, of which none is NUL.
pub fn set_label(engine: &Engine, label: &[u8]) -> Result<()> {
    if label.len() > 255 || label.contains(&0) {
        return Err(Error::Invalid);
    }
    engine.change(1, Purpose::Change, |trans| {
        trans.mark_modified();
        let mut sb = trans.writer().sb.lock();
        sb.label = [0; 256];
        sb.label[..label.len()].copy_from_slice(label);
        Ok(())
    })
}

/// The label, as it will be after the next commit.
pub fn label(engine: &Engine) -> Vec<u8> {
    match engine.writer() {
        Ok(writer) => writer.sb.lock().label().to_vec(),
        Err(_) => engine.superblock().label().to_vec(),
    }
}

/// Makes a subvolume the one that is mounted by default.
pub fn set_default(engine: &Engine, id: TreeId) -> Result<()> {
    engine.tree(id)?;
    let location = Key::new(id.0, item::ROOT_ITEM, u64::MAX);
    let key = Key::new(objectid::ROOT_TREE_DIR, item::DIR_ITEM, name_hash(b"default"));
    engine.change(4, Purpose::Change, |trans| {
        let entry =
            Entry { location, transid: trans.id(), kind: file_type::DIR, name: b"default", data: b"" };
        let root_tree = trans.engine().root_tree().clone();
        root_tree.write(trans).put(key, &entry.to_bytes())?;
        let mut sb = trans.writer().sb.lock();
        sb.incompat_flags = (sb.incompat_flags.get() | incompat::DEFAULT_SUBVOL).into();
        Ok(())
    })
}
