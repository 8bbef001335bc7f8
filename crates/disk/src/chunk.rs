//! Chunks, devices and block groups: how logical addresses lie on devices.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A device, in the chunk tree and in its own superblock.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct DevItem {
    pub devid: U64,
    pub total_bytes: U64,
    pub bytes_used: U64,
    pub io_align: U32,
    pub io_width: U32,
    pub sector_size: U32,
    pub kind: U64,
    pub generation: U64,
    pub start_offset: U64,
    pub dev_group: U32,
    pub seek_speed: u8,
    pub bandwidth: u8,
    pub uuid: [u8; 16],
    pub fsid: [u8; 16],
}

/// The fixed part of a CHUNK_ITEM; `num_stripes` [`Stripe`]s follow.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct ChunkItem {
    pub length: U64,
    pub owner: U64,
    pub stripe_len: U64,
    pub kind: U64,
    pub io_align: U32,
    pub io_width: U32,
    pub sector_size: U32,
    pub num_stripes: U16,
    pub sub_stripes: U16,
}

/// One place of a chunk on a device.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Stripe {
    pub devid: U64,
    pub offset: U64,
    pub dev_uuid: [u8; 16],
}

/// A DEV_EXTENT: which chunk occupies a part of a device. The key's offset is its physical address.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct DevExtent {
    pub chunk_tree: U64,
    pub chunk_objectid: U64,
    pub chunk_offset: U64,
    pub length: U64,
    pub chunk_tree_uuid: [u8; 16],
}

/// A BLOCK_GROUP_ITEM; its key is (logical address, type, length).
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct BlockGroupItem {
    pub used: U64,
    pub chunk_objectid: U64,
    pub flags: U64,
}

/// A FREE_SPACE_INFO of the free-space tree.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct FreeSpaceInfo {
    pub extent_count: U32,
    pub flags: U32,
}

/// [`FreeSpaceInfo::flags`]: the block group's free space is kept in bitmaps.
pub const FREE_SPACE_USING_BITMAPS: u32 = 1;
/// Bytes of one full FREE_SPACE_BITMAP item.
pub const FREE_SPACE_BITMAP_SIZE: usize = 256;

const _: () = assert!(size_of::<DevItem>() == 98);
const _: () = assert!(size_of::<ChunkItem>() == 48);
const _: () = assert!(size_of::<Stripe>() == 32);
const _: () = assert!(size_of::<DevExtent>() == 48);
const _: () = assert!(size_of::<BlockGroupItem>() == 24);

/// Type and profile bits of chunks and block groups.
pub mod bg {
    pub const DATA: u64 = 1 << 0;
    pub const SYSTEM: u64 = 1 << 1;
    pub const METADATA: u64 = 1 << 2;
    pub const RAID0: u64 = 1 << 3;
    pub const RAID1: u64 = 1 << 4;
    pub const DUP: u64 = 1 << 5;
    pub const RAID10: u64 = 1 << 6;
    pub const RAID5: u64 = 1 << 7;
    pub const RAID6: u64 = 1 << 8;
    pub const RAID1C3: u64 = 1 << 9;
    pub const RAID1C4: u64 = 1 << 10;
    pub const TYPE_MASK: u64 = DATA | SYSTEM | METADATA;
    pub const PROFILE_MASK: u64 = RAID0 | RAID1 | DUP | RAID10 | RAID5 | RAID6 | RAID1C3 | RAID1C4;

    /// The profile's name as mkfs.btrfs writes it.
    pub fn profile_name(flags: u64) -> &'static str {
        match flags & PROFILE_MASK {
            0 => "single",
            RAID0 => "raid0",
            RAID1 => "raid1",
            DUP => "dup",
            RAID10 => "raid10",
            RAID5 => "raid5",
            RAID6 => "raid6",
            RAID1C3 => "raid1c3",
            RAID1C4 => "raid1c4",
            _ => "invalid",
        }
    }
}
