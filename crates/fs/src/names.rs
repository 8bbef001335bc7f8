//! Making, linking and removing names.

use crate::acl::Inherited;
use crate::compression::PROPERTY;
use crate::{Error, FileId, Filesystem, Kind, Result, Stat};
use buttery_disk::dir::file_type;
use buttery_disk::inode::{Timespec, flags, mode};
use buttery_engine::dir::{self, Target, edit, xattr};
use buttery_engine::file;
use buttery_engine::file::inode::{self, NewInode};
use buttery_engine::tree::Tree;
use buttery_engine::txn::{Purpose, Trans};

/// Most links that an inode can have.
const LINKS_MAX: u32 = 65535;
/// Items that a name's coming or going changes.
pub(crate) const ITEMS: u64 = 8;

/// What a new file, directory or device node is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Major and minor number of a device node.
    pub rdev: (u32, u32),
    /// The umask of the process that makes it, as for open(2): it takes bits away, or where the directory has a default
    /// access control list, the new file gets its own from that instead. Without one it gets exactly these bits.
    pub umask: Option<u32>,
}

impl NewNode {
    /// A regular file of root's.
    pub fn file(permissions: u32) -> NewNode {
        NewNode { mode: mode::REG | permissions & 0o7777, uid: 0, gid: 0, rdev: (0, 0), umask: None }
    }

    /// A directory of root's.
    pub fn directory(permissions: u32) -> NewNode {
        NewNode { mode: mode::DIR | permissions & 0o7777, uid: 0, gid: 0, rdev: (0, 0), umask: None }
    }
}

impl Filesystem {
    /// Makes a file, directory, device node, fifo or socket. In a directory with the set-group-id bit it gets the
    /// directory's group, and a directory that bit.
    pub fn create(&self, dir: FileId, name: &[u8], new: NewNode) -> Result<FileId> {
        self.create_with(dir, name, new, |_, _, _| Ok(()))
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, dir: FileId, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Result<FileId> {
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        let room = self.engine.store().nodesize() - 101 - 25 - 21;
        if target.len() > room.min(4095) {
            return Err(Error::NameTooLong);
        }
        let new = NewNode { mode: mode::LNK | 0o777, uid, gid, rdev: (0, 0), umask: None };
        self.create_with(dir, name, new, |trans, tree, ino| file::write::set_inline(trans, tree, ino, target))
    }

    fn create_with(
        &self,
        dir: FileId,
        name: &[u8],
        mut new: NewNode,
        fill: impl FnOnce(&mut Trans<'_>, &Tree, u64) -> Result<()>,
    ) -> Result<FileId> {
        let state = self.write_state()?;
        let id = {
            let _names = state.namespace.lock();
            let tree = self.tree_to_change(dir)?;
            let parent = self.stat(dir)?;
            self.check_dir_gains(&parent)?;
            edit::can_add(&self.engine, &tree, dir.ino, name)?;
            let kind = file_type::of_mode(new.mode);
            if kind == file_type::UNKNOWN {
                return Err(Error::Invalid);
            }
            if parent.mode & 0o2000 != 0 {
                new.gid = parent.gid;
                if kind == file_type::DIR {
                    new.mode |= 0o2000;
                }
            }
            let mut acls = Inherited::default();
            if let Some(umask) = new.umask {
                (new.mode, acls) = self.inherit_acl(&tree, dir.ino, new.mode, umask)?;
            }
            let property = match kind {
                file_type::REG | file_type::DIR => self.inherited_property(&tree, dir)?,
                _ => None,
            };
            let ino = inode::new_number(&self.engine, &tree)?;
            let index = edit::next_index(&self.engine, &tree, dir.ino)?;
            let item = self.new_inode(&parent, &new);
            // what is written without checksums is not compressed
            let property = property.filter(|_| item.flags & flags::NODATASUM == 0);
            let items = ITEMS + acls.attributes().count() as u64 + u64::from(property.is_some());
            self.engine.change(items, Purpose::Change, |trans| {
                inode::insert(trans, &tree, ino, &item)?;
                for (name, value) in acls.attributes() {
                    xattr::set(trans, &tree, ino, name, value)?;
                }
                if let Some(value) = &property {
                    xattr::set(trans, &tree, ino, PROPERTY, value)?;
                }
                fill(trans, &tree, ino)?;
                add_name(trans, &tree, dir.ino, name, ino, kind, index, item.now)
            })?;
            FileId { tree: dir.tree, ino }
        };
        self.after_operation()?;
        Ok(id)
    }

    fn new_inode(&self, parent: &Stat, new: &NewNode) -> NewInode {
        let regular = new.mode & mode::FMT == mode::REG;
        let mut bits = parent.flags & (flags::NODATACOW | flags::COMPRESS | flags::NOCOMPRESS);
        if let Some(state) = &self.write {
            let cow = if state.nodatacow { flags::NODATACOW } else { 0 };
            bits |= if regular { cow } else { 0 };
            if regular && (state.nodatasum || bits & flags::NODATACOW != 0) {
                bits |= flags::NODATASUM;
            }
        }
        if !regular && new.mode & mode::FMT != mode::DIR {
            bits = 0;
        }
        NewInode {
            mode: new.mode,
            uid: new.uid,
            gid: new.gid,
            rdev: (u64::from(new.rdev.0) << 20) | u64::from(new.rdev.1),
            flags: bits,
            now: self.now(),
        }
    }

    /// Gives a file another name, in the same subvolume.
    pub fn link(&self, id: FileId, dir: FileId, name: &[u8]) -> Result<()> {
        let state = self.write_state()?;
        // whoever finds the new name after a crash finds all that was written to the file before
        state.gathered.settle(id)?;
        let mut kept = None;
        {
            let _names = state.namespace.lock();
            if id.tree != dir.tree {
                return Err(Error::CrossDevice);
            }
            let tree = self.tree_to_change(dir)?;
            self.check_dir_gains(&self.stat(dir)?)?;
            edit::can_add(&self.engine, &tree, dir.ino, name)?;
            let stat = self.stat(id)?;
            self.check_mutable(&stat)?;
            if stat.kind() == Kind::Directory {
                return Err(Error::NotPermitted);
            }
            if stat.nlink == 0 {
                // whoever has it may let go of it at any time
                let mut held = state.held.lock();
                *held.get_mut(&id).ok_or(Error::NotFound)? += 1;
                kept = Some(Kept { fs: self, id });
            }
            if stat.nlink >= LINKS_MAX {
                return Err(Error::TooManyLinks);
            }
            edit::can_link(&self.engine, &tree, id.ino, dir.ino, name)?;
            let index = edit::next_index(&self.engine, &tree, dir.ino)?;
            let (kind, now) = (file_type::of_mode(stat.mode), self.now());
            self.engine.change(ITEMS, Purpose::Change, |trans| {
                add_name(trans, &tree, dir.ino, name, id.ino, kind, index, now)?;
                if stat.nlink == 0 {
                    inode::remove_orphan(trans, &tree, id.ino)?;
                }
                inode::update(trans, &tree, id.ino, |item| item.ctime = now)
            })?;
        }
        drop(kept);
        self.after_operation()
    }

    /// Removes the name of anything but a directory. The file goes with its last name, once nobody holds it.
    pub fn unlink(&self, dir: FileId, name: &[u8]) -> Result<()> {
        self.remove(dir, name, false)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, dir: FileId, name: &[u8]) -> Result<()> {
        self.remove(dir, name, true)
    }

    fn remove(&self, dir: FileId, name: &[u8], directory: bool) -> Result<()> {
        let state = self.write_state()?;
        // a file that stays is to change in the order in which it was changed; one that goes need not be written
        self.settle_named(dir, name, 2)?;
        let gone = {
            let _names = state.namespace.lock();
            let tree = self.tree_to_change(dir)?;
            self.check_dir_loses(&self.stat(dir)?)?;
            let (target, _) = dir::lookup(&self.engine, &tree, dir.ino, name)?;
            match target {
                Target::Subvolume(id) => {
                    self.remove_subvolume_name(&tree, dir, name, id, directory)?;
                    None
                }
                Target::Inode(ino) => {
                    let id = FileId { tree: dir.tree, ino };
                    self.check_removable(id, directory)?;
                    let index = edit::index_of(&self.engine, &tree, dir.ino, name, target)?;
                    let now = self.now();
                    let left = self.engine.change(ITEMS, Purpose::Free, |trans| {
                        remove_name(trans, &tree, dir.ino, name, ino, index, now)?;
                        drop_link(trans, &tree, ino, now)
                    })?;
                    (left == 0).then_some(id)
                }
            }
        };
        if let Some(id) = gone {
            self.evict_unless_held(id)?;
        }
        self.after_operation()
    }

    /// Whether a name may go with what it leads to: its type is the expected one, a directory is empty, no flag denies.
    pub(crate) fn check_removable(&self, id: FileId, directory: bool) -> Result<()> {
        let stat = self.stat(id)?;
        match (stat.kind() == Kind::Directory, directory) {
            (true, false) => return Err(Error::IsDirectory),
            (false, true) => return Err(Error::NotDirectory),
            _ => {}
        }
        self.check_mutable(&stat)?;
        if directory && !self.is_empty(id)? { Err(Error::NotEmpty) } else { Ok(()) }
    }

    pub(crate) fn is_empty(&self, dir: FileId) -> Result<bool> {
        let mut empty = true;
        self.read_dir(dir, 0, &mut |_| {
            empty = false;
            Ok(false)
        })?;
        Ok(empty)
    }

    /// Says that somebody may use this inode even after its last name is gone.
    pub fn hold(&self, id: FileId, times: u64) {
        if let Some(state) = &self.write {
            *state.held.lock().entry(id).or_insert(0) += times;
        }
    }

    /// Takes back what [`hold`](Self::hold) said; an inode without a name goes with its last holder.
    pub fn release(&self, id: FileId, times: u64) -> Result<()> {
        let Some(state) = &self.write else { return Ok(()) };
        {
            let mut held = state.held.lock();
            let Some(count) = held.get_mut(&id) else { return Ok(()) };
            *count = count.saturating_sub(times);
            if *count > 0 {
                return Ok(());
            }
            held.remove(&id);
        }
        match self.stat(id) {
            Ok(stat) if stat.nlink == 0 && !id.is_empty_dir() => self.evict_unless_held(id),
            _ => Ok(()),
        }
    }

    pub(crate) fn evict_unless_held(&self, id: FileId) -> Result<()> {
        let state = self.write_state()?;
        {
            let _names = state.namespace.lock();
            let is_gone = match self.stat(id) {
                Err(Error::NotFound) => true,
                stat => stat?.nlink == 0,
            };
            if !is_gone || state.held.lock().contains_key(&id) {
                return Ok(());
            }
        }
        let tree = self.engine.tree(id.tree)?;
        let _data = state.inode(id).write();
        state.gathered.forget(id)?;
        match file::truncate::evict(&self.engine, &tree, id.ino) {
            // what could not be removed now is an orphan, and goes the next time
            Err(Error::NoSpace) => Ok(()),
            other => other,
        }
    }
}

/// An inode without a name that an operation holds.
struct Kept<'a> {
    fs: &'a Filesystem,
    id: FileId,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        // what could not be removed now is an orphan, and goes the next time
        let _ = self.fs.release(self.id, 1);
    }
}

/// Adds a name: both entries, the inode's back link and link count, the directory's size and times.
#[allow(clippy::too_many_arguments)] // all that a name is
pub(crate) fn add_name(
    trans: &mut Trans<'_>,
    tree: &Tree,
    dir: u64,
    name: &[u8],
    ino: u64,
    kind: u8,
    index: u64,
    now: Timespec,
) -> Result<()> {
    inode::update(trans, tree, ino, |item| item.nlink = (item.nlink.get() + 1).into())?;
    move_name(trans, tree, dir, name, ino, kind, index, now)
}

/// The same without the link count: the name that comes stands for one that went.
#[allow(clippy::too_many_arguments)]
pub(crate) fn move_name(
    trans: &mut Trans<'_>,
    tree: &Tree,
    dir: u64,
    name: &[u8],
    ino: u64,
    kind: u8,
    index: u64,
    now: Timespec,
) -> Result<()> {
    edit::add_ref(trans, tree, ino, dir, name, index)?;
    edit::add_entry(trans, tree, dir, name, Target::Inode(ino), kind, index)?;
    change_dir(trans, tree, dir, 2 * name.len() as i64, now)
}

/// Removes a name: both entries and the inode's back link; the link count is the caller's.
pub(crate) fn remove_name(
    trans: &mut Trans<'_>,
    tree: &Tree,
    dir: u64,
    name: &[u8],
    ino: u64,
    index: u64,
    now: Timespec,
) -> Result<()> {
    edit::remove_ref(trans, tree, ino, dir, name)?;
    edit::remove_entry(trans, tree, dir, name, index)?;
    change_dir(trans, tree, dir, -2 * name.len() as i64, now)
}

/// One link fewer; an inode without links becomes an orphan. Answers the links that are left.
pub(crate) fn drop_link(trans: &mut Trans<'_>, tree: &Tree, ino: u64, now: Timespec) -> Result<u32> {
    let left = inode::update(trans, tree, ino, |item| {
        let left = item.nlink.get().saturating_sub(1);
        item.nlink = left.into();
        item.ctime = now;
        left
    })?;
    if left == 0 {
        inode::add_orphan(trans, tree, ino)?;
    }
    Ok(left)
}

pub(crate) fn change_dir(
    trans: &mut Trans<'_>,
    tree: &Tree,
    dir: u64,
    size: i64,
    now: Timespec,
) -> Result<()> {
    inode::update(trans, tree, dir, |item| {
        item.size = item.size.get().saturating_add_signed(size).into();
        item.mtime = now;
        item.ctime = now;
    })
}
