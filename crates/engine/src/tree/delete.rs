//! Removing items, and joining blocks that became too empty.

use super::RootPtr;
use super::edit::Editor;
use super::path::Path;
use crate::error::Result;
use buttery_disk::edit;
use buttery_disk::node::{leaf_data_size, max_ptrs};
use std::ops::Range;

impl Editor<'_, '_> {
    /// Removes items of the path's leaf. The path is of no use afterwards.
    pub(super) fn delete_slots(&mut self, path: &Path, slots: Range<usize>) -> Result<()> {
        if slots.is_empty() {
            return Ok(());
        }
        let (left, used) = self.store.edit(path.leaf(), |bytes| {
            edit::delete_items(bytes, slots.clone());
            let node = buttery_disk::Node::new(bytes);
            (node.nritems(), node.leaf_used())
        })?;
        if left == 0 {
            if path.top > 0 {
                self.free_block(path.leaf(), 0)?;
                self.delete_child(path, 1, path.slots[1])?;
            }
            return Ok(());
        }
        if slots.start == 0 {
            self.fix_low_keys(path, 0)?;
        }
        if used < leaf_data_size(self.store.nodesize()) / 3 {
            self.join_leaf(path, used)?;
        }
        Ok(())
    }

    /// Moves all items of a leaf into a neighbour with room, and frees the leaf.
    pub(super) fn join_leaf(&mut self, path: &Path, used: usize) -> Result<()> {
        for right in [false, true] {
            let Some((slot, bytenr)) = self.sibling(path, 0, right)? else { continue };
            if self.leaf_free_of(path, slot, bytenr)? < used {
                continue;
            }
            let into = self.cow_child(path.blocks[1], slot, 0)?;
            let from = self.store.dirty(path.leaf())?;
            let n = from.node().nritems();
            self.store.edit(into, |bytes| {
                let at = if right { 0 } else { buttery_disk::Node::new(bytes).nritems() };
                edit::copy_items(from.node().bytes(), 0..n, bytes, at);
            })?;
            drop(from);
            if right {
                let mut beside = *path;
                beside.blocks[0] = into;
                beside.slots[1] = slot;
                self.fix_low_keys(&beside, 0)?;
            }
            self.free_block(path.leaf(), 0)?;
            return self.delete_child(path, 1, path.slots[1]);
        }
        Ok(())
    }

    /// Removes a child pointer from the path's node of `level`; joins or frees that node if it became too empty.
    fn delete_child(&mut self, path: &Path, level: usize, slot: usize) -> Result<()> {
        let left = self.store.edit(path.blocks[level], |bytes| {
            edit::delete_ptrs(bytes, slot..slot + 1);
            buttery_disk::Node::new(bytes).nritems()
        })?;
        if level == path.top {
            return self.shrink_root(left);
        }
        if left == 0 {
            self.free_block(path.blocks[level], level)?;
            return self.delete_child(path, level + 1, path.slots[level + 1]);
        }
        if slot == 0 {
            self.fix_low_keys(path, level)?;
        }
        if left < max_ptrs(self.store.nodesize()) / 4 {
            self.join_node(path, level, left)?;
        }
        Ok(())
    }

    /// Moves all children of a node into a neighbour with room, and frees the node.
    fn join_node(&mut self, path: &Path, level: usize, count: usize) -> Result<()> {
        for right in [false, true] {
            let Some((slot, _)) = self.sibling(path, level, right)? else { continue };
            let parent = self.store.dirty(path.blocks[level + 1])?;
            let expect = buttery_volume::walk::child(parent.node(), slot, self.tree.owner());
            drop(parent);
            // keep room below the mark at which descents split
            if self.store.read(&expect)?.node().nritems() + count > max_ptrs(self.store.nodesize()) * 3 / 4 {
                continue;
            }
            let into = self.cow_child(path.blocks[level + 1], slot, level)?;
            let from = self.store.dirty(path.blocks[level])?;
            self.store.edit(into, |bytes| {
                let at = if right { 0 } else { buttery_disk::Node::new(bytes).nritems() };
                edit::copy_ptrs(from.node().bytes(), 0..count, bytes, at);
            })?;
            drop(from);
            if right {
                let mut beside = *path;
                beside.blocks[level] = into;
                beside.slots[level + 1] = slot;
                self.fix_low_keys(&beside, level)?;
            }
            self.free_block(path.blocks[level], level)?;
            return self.delete_child(path, level + 1, path.slots[level + 1]);
        }
        Ok(())
    }

    /// A root with one child gives way to it; one with none becomes an empty leaf.
    fn shrink_root(&mut self, left: usize) -> Result<()> {
        if left == 0 {
            let (old, level) = (self.root.bytenr, self.root.level as usize);
            let new = self.new_block(0)?;
            self.free_block(old, level)?;
            *self.root = RootPtr { bytenr: new, level: 0, generation: self.trans.id() };
            return Ok(());
        }
        while self.root.level > 0 && self.store.dirty(self.root.bytenr)?.node().nritems() == 1 {
            let (old, level) = (self.root.bytenr, self.root.level as usize);
            let child = self.cow_child(old, 0, level - 1)?;
            *self.root = RootPtr { bytenr: child, level: (level - 1) as u8, generation: self.trans.id() };
            self.free_block(old, level)?;
        }
        Ok(())
    }
}
