//! Visits every item of a tree in key order, reading each block once. For those who do not have the engine: the chunk
//! tree before there is a map, and the independent checker.

use crate::{Error, Volume};
use buttery_disk::check::Expect;
use buttery_disk::{Key, Node};

/// Calls `visit` with each item from `from` on, until it answers `false`. The stack is as deep as the root's level
/// says, at most 8; that each child's first key must be the parent's keeps a hostile image from leading in circles.
pub fn walk_tree(
    volume: &Volume,
    root: Expect,
    from: Key,
    visit: &mut dyn FnMut(Key, &[u8]) -> Result<bool, Error>,
) -> Result<(), Error> {
    let mut stack = vec![(volume.read_block(&root)?, None)];
    let mut last: Option<Key> = None;
    while let Some((block, next)) = stack.pop() {
        let node = Node::new(&block);
        if node.level() == 0 {
            if let Some(last) = last
                && node.nritems() > 0
                && node.key(0) <= last
            {
                let text = format!(
                    "block {}: begins with {}, but the leaf before it ends with {last}",
                    node.header().bytenr.get(),
                    node.key(0)
                );
                return Err(Error::Inconsistent(text));
            }
            last = node.nritems().checked_sub(1).map(|n| node.key(n)).or(last);
            let start = node.search(&from).unwrap_or_else(|slot| slot);
            for slot in start..node.nritems() {
                if !visit(node.key(slot), node.data(slot))? {
                    return Ok(());
                }
            }
            continue;
        }
        let slot = next.unwrap_or_else(|| node.child_slot(&from));
        if slot >= node.nritems() {
            continue;
        }
        let expect = child(node, slot, root.owner);
        let below = volume.read_block(&expect)?;
        stack.push((block, Some(slot + 1)));
        stack.push((below, None));
    }
    Ok(())
}

/// What a node says of one of its children.
pub fn child(node: Node<'_>, slot: usize, owner: Option<u64>) -> Expect {
    let ptr = node.ptr(slot);
    Expect {
        bytenr: ptr.blockptr.get(),
        level: node.level().checked_sub(1),
        generation: Some(ptr.generation.get()),
        first_key: Some(node.key(slot)),
        owner,
    }
}
