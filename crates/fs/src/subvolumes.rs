//! Subvolumes: making, snapshots, deleting, and the default one.

use crate::names::{ITEMS, change_dir};
use crate::{Error, FileId, Filesystem, Result, TreeId};
use buttery_disk::objectid;
use buttery_engine::dir::{self, Target, edit};
use buttery_engine::subvol::Subvolume;
use buttery_engine::subvol::edit::{self as subvol_edit, NewSubvolume};
use buttery_engine::subvol::snapshot::{self, NewSnapshot};
use buttery_engine::subvol::{self, delete};
use buttery_engine::tree::Tree;
use buttery_engine::txn::Purpose;
use std::sync::Arc;

/// No path inside of a subvolume is longer, in bytes.
const PATH_MAX: usize = 64 << 10;

impl Filesystem {
    /// Makes an empty subvolume.
    pub fn create_subvolume(&self, dir: FileId, name: &[u8], uid: u32, gid: u32) -> Result<TreeId> {
        let state = self.write_state()?;
        let id = {
            let _names = state.namespace.lock();
            // inside of the lock: where the clock is fixed it follows from what there is
            let uuid = self.new_uuid()?;
            self.check_gets_subvolume(dir)?;
            let new = NewSubvolume {
                tree: dir.tree,
                dir: dir.ino,
                name,
                uuid,
                uid,
                gid,
                mode: 0o755,
                now: self.now(),
            };
            subvol_edit::create(&self.engine, &new)?
        };
        self.after_operation()?;
        Ok(id)
    }

    /// Takes a snapshot of a subvolume: another one that is what this one is at a moment. When this returns it is on the
    /// device, and everything else that was changed before.
    ///
    /// What was written before the call is in it; of what is written meanwhile, nothing without all that was written before
    /// that. A write that is under way may be in it in part, if it is done in several steps: to free space in pieces, or not
    /// in whole sectors. Errors: `NotFound` if there is no such subvolume, those of making a name, and those of writing.
    pub fn snapshot(&self, source: TreeId, dir: FileId, name: &[u8], read_only: bool) -> Result<TreeId> {
        let state = self.write_state()?;
        let tree = self.subvolume(source)?;
        // other subvolumes' data, so that the commit has all that was written before; what of them cannot be written stays
        let _ = state.gathered.settle_all();
        let id = {
            let still = tree.hold_still(|| state.gathered.settle_subvolume(source))?;
            let _names = state.namespace.lock();
            // it may have been deleted meanwhile
            self.subvolume(source)?;
            self.check_gets_subvolume(dir)?;
            let new = NewSnapshot {
                tree: dir.tree,
                dir: dir.ino,
                name: name.to_vec(),
                uuid: self.new_uuid()?,
                read_only,
                now: self.now(),
            };
            snapshot::take(&self.engine, &still, new)?
        };
        self.after_operation()?;
        Ok(id)
    }

    /// A directory that is about to get a subvolume's name, not in a subvolume that was deleted: nobody would find it.
    fn check_gets_subvolume(&self, dir: FileId) -> Result<()> {
        self.subvolume(dir.tree)?;
        self.tree_to_change(dir)?;
        self.check_dir_gains(&self.stat(dir)?)
    }

    /// The tree of a subvolume; `NotFound` if it is none, or was deleted.
    pub(crate) fn subvolume(&self, id: TreeId) -> Result<Arc<Tree>> {
        if !objectid::is_subvolume(id.0) {
            return Err(Error::NotFound);
        }
        let tree = self.engine.tree(id)?;
        if tree.item().refs.get() == 0 { Err(Error::NotFound) } else { Ok(tree) }
    }

    /// Makes a subvolume the one that is mounted by default.
    pub fn set_default_subvolume(&self, id: TreeId) -> Result<()> {
        let _names = self.write_state()?.namespace.lock();
        self.subvolume(id)?;
        subvol_edit::set_default(&self.engine, id)
    }

    /// The subvolume that is mounted by default.
    pub fn default_subvolume(&self) -> Result<TreeId> {
        subvol::default_subvolume(&self.engine)
    }

    /// In a snapshot, the name of a nested subvolume shows an empty directory, which may be removed; the subvolume
    /// itself is elsewhere. A subvolume that is empty goes as directories do.
    pub(crate) fn remove_subvolume_name(
        &self,
        tree: &Tree,
        dir: FileId,
        name: &[u8],
        id: TreeId,
        directory: bool,
    ) -> Result<()> {
        if !directory {
            return Err(Error::IsDirectory);
        }
        if self.is_real_subvolume(dir, name, id)? {
            if !self.is_empty(FileId::top_of(id))? {
                return Err(Error::NotEmpty);
            }
            return self.delete_name(tree, dir, name, id);
        }
        let index = edit::index_of(&self.engine, tree, dir.ino, name, Target::Subvolume(id))?;
        let now = self.now();
        self.engine.change(ITEMS, Purpose::Free, |trans| {
            edit::remove_entry(trans, tree, dir.ino, name, index)?;
            change_dir(trans, tree, dir.ino, -2 * name.len() as i64, now)
        })
    }

    /// Deletes a subvolume with all that is in it, other subvolumes excepted: `NotEmpty` if there are any. Its name goes at
    /// once, what it takes up with [`drop_deleted`](Self::drop_deleted). `Invalid` if the name is no subvolume's,
    /// `NotPermitted` for the default one, `Busy` for the one that was opened as the root.
    pub fn delete_subvolume(&self, dir: FileId, name: &[u8]) -> Result<TreeId> {
        let state = self.write_state()?;
        let id = {
            let _names = state.namespace.lock();
            let tree = self.tree_to_change(dir)?;
            self.check_dir_loses(&self.stat(dir)?)?;
            let (target, _) = dir::lookup(&self.engine, &tree, dir.ino, name)?;
            let Target::Subvolume(id) = target else { return Err(Error::Invalid) };
            if !self.is_real_subvolume(dir, name, id)? {
                return Err(Error::Invalid);
            }
            self.delete_name(&tree, dir, name, id)?;
            id
        };
        self.after_operation()?;
        Ok(id)
    }

    /// Names stay meanwhile.
    fn delete_name(&self, tree: &Tree, dir: FileId, name: &[u8], id: TreeId) -> Result<()> {
        if self.root.tree == id {
            return Err(Error::Busy);
        }
        delete::can_delete(&self.engine, id)?;
        let name = delete::name_of(&self.engine, tree, dir.ino, name, id)?;
        delete::delete(&self.engine, id, tree, name, self.now())?;
        self.write_state()?.dead.add(id);
        Ok(())
    }

    /// A subvolume by its id: what its root item says, and where its name is.
    pub fn subvolume_info(&self, id: TreeId) -> Result<Subvolume> {
        self.subvolume(id)?;
        subvol::of(&self.engine, id)
    }

    /// The subvolumes whose names lie in this one, from an id on, and the directory that has each name.
    pub fn subvolumes_in(&self, id: TreeId, from: TreeId) -> Result<Vec<(TreeId, u64)>> {
        subvol::children(&self.engine, id, from)
    }

    /// The path of a directory, seen from the top of its subvolume: names with slashes in between.
    pub fn path_in_subvolume(&self, dir: FileId) -> Result<Vec<u8>> {
        let tree = self.subvolume(dir.tree)?;
        let (mut names, mut len, mut at) = (Vec::new(), 0, dir.ino);
        while let Some((above, name)) = dir::parent_of(&self.engine, &tree, at)? {
            len += name.len() + 1;
            // also where directories lie in one another in a circle
            if len > PATH_MAX {
                return Err(Error::NameTooLong);
            }
            names.push(name);
            at = above;
        }
        names.reverse();
        Ok(names.join(&b'/'))
    }

    /// Makes a subvolume read-only, or writable again; for good when this returns.
    pub fn set_read_only(&self, id: TreeId, yes: bool) -> Result<()> {
        let state = self.write_state()?;
        let tree = self.subvolume(id)?;
        if tree.is_read_only() != yes {
            let _still = tree.hold_still(|| state.gathered.settle_subvolume(id))?;
            let _names = state.namespace.lock();
            subvol_edit::set_read_only(&self.engine, &tree, yes)?;
        }
        self.engine.commit()
    }

    /// The file system's label.
    pub fn label(&self) -> Vec<u8> {
        subvol_edit::label(&self.engine)
    }

    /// Gives the file system a label: at most 255 bytes, none of them NUL; `Invalid` otherwise.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        self.write_state()?;
        subvol_edit::set_label(&self.engine, label)?;
        self.engine.commit()
    }
}
