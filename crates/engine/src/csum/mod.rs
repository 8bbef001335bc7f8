//! The checksum tree: which checksum the data at a logical address have.

mod edit;

pub(crate) use edit::{delete, insert};

use crate::{Engine, Error, Result, count};
use buttery_disk::{Key, TreeId, item, objectid};
use smallvec::{SmallVec, smallvec};

/// Bytes of the longest checksum.
const CSUM_SIZE: usize = 32;

/// Sectors whose checksums need no allocation: a read of 64 KiB.
const INLINE: usize = 16;

/// The checksums of a range, as found: one per sector, or none where the tree has none.
pub struct Sums {
    size: usize,
    /// In place for small reads, whatever the checksum; else one exact allocation.
    bytes: SmallVec<[u8; INLINE * CSUM_SIZE]>,
    present: SmallVec<[bool; INLINE]>,
}

impl Sums {
    /// The checksum of the `index`th sector.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        (*self.present.get(index)?).then(|| &self.bytes[index * self.size..(index + 1) * self.size])
    }

    /// Whether any sector has one.
    pub fn is_any(&self) -> bool {
        self.present.iter().any(|&p| p)
    }

    /// Whether every sector has one.
    pub fn is_complete(&self) -> bool {
        self.present.iter().all(|&p| p)
    }
}

pub(crate) fn key(bytenr: u64) -> Key {
    Key::new(objectid::EXTENT_CSUM, item::EXTENT_CSUM, bytenr)
}

/// Gathers the checksums of `len` bytes from `bytenr` on, with one descent of the tree.
pub fn lookup(engine: &Engine, bytenr: u64, len: u64) -> Result<Sums> {
    let ctx = engine.volume().context();
    let (sector, size) = (ctx.sectorsize as u64, ctx.csum_size as usize);
    let count = len.div_ceil(sector) as usize;
    let mut sums = Sums { size, bytes: smallvec![0; count * size], present: smallvec![false; count] };
    let end = bytenr.checked_add(len).ok_or(Error::Invalid)?;
    let tree = engine.tree(TreeId(objectid::CSUM_TREE))?;
    let view = tree.read(engine.store());
    let mut cursor = view.seek(key(bytenr))?;
    if cursor.key() != Some(key(bytenr)) && !cursor.prev()? {
        cursor = view.seek(key(bytenr))?; // nothing before it
    }
    while let Some((found, data)) = cursor.item() {
        if found >= key(end) {
            break;
        }
        if found.kind == item::EXTENT_CSUM {
            let item_end = found.offset.saturating_add((data.len() / size) as u64 * sector);
            let (from, to) = (found.offset.max(bytenr), item_end.min(end));
            if from < to {
                let count = ((to - from) / sector) as usize;
                let source = ((from - found.offset) / sector) as usize * size;
                let target = ((from - bytenr) / sector) as usize;
                let data = data.get(source..source + count * size).ok_or(Error::Invalid)?;
                count::copied(data.len());
                sums.bytes[target * size..(target + count) * size].copy_from_slice(data);
                sums.present[target..target + count].fill(true);
            }
        }
        cursor.advance()?;
    }
    Ok(sums)
}

/// Whether any data in a range have a checksum. The first item that overlaps it answers; nothing is gathered.
pub fn any_in_range(engine: &Engine, bytenr: u64, len: u64) -> Result<bool> {
    let ctx = engine.volume().context();
    let (sector, size) = (ctx.sectorsize as u64, ctx.csum_size as u64);
    let end = bytenr.checked_add(len).ok_or(Error::Invalid)?;
    let tree = engine.tree(TreeId(objectid::CSUM_TREE))?;
    let view = tree.read(engine.store());
    let mut cursor = view.seek(key(bytenr))?;
    if let Some(found) = cursor.key()
        && found.kind == item::EXTENT_CSUM
        && found.offset < end
    {
        return Ok(true);
    }
    if !cursor.prev()? {
        return Ok(false);
    }
    Ok(cursor.item().is_some_and(|(found, data)| {
        found.kind == item::EXTENT_CSUM && found.offset + data.len() as u64 / size * sector > bytenr
    }))
}
