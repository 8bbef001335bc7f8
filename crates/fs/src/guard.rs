//! What may be changed: read-only subvolumes, immutable and append-only files, verity.

use crate::read::is_empty_dir;
use crate::write_open::WriteState;
use crate::{Error, FileId, Filesystem, Result, Stat};
use buttery_disk::TreeId;
use buttery_disk::inode::flags;
use buttery_engine::tree::Tree;
use buttery_engine::{file, subvol};
use std::sync::Arc;

impl Filesystem {
    pub(crate) fn write_state(&self) -> Result<&WriteState> {
        self.write.as_ref().ok_or(Error::ReadOnly)
    }

    /// Whether a file may be opened for writing: not in a read-only snapshot, nor one that is immutable or under verity;
    /// one that only grows must be opened for appending.
    pub fn check_open_for_writing(&self, id: FileId, append: bool) -> Result<()> {
        self.tree_to_change(id)?;
        let stat = self.stat(id)?;
        self.check_data(&stat)?;
        if stat.flags & flags::APPEND != 0 && !append { Err(Error::NotPermitted) } else { Ok(()) }
    }

    /// The tree of a subvolume that is about to be changed. Its orphans go at its first use.
    pub(crate) fn tree_to_change(&self, id: FileId) -> Result<Arc<Tree>> {
        let state = self.write_state()?;
        if is_empty_dir(id) {
            return Err(Error::NotPermitted);
        }
        let tree = self.engine.tree(id.tree)?;
        if tree.is_read_only() {
            return Err(Error::ReadOnly);
        }
        if state.cleaned.lock().insert(id.tree) {
            self.remove_orphans(id.tree)?;
        }
        Ok(tree)
    }

    /// Removes the inodes without links that nobody holds.
    pub(crate) fn remove_orphans(&self, id: TreeId) -> Result<()> {
        let state = self.write_state()?;
        let tree = self.engine.tree(id)?;
        if tree.is_read_only() {
            return Ok(());
        }
        for ino in file::inode::orphans(&self.engine, &tree)? {
            let orphan = FileId { tree: id, ino };
            // with the inode's lock, since others may be about to do the same
            let _data = state.inode(orphan).write();
            if !state.held.lock().contains_key(&orphan) {
                // one that has a name is only noted to be cut
                match self.stat(orphan) {
                    Ok(stat) if stat.nlink > 0 => state.gathered.settle_locked(orphan)?,
                    _ => state.gathered.forget(orphan)?,
                }
                file::truncate::evict(&self.engine, &tree, ino)?;
            }
        }
        Ok(())
    }

    /// A file whose data, attributes or links are about to change.
    pub(crate) fn check_mutable(&self, stat: &Stat) -> Result<()> {
        match stat.flags & (flags::IMMUTABLE | flags::APPEND) {
            0 => Ok(()),
            _ => Err(Error::NotPermitted),
        }
    }

    /// A directory that is about to get a name: not immutable.
    pub(crate) fn check_dir_gains(&self, dir: &Stat) -> Result<()> {
        if dir.kind() != crate::Kind::Directory {
            return Err(Error::NotDirectory);
        }
        if dir.nlink == 0 {
            return Err(Error::NotFound);
        }
        if dir.flags & flags::IMMUTABLE != 0 { Err(Error::NotPermitted) } else { Ok(()) }
    }

    /// A directory that is about to lose a name: neither immutable nor append-only.
    pub(crate) fn check_dir_loses(&self, dir: &Stat) -> Result<()> {
        self.check_dir_gains(dir)?;
        self.check_mutable(dir)
    }

    /// Data of a file are about to change.
    pub(crate) fn check_data(&self, stat: &Stat) -> Result<()> {
        let denied = flags::IMMUTABLE | flags::RO_VERITY;
        if stat.flags & denied != 0 { Err(Error::NotPermitted) } else { Ok(()) }
    }

    /// Whether `dir` lies in `top` or below it. Followed upwards, at most as far as a path can be deep.
    pub(crate) fn is_below(&self, dir: FileId, top: FileId) -> Result<bool> {
        const DEPTH_MAX: usize = 1 << 20;
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            if at == top {
                return Ok(true);
            }
            let above = self.parent(at)?;
            if above == at {
                return Ok(false);
            }
            at = above;
        }
        Err(Error::Corrupt(format!("directory {} has no end of parents", dir.ino).into()))
    }

    /// Whether a subvolume may be found under this name still.
    pub(crate) fn is_real_subvolume(&self, dir: FileId, name: &[u8], id: TreeId) -> Result<bool> {
        subvol::is_linked_from(&self.engine, dir.tree, dir.ino, name, id)
    }
}
