//! Names instead of numbers: object ids, item types, keys, types of block groups.

use buttery_disk::{Key, item, objectid};
use std::fmt;

/// Items of checksums of a form that was never released.
pub const CSUM_ITEM: u8 = 120;
/// Back references of the first format version.
pub const EXTENT_REF_V0: u8 = 180;
/// The object id of an ongoing change of the checksum type.
pub const CSUM_CHANGE: u64 = -13i64 as u64;

/// A key as it stands between brackets, without them: `FS_TREE ROOT_ITEM 0`.
#[derive(Clone, Copy)]
pub struct KeyText(pub Key);

/// An object id: its name where it has one. What it names depends on the item's type; use 0 for a tree.
#[derive(Clone, Copy)]
pub struct ObjectIdText {
    pub id: u64,
    pub kind: u8,
}

/// The object id of a tree.
pub fn tree(id: u64) -> ObjectIdText {
    ObjectIdText { id, kind: 0 }
}

/// The name of an object id, whatever the item.
fn objectid_name(id: u64) -> Option<&'static str> {
    Some(match id {
        objectid::ROOT_TREE_DIR => "ROOT_TREE_DIR",
        objectid::BALANCE => "BALANCE",
        objectid::ORPHAN => "ORPHAN",
        objectid::TREE_LOG_FIXUP => "LOG_FIXUP",
        objectid::EXTENT_CSUM => "EXTENT_CSUM",
        objectid::FREE_SPACE => "FREE_SPACE",
        objectid::FREE_INO => "FREE_INO",
        CSUM_CHANGE => "CSUM_CHANGE",
        objectid::MULTIPLE => "MULTIPLE",
        u64::MAX => "-1",
        _ => return objectid::tree_name(id),
    })
}

/// A qgroup's id: level and number.
struct QgroupId(u64);

impl fmt::Display for QgroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0 >> 48, self.0 & ((1 << 48) - 1))
    }
}

impl fmt::Display for ObjectIdText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.id;
        match (self.kind, id) {
            (item::UUID_SUBVOL | item::UUID_RECEIVED_SUBVOL, _) => return write!(f, "0x{id:016x}"),
            (item::QGROUP_RELATION, _) => return write!(f, "{}", QgroupId(id)),
            (item::PERSISTENT_ITEM, objectid::DEV_STATS) => return f.write_str("DEV_STATS"),
            (item::PERSISTENT_ITEM | item::DEV_EXTENT, _) => return write!(f, "{id}"),
            (item::DEV_ITEM, objectid::DEV_ITEMS) => return f.write_str("DEV_ITEMS"),
            (item::CHUNK_ITEM, objectid::FIRST_CHUNK_TREE) => return f.write_str("FIRST_CHUNK_TREE"),
            _ => {}
        }
        match objectid_name(id) {
            Some(name) => f.write_str(name),
            None => write!(f, "{id}"),
        }
    }
}

/// An item's type.
struct KindText(Key);

impl fmt::Display for KindText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.0.kind;
        match (kind, item::name(kind)) {
            (0, _) if self.0.objectid == objectid::FREE_SPACE => f.write_str("UNTYPED"),
            (CSUM_ITEM, _) => f.write_str("CSUM_ITEM"),
            (EXTENT_REF_V0, _) => f.write_str("EXTENT_REF_V0"),
            (0, _) | (_, "UNKNOWN") => write!(f, "UNKNOWN.{kind}"),
            (_, name) => f.write_str(name),
        }
    }
}

/// A key's offset.
struct OffsetText(Key);

impl fmt::Display for OffsetText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key { objectid, kind, offset } = self.0;
        match kind {
            item::QGROUP_RELATION | item::QGROUP_INFO | item::QGROUP_LIMIT => {
                write!(f, "{}", QgroupId(offset))
            }
            item::UUID_SUBVOL | item::UUID_RECEIVED_SUBVOL => write!(f, "0x{offset:016x}"),
            item::ROOT_ITEM if objectid == objectid::TREE_RELOC => write!(f, "{}", tree(offset)),
            item::ROOT_ITEM => write!(f, "{offset}"),
            _ if offset == u64::MAX => f.write_str("-1"),
            _ => write!(f, "{offset}"),
        }
    }
}

impl fmt::Display for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = ObjectIdText { id: self.0.objectid, kind: self.0.kind };
        write!(f, "{id} {} {}", KindText(self.0), OffsetText(self.0))
    }
}

/// The type and profile of a chunk or block group: `METADATA|DUP`.
pub struct BlockGroupFlags(pub u64);

impl fmt::Display for BlockGroupFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use buttery_disk::chunk::bg;
        let mut kinds = Vec::new();
        for (bit, name) in [(bg::DATA, "DATA"), (bg::METADATA, "METADATA"), (bg::SYSTEM, "SYSTEM")] {
            if self.0 & bit != 0 {
                kinds.push(name);
            }
        }
        // of several profiles, which no valid chunk has, one is named
        let profiles = [
            (bg::RAID10, "RAID10"),
            (bg::RAID1, "RAID1"),
            (bg::RAID1C3, "RAID1C3"),
            (bg::RAID1C4, "RAID1C4"),
            (bg::DUP, "DUP"),
            (bg::RAID0, "RAID0"),
            (bg::RAID5, "RAID5"),
            (bg::RAID6, "RAID6"),
        ];
        let profile = profiles.iter().find(|(bit, _)| self.0 & bit != 0).map_or("single", |&(_, name)| name);
        write!(f, "{}|{profile}", kinds.join("|"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use buttery_disk::chunk::bg;

    fn key(objectid: i64, kind: u8, offset: i64) -> String {
        KeyText(Key::new(objectid as u64, kind, offset as u64)).to_string()
    }

    #[test]
    fn keys_name_what_they_can() {
        assert_eq!(key(5, item::ROOT_ITEM, 0), "FS_TREE ROOT_ITEM 0");
        assert_eq!(key(-8, item::ROOT_ITEM, 5), "TREE_RELOC ROOT_ITEM FS_TREE");
        assert_eq!(key(5, item::ROOT_ITEM, -1), "FS_TREE ROOT_ITEM 18446744073709551615");
        assert_eq!(key(300, item::EXTENT_DATA, -1), "300 EXTENT_DATA -1");
        assert_eq!(key(1, item::DEV_ITEM, 1), "DEV_ITEMS DEV_ITEM 1");
        assert_eq!(key(1, item::DEV_EXTENT, 7), "1 DEV_EXTENT 7");
        assert_eq!(key(256, item::CHUNK_ITEM, 7), "FIRST_CHUNK_TREE CHUNK_ITEM 7");
        assert_eq!(key(0, item::PERSISTENT_ITEM, 1), "DEV_STATS PERSISTENT_ITEM 1");
        assert_eq!(key(-11, 0, 4096), "FREE_SPACE UNTYPED 4096");
        assert_eq!(key(7, 0, 4096), "CSUM_TREE UNKNOWN.0 4096");
        assert_eq!(key(7, 229, 1), "CSUM_TREE UNKNOWN.229 1");
    }

    #[test]
    fn qgroups_and_uuids_have_their_own_forms() {
        assert_eq!(key(0, item::QGROUP_INFO, 3 << 48 | 7), "0 QGROUP_INFO 3/7");
        assert_eq!(key(256, item::QGROUP_RELATION, 1 << 48), "0/256 QGROUP_RELATION 1/0");
        assert_eq!(key(1, item::UUID_SUBVOL, 255), "0x0000000000000001 UUID_KEY_SUBVOL 0x00000000000000ff");
    }

    #[test]
    fn block_groups_have_a_type_and_one_profile() {
        assert_eq!(BlockGroupFlags(bg::DATA).to_string(), "DATA|single");
        assert_eq!(BlockGroupFlags(bg::SYSTEM | bg::DUP).to_string(), "SYSTEM|DUP");
        assert_eq!(BlockGroupFlags(bg::RAID1 | bg::RAID0).to_string(), "|RAID1");
    }
}
