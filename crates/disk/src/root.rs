//! Roots: where each tree begins, and how subvolumes hang together.

use crate::inode::{InodeItem, Timespec};
use crate::key::DiskKey;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A ROOT_ITEM. Old kernels wrote only the first 239 bytes: see [`RootItem::parse`].
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct RootItem {
    pub inode: InodeItem,
    pub generation: U64,
    pub root_dirid: U64,
    pub bytenr: U64,
    pub byte_limit: U64,
    pub bytes_used: U64,
    pub last_snapshot: U64,
    pub flags: U64,
    pub refs: U32,
    pub drop_progress: DiskKey,
    pub drop_level: u8,
    pub level: u8,
    pub generation_v2: U64,
    pub uuid: [u8; 16],
    pub parent_uuid: [u8; 16],
    pub received_uuid: [u8; 16],
    pub ctransid: U64,
    pub otransid: U64,
    pub stransid: U64,
    pub rtransid: U64,
    pub ctime: Timespec,
    pub otime: Timespec,
    pub stime: Timespec,
    pub rtime: Timespec,
    pub reserved: [U64; 8],
}

/// The length of a ROOT_ITEM before `generation_v2` was added.
pub const ROOT_ITEM_V0_LEN: usize = 239;
const _: () = assert!(size_of::<RootItem>() == 439);

/// The fixed part of a ROOT_REF or ROOT_BACKREF; the name follows.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct RootRef {
    pub dirid: U64,
    pub sequence: U64,
    pub name_len: U16,
}

/// [`RootItem::flags`].
pub mod flags {
    pub const RDONLY: u64 = 1 << 0;
    pub const DEAD: u64 = 1 << 48;
}

impl RootItem {
    /// Reads a root item of either length; a short one, or one whose `generation_v2` shows that an old kernel
    /// wrote over it, has zeros for what came later. `None` when shorter than 239 bytes.
    pub fn parse(item: &[u8]) -> Option<RootItem> {
        if item.len() < ROOT_ITEM_V0_LEN {
            return None;
        }
        let mut bytes = [0u8; size_of::<RootItem>()];
        let len = item.len().min(bytes.len());
        bytes[..len].copy_from_slice(&item[..len]);
        let root = RootItem::read_from_bytes(&bytes).ok()?;
        if root.generation_v2 != root.generation {
            bytes[ROOT_ITEM_V0_LEN..].fill(0);
            return RootItem::read_from_bytes(&bytes).ok();
        }
        Some(root)
    }

    /// A root item of zeros.
    pub fn zeroed() -> RootItem {
        RootItem::read_from_bytes(&[0u8; size_of::<RootItem>()]).expect("the size is the structure's")
    }
}

impl RootRef {
    /// The fixed part and the name; `None` if the item is too short.
    pub fn parse(item: &[u8]) -> Option<(&RootRef, &[u8])> {
        let (fixed, rest) = RootRef::ref_from_prefix(item).ok()?;
        let name = rest.get(..fixed.name_len.get() as usize)?;
        Some((fixed, name))
    }
}
