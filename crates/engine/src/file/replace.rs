//! Replacing the extents of a range: dropping what it covers, inserting what stands there from then on.

use super::extents::{self, Body, Extent};
use super::{grow, inode, write};
use crate::extent::children::data_ref;
use crate::tree::{Editor, Splice, Tree};
use crate::txn::{ExtentKind, Purpose, Trans};
use crate::{Engine, Error, Replace, Result};
use buttery_disk::extent::{BackRef, FileExtentHead, FileExtentItem, file_extent};
use buttery_disk::inode::{InodeItem, Timespec};
use buttery_disk::zerocopy::{FromBytes, IntoBytes};
use buttery_disk::{Key, Node, item};
use smallvec::SmallVec;
use std::ops::Range;

/// Bytes of a file extent's item.
const ITEM_BYTES: usize = size_of::<FileExtentItem>();

/// How many extents are looked at before the tree is changed.
const BATCH: usize = 64;
/// Where the number of extents is limited, their bytes are too: their checksums go in the same commit.
const BYTES_MAX: u64 = 64 << 20;

/// How many extents one handle of many drops, and the items that it reserves for: they must fit into the global reserve
/// of the smallest file system.
pub(crate) const STEP: usize = 32;
pub(crate) const STEP_ITEMS: u64 = STEP as u64 / 8 + 8;

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

/// Drops all that `start..end` covers, some in each transaction, so that a handle stays small however much there is.
/// Without `now` the file's times stay.
pub(crate) fn drop_in_steps(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    start: u64,
    end: u64,
    now: Option<Timespec>,
) -> Result<()> {
    let mut stop = end;
    while start < stop {
        stop = engine.change(STEP_ITEMS, Purpose::Free, |trans| {
            let dropped = drop_extents(trans, tree, ino, start, stop, STEP)?;
            inode::update(trans, tree, ino, |item| count_bytes(item, -(dropped.bytes as i64), now))?;
            Ok(dropped.from)
        })?;
    }
    Ok(())
}

/// The bytes of a file changed, and with a time also what it says.
pub(crate) fn count_bytes(item: &mut InodeItem, bytes: i64, now: Option<Timespec>) {
    match now {
        Some(now) => write::touch(item, bytes, now),
        None => item.nbytes = item.nbytes.get().saturating_add_signed(bytes).into(),
    }
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
    match (keep_head, keep_tail) {
        (true, true) => {
            editor.replace(key, part(0, start - extent.start).as_bytes())?;
            editor.insert(extents::key(ino, end), part(end - extent.start, extent.end() - end).as_bytes())?;
            editor.trans().add_ref(bytenr, len, ExtentKind::Data, backref, 1)?;
        }
        (true, false) => editor.replace(key, part(0, start - extent.start).as_bytes())?,
        (false, true) => {
            editor.replace(key, part(end - extent.start, extent.end() - end).as_bytes())?;
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
    /// Bytes of the file that it holds.
    pub len: u64,
    /// Bytes on the device: fewer if they are compressed.
    pub disk_len: u64,
    /// As the format numbers the algorithms; 0 for none.
    pub compression: u8,
    /// [`file_extent::REG`] or [`file_extent::PREALLOC`].
    pub kind: u8,
}

impl NewExtent {
    /// One that holds its bytes as they are.
    pub fn plain(file_offset: u64, bytenr: u64, len: u64, kind: u8) -> NewExtent {
        NewExtent { file_offset, bytenr, len, disk_len: len, compression: 0, kind }
    }

    fn end(&self) -> u64 {
        self.file_offset + self.len
    }

    fn item(&self, transid: u64) -> FileExtentItem {
        FileExtentItem {
            generation: transid.into(),
            ram_bytes: self.len.into(),
            compression: self.compression,
            encryption: 0,
            other_encoding: 0.into(),
            kind: self.kind,
            disk_bytenr: self.bytenr.into(),
            disk_num_bytes: self.disk_len.into(),
            offset: 0.into(),
            num_bytes: self.len.into(),
        }
    }
}

/// Puts a new extent in the place of what its range covers: under one descent where one leaf holds all of it, else by
/// dropping and inserting. Answers by how much the inode's bytes change.
pub(crate) fn replace_extents(trans: &mut Trans<'_>, tree: &Tree, ino: u64, new: NewExtent) -> Result<i64> {
    if trans.engine().mechanisms.replace == Replace::Fused
        && let Some(by) = replace_in_leaf(trans, tree, ino, &new)?
    {
        return Ok(by);
    }
    drop_and_insert(trans, tree, ino, new)
}

/// The same, one item after the other, over as many leaves as there are.
pub(crate) fn drop_and_insert(trans: &mut Trans<'_>, tree: &Tree, ino: u64, new: NewExtent) -> Result<i64> {
    let dropped = drop_extents(trans, tree, ino, new.file_offset, new.end(), usize::MAX)?;
    let item = new.item(trans.id());
    tree.write(trans).insert(extents::key(ino, new.file_offset), item.as_bytes())?;
    let backref = data_ref(tree.id().0, ino, new.file_offset, 0);
    trans.add_new_data_ref(new.bytenr, new.disk_len, backref)?;
    Ok(new.len as i64 - dropped.bytes as i64)
}

/// The reference of an extent that is dropped, or held once more where it is cut in two.
type RefChange = (u64, u64, BackRef, i64);

/// Replaces what a new extent covers if all of it lies in one leaf that has the room. `None` if not, and nothing was
/// done.
fn replace_in_leaf(trans: &mut Trans<'_>, tree: &Tree, ino: u64, new: &NewExtent) -> Result<Option<i64>> {
    let (start, end, transid) = (new.file_offset, new.end(), trans.id());
    let mut refs: SmallVec<[RefChange; 4]> = SmallVec::new();
    let (mut dropped, mut grown) = (0, false);
    let writer = trans.writer();
    let mut editor = tree.write(trans);
    let done = editor.splice(extents::key(ino, start), |node, slot, next| {
        let Some(mut slots) = covered_slots(node, slot, next, ino, start, end) else { return Ok(None) };
        let mut items: SmallVec<[(Key, [u8; ITEM_BYTES]); 3]> = SmallVec::new();
        let mut tail = None;
        for at in slots.clone() {
            let (key, data) = (node.key(at), node.data(at));
            let Ok(item) = FileExtentItem::read_from_bytes(data) else { return Ok(None) };
            let extent = Extent::parse(tree.id(), key, data)?;
            let (Body::Prealloc(_) | Body::Regular(_)) = extent.body else { return Ok(None) };
            let part = |skip: u64, len: u64| FileExtentItem {
                generation: transid.into(),
                offset: (item.offset.get() + skip).into(),
                num_bytes: len.into(),
                ..item
            };
            let (keep_head, keep_tail) = (extent.start < start, extent.end() > end);
            dropped += extent.end().min(end) - extent.start.max(start);
            if keep_head {
                let head = part(0, start - extent.start);
                items.push((key, to_array(&head)));
            }
            if keep_tail {
                tail =
                    Some((extents::key(ino, end), to_array(&part(end - extent.start, extent.end() - end))));
            }
            let count = i64::from(keep_head) + i64::from(keep_tail) - 1;
            if count != 0 {
                let backref = data_ref(tree.id().0, ino, key.offset, item.offset.get());
                refs.push((item.disk_bytenr.get(), item.disk_num_bytes.get(), backref, count));
            }
        }
        // with no more items than go there is room, so what grows here does get its item
        let before = if items.is_empty() { extent_before(node, slots.start, ino) } else { None };
        let bigger = match before {
            Some((from, item)) => {
                grow::grow(writer, tree, ino, transid, (from, item), new)?.map(|i| (from, i))
            }
            None => None,
        };
        if let Some((from, item)) = bigger {
            grown = true;
            slots.start -= 1;
            items.push((extents::key(ino, from), to_array(&item)));
        } else {
            items.push((extents::key(ino, start), to_array(&new.item(transid))));
        }
        items.extend(tail);
        Ok(Some(Splice { slots, items }))
    })?;
    drop(editor);
    if !done {
        let lost =
            || Error::corrupt(tree.id(), extents::key(ino, start), "a leaf has no room for what it held");
        return if grown { Err(lost()) } else { Ok(None) };
    }
    for (bytenr, len, backref, count) in refs {
        trans.add_ref(bytenr, len, ExtentKind::Data, backref, count)?;
    }
    if !grown {
        let backref = data_ref(tree.id().0, ino, start, 0);
        trans.add_new_data_ref(new.bytenr, new.disk_len, backref)?;
    }
    Ok(Some(new.len as i64 - dropped as i64))
}

/// The extent in the slot before, where it begins and what its item says.
fn extent_before(node: Node<'_>, slot: usize, ino: u64) -> Option<(u64, FileExtentItem)> {
    let before = slot.checked_sub(1)?;
    let key = node.key(before);
    let is_extent = (key.objectid, key.kind) == (ino, item::EXTENT_DATA);
    let item = FileExtentItem::read_from_bytes(node.data(before)).ok().filter(|_| is_extent)?;
    (item.kind != file_extent::INLINE).then_some((key.offset, item))
}

/// The slots of the extents that touch `start..end`; `slot` is where one at `start` is or would be. `None` if others may
/// lie in another leaf, or if one has its data in its item.
fn covered_slots(
    node: Node<'_>,
    slot: usize,
    next: Option<Key>,
    ino: u64,
    start: u64,
    end: u64,
) -> Option<Range<usize>> {
    let is_extent = |key: Key| (key.objectid, key.kind) == (ino, item::EXTENT_DATA);
    let end_of = |slot: usize| {
        let item = FileExtentItem::read_from_bytes(node.data(slot)).ok()?;
        if item.kind == file_extent::INLINE {
            return None;
        }
        node.key(slot).offset.checked_add(item.num_bytes.get())
    };
    let mut first = slot;
    if slot >= node.nritems() || node.key(slot) != extents::key(ino, start) {
        // the one before may reach in
        let before = node.key(slot.checked_sub(1)?);
        if is_extent(before) && end_of(slot - 1)? > start {
            first = slot - 1;
        }
    }
    let mut last = slot;
    while last < node.nritems() && is_extent(node.key(last)) && node.key(last).offset < end {
        end_of(last)?;
        last += 1;
    }
    let goes_on = last == node.nritems() && next.is_some_and(|next| next < extents::key(ino, end));
    (!goes_on).then_some(first..last)
}

/// An item's bytes.
pub(super) fn to_array(item: &FileExtentItem) -> [u8; ITEM_BYTES] {
    let mut out = [0; ITEM_BYTES];
    out.copy_from_slice(item.as_bytes());
    out
}

/// Makes `data` all that the file has, in its item. Answers by how much the inode's bytes change.
pub(crate) fn replace_inline(trans: &mut Trans<'_>, tree: &Tree, ino: u64, data: &[u8]) -> Result<i64> {
    let sector = trans.store().volume().context().sectorsize as u64;
    let dropped = drop_extents(trans, tree, ino, 0, sector, usize::MAX)?;
    trans.writer().inodes.set_no_inline(tree.id(), ino, false);
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
