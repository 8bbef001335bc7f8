//! Back references that are items of their own, behind the extent's item.

use crate::tree::Editor;
use crate::{Error, Result};
use buttery_disk::extent::{BackRef, ExtentDataRef, data_ref};
use buttery_disk::zerocopy::FromBytes;
use buttery_disk::{Key, TreeId, item, objectid};

/// Whether an extent has any.
pub(super) fn any(editor: &Editor<'_, '_>, bytenr: u64) -> Result<bool> {
    let cursor = editor.seek(Key::new(bytenr, item::METADATA_ITEM + 1, 0))?;
    Ok(cursor.key().is_some_and(|k| k.objectid == bytenr && k.kind < item::BLOCK_GROUP_ITEM))
}

/// Adds to, or takes from, the count of a reference; its item comes and goes with it.
pub(super) fn change(editor: &mut Editor<'_, '_>, bytenr: u64, backref: BackRef, by: i64) -> Result<()> {
    let (key, present) = place(editor, bytenr, backref)?;
    let old = match present {
        None => 0,
        Some(count) => count as i64,
    };
    let count = old + by;
    if count < 0 || count > u32::MAX as i64 || (by < 0 && present.is_none()) {
        let what = format!("reference {backref:?} is dropped but was never there");
        return Err(Error::corrupt(TreeId(objectid::EXTENT_TREE), key, what));
    }
    match (present, count) {
        (Some(_), 0) => editor.remove(key),
        (_, 0) => Ok(()),
        _ => editor.put(key, &backref.item_bytes(count as u32)),
    }
}

/// How far from its hash an item can stand: no chain of collisions was ever as long.
const CHAIN_MAX: u64 = 1 << 16;

/// The key of a reference's item, and its count if it exists.
fn place(editor: &Editor<'_, '_>, bytenr: u64, backref: BackRef) -> Result<(Key, Option<u32>)> {
    let key = Key::new(bytenr, backref.kind(), backref.sort_value());
    if let BackRef::Data { .. } = backref {
        return place_of_data(editor, key, backref);
    }
    let Some(data) = editor.get(key)? else { return Ok((key, None)) };
    let count = match backref {
        BackRef::SharedData { .. } => {
            data.get(..4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
        }
        _ => 1,
    };
    Ok((key, Some(count)))
}

/// Data references whose hashes collide stand at the next offsets, also after those before them went; a new one takes the
/// first that is free.
fn place_of_data(editor: &Editor<'_, '_>, hashed: Key, backref: BackRef) -> Result<(Key, Option<u32>)> {
    let mut free = hashed;
    let mut cursor = editor.seek(hashed)?;
    while let Some((key, data)) = cursor.item() {
        let near = key.offset.checked_sub(hashed.offset).is_some_and(|far| far < CHAIN_MAX);
        if (key.objectid, key.kind) != (hashed.objectid, hashed.kind) || !near {
            break;
        }
        let found = ExtentDataRef::read_from_bytes(data)
            .map_err(|_| Error::corrupt(TreeId(objectid::EXTENT_TREE), key, "it has 28 bytes"))?;
        if data_ref(&found) == backref {
            return Ok((key, Some(found.count.get())));
        }
        if key == free {
            free.offset = free.offset.wrapping_add(1);
        }
        cursor.advance()?;
    }
    Ok((free, None))
}
