//! A tree locked for writing: what may be done to its items.

use super::path::Need;
use super::{Cursor, RootPtr, Tree};
use crate::count;
use crate::error::{Error, Result};
use crate::store::Store;
use crate::txn::Trans;
use buttery_disk::node::ITEM_LEN;
use buttery_disk::{Key, Node, edit};
use parking_lot::RwLockWriteGuard;

/// A tree locked for writing by a transaction handle.
pub struct Editor<'a, 't> {
    pub(super) tree: &'a Tree,
    pub(super) store: &'t Store,
    pub(super) root: RwLockWriteGuard<'a, RootPtr>,
    pub(super) trans: &'a mut Trans<'t>,
}

fn copy(data: &[u8]) -> Vec<u8> {
    count::copied(data.len());
    data.to_vec()
}

impl Tree {
    /// Takes the lock for writing.
    pub fn write<'a, 't>(&'a self, trans: &'a mut Trans<'t>) -> Editor<'a, 't> {
        trans.mark_modified();
        Editor { tree: self, store: trans.store(), root: self.root.write(), trans }
    }
}

impl<'t> Editor<'_, 't> {
    /// Gives a tree that has no block yet an empty leaf for its root.
    pub(crate) fn create_root(&mut self) -> Result<()> {
        let bytenr = self.new_block(0)?;
        *self.root = RootPtr { bytenr, level: 0, generation: self.trans.id() };
        Ok(())
    }

    /// Gives a tree that has no block yet a root that was made for it.
    pub(crate) fn set_root(&mut self, root: RootPtr) {
        *self.root = root;
    }

    /// Bytes of a block of the tree.
    pub(crate) fn nodesize(&self) -> usize {
        self.store.nodesize()
    }

    /// The transaction handle.
    pub fn trans(&mut self) -> &mut Trans<'t> {
        self.trans
    }

    /// A cursor at the first item that is not before `key`; no longer of use after the next change.
    pub fn seek(&self, key: Key) -> Result<Cursor<'t>> {
        Cursor::seek(self.store, &super::root_expect(&self.root, self.tree.owner()), key)
    }

    /// The item with this key.
    pub fn get(&self, key: Key) -> Result<Option<Vec<u8>>> {
        let cursor = self.seek(key)?;
        Ok(cursor.item().filter(|(k, _)| *k == key).map(|(_, data)| copy(data)))
    }

    /// The last item that is not behind `key`, and at or behind `floor`.
    pub fn last_at_or_before(&self, key: Key, floor: Key) -> Result<Option<(Key, Vec<u8>)>> {
        let mut cursor = self.seek(key)?;
        if cursor.key() != Some(key) && !cursor.prev()? {
            return Ok(None);
        }
        Ok(cursor.item().filter(|(k, _)| *k >= floor).map(|(k, data)| (k, copy(data))))
    }

    /// Inserts an item. `Exists` if the key is taken.
    pub fn insert(&mut self, key: Key, data: &[u8]) -> Result<()> {
        let (path, found) = self.descend(&key, Need::Insert(data.len() + ITEM_LEN))?;
        if found {
            return Err(Error::Exists);
        }
        self.store.edit(path.leaf(), |bytes| edit::insert_item(bytes, path.slot(), key, data))?;
        if path.slot() == 0 { self.fix_low_keys(&path, 0) } else { Ok(()) }
    }

    /// Changes an item's data in place. `NotFound` if it is not there.
    pub fn modify<R>(&mut self, key: Key, change: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let (path, found) = self.descend(&key, Need::Nothing)?;
        if !found {
            return Err(Error::NotFound);
        }
        self.store.edit(path.leaf(), |bytes| change(edit::data_mut(bytes, path.slot())))
    }

    /// Gives an item new data, of whatever length. `NotFound` if it is not there.
    pub fn replace(&mut self, key: Key, data: &[u8]) -> Result<()> {
        let (mut path, found) = self.descend(&key, Need::Nothing)?;
        if !found {
            return Err(Error::NotFound);
        }
        let (old, free) = {
            let block = self.store.dirty(path.leaf())?;
            (block.node().data(path.slot()).len(), block.node().leaf_free())
        };
        if data.len() > old + free {
            (path, _) = self.descend(&key, Need::Extend(data.len() - old))?;
        }
        self.store.edit(path.leaf(), |bytes| {
            let slot = path.slot();
            if data.len() > old {
                edit::extend_item(bytes, slot, data.len() - old);
            } else {
                edit::cut_item(bytes, slot, data.len()..old);
            }
            edit::data_mut(bytes, slot).copy_from_slice(data);
        })
    }

    /// Appends `data` to the item before `key`, if `joins` says so of its key and length, and one leaf holds it and has
    /// the room. Answers whether it was done.
    pub(crate) fn append_before(
        &mut self,
        key: Key,
        data: &[u8],
        joins: impl FnOnce(Key, usize) -> Result<bool>,
    ) -> Result<bool> {
        let (path, _) = self.descend(&key, Need::Nothing)?;
        let Some(slot) = path.slot().checked_sub(1) else { return Ok(false) };
        let block = self.store.dirty(path.leaf())?;
        let node = block.node();
        let (found, old, free) = (node.key(slot), node.data(slot).len(), node.leaf_free());
        drop(block);
        if !joins(found, old)? || free < data.len() {
            return Ok(false);
        }
        self.store.edit(path.leaf(), |bytes| {
            edit::extend_item(bytes, slot, data.len());
            edit::data_mut(bytes, slot)[old..].copy_from_slice(data);
        })?;
        Ok(true)
    }

    /// Inserts an item, or gives the one with this key new data.
    pub fn put(&mut self, key: Key, data: &[u8]) -> Result<()> {
        match self.insert(key, data) {
            Err(Error::Exists) => self.replace(key, data),
            other => other,
        }
    }

    /// Gives an item another key; the order must stay.
    pub fn rekey(&mut self, old: Key, new: Key) -> Result<()> {
        let (path, found) = self.descend(&old, Need::Nothing)?;
        if !found {
            return Err(Error::NotFound);
        }
        self.store.edit(path.leaf(), |bytes| edit::set_item_key(bytes, path.slot(), new))?;
        if path.slot() == 0 { self.fix_low_keys(&path, 0) } else { Ok(()) }
    }

    /// Removes an item. `NotFound` if it is not there.
    pub fn remove(&mut self, key: Key) -> Result<()> {
        let (path, found) = self.descend(&key, Need::Nothing)?;
        if !found {
            return Err(Error::NotFound);
        }
        self.delete_slots(&path, path.slot()..path.slot() + 1)
    }

    /// Removes the items from `from` on, as long as they lie in one leaf and `which` says so. Answers whether the
    /// leaf's end was reached, so that there may be more.
    pub fn remove_run(&mut self, from: Key, which: &mut dyn FnMut(Key, &[u8]) -> bool) -> Result<bool> {
        let (path, _) = self.descend(&from, Need::Nothing)?;
        let block = self.store.dirty(path.leaf())?;
        let node: Node<'_> = block.node();
        let start = path.slot();
        let mut end = start;
        while end < node.nritems() && which(node.key(end), node.data(end)) {
            end += 1;
        }
        let at_end = end == node.nritems();
        drop(block);
        self.delete_slots(&path, start..end)?;
        Ok(at_end)
    }
}
