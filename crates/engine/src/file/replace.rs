//! Replacing the extents of a range: dropping what it covers, inserting what stands there from then on.

use super::extents::{self, Body, Extent};
use crate::extent::children::data_ref;
use crate::tree::{Editor, Tree};
use crate::txn::{ExtentKind, Trans};
use crate::{Error, Result};
use buttery_disk::extent::{FileExtentHead, FileExtentItem, file_extent};
use buttery_disk::zerocopy::IntoBytes;
use buttery_disk::{Key, item};

/// How many extents are looked at before the tree is changed.
const BATCH: usize = 64;
/// Where the number of extents is limited, their bytes are too: their checksums go in the same commit.
const BYTES_MAX: u64 = 64 << 20;

/// What dropping did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// By how much the inode's bytes shrink.
    pub bytes: u64,
    /// Where the dropped part begins: the range's beginning if all is gone.
    pub from: u64,
}

/// The extents that touch `start..end`, the last ones if there are more than `most`.
fn overlapping(
    editor: &Editor<'_, '_>,
    tree: &Tree,
    ino: u64,
    start: u64,
    end: u64,
    most: usize,
) -> Result<Vec<(Key, Extent)>> {
    let mut out = Vec::new();
    let mut cursor = editor.seek(extents::key(ino, end))?;
    while out.len() < most && cursor.prev()? {
        let Some((key, data)) = cursor.item() else { break };
        if (key.objectid, key.kind) != (ino, item::EXTENT_DATA) {
            break;
        }
        let extent = Extent::parse(tree.id(), key, data)?;
        let inline = matches!(extent.body, Body::Inline { .. });
        if extent.end() <= start && !(inline && start == 0) {
            break;
        }
        out.push((key, extent));
    }
    Ok(out)
}

/// Drops what `start..end` covers, from the end on, at most `most` extents. The range is aligned, and an inline extent
/// that it touches goes as a whole.
pub(crate) fn drop_extents(
    trans: &mut Trans<'_>,
    tree: &Tree,
    ino: u64,
    start: u64,
    end: u64,
    most: usize,
) -> Result<Dropped> {
    let mut editor = tree.write(trans);
    let (mut bytes, mut done, mut to) = (0, 0, end);
    while done < most {
        let want = BATCH.min(most - done);
        let found = overlapping(&editor, tree, ino, start, to, want)?;
        let count = found.len();
        for (key, extent) in found {
            bytes += drop_one(&mut editor, tree, ino, key, &extent, start, end)?;
            to = key.offset;
            if most < usize::MAX && bytes >= BYTES_MAX {
                return Ok(Dropped { bytes, from: to });
            }
        }
        done += count;
        if count < want || to <= start {
            return Ok(Dropped { bytes, from: start });
        }
    }
    Ok(Dropped { bytes, from: to })
}

fn drop_one(
    editor: &mut Editor<'_, '_>,
    tree: &Tree,
    ino: u64,
    key: Key,
    extent: &Extent,
    start: u64,
    end: u64,
) -> Result<u64> {
    let (item, counted) = match &extent.body {
        Body::Inline { .. } => {
            editor.remove(key)?;
            return Ok(extent.len);
        }
        Body::Hole => (None, false),
        Body::Prealloc(item) | Body::Regular(item) => (Some(*item), true),
    };
    let (from, to) = (extent.start.max(start), extent.end().min(end));
    let cut = to.saturating_sub(from);
    let freed = if counted { cut } else { 0 };
    let (keep_head, keep_tail) = (extent.start < start, extent.end() > end);
    let Some(item) = item else {
        // an explicit hole: what remains of it is one without an item
        editor.remove(key)?;
        return Ok(0);
    };
    let transid = editor.trans().id();
    let part = |skip: u64, len: u64| FileExtentItem {
        generation: transid.into(),
        offset: (item.offset.get() + skip).into(),
        num_bytes: len.into(),
        ..item
    };
    let backref = data_ref(tree.id().0, ino, key.offset, item.offset.get());
    let (bytenr, len) = (item.disk_bytenr.get(), item.disk_num_bytes.get());
    let tail = part(end.saturating_sub(extent.start), extent.end().saturating_sub(end));
    match (keep_head, keep_tail) {
        (true, true) => {
            editor.replace(key, part(0, start - extent.start).as_bytes())?;
            editor.insert(extents::key(ino, end), tail.as_bytes())?;
            editor.trans().add_ref(bytenr, len, ExtentKind::Data, backref, 1)?;
        }
        (true, false) => editor.replace(key, part(0, start - extent.start).as_bytes())?,
        (false, true) => {
            editor.replace(key, tail.as_bytes())?;
            editor.rekey(key, extents::key(ino, end))?;
        }
        (false, false) => {
            editor.remove(key)?;
            editor.trans().add_ref(bytenr, len, ExtentKind::Data, backref, -1)?;
        }
    }
    Ok(freed)
}

/// A newly allocated extent, of data that were written to it or of none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewExtent {
    pub file_offset: u64,
    pub bytenr: u64,
    pub len: u64,
    /// [`file_extent::REG`] or [`file_extent::PREALLOC`].
    pub kind: u8,
}

/// Puts a new extent in the place of what its range covers. Answers by how much the inode's bytes change.
pub(crate) fn replace_extents(trans: &mut Trans<'_>, tree: &Tree, ino: u64, new: NewExtent) -> Result<i64> {
    let end = new.file_offset + new.len;
    let dropped = drop_extents(trans, tree, ino, new.file_offset, end, usize::MAX)?;
    let item = FileExtentItem {
        generation: trans.id().into(),
        ram_bytes: new.len.into(),
        compression: 0,
        encryption: 0,
        other_encoding: 0.into(),
        kind: new.kind,
        disk_bytenr: new.bytenr.into(),
        disk_num_bytes: new.len.into(),
        offset: 0.into(),
        num_bytes: new.len.into(),
    };
    tree.write(trans).insert(extents::key(ino, new.file_offset), item.as_bytes())?;
    let backref = data_ref(tree.id().0, ino, new.file_offset, 0);
    trans.add_new_data_ref(new.bytenr, new.len, backref)?;
    Ok(new.len as i64 - dropped.bytes as i64)
}

/// Makes `data` all that the file has, in its item. Answers by how much the inode's bytes change.
pub(crate) fn replace_inline(trans: &mut Trans<'_>, tree: &Tree, ino: u64, data: &[u8]) -> Result<i64> {
    let sector = trans.store().volume().context().sectorsize as u64;
    let dropped = drop_extents(trans, tree, ino, 0, sector, usize::MAX)?;
    if !data.is_empty() {
        let head = FileExtentHead {
            generation: trans.id().into(),
            ram_bytes: (data.len() as u64).into(),
            compression: 0,
            encryption: 0,
            other_encoding: 0.into(),
            kind: file_extent::INLINE,
        };
        let item = [head.as_bytes(), data].concat();
        tree.write(trans).insert(extents::key(ino, 0), &item).map_err(|e| match e {
            Error::Exists => Error::corrupt(tree.id(), extents::key(ino, 0), "an extent was not dropped"),
            other => other,
        })?;
    }
    Ok(data.len() as i64 - dropped.bytes as i64)
}
