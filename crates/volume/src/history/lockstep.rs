//! What was written last is the same in every copy.
//!
//! Two halves that parted at the same state and did much the same may have the same generation and the same addresses.
//! Then some of the blocks that they wrote since differ, by times and checksums at least.

use crate::walk::child;
use crate::{Chunk, Volume};
use buttery_disk::check::Expect;
use buttery_disk::chunk::bg;
use buttery_disk::profile::Profile;
use buttery_disk::root::RootItem;
use buttery_disk::{Node, item, objectid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many blocks are looked at, the youngest first.
const BLOCKS_MAX: usize = 128;

/// A device that has another block than those before it, both sound; and which block.
pub(super) fn find(volume: &Volume) -> Option<(u64, String)> {
    let is_mirrored =
        |c: &Arc<Chunk>| c.kind & bg::METADATA != 0 && c.profile().is_some_and(Profile::is_mirrored);
    if !volume.chunks.all().iter().any(is_mirrored) {
        return None;
    }
    let sb = volume.superblock();
    // by generation, then address
    let mut todo = BTreeMap::new();
    let mut add = |expect: Expect| todo.insert((expect.generation, expect.bytenr), expect);
    let owner = Some(objectid::CHUNK_TREE);
    add(root(sb.chunk_root.get(), sb.chunk_root_level, sb.chunk_root_generation.get(), owner));
    add(root(sb.root.get(), sb.root_level, sb.generation.get(), Some(objectid::ROOT_TREE)));
    for _ in 0..BLOCKS_MAX {
        let (_, expect) = todo.pop_last()?;
        let Some(chunk) = volume.chunks.find(expect.bytenr) else { continue };
        let block = match one_block(volume, &chunk, &expect) {
            Ok(Some(block)) => block,
            Ok(None) => continue,
            Err(found) => return Some(found),
        };
        for expect in below(Node::new(&block), &expect) {
            todo.insert((expect.generation, expect.bytenr), expect);
        }
    }
    None
}

fn root(bytenr: u64, level: u8, generation: u64, owner: Option<u64>) -> Expect {
    Expect { bytenr, level: Some(level), generation: Some(generation), first_key: None, owner }
}

/// The blocks that a block leads to: its children, and the roots of other trees.
fn below(node: Node<'_>, expect: &Expect) -> Vec<Expect> {
    let slots = 0..node.nritems();
    if node.level() > 0 {
        // a block of a subvolume may be another's, and so may those below it
        return slots.map(|slot| child(node, slot, expect.owner)).collect();
    }
    let roots = slots
        .filter(|&slot| expect.owner == Some(objectid::ROOT_TREE) && node.key(slot).kind == item::ROOT_ITEM);
    let items = roots.filter_map(|slot| RootItem::parse(node.data(slot)));
    items.map(|item| root(item.bytenr.get(), item.level, item.generation.get(), None)).collect()
}

/// A block, from all current devices that have it sound; an error names one that has another than those before.
fn one_block(volume: &Volume, chunk: &Arc<Chunk>, expect: &Expect) -> Result<Option<Vec<u8>>, (u64, String)> {
    let mut first: Option<(u64, Vec<u8>)> = None;
    for mirror in volume.order(chunk, expect.bytenr) {
        let devid = chunk.place(expect.bytenr, mirror).devid;
        if first.is_some() && !volume.is_current(devid) {
            continue;
        }
        let Some(block) = volume.sound_copy(chunk, expect, mirror) else { continue };
        match &first {
            None => first = Some((devid, block)),
            Some((_, other)) if *other == block => {}
            Some((other, _)) => {
                let (at, generation) = (expect.bytenr, expect.generation.unwrap_or(0));
                let text = format!(
                    "block {at} of generation {generation} is one on device {other} and another on device {devid}"
                );
                return Err((devid, text));
            }
        }
    }
    Ok(first.map(|(_, block)| block))
}
