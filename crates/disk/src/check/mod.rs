//! The tree checker: whether a block may be trusted.
//!
//! A block is trusted only after its address, fsid, the generation, level and first key that its parent names, and
//! the structure of every item were checked (the checksum comes before, and belongs to the codec). The rules are the
//! ones that the kernel's reader enforces: stricter ones would refuse images that it mounts.
//! Start at [`check_block`]; the rules of single items are in [`items`], those of chunks and superblock beside it.

pub mod extents;
pub mod items;
pub mod sb;

use crate::key::{Key, objectid};
use crate::node::{HEADER_LEN, ITEM_LEN, Item, KEY_PTR_LEN, MAX_LEVEL, Node, leaf_data_size, max_ptrs};
use std::fmt;
use zerocopy::FromBytes;

/// What is known of the file system before a block is read.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// Bytes of a tree block.
    pub nodesize: u32,
    /// Bytes of a sector.
    pub sectorsize: u32,
    /// Bytes of one checksum.
    pub csum_size: u32,
    /// The superblock's generation.
    pub generation: u64,
    /// The superblock's incompat bits.
    pub incompat: u64,
    /// The uuid that tree blocks carry.
    pub fsid: [u8; 16],
}

/// What whoever points at a block says of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expect {
    /// The logical address.
    pub bytenr: u64,
    /// The level, if known.
    pub level: Option<u8>,
    /// The generation, if known.
    pub generation: Option<u64>,
    /// The first key, if known.
    pub first_key: Option<Key>,
    /// The tree, where the block cannot be shared with another.
    pub owner: Option<u64>,
}

/// A rule of the format that some bytes break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The item, if it is about one.
    pub slot: Option<(usize, Key)>,
    /// The rule and what was found instead.
    pub rule: String,
}

impl Violation {
    pub(crate) fn new(rule: impl Into<String>) -> Violation {
        Violation { slot: None, rule: rule.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((slot, key)) = &self.slot {
            write!(f, "item {slot} {key}: ")?;
        }
        f.write_str(&self.rule)
    }
}

impl std::error::Error for Violation {}

macro_rules! ensure {
    ($cond:expr, $($arg:tt)+) => {
        if !$cond {
            return Err($crate::check::Violation::new(format!($($arg)+)));
        }
    };
}
pub(crate) use ensure;

/// Checks a block whose checksum is right against every rule.
pub fn check_block(block: &[u8], ctx: &Context, expect: &Expect) -> Result<(), Violation> {
    ensure!(block.len() == ctx.nodesize as usize && block.len() > HEADER_LEN, "a block is nodesize long");
    check_header(block, ctx, expect)?;
    let node = Node::new(block);
    if node.level() == 0 {
        check_leaf(node, ctx)?
    } else {
        check_node(node, ctx)?
    }
    if let Some(first) = expect.first_key {
        ensure!(node.nritems() > 0, "first key must be {first}, block is empty");
        ensure!(node.key(0) == first, "first key must be {first}, found {}", node.key(0));
    }
    Ok(())
}

fn check_header(block: &[u8], ctx: &Context, expect: &Expect) -> Result<(), Violation> {
    let header = Node::new(block).header();
    let bytenr = header.bytenr.get();
    ensure!(bytenr == expect.bytenr, "header bytenr must be {}, found {bytenr}", expect.bytenr);
    ensure!(header.fsid == ctx.fsid, "header fsid must be the file system's");
    ensure!(header.level < MAX_LEVEL, "level must be below {MAX_LEVEL}, found {}", header.level);
    if let Some(level) = expect.level {
        ensure!(header.level == level, "level must be {level}, found {}", header.level);
    }
    if let Some(generation) = expect.generation {
        let found = header.generation.get();
        ensure!(found == generation, "generation must be {generation}, found {found}");
    }
    let owner = header.owner.get();
    if let Some(expected) = expect.owner {
        ensure!(owner == expected, "owner must be tree {expected}, found {owner}");
    }
    Ok(())
}

/// Trees whose root leaf is never empty, whatever happened to the file system.
fn never_empty(owner: u64) -> bool {
    matches!(
        owner,
        objectid::ROOT_TREE
            | objectid::CHUNK_TREE
            | objectid::DEV_TREE
            | objectid::FS_TREE
            | objectid::DATA_RELOC_TREE
            | objectid::EXTENT_TREE
    )
}

fn check_leaf(node: Node<'_>, ctx: &Context) -> Result<(), Violation> {
    let (n, data_size) = (node.nritems(), leaf_data_size(node.bytes().len()));
    let owner = node.header().owner.get();
    if n == 0 {
        ensure!(!never_empty(owner), "a leaf of tree {owner} must not be empty");
        ensure!(owner != 0, "a leaf must have an owner");
        return Ok(());
    }
    ensure!(n <= data_size / ITEM_LEN, "{n} items do not fit into a leaf");
    let mut top = data_size;
    let mut prev: Option<Key> = None;
    for slot in 0..n {
        let key = node.key(slot);
        let at = |mut v: Violation| {
            v.slot = Some((slot, key));
            v
        };
        let check = || -> Result<usize, Violation> {
            if let Some(prev) = prev {
                ensure!(key > prev, "keys must ascend, the one before is {prev}");
            }
            let item = item_descriptor(node, slot)?;
            let (offset, size) = (item.offset.get() as usize, item.size.get() as usize);
            ensure!(
                offset.checked_add(size) == Some(top),
                "item data must end at {top}, found {offset}+{size}"
            );
            ensure!(offset >= n * ITEM_LEN, "item data at {offset} overlap the item descriptors");
            items::check_item(node, slot, key, prev, ctx)?;
            Ok(offset)
        };
        top = check().map_err(at)?;
        prev = Some(key);
    }
    Ok(())
}

fn item_descriptor(node: Node<'_>, slot: usize) -> Result<&Item, Violation> {
    let at = HEADER_LEN + slot * ITEM_LEN;
    match node.bytes().get(at..).map(Item::ref_from_prefix) {
        Some(Ok((item, _))) => Ok(item),
        _ => Err(Violation::new("the item descriptor lies outside the leaf")),
    }
}

fn check_node(node: Node<'_>, ctx: &Context) -> Result<(), Violation> {
    let (n, max) = (node.nritems(), max_ptrs(node.bytes().len()));
    ensure!(n > 0 && n <= max, "a node must have 1 to {max} children, found {n}");
    debug_assert!(HEADER_LEN + n * KEY_PTR_LEN <= node.bytes().len());
    let mut prev: Option<Key> = None;
    for slot in 0..n {
        let (key, ptr) = (node.key(slot), node.ptr(slot).blockptr.get());
        let check = || {
            ensure!(ptr != 0, "a child pointer must not be 0");
            ensure!(
                ptr % ctx.sectorsize as u64 == 0,
                "child pointer {ptr} must be aligned to the sector size"
            );
            if let Some(prev) = prev {
                ensure!(key > prev, "keys must ascend, the one before is {prev}");
            }
            Ok(())
        };
        check().map_err(|mut v: Violation| {
            v.slot = Some((slot, key));
            v
        })?;
        prev = Some(key);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edit;

    const CTX: Context = Context {
        nodesize: 4096,
        sectorsize: 4096,
        csum_size: 4,
        generation: 10,
        incompat: 0x341,
        fsid: [7; 16],
    };

    fn block(level: u8) -> Vec<u8> {
        let mut block = vec![0u8; 4096];
        edit::init(&mut block, level);
        let header = edit::header_mut(&mut block);
        header.bytenr = 65536.into();
        header.fsid = [7; 16];
        header.generation = 9.into();
        header.owner = 5.into();
        block
    }

    fn rule(block: &[u8], expect: Expect) -> String {
        check_block(block, &CTX, &Expect { bytenr: 65536, ..expect })
            .map_or_else(|v| v.to_string(), |()| "ok".into())
    }

    #[test]
    fn each_thing_that_a_parent_names_is_checked() {
        let mut b = block(1);
        edit::insert_ptr(&mut b, 0, Key::new(256, 1, 0), 4096, 9);
        assert_eq!(rule(&b, Expect::default()), "ok");
        assert!(rule(&b, Expect { level: Some(2), ..Expect::default() }).starts_with("level must be 2"));
        assert!(
            rule(&b, Expect { generation: Some(8), ..Expect::default() }).starts_with("generation must be 8")
        );
        assert!(rule(&b, Expect { owner: Some(7), ..Expect::default() }).starts_with("owner must be tree 7"));
        let first_key = Some(Key::new(256, 1, 1));
        assert!(rule(&b, Expect { first_key, ..Expect::default() }).starts_with("first key must be"));
        let v = check_block(&b, &CTX, &Expect { bytenr: 4096, ..Expect::default() }).unwrap_err();
        assert!(v.rule.starts_with("header bytenr"));
        edit::header_mut(&mut b).fsid = [8; 16];
        assert!(rule(&b, Expect::default()).starts_with("header fsid"));
    }

    #[test]
    fn disorder_and_overlap_are_refused() {
        let mut b = block(0);
        edit::insert_item(&mut b, 0, Key::new(300, crate::item::ORPHAN_ITEM, 2), b"");
        edit::insert_item(&mut b, 1, Key::new(300, crate::item::ORPHAN_ITEM, 1), b"");
        assert!(rule(&b, Expect::default()).contains("keys must ascend"));
        let mut b = block(0);
        edit::insert_item(&mut b, 0, Key::new(300, crate::item::TEMPORARY_ITEM, 2), b"abcd");
        b[101 + 17] += 1; // the item's offset
        assert!(rule(&b, Expect::default()).contains("item data must end at"));
        let mut b = block(0);
        edit::header_mut(&mut b).nritems = u32::MAX.into();
        assert!(rule(&b, Expect::default()).contains("do not fit"));
        let mut b = block(3);
        edit::header_mut(&mut b).nritems = 5000.into();
        assert!(rule(&b, Expect::default()).contains("children"));
    }
}
