//! Extent items and every kind of back reference.
//!
//! [`children`] says which references a tree block holds; [`apply`] brings delayed references into the extent tree;
//! [`block_refs`] and [`is_only_ref`] say what an extent has.

pub(crate) mod apply;
pub(crate) mod children;
pub(crate) mod keyed;

use crate::{Engine, Error, Result};
use buttery_disk::extent::{BackRef, ExtentItem, inline_refs, inline_refs_start};
use buttery_disk::zerocopy::FromBytes;
use buttery_disk::{Key, TreeId, item, objectid};

/// References and flags of a tree block, the extent tree's and the delayed ones together; no references if neither knows
/// it. While the tree is locked for reading, none moves from there to here.
pub(crate) fn block_refs(engine: &Engine, bytenr: u64, level: u8) -> Result<(u64, u64)> {
    let tree = engine.tree(TreeId(objectid::EXTENT_TREE))?;
    let view = tree.read(engine.store());
    let (pending, more) = engine.writer()?.refs.pending(bytenr);
    let skinny = Key::new(bytenr, item::METADATA_ITEM, level as u64);
    let old = Key::new(bytenr, item::EXTENT_ITEM, engine.store().nodesize() as u64);
    for key in [skinny, old] {
        if let Some(found) = view.get(key)? {
            let (item, _) = ExtentItem::ref_from_prefix(found.data())
                .map_err(|_| Error::corrupt(tree.id(), key, "an extent item is cut off"))?;
            let total = (item.refs.get() as i64).saturating_add(pending);
            return Ok((total.max(0) as u64, item.flags.get() | more));
        }
    }
    Ok((pending.max(0) as u64, more))
}

/// Whether a data extent has no reference but this one, however often that; pending ones are counted. One that stands in
/// an item of its own counts as somebody else's.
pub(crate) fn is_only_ref(engine: &Engine, bytenr: u64, len: u64, backref: BackRef) -> Result<bool> {
    let tree = engine.tree(TreeId(objectid::EXTENT_TREE))?;
    let view = tree.read(engine.store());
    let (mut total, mut own) = engine.writer()?.refs.pending_of(bytenr, backref);
    let key = Key::new(bytenr, item::EXTENT_ITEM, len);
    if let Some(found) = view.get(key)? {
        let (item, _) = ExtentItem::ref_from_prefix(found.data())
            .map_err(|_| Error::corrupt(tree.id(), key, "an extent item is cut off"))?;
        total += item.refs.get() as i64;
        own += inline_refs(found.data(), inline_refs_start(key.kind, item.flags.get()))
            .filter(|r| r.backref == backref)
            .map(|r| i64::from(r.count))
            .sum::<i64>();
    }
    Ok(total == own)
}
