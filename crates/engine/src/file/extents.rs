//! The extents of a file, as they stand in its tree.

use crate::tree::{Tree, View};
use crate::{Error, Result};
use buttery_codec::Compression;
use buttery_disk::extent::{FILE_EXTENT_INLINE_START, FileExtentItem, compression, file_extent};
use buttery_disk::zerocopy::FromBytes;
use buttery_disk::{Key, TreeId, item};

/// One file extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins in the file.
    pub start: u64,
    /// How many bytes of the file it covers; of an inline one, the bytes that it decodes to.
    pub len: u64,
    pub body: Body,
}

/// What a file extent holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Data in the item itself.
    Inline { compression: u8, data: Vec<u8> },
    /// Zeros: nothing on disk.
    Hole,
    /// Space without data; reads as zeros.
    Prealloc(FileExtentItem),
    /// Data on disk.
    Regular(FileExtentItem),
}

impl Extent {
    /// The file offset behind it.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.len)
    }

    /// Reads an EXTENT_DATA item.
    pub fn parse(tree: TreeId, key: Key, data: &[u8]) -> Result<Extent> {
        let bad = |what: &str| Error::corrupt(tree, key, what);
        let kind = *data.get(FILE_EXTENT_INLINE_START - 1).ok_or_else(|| bad("a file extent is cut off"))?;
        if kind == file_extent::INLINE {
            let ram_bytes = u64::from_le_bytes(data[8..16].try_into().expect("8 bytes"));
            let body =
                Body::Inline { compression: data[16], data: data[FILE_EXTENT_INLINE_START..].to_vec() };
            return Ok(Extent { start: key.offset, len: ram_bytes, body });
        }
        let item = FileExtentItem::read_from_bytes(data).map_err(|_| bad("a file extent has 53 bytes"))?;
        let body = match kind {
            _ if item.disk_bytenr.get() == 0 => Body::Hole,
            file_extent::PREALLOC => Body::Prealloc(item),
            _ => Body::Regular(item),
        };
        Ok(Extent { start: key.offset, len: item.num_bytes.get(), body })
    }
}

/// The key of a file extent.
pub fn key(ino: u64, offset: u64) -> Key {
    Key::new(ino, item::EXTENT_DATA, offset)
}

/// The compression of an extent; an error for an algorithm that does not exist.
pub fn algorithm(tree: TreeId, key: Key, number: u8) -> Result<Option<Compression>> {
    match Compression::from_disk(number) {
        None if number != compression::NONE => {
            Err(Error::corrupt(tree, key, format!("compression {number}")))
        }
        found => Ok(found),
    }
}

/// Calls `visit` with each extent that touches `start..end`, in order, until it answers `false`. Gaps between them
/// are holes.
pub fn for_each(
    tree: &Tree,
    view: &View<'_>,
    ino: u64,
    start: u64,
    end: u64,
    visit: &mut dyn FnMut(Extent) -> Result<bool>,
) -> Result<()> {
    let mut cursor = view.seek(key(ino, start))?;
    if cursor.key() != Some(key(ino, start)) {
        let at = cursor.key();
        // the extent before may reach into the range
        if !cursor.prev()? || cursor.key().is_none_or(|k| (k.objectid, k.kind) != (ino, item::EXTENT_DATA)) {
            match at {
                Some(_) => cursor = view.seek(key(ino, start))?,
                None => return Ok(()),
            }
        }
    }
    let mut reached = 0;
    while let Some((found, data)) = cursor.item() {
        if (found.objectid, found.kind) != (ino, item::EXTENT_DATA) || found.offset >= end {
            break;
        }
        let extent = Extent::parse(tree.id(), found, data)?;
        // within a leaf the tree checker sees to that
        if extent.start < reached {
            let what = format!("the extent before it ends at {reached}: they overlap");
            return Err(Error::corrupt(tree.id(), found, what));
        }
        if !matches!(extent.body, Body::Inline { .. }) {
            reached = extent.end();
        }
        if extent.end() > start && !visit(extent)? {
            break;
        }
        cursor.advance()?;
    }
    Ok(())
}
