//! Whether an older state is the past of a newer one.
//!
//! What the newer state has from a generation that the older one had reached was there then, as it is:
//! - an extent keeps the generation in which it was allocated, and none comes back once it is freed, so the older
//!   extent tree must have the same one, and if it is a tree block, with the same bytes;
//! - an inode item keeps the generation of its last change (`transid`), so the older state must have the same one,
//!   where it has the subvolume.

use super::trees::{changed, find, roots};
use crate::{Error, Volume};
use buttery_disk::check::Expect;
use buttery_disk::extent::ExtentItem;
use buttery_disk::inode::{InodeItem, Timespec};
use buttery_disk::zerocopy::FromBytes;
use buttery_disk::{Key, item, objectid};
use std::collections::{BTreeMap, BTreeSet};

/// How many blocks of the newer state are looked at, of the extent tree and of all subvolumes.
const BLOCKS_MAX: usize = 4096;
/// How many extents, and how many inodes, are looked up: those that are youngest in the older state.
const ITEMS_MAX: usize = 4096;

/// What the newer state has of each generation, the youngest of it.
#[derive(Default)]
struct Youngest<T>(BTreeSet<(u64, T)>);

impl<T: Ord> Youngest<T> {
    fn note(&mut self, generation: u64, what: T) {
        self.0.insert((generation, what));
        if self.0.len() > ITEMS_MAX {
            self.0.pop_first();
        }
    }
}

/// Why the older state is not the newer one's past. `None` as well where something cannot be read.
pub(super) fn contradiction(newer: &Volume, older: &Volume) -> Option<String> {
    let (new_roots, old_roots) = (roots(newer).ok()?, roots(older).ok()?);
    extents(newer, older, &new_roots, &old_roots)
        .ok()?
        .or_else(|| inodes(newer, older, &new_roots, &old_roots).ok().flatten())
}

type Roots = BTreeMap<u64, Expect>;

fn extents(newer: &Volume, older: &Volume, new: &Roots, old: &Roots) -> Result<Option<String>, Error> {
    let (Some(new_root), Some(old_root)) = (new.get(&objectid::EXTENT_TREE), old.get(&objectid::EXTENT_TREE))
    else {
        return Ok(None);
    };
    let then = older.superblock().generation.get();
    let (mut youngest, mut blocks) = (Youngest::default(), Vec::new());
    let mut budget = BLOCKS_MAX;
    changed(newer, new_root, then, &mut budget, &mut |block| blocks.push(block), &mut |key, data| {
        if let Some(generation) = generation_of(key, data).filter(|&g| g <= then) {
            youngest.note(generation, key);
        }
    })?;
    // a block of the tree that is as old stands for all below it
    for block in blocks {
        let level = block.level.unwrap_or(0).into();
        let key = Key::new(block.bytenr, item::METADATA_ITEM, level);
        youngest.note(block.generation.unwrap_or(0), key);
    }
    for (generation, key) in youngest.0.into_iter().rev() {
        // what cannot be read of the older state says nothing
        let Ok(found) = find(older, old_root, key) else { continue };
        let found = found.and_then(|data| generation_of(key, &data));
        if found != Some(generation) {
            let is = found.map_or("none".to_owned(), |found| format!("one of generation {found}"));
            return Ok(Some(format!(
                "extent {} of generation {generation} is in the newer state, but the older one, which is at generation \
                 {then}, has {is}",
                key.objectid
            )));
        }
        if key.kind == item::METADATA_ITEM && !is_same_block(newer, older, generation, key) {
            return Ok(Some(format!(
                "block {} of generation {generation} is one in the newer state and another in the older one",
                key.objectid
            )));
        }
    }
    Ok(None)
}

fn generation_of(key: Key, data: &[u8]) -> Option<u64> {
    let is_extent = key.kind == item::EXTENT_ITEM || key.kind == item::METADATA_ITEM;
    let (item, _) = ExtentItem::ref_from_prefix(data).ok()?;
    is_extent.then(|| item.generation.get())
}

/// Whether both have the same bytes in a block; one that cannot be read says nothing.
fn is_same_block(newer: &Volume, older: &Volume, generation: u64, key: Key) -> bool {
    let expect = Expect {
        bytenr: key.objectid,
        level: u8::try_from(key.offset).ok(),
        generation: Some(generation),
        first_key: None,
        owner: None,
    };
    match (newer.read_block(&expect), older.read_block(&expect)) {
        (Ok(a), Ok(b)) => a == b,
        _ => true,
    }
}

fn inodes(newer: &Volume, older: &Volume, new: &Roots, old: &Roots) -> Result<Option<String>, Error> {
    let then = older.superblock().generation.get();
    let mut youngest = Youngest::default();
    let mut budget = BLOCKS_MAX;
    let is_subvolume = |id: u64| id == objectid::FS_TREE || (256..1 << 48).contains(&id);
    for (&id, root) in new.iter().filter(|&(&id, _)| is_subvolume(id) && old.contains_key(&id)) {
        changed(newer, root, then, &mut budget, &mut |_| (), &mut |key, data| {
            if let Some(inode) = inode_of(key, data).filter(|inode| inode.transid.get() <= then) {
                youngest.note(inode.transid.get(), (id, key.objectid, marks(inode)));
            }
        })?;
    }
    for (generation, (id, number, expected)) in youngest.0.into_iter().rev() {
        let key = Key::new(number, item::INODE_ITEM, 0);
        let Ok(found) = find(older, &old[&id], key) else { continue };
        let found = found.as_deref().and_then(|data| inode_of(key, data)).map(marks);
        if found != Some(expected) {
            return Ok(Some(format!(
                "inode {number} of subvolume {id} was last changed in generation {generation} in the newer state, but \
                 the older one, which is at generation {then}, has {}",
                if found.is_some() { "another" } else { "none" }
            )));
        }
    }
    Ok(None)
}

fn inode_of(key: Key, data: &[u8]) -> Option<&InodeItem> {
    if key.kind == item::INODE_ITEM { InodeItem::ref_from_bytes(data).ok() } else { None }
}

/// What no repair changes, and every change does.
fn marks(inode: &InodeItem) -> [u64; 9] {
    let sec = |time: &Timespec| time.sec.get().cast_unsigned();
    let nsec = |time: &Timespec| u64::from(time.nsec.get());
    let (made, written, changed) = (&inode.otime, &inode.mtime, &inode.ctime);
    [
        inode.generation.get(),
        inode.transid.get(),
        inode.mode.get().into(),
        sec(made),
        nsec(made),
        sec(written),
        nsec(written),
        sec(changed),
        nsec(changed),
    ]
}
