//! Keys: how every item of every tree is named and sorted.

use std::fmt;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The identity of a tree: the objectid of its ROOT_ITEM.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TreeId(pub u64);

/// A tree key. Items sort by `objectid`, then `kind` (the format calls it *type*), then `offset`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Key {
    /// What the item belongs to: an inode, a tree, a logical address.
    pub objectid: u64,
    /// The item's type, one of [`item`].
    pub kind: u8,
    /// Depends on the type: a file offset, a name hash, a length.
    pub offset: u64,
}

/// A key as it stands on disk: 17 bytes, little-endian.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, Default)]
pub struct DiskKey {
    objectid: U64,
    kind: u8,
    offset: U64,
}

impl Key {
    /// The smallest key.
    pub const MIN: Key = Key { objectid: 0, kind: 0, offset: 0 };
    /// The largest key.
    pub const MAX: Key = Key { objectid: u64::MAX, kind: u8::MAX, offset: u64::MAX };

    /// Builds a key.
    pub const fn new(objectid: u64, kind: u8, offset: u64) -> Key {
        Key { objectid, kind, offset }
    }

    /// The next key in sort order; `None` after [`Key::MAX`].
    pub fn next(self) -> Option<Key> {
        if let Some(offset) = self.offset.checked_add(1) {
            return Some(Key { offset, ..self });
        }
        if let Some(kind) = self.kind.checked_add(1) {
            return Some(Key { kind, offset: 0, ..self });
        }
        Some(Key { objectid: self.objectid.checked_add(1)?, kind: 0, offset: 0 })
    }
}

impl From<DiskKey> for Key {
    fn from(k: DiskKey) -> Key {
        Key { objectid: k.objectid.get(), kind: k.kind, offset: k.offset.get() }
    }
}

impl From<Key> for DiskKey {
    fn from(k: Key) -> DiskKey {
        DiskKey { objectid: k.objectid.into(), kind: k.kind, offset: k.offset.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} {} {})", self.objectid, item::name(self.kind), self.offset)
    }
}

impl fmt::Display for TreeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match objectid::tree_name(self.0) {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Item types (`btrfs_key.type`).
pub mod item {
    pub const INODE_ITEM: u8 = 1;
    pub const INODE_REF: u8 = 12;
    pub const INODE_EXTREF: u8 = 13;
    pub const XATTR_ITEM: u8 = 24;
    pub const VERITY_DESC_ITEM: u8 = 36;
    pub const VERITY_MERKLE_ITEM: u8 = 37;
    pub const ORPHAN_ITEM: u8 = 48;
    pub const DIR_LOG_ITEM: u8 = 60;
    pub const DIR_LOG_INDEX: u8 = 72;
    pub const DIR_ITEM: u8 = 84;
    pub const DIR_INDEX: u8 = 96;
    pub const EXTENT_DATA: u8 = 108;
    pub const EXTENT_CSUM: u8 = 128;
    pub const ROOT_ITEM: u8 = 132;
    pub const ROOT_BACKREF: u8 = 144;
    pub const ROOT_REF: u8 = 156;
    pub const EXTENT_ITEM: u8 = 168;
    pub const METADATA_ITEM: u8 = 169;
    pub const EXTENT_OWNER_REF: u8 = 172;
    pub const TREE_BLOCK_REF: u8 = 176;
    pub const EXTENT_DATA_REF: u8 = 178;
    pub const SHARED_BLOCK_REF: u8 = 182;
    pub const SHARED_DATA_REF: u8 = 184;
    pub const BLOCK_GROUP_ITEM: u8 = 192;
    pub const FREE_SPACE_INFO: u8 = 198;
    pub const FREE_SPACE_EXTENT: u8 = 199;
    pub const FREE_SPACE_BITMAP: u8 = 200;
    pub const DEV_EXTENT: u8 = 204;
    pub const DEV_ITEM: u8 = 216;
    pub const CHUNK_ITEM: u8 = 228;
    pub const RAID_STRIPE: u8 = 230;
    pub const QGROUP_STATUS: u8 = 240;
    pub const QGROUP_INFO: u8 = 242;
    pub const QGROUP_LIMIT: u8 = 244;
    pub const QGROUP_RELATION: u8 = 246;
    pub const TEMPORARY_ITEM: u8 = 248;
    pub const PERSISTENT_ITEM: u8 = 249;
    pub const DEV_REPLACE: u8 = 250;
    pub const UUID_SUBVOL: u8 = 251;
    pub const UUID_RECEIVED_SUBVOL: u8 = 252;
    pub const STRING_ITEM: u8 = 253;

    /// The type's name as the format's documentation writes it; `UNKNOWN` for a type it does not have.
    pub fn name(kind: u8) -> &'static str {
        match kind {
            0 => "UNTYPED",
            INODE_ITEM => "INODE_ITEM",
            INODE_REF => "INODE_REF",
            INODE_EXTREF => "INODE_EXTREF",
            XATTR_ITEM => "XATTR_ITEM",
            VERITY_DESC_ITEM => "VERITY_DESC_ITEM",
            VERITY_MERKLE_ITEM => "VERITY_MERKLE_ITEM",
            ORPHAN_ITEM => "ORPHAN_ITEM",
            DIR_LOG_ITEM => "DIR_LOG_ITEM",
            DIR_LOG_INDEX => "DIR_LOG_INDEX",
            DIR_ITEM => "DIR_ITEM",
            DIR_INDEX => "DIR_INDEX",
            EXTENT_DATA => "EXTENT_DATA",
            EXTENT_CSUM => "EXTENT_CSUM",
            ROOT_ITEM => "ROOT_ITEM",
            ROOT_BACKREF => "ROOT_BACKREF",
            ROOT_REF => "ROOT_REF",
            EXTENT_ITEM => "EXTENT_ITEM",
            METADATA_ITEM => "METADATA_ITEM",
            EXTENT_OWNER_REF => "EXTENT_OWNER_REF",
            TREE_BLOCK_REF => "TREE_BLOCK_REF",
            EXTENT_DATA_REF => "EXTENT_DATA_REF",
            SHARED_BLOCK_REF => "SHARED_BLOCK_REF",
            SHARED_DATA_REF => "SHARED_DATA_REF",
            BLOCK_GROUP_ITEM => "BLOCK_GROUP_ITEM",
            FREE_SPACE_INFO => "FREE_SPACE_INFO",
            FREE_SPACE_EXTENT => "FREE_SPACE_EXTENT",
            FREE_SPACE_BITMAP => "FREE_SPACE_BITMAP",
            DEV_EXTENT => "DEV_EXTENT",
            DEV_ITEM => "DEV_ITEM",
            CHUNK_ITEM => "CHUNK_ITEM",
            RAID_STRIPE => "RAID_STRIPE",
            QGROUP_STATUS => "QGROUP_STATUS",
            QGROUP_INFO => "QGROUP_INFO",
            QGROUP_LIMIT => "QGROUP_LIMIT",
            QGROUP_RELATION => "QGROUP_RELATION",
            TEMPORARY_ITEM => "TEMPORARY_ITEM",
            PERSISTENT_ITEM => "PERSISTENT_ITEM",
            DEV_REPLACE => "DEV_REPLACE",
            UUID_SUBVOL => "UUID_KEY_SUBVOL",
            UUID_RECEIVED_SUBVOL => "UUID_KEY_RECEIVED_SUBVOL",
            STRING_ITEM => "STRING_ITEM",
            _ => "UNKNOWN",
        }
    }
}

/// Well-known object ids, trees above all.
pub mod objectid {
    pub const ROOT_TREE: u64 = 1;
    pub const EXTENT_TREE: u64 = 2;
    pub const CHUNK_TREE: u64 = 3;
    pub const DEV_TREE: u64 = 4;
    pub const FS_TREE: u64 = 5;
    pub const ROOT_TREE_DIR: u64 = 6;
    pub const CSUM_TREE: u64 = 7;
    pub const QUOTA_TREE: u64 = 8;
    pub const UUID_TREE: u64 = 9;
    pub const FREE_SPACE_TREE: u64 = 10;
    pub const BLOCK_GROUP_TREE: u64 = 11;
    pub const RAID_STRIPE_TREE: u64 = 12;
    pub const DEV_STATS: u64 = 0;
    pub const BALANCE: u64 = -4i64 as u64;
    pub const ORPHAN: u64 = -5i64 as u64;
    pub const TREE_LOG: u64 = -6i64 as u64;
    pub const TREE_LOG_FIXUP: u64 = -7i64 as u64;
    pub const TREE_RELOC: u64 = -8i64 as u64;
    pub const DATA_RELOC_TREE: u64 = -9i64 as u64;
    pub const EXTENT_CSUM: u64 = -10i64 as u64;
    pub const FREE_SPACE: u64 = -11i64 as u64;
    pub const FREE_INO: u64 = -12i64 as u64;
    pub const MULTIPLE: u64 = -255i64 as u64;
    /// The first objectid of inodes and of subvolumes (256).
    pub const FIRST_FREE: u64 = 256;
    /// The last objectid of inodes and of subvolumes.
    pub const LAST_FREE: u64 = -256i64 as u64;
    /// The objectid of every CHUNK_ITEM.
    pub const FIRST_CHUNK_TREE: u64 = 256;
    /// The objectid of every DEV_ITEM.
    pub const DEV_ITEMS: u64 = 1;
    /// The inode that stands for a nested subvolume in a snapshot of its parent.
    pub const EMPTY_SUBVOL_DIR: u64 = 2;

    /// The tree's name, for the trees that have one.
    pub fn tree_name(id: u64) -> Option<&'static str> {
        Some(match id {
            ROOT_TREE => "ROOT_TREE",
            EXTENT_TREE => "EXTENT_TREE",
            CHUNK_TREE => "CHUNK_TREE",
            DEV_TREE => "DEV_TREE",
            FS_TREE => "FS_TREE",
            CSUM_TREE => "CSUM_TREE",
            QUOTA_TREE => "QUOTA_TREE",
            UUID_TREE => "UUID_TREE",
            FREE_SPACE_TREE => "FREE_SPACE_TREE",
            BLOCK_GROUP_TREE => "BLOCK_GROUP_TREE",
            RAID_STRIPE_TREE => "RAID_STRIPE_TREE",
            TREE_LOG => "TREE_LOG",
            TREE_RELOC => "TREE_RELOC",
            DATA_RELOC_TREE => "DATA_RELOC_TREE",
            _ => return None,
        })
    }

    /// Whether a tree with this id holds files: the top-level subvolume or one made by a user.
    pub fn is_subvolume(id: u64) -> bool {
        id == FS_TREE || (FIRST_FREE..=LAST_FREE).contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_the_format_says() {
        let mut keys = [Key::new(5, 1, 0), Key::new(4, 200, 9), Key::new(5, 1, 1), Key::new(5, 0, 7)];
        keys.sort();
        assert_eq!(keys, [Key::new(4, 200, 9), Key::new(5, 0, 7), Key::new(5, 1, 0), Key::new(5, 1, 1)]);
    }

    #[test]
    fn next_carries_over_each_field() {
        assert_eq!(Key::new(1, 2, 3).next(), Some(Key::new(1, 2, 4)));
        assert_eq!(Key::new(1, 2, u64::MAX).next(), Some(Key::new(1, 3, 0)));
        assert_eq!(Key::new(1, 255, u64::MAX).next(), Some(Key::new(2, 0, 0)));
        assert_eq!(Key::MAX.next(), None);
    }
}
