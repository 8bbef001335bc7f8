//! Bringing the delayed references of one extent into the extent tree.
//!
//! An extent's first references stand inline in its item, sorted; when that would make the item too large, or when
//! keyed ones exist already, further ones become items of their own ([`keyed`](super::keyed)).

use super::keyed;
use crate::space::free_space_tree as fst;
use crate::tree::Editor;
use crate::txn::{ExtentKind, Head, Trans};
use crate::{Error, Result, csum};
use buttery_disk::extent::{BackRef, ExtentItem, InlineRef, flags, inline_refs, inline_refs_start};
use buttery_disk::node::{ITEM_LEN, leaf_data_size};
use buttery_disk::zerocopy::{FromBytes, IntoBytes};
use buttery_disk::{Key, TreeId, item, objectid};

/// What becomes of an extent.
enum Fate {
    /// Made and freed within this transaction: the trees never knew it, except for checksums.
    Unknown,
    Made,
    Stays,
    /// Its last reference is gone, and its item.
    Gone,
}

/// Runs what is delayed for one extent; the extent tree, checksum tree and the block group follow, and `free_space` is
/// what the free-space tree has to be told.
pub(crate) fn run(trans: &mut Trans<'_>, bytenr: u64, free_space: &mut fst::Changes) -> Result<()> {
    let refs = &trans.writer().refs;
    let tree = trans.engine().tree(TreeId(objectid::EXTENT_TREE))?;
    let (head, fate) = {
        let mut editor = tree.write(trans);
        let Some(head) = refs.take(bytenr) else { return Ok(()) };
        let fate = bring(&mut editor, bytenr, &head)?;
        (head, fate)
    };
    refs.brought(&head);
    if matches!(fate, Fate::Unknown | Fate::Gone) {
        if head.kind == ExtentKind::Data {
            csum::delete(trans, bytenr, head.len)?;
        }
        trans.space().free(bytenr, head.len)?;
    }
    match fate {
        Fate::Made => free_space.remove(bytenr, head.len),
        Fate::Gone => free_space.add(bytenr, head.len),
        Fate::Unknown | Fate::Stays => {}
    }
    Ok(())
}

fn bring(editor: &mut Editor<'_, '_>, bytenr: u64, head: &Head) -> Result<Fate> {
    if head.is_new {
        if head.refs.sum() == 0 {
            return Ok(Fate::Unknown);
        }
        insert(editor, bytenr, head)?;
        return Ok(Fate::Made);
    }
    if head.refs.iter().all(|(_, n)| n == 0) && head.flags == 0 {
        return Ok(Fate::Stays);
    }
    Ok(if update(editor, bytenr, head)? { Fate::Gone } else { Fate::Stays })
}

/// The largest extent item to which references are still added inline, as the kernel has it.
fn inline_max(editor: &Editor<'_, '_>) -> usize {
    (leaf_data_size(editor.nodesize()) >> 4) - ITEM_LEN
}

fn insert(editor: &mut Editor<'_, '_>, bytenr: u64, head: &Head) -> Result<()> {
    let (key, kind_flag) = match head.kind {
        ExtentKind::Data => (Key::new(bytenr, item::EXTENT_ITEM, head.len), flags::DATA),
        ExtentKind::Tree { level } => {
            (Key::new(bytenr, item::METADATA_ITEM, level as u64), flags::TREE_BLOCK)
        }
    };
    let fixed = ExtentItem {
        refs: 0.into(),
        generation: editor.trans().id().into(),
        flags: (kind_flag | head.flags).into(),
    };
    let mut data = fixed.as_bytes().to_vec();
    let max = inline_max(editor);
    let mut total = 0;
    for (backref, count) in head.refs.iter().filter(|(_, n)| *n != 0) {
        if count < 0 {
            return Err(negative(bytenr, backref));
        }
        let (from, len) = (inline_refs_start(key.kind, kind_flag), data.len() + backref.inline_len());
        if len < max {
            insert_inline(&mut data, from, backref, count as u32);
        } else {
            keyed::change(editor, bytenr, backref, count)?;
        }
        total += count as u64;
    }
    data[..8].copy_from_slice(&total.to_le_bytes());
    editor.insert(key, &data).map_err(|e| match e {
        Error::Exists => {
            Error::corrupt(TreeId(objectid::EXTENT_TREE), key, "a new extent has an item already")
        }
        other => other,
    })
}

/// Changes an extent that has an item. Answers whether it has no references left and is gone.
fn update(editor: &mut Editor<'_, '_>, bytenr: u64, head: &Head) -> Result<bool> {
    let max = inline_max(editor);
    let (key, mut data) = find(editor, bytenr, head, editor.nodesize() as u64)?;
    let fixed = ExtentItem::read_from_prefix(&data).map_err(|_| missing(bytenr))?.0;
    let start = inline_refs_start(key.kind, fixed.flags.get());
    let mut total = fixed.refs.get() as i64;
    // additions first, so that an extent that changes hands is never without a reference
    let (adds, drops): (Vec<_>, Vec<_>) =
        head.refs.iter().filter(|(_, n)| *n != 0).partition(|(_, n)| *n > 0);
    for (backref, count) in adds.into_iter().chain(drops) {
        total += count;
        let found = inline_refs(&data, start).find(|r| r.backref == backref);
        match found {
            Some(found) => change_inline(&mut data, bytenr, found, count)?,
            None if count > 0 && data.len() + backref.inline_len() < max && !keyed::any(editor, bytenr)? => {
                insert_inline(&mut data, start, backref, count as u32);
            }
            None => keyed::change(editor, bytenr, backref, count)?,
        }
    }
    if total < 0 {
        return Err(Error::corrupt(
            TreeId(objectid::EXTENT_TREE),
            key,
            format!("{total} references are left"),
        ));
    }
    if total == 0 {
        editor.remove(key)?;
        return Ok(true);
    }
    data[..8].copy_from_slice(&(total as u64).to_le_bytes());
    let all_flags = fixed.flags.get() | head.flags;
    data[16..24].copy_from_slice(&all_flags.to_le_bytes());
    editor.replace(key, &data)?;
    Ok(false)
}

fn find(editor: &Editor<'_, '_>, bytenr: u64, head: &Head, nodesize: u64) -> Result<(Key, Vec<u8>)> {
    let keys = match head.kind {
        ExtentKind::Data => vec![Key::new(bytenr, item::EXTENT_ITEM, head.len)],
        ExtentKind::Tree { level } => vec![
            Key::new(bytenr, item::METADATA_ITEM, level as u64),
            Key::new(bytenr, item::EXTENT_ITEM, nodesize),
        ],
    };
    for key in keys {
        if let Some(data) = editor.get(key)? {
            return Ok((key, data));
        }
    }
    Err(missing(bytenr))
}

fn missing(bytenr: u64) -> Error {
    Error::Corrupt(
        format!("extent {bytenr}: a reference changes, but the extent tree has no item for it").into(),
    )
}

fn negative(bytenr: u64, backref: BackRef) -> Error {
    Error::Corrupt(format!("extent {bytenr}: reference {backref:?} is dropped but was never there").into())
}

fn insert_inline(data: &mut Vec<u8>, start: usize, backref: BackRef, count: u32) {
    let place = (backref.kind(), std::cmp::Reverse(backref.sort_value()));
    let at = inline_refs(data, start)
        .find(|r| (r.backref.kind(), std::cmp::Reverse(r.backref.sort_value())) > place)
        .map_or(data.len(), |r| r.at);
    data.splice(at..at, backref.inline_bytes(count));
}

fn change_inline(data: &mut Vec<u8>, bytenr: u64, found: InlineRef, by: i64) -> Result<()> {
    let count = found.count as i64 + by;
    if count < 0 || count > u32::MAX as i64 {
        return Err(negative(bytenr, found.backref));
    }
    let end = found.at + found.backref.inline_len();
    if count == 0 {
        data.drain(found.at..end);
    } else {
        data[end - 4..end].copy_from_slice(&(count as u32).to_le_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_references_stay_sorted() {
        let mut data = vec![0; 24];
        let refs = [
            BackRef::SharedData { parent: 4096 },
            BackRef::Data { root: 5, objectid: 257, offset: 0 },
            BackRef::SharedData { parent: 8192 },
            BackRef::Data { root: 5, objectid: 258, offset: 0 },
            BackRef::Data { root: 256, objectid: 257, offset: 0 },
        ];
        for r in refs {
            insert_inline(&mut data, 24, r, 1);
        }
        let got: Vec<_> =
            inline_refs(&data, 24).map(|r| (r.backref.kind(), r.backref.sort_value())).collect();
        assert_eq!(got.len(), refs.len());
        for pair in got.windows(2) {
            assert!(pair[0].0 < pair[1].0 || (pair[0].0 == pair[1].0 && pair[0].1 >= pair[1].1), "{pair:?}");
        }
    }
}
