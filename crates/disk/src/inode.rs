//! Inodes and their names' back links.

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Seconds and nanoseconds since 1970.
#[repr(C)]
#[derive(
    Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Default, Debug, PartialEq, Eq,
)]
pub struct Timespec {
    pub sec: I64,
    pub nsec: U32,
}

/// An INODE_ITEM.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Default, Debug)]
pub struct InodeItem {
    pub generation: U64,
    pub transid: U64,
    pub size: U64,
    pub nbytes: U64,
    pub block_group: U64,
    pub nlink: U32,
    pub uid: U32,
    pub gid: U32,
    pub mode: U32,
    pub rdev: U64,
    pub flags: U64,
    pub sequence: U64,
    pub reserved: [U64; 4],
    pub atime: Timespec,
    pub ctime: Timespec,
    pub mtime: Timespec,
    pub otime: Timespec,
}

/// The fixed part of one entry of an INODE_REF; the name follows.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct InodeRef {
    pub index: U64,
    pub name_len: U16,
}

/// The fixed part of one entry of an INODE_EXTREF; the name follows.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct InodeExtref {
    pub parent: U64,
    pub index: U64,
    pub name_len: U16,
}

const _: () = assert!(size_of::<InodeItem>() == 160);
const _: () = assert!(size_of::<InodeRef>() == 10);
const _: () = assert!(size_of::<InodeExtref>() == 18);

/// Inode flags (`InodeItem::flags`).
pub mod flags {
    pub const NODATASUM: u64 = 1 << 0;
    pub const NODATACOW: u64 = 1 << 1;
    pub const READONLY: u64 = 1 << 2;
    pub const NOCOMPRESS: u64 = 1 << 3;
    pub const PREALLOC: u64 = 1 << 4;
    pub const SYNC: u64 = 1 << 5;
    pub const IMMUTABLE: u64 = 1 << 6;
    pub const APPEND: u64 = 1 << 7;
    pub const NODUMP: u64 = 1 << 8;
    pub const NOATIME: u64 = 1 << 9;
    pub const DIRSYNC: u64 = 1 << 10;
    pub const COMPRESS: u64 = 1 << 11;
    pub const ROOT_ITEM_INIT: u64 = 1 << 31;
    /// The read-only-compatible flags, in the upper half.
    pub const RO_VERITY: u64 = 1 << 32;
    /// Every flag of the lower half that the format knows.
    pub const MASK: u64 = 0xfff | ROOT_ITEM_INIT;
}

/// File types of `st_mode`.
pub mod mode {
    pub const FMT: u32 = 0o170000;
    pub const SOCK: u32 = 0o140000;
    pub const LNK: u32 = 0o120000;
    pub const REG: u32 = 0o100000;
    pub const BLK: u32 = 0o060000;
    pub const DIR: u32 = 0o040000;
    pub const CHR: u32 = 0o020000;
    pub const FIFO: u32 = 0o010000;
}

impl Timespec {
    /// Builds a time.
    pub fn new(sec: i64, nsec: u32) -> Timespec {
        Timespec { sec: sec.into(), nsec: nsec.into() }
    }
}

/// The entries of an INODE_REF item: (index, name). Ends early at a malformed entry.
pub fn inode_refs(mut item: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        let (fixed, rest) = InodeRef::ref_from_prefix(item).ok()?;
        let name = rest.get(..fixed.name_len.get() as usize)?;
        item = &rest[name.len()..];
        Some((fixed.index.get(), name))
    })
}

/// The entries of an INODE_EXTREF item: (parent, index, name). Ends early at a malformed entry.
pub fn inode_extrefs(mut item: &[u8]) -> impl Iterator<Item = (u64, u64, &[u8])> {
    std::iter::from_fn(move || {
        let (fixed, rest) = InodeExtref::ref_from_prefix(item).ok()?;
        let name = rest.get(..fixed.name_len.get() as usize)?;
        item = &rest[name.len()..];
        Some((fixed.parent.get(), fixed.index.get(), name))
    })
}
