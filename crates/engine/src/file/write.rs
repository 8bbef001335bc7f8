//! Writing: data to the device first, then, in one transaction, the items that name them.
//!
//! Whole sectors go from the caller's buffer to the device without a copy; the sectors at a ragged head and tail are
//! read, completed and written beside, or in place where that is allowed. A small file lives in its item. The caller keeps other writers off the inode.

use super::extents::{self, Body};
use super::in_place::{self, Place};
use super::replace::{self, NewExtent};
use super::{inode, read};
use crate::space::reserve;
use crate::tree::Tree;
use crate::txn::{Purpose, Trans};
use crate::{Engine, Error, Result, csum};
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

/// Writes `data` at `offset`, and says in the inode that it was changed at `now`.
pub fn write(engine: &Engine, tree: &Tree, ino: u64, offset: u64, data: &[u8], now: Timespec) -> Result<()> {
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
        return write_inline(engine, tree, ino, &all, now);
    }
    let sector = engine.volume().context().sectorsize as u64;
    if offset >= sector {
        outline(engine, tree, ino, now)?;
    }
    if offset >= size.next_multiple_of(sector) {
        clear_behind_end(engine, tree, ino, &item, now)?;
    }
    write_regular(engine, tree, ino, offset, data, &item, now)
}

/// Writes over what is there, within the file's size; the caller keeps others off the range only. Answers `false`, and
/// does nothing, if the file has data in its item.
pub fn overwrite(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    offset: u64,
    data: &[u8],
    now: Timespec,
) -> Result<bool> {
    if has_inline(engine, tree, ino)? {
        return Ok(false);
    }
    if !data.is_empty() {
        let item = inode::read(engine, tree, ino)?;
        write_regular(engine, tree, ino, offset, data, &item, now)?;
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
    let view = tree.read(engine.store());
    let mut inline = false;
    extents::for_each(tree, &view, ino, 0, 1, &mut |extent| {
        inline = matches!(extent.body, Body::Inline { .. });
        Ok(false)
    })?;
    Ok(inline)
}

fn write_inline(engine: &Engine, tree: &Tree, ino: u64, all: &[u8], now: Timespec) -> Result<()> {
    engine.change(ITEMS, Purpose::Change, |trans| {
        let by = replace::replace_inline(trans, tree, ino, all)?;
        inode::update(trans, tree, ino, |item| {
            touch(item, by, now);
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
pub(crate) fn outline(engine: &Engine, tree: &Tree, ino: u64, now: Timespec) -> Result<()> {
    if !has_inline(engine, tree, ino)? {
        return Ok(());
    }
    let item = inode::read(engine, tree, ino)?;
    let sector = engine.volume().context().sectorsize as usize;
    let mut block = vec![0; sector];
    read::read(engine, tree, ino, 0, &mut block)?;
    put(engine, tree, ino, 0, &block, item.size.get(), &item, now)
}

/// Before extents of `source` are shared with `target` from `offset` on. Answers `false` if there is nothing to share: the
/// source's data are in its item.
pub fn prepare_for_clone(
    engine: &Engine,
    source: &Tree,
    source_ino: u64,
    target: &Tree,
    ino: u64,
    offset: u64,
    now: Timespec,
) -> Result<bool> {
    if has_inline(engine, source, source_ino)? {
        return Ok(false);
    }
    outline(engine, target, ino, now)?;
    let item = inode::read(engine, target, ino)?;
    let sector = engine.volume().context().sectorsize as u64;
    if offset >= item.size.get().next_multiple_of(sector) {
        clear_behind_end(engine, target, ino, &item, now)?;
    }
    Ok(true)
}

/// Before a file grows: what its last sector holds behind the end must be zeros. The kernel leaves anything there.
pub(crate) fn clear_behind_end(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    item: &InodeItem,
    now: Timespec,
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
    put(engine, tree, ino, size - tail, &block, size, item, now)
}

fn write_regular(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    offset: u64,
    data: &[u8],
    item: &InodeItem,
    now: Timespec,
) -> Result<()> {
    let sector = engine.volume().context().sectorsize as u64;
    let end = offset + data.len() as u64;
    let (head, tail) = ((offset.next_multiple_of(sector)).min(end), end / sector * sector);
    if !offset.is_multiple_of(sector) || tail < head {
        write_within_sector(engine, tree, ino, offset, &data[..(head - offset) as usize], item, now)?;
    }
    if head < tail {
        let whole = &data[(head - offset) as usize..(tail - offset) as usize];
        put(engine, tree, ino, head, whole, tail, item, now)?;
    }
    if tail < end && tail >= head {
        write_within_sector(engine, tree, ino, tail, &data[(tail - offset) as usize..], item, now)?;
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
    now: Timespec,
) -> Result<()> {
    let item = inode::read(engine, tree, ino)?;
    write_within_sector(engine, tree, ino, offset, zeros, &item, now)
}

/// Writes a part of one sector, the rest of which stays.
fn write_within_sector(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    offset: u64,
    data: &[u8],
    item: &InodeItem,
    now: Timespec,
) -> Result<()> {
    let sector = engine.volume().context().sectorsize as u64;
    let start = offset / sector * sector;
    let mut block = vec![0; sector as usize];
    read::read(engine, tree, ino, start, &mut block)?;
    let skip = (offset - start) as usize;
    block[skip..skip + data.len()].copy_from_slice(data);
    put(engine, tree, ino, start, &block, offset + data.len() as u64, item, now)
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
    now: Timespec,
) -> Result<()> {
    let (mut at, mut rest) = (start, data);
    while !rest.is_empty() {
        let place = match in_place::is_possible(item) {
            true => in_place::find(engine, tree, ino, at, rest.len() as u64, item)?,
            false => Place::Copy(rest.len() as u64),
        };
        let len = match place {
            Place::There { bytenr, len, prealloc } => {
                let there = NewExtent { file_offset: at, bytenr, len, kind: file_extent::REG };
                let size = end.min(at + len);
                put_in_place(engine, tree, ino, there, prealloc, &rest[..len as usize], size, item, now)?;
                len
            }
            Place::Copy(want) => {
                let (bytenr, len) = reserve::data(engine, want.min(EXTENT_MAX))?;
                let extent = NewExtent { file_offset: at, bytenr, len, kind: file_extent::REG };
                let size = end.min(at + len);
                put_extent(engine, tree, ino, extent, &rest[..len as usize], size, item, now)?;
                len
            }
        };
        at += len;
        rest = &rest[len as usize..];
    }
    Ok(())
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
    now: Timespec,
) -> Result<()> {
    engine.volume().write(there.bytenr, data)?;
    if !prealloc && size <= item.size.get() && is_just_before(&item.mtime, &now) {
        engine.writer()?.txn.wrote_in_place();
        return Ok(()); // no item says anything else
    }
    let sums = if prealloc { sums(engine, data, item) } else { Vec::new() };
    let items = 2 + if prealloc { ITEMS + sums.len() as u64 / 2048 } else { 0 };
    engine.change(items, Purpose::Free, |trans| {
        if prealloc {
            in_place::mark_written(trans, tree, ino, there.file_offset, there.len)?;
        }
        if !sums.is_empty() {
            csum::insert(trans, there.bytenr, &sums)?;
        }
        inode::update(trans, tree, ino, |item| {
            touch(item, 0, now);
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

/// The checksums of data, one for each sector; none for a file without.
fn sums(engine: &Engine, data: &[u8], item: &InodeItem) -> Vec<u8> {
    let mut sums = Vec::new();
    if item.flags.get() & flags::NODATASUM == 0 {
        let volume = engine.volume();
        volume.csum().sum_blocks(data, volume.context().sectorsize as usize, &mut sums);
    }
    sums
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
    now: Timespec,
) -> Result<()> {
    let volume = engine.volume();
    let space = &engine.writer()?.space;
    let sums = sums(engine, data, item);
    // reserved before the device is written: what lies on the device must not fail for lack of space
    let items = ITEMS + sums.len() as u64 / 2048;
    let ready = volume
        .write(extent.bytenr, data)
        .map_err(Error::from)
        .and_then(|()| engine.start(items, Purpose::Change));
    let mut trans = match ready {
        Ok(trans) => trans,
        Err(error) => {
            space.release_data(extent.bytenr, extent.len);
            return Err(error);
        }
    };
    let result = insert(&mut trans, tree, ino, extent, &sums, size, now);
    trans.end(result)
}

fn insert(
    trans: &mut Trans<'_>,
    tree: &Tree,
    ino: u64,
    extent: NewExtent,
    sums: &[u8],
    size: u64,
    now: Timespec,
) -> Result<()> {
    let by = replace::replace_extents(trans, tree, ino, extent)?;
    if !sums.is_empty() {
        csum::insert(trans, extent.bytenr, sums)?;
    }
    inode::update(trans, tree, ino, |item| {
        touch(item, by, now);
        item.size = item.size.get().max(size).into();
    })
}

/// The contents changed.
pub(crate) fn touch(item: &mut InodeItem, bytes: i64, now: Timespec) {
    item.nbytes = item.nbytes.get().saturating_add_signed(bytes).into();
    item.mtime = now;
    item.ctime = now;
}
