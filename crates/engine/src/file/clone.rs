//! Sharing extents between files, or places of one file: what was copied takes no space of its own.

use super::extents::{self, Body, Extent};
use super::{inode, replace};
use crate::extent::children::data_ref;
use crate::tree::Tree;
use crate::txn::{ExtentKind, Purpose};
use crate::{Engine, Error, Result};
use buttery_disk::extent::FileExtentItem;
use buttery_disk::inode::{InodeItem, Timespec};
use buttery_disk::zerocopy::IntoBytes;

/// Items that one extent changes in the file that gets it.
const ITEMS: u64 = 8;
/// How many extents are looked at at a time.
const BATCH: usize = 256;

/// A place in a file.
#[derive(Clone, Copy)]
pub struct At<'a> {
    pub tree: &'a Tree,
    pub ino: u64,
    pub offset: u64,
}

/// Makes `len` bytes of `to` the same as those of `from`, by sharing their extents. Offsets and length are aligned, and
/// the ranges do not overlap; `to` then ends at `size` or later. Other writers are kept off both. Neither file has
/// data in its item. Without `now` the times of `to` stay: what it says does not change.
pub fn clone(
    engine: &Engine,
    from: At<'_>,
    to: At<'_>,
    len: u64,
    size: u64,
    now: Option<Timespec>,
) -> Result<()> {
    let end = from.offset + len;
    let mut at = from.offset;
    while at < end {
        let mut found = Vec::new();
        let mut all = true;
        {
            let view = from.tree.read(engine.store());
            extents::for_each(from.tree, &view, from.ino, at, end, &mut |extent| {
                all = found.len() < BATCH;
                if all {
                    found.push(extent);
                }
                Ok(all)
            })?;
        }
        for extent in &found {
            let stop = extent.end().min(end);
            share(engine, from, to, at, stop, Some(extent), size, now)?;
            at = stop;
        }
        if all && at < end {
            share(engine, from, to, at, end, None, size, now)?;
            at = end;
        }
    }
    Ok(())
}

/// Gives `to` what `at..stop` of `from` has: a hole up to where the extent begins, then that.
#[allow(clippy::too_many_arguments)] // a step of the above, with all that it knows
fn share(
    engine: &Engine,
    from: At<'_>,
    to: At<'_>,
    at: u64,
    stop: u64,
    extent: Option<&Extent>,
    size: u64,
    now: Option<Timespec>,
) -> Result<()> {
    let place = |offset: u64| to.offset + (offset - from.offset);
    let shared = match extent.map(|e| (e, &e.body)) {
        None | Some((_, Body::Hole)) => None,
        Some((extent, Body::Prealloc(item) | Body::Regular(item))) => {
            let start = extent.start.max(at);
            let skip = start - extent.start;
            let part = FileExtentItem {
                offset: (item.offset.get() + skip).into(),
                num_bytes: (stop - start).into(),
                ..*item
            };
            Some((place(start), part))
        }
        Some((extent, Body::Inline { .. })) => {
            let key = extents::key(from.ino, extent.start);
            return Err(Error::corrupt(from.tree.id(), key, "data in an item among other extents"));
        }
    };
    let (start, end) = (place(at), place(stop));
    let Some((shared_from, part)) = shared else {
        replace::drop_in_steps(engine, to.tree, to.ino, start, end, now)?;
        return engine.change(ITEMS, Purpose::Change, |trans| {
            inode::update(trans, to.tree, to.ino, |item| grow(item, 0, size.min(end), now))
        });
    };
    // what goes and what comes in its place are one transaction, from the end on
    let mut stop = end;
    while stop > start {
        stop = engine.change(ITEMS + replace::STEP_ITEMS, Purpose::Change, |trans| {
            let dropped = replace::drop_extents(trans, to.tree, to.ino, start, stop, replace::STEP)?;
            let from = dropped.from.max(shared_from);
            let mut bytes = -(dropped.bytes as i64);
            if from < stop {
                let piece = FileExtentItem {
                    offset: (part.offset.get() + (from - shared_from)).into(),
                    num_bytes: (stop - from).into(),
                    ..part
                };
                to.tree.write(trans).insert(extents::key(to.ino, from), piece.as_bytes())?;
                let backref = data_ref(to.tree.id().0, to.ino, from, piece.offset.get());
                let (bytenr, len) = (piece.disk_bytenr.get(), piece.disk_num_bytes.get());
                trans.add_ref(bytenr, len, ExtentKind::Data, backref, 1)?;
                bytes += (stop - from) as i64;
            }
            inode::update(trans, to.tree, to.ino, |item| grow(item, bytes, size.min(end), now))?;
            Ok(dropped.from)
        })?;
    }
    Ok(())
}

/// The target has more or fewer bytes, and ends at `size` or later.
fn grow(item: &mut InodeItem, bytes: i64, size: u64, now: Option<Timespec>) {
    replace::count_bytes(item, bytes, now);
    item.size = item.size.get().max(size).into();
}
