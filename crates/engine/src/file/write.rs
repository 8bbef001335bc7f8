//! Writing: data to the device first, then, in one transaction, the items that name them.
//!
//! Whole sectors go from the caller's buffer to the device without a copy; the sectors at a ragged head and tail are
//! read, completed and written beside, or in place where that is allowed. A small file lives in its item. The caller keeps other writers off the inode.

use super::extents::{self, Body};
use super::in_place::{self, Place};
use super::packing::{self, Packed, Units};
use super::replace::{self, NewExtent};
use super::{inode, read};
use crate::bio::{self, Wait};
use crate::space::reserve;
use crate::tree::Tree;
use crate::txn::{Purpose, Trans};
use crate::{Engine, Error, Result, csum};
use buttery_codec::{COMPRESS_MAX, Method};
use buttery_disk::extent::file_extent;
use buttery_disk::inode::{InodeItem, Timespec, flags};

/// The largest file that is kept in its item (`max_inline`).
pub const INLINE_MAX: u64 = 2048;
/// The largest extent.
pub(super) const EXTENT_MAX: u64 = 128 << 20;
/// The largest file.
pub const SIZE_MAX: u64 = i64::MAX as u64 & !4095;
/// Items that a write of one extent changes.
const ITEMS: u64 = 6;

/// How a file is written.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// When it is said to have changed; `None` leaves its times as they are.
    pub now: Option<Timespec>,
    /// How data are compressed, if they are.
    pub compress: Option<Compress>,
    /// Whether somebody waits for just this write.
    pub wait: Wait,
}

/// How data are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compress {
    pub method: Method,
    /// Also those that do not look as if they could become shorter.
    pub force: bool,
}

impl From<Timespec> for How {
    fn from(now: Timespec) -> How {
        How { now: Some(now), compress: None, wait: Wait::No }
    }
}

/// Writes `data` at `offset`.
pub fn write(engine: &Engine, tree: &Tree, ino: u64, offset: u64, data: &[u8], how: How) -> Result<()> {
    if data.is_empty() {
        return Ok(());
    }
    let end = offset.checked_add(data.len() as u64).filter(|&e| e <= SIZE_MAX).ok_or(Error::FileTooBig)?;
    let item = inode::read(engine, tree, ino)?;
    let size = item.size.get();
    if end.max(size) <= INLINE_MAX && is_small(engine, tree, ino)? {
        let mut all = vec![0; end.max(size) as usize];
        read::read(engine, tree, ino, 0, &mut all)?;
        all[offset as usize..end as usize].copy_from_slice(data);
        return write_inline(engine, tree, ino, &all, how);
    }
    let sector = engine.volume().context().sectorsize as u64;
    if offset >= sector {
        outline(engine, tree, ino, how)?;
    }
    if offset >= size.next_multiple_of(sector) {
        clear_behind_end(engine, tree, ino, &item, how)?;
    }
    write_regular(engine, tree, ino, offset, data, &item, how)
}

/// Writes over what is there, within the file's size, its inode being `item`; the caller keeps others off the range only.
/// Answers `false`, and does nothing, if the file has data in its item.
pub fn overwrite(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    item: &InodeItem,
    offset: u64,
    data: &[u8],
    how: How,
) -> Result<bool> {
    if has_inline(engine, tree, ino)? {
        return Ok(false);
    }
    if !data.is_empty() {
        write_regular(engine, tree, ino, offset, data, item, how)?;
    }
    Ok(true)
}

/// Whether nothing of the file lies outside of its item.
fn is_small(engine: &Engine, tree: &Tree, ino: u64) -> Result<bool> {
    let view = tree.read(engine.store());
    let mut small = true;
    extents::for_each(tree, &view, ino, 0, u64::MAX, &mut |extent| {
        small = matches!(extent.body, Body::Inline { .. });
        Ok(small)
    })?;
    Ok(small)
}

/// Whether the file has data in its item.
pub fn has_inline(engine: &Engine, tree: &Tree, ino: u64) -> Result<bool> {
    let inodes = &engine.writer()?.inodes;
    if inodes.has_no_inline(tree.id(), ino) {
        return Ok(false);
    }
    let view = tree.read(engine.store());
    let mut inline = false;
    extents::for_each(tree, &view, ino, 0, 1, &mut |extent| {
        inline = matches!(extent.body, Body::Inline { .. });
        Ok(false)
    })?;
    if !inline {
        inodes.set_no_inline(tree.id(), ino, true);
    }
    Ok(inline)
}

fn write_inline(engine: &Engine, tree: &Tree, ino: u64, all: &[u8], how: How) -> Result<()> {
    engine.change(ITEMS, Purpose::Change, |trans| {
        let by = replace::replace_inline(trans, tree, ino, all)?;
        inode::update(trans, tree, ino, |item| {
            replace::count_bytes(item, by, how.now);
            item.size = (all.len() as u64).into();
        })
    })
}

/// Makes `data` all that a new inode has, in its item.
pub fn set_inline(trans: &mut Trans<'_>, tree: &Tree, ino: u64, data: &[u8]) -> Result<()> {
    let by = replace::replace_inline(trans, tree, ino, data)?;
    inode::update(trans, tree, ino, |item| {
        item.nbytes = item.nbytes.get().saturating_add_signed(by).into();
        item.size = (data.len() as u64).into();
    })
}

/// Moves data out of the item: a file that grows beyond its first sector keeps nothing there.
pub(crate) fn outline(engine: &Engine, tree: &Tree, ino: u64, how: How) -> Result<()> {
    if !has_inline(engine, tree, ino)? {
        return Ok(());
    }
    let item = inode::read(engine, tree, ino)?;
    let sector = engine.volume().context().sectorsize as usize;
    let mut block = vec![0; sector];
    read::read(engine, tree, ino, 0, &mut block)?;
    put(engine, tree, ino, 0, &block, item.size.get(), &item, how)
}

/// Before extents of `source` are shared with `target`, up to `end` there. Answers `false` if there is nothing to share: the
/// source's data are in its item.
pub fn prepare_for_clone(
    engine: &Engine,
    source: &Tree,
    source_ino: u64,
    target: &Tree,
    ino: u64,
    end: u64,
    how: How,
) -> Result<bool> {
    if has_inline(engine, source, source_ino)? {
        return Ok(false);
    }
    outline(engine, target, ino, how)?;
    let item = inode::read(engine, target, ino)?;
    if end > item.size.get() {
        clear_behind_end(engine, target, ino, &item, how)?;
    }
    Ok(true)
}

/// Before a file grows: what its last sector holds behind the end must be zeros. The kernel leaves anything there.
pub(crate) fn clear_behind_end(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    item: &InodeItem,
    how: How,
) -> Result<()> {
    let sector = engine.volume().context().sectorsize as u64;
    let size = item.size.get();
    let tail = size % sector;
    if tail == 0 {
        return Ok(());
    }
    let mut block = vec![0; sector as usize];
    read::read_extents(engine, tree, ino, item, size - tail, &mut block)?;
    let behind = &mut block[tail as usize..];
    if behind.iter().all(|&b| b == 0) {
        return Ok(());
    }
    behind.fill(0);
    put(engine, tree, ino, size - tail, &block, size, item, how)
}

fn write_regular(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    offset: u64,
    data: &[u8],
    item: &InodeItem,
    how: How,
) -> Result<()> {
    let sector = engine.volume().context().sectorsize as u64;
    let end = offset + data.len() as u64;
    let (head, tail) = ((offset.next_multiple_of(sector)).min(end), end / sector * sector);
    if !offset.is_multiple_of(sector) || tail < head {
        write_within_sector(engine, tree, ino, offset, &data[..(head - offset) as usize], item, how)?;
    }
    if head < tail {
        let whole = &data[(head - offset) as usize..(tail - offset) as usize];
        put(engine, tree, ino, head, whole, tail, item, how)?;
    }
    if tail < end && tail >= head {
        write_within_sector(engine, tree, ino, tail, &data[(tail - offset) as usize..], item, how)?;
    }
    Ok(())
}

/// Writes zeros into a part of one sector that holds data. Space is taken even for a truncation of a full file system.
pub(crate) fn write_zeros(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    offset: u64,
    zeros: &[u8],
    how: How,
) -> Result<()> {
    let item = inode::read(engine, tree, ino)?;
    write_within_sector(engine, tree, ino, offset, zeros, &item, how)
}

/// Writes a part of one sector, the rest of which stays.
fn write_within_sector(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    offset: u64,
    data: &[u8],
    item: &InodeItem,
    how: How,
) -> Result<()> {
    let sector = engine.volume().context().sectorsize as u64;
    let start = offset / sector * sector;
    let mut block = vec![0; sector as usize];
    read::read(engine, tree, ino, start, &mut block)?;
    let skip = (offset - start) as usize;
    block[skip..skip + data.len()].copy_from_slice(data);
    put(engine, tree, ino, start, &block, offset + data.len() as u64, item, how)
}

/// Writes whole sectors; the file then ends at `end` or later.
#[allow(clippy::too_many_arguments)] // one private step of a write, with all that it knows
fn put(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    start: u64,
    data: &[u8],
    end: u64,
    item: &InodeItem,
    how: How,
) -> Result<()> {
    let (mut at, mut rest) = (start, data);
    let mut units = Units::default();
    while !rest.is_empty() {
        let place = match in_place::is_possible(item) {
            true => in_place::find(engine, tree, ino, at, rest.len() as u64, item)?,
            false => Place::Copy(rest.len() as u64),
        };
        let len = match place {
            Place::There { bytenr, len, prealloc } => {
                let there = NewExtent::plain(at, bytenr, len, file_extent::REG);
                let size = end.min(at + len);
                put_in_place(engine, tree, ino, there, prealloc, &rest[..len as usize], size, item, how)?;
                len
            }
            Place::Copy(want) => {
                let packed = how.compress.and_then(|c| units.next(engine, c, at, &rest[..want as usize]));
                match packed {
                    Some(packed)
                        if let Some(bytenr) = reserve::data_whole(engine, packed.bytes.len() as u64)? =>
                    {
                        let size = end.min(at + packed.len);
                        put_compressed(engine, tree, ino, at, bytenr, &packed, size, item, how)?;
                        packed.len
                    }
                    _ => {
                        // what follows may be compressed again
                        let most = if how.compress.is_some() { COMPRESS_MAX as u64 } else { EXTENT_MAX };
                        let (bytenr, len) = reserve::data(engine, want.min(most))?;
                        let extent = NewExtent::plain(at, bytenr, len, file_extent::REG);
                        let size = end.min(at + len);
                        put_extent(engine, tree, ino, extent, &rest[..len as usize], size, item, how)?;
                        len
                    }
                }
            }
        };
        at += len;
        rest = &rest[len as usize..];
    }
    Ok(())
}

/// Writes compressed data to space that was allocated for them.
#[allow(clippy::too_many_arguments)]
fn put_compressed(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    at: u64,
    bytenr: u64,
    packed: &Packed,
    size: u64,
    item: &InodeItem,
    how: How,
) -> Result<()> {
    let extent = NewExtent {
        disk_len: packed.bytes.len() as u64,
        compression: packed.algorithm.to_disk(),
        ..NewExtent::plain(at, bytenr, packed.len, file_extent::REG)
    };
    packing::note_algorithm(engine, packed.algorithm)?;
    put_extent(engine, tree, ino, extent, &packed.bytes, size, item, how)
}

/// Writes over what is there. Space was taken before: not even a full file system refuses it.
#[allow(clippy::too_many_arguments)]
fn put_in_place(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    there: NewExtent,
    prealloc: bool,
    data: &[u8],
    size: u64,
    item: &InodeItem,
    how: How,
) -> Result<()> {
    let summed = prealloc && has_sums(item);
    let sums = bio::write(engine, there.bytenr, data, summed, how.wait)?;
    if !prealloc && size <= item.size.get() && how.now.is_none_or(|now| is_just_before(&item.mtime, &now)) {
        engine.writer()?.txn.wrote_in_place();
        return Ok(()); // no item says anything else
    }
    let items = 2 + if prealloc { ITEMS + sums.len() as u64 / 2048 } else { 0 };
    // the items of what was preallocated take space, of which some must be left for deleting
    engine.change(items, if prealloc { Purpose::Fill } else { Purpose::Free }, |trans| {
        if prealloc {
            in_place::mark_written(trans, tree, ino, there.file_offset, there.len)?;
        }
        if !sums.is_empty() {
            csum::insert(trans, there.bytenr, &sums)?;
        }
        inode::update(trans, tree, ino, |item| {
            replace::count_bytes(item, 0, how.now);
            item.size = item.size.get().max(size).into();
        })
    })
}

/// Whether a file that was changed at `then` need not be told to have changed again: within a tick of the clock by which
/// the kernel stamps files.
fn is_just_before(then: &Timespec, now: &Timespec) -> bool {
    const TICK_NSEC: u32 = 4_000_000;
    then.sec == now.sec && now.nsec.get().checked_sub(then.nsec.get()).is_some_and(|n| n < TICK_NSEC)
}

/// Whether a file's data have checksums.
fn has_sums(item: &InodeItem) -> bool {
    item.flags.get() & flags::NODATASUM == 0
}

#[allow(clippy::too_many_arguments)]
fn put_extent(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    extent: NewExtent,
    data: &[u8],
    size: u64,
    item: &InodeItem,
    how: How,
) -> Result<()> {
    let space = &engine.writer()?.space;
    let ready = bio::write(engine, extent.bytenr, data, has_sums(item), how.wait).and_then(|sums| {
        let items = ITEMS + sums.len() as u64 / 2048;
        Ok((engine.start(items, Purpose::Change)?, sums))
    });
    let (mut trans, sums) = match ready {
        Ok(ready) => ready,
        Err(error) => {
            space.release_data(extent.bytenr, extent.disk_len);
            return Err(error);
        }
    };
    let result = insert(&mut trans, tree, ino, extent, &sums, size, how);
    trans.end(result)
}

fn insert(
    trans: &mut Trans<'_>,
    tree: &Tree,
    ino: u64,
    extent: NewExtent,
    sums: &[u8],
    size: u64,
    how: How,
) -> Result<()> {
    let by = replace::replace_extents(trans, tree, ino, extent)?;
    if !sums.is_empty() {
        csum::insert(trans, extent.bytenr, sums)?;
    }
    inode::update(trans, tree, ino, |item| {
        replace::count_bytes(item, by, how.now);
        item.size = item.size.get().max(size).into();
    })
}

/// The contents changed.
pub(crate) fn touch(item: &mut InodeItem, bytes: i64, now: Timespec) {
    item.nbytes = item.nbytes.get().saturating_add_signed(bytes).into();
    item.mtime = now;
    item.ctime = now;
}
