//! The superblock: 4 KiB at 64 KiB, 64 MiB and 256 GiB of each device.
//!
//! ```text
//!    0 csum[32]   32 fsid[16]   48 bytenr   56 flags   64 magic   72 generation   80 root
//!   88 chunk_root 96 log_root  104 (log_root_transid) 112 total_bytes 120 bytes_used
//!  128 root_dir  136 num_devices 144 sectorsize 148 nodesize 152 leafsize 156 stripesize
//!  160 sys_chunk_array_size 164 chunk_root_generation 172 compat 180 compat_ro 188 incompat
//!  196 csum_type 198 levels[3] 201 dev_item[98] 299 label[256] 555 cache_generation
//!  563 uuid_tree_generation 571 metadata_uuid[16] 587 nr_global_roots ... 811 sys_chunk_array[2048]
//! 2859 super_roots[4] (168 bytes each) ... 4096
//! ```

use crate::chunk::DevItem;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `_BHRfS_M`, little-endian.
pub const MAGIC: u64 = 0x4D5F_5366_5248_425F;
/// The magic number of a file system whose making was not finished.
pub const MAGIC_UNFINISHED: u64 = 0x4D5F_5366_5248_4221;
/// Bytes in a superblock.
pub const SIZE: usize = 4096;
/// Bytes in the system chunk array.
pub const SYS_CHUNK_ARRAY_SIZE: usize = 2048;
/// Where the copies stand on each device, in bytes from its beginning.
pub const OFFSETS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];

/// The superblock as it stands on disk.
#[repr(C)]
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Superblock {
    pub csum: [u8; 32],
    pub fsid: [u8; 16],
    pub bytenr: U64,
    pub flags: U64,
    pub magic: U64,
    pub generation: U64,
    pub root: U64,
    pub chunk_root: U64,
    pub log_root: U64,
    pub unused_log_root_transid: U64,
    pub total_bytes: U64,
    pub bytes_used: U64,
    pub root_dir_objectid: U64,
    pub num_devices: U64,
    pub sectorsize: U32,
    pub nodesize: U32,
    pub leafsize: U32,
    pub stripesize: U32,
    pub sys_chunk_array_size: U32,
    pub chunk_root_generation: U64,
    pub compat_flags: U64,
    pub compat_ro_flags: U64,
    pub incompat_flags: U64,
    pub csum_type: U16,
    pub root_level: u8,
    pub chunk_root_level: u8,
    pub log_root_level: u8,
    pub dev_item: DevItem,
    pub label: [u8; 256],
    pub cache_generation: U64,
    pub uuid_tree_generation: U64,
    pub metadata_uuid: [u8; 16],
    pub nr_global_roots: U64,
    pub remap_root: U64,
    pub remap_root_generation: U64,
    pub remap_root_level: u8,
    pub reserved: [u8; 199],
    pub sys_chunk_array: [u8; SYS_CHUNK_ARRAY_SIZE],
    pub super_roots: [RootBackup; 4],
    pub padding: [u8; 565],
}

/// Where the trees stood at one of the last four commits.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct RootBackup {
    pub tree_root: U64,
    pub tree_root_gen: U64,
    pub chunk_root: U64,
    pub chunk_root_gen: U64,
    pub extent_root: U64,
    pub extent_root_gen: U64,
    pub fs_root: U64,
    pub fs_root_gen: U64,
    pub dev_root: U64,
    pub dev_root_gen: U64,
    pub csum_root: U64,
    pub csum_root_gen: U64,
    pub total_bytes: U64,
    pub bytes_used: U64,
    pub num_devices: U64,
    pub unused_64: [U64; 4],
    pub tree_root_level: u8,
    pub chunk_root_level: u8,
    pub extent_root_level: u8,
    pub fs_root_level: u8,
    pub dev_root_level: u8,
    pub csum_root_level: u8,
    pub unused_8: [u8; 10],
}

const _: () = assert!(size_of::<Superblock>() == SIZE);
const _: () = assert!(size_of::<RootBackup>() == 168);

/// Features that a reader must know (`incompat_flags`).
pub mod incompat {
    pub const MIXED_BACKREF: u64 = 1 << 0;
    pub const DEFAULT_SUBVOL: u64 = 1 << 1;
    pub const MIXED_GROUPS: u64 = 1 << 2;
    pub const COMPRESS_LZO: u64 = 1 << 3;
    pub const COMPRESS_ZSTD: u64 = 1 << 4;
    pub const BIG_METADATA: u64 = 1 << 5;
    pub const EXTENDED_IREF: u64 = 1 << 6;
    pub const RAID56: u64 = 1 << 7;
    pub const SKINNY_METADATA: u64 = 1 << 8;
    pub const NO_HOLES: u64 = 1 << 9;
    pub const METADATA_UUID: u64 = 1 << 10;
    pub const RAID1C34: u64 = 1 << 11;
    pub const ZONED: u64 = 1 << 12;
    pub const EXTENT_TREE_V2: u64 = 1 << 13;
    pub const RAID_STRIPE_TREE: u64 = 1 << 14;
    pub const SIMPLE_QUOTA: u64 = 1 << 16;
    pub const REMAP_TREE: u64 = 1 << 17;

    /// What reading understands.
    pub const READABLE: u64 = MIXED_BACKREF
        | DEFAULT_SUBVOL
        | MIXED_GROUPS
        | COMPRESS_LZO
        | COMPRESS_ZSTD
        | BIG_METADATA
        | EXTENDED_IREF
        | RAID56
        | SKINNY_METADATA
        | NO_HOLES
        | METADATA_UUID
        | RAID1C34
        | SIMPLE_QUOTA;

    /// The names of the bits, as the kernel writes them under `/sys/fs/btrfs/features`, upper case.
    pub const NAMES: [(u64, &str); 17] = [
        (MIXED_BACKREF, "MIXED_BACKREF"),
        (DEFAULT_SUBVOL, "DEFAULT_SUBVOL"),
        (MIXED_GROUPS, "MIXED_GROUPS"),
        (COMPRESS_LZO, "COMPRESS_LZO"),
        (COMPRESS_ZSTD, "COMPRESS_ZSTD"),
        (BIG_METADATA, "BIG_METADATA"),
        (EXTENDED_IREF, "EXTENDED_IREF"),
        (RAID56, "RAID56"),
        (SKINNY_METADATA, "SKINNY_METADATA"),
        (NO_HOLES, "NO_HOLES"),
        (METADATA_UUID, "METADATA_UUID"),
        (RAID1C34, "RAID1C34"),
        (ZONED, "ZONED"),
        (EXTENT_TREE_V2, "EXTENT_TREE_V2"),
        (RAID_STRIPE_TREE, "RAID_STRIPE_TREE"),
        (SIMPLE_QUOTA, "SIMPLE_QUOTA"),
        (REMAP_TREE, "REMAP_TREE"),
    ];

    /// The bits of `flags`, by name.
    pub fn names(flags: u64) -> String {
        super::bit_names(flags, &NAMES)
    }
}

/// Features that a writer must know (`compat_ro_flags`).
pub mod compat_ro {
    pub const FREE_SPACE_TREE: u64 = 1 << 0;
    pub const FREE_SPACE_TREE_VALID: u64 = 1 << 1;
    pub const VERITY: u64 = 1 << 2;
    pub const BLOCK_GROUP_TREE: u64 = 1 << 3;
    /// What writing understands.
    pub const WRITABLE: u64 = FREE_SPACE_TREE | FREE_SPACE_TREE_VALID | VERITY | BLOCK_GROUP_TREE;

    /// The names of the bits.
    pub const NAMES: [(u64, &str); 4] = [
        (FREE_SPACE_TREE, "FREE_SPACE_TREE"),
        (FREE_SPACE_TREE_VALID, "FREE_SPACE_TREE_VALID"),
        (VERITY, "VERITY"),
        (BLOCK_GROUP_TREE, "BLOCK_GROUP_TREE"),
    ];

    /// The bits of `flags`, by name.
    pub fn names(flags: u64) -> String {
        super::bit_names(flags, &NAMES)
    }
}

/// States of the whole file system (`flags`).
pub mod flags {
    pub const WRITTEN: u64 = 1 << 0;
    pub const RELOC: u64 = 1 << 1;
    pub const ERROR: u64 = 1 << 2;
    pub const SEEDING: u64 = 1 << 32;
    pub const METADUMP: u64 = 1 << 33;
    pub const METADUMP_V2: u64 = 1 << 34;
    pub const CHANGING_FSID: u64 = 1 << 35;
    pub const CHANGING_FSID_V2: u64 = 1 << 36;
    pub const CHANGING_BG_TREE: u64 = 1 << 38;
    pub const CHANGING_DATA_CSUM: u64 = 1 << 39;
    pub const CHANGING_META_CSUM: u64 = 1 << 40;
}

fn bit_names(flags: u64, names: &[(u64, &str)]) -> String {
    let mut out: Vec<String> =
        names.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| name.to_string()).collect();
    let known = names.iter().fold(0, |all, (bit, _)| all | bit);
    if flags & !known != 0 {
        out.push(format!("unknown bits {:#x}", flags & !known));
    }
    out.join(", ")
}

impl Superblock {
    /// All zero bytes.
    pub fn zeroed() -> Superblock {
        Superblock::read_from_bytes(&[0u8; SIZE]).expect("the size is the structure's")
    }

    /// Reads a superblock out of its 4096 bytes; `None` for another length.
    pub fn parse(bytes: &[u8]) -> Option<Superblock> {
        Superblock::read_from_bytes(bytes).ok()
    }

    /// The used part of the system chunk array; the whole array if the recorded size exceeds it.
    pub fn sys_chunks(&self) -> &[u8] {
        let len = (self.sys_chunk_array_size.get() as usize).min(SYS_CHUNK_ARRAY_SIZE);
        &self.sys_chunk_array[..len]
    }

    /// The uuid that tree blocks carry: `metadata_uuid` where that feature is on, else `fsid`.
    pub fn block_fsid(&self) -> [u8; 16] {
        if self.has_incompat(incompat::METADATA_UUID) { self.metadata_uuid } else { self.fsid }
    }

    /// Whether an incompat feature is on.
    pub fn has_incompat(&self, bit: u64) -> bool {
        self.incompat_flags.get() & bit != 0
    }

    /// Whether a compat_ro feature is on.
    pub fn has_compat_ro(&self, bit: u64) -> bool {
        self.compat_ro_flags.get() & bit != 0
    }

    /// The label up to its first NUL.
    pub fn label(&self) -> &[u8] {
        let end = self.label.iter().position(|&b| b == 0).unwrap_or(self.label.len());
        &self.label[..end]
    }
}
