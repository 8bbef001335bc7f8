//! Making the free-space tree anew, from the extent tree: where the superblock says that what there is may be wrong.
//!
//! It is one transaction: the old items go, those that the extents of the last commit imply come, and the commit adds
//! to them what the transaction itself took and freed.

use super::free_space_tree as fst;
use super::load::set_free;
use super::{FreeRanges, Group};
use crate::txn::Purpose;
use crate::{Engine, Error, Result};
use buttery_disk::superblock::compat_ro;
use buttery_disk::{Key, TreeId, item, objectid};
use std::sync::Arc;

const EXTENTS: TreeId = TreeId(objectid::EXTENT_TREE);

/// Replaces the free-space tree's items, and marks the tree valid. Nothing else may have been written yet.
pub(crate) fn rebuild(engine: &Engine) -> Result<()> {
    tracing::info!("the free-space tree is not valid: it is made anew from the extent tree");
    let writer = engine.writer()?;
    let found: Vec<(Arc<Group>, FreeRanges)> = writer
        .space
        .all_groups()
        .into_iter()
        .map(|group| free_of(engine, &group).map(|free| (group, free)))
        .collect::<Result<_>>()?;
    for (group, free) in &found {
        set_free(engine, group, free.clone());
    }
    let sector = engine.volume().context().sectorsize as u64;
    let nodesize = engine.store().nodesize() as u64;
    let tree = engine.tree(TreeId(objectid::FREE_SPACE_TREE))?;
    let new: u64 = found.iter().map(|(group, free)| fst::bytes_of(group, free, sector)).sum();
    // a reservation of one item is for four blocks; leaves may end up half full
    let items = (tree.bytes_used() + 3 * new).div_ceil(nodesize) / 4 + 8;
    // neither a commit nor a new chunk: what was found is of the last commit
    let mut trans = engine.start_at_hand(items, Purpose::Free)?;
    let replaced = (|| {
        let mut editor = tree.write(&mut trans);
        while let Some(key) = editor.seek(Key::new(0, 0, 0))?.key() {
            editor.remove_run(key, &mut |_, _| true)?;
        }
        for (group, free) in &found {
            fst::write(&mut editor, group, free, sector)?;
        }
        let mut sb = writer.sb.lock();
        sb.compat_ro_flags = (sb.compat_ro_flags.get() | compat_ro::FREE_SPACE_TREE_VALID).into();
        Ok(())
    })();
    trans.end(replaced)?;
    engine.commit()
}

/// What the extent tree leaves free of a group.
fn free_of(engine: &Engine, group: &Group) -> Result<FreeRanges> {
    let tree = engine.tree(EXTENTS)?;
    let view = tree.read(engine.store());
    let mut free = FreeRanges::default();
    let (mut at, mut used) = (group.start, 0);
    let mut cursor = view.seek(Key::new(group.start, 0, 0))?;
    while let Some(key) = cursor.key().filter(|k| k.objectid < group.end()) {
        let len = match key.kind {
            item::EXTENT_ITEM => key.offset,
            item::METADATA_ITEM => engine.store().nodesize() as u64,
            _ => 0,
        };
        if len > 0 {
            let end = key.objectid.checked_add(len).filter(|&end| end <= group.end());
            let Some(end) = end.filter(|_| key.objectid >= at) else {
                return Err(Error::corrupt(EXTENTS, key, "it overlaps another, or leaves its block group"));
            };
            if key.objectid > at {
                free.add(at, key.objectid - at);
            }
            (at, used) = (end, used + len);
        }
        cursor.advance()?;
    }
    if at < group.end() {
        free.add(at, group.end() - at);
    }
    if used != group.used() {
        let key = Key::new(group.start, item::BLOCK_GROUP_ITEM, group.len);
        let what = format!("{} bytes are used, but its extents have {used}", group.used());
        return Err(Error::corrupt(super::group_tree(engine), key, what));
    }
    Ok(free)
}
