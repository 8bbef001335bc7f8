//! Changing a file's size, and giving back what an inode without links had.

use super::extents::Body;
use super::{extents, inode, read, replace, write};
use crate::tree::Tree;
use crate::txn::Purpose;
use crate::{Engine, Error, Result};
use buttery_disk::inode::{Timespec, flags, mode};

/// Sets a file's size. What lies beyond is dropped, what is added reads as zeros.
pub fn truncate(engine: &Engine, tree: &Tree, ino: u64, size: u64, now: Timespec) -> Result<()> {
    if size > write::SIZE_MAX {
        return Err(Error::FileTooBig);
    }
    let item = inode::read(engine, tree, ino)?;
    let old = item.size.get();
    if old.max(size) <= engine.max_inline() && old != size && size > 0 {
        // small before and after: what is in the item follows
        if let Some(mut all) = inline_contents(engine, tree, ino, old)? {
            all.resize(size as usize, 0);
            return engine.change(6, Purpose::Change, |trans| {
                let by = replace::replace_inline(trans, tree, ino, &all)?;
                inode::update(trans, tree, ino, |item| {
                    write::touch(item, by, now);
                    item.size = size.into();
                })
            });
        }
    }
    let prealloc = item.flags.get() & flags::PREALLOC != 0;
    if size < old || size == old && prealloc {
        clear_tail(engine, tree, ino, size, old, now)?;
        drop_from(engine, tree, ino, size, now)?;
    } else if size > old {
        write::outline(engine, tree, ino, now.into())?;
        write::clear_behind_end(engine, tree, ino, &item, now.into())?;
    }
    engine.change(2, if size <= old { Purpose::Free } else { Purpose::Change }, |trans| {
        inode::update(trans, tree, ino, |item| {
            write::touch(item, 0, now);
            item.size = size.into();
        })
    })
}

/// The contents of a file that lives in its item or has nothing at all.
fn inline_contents(engine: &Engine, tree: &Tree, ino: u64, size: u64) -> Result<Option<Vec<u8>>> {
    let mut inline = true;
    {
        let view = tree.read(engine.store());
        extents::for_each(tree, &view, ino, 0, u64::MAX, &mut |extent| {
            inline = matches!(extent.body, Body::Inline { .. });
            Ok(inline)
        })?;
    }
    if !inline {
        return Ok(None);
    }
    let mut all = vec![0; size as usize];
    read::read(engine, tree, ino, 0, &mut all)?;
    Ok(Some(all))
}

/// The rest of the sector in which the new end lies must be zeros, or they would be seen when the file grows again.
fn clear_tail(engine: &Engine, tree: &Tree, ino: u64, size: u64, old: u64, now: Timespec) -> Result<()> {
    let sector = engine.volume().context().sectorsize as u64;
    let tail = size % sector;
    if tail == 0 || size == old {
        return Ok(());
    }
    let mut data = false;
    {
        let view = tree.read(engine.store());
        extents::for_each(tree, &view, ino, size - tail, size, &mut |extent| {
            data = matches!(extent.body, Body::Regular(_) | Body::Inline { .. });
            Ok(!data)
        })?;
    }
    if !data {
        return Ok(());
    }
    let zeros = vec![0; ((sector - tail).min(old - size)) as usize];
    write::outline(engine, tree, ino, now.into())?;
    write::write_zeros(engine, tree, ino, size, &zeros, now.into())
}

/// Drops all extents behind the sector in which `size` lies, from the file's end on, some in each transaction. After
/// each the file is as long as what is left.
fn drop_from(engine: &Engine, tree: &Tree, ino: u64, size: u64, now: Timespec) -> Result<()> {
    let sector = engine.volume().context().sectorsize as u64;
    let start = size.next_multiple_of(sector);
    loop {
        let from = engine.change(replace::STEP_ITEMS, Purpose::Free, |trans| {
            let dropped = replace::drop_extents(trans, tree, ino, start, u64::MAX, replace::STEP)?;
            inode::update(trans, tree, ino, |item| {
                write::touch(item, -(dropped.bytes as i64), now);
                item.size = item.size.get().min(dropped.from.max(size)).into();
            })?;
            Ok(dropped.from)
        })?;
        if from <= start {
            return Ok(());
        }
    }
}

/// Removes an inode without links, with all that it had.
pub fn evict(engine: &Engine, tree: &Tree, ino: u64) -> Result<()> {
    let item = match inode::read(engine, tree, ino) {
        Ok(item) => item,
        Err(Error::NotFound) => {
            return engine.change(2, Purpose::Free, |trans| inode::remove_orphan(trans, tree, ino));
        }
        Err(error) => return Err(error),
    };
    if item.nlink.get() != 0 {
        // an orphan of the old kind: a truncation that was interrupted
        return engine.change(2, Purpose::Free, |trans| inode::remove_orphan(trans, tree, ino));
    }
    if item.mode.get() & mode::FMT == mode::REG || item.nbytes.get() > 0 {
        drop_from(engine, tree, ino, 0, item.mtime)?;
    }
    engine.change(8, Purpose::Free, |trans| inode::remove(trans, tree, ino))
}
