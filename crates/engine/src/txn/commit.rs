//! The commit: everything that a transaction changed becomes one state on the device, or none of it does.
//!
//! Most delayed references run while others go on. Then joins stop; the rest of them, block groups and root items run to a
//! fixed point, the root tree last; the dirty blocks are frozen and the next transaction may begin; then blocks, flush, superblocks, flush, and only then is what
//! was freed given out again.

use super::Trans;
use crate::space::free_space_tree;
use crate::store::Block;
use crate::tree::Tree;
use crate::{Engine, Error, Result, device_stats, extent, space, subvol};
use buttery_disk::chunk::{BlockGroupItem, DevItem};
use buttery_disk::root::RootItem;
use buttery_disk::superblock::{RootBackup, Superblock, flags};
use buttery_disk::zerocopy::{FromBytes, IntoBytes};
use buttery_disk::{Key, TreeId, item, objectid};
use parking_lot::MutexGuard;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Rounds after which a commit that finds no end must be caught in a mistake.
const ROUNDS_MAX: usize = 64;

/// How often references are run before joins stop, and for how few it does not pay.
const AHEAD_ROUNDS: usize = 4;
const AHEAD_MIN: usize = 32;

/// Brings the delayed references that there are into the extent tree.
fn run_references(trans: &mut Trans<'_>, free_space: &mut free_space_tree::Changes) -> Result<()> {
    for bytenr in trans.writer().refs.addresses() {
        extent::apply::run(trans, bytenr, free_space)?;
        trans.writer().refs.tell_later(free_space.len());
    }
    Ok(())
}

/// What a frozen transaction has to write.
struct Frozen {
    blocks: Vec<(u64, Arc<Block>)>,
    sb: Superblock,
    /// The device items, each for its own superblock.
    devices: Vec<DevItem>,
    id: u64,
}

impl Engine {
    /// Commits the running transaction: returns when all that was changed before the call is on the device, data that
    /// were written in place too. Nothing is written if nothing was changed.
    pub fn commit(&self) -> Result<()> {
        let one = self.writer()?.txn.commit.lock();
        self.commit_alone(&one)
    }

    /// The same, unless a commit is under way already: that answers `false` at once.
    pub fn try_commit(&self) -> Result<bool> {
        match self.writer()?.txn.commit.try_lock() {
            Some(one) => self.commit_alone(&one).map(|()| true),
            None => Ok(false),
        }
    }

    /// Waits for the commit that is under way, if one is.
    pub fn await_commit(&self) -> Result<()> {
        drop(self.writer()?.txn.commit.lock());
        Ok(())
    }

    fn commit_alone(&self, _one: &MutexGuard<'_, ()>) -> Result<()> {
        let writer = self.writer()?;
        if writer.txn.is_aborted() {
            return Err(Error::Aborted);
        }
        let changed = writer.txn.modified.load(Ordering::Acquire) || !writer.txn.pending.lock().is_empty();
        let result = match changed || self.volume().has_new_faults() {
            true => self.commit_changes(),
            // data that were written in place are behind no item
            false if writer.txn.is_unflushed() => {
                let written = writer.txn.written();
                let flushed = self.volume().flush();
                let done = flushed.map(|()| writer.txn.flushed(written)).map_err(Into::into);
                // a device that failed just now must be known by its old superblock
                match self.volume().has_new_faults() {
                    true => done.and_then(|()| self.commit_changes()),
                    false => done,
                }
            }
            false => Ok(()),
        };
        if let Err(error) = &result {
            writer.txn.abort(error);
        }
        result
    }

    /// Whether everything that was changed before the call is on the device, so that a commit has nothing to do.
    pub fn is_committed(&self) -> bool {
        let Ok(writer) = self.writer() else { return true };
        let txn = &writer.txn;
        let changed =
            txn.modified.load(Ordering::Acquire) || txn.is_unflushed() || self.volume().has_new_faults();
        if txn.is_aborted() || changed {
            return false;
        }
        // what is not modified any more may still be under way
        let state = txn.state.lock();
        !state.closed && txn.committed.load(Ordering::Acquire) + 1 == state.id
    }

    fn commit_changes(&self) -> Result<()> {
        let mut free_space = free_space_tree::Changes::default();
        self.run_ahead(&mut free_space)?;
        let frozen = self.freeze(free_space)?;
        self.write_out(frozen)
    }

    /// Runs most of the delayed references while others go on, so that they wait for the rest only.
    fn run_ahead(&self, free_space: &mut free_space_tree::Changes) -> Result<()> {
        let refs = &self.writer()?.refs;
        for _ in 0..AHEAD_ROUNDS {
            if refs.len() < AHEAD_MIN {
                break;
            }
            let mut trans = self.start_unreserved()?;
            let result = run_references(&mut trans, free_space);
            trans.end(result)?;
        }
        Ok(())
    }

    /// Stops joins, brings every tree to its final form, and lets the next transaction begin.
    fn freeze(&self, free_space: free_space_tree::Changes) -> Result<Frozen> {
        let writer = self.writer()?;
        let id = {
            let mut state = writer.txn.state.lock();
            state.closed = true;
            while state.handles > 0 {
                writer.txn.changed.wait(&mut state);
            }
            state.id
        };
        // a handle that failed while we waited must not be committed
        let result =
            if writer.txn.is_aborted() { Err(Error::Aborted) } else { self.finish_trees(id, free_space) };
        if result.is_ok() {
            writer.txn.modified.store(false, Ordering::Release);
            writer.space.freeze_pinned();
        }
        let mut state = writer.txn.state.lock();
        state.id += u64::from(result.is_ok());
        state.closed = false;
        writer.txn.changed.notify_all();
        result
    }

    fn finish_trees(&self, id: u64, mut free_space: free_space_tree::Changes) -> Result<Frozen> {
        let writer = self.writer()?;
        let mut trans =
            Trans { engine: self, writer, id, reserved: 0, modified: false, ended: false, of_commit: true };
        self.mark_quota_inconsistent(&mut trans)?;
        writer.inodes.flush(&mut trans)?;
        self.take_snapshots(&mut trans)?;
        device_stats::write(&mut trans)?;
        // the superblock's generation is that of the root, also where only the superblock changes
        self.root_tree.write(&mut trans).cow_root()?;
        for round in 0.. {
            if round == ROUNDS_MAX {
                return Err(Error::Corrupt("a commit comes to no end".into()));
            }
            while writer.refs.len() > 0 || !free_space.is_empty() {
                run_references(&mut trans, &mut free_space)?;
                std::mem::take(&mut free_space).run(&mut trans)?;
                writer.refs.tell_later(0);
            }
            let groups = self.write_groups(&mut trans)?;
            let roots = self.write_roots(&mut trans)?;
            if !groups && !roots && writer.refs.len() == 0 {
                break;
            }
        }
        let sb = self.next_superblock(id)?;
        let mut blocks = self.store.take_dirty_list(id);
        blocks.sort_unstable_by_key(|(bytenr, _)| *bytenr);
        let devices = self.writer()?.devices.lock().values().copied().collect();
        Ok(Frozen { blocks, sb, devices, id })
    }

    /// Takes the snapshots that wait; all that others changed in this transaction is in the trees.
    fn take_snapshots(&self, trans: &mut Trans<'_>) -> Result<()> {
        let pending = std::mem::take(&mut *trans.writer().txn.pending.lock());
        for snapshot in &pending {
            subvol::snapshot::create(trans, snapshot)?;
            // the directory that got the name
            trans.writer().inodes.flush(trans)?;
        }
        Ok(())
    }

    /// Writes the items of groups whose use changed. Answers whether there were any.
    fn write_groups(&self, trans: &mut Trans<'_>) -> Result<bool> {
        let tree = self.tree(space::group_tree(self))?;
        let mut any = false;
        for group in trans.space().all_groups() {
            let Some(used) = group.take_dirty() else { continue };
            any = true;
            let key = Key::new(group.start, item::BLOCK_GROUP_ITEM, group.len);
            let written = tree.write(trans).modify(key, |data| {
                BlockGroupItem::mut_from_bytes(data).map(|item| item.used = used.into()).is_ok()
            })?;
            if !written {
                return Err(Error::corrupt(tree.id(), key, "a block group item has 24 bytes"));
            }
        }
        Ok(any)
    }

    /// Writes the root items of trees whose root moved. Answers whether there were any.
    fn write_roots(&self, trans: &mut Trans<'_>) -> Result<bool> {
        let trees: Vec<Arc<Tree>> = self.trees.read().values().cloned().collect();
        let mut any = false;
        for tree in trees {
            let Some(root) = tree.changed() else { continue };
            any = true;
            let item: RootItem = tree.take_change(root, trans.id());
            self.root_tree.write(trans).put(tree.item_key(), item.as_bytes())?;
        }
        Ok(any)
    }

    /// A quota-enabled file system gets its status INCONSISTENT, since quotas are not kept.
    fn mark_quota_inconsistent(&self, trans: &mut Trans<'_>) -> Result<()> {
        const ON: u64 = 1;
        const INCONSISTENT: u64 = 4;
        let tree = match self.tree(TreeId(objectid::QUOTA_TREE)) {
            Ok(tree) => tree,
            Err(Error::NotFound) => return Ok(()),
            Err(error) => return Err(error),
        };
        let key = Key::new(0, item::QGROUP_STATUS, 0);
        let Some(found) = tree.read(&self.store).get(key)?.map(|f| f.data().to_vec()) else { return Ok(()) };
        let Some(bytes) = found.get(16..24) else { return Ok(()) };
        let status = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        if status & ON == 0 || status & INCONSISTENT != 0 {
            return Ok(());
        }
        tree.write(trans)
            .modify(key, |data| data[16..24].copy_from_slice(&(status | INCONSISTENT).to_le_bytes()))
    }

    fn next_superblock(&self, id: u64) -> Result<Superblock> {
        let writer = self.writer()?;
        let (root, chunk) = (self.root_tree.root(), self.chunk_tree.root());
        let mut sb = writer.sb.lock();
        let uuid_tree_kept = sb.uuid_tree_generation == sb.generation;
        sb.generation = id.into();
        sb.root = root.bytenr.into();
        sb.root_level = root.level;
        sb.chunk_root = chunk.bytenr.into();
        sb.chunk_root_level = chunk.level;
        sb.chunk_root_generation = chunk.generation.into();
        sb.log_root = 0.into();
        sb.log_root_level = 0;
        sb.bytes_used = writer.space.bytes_used().into();
        sb.flags = (sb.flags.get() | flags::WRITTEN).into();
        if uuid_tree_kept {
            sb.uuid_tree_generation = id.into();
        }
        let backup = self.backup(&sb)?;
        let newest = (0..4).max_by_key(|&i| sb.super_roots[i].tree_root_gen.get()).unwrap_or(3);
        sb.super_roots[(newest + 1) % 4] = backup;
        Ok(sb.clone())
    }

    fn backup(&self, sb: &Superblock) -> Result<RootBackup> {
        let root_of = |id: u64| match self.tree(TreeId(id)) {
            Ok(tree) => Ok(tree.root()),
            Err(Error::NotFound) => Ok(crate::tree::RootPtr { bytenr: 0, level: 0, generation: 0 }),
            Err(error) => Err(error),
        };
        let (extent, fs) = (root_of(objectid::EXTENT_TREE)?, root_of(objectid::FS_TREE)?);
        let (dev, csum) = (root_of(objectid::DEV_TREE)?, root_of(objectid::CSUM_TREE)?);
        Ok(RootBackup {
            tree_root: sb.root,
            tree_root_gen: sb.generation,
            chunk_root: sb.chunk_root,
            chunk_root_gen: sb.chunk_root_generation,
            extent_root: extent.bytenr.into(),
            extent_root_gen: extent.generation.into(),
            fs_root: fs.bytenr.into(),
            fs_root_gen: fs.generation.into(),
            dev_root: dev.bytenr.into(),
            dev_root_gen: dev.generation.into(),
            csum_root: csum.bytenr.into(),
            csum_root_gen: csum.generation.into(),
            total_bytes: sb.total_bytes,
            bytes_used: sb.bytes_used,
            num_devices: sb.num_devices,
            unused_64: Default::default(),
            tree_root_level: sb.root_level,
            chunk_root_level: sb.chunk_root_level,
            extent_root_level: extent.level,
            fs_root_level: fs.level,
            dev_root_level: dev.level,
            csum_root_level: csum.level,
            unused_8: [0; 10],
        })
    }

    /// Brings a frozen transaction to the device.
    fn write_out(&self, frozen: Frozen) -> Result<()> {
        let writer = self.writer()?;
        self.write_blocks(&frozen.blocks)?;
        let volume = self.volume();
        let written = writer.txn.written();
        volume.flush()?;
        writer.txn.flushed(written);
        volume.write_supers(&frozen.sb, &frozen.devices)?;
        volume.flush()?;
        writer.txn.committed.store(frozen.id, Ordering::Release);
        // before any of its blocks can leave memory
        volume.advance(frozen.id);
        for (bytenr, block) in &frozen.blocks {
            self.store.settle(*bytenr, block);
        }
        if self.discard {
            for (start, len) in writer.space.committing() {
                volume.discard(start, len)?;
            }
        }
        writer.space.unpin();
        Ok(())
    }

    /// Writes blocks, those that lie one behind the other in one go. The checksum is computed here and written before
    /// the rest of each block; in memory it is never looked at.
    fn write_blocks(&self, blocks: &[(u64, Arc<Block>)]) -> Result<()> {
        let volume = self.volume();
        let (nodesize, csum) = (self.store.nodesize() as u64, volume.csum());
        let mut start = 0;
        while start < blocks.len() {
            let chunk_end = volume.chunks().find(blocks[start].0).map_or(0, |c| c.end());
            let mut end = start + 1;
            while end < blocks.len()
                && end - start < 128
                && blocks[end].0 == blocks[end - 1].0 + nodesize
                && blocks[end].0 < chunk_end
            {
                end += 1;
            }
            let run = &blocks[start..end];
            let sums: Vec<_> = run.iter().map(|(_, b)| csum.sum(&b.node().bytes()[32..])).collect();
            let bufs: Vec<IoSlice<'_>> = run
                .iter()
                .zip(&sums)
                .flat_map(|((_, b), sum)| [IoSlice::new(sum), IoSlice::new(&b.node().bytes()[32..])])
                .collect();
            volume.write_vectored(run[0].0, &bufs)?;
            start = end;
        }
        Ok(())
    }
}
