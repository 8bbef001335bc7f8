//! Deleting a subvolume: its name goes at once; its tree is dropped afterwards, in small steps, each of them a
//! transaction of its own. How far that went stands in the root item, as the kernel has it, so that anybody can go on.

use super::edit::{self, Name};
use crate::dir::{self, Target};
use crate::file::inode;
use crate::tree::Tree;
use crate::txn::{Purpose, Trans};
use crate::{Engine, Error, Result};
use buttery_disk::inode::Timespec;
use buttery_disk::root::flags::DEAD;
use buttery_disk::{Key, TreeId, item, objectid};

/// The item that names a subvolume whose tree is to be dropped.
pub(super) fn orphan_key(id: TreeId) -> Key {
    Key::new(objectid::ORPHAN, item::ORPHAN_ITEM, id.0)
}

/// Whether a subvolume may be deleted: `NotPermitted` for the one that is mounted by default, `NotEmpty` for one that has
/// others in it.
pub fn can_delete(engine: &Engine, id: TreeId) -> Result<()> {
    if id == super::default_subvolume(engine)? || id.0 == objectid::FS_TREE {
        return Err(Error::NotPermitted);
    }
    let view = engine.root_tree().read(engine.store());
    let cursor = view.seek(Key::new(id.0, item::ROOT_REF, 0))?;
    match cursor.key() {
        Some(key) if (key.objectid, key.kind) == (id.0, item::ROOT_REF) => Err(Error::NotEmpty),
        _ => Ok(()),
    }
}

/// Deletes a subvolume that [may be](can_delete). What it takes up comes back when its tree is dropped.
pub fn delete(engine: &Engine, id: TreeId, parent: &Tree, name: Name<'_>, now: Timespec) -> Result<()> {
    let tree = engine.tree(id)?;
    engine.change(16, Purpose::Free, |trans| {
        dir::edit::remove_entry(trans, parent, name.dir, name.name, name.index)?;
        inode::update(trans, parent, name.dir, |item| {
            item.size = item.size.get().saturating_sub(2 * name.name.len() as u64).into();
            item.mtime = now;
            item.ctime = now;
        })?;
        edit::unlink_refs(trans, parent.id(), id)?;
        edit::remove_uuids(trans, &tree)?;
        tree.update_item(|item| {
            item.refs = 0.into();
            item.flags = (item.flags.get() | DEAD).into();
            item.drop_progress = Default::default();
            item.drop_level = 0;
        });
        let root_tree = trans.engine().root_tree().clone();
        root_tree.write(trans).put(orphan_key(id), &[])
    })
}

/// The index of a subvolume's name.
pub fn name_of<'n>(engine: &Engine, parent: &Tree, dir: u64, name: &'n [u8], id: TreeId) -> Result<Name<'n>> {
    let index = dir::edit::index_of(engine, parent, dir, name, Target::Subvolume(id))?;
    Ok(Name { dir, name, index })
}

/// The subvolumes whose trees are yet to be dropped.
pub fn dead(engine: &Engine) -> Result<Vec<TreeId>> {
    let view = engine.root_tree().read(engine.store());
    let mut cursor = view.seek(orphan_key(TreeId(0)))?;
    let mut out = Vec::new();
    while let Some(found) = cursor.key() {
        if (found.objectid, found.kind) != (objectid::ORPHAN, item::ORPHAN_ITEM) {
            break;
        }
        if objectid::is_subvolume(found.offset) {
            out.push(TreeId(found.offset));
        }
        cursor.advance()?;
    }
    Ok(out)
}

/// Takes back the note that a tree is to be dropped.
pub(super) fn remove_orphan(trans: &mut Trans<'_>, id: TreeId) -> Result<()> {
    let root_tree = trans.engine().root_tree().clone();
    match root_tree.write(trans).remove(orphan_key(id)) {
        Err(Error::NotFound) => Ok(()),
        other => other,
    }
}
