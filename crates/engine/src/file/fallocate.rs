//! Preallocating space, punching holes, and ranges of zeros, as fallocate(2) has them.

use super::extents::{self, Body};
use super::replace::{self, NewExtent};
use super::write::{self, EXTENT_MAX, SIZE_MAX};
use super::{inode, read};
use crate::space::reserve;
use crate::tree::Tree;
use crate::txn::Purpose;
use crate::{Engine, Error, Result};
use buttery_disk::extent::file_extent;
use buttery_disk::inode::{Timespec, flags};

/// Items that one extent changes.
const ITEMS: u64 = 6;
/// What to do with a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallocate {
    /// Space for what has none yet.
    Allocate,
    /// What is there goes; it reads as zeros. The size stays.
    PunchHole,
    /// What is there goes, and space without data takes its place.
    ZeroRange,
}

/// Does it to `offset..offset + len`. Unless `keep_size`, a file that ends within becomes longer.
#[allow(clippy::too_many_arguments)] // the system call's
pub fn fallocate(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    what: Fallocate,
    offset: u64,
    len: u64,
    keep_size: bool,
    now: Timespec,
) -> Result<()> {
    if len == 0 {
        return Err(Error::Invalid);
    }
    let end = offset.checked_add(len).filter(|&e| e <= SIZE_MAX).ok_or(Error::FileTooBig)?;
    if what == Fallocate::PunchHole {
        return punch(engine, tree, ino, offset, end, now);
    }
    let sector = engine.volume().context().sectorsize as u64;
    let item = inode::read(engine, tree, ino)?;
    write::outline(engine, tree, ino, now.into())?;
    let grows = !keep_size && end > item.size.get();
    if grows {
        write::clear_behind_end(engine, tree, ino, &item, now.into())?;
    }
    let (mut start, mut stop) = (offset / sector * sector, end.next_multiple_of(sector));
    if what == Fallocate::ZeroRange {
        zero_edges(engine, tree, ino, offset, end, now)?;
        // sectors that the range covers only partly hold what they hold, unless they are holes
        let inner = offset.next_multiple_of(sector);
        let last = if end >= item.size.get() { stop } else { end / sector * sector };
        replace_by_prealloc(engine, tree, ino, inner, last, |body| matches!(body, Body::Prealloc(_)), now)?;
        (start, stop) = (start.min(inner), stop.max(last));
    }
    replace_by_prealloc(engine, tree, ino, start, stop, |body| !matches!(body, Body::Hole), now)?;
    engine.change(2, Purpose::Change, |trans| {
        inode::update(trans, tree, ino, |item| {
            write::touch(item, 0, now);
            if grows {
                item.size = item.size.get().max(end).into();
            }
        })
    })
}

/// Puts preallocated extents where `keeps` does not say that what is there stays.
fn replace_by_prealloc(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    start: u64,
    end: u64,
    keeps: impl Fn(&Body) -> bool,
    now: Timespec,
) -> Result<()> {
    let mut gaps = Vec::new();
    let mut at = start;
    {
        let view = tree.read(engine.store());
        extents::for_each(tree, &view, ino, start, end, &mut |extent| {
            if keeps(&extent.body) {
                if extent.start > at {
                    gaps.push((at, extent.start));
                }
                at = at.max(extent.end());
            }
            Ok(true)
        })?;
    }
    if at < end {
        gaps.push((at, end));
    }
    // all of it or nothing: a full file system is told before anything changes
    let space = &engine.writer()?.space;
    let mut new = Vec::new();
    let mut reserve_all = || {
        for &(from, to) in &gaps {
            let mut at = from;
            while at < to {
                let (bytenr, len) = reserve::data(engine, (to - at).min(EXTENT_MAX))?;
                new.push(NewExtent::plain(at, bytenr, len, file_extent::PREALLOC));
                at += len;
            }
        }
        Ok(())
    };
    let mut result = reserve_all();
    for extent in new {
        if result.is_ok() {
            result = put_prealloc(engine, tree, ino, extent, now);
        } else {
            space.release_data(extent.bytenr, extent.len);
        }
    }
    result
}

fn put_prealloc(engine: &Engine, tree: &Tree, ino: u64, extent: NewExtent, now: Timespec) -> Result<()> {
    let mut trans = match engine.start(ITEMS, Purpose::Change) {
        Ok(trans) => trans,
        Err(error) => {
            engine.writer()?.space.release_data(extent.bytenr, extent.len);
            return Err(error);
        }
    };
    let result = replace::replace_extents(&mut trans, tree, ino, extent).and_then(|by| {
        inode::update(&mut trans, tree, ino, |item| {
            write::touch(item, by, now);
            item.flags = (item.flags.get() | flags::PREALLOC).into();
        })
    });
    trans.end(result)
}

fn punch(engine: &Engine, tree: &Tree, ino: u64, offset: u64, end: u64, now: Timespec) -> Result<()> {
    let sector = engine.volume().context().sectorsize as u64;
    zero_edges(engine, tree, ino, offset, end, now)?;
    let size = inode::read(engine, tree, ino)?.size.get();
    let start = offset.next_multiple_of(sector);
    let mut stop = end / sector * sector;
    if end >= size {
        stop = stop.max(size.next_multiple_of(sector)); // nothing of the last sector is left
    }
    if write::has_inline(engine, tree, ino)? {
        stop = start; // the edges were all of it
    }
    replace::drop_in_steps(engine, tree, ino, start, stop, Some(now))?;
    engine
        .change(2, Purpose::Free, |trans| inode::update(trans, tree, ino, |item| write::touch(item, 0, now)))
}

/// Writes zeros into the sectors that a range covers only partly; of a file in its item, into all of the range.
fn zero_edges(engine: &Engine, tree: &Tree, ino: u64, offset: u64, end: u64, now: Timespec) -> Result<()> {
    let sector = engine.volume().context().sectorsize as u64;
    let size = inode::read(engine, tree, ino)?.size.get();
    let end = end.min(size);
    if offset >= end {
        return Ok(());
    }
    if write::has_inline(engine, tree, ino)? {
        let zeros = vec![0; (end - offset) as usize];
        return write::write(engine, tree, ino, offset, &zeros, now.into());
    }
    let (head, tail) = (offset.next_multiple_of(sector).min(end), end / sector * sector);
    let mut edges = Vec::new();
    if !offset.is_multiple_of(sector) {
        edges.push((offset, head));
    }
    // behind the end of the file there is nothing to keep: the sector goes as a whole
    if tail >= head && tail < end && end < size {
        edges.push((tail, end));
    }
    for (from, to) in edges {
        let mut held = vec![0; (to - from) as usize];
        read::read(engine, tree, ino, from, &mut held)?;
        if held.iter().any(|&b| b != 0) {
            held.fill(0);
            write::write_zeros(engine, tree, ino, from, &held, now.into())?;
        }
    }
    Ok(())
}
