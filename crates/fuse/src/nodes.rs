//! The numbers by which the kernel, and users, know files.
//!
//! One device number is all that a mount has, so a file's number must be its own among all subvolumes, and the same
//! each time. Of the mounted subvolume it is the inode number; of another, that subvolume's id stands above it, in the
//! bits from 44 on; the empty directory that stands for subvolumes in a snapshot has the number of the directory around it
//! and bit 43. Where either does not fit, a number is made up for as long as the mount lasts.

use buttery::{FileId, TreeId};
use fuser::INodeNo;
use parking_lot::RwLock;
use std::collections::HashMap;

const INO_BITS: u32 = 44;
/// Set for the empty directory that stands for subvolumes in the directory of this number.
const EMPTY_DIR: u64 = 1 << (INO_BITS - 1);
/// Trees with ids below this fit.
const TREE_MAX: u64 = 1 << (63 - INO_BITS);
/// Made-up numbers begin here.
const MADE_UP: u64 = 1 << 63;

/// Translates between files and numbers.
pub struct Nodes {
    root: FileId,
    made_up: RwLock<(HashMap<FileId, u64>, Vec<FileId>)>,
}

impl Nodes {
    pub fn new(root: FileId) -> Nodes {
        Nodes { root, made_up: RwLock::default() }
    }

    /// The number that users see (`st_ino`).
    pub fn ino(&self, id: FileId) -> u64 {
        let tree = if id.tree == self.root.tree { 0 } else { id.tree.0 };
        let (ino, mark) = match id.around_empty_dir() {
            Some(dir) => (dir.ino, EMPTY_DIR),
            None => (id.ino, 0),
        };
        if tree < TREE_MAX && ino < EMPTY_DIR {
            return tree << INO_BITS | mark | ino;
        }
        if let Some(&number) = self.made_up.read().0.get(&id) {
            return number;
        }
        let mut table = self.made_up.write();
        let next = MADE_UP | table.1.len() as u64;
        let number = *table.0.entry(id).or_insert(next);
        if number == next {
            table.1.push(id);
        }
        number
    }

    /// The number by which the kernel asks: as users see it, but for the root.
    pub fn node(&self, id: FileId) -> INodeNo {
        if id == self.root { INodeNo::ROOT } else { INodeNo(self.ino(id)) }
    }

    /// The file that the kernel means.
    pub fn file(&self, node: INodeNo) -> Option<FileId> {
        if node == INodeNo::ROOT {
            return Some(self.root);
        }
        if node.0 >= MADE_UP {
            return self.made_up.read().1.get((node.0 & !MADE_UP) as usize).copied();
        }
        let (tree, ino) = (node.0 >> INO_BITS, node.0 & ((1 << INO_BITS) - 1));
        let id =
            FileId { tree: if tree == 0 { self.root.tree } else { TreeId(tree) }, ino: ino & !EMPTY_DIR };
        Some(if ino & EMPTY_DIR == 0 { id } else { FileId::empty_dir_in(id) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_a_number_of_its_own_and_finds_back() {
        let root = FileId { tree: TreeId(256), ino: 256 };
        let nodes = Nodes::new(root);
        assert_eq!((nodes.node(root), nodes.ino(root)), (INodeNo::ROOT, 256));
        let mut seen = std::collections::HashSet::new();
        for tree in [256, 5, 257, TREE_MAX, u64::MAX >> 1] {
            for ino in [257, EMPTY_DIR - 1, EMPTY_DIR, (1 << INO_BITS) - 1, 1 << INO_BITS, (1 << 63) - 1] {
                for id in [
                    FileId { tree: TreeId(tree), ino },
                    FileId::empty_dir_in(FileId { tree: TreeId(tree), ino }),
                ] {
                    assert!(seen.insert(nodes.ino(id)));
                    assert_eq!(nodes.file(nodes.node(id)), Some(id));
                    assert_eq!(nodes.ino(id), nodes.ino(id));
                }
            }
        }
        assert_eq!(nodes.file(INodeNo(MADE_UP | 999)), None);
    }
}
