//! Moving through a tree in key order.

use super::Found;
use crate::count;
use crate::error::{Error, Result};
use crate::store::{Block, Store};
use buttery_disk::Key;
use buttery_disk::check::Expect;
use buttery_volume::walk::child;
use smallvec::SmallVec;
use std::sync::Arc;

/// A place between or at items of a tree. It is valid as long as the tree's lock is held.
pub struct Cursor<'a> {
    store: &'a Store,
    owner: Option<u64>,
    /// From the root to the leaf, with the slot taken in each.
    path: SmallVec<[(Arc<Block>, usize); 4]>,
}

impl<'a> Cursor<'a> {
    /// At the first item that is not before `key`.
    pub(super) fn seek(store: &'a Store, root: &Expect, key: Key) -> Result<Cursor<'a>> {
        count::descent();
        let mut cursor = Cursor { store, owner: root.owner, path: SmallVec::new() };
        let mut expect = *root;
        loop {
            let block = store.read(&expect)?;
            let node = block.node();
            if node.level() == 0 {
                let slot = node.search(&key).unwrap_or_else(|slot| slot);
                let beyond = slot >= node.nritems();
                cursor.path.push((block, slot));
                if beyond {
                    cursor.next_leaf()?;
                }
                return Ok(cursor);
            }
            let slot = node.child_slot(&key);
            expect = child(node, slot, root.owner);
            cursor.path.push((block, slot));
        }
    }

    fn leaf(&self) -> Option<(&Arc<Block>, usize)> {
        let (leaf, slot) = self.path.last()?;
        (leaf.node().level() == 0 && *slot < leaf.node().nritems()).then_some((leaf, *slot))
    }

    /// The key at the cursor; `None` behind the last item.
    pub fn key(&self) -> Option<Key> {
        self.leaf().map(|(leaf, slot)| leaf.node().key(slot))
    }

    /// The item at the cursor; `None` behind the last item.
    pub fn item(&self) -> Option<(Key, &[u8])> {
        self.leaf().map(|(leaf, slot)| (leaf.node().key(slot), leaf.node().data(slot)))
    }

    /// The item at the cursor, to be kept.
    pub fn found(&self) -> Option<Found> {
        self.leaf().map(|(leaf, slot)| Found { leaf: leaf.clone(), slot })
    }

    /// Moves to the next item.
    pub fn advance(&mut self) -> Result<()> {
        if let Some((leaf, slot)) = self.path.last_mut() {
            *slot += 1;
            if *slot >= leaf.node().nritems() {
                self.next_leaf()?;
            }
        }
        Ok(())
    }

    /// Moves to the first item of the next leaf; behind the last item if there is none.
    fn next_leaf(&mut self) -> Result<()> {
        let Some(level) = (0..self.path.len().saturating_sub(1))
            .rev()
            .find(|&i| self.path[i].1 + 1 < self.path[i].0.node().nritems())
        else {
            return Ok(());
        };
        let before = self
            .path
            .last()
            .and_then(|(leaf, _)| leaf.node().nritems().checked_sub(1).map(|n| leaf.node().key(n)));
        self.path.truncate(level + 1);
        self.path[level].1 += 1;
        self.descend(|_| 0)?;
        match (before, self.key()) {
            // leaves that overlap would let a hostile image lead through the same blocks without end
            (Some(before), Some(key)) if key <= before => Err(Error::Corrupt(
                format!("a leaf begins with {key}, but the one before it ends with {before}").into(),
            )),
            _ => Ok(()),
        }
    }

    /// Moves to the item before; answers whether there is one. Without one the cursor stays.
    pub fn prev(&mut self) -> Result<bool> {
        if let Some((_, slot)) = self.path.last_mut()
            && *slot > 0
        {
            *slot -= 1;
            return Ok(true);
        }
        let Some(level) = (0..self.path.len().saturating_sub(1)).rev().find(|&i| self.path[i].1 > 0) else {
            return Ok(false);
        };
        self.path.truncate(level + 1);
        self.path[level].1 -= 1;
        self.descend(|n| n.saturating_sub(1))?;
        Ok(self.leaf().is_some())
    }

    /// From the child that the last path element names down to a leaf, taking the slot that `pick` chooses of each
    /// block's count.
    fn descend(&mut self, pick: impl Fn(usize) -> usize) -> Result<()> {
        while let Some((block, slot)) = self.path.last() {
            let node = block.node();
            if node.level() == 0 {
                break;
            }
            let below = self.store.read(&child(node, *slot, self.owner))?;
            let slot = pick(below.node().nritems());
            self.path.push((below, slot));
        }
        Ok(())
    }
}
