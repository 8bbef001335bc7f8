//! What a new file system gets beyond the trees that it is opened with: the UUID tree, the tree for relocated data, and
//! the directory of the tree of roots.

use crate::dir::edit as dir_edit;
use crate::file::inode::{self, NewInode};
use crate::tree::{RootPtr, Tree};
use crate::txn::{Purpose, Trans};
use crate::{Engine, Result};
use buttery_disk::dir::{Entry, file_type, name_hash};
use buttery_disk::inode::{InodeItem, InodeRef, Timespec, mode};
use buttery_disk::root::RootItem;
use buttery_disk::zerocopy::IntoBytes;
use buttery_disk::{Key, item, objectid};
use std::sync::Arc;

impl Engine {
    /// Completes a file system that was just laid out. `top_uuid` is the top-level subvolume's.
    pub fn add_first_trees(&self, now: Timespec, top_uuid: [u8; 16]) -> Result<()> {
        self.change(32, Purpose::Change, |trans| {
            let uuids = new_tree(trans, objectid::UUID_TREE, 0)?;
            let (high, low) = top_uuid.split_at(8);
            let number = |b: &[u8]| u64::from_le_bytes(b.try_into().expect("8 bytes"));
            let key = Key::new(number(high), item::UUID_SUBVOL, number(low));
            uuids.write(trans).insert(key, &objectid::FS_TREE.to_le_bytes())?;
            let reloc = new_tree(trans, objectid::DATA_RELOC_TREE, objectid::FIRST_FREE)?;
            add_top(trans, &reloc, objectid::FIRST_FREE, now)?;
            let root_tree = self.root_tree().clone();
            add_top(trans, &root_tree, objectid::ROOT_TREE_DIR, now)?;
            add_default(trans, &root_tree)
        })
    }
}

fn new_tree(trans: &mut Trans<'_>, id: u64, dirid: u64) -> Result<Arc<Tree>> {
    let engine = trans.engine();
    let mut item = RootItem::zeroed();
    item.inode = InodeItem {
        generation: 1.into(),
        size: 3.into(),
        nbytes: (engine.store().nodesize() as u64).into(),
        nlink: 1.into(),
        mode: (mode::DIR | 0o755).into(),
        ..InodeItem::default()
    };
    item.refs = 1.into();
    item.root_dirid = dirid.into();
    let key = Key::new(id, item::ROOT_ITEM, 0);
    let tree = Arc::new(Tree::new(key, RootPtr { bytenr: 0, level: 0, generation: trans.id() }, item));
    tree.write(trans).create_root()?;
    engine.trees.write().insert(id, tree.clone());
    Ok(tree)
}

/// A directory that is its own parent.
fn add_top(trans: &mut Trans<'_>, tree: &Tree, ino: u64, now: Timespec) -> Result<()> {
    let new = NewInode { mode: mode::DIR | 0o755, uid: 0, gid: 0, rdev: 0, flags: 0, now };
    inode::insert(trans, tree, ino, &new)?;
    let nodesize = trans.store().nodesize() as u64;
    inode::update(trans, tree, ino, |item| {
        item.nlink = 1.into();
        item.nbytes = nodesize.into();
    })?;
    dir_edit::add_ref(trans, tree, ino, ino, b"..", 0)
}

/// The name `default` in the tree of roots leads to the subvolume that is mounted by default.
fn add_default(trans: &mut Trans<'_>, root_tree: &Tree) -> Result<()> {
    let location = Key::new(objectid::FS_TREE, item::ROOT_ITEM, u64::MAX);
    let entry = Entry { location, transid: trans.id(), kind: file_type::DIR, name: b"default", data: b"" };
    let mut editor = root_tree.write(trans);
    editor.insert(
        Key::new(objectid::ROOT_TREE_DIR, item::DIR_ITEM, name_hash(b"default")),
        &entry.to_bytes(),
    )?;
    let fixed = InodeRef { index: 0.into(), name_len: 7.into() };
    editor.insert(
        Key::new(objectid::FS_TREE, item::INODE_REF, objectid::ROOT_TREE_DIR),
        &[fixed.as_bytes(), b"default"].concat(),
    )
}
