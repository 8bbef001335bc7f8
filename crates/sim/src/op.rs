//! One operation, and what picks them at random.

use crate::model::{Fail, Ino, Model};
use buttery::{Error, Fallocate, FileId, Filesystem, NewNode, RenameMode, SetAttr, Time, XattrMode};
use buttery_disk::inode::flags;
use buttery_judge::Kind;
use buttery_judge::collide::colliding_names;
use buttery_judge::workload::rng::Rng;
use buttery_judge::workload::{Data, Fill};

/// A name.
pub type Name = Vec<u8>;

/// An operation; files are told by their number in the model.
#[derive(Clone, Debug)]
pub enum Op {
    Create {
        dir: Ino,
        name: Name,
        new: NewNode,
    },
    Symlink {
        dir: Ino,
        name: Name,
        target: Vec<u8>,
    },
    Subvolume {
        dir: Ino,
        name: Name,
    },
    Snapshot {
        source: Ino,
        dir: Ino,
        name: Name,
        read_only: bool,
    },
    DeleteSubvolume {
        dir: Ino,
        name: Name,
    },
    /// Goes on with dropping what was deleted.
    DropDeleted {
        steps: u64,
    },
    Link {
        ino: Ino,
        dir: Ino,
        name: Name,
    },
    Remove {
        dir: Ino,
        name: Name,
        directory: bool,
    },
    Rename {
        from: Ino,
        old: Name,
        to: Ino,
        new: Name,
        mode: RenameMode,
    },
    Write {
        ino: Ino,
        offset: u64,
        data: Data,
    },
    Append {
        ino: Ino,
        data: Data,
    },
    Truncate {
        ino: Ino,
        size: u64,
    },
    Fallocate {
        ino: Ino,
        what: Fallocate,
        offset: u64,
        len: u64,
        keep_size: bool,
    },
    Clone {
        from: Ino,
        offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    },
    SetAttr {
        ino: Ino,
        set: SetAttr,
    },
    SetFlags {
        ino: Ino,
        mask: u64,
        value: u64,
    },
    SetXattr {
        ino: Ino,
        name: Name,
        value: Data,
        how: XattrMode,
    },
    RemoveXattr {
        ino: Ino,
        name: Name,
    },
    Sync,
}

/// What came of an operation: what it made, or the kind of its error.
pub type Outcome<T> = Result<Option<T>, String>;

impl Op {
    /// Does it to the model.
    pub fn model(&self, m: &mut Model) -> Outcome<Ino> {
        let made = |r: Result<Ino, Fail>| r.map(Some).map_err(String::from);
        let done = |r: Result<(), Fail>| r.map(|()| None).map_err(String::from);
        match self {
            Op::Create { dir, name, new } => made(m.create(*dir, name, *new)),
            Op::Symlink { dir, name, target } => made(m.symlink(*dir, name, target)),
            Op::Subvolume { dir, name } => made(m.create_subvolume(*dir, name)),
            Op::Snapshot { source, dir, name, read_only } => {
                made(m.snapshot(*source, *dir, name, *read_only))
            }
            Op::DeleteSubvolume { dir, name } => done(m.delete_subvolume(*dir, name)),
            Op::DropDeleted { .. } => Ok(None),
            Op::Link { ino, dir, name } => done(m.link(*ino, *dir, name)),
            Op::Remove { dir, name, directory } => done(m.remove(*dir, name, *directory)),
            Op::Rename { from, old, to, new, mode } => done(m.rename(*from, old, *to, new, *mode)),
            Op::Write { ino, offset, data } => done(m.write(*ino, *offset, &data.bytes())),
            Op::Append { ino, data } => done(m.append(*ino, &data.bytes())),
            Op::Truncate { ino, size } => done(m.truncate(*ino, *size)),
            Op::Fallocate { ino, what, offset, len, keep_size } => {
                done(m.fallocate(*ino, *what, *offset, *len, *keep_size))
            }
            Op::Clone { from, offset, to, to_offset, len } => {
                done(m.clone_range(*from, *offset, *to, *to_offset, *len))
            }
            Op::SetAttr { ino, set } => done(m.set_attr(*ino, set)),
            Op::SetFlags { ino, mask, value } => done(m.set_flags(*ino, *mask, *value)),
            Op::SetXattr { ino, name, value, how } => done(m.set_xattr(*ino, name, &value.bytes(), *how)),
            Op::RemoveXattr { ino, name } => done(m.remove_xattr(*ino, name)),
            Op::Sync => Ok(None),
        }
    }

    /// Does it to the file system. `m` is the model before, which knows the files.
    pub fn library(&self, m: &Model, fs: &Filesystem) -> Outcome<FileId> {
        self.call(m, fs).map_err(|error| kind(&error))
    }

    fn call(&self, m: &Model, fs: &Filesystem) -> buttery::Result<Option<FileId>> {
        let id = |ino: &Ino| m.node(*ino).id;
        match self {
            Op::Create { dir, name, new } => return fs.create(id(dir), name, *new).map(Some),
            Op::Symlink { dir, name, target } => return fs.symlink(id(dir), name, target, 0, 0).map(Some),
            Op::Subvolume { dir, name } => {
                return fs.create_subvolume(id(dir), name, 0, 0).map(|tree| Some(FileId::top_of(tree)));
            }
            Op::Snapshot { source, dir, name, read_only } => {
                let made = fs.snapshot(id(source).tree, id(dir), name, *read_only);
                return made.map(|tree| Some(FileId::top_of(tree)));
            }
            Op::DeleteSubvolume { dir, name } => fs.delete_subvolume(id(dir), name).map(|_| ()),
            Op::DropDeleted { steps } => (0..*steps).try_for_each(|_| fs.drop_deleted().map(|_| ())),
            Op::Link { ino, dir, name } => fs.link(id(ino), id(dir), name),
            Op::Remove { dir, name, directory: true } => fs.rmdir(id(dir), name),
            Op::Remove { dir, name, directory: false } => fs.unlink(id(dir), name),
            Op::Rename { from, old, to, new, mode } => fs.rename(id(from), old, id(to), new, *mode),
            Op::Write { ino, offset, data } => fs.write(id(ino), *offset, &data.bytes()),
            Op::Append { ino, data } => fs.append(id(ino), &data.bytes()).map(|_| ()),
            Op::Truncate { ino, size } => fs.truncate(id(ino), *size),
            Op::Fallocate { ino, what, offset, len, keep_size } => {
                fs.fallocate(id(ino), *what, *offset, *len, *keep_size)
            }
            Op::Clone { from, offset, to, to_offset, len } => {
                fs.clone_range(id(from), *offset, id(to), *to_offset, *len)
            }
            Op::SetAttr { ino, set } => fs.set_attr(id(ino), set),
            Op::SetFlags { ino, mask, value } => fs.set_flags(id(ino), *mask, *value),
            Op::SetXattr { ino, name, value, how } => fs.set_xattr(id(ino), name, &value.bytes(), *how),
            Op::RemoveXattr { ino, name } => fs.remove_xattr(id(ino), name),
            Op::Sync => fs.sync(),
        }?;
        Ok(None)
    }
}

/// The name of an error's kind; of a failure that no operation should meet, all of it.
pub fn kind(error: &Error) -> String {
    match error {
        Error::Unsupported(_) => "Unsupported".into(),
        Error::Corrupt(_) | Error::Io(_) => format!("{error:?}"),
        other => format!("{other:?}"),
    }
}

/// How much of what.
#[derive(Clone, Debug)]
pub struct Weights {
    pub subvolumes: bool,
    /// IMMUTABLE, APPEND, NODATACOW.
    pub flags: bool,
    /// No write is longer.
    pub write_max: u64,
    /// Files end before this, save a few that reach far.
    pub size_max: u64,
    pub sync_one_in: u64,
    /// Above this many nodes, removing is likelier than making.
    pub nodes_max: usize,
}

impl Default for Weights {
    fn default() -> Weights {
        Weights {
            subvolumes: true,
            flags: true,
            write_max: 300_000,
            size_max: 600_000,
            sync_one_in: 60,
            nodes_max: 600,
        }
    }
}

/// Picks operations.
pub struct Picker {
    pub rng: Rng,
    pub weights: Weights,
    colliding: Vec<Name>,
    colliding_xattrs: Vec<Name>,
    /// A file that is written to in pieces, and where the next one goes.
    goes_on: Option<(Ino, u64)>,
}

impl Picker {
    pub fn new(seed: u64, weights: Weights) -> Picker {
        let long = [b'l'; 230];
        let mut colliding = colliding_names(b"c", 0x5EED, 12);
        colliding.extend(colliding_names(&long, 0x5EED, 20));
        Picker {
            rng: Rng::new(seed),
            weights,
            colliding,
            colliding_xattrs: colliding_names(b"user.c", 0x5EED, 6),
            goes_on: None,
        }
    }

    /// The next operation.
    pub fn pick(&mut self, m: &Model) -> Op {
        if self.rng.one_in(self.weights.sync_one_in) {
            return Op::Sync;
        }
        if let Some((ino, offset)) = self.goes_on
            && self.rng.one_in(2)
            && m.nodes.contains_key(&ino)
        {
            return self.piece(ino, offset);
        }
        let crowded = m.nodes.len() > self.weights.nodes_max;
        match self.rng.below(100) {
            0..20 if crowded => self.remove(m),
            0..14 => self.create(m),
            14..18 => self.symlink(m),
            18..20 if self.weights.subvolumes => self.subvolume(m, crowded),
            18..25 => Op::Link { ino: self.any(m), dir: self.dir(m), name: self.name(m) },
            25..34 => self.remove(m),
            34..46 => self.rename(m),
            46..57 => self.write(m),
            57..60 => self.fallocate(m),
            60..62 => self.clone(m),
            62..66 => Op::Append { ino: self.file(m), data: self.data(self.weights.write_max / 4) },
            66..75 => self.truncate(m),
            75..87 => self.xattr(m),
            87..97 => self.attr(m),
            _ => self.flags(m),
        }
    }

    fn some(&mut self, m: &Model, which: impl Fn(&crate::model::Node) -> bool) -> Option<Ino> {
        let all: Vec<Ino> = m.nodes.iter().filter(|(_, n)| which(n)).map(|(ino, _)| *ino).collect();
        self.rng.pick(&all).copied()
    }

    fn any(&mut self, m: &Model) -> Ino {
        self.some(m, |n| !n.frozen).unwrap_or(m.root)
    }

    fn dir(&mut self, m: &Model) -> Ino {
        if self.rng.one_in(40) {
            return self.some(m, |n| !n.id.is_empty_dir()).unwrap_or(m.root);
        }
        self.some(m, |n| n.kind == Kind::Dir && !n.frozen).unwrap_or(m.root)
    }

    fn file(&mut self, m: &Model) -> Ino {
        if self.rng.one_in(40) {
            return self.any(m);
        }
        self.some(m, |n| n.kind == Kind::File && !n.frozen).unwrap_or(m.root)
    }

    /// A name that may or may not exist.
    fn name(&mut self, m: &Model) -> Name {
        match self.rng.below(30) {
            0..4 => self.rng.pick(&self.colliding).cloned().unwrap_or_default(),
            4 => vec![b'a' + self.rng.below(26) as u8; 200 + self.rng.below(58) as usize],
            5 => self.rng.pick(&[&b""[..], b".", b"..", b"a/b"]).map(|n| n.to_vec()).unwrap_or_default(),
            _ => format!("n{}", self.rng.below(m.nodes.len() as u64 / 2 + 20)).into_bytes(),
        }
    }

    /// A directory and a name in it, most often one that exists.
    fn entry(&mut self, m: &Model) -> (Ino, Name) {
        let full = self.some(m, |n| n.kind == Kind::Dir && !n.frozen && !n.entries.is_empty());
        let Some(dir) = full.filter(|_| !self.rng.one_in(30)) else { return (self.dir(m), self.name(m)) };
        let names: Vec<&Name> = m.node(dir).entries.keys().collect();
        (dir, self.rng.pick(&names).map(|n| (*n).clone()).unwrap_or_default())
    }

    fn subvolume(&mut self, m: &Model, crowded: bool) -> Op {
        let (dir, name) = (self.dir(m), self.name(m));
        match self.rng.below(8) {
            0..2 => Op::Subvolume { dir, name },
            2..4 => Op::DropDeleted { steps: self.rng.below(4) },
            4..6 if !crowded => {
                // where the model is a directory's, there is more in the subvolume around it
                let is_whole = |(ino, node): &(&Ino, &crate::model::Node)| {
                    node.subvol == **ino && node.id == FileId::top_of(node.id.tree)
                };
                let tops: Vec<Ino> = m.nodes.iter().filter(is_whole).map(|(ino, _)| *ino).collect();
                let Some(&source) = self.rng.pick(&tops) else { return Op::Subvolume { dir, name } };
                Op::Snapshot { source, dir, name, read_only: self.rng.one_in(3) }
            }
            _ => {
                let any = |(dir, node): (&Ino, &crate::model::Node)| -> Vec<(Ino, Name)> {
                    let tops = node.entries.iter().filter(|(_, child)| m.is_top(**child));
                    tops.map(|(name, _)| (*dir, name.clone())).collect()
                };
                let tops: Vec<(Ino, Name)> = m.nodes.iter().flat_map(any).collect();
                let (dir, name) = match self.rng.pick(&tops).cloned() {
                    Some(top) if !self.rng.one_in(10) => top,
                    _ => self.entry(m),
                };
                Op::DeleteSubvolume { dir, name }
            }
        }
    }

    fn create(&mut self, m: &Model) -> Op {
        let types: [u32; 12] = [1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4, 5];
        let mode = match self.rng.pick(&types) {
            Some(1) => 0o100000,
            Some(2) => 0o040000,
            Some(3) => *self.rng.pick(&[0o020000, 0o060000]).unwrap_or(&0o020000),
            Some(4) => 0o010000,
            _ => 0o140000,
        };
        let new = NewNode {
            mode: mode | self.rng.below(0o10000) as u32,
            uid: self.rng.below(3) as u32,
            gid: self.rng.below(3) as u32,
            rdev: (self.rng.below(4096) as u32, self.rng.below(1 << 20) as u32),
            umask: None,
        };
        Op::Create { dir: self.dir(m), name: self.name(m), new }
    }

    fn symlink(&mut self, m: &Model) -> Op {
        let len = match self.rng.below(8) {
            0 => 0,
            1 => 3000 + self.rng.below(1500),
            _ => 1 + self.rng.below(120),
        };
        let target = vec![b't'; len as usize];
        Op::Symlink { dir: self.dir(m), name: self.name(m), target }
    }

    fn remove(&mut self, m: &Model) -> Op {
        let (dir, name) = self.entry(m);
        let is_dir = m.node(dir).entries.get(&name).is_some_and(|ino| m.node(*ino).kind == Kind::Dir);
        Op::Remove { dir, name, directory: is_dir != self.rng.one_in(20) }
    }

    fn rename(&mut self, m: &Model) -> Op {
        let (from, old) = self.entry(m);
        let (to, new) = match self.rng.below(3) {
            0 => self.entry(m),
            1 => (from, self.name(m)),
            _ => (self.dir(m), self.name(m)),
        };
        let modes = [RenameMode::Replace, RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
        let mode = *self.rng.pick(&modes).unwrap_or(&RenameMode::Replace);
        Op::Rename { from, old, to, new, mode }
    }

    fn data(&mut self, most: u64) -> Data {
        let fills = [Fill::Random, Fill::Text, Fill::Text, Fill::Zeros];
        let fill = *self.rng.pick(&fills).unwrap_or(&Fill::Text);
        Data::new(fill, self.rng.next(), self.rng.size(most) as usize)
    }

    fn write(&mut self, m: &Model) -> Op {
        let ino = self.file(m);
        let size = m.node(ino).content.size();
        let offset = match self.rng.below(10) {
            0 => 0,
            1 => size,
            2 => self.rng.below(1 << self.rng.clone().below(44)),
            3 => i64::MAX as u64 - self.rng.below(20_000),
            4..7 => self.rng.below(self.weights.size_max) / 4096 * 4096,
            _ => self.rng.below(size.min(self.weights.size_max) + 100),
        };
        let most = if self.rng.one_in(2) { 5000 } else { self.weights.write_max };
        let data = self.data(most);
        self.goes_on = offset.checked_add(data.len as u64).map(|end| (ino, end));
        Op::Write { ino, offset, data }
    }

    /// What goes on where the last write ended, and then again, for a while.
    fn piece(&mut self, ino: Ino, offset: u64) -> Op {
        let most = *self.rng.pick(&[700, 5000, 5000, 40_000]).unwrap_or(&700);
        let data = self.data(most.min(self.weights.write_max));
        let end = offset.checked_add(data.len as u64).filter(|&end| end < self.weights.size_max);
        self.goes_on = end.filter(|_| !self.rng.one_in(12)).map(|end| (ino, end));
        Op::Write { ino, offset, data }
    }

    fn fallocate(&mut self, m: &Model) -> Op {
        let ino = self.file(m);
        let what = [Fallocate::Allocate, Fallocate::Allocate, Fallocate::PunchHole, Fallocate::ZeroRange];
        let what = *self.rng.pick(&what).unwrap_or(&Fallocate::Allocate);
        let size = m.node(ino).content.size().min(self.weights.size_max);
        let offset = match self.rng.below(4) {
            0 => self.rng.below(self.weights.size_max) / 4096 * 4096,
            _ => self.rng.below(size + 5000),
        };
        let len = match self.rng.below(20) {
            0 => 0,
            1 if what == Fallocate::PunchHole => self.rng.below(1 << 63),
            2..9 => self.rng.below(9000),
            _ => self.rng.below(self.weights.write_max / 2),
        };
        Op::Fallocate { ino, what, offset, len, keep_size: self.rng.one_in(2) }
    }

    fn clone(&mut self, m: &Model) -> Op {
        let full = |n: &crate::model::Node| n.kind == Kind::File && n.content.size() > 0;
        let from = self.some(m, full).unwrap_or(m.root);
        let to = if self.rng.one_in(4) { from } else { self.file(m) };
        let size = m.node(from).content.size();
        let near = size.min(self.weights.size_max);
        let mut place = |most: u64| self.rng.below(most + 1) / 4096 * 4096;
        let (offset, to_offset) = (place(near), place(self.weights.size_max));
        let len = match self.rng.below(4) {
            0 => 0,
            1 => size.saturating_sub(offset),
            2 => self.rng.below(40_000),
            _ => self.rng.below(near + 1) / 4096 * 4096,
        };
        Op::Clone { from, offset, to, to_offset, len }
    }

    fn truncate(&mut self, m: &Model) -> Op {
        let ino = self.file(m);
        let old = m.node(ino).content.size();
        let size = match self.rng.below(8) {
            0 => 0,
            1 => self.rng.below(2100),
            2 => self.rng.below(self.weights.size_max),
            3 => old,
            4 => i64::MAX as u64 - self.rng.below(8192),
            5 => old / 4096 * 4096,
            _ => self.rng.below(old.min(self.weights.size_max) + 10),
        };
        Op::Truncate { ino, size }
    }

    fn xattr(&mut self, m: &Model) -> Op {
        let ino = self.any(m);
        // the kernel gives no user attributes of anything but files and directories
        let user = matches!(m.node(ino).kind, Kind::File | Kind::Dir);
        let name = match self.rng.below(12) {
            0 => vec![],
            1 if user => [&b"user."[..], &vec![b'n'; self.rng.below(260) as usize + 1]].concat(),
            2..5 if user => self.rng.pick(&self.colliding_xattrs).cloned().unwrap_or_default(),
            n if user && n % 2 == 0 => format!("user.{}", self.rng.below(6)).into_bytes(),
            _ => format!("trusted.{}", self.rng.below(4)).into_bytes(),
        };
        let known: Vec<Name> = m.node(ino).xattrs.keys().cloned().collect();
        if self.rng.one_in(4) {
            let name = self.rng.pick(&known).cloned().unwrap_or(name);
            return Op::RemoveXattr { ino, name };
        }
        let most = if self.rng.one_in(5) { 17_000 } else { 500 };
        let modes = [XattrMode::Any, XattrMode::Any, XattrMode::Create, XattrMode::Replace];
        let how = *self.rng.pick(&modes).unwrap_or(&XattrMode::Any);
        Op::SetXattr { ino, name, value: self.data(most), how }
    }

    fn attr(&mut self, m: &Model) -> Op {
        let mut set = SetAttr::default();
        let mut time = || Time { sec: self.rng.below(1 << 33) as i64, nsec: self.rng.below(1 << 29) as u32 };
        let (atime, mtime) = (time(), time());
        match self.rng.below(3) {
            0 => set.mode = Some(self.rng.below(0o10000) as u32),
            1 => (set.uid, set.gid) = (Some(self.rng.below(70_000) as u32), Some(7)),
            _ => (set.atime, set.mtime) = (Some(atime), Some(mtime)),
        }
        Op::SetAttr { ino: self.any(m), set }
    }

    fn flags(&mut self, m: &Model) -> Op {
        let held = flags::IMMUTABLE | flags::APPEND;
        if !self.weights.flags {
            return self.attr(m);
        }
        // what was forbidden is allowed again before long
        if let Some(ino) = self.some(m, |n| n.flags & held != 0).filter(|_| !self.rng.one_in(3)) {
            return Op::SetFlags { ino, mask: held, value: 0 };
        }
        let ino = self.any(m);
        match (self.rng.below(3), m.node(ino).kind) {
            (0, Kind::File | Kind::Dir) => Op::SetFlags { ino, mask: held, value: flags::IMMUTABLE },
            (1, Kind::File | Kind::Dir) => Op::SetFlags { ino, mask: held, value: flags::APPEND },
            (_, Kind::File) if m.node(ino).content.size() == 0 => {
                let bits = flags::NODATACOW | flags::NODATASUM;
                Op::SetFlags { ino, mask: bits, value: bits }
            }
            (_, Kind::Dir) => Op::SetFlags { ino, mask: flags::NODATACOW, value: flags::NODATACOW },
            _ => self.attr(m),
        }
    }
}
