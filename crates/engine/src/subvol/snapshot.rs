//! Taking a snapshot: a new tree whose root block is a copy of another's, and which shares all below it.
//!
//! It is taken by the commit, when nobody has a handle and everything that belongs to the transaction is in the trees. What
//! the subvolume is then is a moment of it: its owner holds it still, so that no data are in memory only, and none are on
//! their way to where the snapshot would see them ([`Still`]).

use super::edit::{self, Name};
use crate::space::reserve;
use crate::tree::{RootPtr, Still, Tree};
use crate::txn::Trans;
use crate::{Engine, Error, Result, dir};
use buttery_disk::inode::Timespec;
use buttery_disk::root::{RootItem, flags};
use buttery_disk::{Key, TreeId, item, objectid};
use std::sync::{Arc, OnceLock};

/// What a new snapshot is to be.
#[derive(Clone, Debug)]
pub struct NewSnapshot {
    /// Where its name goes: subvolume, directory, name. Whether the name is free was asked before, and stays so.
    pub tree: TreeId,
    pub dir: u64,
    pub name: Vec<u8>,
    pub uuid: [u8; 16],
    pub read_only: bool,
    pub now: Timespec,
}

/// One that waits for the commit.
pub(crate) struct Pending {
    id: TreeId,
    source: TreeId,
    new: NewSnapshot,
    done: OnceLock<()>,
}

/// Items that change at most, beside the references of the root's children.
const ITEMS: u64 = 24;

/// Takes a snapshot of a subvolume that is held still. It is on the device when this returns.
pub fn take(engine: &Engine, source: &Still<'_>, new: NewSnapshot) -> Result<TreeId> {
    let source = source.tree;
    if !objectid::is_subvolume(source.id().0) {
        return Err(Error::Invalid);
    }
    dir::edit::can_add(engine, &*engine.tree(new.tree)?, new.dir, &new.name)?;
    edit::can_add_uuids(engine, &item_of(source, &new, 0))?;
    let txn = &engine.writer()?.txn;
    let reserved = reserve::for_snapshot(engine, ITEMS)?;
    let result = edit::new_id(engine).and_then(|id| {
        let pending = Arc::new(Pending { id, source: source.id(), new, done: OnceLock::new() });
        txn.pending.lock().push(pending.clone());
        engine.commit().map(|()| pending)
    });
    engine.writer()?.space.unreserve(reserved);
    let pending = result?;
    // a commit that succeeds leaves none behind
    pending.done.get().map(|()| pending.id).ok_or(Error::Aborted)
}

/// Makes a snapshot that waits: the commit's part.
pub(crate) fn create(trans: &mut Trans<'_>, pending: &Pending) -> Result<()> {
    let engine = trans.engine();
    let Pending { id, source, new, .. } = pending;
    let (source, parent) = (engine.tree(*source)?, engine.tree(new.tree)?);
    let index = dir::edit::next_index(engine, &parent, new.dir)?;
    copy_tree(trans, &source, *id, new)?;
    let name = Name { dir: new.dir, name: &new.name, index };
    edit::link(trans, &parent, *id, name, new.now)?;
    edit::add_uuids(trans, &*engine.tree(*id)?)?;
    let _ = pending.done.set(());
    Ok(())
}

fn copy_tree(trans: &mut Trans<'_>, source: &Tree, id: TreeId, new: &NewSnapshot) -> Result<()> {
    let (engine, transid) = (trans.engine(), trans.id());
    source.note_touch(transid);
    source.set_last_snapshot(transid);
    let item = item_of(source, new, transid);
    let key = Key::new(id.0, item::ROOT_ITEM, transid);
    let tree = Arc::new(Tree::new(key, RootPtr { bytenr: 0, level: 0, generation: transid }, item));
    let root = source.write(trans).copy_root(id)?;
    tree.write(trans).set_root(root);
    engine.trees.write().insert(id.0, tree);
    Ok(())
}

/// The root item of a snapshot, but for its root.
fn item_of(source: &Tree, new: &NewSnapshot, transid: u64) -> RootItem {
    let mut item = source.item();
    item.bytes_used = source.bytes_used().into();
    item.parent_uuid = item.uuid;
    item.uuid = new.uuid;
    item.otransid = transid.into();
    item.otime = new.now;
    item.refs = 1.into();
    item.flags = (item.flags.get() & !flags::DEAD).into();
    if new.read_only {
        item.flags = (item.flags.get() | flags::RDONLY).into();
    } else {
        item.flags = (item.flags.get() & !flags::RDONLY).into();
        item.received_uuid = [0; 16];
        (item.stransid, item.rtransid) = Default::default();
        (item.stime, item.rtime) = Default::default();
    }
    item
}
