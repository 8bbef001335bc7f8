//! Tree blocks in memory: the cache of clean ones, the map of dirty ones, and reading what is in neither.
//!
//! A block is a shared buffer of the bytes on disk. A clean one never changes. A dirty one belongs to one tree and is
//! edited in place by whoever holds that tree's lock; a reader that still holds the buffer keeps what it had (the
//! buffer is copied then). Blocks that a commit has frozen but not yet written stay in the dirty map.

use crate::error::{Error, Result};
use buttery_disk::Node;
use buttery_disk::check::Expect;
use buttery_volume::Volume;
use hashbrown::HashMap;
use parking_lot::RwLock;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::sync::Arc;

/// The bytes of one tree block.
#[derive(Clone)]
pub struct Block {
    bytes: Box<[u8]>,
}

impl Block {
    /// A block of these bytes, which the tree checker has passed or the engine has made.
    pub fn new(bytes: Vec<u8>) -> Block {
        Block { bytes: bytes.into_boxed_slice() }
    }

    /// A view of header and items.
    pub fn node(&self) -> Node<'_> {
        Node::new(&self.bytes)
    }

    /// The bytes, to be edited.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<u64, Arc<Block>> for ByBytes {
    fn weight(&self, _bytenr: &u64, block: &Arc<Block>) -> u64 {
        block.bytes.len() as u64
    }
}

const SHARDS: usize = 16;

/// All tree blocks of a file system that are in memory.
pub struct Store {
    volume: Volume,
    clean: Cache<u64, Arc<Block>, ByBytes>,
    dirty: [RwLock<HashMap<u64, Arc<Block>>>; SHARDS],
}

impl Store {
    /// A store over a volume that keeps at most `cache_bytes` of clean blocks.
    pub fn new(volume: Volume, cache_bytes: u64) -> Store {
        let nodesize = volume.context().nodesize as u64;
        let blocks = (cache_bytes / nodesize).max(64) as usize;
        let clean = Cache::with_weighter(blocks, cache_bytes.max(64 * nodesize), ByBytes);
        Store { volume, clean, dirty: std::array::from_fn(|_| RwLock::default()) }
    }

    /// The volume below.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Bytes of a tree block.
    pub fn nodesize(&self) -> usize {
        self.volume.context().nodesize as usize
    }

    fn shard(&self, bytenr: u64) -> &RwLock<HashMap<u64, Arc<Block>>> {
        &self.dirty[(bytenr >> 12) as usize % SHARDS]
    }

    /// The block that a pointer names, from memory or from disk; everything that the pointer says of it holds.
    pub fn read(&self, expect: &Expect) -> Result<Arc<Block>> {
        if let Some(block) = self.shard(expect.bytenr).read().get(&expect.bytenr) {
            return matching(block.clone(), expect);
        }
        if let Some(block) = self.clean.get(&expect.bytenr) {
            return matching(block, expect);
        }
        let block = Arc::new(Block::new(self.volume.read_block(expect)?));
        self.clean.insert(expect.bytenr, block.clone());
        Ok(block)
    }

    /// A block of the dirty map. It must be there: only its tree's writer asks.
    pub fn dirty(&self, bytenr: u64) -> Result<Arc<Block>> {
        self.shard(bytenr).read().get(&bytenr).cloned().ok_or_else(|| not_dirty(bytenr))
    }

    /// Edits a dirty block in place.
    pub fn edit<R>(&self, bytenr: u64, edit: impl FnOnce(&mut [u8]) -> R) -> Result<R> {
        let mut shard = self.shard(bytenr).write();
        let block = shard.get_mut(&bytenr).ok_or_else(|| not_dirty(bytenr))?;
        Ok(edit(Arc::make_mut(block).bytes_mut()))
    }

    /// Adds a block of this transaction.
    pub fn insert_dirty(&self, bytenr: u64, block: Block) {
        self.clean.remove(&bytenr);
        self.shard(bytenr).write().insert(bytenr, Arc::new(block));
    }

    /// Forgets a block that was freed.
    pub fn forget(&self, bytenr: u64) {
        self.shard(bytenr).write().remove(&bytenr);
        self.clean.remove(&bytenr);
    }

    /// The dirty blocks of a transaction. They stay in the map until they are written.
    pub fn take_dirty_list(&self, generation: u64) -> Vec<(u64, Arc<Block>)> {
        let mut out = Vec::new();
        for shard in &self.dirty {
            let shard = shard.read();
            let ours = shard.iter().filter(|(_, b)| b.node().header().generation.get() == generation);
            out.extend(ours.map(|(bytenr, block)| (*bytenr, block.clone())));
        }
        out
    }

    /// Bytes of dirty blocks.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty.iter().map(|s| s.read().len() as u64).sum::<u64>() * self.nodesize() as u64
    }

    /// Moves a block that has been written from the dirty map to the clean cache, unless it was freed, or replaced
    /// by another at the same place, in the meantime.
    pub fn settle(&self, bytenr: u64, written: &Arc<Block>) {
        let mut shard = self.shard(bytenr).write();
        if shard.get(&bytenr).is_some_and(|b| Arc::ptr_eq(b, written)) {
            shard.remove(&bytenr);
            self.clean.insert(bytenr, written.clone());
        }
    }
}

fn not_dirty(bytenr: u64) -> Error {
    Error::Corrupt(format!("block {bytenr} was expected to belong to this transaction").into())
}

/// A cached block was checked when it was read; what this pointer says must hold too.
fn matching(block: Arc<Block>, expect: &Expect) -> Result<Arc<Block>> {
    let node = block.node();
    let header = node.header();
    let holds = expect.level.is_none_or(|l| l == header.level)
        && expect.generation.is_none_or(|g| g == header.generation.get())
        && expect.owner.is_none_or(|o| o == header.owner.get())
        && expect.first_key.is_none_or(|k| node.nritems() > 0 && node.key(0) == k);
    if holds {
        return Ok(block);
    }
    Err(Error::Corrupt(
        format!(
            "block {}: level {}, generation {}, owner {} do not match what points at it: {:?}",
            expect.bytenr,
            header.level,
            header.generation.get(),
            header.owner.get(),
            expect
        )
        .into(),
    ))
}
