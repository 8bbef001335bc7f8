//! Random operations from a seed. A small model of what exists keeps most of them meaningful; where the model is
//! wrong (a rename between subvolumes, say) the file system refuses, which [`super::run`] counts.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::rng::Rng;
use super::{Data, Fallocate, Fill, Name, Node, Op, shapes};
use crate::collide;
use crate::facts::Time;

/// What the operations may do.
#[derive(Clone, Debug)]
pub struct Mix {
    pub seed: u64,
    pub count: usize,
    /// Subvolumes and snapshots: only a mount of the kernel's btrfs, or something as able, can do them.
    pub subvolumes: bool,
    /// NOCOW files and the compression property.
    pub properties: bool,
    /// Device nodes, `trusted.*` and `security.*` xattrs, other owners.
    pub root_only: bool,
    /// No file grows beyond this.
    pub file_bytes: u64,
    pub xattr_bytes: u64,
}

impl Mix {
    pub fn new(seed: u64, count: usize) -> Mix {
        Mix {
            seed,
            count,
            subvolumes: true,
            properties: true,
            root_only: true,
            file_bytes: 1 << 20,
            xattr_bytes: 3000,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Thing {
    File,
    Dir,
    Subvolume,
    /// A read-only snapshot: only its root is known.
    Frozen,
    Other,
}

/// The operations. The same `mix` always gives the same list.
pub fn ops(mix: &Mix) -> Vec<Op> {
    let mut maker = Maker {
        rng: Rng::new(mix.seed),
        mix,
        things: BTreeMap::new(),
        colliding: collide::colliding_names(b"c", 0x5EED, 12),
        colliding_xattrs: collide::colliding_names(b"user.c", 0x5EED, 4),
        ops: Vec::new(),
    };
    while maker.ops.len() < mix.count {
        maker.step();
    }
    maker.ops.truncate(mix.count);
    maker.ops
}

struct Maker<'a> {
    rng: Rng,
    mix: &'a Mix,
    things: BTreeMap<Name, Thing>,
    colliding: Vec<Name>,
    colliding_xattrs: Vec<Name>,
    ops: Vec<Op>,
}

const DIRS: &[Thing] = &[Thing::Dir, Thing::Subvolume];
const WRITABLE: &[Thing] = &[Thing::File, Thing::Dir, Thing::Subvolume, Thing::Other];

impl Maker<'_> {
    fn step(&mut self) {
        match self.rng.below(100) {
            0..14 => self.make_file(),
            14..17 => self.make_dir(),
            17..21 => self.make_other(),
            21..38 => self.write(),
            38..43 => self.truncate(),
            43..50 => self.fallocate(),
            50..55 => self.clone_range(),
            55..63 => self.rename(),
            63..68 => self.link(),
            68..76 => self.remove(),
            76..84 => self.xattr(),
            84..92 => self.attribute(),
            92..95 => self.fsync(),
            95 => self.ops.push(Op::Sync),
            96 => self.property(),
            _ => self.subvolume(),
        }
    }

    /// Something that exists, of one of these kinds.
    fn pick(&mut self, kinds: &[Thing]) -> Option<Name> {
        let fitting: Vec<&Name> =
            self.things.iter().filter(|(_, t)| kinds.contains(t)).map(|(n, _)| n).collect();
        self.rng.pick(&fitting).map(|name| (*name).clone())
    }

    /// A directory, most often the root or one that is not too deep.
    fn pick_dir(&mut self) -> Name {
        if self.rng.one_in(4) {
            return Name::new();
        }
        self.pick(DIRS).filter(|dir| dir.len() < 1000).unwrap_or_default()
    }

    /// A path that may or may not exist: few enough names that they meet.
    fn new_path(&mut self) -> Name {
        let name = match self.rng.below(12) {
            0 => self.rng.pick(&self.colliding).cloned().unwrap_or_default(),
            1 => {
                let c = b'a' + self.rng.below(26) as u8;
                vec![c; 1 + self.rng.below(255) as usize]
            }
            _ => format!("n{}", self.rng.below(400)).into_bytes(),
        };
        let dir = self.pick_dir();
        if dir.is_empty() { name } else { [&dir[..], b"/", &name].concat() }
    }

    /// A path that does not exist.
    fn free_path(&mut self) -> Option<Name> {
        (0..5).find_map(|_| {
            let path = self.new_path();
            (!self.things.contains_key(&path)).then_some(path)
        })
    }

    fn data(&mut self, most: u64) -> Data {
        let fill = match self.rng.below(5) {
            0 => Fill::Zeros,
            1 | 2 => Fill::Text,
            _ => Fill::Random,
        };
        Data::new(fill, self.rng.next(), self.rng.size(most) as usize)
    }

    fn make_file(&mut self) {
        let Some(path) = self.free_path() else { return };
        self.things.insert(path.clone(), Thing::File);
        self.ops.push(Op::Create { path: path.clone(), mode: 0o600 + self.rng.below(0o100) as u32 });
        if self.mix.properties && self.rng.one_in(6) {
            self.set_property(path.clone());
        }
        let data = self.data(self.mix.file_bytes / 4);
        self.ops.push(Op::Write { path, offset: 0, data });
    }

    fn make_dir(&mut self) {
        let Some(path) = self.free_path() else { return };
        self.things.insert(path.clone(), Thing::Dir);
        self.ops.push(Op::Mkdir { path, mode: 0o700 + self.rng.below(0o100) as u32 });
    }

    fn make_other(&mut self) {
        let Some(path) = self.free_path() else { return };
        self.things.insert(path.clone(), Thing::Other);
        if self.rng.one_in(2) {
            let target = vec![b's'; self.rng.size(3500).max(1) as usize];
            return self.ops.push(Op::Symlink { path, target });
        }
        let (major, minor) = (self.rng.below(4096) as u32, self.rng.below(1 << 20) as u32);
        let node = match self.rng.below(4) {
            0 if self.mix.root_only => Node::Char(major, minor),
            1 if self.mix.root_only => Node::Block(major, minor),
            2 => Node::Socket,
            _ => Node::Fifo,
        };
        self.ops.push(Op::Mknod { path, node, mode: 0o640 });
    }

    fn write(&mut self) {
        let Some(path) = self.pick(&[Thing::File]) else {
            return;
        };
        if self.rng.one_in(4) {
            let data = self.data(30_000);
            return self.ops.push(Op::Append { path, data });
        }
        let offset = self.offset();
        let data = self.data(self.mix.file_bytes / 4);
        self.ops.push(Op::Write { path, offset, data });
    }

    fn offset(&mut self) -> u64 {
        let offset = self.rng.below(self.mix.file_bytes);
        if self.rng.one_in(3) { offset / 4096 * 4096 } else { offset }
    }

    fn truncate(&mut self) {
        let Some(path) = self.pick(&[Thing::File]) else {
            return;
        };
        let size = if self.rng.one_in(4) { self.rng.below(3000) } else { self.offset() };
        self.ops.push(Op::Truncate { path, size });
    }

    fn fallocate(&mut self) {
        let Some(path) = self.pick(&[Thing::File]) else {
            return;
        };
        let how = match self.rng.below(5) {
            0 => Fallocate::Allocate,
            1 => Fallocate::KeepSize,
            2 => Fallocate::ZeroRange,
            _ => Fallocate::PunchHole,
        };
        let (offset, len) = (self.offset(), self.rng.size(self.mix.file_bytes / 4).max(1));
        self.ops.push(Op::Fallocate { path, offset, len, how });
    }

    fn clone_range(&mut self) {
        let (Some(from), Some(to)) = (self.pick(&[Thing::File]), self.pick(&[Thing::File])) else {
            return;
        };
        let mut block = || self.offset() / 4096 * 4096;
        let (from_offset, to_offset) = (block(), block());
        let len = (block() / 4).next_multiple_of(4096).max(4096);
        if from != to || from_offset.abs_diff(to_offset) >= len {
            self.ops.push(Op::Clone { from, from_offset, to, to_offset, len });
        }
    }

    fn rename(&mut self) {
        let Some(from) = self.pick(WRITABLE) else { return };
        if self.rng.one_in(10) {
            return self.exchange(from);
        }
        let to = self.new_path();
        let replaced = self.things.get(&to).copied();
        let fits = match replaced {
            None => true,
            Some(thing) => thing == Thing::File && self.things[&from] == Thing::File,
        };
        if !fits || is_below(&to, &from) || self.subvolume_of(&from) != self.subvolume_of(&to) {
            return;
        }
        self.ops.push(Op::Rename { from: from.clone(), to: to.clone() });
        self.move_things(&from, &to);
    }

    fn exchange(&mut self, a: Name) {
        let Some(b) = self.pick(&[Thing::File]) else {
            return;
        };
        if self.things[&a] == Thing::File && a != b && self.subvolume_of(&a) == self.subvolume_of(&b) {
            self.ops.push(Op::Exchange { a, b });
        }
    }

    fn move_things(&mut self, from: &Name, to: &Name) {
        let moved: Vec<(Name, Thing)> = self.tree(from);
        for (path, thing) in moved {
            self.things.remove(&path);
            self.things.insert([to, &path[from.len()..]].concat(), thing);
        }
    }

    /// A thing and all below it.
    fn tree(&self, root: &Name) -> Vec<(Name, Thing)> {
        let from = (Bound::Included(root.clone()), Bound::Unbounded);
        let near = self.things.range(from).take_while(|(path, _)| path.starts_with(root));
        near.filter(|(path, _)| *path == root || is_below(path, root)).map(|(p, t)| (p.clone(), *t)).collect()
    }

    /// The subvolume that a path's entry is in: never the path itself.
    fn subvolume_of(&self, path: &Name) -> Name {
        let above = (0..path.len()).rev().filter(|&i| path[i] == b'/').map(|i| &path[..i]);
        let found = above.into_iter().find(|dir| self.things.get(*dir) == Some(&Thing::Subvolume));
        found.unwrap_or_default().to_vec()
    }

    fn link(&mut self) {
        let Some(from) = self.pick(&[Thing::File]) else {
            return;
        };
        let Some(to) = self.free_path() else { return };
        if self.subvolume_of(&from) == self.subvolume_of(&to) {
            self.things.insert(to.clone(), Thing::File);
            self.ops.push(Op::Link { from, to });
        }
    }

    fn remove(&mut self) {
        let Some(path) = self.pick(&[Thing::File, Thing::Other, Thing::Dir]) else {
            return;
        };
        if self.things[&path] != Thing::Dir {
            self.things.remove(&path);
            return self.ops.push(Op::Unlink { path });
        }
        if self.tree(&path).len() == 1 {
            self.things.remove(&path);
            self.ops.push(Op::Rmdir { path });
        }
    }

    fn xattr(&mut self) {
        let Some(path) = self.pick(&[Thing::File, Thing::Dir, Thing::Subvolume]) else {
            return;
        };
        let root = self.mix.root_only;
        let (name, value) = match self.rng.below(10) {
            0 if root => (b"security.capability".to_vec(), shapes::capability()),
            1 if root => (b"trusted.t".to_vec(), vec![7; self.rng.below(100) as usize]),
            2 | 3 => (b"system.posix_acl_access".to_vec(), shapes::acl(self.rng.below(9) as u32)),
            4 => (self.rng.pick(&self.colliding_xattrs).cloned().unwrap_or_default(), b"collides".to_vec()),
            5 => {
                let name = format!("user.{}", self.rng.below(6)).into_bytes();
                return self.ops.push(Op::RemoveXattr { path, name });
            }
            _ => {
                let value = self.data(self.mix.xattr_bytes).bytes();
                (format!("user.{}", self.rng.below(6)).into_bytes(), value)
            }
        };
        self.ops.push(Op::SetXattr { path, name, value });
    }

    fn attribute(&mut self) {
        let Some(path) = self.pick(WRITABLE) else { return };
        let op = match self.rng.below(3) {
            // A mode follows a symlink to nowhere.
            0 if self.things[&path] != Thing::Other => {
                Op::Chmod { path, mode: self.rng.below(0o10000) as u32 }
            }
            1 if self.mix.root_only => {
                Op::Chown { path, uid: self.rng.below(70_000) as u32, gid: self.rng.below(9) as u32 }
            }
            _ => {
                let mut time =
                    || Time { sec: self.rng.below(1 << 33) as i64, nsec: self.rng.below(1 << 29) as u32 };
                Op::Utimens { path, atime: time(), mtime: time() }
            }
        };
        self.ops.push(op);
    }

    fn fsync(&mut self) {
        let Some(path) = self.pick(&[Thing::File, Thing::Dir, Thing::Subvolume]) else {
            return;
        };
        self.ops.push(Op::Fsync { path });
    }

    fn property(&mut self) {
        if let (true, Some(path)) = (self.mix.properties, self.pick(&[Thing::File, Thing::Dir])) {
            self.set_property(path);
        }
    }

    fn set_property(&mut self, path: Name) {
        let method = match self.rng.below(4) {
            0 => return self.ops.push(Op::SetNocow { path }),
            1 => "zlib",
            2 => "lzo",
            _ => "zstd",
        };
        self.ops.push(Op::SetXattr { path, name: b"btrfs.compression".to_vec(), value: method.into() });
    }

    fn subvolume(&mut self) {
        if !self.mix.subvolumes {
            return;
        }
        match self.rng.below(4) {
            0 => {
                let Some(path) = self.free_path() else { return };
                self.things.insert(path.clone(), Thing::Subvolume);
                self.ops.push(Op::CreateSubvolume { path });
            }
            1 | 2 => self.snapshot(),
            _ => {
                let Some(path) = self.pick(&[Thing::Subvolume, Thing::Frozen]) else {
                    return;
                };
                let tree = self.tree(&path);
                if tree.iter().skip(1).all(|(_, t)| !matches!(t, Thing::Subvolume | Thing::Frozen)) {
                    self.things.retain(|known, _| *known != path && !is_below(known, &path));
                    self.ops.push(Op::DeleteSubvolume { path });
                }
            }
        }
    }

    fn snapshot(&mut self) {
        let Some(from) = self.pick(&[Thing::Subvolume, Thing::Frozen]) else {
            return;
        };
        let Some(to) = self.free_path() else { return };
        let read_only = self.rng.one_in(3);
        // What is in nested subvolumes is not in the snapshot: empty directories stand for those, and are left alone.
        let inside: Vec<(Name, Thing)> = self.tree(&from).into_iter().skip(1).collect();
        let own = inside.into_iter().filter(|(path, _)| self.subvolume_of(path) == from);
        let own: Vec<_> = own.filter(|(_, t)| !matches!(t, Thing::Subvolume | Thing::Frozen)).collect();
        let thing = if read_only { Thing::Frozen } else { Thing::Subvolume };
        if thing == Thing::Subvolume {
            for (path, kind) in own {
                self.things.insert([&to, &path[from.len()..]].concat(), kind);
            }
        }
        self.things.insert(to.clone(), thing);
        self.ops.push(Op::Snapshot { from, to, read_only });
    }
}

fn is_below(path: &[u8], dir: &[u8]) -> bool {
    path.len() > dir.len() && path.starts_with(dir) && path[dir.len()] == b'/'
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_same_seed_gives_the_same_operations() {
        let mix = Mix::new(1, 3000);
        assert_eq!(ops(&mix), ops(&mix));
        assert_ne!(ops(&mix), ops(&Mix::new(2, 3000)));
    }

    #[test]
    fn every_kind_of_operation_occurs() {
        let names: BTreeSet<&str> = ops(&Mix::new(1, 5000)).iter().map(Op::name).collect();
        assert!(names.len() >= 23, "{names:?}");
    }
}
