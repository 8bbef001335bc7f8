//! An extent that grows instead of having another follow it: what is written in pieces, one behind the other in the file
//! and on the device, is one extent, of up to [`EXTENT_MAX`] bytes.
//!
//! It may grow while nobody else knows it: it is of this transaction, all of it is in one item of one file, and its only
//! reference is pending still. From then on it is as if it had been written in one piece.

use super::replace::NewExtent;
use super::write::EXTENT_MAX;
use crate::extent::children::data_ref;
use crate::tree::Tree;
use crate::{Result, Writer};
use buttery_disk::extent::FileExtentItem;

/// Makes the extent of `item`, which begins at `start` in the file, as long as it is with `new` behind it. `None` if it
/// has to stay as it is, and nothing was done. The tree is locked for writing, and must get the item that is answered.
pub(super) fn grow(
    writer: &Writer,
    tree: &Tree,
    ino: u64,
    transid: u64,
    (start, item): (u64, FileExtentItem),
    new: &NewExtent,
) -> Result<Option<FileExtentItem>> {
    let (bytenr, len) = (item.disk_bytenr.get(), item.disk_num_bytes.get());
    let encoded = item.compression != 0 || item.encryption != 0 || item.other_encoding.get() != 0;
    let whole = item.offset.get() == 0 && item.num_bytes.get() == len && item.ram_bytes.get() == len;
    let alike = item.kind == new.kind && !encoded && new.compression == 0;
    let goes_on = start.checked_add(len) == Some(new.file_offset)
        && bytenr != 0
        && bytenr.checked_add(len) == Some(new.bytenr);
    let Some(both) = len.checked_add(new.len).filter(|&both| both <= EXTENT_MAX) else { return Ok(None) };
    if item.generation.get() != transid || !alike || !whole || !goes_on {
        return Ok(None);
    }
    // no extent lies in two block groups
    let only = data_ref(tree.id().0, ino, start, 0);
    if !writer.space.is_one_group(bytenr, new.bytenr) || !writer.refs.grow(bytenr, len, both, only) {
        return Ok(None);
    }
    writer.alone.forget(bytenr);
    writer.space.use_data(new.bytenr, new.len)?;
    Ok(Some(FileExtentItem {
        disk_num_bytes: both.into(),
        ram_bytes: both.into(),
        num_bytes: both.into(),
        ..item
    }))
}
