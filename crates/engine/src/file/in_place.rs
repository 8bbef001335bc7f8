//! Writing in place: into preallocated space, and into the extents of files that are not copied on write.
//!
//! It is allowed where nobody else could see it: the extent is newer than the last snapshot of its subvolume, no other
//! reference to it exists or is pending, it is not compressed, and no checksum says what it holds.

use super::alone::Fact;
use super::extents::{self, Body, Extent};
use super::replace::to_array;
use crate::extent::children::data_ref;
use crate::tree::{Editor, Splice, Tree};
use crate::txn::{ExtentKind, Trans};
use crate::{Engine, Error, NocowCheck, Result, csum, extent};
use buttery_disk::extent::{FileExtentItem, file_extent};
use buttery_disk::inode::{InodeItem, flags};
use buttery_disk::zerocopy::{FromBytes, IntoBytes};
use buttery_disk::{Key, item};
use smallvec::SmallVec;

/// How the beginning of a range is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// So many bytes are copied on write.
    Copy(u64),
    /// So many bytes go to this address. Preallocated space has to become regular then.
    There { bytenr: u64, len: u64, prealloc: bool },
}

/// Whether anything of a file could be written in place.
pub(super) fn is_possible(item: &InodeItem) -> bool {
    item.flags.get() & (flags::NODATACOW | flags::PREALLOC) != 0
}

/// How the beginning of `at..at + len` is to be written; both are aligned. Other writers are kept off the inode.
pub(super) fn find(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    at: u64,
    len: u64,
    inode: &InodeItem,
) -> Result<Place> {
    let nocow = inode.flags.get() & flags::NODATACOW != 0;
    let summed = inode.flags.get() & flags::NODATASUM == 0;
    let mut found = Vec::new();
    {
        let view = tree.read(engine.store());
        extents::for_each(tree, &view, ino, at, at + len, &mut |extent| {
            found.push(extent);
            Ok(true)
        })?;
    }
    let mut copy = 0;
    for extent in found {
        let from = extent.start.max(at);
        let to = extent.end().min(at + len);
        let candidate = match &extent.body {
            Body::Prealloc(item) => Some((*item, true)),
            Body::Regular(item) if nocow => Some((*item, false)),
            _ => None,
        };
        match candidate {
            Some((item, prealloc))
                if is_ours_alone(engine, tree, ino, &extent, &item, (from, to), summed)? =>
            {
                let ahead = (from - at).max(copy);
                if ahead > 0 {
                    return Ok(Place::Copy(ahead));
                }
                let bytenr = item.disk_bytenr.get() + item.offset.get() + (from - extent.start);
                return Ok(Place::There { bytenr, len: to - from, prealloc });
            }
            _ => copy = to - at,
        }
    }
    Ok(Place::Copy(len))
}

/// Whether nobody else sees `from..to` of the file in this extent, nor has a checksum of it. The file's data are
/// `summed`, or have no checksums.
fn is_ours_alone(
    engine: &Engine,
    tree: &Tree,
    ino: u64,
    extent: &Extent,
    item: &FileExtentItem,
    (from, to): (u64, u64),
    summed: bool,
) -> Result<bool> {
    let encoded = item.compression != 0 || item.encryption != 0 || item.other_encoding.get() != 0;
    if encoded || item.generation.get() <= tree.last_snapshot() {
        return Ok(false);
    }
    let (bytenr, len) = (item.disk_bytenr.get(), item.disk_num_bytes.get());
    let only = data_ref(tree.id().0, ino, extent.start, item.offset.get());
    let facts = &engine.writer()?.alone;
    let known = facts.get(bytenr).filter(|fact| fact.only == only && fact.len == len);
    if known.is_some_and(|fact| fact.no_csums && !summed) {
        return Ok(true);
    }
    if known.is_none() && !extent::is_only_ref(engine, bytenr, len, only)? {
        return Ok(false);
    }
    let no_csums = !summed && !has_csums(engine, bytenr, len)?;
    facts.learn(bytenr, Fact { only, len, no_csums });
    let first = bytenr + item.offset.get() + (from - extent.start);
    Ok(no_csums || !has_csums(engine, first, to - from)?)
}

fn has_csums(engine: &Engine, bytenr: u64, len: u64) -> Result<bool> {
    match engine.mechanisms.nocow_check {
        NocowCheck::AnyInRange => csum::any_in_range(engine, bytenr, len),
        NocowCheck::Lookup => Ok(csum::lookup(engine, bytenr, len)?.is_any()),
    }
}

/// Makes a part of a preallocated extent regular, its data being on the device. What then continues each other is one
/// item again.
pub(super) fn mark_written(trans: &mut Trans<'_>, tree: &Tree, ino: u64, start: u64, len: u64) -> Result<()> {
    let end = start + len;
    if mark_in_leaf(trans, tree, ino, start, end)? {
        return Ok(());
    }
    let transid = trans.id();
    let mut editor = tree.write(trans);
    let (key, extent, item) = extent_at(&editor, tree, ino, start)?;
    if item.kind != file_extent::PREALLOC || extent.end() < end {
        return Err(Error::corrupt(tree.id(), key, "no longer preallocated"));
    }
    let part = |from, to, kind| part_of(&item, extent.start, from, to, kind, transid);
    let (head, tail) = (start > extent.start, extent.end() > end);
    let regular = part(start, end, file_extent::REG);
    if head {
        editor.replace(key, part(extent.start, start, file_extent::PREALLOC).as_bytes())?;
        editor.insert(extents::key(ino, start), regular.as_bytes())?;
    } else {
        editor.replace(key, regular.as_bytes())?;
    }
    if tail {
        let rest = part(end, extent.end(), file_extent::PREALLOC);
        editor.insert(extents::key(ino, end), rest.as_bytes())?;
    }
    let more = i64::from(head) + i64::from(tail);
    if more > 0 {
        add_refs(&mut editor, tree, ino, start, &regular, more)?;
    }
    join(&mut editor, tree, ino, end)?;
    join(&mut editor, tree, ino, start)
}

/// The same under one descent, where one leaf holds what changes and has the room. Answers whether it was done.
fn mark_in_leaf(trans: &mut Trans<'_>, tree: &Tree, ino: u64, start: u64, end: u64) -> Result<bool> {
    let transid = trans.id();
    let mut editor = tree.write(trans);
    let mut refs = None;
    let done = editor.splice(extents::key(ino, start), |node, slot, next| {
        let extent_in = |slot: usize| {
            let key = (slot < node.nritems()).then(|| node.key(slot))?;
            let item = FileExtentItem::read_from_bytes(node.data(slot)).ok()?;
            ((key.objectid, key.kind) == (ino, item::EXTENT_DATA)).then_some((key.offset, item))
        };
        let exact = extent_in(slot).filter(|(at, _)| *at == start);
        let at = if exact.is_some() { Some(slot) } else { slot.checked_sub(1) };
        let Some((at, (from, item))) = at.and_then(|at| Some((at, extent_in(at)?))) else { return Ok(None) };
        let to = from + item.num_bytes.get();
        if item.kind != file_extent::PREALLOC || to < end {
            return Ok(None);
        }
        let part = |a, b, kind| part_of(&item, from, a, b, kind, transid);
        let mut regular = (start, part(start, end, file_extent::REG));
        let mut slots = at..at + 1;
        let mut items = SmallVec::new();
        if from < start {
            items.push((extents::key(ino, from), to_array(&part(from, start, file_extent::PREALLOC))));
        } else if at > 0 {
            if let Some(before) = extent_in(at - 1).and_then(|before| joined(before, regular)) {
                regular = before;
                slots.start -= 1;
            }
        } else if start > 0 {
            return Ok(None); // what it continues may lie in the leaf before
        }
        let mut rest = None;
        if end < to {
            rest = Some((extents::key(ino, end), to_array(&part(end, to, file_extent::PREALLOC))));
        } else if at + 1 < node.nritems() {
            if let Some(both) = extent_in(at + 1).and_then(|behind| joined(regular, behind)) {
                regular = both;
                slots.end += 1;
            }
        } else if next == Some(extents::key(ino, end)) {
            return Ok(None);
        }
        items.push((extents::key(ino, regular.0), to_array(&regular.1)));
        items.extend(rest);
        refs = Some((item, from, items.len() as i64 - slots.len() as i64));
        Ok(Some(Splice { slots, items }))
    })?;
    if let Some((item, from, count)) = refs.filter(|(_, _, count)| done && *count != 0) {
        // all parts of one extent share one reference, counted
        add_refs(&mut editor, tree, ino, from, &item, count)?;
    }
    Ok(done)
}

/// A part of an extent that begins at `start` in the file, as an item of its own.
fn part_of(item: &FileExtentItem, start: u64, from: u64, to: u64, kind: u8, transid: u64) -> FileExtentItem {
    FileExtentItem {
        generation: transid.into(),
        offset: (item.offset.get() + (from - start)).into(),
        num_bytes: (to - from).into(),
        kind,
        ..*item
    }
}

fn add_refs(
    editor: &mut Editor<'_, '_>,
    tree: &Tree,
    ino: u64,
    start: u64,
    item: &FileExtentItem,
    count: i64,
) -> Result<()> {
    let backref = data_ref(tree.id().0, ino, start, item.offset.get());
    let (bytenr, len) = (item.disk_bytenr.get(), item.disk_num_bytes.get());
    editor.trans().add_ref(bytenr, len, ExtentKind::Data, backref, count)
}

/// The extent that covers an offset.
fn extent_at(
    editor: &Editor<'_, '_>,
    tree: &Tree,
    ino: u64,
    at: u64,
) -> Result<(Key, Extent, FileExtentItem)> {
    let wanted = extents::key(ino, at);
    let (key, data) = editor
        .last_at_or_before(wanted, extents::key(ino, 0))?
        .filter(|(key, _)| key.kind == item::EXTENT_DATA)
        .ok_or_else(|| Error::corrupt(tree.id(), wanted, "no extent covers it"))?;
    let extent = Extent::parse(tree.id(), key, &data)?;
    let item = FileExtentItem::read_from_bytes(&data)
        .map_err(|_| Error::corrupt(tree.id(), key, "a file extent has 53 bytes"))?;
    Ok((key, extent, item))
}

/// Two items, each with its place in the file, as one: if both are regular and the second continues the first.
fn joined(
    (from, before): (u64, FileExtentItem),
    (at, behind): (u64, FileExtentItem),
) -> Option<(u64, FileExtentItem)> {
    let is_plain = |item: &FileExtentItem| {
        item.kind == file_extent::REG && item.disk_bytenr.get() != 0 && item.compression == 0
    };
    let continues = is_plain(&before)
        && is_plain(&behind)
        && before.disk_bytenr == behind.disk_bytenr
        && before.disk_num_bytes == behind.disk_num_bytes
        && from + before.num_bytes.get() == at
        && before.offset.get() + before.num_bytes.get() == behind.offset.get();
    let item = FileExtentItem {
        generation: behind.generation.get().max(before.generation.get()).into(),
        num_bytes: (before.num_bytes.get() + behind.num_bytes.get()).into(),
        ..before
    };
    continues.then_some((from, item))
}

/// Joins the extents before and behind an offset, if the second continues the first.
fn join(editor: &mut Editor<'_, '_>, tree: &Tree, ino: u64, at: u64) -> Result<()> {
    let behind_key = extents::key(ino, at);
    let parse = |data: &[u8]| FileExtentItem::read_from_bytes(data).ok();
    let Some(behind) = editor.get(behind_key)?.as_deref().and_then(parse) else { return Ok(()) };
    let before = match at.checked_sub(1) {
        Some(last) => editor.last_at_or_before(extents::key(ino, last), extents::key(ino, 0))?,
        None => None,
    };
    let Some((before_key, data)) = before.filter(|(key, _)| key.kind == item::EXTENT_DATA) else {
        return Ok(());
    };
    let Some(before) = parse(&data) else { return Ok(()) };
    if let Some((_, both)) = joined((before_key.offset, before), (at, behind)) {
        editor.remove(behind_key)?;
        editor.replace(before_key, both.as_bytes())?;
        add_refs(editor, tree, ino, at, &behind, -1)?;
    }
    Ok(())
}
