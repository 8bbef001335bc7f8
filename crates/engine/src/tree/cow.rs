//! Copy on write: a block of an earlier transaction becomes one of this transaction, and the references that follow.
//!
//! A block that may be shared with a snapshot, or that a balance moved, has its references counted, in the extent tree and among the delayed
//! ones. Who then holds the references of its children is decided by the block's owner and FULL_BACKREF:
//!
//! | references | owner is this tree, not FULL_BACKREF | otherwise |
//! | --- | --- | --- |
//! | more than one | full ones for the old block's children, FULL_BACKREF on the old | normal ones for the new one's |
//! | one | nothing to do | FULL_BACKREF: normal for the new one's children, drop the old one's full ones |

use super::RootPtr;
use super::edit::Editor;
use crate::count;
use crate::error::{Error, Result};
use crate::extent;
use crate::extent::children::{self, RefBy};
use crate::store::Block;
use buttery_disk::TreeId;
use buttery_disk::check::Expect;
use buttery_disk::edit;
use buttery_disk::extent::flags::FULL_BACKREF;
use buttery_disk::node::flags::RELOC;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Editor<'_, '_> {
    /// Makes the root a block of this transaction.
    pub(crate) fn cow_root(&mut self) -> Result<()> {
        if self.root.generation == self.trans.id() {
            return Ok(());
        }
        let block = self.store.read(&super::root_expect(&self.root, self.tree.owner()))?;
        let level = self.root.level;
        let new = self.cow_block(&block, true)?;
        *self.root = RootPtr { bytenr: new, level, generation: self.trans.id() };
        Ok(())
    }

    /// Makes a child a block of this transaction; its parent, which is one, points at it afterwards.
    pub(super) fn cow_child(&mut self, parent: u64, slot: usize, level: usize) -> Result<u64> {
        let (expect, first) = {
            let block = self.store.dirty(parent)?;
            let node = block.node();
            let expect = Expect {
                level: Some(level as u8),
                ..buttery_volume::walk::child(node, slot, self.tree.owner())
            };
            (expect, node.key(slot))
        };
        if self.is_to_edit(expect.bytenr, expect.generation.unwrap_or_default(), level)? {
            return Ok(expect.bytenr);
        }
        let block = self.store.read(&expect)?;
        let new = self.cow_block(&block, false)?;
        let generation = self.trans.id();
        self.store.edit(parent, |bytes| edit::set_ptr(bytes, slot, first, new, generation))?;
        Ok(new)
    }

    /// Whether a block can be edited as it is: it is one of this transaction, and no snapshot of this transaction has it.
    pub(super) fn is_to_edit(&self, bytenr: u64, generation: u64, level: usize) -> Result<bool> {
        if generation != self.trans.id() {
            return Ok(false);
        }
        if self.tree.last_snapshot() != generation {
            return Ok(true);
        }
        Ok(extent::block_refs(self.trans.engine(), bytenr, level as u8)?.0 <= 1)
    }

    /// Makes a copy of the root block the root of another tree, and all below it shared.
    pub(crate) fn copy_root(&mut self, id: TreeId) -> Result<RootPtr> {
        self.cow_root()?;
        let old = self.store.dirty(self.root.bytenr)?;
        let new = self.trans.alloc_block(id, self.root.level)?;
        let mut copy = Block::clone(&old);
        let head = edit::header_mut(copy.bytes_mut());
        head.bytenr = new.into();
        head.owner = id.0.into();
        children::add(self.trans, copy.node(), RefBy::Root(id.0), 1)?;
        self.store.insert_dirty(new, copy);
        Ok(RootPtr { bytenr: new, ..*self.root })
    }

    fn cow_block(&mut self, old: &Arc<Block>, is_root: bool) -> Result<u64> {
        let header = *old.node().header();
        let (bytenr, level) = (header.bytenr.get(), header.level);
        let new = self.trans.alloc_block(self.tree.id(), level)?;
        let mut copy = Block::clone(old);
        count::copied(self.store.nodesize());
        let fsid = self.store.volume().context().fsid;
        let head = edit::header_mut(copy.bytes_mut());
        head.bytenr = new.into();
        head.generation = self.trans.id().into();
        head.owner = self.tree.id().0.into();
        head.fsid = fsid;
        head.flags = new_block_flags().into();
        // until its reference is dropped nobody else may count those of a block that several trees have
        let writer = self.trans.writer();
        let shareable = self.may_share(old, is_root);
        let _alone = shareable.then(|| writer.sharing.lock());
        let last = self.update_refs(old, &copy, shareable)?;
        self.store.insert_dirty(new, copy);
        self.trans.drop_block_ref(self.tree.id(), bytenr, level)?;
        if last {
            self.store.forget(bytenr);
        }
        Ok(new)
    }

    /// Whether other trees may have the block too. A subvolume's root block is its own: taking a snapshot copies it.
    fn may_share(&self, block: &Block, is_root: bool) -> bool {
        let header = block.node().header();
        let snapshot = self.tree.last_snapshot.load(Ordering::Acquire);
        let is_old = header.generation.get() <= snapshot || header.flags.get() & RELOC != 0;
        self.tree.is_subvolume() && !is_root && is_old
    }

    /// Moves the references of the children as the table above says. Answers whether the old block is now free.
    fn update_refs(&mut self, old: &Block, new: &Block, shareable: bool) -> Result<bool> {
        let header = old.node().header();
        let (bytenr, level) = (header.bytenr.get(), header.level);
        let (refs, flags) =
            if shareable { extent::block_refs(self.trans.engine(), bytenr, level)? } else { (1, 0) };
        if refs == 0 {
            return Err(Error::Corrupt(format!("block {bytenr} is in use but has no extent item").into()));
        }
        let ours = RefBy::Root(self.tree.id().0);
        if refs > 1 {
            if header.owner.get() == self.tree.id().0 && flags & FULL_BACKREF == 0 {
                children::add(self.trans, old.node(), RefBy::Parent(bytenr), 1)?;
                self.trans.set_full_backref(bytenr, level);
            } else {
                children::add(self.trans, new.node(), ours, 1)?;
            }
            return Ok(false);
        }
        if flags & FULL_BACKREF != 0 {
            children::add(self.trans, new.node(), ours, 1)?;
            children::add(self.trans, old.node(), RefBy::Parent(bytenr), -1)?;
        }
        Ok(true)
    }

    /// A new, empty block of this tree.
    pub(super) fn new_block(&mut self, level: u8) -> Result<u64> {
        let bytenr = self.trans.alloc_block(self.tree.id(), level)?;
        let ctx = *self.store.volume().context();
        let mut bytes = vec![0; ctx.nodesize as usize];
        edit::init(&mut bytes, level);
        let header = edit::header_mut(&mut bytes);
        header.bytenr = bytenr.into();
        header.generation = self.trans.id().into();
        header.owner = self.tree.id().0.into();
        header.fsid = ctx.fsid;
        header.chunk_tree_uuid = self.trans.chunk_tree_uuid();
        header.flags = new_block_flags().into();
        self.store.insert_dirty(bytenr, Block::new(bytes));
        self.tree.bytes_used.fetch_add(ctx.nodesize as i64, Ordering::Relaxed);
        Ok(bytenr)
    }

    /// Frees a block of this transaction that nothing points at any more.
    pub(super) fn free_block(&mut self, bytenr: u64, level: usize) -> Result<()> {
        self.store.forget(bytenr);
        self.tree.bytes_used.fetch_sub(self.store.nodesize() as i64, Ordering::Relaxed);
        self.trans.drop_block_ref(self.tree.id(), bytenr, level as u8)
    }
}

/// What a block will be when it is on disk: written, with the current kind of back references.
fn new_block_flags() -> u64 {
    use buttery_disk::node::flags::{MIXED_BACKREF_REV, WRITTEN};
    MIXED_BACKREF_REV | WRITTEN
}
