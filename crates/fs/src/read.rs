//! Operations that change nothing, on inodes.

use crate::{DirEntry, Error, FileId, Filesystem, Kind, Result, Stat};
use buttery_engine::dir::{self, Target, xattr};
use buttery_engine::{file, subvol};

impl Filesystem {
    /// The file that a name in a directory leads to.
    pub fn lookup(&self, dir: FileId, name: &[u8]) -> Result<FileId> {
        if is_empty_dir(dir) {
            return Err(Error::NotFound);
        }
        let tree = self.engine.tree(dir.tree)?;
        let (target, _) = dir::lookup(&self.engine, &tree, dir.ino, name)?;
        self.follow(dir, name, target)
    }

    /// What an entry of a directory leads to.
    pub fn follow(&self, dir: FileId, name: &[u8], target: Target) -> Result<FileId> {
        match target {
            Target::Inode(ino) => Ok(FileId { tree: dir.tree, ino }),
            Target::Subvolume(id) if self.is_real_subvolume(dir, name, id)? => Ok(FileId::top_of(id)),
            Target::Subvolume(_) => Ok(FileId::empty_dir_in(dir)),
        }
    }

    /// The directory above a directory; the top of the top-level subvolume is its own.
    pub fn parent(&self, dir: FileId) -> Result<FileId> {
        if let Some(around) = dir.around_empty_dir() {
            return Ok(around);
        }
        let tree = self.engine.tree(dir.tree)?;
        if let Some((ino, _)) = dir::parent_of(&self.engine, &tree, dir.ino)? {
            return Ok(FileId { tree: dir.tree, ino });
        }
        Ok(match subvol::link_of(&self.engine, dir.tree)? {
            Some(link) => FileId { tree: link.tree, ino: link.dir },
            None => dir,
        })
    }

    /// A file's attributes.
    pub fn stat(&self, id: FileId) -> Result<Stat> {
        if let Some(around) = id.around_empty_dir() {
            return Ok(Stat::empty_dir(id, &self.stat_in_tree(around)?));
        }
        self.stat_in_tree(id)
    }

    fn stat_in_tree(&self, id: FileId) -> Result<Stat> {
        let tree = self.engine.tree(id.tree)?;
        // first what is in memory: while this is written, the item gets to know all of it
        let seen = self.write.as_ref().and_then(|state| state.gathered.seen(id));
        let stat = Stat::new(id, &file::inode::read(&self.engine, &tree, id.ino)?);
        let sector = u64::from(self.engine.superblock().sectorsize.get());
        Ok(seen.map_or(stat, |seen| seen.add_to(stat, sector)))
    }

    /// Calls `visit` with each entry of a directory whose index is `from` or above, until it answers `false`. `.` and
    /// `..` are not among them.
    pub fn read_dir(
        &self,
        dir: FileId,
        from: u64,
        visit: &mut dyn FnMut(DirEntry) -> Result<bool>,
    ) -> Result<()> {
        if is_empty_dir(dir) {
            return Ok(());
        }
        let tree = self.engine.tree(dir.tree)?;
        dir::read_dir(&self.engine, &tree, dir.ino, from, visit)
    }

    /// All entries of a directory.
    pub fn entries(&self, dir: FileId) -> Result<Vec<DirEntry>> {
        let mut out = Vec::new();
        self.read_dir(dir, 0, &mut |entry| {
            out.push(entry);
            Ok(true)
        })?;
        Ok(out)
    }

    /// Reads from `offset` on; returns how many bytes there were, fewer than asked for only at the end of the file.
    pub fn read(&self, id: FileId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let tree = self.engine.tree(id.tree)?;
        self.settle_range(id, offset, offset.saturating_add(buf.len() as u64))?;
        // what a reader stands on must not be dropped, and its place given to others, before it was read
        let _data = self.write.as_ref().map(|w| w.inode(id).read());
        let end = offset.saturating_add(buf.len() as u64);
        let _range = self.write.as_ref().map(|w| w.ranges.lock(id, offset, end, false));
        file::read::read(&self.engine, &tree, id.ino, offset, buf)
    }

    /// The next offset from `offset` on at which there are data (`true`) or is a hole (`false`); the end of the file
    /// counts as a hole. `NotFound` beyond the end, and if no data follow.
    pub fn seek(&self, id: FileId, offset: u64, data: bool) -> Result<u64> {
        let tree = self.engine.tree(id.tree)?;
        self.settle_range(id, 0, u64::MAX)?;
        let _data = self.write.as_ref().map(|w| w.inode(id).read());
        file::read::seek(&self.engine, &tree, id.ino, offset, data)
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, id: FileId) -> Result<Vec<u8>> {
        if self.stat(id)?.kind() != Kind::Symlink {
            return Err(Error::Invalid);
        }
        let tree = self.engine.tree(id.tree)?;
        file::read_link(&self.engine, &tree, id.ino)
    }

    /// The value of an extended attribute.
    pub fn xattr(&self, id: FileId, name: &[u8]) -> Result<Vec<u8>> {
        if is_empty_dir(id) {
            return Err(Error::NoAttribute);
        }
        let tree = self.engine.tree(id.tree)?;
        xattr::get(&self.engine, &tree, id.ino, name)
    }

    /// All extended attributes, name and value.
    pub fn xattrs(&self, id: FileId) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        if is_empty_dir(id) {
            return Ok(Vec::new());
        }
        let tree = self.engine.tree(id.tree)?;
        xattr::list(&self.engine, &tree, id.ino)
    }
}

pub(crate) fn is_empty_dir(id: FileId) -> bool {
    id.is_empty_dir()
}
