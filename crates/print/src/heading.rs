//! The lines around the blocks of a dump, and which trees each option of `dump-tree` walks.
//!
//! A dump begins with the program's version (`btrfs-progs v6.14`), the caller's line. Then, as far as
//! [`Selection::shows`] says so:
//!
//! 1. the root tree, the chunk tree, and the log root tree if the superblock has one, each under a
//!    [`heading`] without a key;
//! 2. for `-t block-group` only: the block group tree, also without a key. If there is none, nothing but the error
//!    `ERROR: cannot print block group tree, invalid pointer`, before the version;
//! 3. the tree of each ROOT_ITEM of the root tree, in the order of the keys, under a heading with the key. All of
//!    them, deleted subvolumes and relocation trees too;
//! 4. the tree of each ROOT_ITEM of the log root tree;
//! 5. with `-R`, [`backup_roots`]; and where [`Selection::has_totals`] says so, [`totals`].
//!
//! The blocks of a tree follow its heading breadth first (`--bfs`, the default): the root, then the whole level
//! below it from left to right, and so on. `--dfs` prints each block before its children, child by child. A block
//! that cannot be read is reported on standard error and left out, with what is below it. With `-e` only the leaves
//! are printed, from left to right.
//!
//! With `-r` and `-R` no block is printed, only [`root_line`] in place of each heading. With `-b BLOCK`, which may be
//! given more than once, blocks are printed without headings and totals in the order of their addresses, with
//! `--follow` each with all that is below it; the program warns of an address given twice
//! (`WARNING: tree block bytenr N is duplicated`) and refuses one that is not a multiple of the sector size.

use crate::name::{KeyText, tree};
use crate::text::Uuid;
use buttery_disk::superblock::{RootBackup, Superblock};
use buttery_disk::{Key, objectid};
use std::fmt;
use std::io::{self, Write};

/// Which trees a dump shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selection {
    /// Every tree.
    All,
    /// The extent and device trees (`-e`).
    Extents,
    /// The root, chunk, log root and device trees (`-d`).
    Devices,
    /// The address and level of each tree's root (`-r`).
    Roots,
    /// The same, and the backup roots (`-R`).
    Backups,
    /// The UUID tree (`-u`).
    Uuids,
    /// The tree or trees with this id (`-t`).
    Tree(u64),
}

impl Selection {
    /// Whether the tree of this ROOT_ITEM is shown, or one of the trees that have none (ROOT_TREE, CHUNK_TREE and, for
    /// the log root tree, TREE_LOG). `in_root_tree` tells a ROOT_ITEM of the root tree from the others.
    pub fn shows(self, id: u64, in_root_tree: bool) -> bool {
        let top =
            !in_root_tree && matches!(id, objectid::ROOT_TREE | objectid::CHUNK_TREE | objectid::TREE_LOG);
        match self {
            Selection::All | Selection::Roots | Selection::Backups => true,
            Selection::Extents => in_root_tree && matches!(id, objectid::EXTENT_TREE | objectid::DEV_TREE),
            Selection::Devices => top || (in_root_tree && id == objectid::DEV_TREE),
            Selection::Uuids => in_root_tree && id == objectid::UUID_TREE,
            Selection::Tree(wanted) => wanted == id && (in_root_tree != self.is_special()),
        }
    }

    /// Whether the one tree wanted is among those that end the dump, without totals.
    fn is_special(self) -> bool {
        let Selection::Tree(id) = self else { return false };
        use objectid::{BLOCK_GROUP_TREE, CHUNK_TREE, ROOT_TREE, TREE_LOG};
        matches!(id, ROOT_TREE | CHUNK_TREE | TREE_LOG | BLOCK_GROUP_TREE)
    }

    /// Whether the trees of the log root tree's ROOT_ITEMs are shown.
    pub fn shows_logs(self) -> bool {
        matches!(self, Selection::All | Selection::Roots | Selection::Backups)
    }

    /// Whether the dump ends with the sizes and the UUID of the file system.
    pub fn has_totals(self) -> bool {
        match self {
            Selection::All | Selection::Roots | Selection::Backups => true,
            Selection::Extents | Selection::Devices | Selection::Uuids => false,
            Selection::Tree(_) => !self.is_special(),
        }
    }

    /// Whether only leaves are printed and no nodes.
    pub fn leaves_only(self) -> bool {
        self == Selection::Extents
    }

    /// Whether a line per tree is all that is printed.
    pub fn is_short(self) -> bool {
        matches!(self, Selection::Roots | Selection::Backups)
    }
}

/// What a tree is called.
fn title(id: u64, with_key: bool) -> &'static str {
    match id {
        objectid::ROOT_TREE => "root tree",
        objectid::EXTENT_TREE => "extent tree",
        objectid::CHUNK_TREE => "chunk tree",
        objectid::DEV_TREE => "device tree",
        objectid::FS_TREE => "fs tree",
        objectid::ROOT_TREE_DIR => "directory tree",
        objectid::CSUM_TREE => "checksum tree",
        objectid::QUOTA_TREE => "quota tree",
        objectid::UUID_TREE => "uuid tree",
        objectid::FREE_SPACE_TREE => "free space tree",
        objectid::BLOCK_GROUP_TREE => "block group tree",
        objectid::RAID_STRIPE_TREE => "raid stripe tree",
        objectid::ORPHAN => "orphan tree",
        objectid::TREE_LOG if with_key => "log tree",
        objectid::TREE_LOG => "log root tree",
        objectid::TREE_LOG_FIXUP => "log fixup tree",
        objectid::TREE_RELOC => "reloc tree",
        objectid::DATA_RELOC_TREE => "data reloc tree",
        objectid::EXTENT_CSUM => "extent checksum tree",
        _ => "file tree",
    }
}

/// The line above a tree's blocks. `key` is that of its ROOT_ITEM, which the root, chunk and log root trees lack.
pub fn heading(out: &mut dyn Write, selection: Selection, id: u64, key: Option<Key>) -> io::Result<()> {
    let title = title(id, key.is_some());
    match key {
        None => writeln!(out, "{title}"),
        Some(key) if selection == Selection::Extents => writeln!(out, "{title} key ({})", KeyText(key)),
        // the space at the end is there in every other dump
        Some(key) => writeln!(out, "{title} key ({}) ", KeyText(key)),
    }
}

/// A tree's line in a dump of roots.
pub fn root_line(out: &mut dyn Write, id: u64, key: Option<Key>, bytenr: u64, level: u8) -> io::Result<()> {
    let title = title(id, key.is_some());
    match key {
        None => writeln!(out, "{title}: {bytenr} level {level}"),
        Some(key) => writeln!(out, "{title} key ({}) {bytenr} level {level}", KeyText(key)),
    }
}

/// The backup roots of a superblock, for `-R`.
pub fn backup_roots(out: &mut dyn Write, sb: &Superblock) -> io::Result<()> {
    for (slot, b) in sb.super_roots.iter().enumerate() {
        let RootBackup { bytes_used, total_bytes, num_devices, .. } = *b;
        writeln!(out, "btrfs root backup slot {slot}")?;
        writeln!(out, "\ttree root gen {} block {}", b.tree_root_gen, b.tree_root)?;
        writeln!(out, "\t\textent root gen {} block {}", b.extent_root_gen, b.extent_root)?;
        writeln!(out, "\t\tchunk root gen {} block {}", b.chunk_root_gen, b.chunk_root)?;
        writeln!(out, "\t\tdevice root gen {} block {}", b.dev_root_gen, b.dev_root)?;
        writeln!(out, "\t\tcsum root gen {} block {}", b.csum_root_gen, b.csum_root)?;
        writeln!(out, "\t\tfs root gen {} block {}", b.fs_root_gen, b.fs_root)?;
        writeln!(out, "\t\t{bytes_used} used {total_bytes} total {num_devices} devices")?;
    }
    Ok(())
}

/// The last three lines of a dump.
pub fn totals(out: &mut dyn Write, sb: &Superblock) -> io::Result<()> {
    writeln!(out, "total bytes {}\nbytes used {}\nuuid {}", sb.total_bytes, sb.bytes_used, Uuid(&sb.fsid))
}

/// Why a tree's name was not understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TreeIdError {
    Unknown(String),
    /// A known name is followed by something else than `_TREE`, `_OBJECTID` or both.
    Suffix(String, String),
}

impl fmt::Display for TreeIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeIdError::Unknown(name) => write!(f, "unrecognized tree id: {name}"),
            TreeIdError::Suffix(name, rest) => write!(f, "unexpected tree id suffix of '{name}': {rest}"),
        }
    }
}

impl std::error::Error for TreeIdError {}

/// Names for `-t`.
const TREE_NAMES: [(&str, u64); 23] = [
    ("ROOT", objectid::ROOT_TREE),
    ("EXTENT", objectid::EXTENT_TREE),
    ("CHUNK", objectid::CHUNK_TREE),
    ("DEVICE", objectid::DEV_TREE),
    ("DEV", objectid::DEV_TREE),
    ("FS", objectid::FS_TREE),
    ("CSUM", objectid::CSUM_TREE),
    ("CHECKSUM", objectid::CSUM_TREE),
    ("QUOTA", objectid::QUOTA_TREE),
    ("UUID", objectid::UUID_TREE),
    ("FREE_SPACE", objectid::FREE_SPACE_TREE),
    ("FREE-SPACE", objectid::FREE_SPACE_TREE),
    ("BLOCK_GROUP", objectid::BLOCK_GROUP_TREE),
    ("BLOCK-GROUP", objectid::BLOCK_GROUP_TREE),
    ("RAID_STRIPE", objectid::RAID_STRIPE_TREE),
    ("RAID-STRIPE", objectid::RAID_STRIPE_TREE),
    ("TREE_LOG_FIXUP", objectid::TREE_LOG_FIXUP),
    ("TREE-LOG-FIXUP", objectid::TREE_LOG_FIXUP),
    ("TREE_LOG", objectid::TREE_LOG),
    ("TREE-LOG", objectid::TREE_LOG),
    ("TREE_RELOC", objectid::TREE_RELOC),
    ("DATA_RELOC", objectid::DATA_RELOC_TREE),
    ("DATA-RELOC", objectid::DATA_RELOC_TREE),
];

/// The tree that the argument of `-t` names: a positive number, or a name in any case, with or without `BTRFS_`
/// before and `_TREE` and `_OBJECTID` after it.
pub fn parse_tree_id(text: &str) -> Result<u64, TreeIdError> {
    let unknown = || TreeIdError::Unknown(text.to_string());
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok().filter(|&id| id != 0).ok_or_else(unknown);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("BTRFS_").unwrap_or(&upper);
    for (prefix, id) in TREE_NAMES {
        let Some(rest) = name.strip_prefix(prefix) else { continue };
        let end = rest.strip_prefix("_TREE").unwrap_or(rest);
        let end = end.strip_prefix("_OBJECTID").unwrap_or(end);
        if !end.is_empty() {
            return Err(TreeIdError::Suffix(text.to_string(), end.to_string()));
        }
        return Ok(id);
    }
    Err(unknown())
}

/// The name of a tree as it stands in an owner field: `FS_TREE`, or a number.
pub fn tree_name(id: u64) -> String {
    tree(id).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use buttery_disk::item;

    fn line(id: u64, key: Option<Key>) -> String {
        let mut out = Vec::new();
        heading(&mut out, Selection::All, id, key).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn headings() {
        let root = |id, offset| Some(Key::new(id, item::ROOT_ITEM, offset));
        assert_eq!(line(1, None), "root tree\n");
        assert_eq!(line(objectid::TREE_LOG, None), "log root tree\n");
        assert_eq!(
            line(objectid::TREE_LOG, root(objectid::TREE_LOG, 5)),
            "log tree key (TREE_LOG ROOT_ITEM 5) \n"
        );
        assert_eq!(line(256, root(256, 10)), "file tree key (256 ROOT_ITEM 10) \n");
        assert_eq!(line(2, root(2, 0)), "extent tree key (EXTENT_TREE ROOT_ITEM 0) \n");
        let mut out = Vec::new();
        root_line(&mut out, 5, root(5, 0), 4096, 1).unwrap();
        heading(&mut out, Selection::Extents, 2, root(2, 0)).unwrap();
        let want =
            b"fs tree key (FS_TREE ROOT_ITEM 0) 4096 level 1\nextent tree key (EXTENT_TREE ROOT_ITEM 0)\n";
        assert_eq!(out, want);
    }

    #[test]
    fn tree_ids_by_name_and_number() {
        for (text, id) in
            [("5", 5), ("05", 5), ("fs", 5), ("BTRFS_FS_TREE_OBJECTID", 5), ("root_objectid", 1)]
        {
            assert_eq!(parse_tree_id(text), Ok(id), "{text}");
        }
        for (text, id) in [("Device", 4), ("free-space", 10), ("checksum_tree", 7), ("dev_tree", 4)] {
            assert_eq!(parse_tree_id(text), Ok(id), "{text}");
        }
        assert_eq!(parse_tree_id("tree_log"), Ok(objectid::TREE_LOG));
        for text in ["", "0", "-5", "+5", "0x5", "5x", "log", "reloc", "_TREE", "freespace"] {
            assert_eq!(parse_tree_id(text), Err(TreeIdError::Unknown(text.to_string())));
        }
        let suffix = parse_tree_id("EXTENT-TREE").unwrap_err();
        assert_eq!(suffix.to_string(), "unexpected tree id suffix of 'EXTENT-TREE': -TREE");
    }
}
