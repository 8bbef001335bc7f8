//! Inserting and deleting checksums, as the kernel lays them out: items that continue each other are joined as long as
//! they fit into a leaf comfortably, and deleting from the middle splits one.

use super::key;
use crate::txn::Trans;
use crate::{Error, Result};
use buttery_disk::node::{ITEM_LEN, leaf_data_size};
use buttery_disk::{Key, TreeId, item, objectid};

/// The largest checksum item.
fn item_max(trans: &Trans<'_>, size: usize) -> usize {
    let data = leaf_data_size(trans.store().nodesize());
    let most = (data - 2 * ITEM_LEN) / size - 1;
    most.min(4096 / size) * size
}

/// Inserts the checksums of the data at `bytenr`, one after the other; there are none yet in that range.
pub(crate) fn insert(trans: &mut Trans<'_>, bytenr: u64, sums: &[u8]) -> Result<()> {
    let ctx = *trans.store().volume().context();
    let (sector, size) = (ctx.sectorsize as u64, ctx.csum_size as usize);
    let max = item_max(trans, size);
    let tree = trans.engine().tree(TreeId(objectid::CSUM_TREE))?;
    let mut editor = tree.write(trans);
    let taken = |found| Error::corrupt(tree.id(), found, "a new extent has checksums already");
    let end_of = |found: Key, len: usize| found.offset + (len / size) as u64 * sector;
    let joined = editor.append_before(key(bytenr), sums, |found, len| {
        if found.kind != item::EXTENT_CSUM || end_of(found, len) < bytenr {
            return Ok(false);
        }
        if end_of(found, len) > bytenr { Err(taken(found)) } else { Ok(len + sums.len() <= max) }
    })?;
    if joined {
        return Ok(());
    }
    let (mut at, mut rest) = (bytenr, sums);
    // continue the item before, if it ends where these begin
    if let Some((found, data)) = editor.last_at_or_before(key(at), key(0))?
        && found.kind == item::EXTENT_CSUM
    {
        let end = end_of(found, data.len());
        if end > at {
            return Err(taken(found));
        }
        if end == at && data.len() < max {
            let take = (max - data.len()).min(rest.len());
            editor.replace(found, &[&data, &rest[..take]].concat())?;
            at += (take / size) as u64 * sector;
            rest = &rest[take..];
        }
    }
    while !rest.is_empty() {
        let take = max.min(rest.len());
        editor.insert(key(at), &rest[..take])?;
        at += (take / size) as u64 * sector;
        rest = &rest[take..];
    }
    Ok(())
}

/// Deletes the checksums of a range, those that there are.
pub(crate) fn delete(trans: &mut Trans<'_>, bytenr: u64, len: u64) -> Result<()> {
    let ctx = *trans.store().volume().context();
    let (sector, size) = (ctx.sectorsize as u64, ctx.csum_size as usize);
    let end = bytenr + len;
    let tree = trans.engine().tree(TreeId(objectid::CSUM_TREE))?;
    // look first: what has no checksums must not make the tree copy a path
    if !super::any_in_range(trans.engine(), bytenr, len)? {
        return Ok(());
    }
    let mut editor = tree.write(trans);
    let last = Key { offset: end - 1, ..key(0) };
    while let Some((found, data)) = editor.last_at_or_before(last, key(0))? {
        let item_end = found.offset + (data.len() / size) as u64 * sector;
        if found.kind != item::EXTENT_CSUM || item_end <= bytenr {
            break;
        }
        let head = (bytenr.saturating_sub(found.offset) / sector) as usize * size;
        let tail = (item_end.saturating_sub(end) / sector) as usize * size;
        if tail > 0 && head == 0 {
            // only the beginning goes
            editor.replace(found, &data[data.len() - tail..])?;
            editor.rekey(found, key(end))?;
        } else if tail > 0 {
            editor.replace(found, &data[..head])?;
            editor.insert(key(end), &data[data.len() - tail..])?;
        } else if head > 0 {
            editor.replace(found, &data[..head])?;
        } else {
            editor.remove(found)?;
            continue;
        }
        if head > 0 {
            break;
        }
    }
    Ok(())
}
