//! Space before data: preallocation, holes, and extents that files share.

use crate::{Error, FileId, Filesystem, Kind, Result, Stat};
use buttery_disk::inode::{Timespec, flags};
use buttery_engine::file::clone::{At, clone};
use buttery_engine::file::{self, fallocate};

pub use buttery_engine::file::fallocate::Fallocate;

/// Bytes that are copied at a time where extents cannot be shared, and how many of those in one call.
const PIECE: u64 = 1 << 20;
const COPY_MAX: u64 = 64 << 20;

/// A range that can be shared.
struct Range {
    from: FileId,
    offset: u64,
    to: FileId,
    to_offset: u64,
    len: u64,
}

impl Filesystem {
    /// Preallocates space, punches a hole or makes zeros, as fallocate(2): see [`Fallocate`].
    pub fn fallocate(
        &self,
        id: FileId,
        what: Fallocate,
        offset: u64,
        len: u64,
        keep_size: bool,
    ) -> Result<()> {
        let tree = self.tree_to_change(id)?;
        {
            let _data = self.lock_inode(id)?;
            let stat = self.stat(id)?;
            self.check_file(&stat)?;
            if what != Fallocate::Allocate {
                self.check_mutable(&stat)?;
            }
            let now = self.now();
            fallocate::fallocate(&self.engine, &tree, id.ino, what, offset, len, keep_size, now)?;
        }
        self.after_operation()
    }

    fn check_file(&self, stat: &Stat) -> Result<()> {
        match stat.kind() {
            Kind::File => self.check_data(stat),
            Kind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Makes a range of `to` the same as one of `from` by sharing extents, as FICLONERANGE: offsets and length are
    /// multiples of the sector size, but for a range that ends where `from` ends and reaches to the end of `to`. A
    /// length of 0 means all up to the end of `from`. `Invalid` where this cannot be.
    pub fn clone_range(&self, from: FileId, offset: u64, to: FileId, to_offset: u64, len: u64) -> Result<()> {
        self.tree_to_change(to)?;
        {
            let _locks = self.lock_two(from, to)?;
            self.check_file(&self.stat(to)?)?;
            self.check_mutable(&self.stat(to)?)?;
            let range = self.sharable(from, offset, to, to_offset, len)?;
            self.share(&range, Some(self.now()))?;
        }
        self.after_operation()
    }

    /// Shares the extents of a range of `from` with `to` where both hold the same bytes, as FIDEDUPERANGE. Answers
    /// whether they do; where they differ nothing changes, and the times of `to` never do.
    pub fn dedupe_range(
        &self,
        from: FileId,
        offset: u64,
        to: FileId,
        to_offset: u64,
        len: u64,
    ) -> Result<bool> {
        self.tree_to_change(to)?;
        let same = {
            let _locks = self.lock_two(from, to)?;
            self.check_file(&self.stat(to)?)?;
            let range = self.sharable(from, offset, to, to_offset, len)?;
            let within = range.to_offset + range.len <= self.stat(to)?.size;
            let same = within && self.is_same(&range)?;
            if same {
                self.share(&range, None)?;
            }
            same
        };
        self.after_operation()?;
        Ok(same)
    }

    /// Looks whether a range can be shared. Both inodes are locked.
    fn sharable(&self, from: FileId, offset: u64, to: FileId, to_offset: u64, len: u64) -> Result<Range> {
        let (stat, to_stat) = (self.stat(from)?, self.stat(to)?);
        if stat.kind() != Kind::File || (stat.flags ^ to_stat.flags) & flags::NODATASUM != 0 {
            return Err(Error::Invalid);
        }
        let sector = u64::from(self.engine.superblock().sectorsize.get());
        let end = if len == 0 { Some(stat.size) } else { offset.checked_add(len) };
        let end = end.filter(|&end| end >= offset && end <= stat.size).ok_or(Error::Invalid)?;
        let len = end - offset;
        let to_end = to_offset.checked_add(len).filter(|&e| e <= file::write::SIZE_MAX);
        let to_end = to_end.ok_or(Error::FileTooBig)?;
        let aligned = |n: u64| n.is_multiple_of(sector);
        let whole = aligned(end) || end == stat.size && to_end >= to_stat.size;
        let apart = from != to || to_offset >= end.next_multiple_of(sector) || to_end <= offset;
        if !aligned(offset) || !aligned(to_offset) || !whole || !apart {
            return Err(Error::Invalid);
        }
        Ok(Range { from, offset, to, to_offset, len })
    }

    fn is_same(&self, range: &Range) -> Result<bool> {
        let (source, target) = (self.engine.tree(range.from.tree)?, self.engine.tree(range.to.tree)?);
        let mut bufs = [vec![0; PIECE as usize], vec![0; PIECE as usize]];
        let mut done = 0;
        while done < range.len {
            let want = (range.len - done).min(PIECE) as usize;
            let [a, b] = &mut bufs;
            file::read::read(&self.engine, &source, range.from.ino, range.offset + done, &mut a[..want])?;
            file::read::read(&self.engine, &target, range.to.ino, range.to_offset + done, &mut b[..want])?;
            if a[..want] != b[..want] {
                return Ok(false);
            }
            done += want as u64;
        }
        Ok(true)
    }

    fn share(&self, range: &Range, now: Option<Timespec>) -> Result<()> {
        let &Range { from, offset, to, to_offset, len } = range;
        if len == 0 {
            return Ok(());
        }
        let (source, target) = (self.engine.tree(from.tree)?, self.engine.tree(to.tree)?);
        let sector = u64::from(self.engine.superblock().sectorsize.get());
        let engine = &self.engine;
        let stamp = now.unwrap_or_else(|| self.now());
        if now.is_none() && file::write::has_inline(engine, &target, to.ino)? {
            return Ok(()); // nothing to be won
        }
        if file::write::prepare_for_clone(
            engine,
            &source,
            from.ino,
            &target,
            to.ino,
            to_offset + len,
            stamp.into(),
        )? {
            let source = At { tree: &source, ino: from.ino, offset };
            let target = At { tree: &target, ino: to.ino, offset: to_offset };
            return clone(engine, source, target, len.next_multiple_of(sector), to_offset + len, now);
        }
        if now.is_none() {
            return Ok(());
        }
        // what lies in an item is copied; a file that is longer than an item holds is damaged, or of another kind
        if len > PIECE {
            return Err(Error::Invalid);
        }
        let mut data = vec![0; len as usize];
        file::read::read(engine, &source, from.ino, offset, &mut data)?;
        file::write::write(engine, &target, to.ino, to_offset, &data, stamp.into())
    }

    /// Copies a range, as copy_file_range(2): by sharing extents where that can be, else byte by byte. Answers how many
    /// bytes were copied: fewer than asked for at the end of `from`, or where there are many.
    pub fn copy_range(&self, from: FileId, offset: u64, to: FileId, to_offset: u64, len: u64) -> Result<u64> {
        let size = self.stat(from)?.size;
        let len = len.min(size.saturating_sub(offset));
        if len == 0 {
            return Ok(0);
        }
        let to_end = to_offset.checked_add(len).ok_or(Error::FileTooBig)?;
        // an end within a sector can be shared only where both files end
        let sector = u64::from(self.engine.superblock().sectorsize.get());
        let aligned = if offset + len == size { len } else { len / sector * sector };
        if aligned > 0 {
            match self.clone_range(from, offset, to, to_offset, aligned) {
                Err(Error::Invalid) => {}
                other => return other.map(|()| aligned),
            }
        }
        if from == to && offset < to_end && to_offset < offset + len {
            return Err(Error::Invalid);
        }
        let len = len.min(COPY_MAX);
        let mut buf = vec![0; len.min(PIECE) as usize];
        let mut done = 0;
        while done < len {
            let want = (len - done).min(PIECE) as usize;
            let n = self.read(from, offset + done, &mut buf[..want])?;
            if n == 0 {
                break;
            }
            self.write(to, to_offset + done, &buf[..n])?;
            done += n as u64;
        }
        Ok(done)
    }
}
