//! Changing data and attributes.

use crate::compression::{PROPERTY, Property};
use crate::{Error, FileId, Filesystem, Kind, Result, Stat, Time, acl};
use buttery_disk::inode::{Timespec, flags, mode};
use buttery_engine::bio::Wait;
use buttery_engine::dir::xattr;
use buttery_engine::file;
use buttery_engine::file::inode;
use buttery_engine::file::write::How;
use buttery_engine::tree::Tree;
use buttery_engine::txn::Purpose;

/// The attribute that holds a file's capabilities.
pub const CAPABILITY: &[u8] = b"security.capability";

/// Attributes to be changed; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// Of the last access.
    pub atime: Option<Time>,
    /// Of the last change of its contents.
    pub mtime: Option<Time>,
    /// The time of the change itself; now, if absent.
    pub ctime: Option<Time>,
    /// When it was made.
    pub otime: Option<Time>,
}

impl SetAttr {
    /// The same with nothing but the times that a write changes.
    pub fn only_of_writes(&self) -> SetAttr {
        SetAttr { mtime: self.mtime, ctime: self.ctime, ..SetAttr::default() }
    }
}

/// Whether an attribute must, or must not, be there before it is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrMode {
    /// Either.
    Any,
    /// It must not be there.
    Create,
    /// It must be there.
    Replace,
}

impl Filesystem {
    /// Writes `data` at `offset` of a regular file. When it returns there is space for them, and after the next
    /// [`sync`](Self::sync) they are there for good. Data that come in small pieces, each behind the last, stay in memory
    /// until then, or until there are many.
    pub fn write(&self, id: FileId, offset: u64, data: &[u8]) -> Result<()> {
        self.write_for(id, offset, data, Wait::No, Some(self.now()))
    }

    /// As [`write`](Self::write), for somebody who waits for just this write: a direct or a synchronous one.
    pub fn write_direct(&self, id: FileId, offset: u64, data: &[u8]) -> Result<()> {
        self.write_for(id, offset, data, Wait::Yes, Some(self.now()))
    }

    /// As [`write`](Self::write), of data that a cache above has held back. Their times are the cache's to say.
    pub fn write_held_back(&self, id: FileId, offset: u64, data: &[u8]) -> Result<()> {
        self.write_for(id, offset, data, Wait::No, None)
    }

    fn write_for(
        &self,
        id: FileId,
        offset: u64,
        data: &[u8],
        wait: Wait,
        now: Option<Timespec>,
    ) -> Result<()> {
        let tree = self.tree_to_change(id)?;
        let gathered = match (wait, now) {
            (Wait::No, Some(now)) => self.gather(&tree, id, offset, data, now)?,
            _ => false,
        };
        if !gathered && !self.overwrite(&tree, id, offset, data, wait, now)? {
            self.write_state()?.gathered.broken_off(id);
            let _data = self.lock_inode(id)?;
            let stat = self.stat(id)?;
            regular(&stat)?;
            // what was held back was checked when the file was opened, and is whole pages
            let checked = now.is_none();
            if !checked {
                self.check_data(&stat)?;
            }
            if !checked && stat.flags & flags::APPEND != 0 && offset != stat.size {
                return Err(Error::NotPermitted);
            }
            let how = How { wait, now, ..self.how(&tree, &stat)? };
            file::write::write(&self.engine, &tree, id.ino, offset, data, how)?;
        }
        self.after_operation()
    }

    /// Writes over what is there, beside others who do the same elsewhere in the file. Answers `false` if it takes more.
    fn overwrite(
        &self,
        tree: &Tree,
        id: FileId,
        offset: u64,
        data: &[u8],
        wait: Wait,
        now: Option<Timespec>,
    ) -> Result<bool> {
        let state = self.write_state()?;
        let sector = u64::from(self.engine.superblock().sectorsize.get());
        let Some(end) = offset.checked_add(data.len() as u64) else { return Ok(false) };
        let _data = state.inode(id).read();
        let item = inode::read(&self.engine, tree, id.ino)?;
        let stat = Stat::new(id, &item);
        let plain = stat.kind() == Kind::File
            && stat.flags & (flags::APPEND | flags::IMMUTABLE | flags::RO_VERITY) == 0;
        if !plain || state.gathered.seen(id).is_some() || end > stat.size || stat.size <= sector {
            return Ok(false);
        }
        let _range = state.ranges.lock(id, offset / sector * sector, end.next_multiple_of(sector), true);
        let how = How { wait, now, ..self.how(tree, &stat)? };
        file::write::overwrite(&self.engine, tree, id.ino, &item, offset, data, how)
    }

    /// Writes at the end of a regular file. Answers where that was.
    pub fn append(&self, id: FileId, data: &[u8]) -> Result<u64> {
        let tree = self.tree_to_change(id)?;
        let offset = {
            let _data = self.lock_inode(id)?;
            let stat = self.stat(id)?;
            regular(&stat)?;
            self.check_data(&stat)?;
            let how = self.how(&tree, &stat)?;
            file::write::write(&self.engine, &tree, id.ino, stat.size, data, how)?;
            stat.size
        };
        self.after_operation()?;
        Ok(offset)
    }

    /// Sets the size of a regular file; what is added reads as zeros.
    pub fn truncate(&self, id: FileId, size: u64) -> Result<()> {
        let state = self.write_state()?;
        let tree = self.tree_to_change(id)?;
        {
            let _data = state.inode(id).write();
            let stat = self.stat(id)?;
            regular(&stat)?;
            self.check_data(&stat)?;
            self.check_mutable(&stat)?;
            let now = self.now();
            state
                .gathered
                .cut(id, size, || file::truncate::truncate(&self.engine, &tree, id.ino, size, now))?;
        }
        self.after_operation()
    }

    /// Changes attributes.
    pub fn set_attr(&self, id: FileId, set: &SetAttr) -> Result<()> {
        let tree = self.tree_to_change(id)?;
        {
            let _data = self.lock_inode(id)?;
            self.check_mutable(&self.stat(id)?)?;
            let now = self.now();
            let acl = set.mode.map(|bits| self.acl_after_chmod(&tree, id, bits)).transpose()?.flatten();
            self.engine.change(4, Purpose::Change, |trans| {
                if let Some(acl) = &acl {
                    xattr::set(trans, &tree, id.ino, acl::ACCESS, acl)?;
                }
                inode::update(trans, &tree, id.ino, |item| {
                    if let Some(bits) = set.mode {
                        item.mode = (item.mode.get() & mode::FMT | bits & 0o7777).into();
                    }
                    if let Some(uid) = set.uid {
                        item.uid = uid.into();
                    }
                    if let Some(gid) = set.gid {
                        item.gid = gid.into();
                    }
                    item.atime = set.atime.map_or(item.atime, Into::into);
                    item.mtime = set.mtime.map_or(item.mtime, Into::into);
                    item.otime = set.otime.map_or(item.otime, Into::into);
                    item.ctime = set.ctime.map_or(now, Into::into);
                })
            })?;
        }
        self.after_operation()
    }

    /// Sets the inode's flags ([`flags`](buttery_disk::inode::flags)) of `mask` to those of `value`.
    pub fn set_flags(&self, id: FileId, mask: u64, value: u64) -> Result<()> {
        self.set_flags_by(id, |_| (mask, value))
    }

    /// The same with mask and value by what the file is, which does not change in between.
    pub(crate) fn set_flags_by(&self, id: FileId, by: impl FnOnce(&Stat) -> (u64, u64)) -> Result<()> {
        let tree = self.tree_to_change(id)?;
        let now = self.now();
        {
            let _data = self.lock_inode(id)?;
            let (mask, value) = by(&self.stat(id)?);
            self.engine.change(2, Purpose::Change, |trans| {
                inode::update(trans, &tree, id.ino, |item| {
                    item.flags = (item.flags.get() & !mask | value & mask).into();
                    item.ctime = now;
                })
            })?;
        }
        self.after_operation()
    }

    /// Sets an extended attribute. An access control list changes the mode with it, and one that says no more than a
    /// mode is kept in the mode alone.
    pub fn set_xattr(&self, id: FileId, name: &[u8], value: &[u8], how: XattrMode) -> Result<()> {
        let tree = self.tree_to_change(id)?;
        {
            let _data = self.lock_inode(id)?;
            let stat = self.stat(id)?;
            self.check_mutable(&stat)?;
            if name.starts_with(b"btrfs.") && name != PROPERTY {
                return Err(Error::Unsupported("a btrfs property other than btrfs.compression".into()));
            }
            let there = match xattr::get(&self.engine, &tree, id.ino, name) {
                Ok(old) if old == value && how == XattrMode::Any => return Ok(()),
                Ok(_) => true,
                Err(Error::NoAttribute) => false,
                Err(error) => return Err(error),
            };
            match (how, there) {
                (XattrMode::Create, true) => return Err(Error::Exists),
                (XattrMode::Replace, false) => return Err(Error::NoAttribute),
                _ => {}
            }
            if name == PROPERTY {
                self.check_property(&stat)?;
                let property = Property::parse(value)?;
                self.change_property(&tree, &stat, (!property.removes).then_some(value), property.flags)?;
            } else if acl::is_acl(name) {
                self.change_acl(&tree, &stat, name, value, there)?;
            } else {
                xattr::can_set(&self.engine, &tree, id.ino, name, value)?;
                let now = self.now();
                self.engine.change(4, Purpose::Change, |trans| {
                    xattr::set(trans, &tree, id.ino, name, value)?;
                    inode::update(trans, &tree, id.ino, |item| item.ctime = now)
                })?;
            }
        }
        self.after_operation()
    }

    /// Removes an extended attribute. An access control list that is not there may be removed too.
    pub fn remove_xattr(&self, id: FileId, name: &[u8]) -> Result<()> {
        let state = self.write_state()?;
        let tree = self.tree_to_change(id)?;
        {
            let _data = state.inode(id).write();
            let stat = self.stat(id)?;
            self.check_mutable(&stat)?;
            match xattr::get(&self.engine, &tree, id.ino, name) {
                Err(Error::NoAttribute) if acl::is_acl(name) => return Ok(()),
                value => value.map(drop)?,
            }
            // every write asks for one that is seldom there
            state.gathered.settle_locked(id)?;
            if name == PROPERTY {
                self.change_property(&tree, &stat, None, 0)?;
            } else {
                let now = self.now();
                self.engine.change(4, Purpose::Free, |trans| {
                    xattr::remove(trans, &tree, id.ino, name)?;
                    inode::update(trans, &tree, id.ino, |item| item.ctime = now)
                })?;
            }
        }
        self.after_operation()
    }

    /// Gives a file the property, or takes it away, and sets the flags that go with it.
    pub(crate) fn change_property(
        &self,
        tree: &Tree,
        stat: &Stat,
        value: Option<&[u8]>,
        bits: u64,
    ) -> Result<()> {
        let (ino, now) = (stat.id.ino, self.now());
        if let Some(value) = value {
            xattr::can_set(&self.engine, tree, ino, PROPERTY, value)?;
        }
        let there = !matches!(xattr::get(&self.engine, tree, ino, PROPERTY), Err(Error::NoAttribute));
        self.engine.change(4, Purpose::Change, |trans| {
            match value {
                Some(value) => xattr::set(trans, tree, ino, PROPERTY, value)?,
                None if there => xattr::remove(trans, tree, ino, PROPERTY)?,
                None => {}
            }
            inode::update(trans, tree, ino, |item| {
                let others = item.flags.get() & !(flags::COMPRESS | flags::NOCOMPRESS);
                item.flags = (others | bits).into();
                item.ctime = now;
            })
        })
    }

    fn change_acl(&self, tree: &Tree, stat: &Stat, name: &[u8], value: &[u8], there: bool) -> Result<()> {
        let change = acl::change(stat, name, value)?;
        let ino = stat.id.ino;
        if let Some(value) = &change.value {
            xattr::can_set(&self.engine, tree, ino, name, value)?;
        }
        let now = self.now();
        self.engine.change(4, Purpose::Change, |trans| {
            match &change.value {
                Some(value) => xattr::set(trans, tree, ino, name, value)?,
                None if there => xattr::remove(trans, tree, ino, name)?,
                None => {}
            }
            inode::update(trans, tree, ino, |item| {
                item.mode = change.mode.into();
                item.ctime = now;
            })
        })
    }

    /// Takes set-user-id and set-group-id bits and file capabilities away, as a write by somebody without privilege
    /// does.
    pub fn kill_privileges(&self, id: FileId) -> Result<()> {
        let stat = self.stat(id)?;
        if stat.kind() != Kind::File {
            return Ok(());
        }
        let group_bit = if stat.mode & 0o10 != 0 { 0o2000 } else { 0 };
        let kill = stat.mode & (0o4000 | group_bit);
        if kill != 0 {
            self.set_attr(id, &SetAttr { mode: Some(stat.mode & !kill), ..SetAttr::default() })?;
        }
        self.drop_capabilities(id)
    }

    /// Takes file capabilities away, as every write does.
    pub fn drop_capabilities(&self, id: FileId) -> Result<()> {
        match self.remove_xattr(id, CAPABILITY) {
            Err(Error::NoAttribute) => Ok(()),
            other => other,
        }
    }

    pub(crate) fn new_uuid(&self) -> Result<[u8; 16]> {
        // where the clock is fixed, images are to be made the same way twice: the uuid follows from what there is
        if let Some(clock) = self.write_state()?.clock {
            let seed = [self.engine.superblock().fsid, (clock.sec as u128).to_le_bytes()].concat();
            let count = self.subvolumes()?.len() as u64;
            return Ok(crate::uuid::derived(&seed, count));
        }
        crate::uuid::random().map_err(|source| {
            Error::from(buttery_volume::Error::Device {
                device: "/dev/urandom".into(),
                op: "read",
                offset: 0,
                len: 16,
                source,
            })
        })
    }
}

fn regular(stat: &Stat) -> Result<()> {
    match stat.kind() {
        Kind::File => Ok(()),
        Kind::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid),
    }
}
