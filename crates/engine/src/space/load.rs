//! Reading block groups and their free space.

use super::FreeRanges;
use super::free_space_tree as fst;
use super::group::{Class, Group};
use crate::{Engine, Error, Result};
use buttery_disk::chunk::BlockGroupItem;
use buttery_disk::superblock::{OFFSETS, compat_ro};
use buttery_disk::zerocopy::FromBytes;
use buttery_disk::{Key, TreeId, item, objectid};
use buttery_volume::Chunk;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that a copy of the superblock keeps to itself: a whole stripe.
const SUPER_STRIPE: u64 = 64 << 10;

/// Which tree holds the block group items.
pub(crate) fn group_tree(engine: &Engine) -> TreeId {
    match engine.superblock().has_compat_ro(compat_ro::BLOCK_GROUP_TREE) {
        true => TreeId(objectid::BLOCK_GROUP_TREE),
        false => TreeId(objectid::EXTENT_TREE),
    }
}

/// The block groups of all chunks; each chunk must have one of its size and type.
pub(crate) fn load(engine: &Engine) -> Result<BTreeMap<u64, Arc<Group>>> {
    let tree = engine.tree(group_tree(engine))?;
    let view = tree.read(engine.store());
    let mut groups = BTreeMap::new();
    for chunk in engine.volume().chunks().all() {
        let key = Key::new(chunk.logical, item::BLOCK_GROUP_ITEM, chunk.len);
        let found = view
            .get(key)?
            .ok_or_else(|| Error::corrupt(tree.id(), key, "a chunk has no block group of its size"))?;
        let item = BlockGroupItem::read_from_bytes(found.data())
            .map_err(|_| Error::corrupt(tree.id(), key, "a block group item has 24 bytes"))?;
        if item.flags.get() != chunk.kind {
            let what = format!("type {:#x}, but its chunk has {:#x}", item.flags.get(), chunk.kind);
            return Err(Error::corrupt(tree.id(), key, what));
        }
        let group = Group::new(chunk.logical, chunk.len, item.flags.get(), item.used.get());
        groups.insert(chunk.logical, Arc::new(group));
    }
    Ok(groups)
}

/// Reads the free space of the groups that serve a class and were not read yet.
pub(crate) fn load_free(engine: &Engine, class: Class) -> Result<()> {
    let space = &engine.writer()?.space;
    if space.groups(class).iter().all(|group| group.is_loaded()) {
        return Ok(());
    }
    // no group goes while it is read
    let _one = space.allocating.lock();
    for group in space.groups(class).iter().filter(|group| !group.is_loaded()) {
        load_group(engine, group)?;
    }
    Ok(())
}

fn load_group(engine: &Engine, group: &Group) -> Result<()> {
    let space = &engine.writer()?.space;
    loop {
        let before = engine.last_committed();
        let mut free = fst::read(engine, group)?;
        let done = space.with_pinned_in(group.start, group.end(), |pinned| {
            // what a commit has unpinned meanwhile, the tree may not have told of
            let same = engine.last_committed() == before;
            if same {
                // freed by a transaction that is not on the device yet, though the tree says so already
                pinned.iter().for_each(|&(start, len)| free.remove(start, len));
                set_free(engine, group, free);
            }
            same
        });
        if done {
            return Ok(());
        }
    }
}

/// Tells a group what is free in it; what copies of the superblock take is left out.
pub(crate) fn set_free(engine: &Engine, group: &Group, free: FreeRanges) {
    let excluded = match engine.volume().chunks().find(group.start) {
        Some(chunk) => super_stripes(&chunk),
        None => Vec::new(),
    };
    group.set_free(free, &excluded);
}

/// The logical ranges of a chunk under which a device has a copy of the superblock. For profiles without parity.
pub(crate) fn super_stripes(chunk: &Chunk) -> Vec<(u64, u64)> {
    let (mut out, size): (Vec<(u64, u64)>, u64) = (Vec::new(), chunk.stripe_size());
    for (stripe, &(_, physical)) in chunk.stripes.iter().enumerate() {
        for offset in OFFSETS {
            let (mut at, end) = (offset.max(physical), (offset + SUPER_STRIPE).min(physical + size));
            while at < end {
                let (logical, together) = chunk.logical_of(stripe, at - physical);
                let len = together.min(end - at);
                if !out.contains(&(logical, len)) {
                    out.push((logical, len));
                }
                at += len;
            }
        }
    }
    out.sort_unstable();
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use buttery_disk::chunk::bg;

    #[test]
    fn both_stripes_of_a_dup_chunk_exclude() {
        let chunk = Chunk {
            logical: 1 << 30,
            len: 32 << 20,
            kind: bg::METADATA | bg::DUP,
            sub_stripes: 1,
            stripes: vec![(1, 40 << 20), (1, 72 << 20)],
        };
        assert_eq!(super_stripes(&chunk), [((1 << 30) + (24 << 20), 65536)]);
        let striped = Chunk {
            kind: bg::DATA | bg::RAID0,
            stripes: vec![(1, 60 << 20), (2, 64 << 20)],
            ..chunk.clone()
        };
        // 4 MiB into the first stripe; at the very beginning of the second
        assert_eq!(super_stripes(&striped), [((1 << 30) + 65536, 65536), ((1 << 30) + (8 << 20), 65536)]);
        let other = Chunk { stripes: vec![(1, 34 << 20), (1, 64 << 20)], ..chunk };
        assert_eq!(super_stripes(&other), [(1 << 30, 65536), ((1 << 30) + (30 << 20), 65536)]);
    }
}
