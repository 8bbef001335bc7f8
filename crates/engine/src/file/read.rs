//! Reading a file: extents to bytes, holes and preallocated space to zeros.

use super::extents::{self, Body, Extent};
use super::inode;
use crate::bio::{self, Verify};
use crate::tree::Tree;
use crate::{Engine, Error, Result};
use buttery_codec::decompress;
use buttery_disk::extent::FileExtentItem;
use buttery_disk::inode::{InodeItem, flags};

/// The kernel never compresses more than this at once; an extent that claims more is damaged.
const COMPRESSED_MAX: u64 = 128 << 10;
/// What an inline extent may decode to at most.
const INLINE_MAX: u64 = 64 << 10;

/// Reads from `offset` on; returns how many bytes there were, fewer than asked for only at the end of the file.
pub fn read(engine: &Engine, tree: &Tree, ino: u64, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let item = inode::read(engine, tree, ino)?;
    let size = item.size.get();
    if offset >= size {
        return Ok(0);
    }
    let len = (size - offset).min(buf.len() as u64) as usize;
    read_extents(engine, tree, ino, &item, offset, &mut buf[..len])?;
    Ok(len)
}

/// Fills `buf` with what the extents hold, wherever the file ends: behind its end there may be anything.
pub(crate) fn read_extents(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    item: &InodeItem,
    offset: u64,
    buf: &mut [u8],
) -> Result<()> {
    let len = buf.len();
    let verify = if item.flags.get() & flags::NODATASUM != 0 { Verify::None } else { Verify::Csum };
    let mut found = Vec::new();
    {
        let view = tree.read(engine.store());
        extents::for_each(tree, &view, ino, offset, offset + len as u64, &mut |extent| {
            found.push(extent);
            Ok(true)
        })?;
    }
    let mut done = 0;
    for extent in &found {
        let from = (extent.start.max(offset) - offset) as usize;
        let to = (extent.end().min(offset + len as u64) - offset) as usize;
        if from < done || from >= to {
            continue; // the tree checker refuses overlaps within a leaf; across leaves the first one counts
        }
        buf[done..from].fill(0);
        let within = offset + from as u64 - extent.start;
        fill(engine, tree, ino, extent, within, &mut buf[from..to], verify)?;
        done = to;
    }
    buf[done..].fill(0);
    Ok(())
}

/// Fills `buf` with what an extent holds from `within` bytes after its beginning on.
fn fill(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    extent: &Extent,
    within: u64,
    buf: &mut [u8],
    verify: Verify,
) -> Result<()> {
    let key = extents::key(ino, extent.start);
    match &extent.body {
        Body::Hole | Body::Prealloc(_) => {
            buf.fill(0);
            Ok(())
        }
        Body::Inline { compression, data } => {
            let algorithm = extents::algorithm(tree.id(), key, *compression)?;
            if extent.len > INLINE_MAX {
                return Err(Error::corrupt(tree.id(), key, format!("inline extent of {} bytes", extent.len)));
            }
            let mut plain = vec![0; extent.len as usize];
            match algorithm {
                None => plain.copy_from_slice(
                    data.get(..extent.len as usize)
                        .ok_or_else(|| Error::corrupt(tree.id(), key, "inline data are cut off"))?,
                ),
                Some(a) => decompress(a, data, &mut plain).map_err(|e| Error::corrupt(tree.id(), key, e))?,
            }
            let start = within as usize;
            buf.copy_from_slice(&plain[start..start + buf.len()]);
            Ok(())
        }
        Body::Regular(item) => match extents::algorithm(tree.id(), key, item.compression)? {
            None => fill_plain(engine, item, within, buf, verify),
            Some(algorithm) => {
                let (disk, ram) = (item.disk_num_bytes.get(), item.ram_bytes.get());
                let start = item.offset.get().saturating_add(within);
                let end = start.saturating_add(buf.len() as u64);
                if disk > COMPRESSED_MAX || ram > COMPRESSED_MAX || end > ram {
                    let what =
                        format!("a compressed extent of {disk} bytes that decode to {ram}, used to {end}");
                    return Err(Error::corrupt(tree.id(), key, what));
                }
                let mut raw = vec![0; disk as usize];
                bio::read(engine, item.disk_bytenr.get(), &mut raw, verify)?;
                let mut plain = vec![0; ram as usize];
                decompress(algorithm, &raw, &mut plain)
                    .map_err(|e| Error::corrupt(tree.id(), inode::key(ino), e))?;
                buf.copy_from_slice(&plain[start as usize..end as usize]);
                Ok(())
            }
        },
    }
}

/// Whole sectors go straight into the caller's buffer; a head or tail within a sector through one of our own.
fn fill_plain(
    engine: &Engine,
    item: &FileExtentItem,
    within: u64,
    buf: &mut [u8],
    verify: Verify,
) -> Result<()> {
    let sector = engine.volume().context().sectorsize as u64;
    let address = item
        .disk_bytenr
        .get()
        .checked_add(item.offset.get())
        .and_then(|a| a.checked_add(within))
        .ok_or_else(|| Error::Corrupt("a file extent lies beyond the largest address".into()))?;
    let mut at = address;
    let mut rest = buf;
    while !rest.is_empty() {
        let skip = (at % sector) as usize;
        if skip == 0 && rest.len() as u64 >= sector {
            let whole = rest.len() - rest.len() % sector as usize;
            let (now, after) = rest.split_at_mut(whole);
            bio::read(engine, at, now, verify)?;
            at += whole as u64;
            rest = after;
            continue;
        }
        let take = (sector as usize - skip).min(rest.len());
        let mut block = vec![0; sector as usize];
        bio::read(engine, at - skip as u64, &mut block, verify)?;
        let (now, after) = rest.split_at_mut(take);
        now.copy_from_slice(&block[skip..skip + take]);
        at += take as u64;
        rest = after;
    }
    Ok(())
}

/// The next offset from `offset` on at which there are data, or a hole (the end of the file is one). Preallocated
/// space counts as a hole, as the kernel has it.
pub fn seek(engine: &Engine, tree: &Tree, ino: u64, offset: u64, data: bool) -> Result<u64> {
    let size = inode::read(engine, tree, ino)?.size.get();
    if offset >= size {
        return Err(Error::NotFound);
    }
    let (mut at, mut found) = (offset, None);
    let view = tree.read(engine.store());
    extents::for_each(tree, &view, ino, offset, size, &mut |extent| {
        let has_data = matches!(extent.body, Body::Regular(_) | Body::Inline { .. });
        if extent.len == 0 {
            return Ok(true);
        }
        if !data && extent.start > at {
            return Ok(false); // a gap begins at `at`
        }
        if has_data == data {
            found = Some(at.max(extent.start));
            return Ok(false);
        }
        at = at.max(extent.end());
        Ok(true)
    })?;
    match (found, data) {
        (Some(place), _) if place < size => Ok(place),
        (_, true) => Err(Error::NotFound),
        (_, false) => Ok(at.min(size)),
    }
}
