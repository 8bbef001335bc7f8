//! Changing the bytes of a tree block: items and pointers in and out. No tree, no references: one block.
//!
//! The callers see to it that there is room ([`Node::leaf_free`], [`max_ptrs`](crate::node::max_ptrs)); an edit
//! without room panics before a byte is lost.

use crate::key::Key;
use crate::node::{HEADER_LEN, Header, ITEM_LEN, Item, KEY_PTR_LEN, KeyPtr, Node, flags, leaf_data_size};
use std::ops::Range;
use zerocopy::{FromBytes, IntoBytes};

/// The header, to be changed.
pub fn header_mut(block: &mut [u8]) -> &mut Header {
    Header::mut_from_prefix(block).expect("longer than a header").0
}

/// Makes the block an empty one of this level; what else the header holds is the caller's to fill in.
pub fn init(block: &mut [u8], level: u8) {
    block.fill(0);
    let header = header_mut(block);
    header.level = level;
    header.flags = flags::MIXED_BACKREF_REV.into();
}

fn set_nritems(block: &mut [u8], n: usize) {
    header_mut(block).nritems = (n as u32).into();
}

fn item_mut(block: &mut [u8], slot: usize) -> &mut Item {
    Item::mut_from_prefix(&mut block[HEADER_LEN + slot * ITEM_LEN..]).expect("inside the leaf").0
}

/// Moves the data of the items from `slot` on by `by` bytes (down if negative), and their offsets with them.
fn shift_data(block: &mut [u8], slot: usize, by: isize) {
    let node = Node::new(block);
    let n = node.nritems();
    if slot >= n {
        return;
    }
    let start = HEADER_LEN + node.data_start();
    let (_, end) = node.data_range(slot);
    block.copy_within(start..end, (start as isize + by) as usize);
    for i in slot..n {
        let item = item_mut(block, i);
        item.offset = ((item.offset.get() as isize + by) as u32).into();
    }
}

/// Inserts an item of `size` bytes before `slot` and returns its data, which hold whatever was there.
pub fn insert_room(block: &mut [u8], slot: usize, key: Key, size: usize) -> &mut [u8] {
    let node = Node::new(block);
    let n = node.nritems();
    assert!(slot <= n && node.leaf_free() >= size + ITEM_LEN, "no room for an item of {size} bytes");
    let end = match slot {
        0 => leaf_data_size(block.len()),
        _ => node.item(slot - 1).offset.get() as usize,
    };
    shift_data(block, slot, -(size as isize));
    let at = HEADER_LEN + slot * ITEM_LEN;
    block.copy_within(at..HEADER_LEN + n * ITEM_LEN, at + ITEM_LEN);
    *item_mut(block, slot) =
        Item { key: key.into(), offset: ((end - size) as u32).into(), size: (size as u32).into() };
    set_nritems(block, n + 1);
    &mut block[HEADER_LEN + end - size..HEADER_LEN + end]
}

/// Inserts an item before `slot`.
pub fn insert_item(block: &mut [u8], slot: usize, key: Key, data: &[u8]) {
    insert_room(block, slot, key, data.len()).copy_from_slice(data);
}

/// The data of an item, to be changed in place.
pub fn data_mut(block: &mut [u8], slot: usize) -> &mut [u8] {
    let (start, end) = Node::new(block).data_range(slot);
    &mut block[start..end]
}

/// Removes items.
pub fn delete_items(block: &mut [u8], slots: Range<usize>) {
    let node = Node::new(block);
    let n = node.nritems();
    assert!(slots.start <= slots.end && slots.end <= n);
    if slots.is_empty() {
        return;
    }
    let (_, top) = node.data_range(slots.start);
    let (bottom, _) = node.data_range(slots.end - 1);
    shift_data(block, slots.end, (top - bottom) as isize);
    let from = HEADER_LEN + slots.end * ITEM_LEN;
    block.copy_within(from..HEADER_LEN + n * ITEM_LEN, HEADER_LEN + slots.start * ITEM_LEN);
    set_nritems(block, n - slots.len());
}

/// Replaces an item's key; the order must stay.
pub fn set_item_key(block: &mut [u8], slot: usize, key: Key) {
    item_mut(block, slot).key = key.into();
}

/// Lengthens an item at its end by `extra` bytes, which hold whatever was there.
pub fn extend_item(block: &mut [u8], slot: usize, extra: usize) {
    assert!(Node::new(block).leaf_free() >= extra, "no room for {extra} bytes more");
    let (start, end) = Node::new(block).data_range(slot);
    shift_data(block, slot + 1, -(extra as isize));
    block.copy_within(start..end, start - extra);
    let item = item_mut(block, slot);
    item.offset = (item.offset.get() - extra as u32).into();
    item.size = (item.size.get() + extra as u32).into();
}

/// Cuts bytes out of an item's data.
pub fn cut_item(block: &mut [u8], slot: usize, cut: Range<usize>) {
    let (start, end) = Node::new(block).data_range(slot);
    assert!(cut.start <= cut.end && cut.end <= end - start);
    let len = cut.len();
    block.copy_within(start..start + cut.start, start + len);
    let item = item_mut(block, slot);
    item.offset = (item.offset.get() + len as u32).into();
    item.size = (item.size.get() - len as u32).into();
    shift_data(block, slot + 1, len as isize);
}

/// Copies items of leaf `from` into leaf `to` before its slot `at`. The caller deletes them where they came from.
pub fn copy_items(from: &[u8], slots: Range<usize>, to: &mut [u8], at: usize) {
    if slots.is_empty() {
        return;
    }
    let source = Node::new(from);
    let (_, top) = source.data_range(slots.start);
    let (bottom, _) = source.data_range(slots.end - 1);
    let bytes = top - bottom;
    let target = Node::new(to);
    let (n, count) = (target.nritems(), slots.len());
    assert!(at <= n && target.leaf_free() >= bytes + count * ITEM_LEN, "no room for {count} items");
    let end = match at {
        0 => leaf_data_size(to.len()),
        _ => target.item(at - 1).offset.get() as usize,
    };
    shift_data(to, at, -(bytes as isize));
    let first = HEADER_LEN + at * ITEM_LEN;
    to.copy_within(first..HEADER_LEN + n * ITEM_LEN, first + count * ITEM_LEN);
    let by = end as isize - (top - HEADER_LEN) as isize;
    for (i, slot) in slots.enumerate() {
        let mut item = *source.item(slot);
        item.offset = ((item.offset.get() as isize + by) as u32).into();
        *item_mut(to, at + i) = item;
    }
    to[HEADER_LEN + end - bytes..HEADER_LEN + end].copy_from_slice(&from[bottom..top]);
    set_nritems(to, n + count);
}

/// Inserts a child pointer before `slot`.
pub fn insert_ptr(block: &mut [u8], slot: usize, key: Key, blockptr: u64, generation: u64) {
    let n = Node::new(block).nritems();
    assert!(slot <= n && n < crate::node::max_ptrs(block.len()), "no room for a child");
    let at = HEADER_LEN + slot * KEY_PTR_LEN;
    block.copy_within(at..HEADER_LEN + n * KEY_PTR_LEN, at + KEY_PTR_LEN);
    set_nritems(block, n + 1);
    set_ptr(block, slot, key, blockptr, generation);
}

/// Replaces a child pointer.
pub fn set_ptr(block: &mut [u8], slot: usize, key: Key, blockptr: u64, generation: u64) {
    let at = HEADER_LEN + slot * KEY_PTR_LEN;
    let ptr = KeyPtr { key: key.into(), blockptr: blockptr.into(), generation: generation.into() };
    block[at..at + KEY_PTR_LEN].copy_from_slice(ptr.as_bytes());
}

/// Removes child pointers.
pub fn delete_ptrs(block: &mut [u8], slots: Range<usize>) {
    let n = Node::new(block).nritems();
    assert!(slots.start <= slots.end && slots.end <= n);
    let from = HEADER_LEN + slots.end * KEY_PTR_LEN;
    block.copy_within(from..HEADER_LEN + n * KEY_PTR_LEN, HEADER_LEN + slots.start * KEY_PTR_LEN);
    set_nritems(block, n - slots.len());
}

/// Copies child pointers of node `from` into node `to` before its slot `at`.
pub fn copy_ptrs(from: &[u8], slots: Range<usize>, to: &mut [u8], at: usize) {
    let (n, count) = (Node::new(to).nritems(), slots.len());
    assert!(at <= n && n + count <= crate::node::max_ptrs(to.len()), "no room for {count} children");
    let first = HEADER_LEN + at * KEY_PTR_LEN;
    to.copy_within(first..HEADER_LEN + n * KEY_PTR_LEN, first + count * KEY_PTR_LEN);
    let (start, end) = (HEADER_LEN + slots.start * KEY_PTR_LEN, HEADER_LEN + slots.end * KEY_PTR_LEN);
    to[first..first + (end - start)].copy_from_slice(&from[start..end]);
    set_nritems(to, n + count);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A leaf as a plain list, to hold the bytes against.
    fn contents(block: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let node = Node::new(block);
        let list: Vec<_> = (0..node.nritems()).map(|i| (node.key(i).offset, node.data(i).to_vec())).collect();
        let used: usize = list.iter().map(|(_, d)| d.len() + ITEM_LEN).sum();
        assert_eq!(node.leaf_used(), used, "the data are contiguous");
        list
    }

    fn leaf() -> Vec<u8> {
        let mut block = vec![0u8; 4096];
        init(&mut block, 0);
        block
    }

    #[test]
    fn random_edits_match_a_list() {
        let mut rng = 12345u64;
        let mut next = |n: usize| {
            rng = rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (rng >> 33) as usize % n
        };
        let (mut block, mut model) = (leaf(), Vec::<(u64, Vec<u8>)>::new());
        for step in 0..5000u64 {
            let n = model.len();
            match next(4) {
                0 | 1 => {
                    let (slot, size) = (next(n + 1), next(90));
                    if Node::new(&block).leaf_free() >= size + ITEM_LEN {
                        let data = vec![step as u8; size];
                        insert_item(&mut block, slot, Key::new(1, 1, step), &data);
                        model.insert(slot, (step, data));
                    }
                }
                2 if n > 0 => {
                    let start = next(n);
                    let end = start + next((n - start).min(4) + 1);
                    delete_items(&mut block, start..end);
                    model.drain(start..end);
                }
                _ if n > 0 => {
                    let slot = next(n);
                    if step % 2 == 0 && Node::new(&block).leaf_free() >= 7 {
                        extend_item(&mut block, slot, 7);
                        let len = model[slot].1.len();
                        data_mut(&mut block, slot)[len..].fill(3);
                        model[slot].1.extend([3; 7]);
                    } else {
                        let start = next(model[slot].1.len() + 1);
                        let end = start + next(model[slot].1.len() - start + 1);
                        cut_item(&mut block, slot, start..end);
                        model[slot].1.drain(start..end);
                    }
                }
                _ => {}
            }
            assert_eq!(contents(&block), model);
        }
    }

    #[test]
    fn items_move_between_leaves() {
        let (mut a, mut b) = (leaf(), leaf());
        for i in 0..10u64 {
            insert_item(&mut a, i as usize, Key::new(1, 1, i), &vec![i as u8; i as usize]);
        }
        insert_item(&mut b, 0, Key::new(1, 1, 100), b"tail");
        copy_items(&a, 4..10, &mut b, 0);
        delete_items(&mut a, 4..10);
        assert_eq!(contents(&a).len(), 4);
        let got = contents(&b);
        assert_eq!(got.len(), 7);
        assert_eq!(got[0], (4, vec![4; 4]));
        assert_eq!(got[6], (100, b"tail".to_vec()));
    }
}
