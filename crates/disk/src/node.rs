//! Tree blocks: header, then items (level 0) or child pointers.
//!
//! ```text
//! 0 csum[32] 32 fsid[16] 48 bytenr 56 flags 64 chunk_tree_uuid[16] 80 generation 88 owner 96 nritems 100 level 101
//! leaf:  101 item 0 | item 1 | ... free ... | data of item 1 | data of item 0 | end
//! node:  101 (key, blockptr, generation) 0 | 1 | ...
//! ```
//!
//! [`Node`] reads a block that the tree checker has passed; it panics on one whose counts lie outside the block.

use crate::key::{DiskKey, Key};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The header of a tree block.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Header {
    pub csum: [u8; 32],
    pub fsid: [u8; 16],
    pub bytenr: U64,
    /// Seven bytes of flags and the back reference revision in the highest byte.
    pub flags: U64,
    pub chunk_tree_uuid: [u8; 16],
    pub generation: U64,
    pub owner: U64,
    pub nritems: U32,
    pub level: u8,
}

/// A leaf's descriptor of one item.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Item {
    pub key: DiskKey,
    /// Where the data begin, in bytes after the header.
    pub offset: U32,
    pub size: U32,
}

/// A pointer to a child.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct KeyPtr {
    pub key: DiskKey,
    pub blockptr: U64,
    pub generation: U64,
}

/// Bytes of a header.
pub const HEADER_LEN: usize = size_of::<Header>();
/// Bytes of an item descriptor.
pub const ITEM_LEN: usize = size_of::<Item>();
/// Bytes of a child pointer.
pub const KEY_PTR_LEN: usize = size_of::<KeyPtr>();
/// Trees have levels 0 to 7.
pub const MAX_LEVEL: u8 = 8;
const _: () = assert!(HEADER_LEN == 101 && ITEM_LEN == 25 && KEY_PTR_LEN == 33);

/// Header flags.
pub mod flags {
    pub const WRITTEN: u64 = 1 << 0;
    pub const RELOC: u64 = 1 << 1;
    /// The back reference revision of every current file system (1), in the highest byte.
    pub const MIXED_BACKREF_REV: u64 = 1 << 56;
}

/// Child pointers that fit into a node of this size.
pub const fn max_ptrs(nodesize: usize) -> usize {
    (nodesize - HEADER_LEN) / KEY_PTR_LEN
}

/// Bytes of a leaf for descriptors and data together.
pub const fn leaf_data_size(nodesize: usize) -> usize {
    nodesize - HEADER_LEN
}

/// A tree block being read.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    bytes: &'a [u8],
}

impl<'a> Node<'a> {
    /// Looks at `bytes` as a tree block; they must be longer than a header.
    pub fn new(bytes: &'a [u8]) -> Node<'a> {
        assert!(bytes.len() > HEADER_LEN);
        Node { bytes }
    }

    /// The header.
    pub fn header(self) -> &'a Header {
        Header::ref_from_prefix(self.bytes).expect("longer than a header").0
    }

    /// The whole block.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// How many items or children.
    pub fn nritems(self) -> usize {
        self.header().nritems.get() as usize
    }

    /// 0 for a leaf.
    pub fn level(self) -> u8 {
        self.bytes[100]
    }

    /// The key in `slot`.
    pub fn key(self, slot: usize) -> Key {
        let width = if self.level() == 0 { ITEM_LEN } else { KEY_PTR_LEN };
        let at = HEADER_LEN + slot * width;
        let b = &self.bytes[at..at + 17];
        Key {
            objectid: u64::from_le_bytes(b[..8].try_into().expect("8 bytes")),
            kind: b[8],
            offset: u64::from_le_bytes(b[9..17].try_into().expect("8 bytes")),
        }
    }

    /// A leaf's item descriptor.
    pub fn item(self, slot: usize) -> &'a Item {
        Item::ref_from_prefix(&self.bytes[HEADER_LEN + slot * ITEM_LEN..]).expect("inside the leaf").0
    }

    /// A leaf's item data.
    pub fn data(self, slot: usize) -> &'a [u8] {
        let (start, end) = self.data_range(slot);
        &self.bytes[start..end]
    }

    /// Where item data stand in the block.
    pub fn data_range(self, slot: usize) -> (usize, usize) {
        let item = self.item(slot);
        let start = HEADER_LEN + item.offset.get() as usize;
        (start, start + item.size.get() as usize)
    }

    /// A node's child pointer.
    pub fn ptr(self, slot: usize) -> &'a KeyPtr {
        KeyPtr::ref_from_prefix(&self.bytes[HEADER_LEN + slot * KEY_PTR_LEN..]).expect("inside the node").0
    }

    /// Binary search: `Ok` the slot with this key, `Err` the slot where it would be inserted.
    pub fn search(self, key: &Key) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.nritems());
        while low < high {
            let mid = (low + high) / 2;
            match self.key(mid).cmp(key) {
                std::cmp::Ordering::Less => low = mid + 1,
                std::cmp::Ordering::Greater => high = mid,
                std::cmp::Ordering::Equal => return Ok(mid),
            }
        }
        Err(low)
    }

    /// The child under which a key belongs: the last whose key is not above it, or the first.
    pub fn child_slot(self, key: &Key) -> usize {
        match self.search(key) {
            Ok(slot) => slot,
            Err(slot) => slot.saturating_sub(1),
        }
    }

    /// Where a leaf's item data begin, in bytes after the header; the leaf's data size when it is empty.
    pub fn data_start(self) -> usize {
        match self.nritems() {
            0 => leaf_data_size(self.bytes.len()),
            n => self.item(n - 1).offset.get() as usize,
        }
    }

    /// Free bytes of a leaf.
    pub fn leaf_free(self) -> usize {
        self.data_start() - self.nritems() * ITEM_LEN
    }

    /// Used bytes of a leaf, descriptors and data.
    pub fn leaf_used(self) -> usize {
        leaf_data_size(self.bytes.len()) - self.leaf_free()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edit;

    #[test]
    fn search_finds_slots_and_gaps() {
        let mut block = vec![0u8; 4096];
        edit::init(&mut block, 0);
        for (slot, offset) in [10u64, 20, 30].into_iter().enumerate() {
            edit::insert_item(&mut block, slot, Key::new(1, 1, offset), b"x");
        }
        let node = Node::new(&block);
        assert_eq!(node.search(&Key::new(1, 1, 20)), Ok(1));
        assert_eq!(node.search(&Key::new(1, 1, 25)), Err(2));
        assert_eq!(node.search(&Key::MAX), Err(3));
        assert_eq!(node.child_slot(&Key::MIN), 0);
    }
}
