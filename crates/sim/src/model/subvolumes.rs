//! Snapshots, and deleting subvolumes.

use super::{Fail, Ino, Model, Node};
use buttery::{FileId, TreeId};
use buttery_judge::{Kind, Time};
use std::collections::BTreeMap;

/// What came of an operation.
type Done<T = ()> = Result<T, Fail>;

impl Model {
    /// Copies a subvolume. The library's number of the new one is told afterwards ([`Model::adopt`]).
    pub fn snapshot(&mut self, source: Ino, dir: Ino, name: &[u8], read_only: bool) -> Done<Ino> {
        self.check_gains(dir)?;
        self.can_add(dir, name)?;
        let own: Vec<Ino> =
            self.nodes.iter().filter(|(_, n)| n.subvol == source).map(|(ino, _)| *ino).collect();
        let first = self.next;
        let numbers: BTreeMap<Ino, Ino> = own.iter().copied().zip(first..).collect();
        self.next += own.len() as Ino;
        let top = numbers[&source];
        for (old, new) in &numbers {
            let node = self.node(*old).clone();
            let mut entries = BTreeMap::new();
            for (name, child) in &node.entries {
                // a nested subvolume is an empty directory there
                let child = match numbers.get(child) {
                    Some(copy) => *copy,
                    None => self.add_stub(*new, top, node.id),
                };
                entries.insert(name.clone(), child);
            }
            let parent = match *old == source {
                true => dir,
                // the directory in which a file was made may be gone
                false => numbers.get(&node.parent).copied().unwrap_or(top),
            };
            let frozen = read_only || node.id.is_empty_dir();
            self.nodes.insert(*new, Node { entries, parent, frozen, subvol: top, ..node });
        }
        self.node_mut(dir).entries.insert(name.to_vec(), top);
        self.touch_dir(dir);
        Ok(top)
    }

    fn add_stub(&mut self, dir: Ino, top: Ino, around: FileId) -> Ino {
        let ino = self.next;
        self.next += 1;
        let none = Time::default();
        let node = Node {
            mode: 0o755,
            mtime: none,
            ctime: none,
            btime: none,
            parent: dir,
            subvol: top,
            frozen: true,
            id: FileId::empty_dir_in(around),
            ..self.blank(Kind::Dir, self.root)
        };
        self.nodes.insert(ino, node);
        ino
    }

    /// What was copied lies in this tree of the library's.
    pub fn adopt(&mut self, top: Ino, tree: TreeId) {
        self.nodes.values_mut().filter(|node| node.subvol == top).for_each(|node| node.id.tree = tree);
    }

    pub fn delete_subvolume(&mut self, dir: Ino, name: &[u8]) -> Done {
        self.check_loses(dir)?;
        let ino = self.lookup(dir, name)?;
        if !self.is_top(ino) {
            return Err("Invalid");
        }
        let tops = self.nodes.iter().filter(|(number, _)| **number != ino && self.is_top(**number));
        if tops.into_iter().any(|(_, top)| self.node(top.parent).subvol == ino) {
            return Err("NotEmpty");
        }
        self.nodes.retain(|_, node| node.subvol != ino);
        self.node_mut(dir).entries.remove(name);
        self.touch_dir(dir);
        Ok(())
    }
}
