//! Renaming: a name moves, replaces another, or changes places with it.

use crate::names::{change_dir, drop_link, move_name, remove_name};
use crate::{Error, FileId, Filesystem, Kind, Result};
use buttery_disk::dir::file_type;
use buttery_engine::dir::{self, Target, edit};
use buttery_engine::file::inode;
use buttery_engine::subvol::edit as subvol_edit;
use buttery_engine::tree::Tree;
use buttery_engine::txn::{Purpose, Trans};
use std::sync::Arc;

/// What a rename does when the new name exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameMode {
    /// The new name's file goes.
    Replace,
    /// The rename is refused.
    NoReplace,
    /// Both change places.
    Exchange,
}

/// One end of a rename.
struct End<'a> {
    dir: FileId,
    name: &'a [u8],
    tree: Arc<Tree>,
}

/// A name with what it leads to.
#[derive(Clone, Copy)]
struct Leads {
    target: Target,
    kind: u8,
    index: u64,
}

impl Filesystem {
    /// Renames.
    pub fn rename(
        &self,
        from_dir: FileId,
        from: &[u8],
        to_dir: FileId,
        to: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        let state = self.write_state()?;
        // whoever finds the new name after a crash finds all that was written to the file before
        self.settle_named(from_dir, from, 1)?;
        self.settle_named(to_dir, to, if mode == RenameMode::Exchange { 1 } else { 2 })?;
        let gone = {
            let _names = state.namespace.lock();
            let source = End { dir: from_dir, name: from, tree: self.tree_to_change(from_dir)? };
            let dest = End { dir: to_dir, name: to, tree: self.tree_to_change(to_dir)? };
            self.check_dir_loses(&self.stat(from_dir)?)?;
            self.check_dir_gains(&self.stat(to_dir)?)?;
            let moved = self.leads(&source)?.ok_or(Error::NotFound)?;
            let there = match edit::can_add(&self.engine, &dest.tree, to_dir.ino, to) {
                Ok(()) => None,
                Err(Error::Exists) => self.leads(&dest)?,
                Err(error) => return Err(error),
            };
            self.check_moves(&source, &moved, &dest)?;
            match (mode, there) {
                (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists),
                (RenameMode::Exchange, None) => return Err(Error::NotFound),
                (RenameMode::Exchange, Some(there)) => {
                    self.check_moves(&dest, &there, &source)?;
                    self.exchange(&source, &moved, &dest, &there)?;
                    None
                }
                (_, there) => self.replace(&source, &moved, &dest, there)?,
            }
        };
        if let Some(id) = gone {
            self.evict_unless_held(id)?;
        }
        self.after_operation()
    }

    fn leads(&self, end: &End<'_>) -> Result<Option<Leads>> {
        match dir::lookup(&self.engine, &end.tree, end.dir.ino, end.name) {
            Ok((target, kind)) => {
                let index = edit::index_of(&self.engine, &end.tree, end.dir.ino, end.name, target)?;
                Ok(Some(Leads { target, kind, index }))
            }
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn check_moves(&self, from: &End<'_>, what: &Leads, to: &End<'_>) -> Result<()> {
        let id = match what.target {
            Target::Inode(ino) => {
                if from.dir.tree != to.dir.tree {
                    return Err(Error::CrossDevice);
                }
                let id = FileId { tree: from.dir.tree, ino };
                self.check_mutable(&self.stat(id)?)?;
                edit::can_link(&self.engine, &to.tree, ino, to.dir.ino, to.name)?;
                id
            }
            Target::Subvolume(id) if self.is_real_subvolume(from.dir, from.name, id)? => {
                // not into one that was deleted
                self.subvolume(to.dir.tree)?;
                FileId::top_of(id)
            }
            // the empty directory of a snapshot stays where it is, as the kernel has it
            Target::Subvolume(_) => return Err(Error::NotPermitted),
        };
        if what.kind == file_type::DIR && from.dir != to.dir && self.is_below(to.dir, id)? {
            return Err(Error::Invalid);
        }
        Ok(())
    }

    /// Moves a name. Answers the file that lost its last name by it.
    fn replace(
        &self,
        from: &End<'_>,
        moved: &Leads,
        to: &End<'_>,
        there: Option<Leads>,
    ) -> Result<Option<FileId>> {
        if let Some(there) = &there {
            if there.target == moved.target && from.dir.tree == to.dir.tree {
                return Ok(None); // two names of one file: nothing happens
            }
            match there.target {
                Target::Inode(ino) => {
                    let moved_dir = moved.kind == file_type::DIR;
                    self.check_removable(FileId { tree: to.dir.tree, ino }, moved_dir)?;
                }
                Target::Subvolume(_) if moved.kind != file_type::DIR => return Err(Error::IsDirectory),
                Target::Subvolume(_) => return Err(Error::Unsupported("replacing a subvolume".into())),
            }
        }
        self.check_dir_loses(&self.stat(to.dir)?)
            .or_else(|e| if there.is_some() { Err(e) } else { Ok(()) })?;
        let now = self.now();
        let index = edit::next_index(&self.engine, &to.tree, to.dir.ino)?;
        let purpose = if there.is_some() { Purpose::Free } else { Purpose::Change };
        self.engine.change(16, purpose, |trans| {
            let mut gone = None;
            if let Some(Leads { target: Target::Inode(ino), index, .. }) = there {
                remove_name(trans, &to.tree, to.dir.ino, to.name, ino, index, now)?;
                if drop_link(trans, &to.tree, ino, now)? == 0 {
                    gone = Some(FileId { tree: to.dir.tree, ino });
                }
            }
            take_out(trans, from, moved, now)?;
            put_in(trans, to, moved, index, now)?;
            Ok(gone)
        })
    }

    fn exchange(&self, a: &End<'_>, at_a: &Leads, b: &End<'_>, at_b: &Leads) -> Result<()> {
        if at_a.target == at_b.target && a.dir.tree == b.dir.tree {
            return Ok(());
        }
        let now = self.now();
        let index_b = edit::next_index(&self.engine, &b.tree, b.dir.ino)?;
        let index_a = match a.dir == b.dir {
            true => index_b + 1,
            false => edit::next_index(&self.engine, &a.tree, a.dir.ino)?,
        };
        self.engine.change(24, Purpose::Change, |trans| {
            take_out(trans, a, at_a, now)?;
            take_out(trans, b, at_b, now)?;
            put_in(trans, b, at_a, index_b, now)?;
            put_in(trans, a, at_b, index_a, now)
        })
    }

    /// The type of what a name leads to, where only that is asked.
    pub fn kind_of(&self, id: FileId) -> Result<Kind> {
        Ok(self.stat(id)?.kind())
    }
}

fn take_out(
    trans: &mut Trans<'_>,
    end: &End<'_>,
    what: &Leads,
    now: buttery_disk::inode::Timespec,
) -> Result<()> {
    match what.target {
        Target::Inode(ino) => {
            remove_name(trans, &end.tree, end.dir.ino, end.name, ino, what.index, now)?;
            inode::update(trans, &end.tree, ino, |item| item.ctime = now)
        }
        Target::Subvolume(id) => {
            edit::remove_entry(trans, &end.tree, end.dir.ino, end.name, what.index)?;
            change_dir(trans, &end.tree, end.dir.ino, -2 * end.name.len() as i64, now)?;
            subvol_edit::unlink_refs(trans, end.dir.tree, id)
        }
    }
}

fn put_in(
    trans: &mut Trans<'_>,
    end: &End<'_>,
    what: &Leads,
    index: u64,
    now: buttery_disk::inode::Timespec,
) -> Result<()> {
    match what.target {
        Target::Inode(ino) => move_name(trans, &end.tree, end.dir.ino, end.name, ino, what.kind, index, now),
        Target::Subvolume(id) => {
            let name = subvol_edit::Name { dir: end.dir.ino, name: end.name, index };
            subvol_edit::link(trans, &end.tree, id, name, now)
        }
    }
}
