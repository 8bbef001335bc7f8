//! Writing: data to the device first, then, in one transaction, the items that name them.
//!
//! Whole sectors go from the caller's buffer to the device without a copy; the sectors at a ragged head and tail are
//! read, completed and written beside, or in place where that is allowed. A small file lives in its item. The caller keeps other writers off the inode.

use super::extents::{self, Body};
use super::put::Put;
use super::replace;
use super::{inode, read};
use crate::bio::Wait;
use crate::tree::Tree;
use crate::txn::{Purpose, Trans};
use crate::{Engine, Error, Result};
use buttery_codec::Method;
use buttery_disk::inode::{InodeItem, Timespec};

/// The largest extent.
pub(super) const EXTENT_MAX: u64 = 128 << 20;
/// The largest file.
pub const SIZE_MAX: u64 = i64::MAX as u64 & !4095;
/// Items that a write of one extent changes.
pub(super) const ITEMS: u64 = 6;

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
    if end.max(size) <= engine.max_inline() && is_small(engine, tree, ino)? {
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
    Put::new(engine, tree, ino, &item, how).write(offset, data)
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
        Put::new(engine, tree, ino, item, how).write(offset, data)?;
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
    Put::new(engine, tree, ino, &item, how).sectors(0, &block, item.size.get())
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
    Put::new(engine, tree, ino, item, how).sectors(size - tail, &block, size)
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
    Put::new(engine, tree, ino, &item, how).within_sector(offset, zeros)
}

/// The contents changed.
pub(crate) fn touch(item: &mut InodeItem, bytes: i64, now: Timespec) {
    item.nbytes = item.nbytes.get().saturating_add_signed(bytes).into();
    item.mtime = now;
    item.ctime = now;
}
