//! Extent items and every kind of back reference.
//!
//! [`children`] says which references a tree block holds; [`apply`] brings delayed references into the extent tree;
//! [`lookup`] counts what an extent has there.

pub(crate) mod apply;
pub(crate) mod children;
pub(crate) mod keyed;

use crate::{Engine, Error, Result};
use buttery_disk::extent::ExtentItem;
use buttery_disk::zerocopy::FromBytes;
use buttery_disk::{Key, TreeId, item, objectid};

/// References and flags of a tree block as the extent tree has them; no references if it has no item.
pub(crate) fn lookup(engine: &Engine, bytenr: u64, level: u8) -> Result<(u64, u64)> {
    let tree = engine.tree(TreeId(objectid::EXTENT_TREE))?;
    let view = tree.read(engine.store());
    let skinny = Key::new(bytenr, item::METADATA_ITEM, level as u64);
    let old = Key::new(bytenr, item::EXTENT_ITEM, engine.store().nodesize() as u64);
    for key in [skinny, old] {
        if let Some(found) = view.get(key)? {
            let (item, _) = ExtentItem::ref_from_prefix(found.data())
                .map_err(|_| Error::corrupt(tree.id(), key, "an extent item is cut off"))?;
            return Ok((item.refs.get(), item.flags.get()));
        }
    }
    Ok((0, 0))
}
