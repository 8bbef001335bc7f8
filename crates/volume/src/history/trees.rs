//! Trees of a volume that may be of another time than those of the volume beside it.

use crate::walk::{child, walk_tree};
use crate::{Error, Volume};
use buttery_disk::check::Expect;
use buttery_disk::root::RootItem;
use buttery_disk::{Key, Node, item, objectid};
use std::collections::BTreeMap;

/// The roots of all trees that the root tree names, by id.
pub(super) fn roots(volume: &Volume) -> Result<BTreeMap<u64, Expect>, Error> {
    let sb = volume.superblock();
    let root_tree = Expect {
        bytenr: sb.root.get(),
        level: Some(sb.root_level),
        generation: Some(sb.generation.get()),
        first_key: None,
        owner: Some(objectid::ROOT_TREE),
    };
    let mut found = BTreeMap::new();
    walk_tree(volume, root_tree, Key::MIN, &mut |key, data| {
        if key.kind == item::ROOT_ITEM
            && let Some(root) = RootItem::parse(data)
        {
            let expect = Expect {
                bytenr: root.bytenr.get(),
                level: Some(root.level),
                generation: Some(root.generation.get()),
                first_key: None,
                owner: None,
            };
            found.insert(key.objectid, expect);
        }
        Ok(true)
    })?;
    Ok(found)
}

/// Walks what changed in a tree after a generation, `budget` blocks at most: `old` gets the blocks that are not
/// younger, and what is below them is left out, `each` the items of the leaves that are.
pub(super) fn changed(
    volume: &Volume,
    root: &Expect,
    then: u64,
    budget: &mut usize,
    old: &mut dyn FnMut(Expect),
    each: &mut dyn FnMut(Key, &[u8]),
) -> Result<(), Error> {
    let mut todo = vec![*root];
    while let Some(expect) = todo.pop() {
        if expect.generation.is_some_and(|generation| generation <= then) {
            old(expect);
            continue;
        }
        let Some(left) = budget.checked_sub(1) else { break };
        *budget = left;
        let block = volume.read_block(&expect)?;
        let node = Node::new(&block);
        for slot in 0..node.nritems() {
            match node.level() {
                0 => each(node.key(slot), node.data(slot)),
                _ => todo.push(child(node, slot, expect.owner)),
            }
        }
    }
    Ok(())
}

/// The item of a key, if the tree has it.
pub(super) fn find(volume: &Volume, root: &Expect, wanted: Key) -> Result<Option<Vec<u8>>, Error> {
    let mut found = None;
    walk_tree(volume, *root, wanted, &mut |key, data| {
        found = (key == wanted).then(|| data.to_vec());
        Ok(false)
    })?;
    Ok(found)
}
