//! The steps by which whole sectors come to the device and into the tree: where they may go, the data first, then, in one
//! transaction, the items that name them.

use super::in_place::{self, Place};
use super::packing::{self, Packed, Units};
use super::replace::{self, NewExtent};
use super::write::{EXTENT_MAX, How, ITEMS};
use super::{inode, read};
use crate::bio;
use crate::space::reserve::{self, Room};
use crate::tree::Tree;
use crate::txn::{Purpose, Trans};
use crate::{Engine, Result, csum};
use buttery_codec::COMPRESS_MAX;
use buttery_disk::extent::file_extent;
use buttery_disk::inode::{InodeItem, Timespec, flags};

/// Writing of one file, whose inode is `item`.
pub(super) struct Put<'a> {
    pub engine: &'a Engine,
    pub tree: &'a Tree,
    pub ino: u64,
    pub item: &'a InodeItem,
    pub how: How,
    /// Space that was reserved before; what it lacks is looked for.
    pub room: Room,
    /// Up to where in the file all is written.
    pub done: u64,
    /// The data were shown to have changed the file at `how.now` long ago; and the change time that its item had then.
    pub gathered: Option<Timespec>,
}

impl<'a> Put<'a> {
    /// With nothing reserved before.
    pub fn new(engine: &'a Engine, tree: &'a Tree, ino: u64, item: &'a InodeItem, how: How) -> Put<'a> {
        Put { engine, tree, ino, item, how, room: Room::default(), done: 0, gathered: None }
    }

    /// Writes at any offset.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let sector = self.engine.volume().context().sectorsize as u64;
        let end = offset + data.len() as u64;
        let (head, tail) = ((offset.next_multiple_of(sector)).min(end), end / sector * sector);
        if !offset.is_multiple_of(sector) || tail < head {
            self.within_sector(offset, &data[..(head - offset) as usize])?;
        }
        if head < tail {
            self.sectors(head, &data[(head - offset) as usize..(tail - offset) as usize], tail)?;
        }
        if tail < end && tail >= head {
            self.within_sector(tail, &data[(tail - offset) as usize..])?;
        }
        Ok(())
    }

    /// Writes a part of one sector, the rest of which stays.
    pub fn within_sector(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let sector = self.engine.volume().context().sectorsize as u64;
        let start = offset / sector * sector;
        let mut block = vec![0; sector as usize];
        read::read(self.engine, self.tree, self.ino, start, &mut block)?;
        let skip = (offset - start) as usize;
        block[skip..skip + data.len()].copy_from_slice(data);
        self.sectors(start, &block, offset + data.len() as u64)
    }

    /// Writes whole sectors; the file then ends at `end` or later.
    pub fn sectors(&mut self, start: u64, data: &[u8], end: u64) -> Result<()> {
        let (mut at, mut rest) = (start, data);
        let mut units = Units::default();
        while !rest.is_empty() {
            let want = rest.len() as u64;
            let possible = in_place::is_possible(self.item);
            let allowed = if possible { self.tree.writing_in_place() } else { None };
            // held until the items say where the data are
            let place = match &allowed {
                Some(_) => in_place::find(self.engine, self.tree, self.ino, at, want, self.item)?,
                None => Place::Copy(want),
            };
            let len = match place {
                Place::There { bytenr, len, prealloc } => {
                    let there = NewExtent::plain(at, bytenr, len, file_extent::REG);
                    self.in_place(there, prealloc, &rest[..len as usize], end.min(at + len))?;
                    len
                }
                Place::Copy(want) => self.copy(at, &rest[..want as usize], end, &mut units)?,
            };
            at += len;
            rest = &rest[len as usize..];
            self.done = at;
        }
        Ok(())
    }

    /// Writes the beginning of `data` to new space. Answers how much that was.
    fn copy(&mut self, at: u64, data: &[u8], end: u64, units: &mut Units) -> Result<u64> {
        let engine = self.engine;
        if let Some(packed) = self.how.compress.and_then(|c| units.next(engine, c, at, data))
            && let Some(bytenr) = self.space_for_packed(packed.bytes.len() as u64)?
        {
            self.compressed(at, bytenr, &packed, end.min(at + packed.len))?;
            return Ok(packed.len);
        }
        // what follows may be compressed again
        let most = if self.how.compress.is_some() { COMPRESS_MAX as u64 } else { EXTENT_MAX };
        let (bytenr, len) = self.room.take_data(engine, (data.len() as u64).min(most))?;
        let extent = NewExtent::plain(at, bytenr, len, file_extent::REG);
        self.extent(extent, &data[..len as usize], end.min(at + len))?;
        Ok(len)
    }

    /// Space for compressed data. What is kept has them as they are, too: nothing needs to be done to find some.
    fn space_for_packed(&self, len: u64) -> Result<Option<u64>> {
        let space = &self.engine.writer()?.space;
        match self.gathered {
            Some(_) => {
                Ok(space.alloc_data_again(len).or_else(|| space.alloc_data(len, len)).map(|(at, _)| at))
            }
            None => reserve::data_whole(self.engine, len),
        }
    }

    /// Writes compressed data to space that was allocated for them.
    fn compressed(&mut self, at: u64, bytenr: u64, packed: &Packed, size: u64) -> Result<()> {
        let extent = NewExtent {
            disk_len: packed.bytes.len() as u64,
            compression: packed.algorithm.to_disk(),
            ..NewExtent::plain(at, bytenr, packed.len, file_extent::REG)
        };
        packing::note_algorithm(self.engine, packed.algorithm)?;
        self.extent(extent, &packed.bytes, size)
    }

    /// Writes over what is there. Space was taken before: not even a full file system refuses it.
    fn in_place(&mut self, there: NewExtent, prealloc: bool, data: &[u8], size: u64) -> Result<()> {
        let (engine, item, now) = (self.engine, self.item, self.how.now);
        let summed = prealloc && has_sums(item);
        let sums = bio::write(engine, there.bytenr, data, summed, self.how.wait)?;
        let is_said = self.gathered.is_none() && now.is_none_or(|now| is_just_before(&item.mtime, &now));
        if !prealloc && size <= item.size.get() && is_said {
            engine.writer()?.txn.wrote_in_place();
            return Ok(()); // no item says anything else
        }
        let items = 2 + if prealloc { ITEMS + sums.len() as u64 / 2048 } else { 0 };
        // the items of what was preallocated take space, of which some must be left for deleting
        let purpose = if prealloc { Purpose::Fill } else { Purpose::Free };
        let mut trans = self.room.start(engine, items, purpose)?;
        let result = self.mark_in_place(&mut trans, there, prealloc, &sums, size);
        trans.end(result)
    }

    fn mark_in_place(
        &self,
        trans: &mut Trans<'_>,
        there: NewExtent,
        prealloc: bool,
        sums: &[u8],
        size: u64,
    ) -> Result<()> {
        if prealloc {
            in_place::mark_written(trans, self.tree, self.ino, there.file_offset, there.len)?;
        }
        self.finish(trans, there.bytenr, sums, 0, size)
    }

    /// Writes an extent to space that was allocated for it.
    fn extent(&mut self, extent: NewExtent, data: &[u8], size: u64) -> Result<()> {
        let engine = self.engine;
        let sums = bio::write(engine, extent.bytenr, data, has_sums(self.item), self.how.wait);
        let ready = sums.and_then(|sums| {
            let items = ITEMS + sums.len() as u64 / 2048;
            Ok((self.room.start(engine, items, Purpose::Change)?, sums))
        });
        let (mut trans, sums) = match ready {
            Ok(ready) => ready,
            Err(error) => {
                match self.gathered {
                    Some(_) => self.room.put_back(engine, extent.bytenr, extent.disk_len)?,
                    None => engine.writer()?.space.release_data(extent.bytenr, extent.disk_len),
                }
                return Err(error);
            }
        };
        let result = self.insert(&mut trans, extent, &sums, size);
        trans.end(result)
    }

    fn insert(&self, trans: &mut Trans<'_>, extent: NewExtent, sums: &[u8], size: u64) -> Result<()> {
        let by = replace::replace_extents(trans, self.tree, self.ino, extent)?;
        self.finish(trans, extent.bytenr, sums, by, size)
    }

    /// What remains when the extent's items are there: checksums, and what the inode says.
    fn finish(&self, trans: &mut Trans<'_>, bytenr: u64, sums: &[u8], by: i64, size: u64) -> Result<()> {
        if !sums.is_empty() {
            csum::insert(trans, bytenr, sums)?;
        }
        inode::update(trans, self.tree, self.ino, |item| {
            let ctime = item.ctime;
            replace::count_bytes(item, by, self.how.now);
            // whoever changed it meanwhile was later
            if self.gathered.is_some_and(|known| known != ctime && Some(ctime) != self.how.now) {
                item.ctime = later(ctime, item.ctime);
            }
            item.size = item.size.get().max(size).into();
        })
    }
}

/// Whether a file that was changed at `then` need not be told to have changed again: within a tick of the clock by which
/// the kernel stamps files.
fn is_just_before(then: &Timespec, now: &Timespec) -> bool {
    const TICK_NSEC: u32 = 4_000_000;
    then.sec == now.sec && now.nsec.get().checked_sub(then.nsec.get()).is_some_and(|n| n < TICK_NSEC)
}

fn later(a: Timespec, b: Timespec) -> Timespec {
    let key = |t: &Timespec| (t.sec.get(), t.nsec.get());
    if key(&a) > key(&b) { a } else { b }
}

/// Whether a file's data have checksums.
fn has_sums(item: &InodeItem) -> bool {
    item.flags.get() & flags::NODATASUM == 0
}
