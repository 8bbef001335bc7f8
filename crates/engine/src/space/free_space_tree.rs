//! The free-space tree: which ranges of each block group are free, as extents or as bitmaps.
//!
//! A group with few free ranges has a FREE_SPACE_EXTENT for each; one with many has FREE_SPACE_BITMAPs, a bit for each
//! sector. FREE_SPACE_INFO says which, and counts the ranges. The marks at which a group changes its form are the
//! kernel's.

use super::{FreeRanges, Group};
use crate::tree::Editor;
use crate::txn::Trans;
use crate::{Engine, Error, Result};
use buttery_disk::chunk::{FREE_SPACE_BITMAP_SIZE, FREE_SPACE_USING_BITMAPS, FreeSpaceInfo};
use buttery_disk::node::ITEM_LEN;
use buttery_disk::zerocopy::{FromBytes, IntoBytes};
use buttery_disk::{Key, TreeId, item, objectid};

const TREE: TreeId = TreeId(objectid::FREE_SPACE_TREE);

fn info_key(group: &Group) -> Key {
    Key::new(group.start, item::FREE_SPACE_INFO, group.len)
}

/// Bytes that one bitmap covers.
fn bitmap_range(sector: u64) -> u64 {
    FREE_SPACE_BITMAP_SIZE as u64 * 8 * sector
}

/// The counts of ranges above which a group takes bitmaps, and below which it takes extents again.
fn thresholds(len: u64, sector: u64) -> (u32, u32) {
    let bitmaps = len.div_ceil(bitmap_range(sector));
    let high = bitmaps * (FREE_SPACE_BITMAP_SIZE + ITEM_LEN) as u64 / ITEM_LEN as u64;
    (high as u32, high.saturating_sub(100) as u32)
}

/// Reads the free ranges of a group.
pub(crate) fn read(engine: &Engine, group: &Group) -> Result<FreeRanges> {
    let tree = engine.tree(TREE)?;
    let view = tree.read(engine.store());
    let sector = engine.volume().context().sectorsize as u64;
    let key = info_key(group);
    if view.get(key)?.is_none() {
        return Err(Error::corrupt(TREE, key, "a block group has no free space info"));
    }
    let mut free = FreeRanges::default();
    let mut cursor = view.seek(Key::new(group.start, item::FREE_SPACE_INFO + 1, 0))?;
    while let Some((found, data)) = cursor.item() {
        if found.objectid >= group.end() {
            break;
        }
        for (start, len) in ranges_of(found, data, sector) {
            if start < group.start || start.saturating_add(len) > group.end() {
                return Err(Error::corrupt(TREE, found, "free space lies outside of its block group"));
            }
            free.add(start, len);
        }
        cursor.advance()?;
    }
    Ok(free)
}

/// The free ranges that one item states.
fn ranges_of(key: Key, data: &[u8], sector: u64) -> Vec<(u64, u64)> {
    match key.kind {
        item::FREE_SPACE_EXTENT => vec![(key.objectid, key.offset)],
        item::FREE_SPACE_BITMAP => {
            let bits = (key.offset / sector).min(data.len() as u64 * 8);
            let mut out: Vec<(u64, u64)> = Vec::new();
            for bit in (0..bits).filter(|&b| data[b as usize / 8] & (1 << (b % 8)) != 0) {
                let at = key.objectid + bit * sector;
                match out.last_mut() {
                    Some((start, len)) if *start + *len == at => *len += sector,
                    _ => out.push((at, sector)),
                }
            }
            out
        }
        _ => Vec::new(),
    }
}

/// The items of a new group, all of it free.
pub(crate) fn create(trans: &mut Trans<'_>, start: u64, len: u64) -> Result<()> {
    let tree = trans.engine().tree(TREE)?;
    let mut editor = tree.write(trans);
    let info = FreeSpaceInfo { extent_count: 1.into(), flags: 0.into() };
    editor.insert(Key::new(start, item::FREE_SPACE_INFO, len), info.as_bytes())?;
    editor.insert(Key::new(start, item::FREE_SPACE_EXTENT, len), &[])
}

/// Removes the items of a group that goes.
pub(crate) fn destroy(trans: &mut Trans<'_>, group: &Group) -> Result<()> {
    let tree = trans.engine().tree(TREE)?;
    let mut editor = tree.write(trans);
    editor.remove(info_key(group))?;
    remove_ranges(&mut editor, group)
}

/// Removes every extent and bitmap of a group.
fn remove_ranges(editor: &mut Editor<'_, '_>, group: &Group) -> Result<()> {
    let of_group = |k: &Key| {
        k.objectid < group.end() && matches!(k.kind, item::FREE_SPACE_EXTENT | item::FREE_SPACE_BITMAP)
    };
    while let Some(key) =
        editor.seek(Key::new(group.start, item::FREE_SPACE_INFO + 1, 0))?.key().filter(of_group)
    {
        editor.remove_run(key, &mut |k, _| of_group(&k))?;
    }
    Ok(())
}

/// Ranges that became free or were allocated, to be brought into the tree together: neighbours are one range then, and a
/// group's counts are changed once.
#[derive(Default)]
pub(crate) struct Changes(Vec<Change>);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Change {
    start: u64,
    len: u64,
    /// It became free, or else was allocated.
    free: bool,
}

impl Changes {
    /// A range became free.
    pub fn add(&mut self, start: u64, len: u64) {
        self.0.push(Change { start, len, free: true });
    }

    /// A range was allocated.
    pub fn remove(&mut self, start: u64, len: u64) {
        self.0.push(Change { start, len, free: false });
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Brings them into the tree.
    pub fn run(mut self, trans: &mut Trans<'_>) -> Result<()> {
        self.0.sort_unstable();
        let changes = without_pairs(&self.0);
        let mut rest = &changes[..];
        while let Some(first) = rest.first() {
            let group = trans.space().group(first.start)?;
            let (own, behind) = rest.split_at(rest.partition_point(|c| c.start < group.end()));
            change(trans, &group, &joined(own))?;
            rest = behind;
        }
        Ok(())
    }
}

/// Without those that were allocated and became free again, which sort behind each other.
fn without_pairs(changes: &[Change]) -> Vec<Change> {
    let mut out: Vec<Change> = Vec::with_capacity(changes.len());
    for change in changes {
        match out.last() {
            Some(last) if change.free && *change == (Change { free: true, ..*last }) => {
                out.pop();
            }
            _ => out.push(*change),
        }
    }
    out
}

/// Neighbours of the same kind as one.
fn joined(changes: &[Change]) -> Vec<Change> {
    let mut out: Vec<Change> = Vec::new();
    for change in changes {
        match out.last_mut() {
            Some(last) if last.start + last.len == change.start && last.free == change.free => {
                last.len += change.len;
            }
            _ => out.push(*change),
        }
    }
    out
}

/// Changes ranges of one group.
fn change(trans: &mut Trans<'_>, group: &Group, changes: &[Change]) -> Result<()> {
    let sector = trans.store().volume().context().sectorsize as u64;
    let tree = trans.engine().tree(TREE)?;
    let mut editor = tree.write(trans);
    let key = info_key(group);
    let data = editor.get(key)?.ok_or_else(|| Error::corrupt(TREE, key, "free space info is missing"))?;
    let info = FreeSpaceInfo::read_from_bytes(&data).map_err(|_| Error::corrupt(TREE, key, "cut off"))?;
    let bitmaps = info.flags.get() & FREE_SPACE_USING_BITMAPS != 0;
    let (mut by, mut bitmap) = (0, None);
    for &Change { start, len, free } in changes {
        by += match (bitmaps, free) {
            (false, true) => add_extent(&mut editor, group, start, len)?,
            (false, false) => remove_extent(&mut editor, group, start, len)?,
            (true, _) => change_bits(&mut editor, group, &mut bitmap, (start, len), free, sector)?,
        };
    }
    let count = (info.extent_count.get() as i64 + by).max(0) as u32;
    let (high, low) = thresholds(group.len, sector);
    let use_bitmaps = if bitmaps { count >= low } else { count > high };
    let info = FreeSpaceInfo {
        extent_count: count.into(),
        flags: (if use_bitmaps { FREE_SPACE_USING_BITMAPS } else { 0 }).into(),
    };
    editor.modify(key, |data| data.copy_from_slice(info.as_bytes()))?;
    if use_bitmaps != bitmaps {
        convert(&mut editor, group, use_bitmaps, sector)?;
    }
    Ok(())
}

/// The FREE_SPACE_EXTENT of the group that begins at or before `at`.
fn extent_before(editor: &Editor<'_, '_>, group: &Group, at: u64) -> Result<Option<(u64, u64)>> {
    let floor = Key::new(group.start, item::FREE_SPACE_EXTENT, 0);
    let found = editor.last_at_or_before(Key::new(at, item::FREE_SPACE_EXTENT, u64::MAX), floor)?;
    Ok(found.filter(|(k, _)| k.kind == item::FREE_SPACE_EXTENT).map(|(k, _)| (k.objectid, k.offset)))
}

fn add_extent(editor: &mut Editor<'_, '_>, group: &Group, start: u64, len: u64) -> Result<i64> {
    let (mut from, mut to, mut by) = (start, start + len, 1);
    if let Some((s, l)) = extent_before(editor, group, start)? {
        if s + l > start {
            return Err(twice(start, len));
        }
        if s + l == start {
            editor.remove(Key::new(s, item::FREE_SPACE_EXTENT, l))?;
            from = s;
            by -= 1;
        }
    }
    let next = editor.seek(Key::new(start + len, item::FREE_SPACE_EXTENT, 0))?.key();
    if let Some(key) =
        next.filter(|k| k.objectid == to && k.kind == item::FREE_SPACE_EXTENT && to < group.end())
    {
        editor.remove(key)?;
        to += key.offset;
        by -= 1;
    }
    editor.insert(Key::new(from, item::FREE_SPACE_EXTENT, to - from), &[])?;
    Ok(by)
}

fn remove_extent(editor: &mut Editor<'_, '_>, group: &Group, start: u64, len: u64) -> Result<i64> {
    let end = start + len;
    let (s, l) = extent_before(editor, group, start)?
        .filter(|(s, l)| s + l >= end)
        .ok_or_else(|| Error::corrupt(TREE, Key::new(start, item::FREE_SPACE_EXTENT, len), "is not free"))?;
    editor.remove(Key::new(s, item::FREE_SPACE_EXTENT, l))?;
    let mut by = -1;
    if s < start {
        editor.insert(Key::new(s, item::FREE_SPACE_EXTENT, start - s), &[])?;
        by += 1;
    }
    if s + l > end {
        editor.insert(Key::new(end, item::FREE_SPACE_EXTENT, s + l - end), &[])?;
        by += 1;
    }
    Ok(by)
}

fn twice(start: u64, len: u64) -> Error {
    Error::corrupt(TREE, Key::new(start, item::FREE_SPACE_EXTENT, len), "is free already")
}

/// The key of the bitmap that holds an address. Bitmaps of one group need not be equally long.
fn bitmap_key(editor: &Editor<'_, '_>, group: &Group, at: u64) -> Result<Key> {
    let floor = Key::new(group.start, item::FREE_SPACE_BITMAP, 0);
    editor
        .last_at_or_before(Key::new(at, item::FREE_SPACE_BITMAP, u64::MAX), floor)?
        .map(|(key, _)| key)
        .filter(|k| k.kind == item::FREE_SPACE_BITMAP && at < k.objectid.saturating_add(k.offset))
        .ok_or_else(|| Error::corrupt(TREE, Key::new(at, item::FREE_SPACE_BITMAP, 0), "no bitmap holds it"))
}

fn bit_at(editor: &Editor<'_, '_>, group: &Group, at: u64, sector: u64) -> Result<bool> {
    let key = bitmap_key(editor, group, at)?;
    let data = editor.get(key)?.unwrap_or_default();
    let bit = ((at - key.objectid) / sector) as usize;
    Ok(data.get(bit / 8).is_some_and(|b| b & (1 << (bit % 8)) != 0))
}

/// Sets or clears the bits of a range; answers by how much the number of free ranges changes. `bitmap` is the key of the
/// one that was changed last.
fn change_bits(
    editor: &mut Editor<'_, '_>,
    group: &Group,
    bitmap: &mut Option<Key>,
    (start, len): (u64, u64),
    free: bool,
    sector: u64,
) -> Result<i64> {
    let end = start + len;
    let (mut before, mut after) = (None, None);
    let mut at = start;
    while at < end {
        let key = match *bitmap {
            Some(key) if key.objectid <= at && at < key.objectid + key.offset => key,
            _ => bitmap_key(editor, group, at)?,
        };
        *bitmap = Some(key);
        let to = end.min(key.objectid + key.offset);
        let (first, last) = ((at - key.objectid) / sector, (to - key.objectid) / sector);
        let wrong = editor.modify(key, |data| {
            let bit_at = |data: &[u8], bit: u64| data[bit as usize / 8] & (1 << (bit % 8)) != 0;
            if at == start && first > 0 {
                before = Some(bit_at(data, first - 1));
            }
            if to == end && last * sector < key.offset {
                after = Some(bit_at(data, last));
            }
            let mut wrong = false;
            for bit in first..last {
                wrong |= bit_at(data, bit) == free;
                data[bit as usize / 8] ^= 1 << (bit % 8);
            }
            wrong
        })?;
        if wrong {
            return Err(if free { twice(start, len) } else { Error::corrupt(TREE, key, "is not free") });
        }
        at = to;
    }
    // what lies beside it may stand in another bitmap
    let before = match before {
        Some(before) => before,
        None => start > group.start && bit_at(editor, group, start - sector, sector)?,
    };
    let after = match after {
        Some(after) => after,
        None => end < group.end() && bit_at(editor, group, end, sector)?,
    };
    let joined = i64::from(before) + i64::from(after);
    Ok(if free { 1 - joined } else { joined - 1 })
}

/// Rewrites a group's free space in the other form.
fn convert(editor: &mut Editor<'_, '_>, group: &Group, to_bitmaps: bool, sector: u64) -> Result<()> {
    let mut free = FreeRanges::default();
    let mut cursor = editor.seek(Key::new(group.start, item::FREE_SPACE_INFO + 1, 0))?;
    while let Some((key, data)) = cursor.item() {
        if key.objectid >= group.end() {
            break;
        }
        for (start, len) in ranges_of(key, data, sector) {
            free.add(start, len);
        }
        cursor.advance()?;
    }
    remove_ranges(editor, group)?;
    insert_ranges(editor, group, &free, to_bitmaps, sector)
}

/// Bytes that a group's items take, with their headers.
pub(crate) fn bytes_of(group: &Group, free: &FreeRanges, sector: u64) -> u64 {
    let count = free.iter().count() as u64;
    let bitmaps = group.len.div_ceil(bitmap_range(sector)) * (FREE_SPACE_BITMAP_SIZE + ITEM_LEN) as u64;
    bitmaps.min(count * ITEM_LEN as u64) + (ITEM_LEN + size_of::<FreeSpaceInfo>()) as u64
}

/// The items of a group that has none yet.
pub(crate) fn write(
    editor: &mut Editor<'_, '_>,
    group: &Group,
    free: &FreeRanges,
    sector: u64,
) -> Result<()> {
    let count = u32::try_from(free.iter().count()).map_err(|_| Error::NoSpace)?;
    let use_bitmaps = count > thresholds(group.len, sector).0;
    let flags = if use_bitmaps { FREE_SPACE_USING_BITMAPS } else { 0 };
    let info = FreeSpaceInfo { extent_count: count.into(), flags: flags.into() };
    editor.insert(info_key(group), info.as_bytes())?;
    insert_ranges(editor, group, free, use_bitmaps, sector)
}

fn insert_ranges(
    editor: &mut Editor<'_, '_>,
    group: &Group,
    free: &FreeRanges,
    as_bitmaps: bool,
    sector: u64,
) -> Result<()> {
    if !as_bitmaps {
        for (start, len) in free.iter() {
            editor.insert(Key::new(start, item::FREE_SPACE_EXTENT, len), &[])?;
        }
        return Ok(());
    }
    let mut at = group.start;
    while at < group.end() {
        let len = bitmap_range(sector).min(group.end() - at);
        let mut bits = vec![0u8; (len / sector).div_ceil(8) as usize];
        for (start, length) in free.iter() {
            let (from, to) = (start.max(at), (start + length).min(at + len));
            for bit in (from.saturating_sub(at) / sector)..(to.saturating_sub(at) / sector) {
                bits[bit as usize / 8] |= 1 << (bit % 8);
            }
        }
        editor.insert(Key::new(at, item::FREE_SPACE_BITMAP, len), &bits)?;
        at += len;
    }
    Ok(())
}
