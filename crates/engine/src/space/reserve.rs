//! Space reserved at the call: an operation that begins can end, and a full file system can be emptied.
//!
//! Metadata space has to suffice for three things: what the running handles may still use, what the commit itself will
//! need for the extent tree and its like, and a global reserve that only operations that free space may touch.

use super::chunks;
use super::group::Class;
use super::load::load_free;
use crate::txn::{Purpose, Trans};
use crate::{Engine, Error, Result};
use buttery_disk::node::max_ptrs;
use buttery_disk::{TreeId, objectid};
use std::time::Duration;

/// Bytes for changing `items` items: each may copy a path of the tree and split its leaf.
fn bytes_for(engine: &Engine, items: u64) -> u64 {
    items * 4 * engine.store().nodesize() as u64
}

/// Space that is kept for one who will write later: the write then cannot fail for want of it. Whoever has one gives
/// back what is left.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Allocated for data: address and length.
    data: Vec<(u64, u64)>,
    /// Bytes of metadata space.
    metadata: u64,
}

impl Room {
    /// Up to `want` bytes for data, at least one sector: of what is kept, or as anybody gets them.
    pub fn take_data(&mut self, engine: &Engine, want: u64) -> Result<(u64, u64)> {
        let Some((bytenr, len)) = self.data.first_mut() else { return data(engine, want) };
        let taken = (*bytenr, want.min(*len));
        *bytenr += taken.1;
        *len -= taken.1;
        if *len == 0 {
            self.data.remove(0);
        }
        Ok(taken)
    }

    /// Keeps metadata space for changing so many items. Answers `false` if it is not at hand.
    pub fn keep_metadata(&mut self, engine: &Engine, items: u64) -> Result<bool> {
        let need = bytes_for(engine, items);
        let kept = try_reserve(engine, need, Purpose::Change)?;
        self.metadata += if kept { need } else { 0 };
        Ok(kept)
    }

    /// Keeps space for `least` bytes of data or more, up to `want`, if it is plenty. `None` if it is not at hand in one
    /// piece. Answers how much it is, and whether it goes on where the last ended.
    pub fn keep_data(&mut self, engine: &Engine, least: u64, want: u64) -> Result<Option<(u64, bool)>> {
        let space = &engine.writer()?.space;
        let sector = engine.volume().context().sectorsize as u64;
        let spare = space.available(Class::Data) / PLENTY / sector * sector;
        let want = want.min(spare).max(least);
        let found = space.alloc_data_again(want).or_else(|| space.alloc_data(want, want));
        let Some((bytenr, len)) = found.or_else(|| space.alloc_data(least, least)) else { return Ok(None) };
        match self.data.last_mut() {
            Some(last) if last.0 + last.1 == bytenr && space.is_one_group(last.0, bytenr) => {
                last.1 += len;
                Ok(Some((len, true)))
            }
            _ => {
                self.data.push((bytenr, len));
                Ok(Some((len, false)))
            }
        }
    }

    /// What was taken from what is kept was not used.
    pub fn put_back(&mut self, engine: &Engine, bytenr: u64, len: u64) -> Result<()> {
        let space = &engine.writer()?.space;
        match self.data.first_mut() {
            Some(first) if bytenr + len == first.0 && space.is_one_group(bytenr, first.0) => {
                *first = (bytenr, len + first.1);
            }
            _ => self.data.insert(0, (bytenr, len)),
        }
        Ok(())
    }

    /// Gives back the last data space that was kept, so many bytes of it.
    pub fn drop_last(&mut self, engine: &Engine, len: u64) -> Result<()> {
        if let Some(last) = self.data.last_mut() {
            let len = len.min(last.1);
            last.1 -= len;
            engine.writer()?.space.release_data(last.0 + last.1, len);
            self.data.retain(|(_, len)| *len > 0);
        }
        Ok(())
    }

    /// Gives back data space beyond so many bytes.
    pub fn trim_data(&mut self, engine: &Engine, keep: u64) -> Result<()> {
        let mut surplus = self.data.iter().map(|(_, len)| len).sum::<u64>().saturating_sub(keep);
        while surplus > 0 {
            let taken = self.take_data(engine, surplus)?;
            engine.writer()?.space.release_data(taken.0, taken.1);
            surplus -= taken.1;
        }
        Ok(())
    }

    /// Gives back metadata space beyond what changing so many items takes.
    pub fn trim_metadata(&mut self, engine: &Engine, items: u64) -> Result<()> {
        let surplus = self.metadata.saturating_sub(bytes_for(engine, items));
        self.metadata -= surplus;
        engine.writer()?.space.unreserve(surplus);
        Ok(())
    }

    /// Gives back what is left.
    pub fn give_back(self, engine: &Engine) -> Result<()> {
        let space = &engine.writer()?.space;
        for (bytenr, len) in self.data {
            space.release_data(bytenr, len);
        }
        space.unreserve(self.metadata);
        Ok(())
    }

    /// Joins the running transaction with what is kept, or as anybody does.
    pub fn start<'e>(&mut self, engine: &'e Engine, items: u64, purpose: Purpose) -> Result<Trans<'e>> {
        let need = bytes_for(engine, items);
        match self.metadata.checked_sub(need) {
            Some(left) => {
                self.metadata = left;
                engine.join(need)
            }
            None => engine.start(items, purpose),
        }
    }
}

/// Nobody keeps more than this part of the free space for what is yet to come.
const PLENTY: u64 = 256;

/// What an item of a reference takes in leaves that are half full.
const REF_BYTES: u64 = 128;

/// What a commit may need: every changed extent may touch another leaf of the extent tree and of the free-space tree,
/// but not more than there are.
fn commit_reserve(engine: &Engine) -> Result<u64> {
    let writer = engine.writer()?;
    let nodesize = engine.store().nodesize() as u64;
    let mut trees = 0;
    for id in
        [objectid::EXTENT_TREE, objectid::FREE_SPACE_TREE, objectid::BLOCK_GROUP_TREE, objectid::ROOT_TREE]
    {
        match engine.tree(TreeId(id)) {
            Ok(tree) => trees += tree.bytes_used().max(nodesize),
            Err(Error::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    // an extent's further references may each stand in another leaf, and each may be a new item
    let refs = writer.refs.count_refs().max(writer.refs.len()) as u64;
    // of those that ran ahead, the free-space tree is still to be told
    let refs = refs + writer.refs.told_later() as u64;
    let touched = refs * 4 * nodesize;
    let grown = refs * REF_BYTES;
    // the leaves of the checksums that go with freed data, which may be half full
    let ctx = engine.volume().context();
    let sums = writer.refs.old_data() / ctx.sectorsize as u64 * ctx.csum_size as u64 * 2;
    let sums = sums.min(engine.tree(TreeId(objectid::CSUM_TREE))?.bytes_used());
    Ok(touched.min(trees * 2) + grown + sums + 32 * nodesize)
}

/// What only operations that free space may use.
pub(crate) fn global_reserve(engine: &Engine) -> Result<u64> {
    let (total, _) = engine.writer()?.space.totals(Class::Metadata);
    Ok(global_reserve_of(total, engine.store().nodesize() as u64))
}

/// The same for so many bytes of metadata groups.
pub(crate) fn global_reserve_of(total: u64, nodesize: u64) -> u64 {
    (total / 10).clamp(64 * nodesize, 512 << 20).min(total / 4)
}

/// Reserves metadata space for a handle. Allocates a chunk, or commits to get freed space back, where that helps.
pub(crate) fn metadata(engine: &Engine, items: u64, purpose: Purpose) -> Result<u64> {
    let need = bytes_for(engine, items);
    // what gives space back tries again for as long as other handles may hold what it needs. The count is what ends it:
    // a chunk made here, too small to help, may be the empty group that giving back removes
    let mut tries = if purpose == Purpose::Change { TRIES } else { 8 };
    let mut waits = if purpose == Purpose::Change { 0 } else { WAITS_MAX };
    let mut relieved = false;
    loop {
        if try_reserve(engine, need, purpose)? {
            return Ok(need);
        }
        if !std::mem::replace(&mut relieved, true) && engine.relieve() {
            continue;
        }
        if chunks::allocate(engine, Class::Metadata)? {
            continue;
        }
        if tries == 0 {
            // handles are short-lived, but the threads that have them need not be running
            let space = &engine.writer()?.space;
            if waits == 0 || space.reserved() == 0 {
                if waits > 0 {
                    // the last of them ended just now, and a commit needs space for what they did until it is done
                    give_back(engine)?;
                }
                if try_reserve(engine, need, purpose)? {
                    return Ok(need);
                }
                // unless others came meanwhile, and hold what was given back
                if waits == 0 || space.reserved() == 0 {
                    return Err(Error::NoSpace);
                }
            }
            waits -= 1;
            std::thread::sleep(WAIT);
            relieved = false;
            continue;
        }
        tries -= 1;
        give_back(engine)?;
        relieved = false;
    }
}

/// Reserves metadata space for a snapshot: `items`, and a reference for each child of the root, of which the commit that
/// takes it is not told before.
pub(crate) fn for_snapshot(engine: &Engine, items: u64) -> Result<u64> {
    let nodesize = engine.store().nodesize() as u64;
    let children = max_ptrs(nodesize as usize) as u64;
    let leaves = engine.tree(TreeId(objectid::EXTENT_TREE))?.bytes_used() / nodesize + 1;
    metadata(engine, items + children.min(2 * leaves), Purpose::Change)
}

/// How often space is looked for again after a commit gave some back, and a group that became empty went.
const TRIES: usize = 3;

/// How long, and how often, what frees space waits for other handles to end.
const WAIT: Duration = Duration::from_millis(1);
const WAITS_MAX: usize = 3000;

/// Reserves metadata space that there is, without a commit or a new chunk.
pub(crate) fn metadata_at_hand(engine: &Engine, items: u64, purpose: Purpose) -> Result<u64> {
    let need = bytes_for(engine, items);
    if try_reserve(engine, need, purpose)? { Ok(need) } else { Err(Error::NoSpace) }
}

/// Commits, so that what was freed can be given out, and removes empty groups, so that another class may have their
/// place. Answers whether any group went.
fn give_back(engine: &Engine) -> Result<bool> {
    engine.commit()?;
    Ok(chunks::remove_empty(engine)? > 0)
}

fn try_reserve(engine: &Engine, need: u64, purpose: Purpose) -> Result<bool> {
    let space = &engine.writer()?.space;
    let floor = match purpose {
        Purpose::Change => global_reserve(engine)?,
        Purpose::Fill => global_reserve(engine)? / 2,
        Purpose::Free => 0,
    };
    let commit = commit_reserve(engine)?;
    // one at a time, so that two handles are neither promised the same bytes nor see the other's try as a promise
    let _one = space.reserving.lock();
    let enough = space.available(Class::Metadata) >= space.reserved() + need + commit + floor;
    if enough {
        space.reserve(need);
    }
    Ok(enough)
}

/// Allocates `want` bytes for data in one piece; `None` if there is none as large.
pub(crate) fn data_whole(engine: &Engine, want: u64) -> Result<Option<u64>> {
    match data(engine, want) {
        Ok((bytenr, len)) if len == want => Ok(Some(bytenr)),
        Ok((bytenr, len)) => {
            engine.writer()?.space.release_data(bytenr, len);
            Ok(None)
        }
        Err(Error::NoSpace) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Allocates up to `want` bytes for data, at least one sector. Allocates a chunk, or commits, where that helps.
pub(crate) fn data(engine: &Engine, want: u64) -> Result<(u64, u64)> {
    let space = &engine.writer()?.space;
    let sector = engine.volume().context().sectorsize as u64;
    if space.is_mixed() {
        return data_beside_metadata(engine, want);
    }
    if let Some(whole) = space.alloc_data_again(want) {
        return Ok(whole);
    }
    load_free(engine, Class::Data)?;
    if let Some(whole) = space.alloc_data(want, want) {
        return Ok(whole);
    }
    let mut tries = TRIES;
    loop {
        if engine.relieve()
            && let Some(found) = space.alloc_data(want, want)
        {
            return Ok(found);
        }
        if chunks::allocate(engine, Class::Data)?
            && let Some(found) = space.alloc_data(want, want)
        {
            return Ok(found);
        }
        if let Some(part) = space.alloc_data(want, sector) {
            return Ok(part);
        }
        if tries == 0 {
            return Err(Error::NoSpace);
        }
        // without a group that went, once more for what the commit gave back
        tries = if give_back(engine)? { tries - 1 } else { 0 };
    }
}

/// The same where data and metadata share their groups: data leave what metadata must have.
fn data_beside_metadata(engine: &Engine, want: u64) -> Result<(u64, u64)> {
    let space = &engine.writer()?.space;
    let sector = engine.volume().context().sectorsize as u64;
    load_free(engine, Class::Data)?;
    let mut tries = TRIES;
    loop {
        let kept = global_reserve(engine)? + commit_reserve(engine)? + bytes_for(engine, 16);
        {
            let _one = space.reserving.lock();
            let spare = space.available(Class::Metadata).saturating_sub(kept + space.reserved());
            let most = want.min(spare / sector * sector);
            if most > 0
                && let Some(found) = space.alloc_data(most, sector)
            {
                return Ok(found);
            }
        }
        if chunks::allocate(engine, Class::Data)? {
            continue;
        }
        if tries == 0 {
            return Err(Error::NoSpace);
        }
        tries = if give_back(engine)? { tries - 1 } else { 0 };
    }
}

/// Whether the metadata groups hold what must be there before the rest of the device may go to data.
pub(crate) fn metadata_is_ample(engine: &Engine) -> Result<bool> {
    let space = &engine.writer()?.space;
    let floor = global_reserve(engine)? + commit_reserve(engine)? + space.reserved();
    Ok(space.available(Class::Metadata) >= floor + bytes_for(engine, 16))
}
