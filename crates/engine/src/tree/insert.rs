//! Making room: items move into a neighbour, or a block is split.

use super::edit::Editor;
use super::path::Path;
use crate::error::{Error, Result};
use buttery_disk::node::{ITEM_LEN, leaf_data_size};
use buttery_disk::{Key, Node, edit};

impl Editor<'_, '_> {
    /// Makes room for a new item of `size` bytes (with descriptor) at the path's slot; the path follows.
    pub(super) fn make_room(&mut self, path: &mut Path, key: Key, size: usize) -> Result<()> {
        if size > leaf_data_size(self.store.nodesize()) {
            return Err(Error::TooLarge);
        }
        if self.push_right(path, size)? || self.push_left(path, size)? {
            return Ok(());
        }
        let block = self.store.dirty(path.leaf())?;
        let (n, slot) = (block.node().nritems(), path.slot());
        if slot == n || slot == 0 {
            return self.new_leaf_beside(path, key, slot == n);
        }
        let at = split_place(block.node(), slot, size);
        drop(block);
        let before = *path;
        self.split_leaf(path, at)?;
        if self.store.dirty(path.leaf())?.node().leaf_free() >= size {
            return Ok(());
        }
        // split at the slot itself: the item goes to the end of the one half, or into a leaf between them. No more
        // than two children are added, for which the descent has left room
        if self.store.dirty(before.leaf())?.node().leaf_free() >= size {
            path.blocks[0] = before.leaf();
            path.slots[1] -= 1;
            path.slots[0] = slot;
            return Ok(());
        }
        self.new_leaf_beside(path, key, false)
    }

    /// Makes room for `more` bytes in the item that the path leads to, by moving the items beside it away.
    pub(super) fn make_item_room(&mut self, path: &mut Path, more: usize) -> Result<()> {
        loop {
            let block = self.store.dirty(path.leaf())?;
            let node = block.node();
            if node.leaf_free() >= more {
                return Ok(());
            }
            if node.nritems() == 1 {
                return Err(Error::TooLarge);
            }
            let at = path.slot().max(1);
            drop(block);
            self.split_leaf(path, at)?;
        }
    }

    /// An empty leaf behind (or before) the path's, to which the path then leads.
    fn new_leaf_beside(&mut self, path: &mut Path, key: Key, behind: bool) -> Result<()> {
        if path.top == 0 {
            *path = self.grow_root(path)?;
        }
        let new = self.new_block(0)?;
        let slot = path.slots[1] + usize::from(behind);
        self.insert_child_key(path, 1, slot, new, key)?;
        path.slots[1] = slot;
        path.blocks[0] = new;
        path.slots[0] = 0;
        Ok(())
    }

    /// Moves the items from `at` on into a new leaf behind; the path stays with its slot.
    fn split_leaf(&mut self, path: &mut Path, at: usize) -> Result<()> {
        if path.top == 0 {
            *path = self.grow_root(path)?;
        }
        let new = self.new_block(0)?;
        let from = self.store.dirty(path.leaf())?;
        let n = from.node().nritems();
        self.store.edit(new, |bytes| edit::copy_items(from.node().bytes(), at..n, bytes, 0))?;
        drop(from);
        self.store.edit(path.leaf(), |bytes| edit::delete_items(bytes, at..n))?;
        self.insert_child(path, 1, path.slots[1] + 1, new)?;
        if path.slot() >= at {
            path.slots[1] += 1;
            path.blocks[0] = new;
            path.slots[0] -= at;
        }
        Ok(())
    }

    /// Moves items from the leaf's end into its right neighbour, if that makes enough room.
    fn push_right(&mut self, path: &mut Path, size: usize) -> Result<bool> {
        let Some((slot, bytenr)) = self.sibling(path, 0, true)? else { return Ok(false) };
        let leaf = self.store.dirty(path.leaf())?;
        let (n, at) = (leaf.node().nritems(), path.slot());
        let room = self.leaf_free_of(path, slot, bytenr)?;
        // how many items must go, and whether they fit
        let (mut count, mut bytes) = (0, 0);
        while leaf.node().leaf_free() + bytes < size && n - count > at {
            count += 1;
            bytes += item_bytes(leaf.node(), n - count);
        }
        let enough = leaf.node().leaf_free() + bytes >= size;
        let into_right = !enough && at == n && room >= size;
        if !into_right && (!enough || bytes > room) {
            return Ok(false);
        }
        let right = self.cow_child(path.blocks[1], slot, 0)?;
        let mut beside = *path;
        beside.blocks[0] = right;
        beside.slots[1] = slot;
        if into_right {
            beside.slots[0] = 0;
            *path = beside;
            return Ok(true);
        }
        self.store.edit(right, |to| edit::copy_items(leaf.node().bytes(), n - count..n, to, 0))?;
        drop(leaf);
        self.store.edit(path.leaf(), |bytes| edit::delete_items(bytes, n - count..n))?;
        self.fix_low_keys(&beside, 0)?;
        Ok(true)
    }

    /// Moves items from the leaf's beginning into its left neighbour, if that makes enough room.
    fn push_left(&mut self, path: &mut Path, size: usize) -> Result<bool> {
        let Some((slot, bytenr)) = self.sibling(path, 0, false)? else { return Ok(false) };
        let leaf = self.store.dirty(path.leaf())?;
        let at = path.slot();
        let room = self.leaf_free_of(path, slot, bytenr)?;
        let (mut count, mut bytes) = (0, 0);
        // never all of them: the leaf keeps its place in the parent
        let most = at.min(leaf.node().nritems().saturating_sub(1));
        while leaf.node().leaf_free() + bytes < size && count < most {
            bytes += item_bytes(leaf.node(), count);
            count += 1;
        }
        let enough = leaf.node().leaf_free() + bytes >= size;
        let into_left = !enough && at == 0 && room >= size;
        if !into_left && (!enough || bytes > room) {
            return Ok(false);
        }
        let left = self.cow_child(path.blocks[1], slot, 0)?;
        let end = self.store.dirty(left)?.node().nritems();
        if into_left {
            path.blocks[0] = left;
            path.slots[1] = slot;
            path.slots[0] = end;
            return Ok(true);
        }
        self.store.edit(left, |to| edit::copy_items(leaf.node().bytes(), 0..count, to, end))?;
        drop(leaf);
        self.store.edit(path.leaf(), |bytes| edit::delete_items(bytes, 0..count))?;
        path.slots[0] -= count;
        self.fix_low_keys(path, 0)?;
        Ok(true)
    }

    /// The free bytes of a leaf that may not be of this transaction yet.
    pub(super) fn leaf_free_of(&self, path: &Path, slot: usize, _bytenr: u64) -> Result<usize> {
        let parent = self.store.dirty(path.blocks[1])?;
        let expect = buttery_volume::walk::child(parent.node(), slot, self.tree.owner());
        Ok(self.store.read(&expect)?.node().leaf_free())
    }

    /// Splits a full node into two, the tree growing if it was the root.
    pub(super) fn split_node(&mut self, path: &Path, level: usize) -> Result<()> {
        let path = if level == path.top { self.grow_root(path)? } else { *path };
        let new = self.new_block(level as u8)?;
        let from = self.store.dirty(path.blocks[level])?;
        let n = from.node().nritems();
        let at = n / 2;
        self.store.edit(new, |bytes| edit::copy_ptrs(from.node().bytes(), at..n, bytes, 0))?;
        drop(from);
        self.store.edit(path.blocks[level], |bytes| edit::delete_ptrs(bytes, at..n))?;
        self.insert_child(&path, level + 1, path.slots[level + 1] + 1, new)
    }
}

pub(super) fn item_bytes(node: Node<'_>, slot: usize) -> usize {
    node.item(slot).size.get() as usize + ITEM_LEN
}

/// Where to split a leaf so that `size` bytes fit before `slot`: in the middle, or else at the slot.
fn split_place(node: Node<'_>, slot: usize, size: usize) -> usize {
    let at = middle(node);
    let side = if slot < at { 0..at } else { at..node.nritems() };
    let bytes: usize = side.map(|s| item_bytes(node, s)).sum();
    if bytes + size <= leaf_data_size(node.bytes().len()) { at } else { slot }
}

/// The slot at which a leaf has about half of its bytes before and half behind; both sides get an item.
fn middle(node: Node<'_>) -> usize {
    let (half, n) = (node.leaf_used() / 2, node.nritems());
    let mut bytes = 0;
    for slot in 0..n {
        bytes += item_bytes(node, slot);
        if bytes >= half {
            return (slot + 1).clamp(1, n - 1);
        }
    }
    n - 1
}
