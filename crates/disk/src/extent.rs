//! Extents: those of files (EXTENT_DATA) and those of the device space (EXTENT_ITEM) with their back references.

use crate::dir::raw_crc32c;
use crate::key::{DiskKey, item};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An EXTENT_DATA item. Inline data begin at [`FILE_EXTENT_INLINE_START`], where `disk_bytenr` would be.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, PartialEq, Eq)]
pub struct FileExtentItem {
    pub generation: U64,
    pub ram_bytes: U64,
    pub compression: u8,
    pub encryption: u8,
    pub other_encoding: U16,
    pub kind: u8,
    pub disk_bytenr: U64,
    pub disk_num_bytes: U64,
    pub offset: U64,
    pub num_bytes: U64,
}

/// The part of a file extent item that inline extents have too.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct FileExtentHead {
    pub generation: U64,
    pub ram_bytes: U64,
    pub compression: u8,
    pub encryption: u8,
    pub other_encoding: U16,
    pub kind: u8,
}

/// Where inline data begin in an EXTENT_DATA item.
pub const FILE_EXTENT_INLINE_START: usize = 21;
const _: () = assert!(size_of::<FileExtentItem>() == 53);
const _: () = assert!(size_of::<FileExtentHead>() == FILE_EXTENT_INLINE_START);

/// Kinds of file extents.
pub mod file_extent {
    pub const INLINE: u8 = 0;
    pub const REG: u8 = 1;
    pub const PREALLOC: u8 = 2;
}

/// Compression types of file extents.
pub mod compression {
    pub const NONE: u8 = 0;
    pub const ZLIB: u8 = 1;
    pub const LZO: u8 = 2;
    pub const ZSTD: u8 = 3;
}

/// The fixed part of an EXTENT_ITEM or METADATA_ITEM; inline references follow.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct ExtentItem {
    pub refs: U64,
    pub generation: U64,
    pub flags: U64,
}

/// What stands before the references of a tree block's EXTENT_ITEM (not of a METADATA_ITEM).
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct TreeBlockInfo {
    pub key: DiskKey,
    pub level: u8,
}

/// A reference by (tree, inode, file offset).
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct ExtentDataRef {
    pub root: U64,
    pub objectid: U64,
    pub offset: U64,
    pub count: U32,
}

const _: () = assert!(size_of::<ExtentDataRef>() == 28);

/// Flags of extent items.
pub mod flags {
    pub const DATA: u64 = 1 << 0;
    pub const TREE_BLOCK: u64 = 1 << 1;
    /// The block's children are referenced by the block, not by its owner.
    pub const FULL_BACKREF: u64 = 1 << 8;
}

/// One back reference, inline or keyed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BackRef {
    /// A tree block of tree `root`.
    TreeBlock { root: u64 },
    /// A tree block, referenced by the block `parent`.
    SharedBlock { parent: u64 },
    /// Data of an inode of tree `root`; `offset` is the file offset minus the offset into the extent.
    Data { root: u64, objectid: u64, offset: u64 },
    /// Data, referenced by the leaf `parent`.
    SharedData { parent: u64 },
    /// The subvolume that allocated the extent (simple quota); never counted as a reference.
    Owner { root: u64 },
}

impl BackRef {
    /// The reference's item type.
    pub fn kind(self) -> u8 {
        match self {
            BackRef::TreeBlock { .. } => item::TREE_BLOCK_REF,
            BackRef::SharedBlock { .. } => item::SHARED_BLOCK_REF,
            BackRef::Data { .. } => item::EXTENT_DATA_REF,
            BackRef::SharedData { .. } => item::SHARED_DATA_REF,
            BackRef::Owner { .. } => item::EXTENT_OWNER_REF,
        }
    }

    /// What references of one type are sorted by among the inline ones, descending: the hash of a data
    /// reference, the root or parent of the others. Also the key's offset where the reference is an item.
    pub fn sort_value(self) -> u64 {
        match self {
            BackRef::TreeBlock { root } | BackRef::Owner { root } => root,
            BackRef::SharedBlock { parent } | BackRef::SharedData { parent } => parent,
            BackRef::Data { root, objectid, offset } => data_ref_hash(root, objectid, offset),
        }
    }

    /// Bytes that the reference takes inline, with its type byte.
    pub fn inline_len(self) -> usize {
        inline_ref_len(self.kind()).unwrap_or(0)
    }

    /// The inline form: type, value, and for data a count.
    pub fn inline_bytes(self, count: u32) -> Vec<u8> {
        let mut out = vec![self.kind()];
        match self {
            BackRef::TreeBlock { root } | BackRef::Owner { root } => out.extend(root.to_le_bytes()),
            BackRef::SharedBlock { parent } => out.extend(parent.to_le_bytes()),
            BackRef::Data { .. } => out.extend(self.item_bytes(count)),
            BackRef::SharedData { parent } => {
                out.extend(parent.to_le_bytes());
                out.extend(count.to_le_bytes());
            }
        }
        out
    }

    /// The data of the item that holds the reference when it does not fit inline.
    pub fn item_bytes(self, count: u32) -> Vec<u8> {
        match self {
            BackRef::Data { root, objectid, offset } => ExtentDataRef {
                root: root.into(),
                objectid: objectid.into(),
                offset: offset.into(),
                count: count.into(),
            }
            .as_bytes()
            .to_vec(),
            BackRef::SharedData { .. } => count.to_le_bytes().to_vec(),
            _ => Vec::new(),
        }
    }
}

/// Bytes of an inline reference of this type with its type byte; `None` for a type that cannot be inline.
pub fn inline_ref_len(kind: u8) -> Option<usize> {
    match kind {
        item::TREE_BLOCK_REF | item::SHARED_BLOCK_REF | item::EXTENT_OWNER_REF => Some(9),
        item::EXTENT_DATA_REF => Some(1 + size_of::<ExtentDataRef>()),
        item::SHARED_DATA_REF => Some(13),
        _ => None,
    }
}

/// The key offset of an EXTENT_DATA_REF item.
pub fn data_ref_hash(root: u64, objectid: u64, offset: u64) -> u64 {
    let high = raw_crc32c(!0, &root.to_le_bytes());
    let low = raw_crc32c(!0, &objectid.to_le_bytes());
    let low = raw_crc32c(low, &offset.to_le_bytes());
    ((high as u64) << 31) ^ low as u64
}

/// One inline reference as found: where its type byte stands in the item, what it is, and how often.
#[derive(Clone, Copy, Debug)]
pub struct InlineRef {
    pub at: usize,
    pub backref: BackRef,
    pub count: u32,
}

/// The inline references of an extent item, given the offset at which they begin. Ends early at a malformed one;
/// the tree checker refuses such an item.
pub fn inline_refs(data: &[u8], start: usize) -> impl Iterator<Item = InlineRef> + '_ {
    let mut at = start;
    std::iter::from_fn(move || {
        let kind = *data.get(at)?;
        let len = inline_ref_len(kind)?;
        let body = data.get(at + 1..at + len)?;
        let (backref, count) = parse_ref(kind, body)?;
        let found = InlineRef { at, backref, count };
        at += len;
        Some(found)
    })
}

fn parse_ref(kind: u8, body: &[u8]) -> Option<(BackRef, u32)> {
    let value = u64::from_le_bytes(body.get(..8)?.try_into().ok()?);
    Some(match kind {
        item::TREE_BLOCK_REF => (BackRef::TreeBlock { root: value }, 1),
        item::EXTENT_OWNER_REF => (BackRef::Owner { root: value }, 0),
        item::SHARED_BLOCK_REF => (BackRef::SharedBlock { parent: value }, 1),
        item::SHARED_DATA_REF => {
            let count = u32::from_le_bytes(body.get(8..12)?.try_into().ok()?);
            (BackRef::SharedData { parent: value }, count)
        }
        _ => {
            let (r, _) = ExtentDataRef::ref_from_prefix(body).ok()?;
            (data_ref(r), r.count.get())
        }
    })
}

/// The back reference that an [`ExtentDataRef`] states.
pub fn data_ref(r: &ExtentDataRef) -> BackRef {
    BackRef::Data { root: r.root.get(), objectid: r.objectid.get(), offset: r.offset.get() }
}

/// Where the inline references of an extent item begin, given its key type and flags.
pub fn inline_refs_start(key_kind: u8, flags: u64) -> usize {
    let info = key_kind == item::EXTENT_ITEM && flags & self::flags::TREE_BLOCK != 0;
    size_of::<ExtentItem>() + if info { size_of::<TreeBlockInfo>() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_references_round_trip() {
        let refs = [
            (BackRef::Data { root: 5, objectid: 257, offset: 0 }, 3),
            (BackRef::SharedData { parent: 30408704 }, 2),
        ];
        let mut bytes = vec![0; size_of::<ExtentItem>()];
        for (r, count) in refs {
            bytes.extend(r.inline_bytes(count));
        }
        let got: Vec<_> = inline_refs(&bytes, 24).map(|r| (r.backref, r.count)).collect();
        assert_eq!(got, refs);
    }
}
