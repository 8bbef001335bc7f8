//! Making, linking, moving and removing names in the model.

use super::{Fail, Ino, Model, Node};
use buttery::{FileId, NewNode, RenameMode, TreeId};
use buttery_disk::dir::{NAME_MAX, name_hash};
use buttery_disk::inode::flags;
use buttery_disk::node::{ITEM_LEN, leaf_data_size};
use buttery_judge::Kind;
use std::collections::BTreeMap;

type Done<T = ()> = Result<T, Fail>;

/// The extended attribute that says how a file is compressed.
pub(super) const PROPERTY: &[u8] = b"btrfs.compression";

impl Model {
    pub(crate) fn check_frozen(&self, ino: Ino) -> Done {
        let node = self.node(ino);
        match (node.frozen, node.id.is_empty_dir()) {
            (true, true) => Err("NotPermitted"),
            (true, false) => Err("ReadOnly"),
            _ => Ok(()),
        }
    }

    pub(crate) fn check_mutable(&self, ino: Ino) -> Done {
        let held = self.node(ino).flags & (flags::IMMUTABLE | flags::APPEND);
        if held == 0 { Ok(()) } else { Err("NotPermitted") }
    }

    pub(super) fn check_gains(&self, dir: Ino) -> Done {
        self.check_frozen(dir)?;
        match self.node(dir) {
            node if node.kind != Kind::Dir => Err("NotDirectory"),
            node if node.flags & flags::IMMUTABLE != 0 => Err("NotPermitted"),
            _ => Ok(()),
        }
    }

    pub(super) fn check_loses(&self, dir: Ino) -> Done {
        self.check_gains(dir)?;
        self.check_mutable(dir)
    }

    /// Whether the name can be added: it is one, it is free, and the item of its hash has room.
    pub(super) fn can_add(&self, dir: Ino, name: &[u8]) -> Done {
        if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
            return Err("Invalid");
        }
        if name.len() > NAME_MAX {
            return Err("NameTooLong");
        }
        let entries = &self.node(dir).entries;
        if entries.contains_key(name) {
            return Err("Exists");
        }
        let hash = name_hash(name);
        let beside: usize = entries.keys().filter(|n| name_hash(n) == hash).map(|n| n.len() + ENTRY).sum();
        let full = beside > 0 && beside + ENTRY + name.len() > self.item_max();
        if full { Err("Overflow") } else { Ok(()) }
    }

    pub(crate) fn item_max(&self) -> usize {
        leaf_data_size(self.nodesize) - ITEM_LEN
    }

    /// The directory's times, after a name came or went.
    pub(super) fn touch_dir(&mut self, dir: Ino) {
        let now = self.now;
        let node = self.node_mut(dir);
        (node.mtime, node.ctime) = (now, now);
    }

    fn touch(&mut self, ino: Ino) {
        self.node_mut(ino).ctime = self.now;
    }

    pub fn create(&mut self, dir: Ino, name: &[u8], new: NewNode) -> Done<Ino> {
        self.check_gains(dir)?;
        self.can_add(dir, name)?;
        let parent = self.node(dir);
        let kind = kind_of(new.mode).ok_or("Invalid")?;
        let (mut gid, mut mode) = (new.gid, new.mode & 0o7777);
        if parent.mode & 0o2000 != 0 {
            gid = parent.gid;
            mode |= if kind == Kind::Dir { 0o2000 } else { 0 };
        }
        let mut bits = parent.flags & (flags::NODATACOW | flags::COMPRESS | flags::NOCOMPRESS);
        match kind {
            Kind::File if bits & flags::NODATACOW != 0 => bits |= flags::NODATASUM,
            Kind::File | Kind::Dir => {}
            _ => bits = 0,
        }
        let rdev = if matches!(kind, Kind::Char | Kind::Block) { new.rdev } else { (0, 0) };
        // the property for compression is handed down, but to files that cannot be compressed
        let mut xattrs = BTreeMap::new();
        if let Some(value) = parent.xattrs.get(PROPERTY)
            && matches!(kind, Kind::File | Kind::Dir)
            && bits & flags::NODATASUM == 0
        {
            xattrs.insert(PROPERTY.to_vec(), value.clone());
        }
        let node = Node { mode, uid: new.uid, gid, rdev, flags: bits, xattrs, ..self.blank(kind, dir) };
        Ok(self.add(dir, name, node))
    }

    pub(super) fn blank(&self, kind: Kind, dir: Ino) -> Node {
        Node {
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            rdev: (0, 0),
            nlink: 1,
            flags: 0,
            mtime: self.now,
            ctime: self.now,
            btime: self.now,
            xattrs: BTreeMap::new(),
            subvol: self.node(dir).subvol,
            parent: dir,
            entries: BTreeMap::new(),
            content: Default::default(),
            target: Vec::new(),
            frozen: false,
            id: FileId { tree: TreeId(0), ino: 0 },
        }
    }

    fn add(&mut self, dir: Ino, name: &[u8], node: Node) -> Ino {
        let ino = self.next;
        self.next += 1;
        self.nodes.insert(ino, node);
        self.node_mut(dir).entries.insert(name.to_vec(), ino);
        self.touch_dir(dir);
        ino
    }

    pub fn symlink(&mut self, dir: Ino, name: &[u8], target: &[u8]) -> Done<Ino> {
        if target.is_empty() {
            return Err("NotFound");
        }
        // an inline extent fills a leaf at most
        if target.len() > (self.item_max() - 21).min(4095) {
            return Err("NameTooLong");
        }
        let new = NewNode { mode: 0o120777, uid: 0, gid: 0, rdev: (0, 0), umask: None };
        let ino = self.create(dir, name, new)?;
        self.node_mut(ino).target = target.to_vec();
        Ok(ino)
    }

    pub fn create_subvolume(&mut self, dir: Ino, name: &[u8]) -> Done<Ino> {
        self.check_gains(dir)?;
        self.can_add(dir, name)?;
        let node = Node { mode: 0o755, ..self.blank(Kind::Dir, dir) };
        let ino = self.add(dir, name, node);
        self.node_mut(ino).subvol = ino;
        Ok(ino)
    }

    pub fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Done {
        if self.node(ino).subvol != self.node(dir).subvol {
            return Err("CrossDevice");
        }
        self.check_gains(dir)?;
        self.can_add(dir, name)?;
        self.check_mutable(ino)?;
        if self.node(ino).kind == Kind::Dir {
            return Err("NotPermitted");
        }
        self.node_mut(dir).entries.insert(name.to_vec(), ino);
        self.node_mut(ino).nlink += 1;
        self.touch(ino);
        self.touch_dir(dir);
        Ok(())
    }

    pub(super) fn lookup(&self, dir: Ino, name: &[u8]) -> Done<Ino> {
        if name.len() > NAME_MAX {
            return Err("NameTooLong");
        }
        self.node(dir).entries.get(name).copied().ok_or("NotFound")
    }

    pub fn remove(&mut self, dir: Ino, name: &[u8], directory: bool) -> Done {
        self.check_loses(dir)?;
        let ino = self.lookup(dir, name)?;
        if self.is_top(ino) {
            return Err(match (directory, self.node(ino).entries.is_empty()) {
                (false, _) => "IsDirectory",
                (true, false) => "NotEmpty",
                (true, true) => return self.delete_subvolume(dir, name),
            });
        }
        self.check_removable(ino, directory)?;
        self.drop_name(dir, name);
        Ok(())
    }

    fn check_removable(&self, ino: Ino, directory: bool) -> Done {
        match (self.node(ino).kind == Kind::Dir, directory) {
            (true, false) => return Err("IsDirectory"),
            (false, true) => return Err("NotDirectory"),
            _ => {}
        }
        if self.node(ino).id.is_empty_dir() {
            return Ok(());
        }
        self.check_mutable(ino)?;
        if directory && !self.node(ino).entries.is_empty() { Err("NotEmpty") } else { Ok(()) }
    }

    fn drop_name(&mut self, dir: Ino, name: &[u8]) {
        let ino = self.node_mut(dir).entries.remove(name).unwrap_or_else(|| panic!("a name"));
        self.touch_dir(dir);
        self.touch(ino);
        let node = self.node_mut(ino);
        node.nlink = node.nlink.saturating_sub(1);
        if node.nlink == 0 {
            self.nodes.remove(&ino);
        }
    }

    /// Whether `dir` is `top` or lies below it.
    fn is_below(&self, mut dir: Ino, top: Ino) -> bool {
        while dir != top {
            if dir == self.root {
                return false;
            }
            dir = self.node(dir).parent;
        }
        true
    }

    fn check_moves(&self, from: Ino, what: Ino, to: Ino) -> Done {
        let node = self.node(what);
        if node.id.is_empty_dir() {
            return Err("NotPermitted");
        }
        if !self.is_top(what) {
            if self.node(from).subvol != self.node(to).subvol {
                return Err("CrossDevice");
            }
            self.check_mutable(what)?;
        }
        if node.kind == Kind::Dir && from != to && self.is_below(to, what) {
            return Err("Invalid");
        }
        Ok(())
    }

    pub fn rename(&mut self, from: Ino, old: &[u8], to: Ino, new: &[u8], mode: RenameMode) -> Done {
        self.check_frozen(from)?;
        self.check_frozen(to)?;
        self.check_loses(from)?;
        self.check_gains(to)?;
        let moved = self.lookup(from, old)?;
        let there = match self.can_add(to, new) {
            Ok(()) => None,
            Err("Exists") => Some(self.node(to).entries[new]),
            Err(error) => return Err(error),
        };
        self.check_moves(from, moved, to)?;
        match (mode, there) {
            (RenameMode::NoReplace, Some(_)) => return Err("Exists"),
            (RenameMode::Exchange, None) => return Err("NotFound"),
            (RenameMode::Exchange, Some(there)) => self.check_moves(to, there, from)?,
            (_, Some(there)) if there != moved => self.check_replaced(to, moved, there)?,
            _ => {}
        }
        if there == Some(moved) {
            return Ok(());
        }
        self.node_mut(from).entries.remove(old);
        match (mode, there) {
            (RenameMode::Exchange, Some(there)) => {
                self.node_mut(to).entries.remove(new);
                self.put(there, from, old);
            }
            (_, Some(_)) => self.drop_name(to, new),
            _ => {}
        }
        self.put(moved, to, new);
        self.touch_dir(from);
        Ok(())
    }

    fn check_replaced(&self, to: Ino, moved: Ino, there: Ino) -> Done {
        let directory = self.node(moved).kind == Kind::Dir;
        if self.is_top(there) || self.node(there).id.is_empty_dir() {
            return Err(if directory { "Unsupported" } else { "IsDirectory" });
        }
        self.check_removable(there, directory)?;
        self.check_loses(to)
    }

    fn put(&mut self, ino: Ino, dir: Ino, name: &[u8]) {
        self.node_mut(dir).entries.insert(name.to_vec(), ino);
        self.touch_dir(dir);
        self.node_mut(ino).parent = dir;
        if !self.is_top(ino) {
            self.touch(ino);
        }
    }
}

/// Bytes of an entry besides its name.
const ENTRY: usize = size_of::<buttery_disk::dir::DirItem>();

fn kind_of(mode: u32) -> Option<Kind> {
    Some(match mode & 0o170000 {
        0o100000 => Kind::File,
        0o040000 => Kind::Dir,
        0o120000 => Kind::Symlink,
        0o020000 => Kind::Char,
        0o060000 => Kind::Block,
        0o010000 => Kind::Fifo,
        0o140000 => Kind::Socket,
        _ => return None,
    })
}
