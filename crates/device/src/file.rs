//! A file or block device.

use crate::{Device, check_range, owner};
use rustix::fs::{FallocateFlags, FileType, OFlags};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// What an open device is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// No byte is written, and no lock taken.
    ReadOnly,
    /// The only writer: refused when another program, or a kernel mount, has it.
    Exclusive,
}

/// The part of a file that is the device, such as a partition in a disk image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Window {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// Its size in bytes; to the end of the file if absent.
    pub size_limit: Option<u64>,
}

/// A file or block device, read and written through the page cache.
pub struct FileDevice {
    name: String,
    file: File,
    start: u64,
    len: u64,
    access: Access,
    block: bool,
    zoned: bool,
    rotational: bool,
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        // closing alone is not enough: a child that a thread is just starting has the descriptor too, until its exec
        if self.access == Access::Exclusive {
            owner::give_back(&self.file);
        }
    }
}

impl FileDevice {
    /// Opens a file or block device. With [`Access::Exclusive`], `ResourceBusy` tells that somebody else has it.
    pub fn open(path: &Path, access: Access, window: Window) -> io::Result<FileDevice> {
        let meta = std::fs::metadata(path)?;
        let kind = FileType::from_raw_mode(meta.mode());
        if !matches!(kind, FileType::RegularFile | FileType::BlockDevice) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a block device"));
        }
        let block = kind == FileType::BlockDevice;
        let write = access == Access::Exclusive;
        let mut flags = OFlags::CLOEXEC;
        if write && block {
            flags |= OFlags::EXCL; // without CREAT: fails while it is mounted or otherwise claimed
        }
        // an image is as fast as what it lies on
        let below = if block { meta.rdev() } else { meta.dev() };
        let zoned = block && queue_attribute(below, "zoned").is_some_and(|model| model != "none");
        let rotational = queue_attribute(below, "rotational").is_some_and(|flag| flag == "1");
        let mut file =
            OpenOptions::new().read(true).write(write).custom_flags(flags.bits() as i32).open(path)?;
        if write {
            owner::claim(&file, path)?;
        }
        let end = file.seek(SeekFrom::End(0))?;
        let rest = end.checked_sub(window.offset).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "offset= lies beyond the end of the file")
        })?;
        let len = window.size_limit.map_or(rest, |limit| limit.min(rest));
        Ok(FileDevice {
            name: path.display().to_string(),
            file,
            start: window.offset,
            len,
            access,
            block,
            zoned,
            rotational,
        })
    }

    fn check_writable(&self) -> io::Result<()> {
        match self.access {
            Access::Exclusive => Ok(()),
            Access::ReadOnly => {
                Err(io::Error::new(io::ErrorKind::PermissionDenied, "the device is open read-only"))
            }
        }
    }
}

impl Device for FileDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_bytes(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.len, offset, buf.len())?;
        self.file.read_exact_at(buf, self.start + offset)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.check_writable()?;
        let total: usize = bufs.iter().map(|b| b.len()).sum();
        check_range(self.len, offset, total)?;
        if let [one] = bufs {
            return self.file.write_all_at(one, self.start + offset);
        }
        let mut at = self.start + offset;
        for group in bufs.chunks(512) {
            let want: usize = group.iter().map(|b| b.len()).sum();
            let wrote = rustix::io::pwritev(&self.file, group, at)?;
            if wrote < want {
                self.finish_short_write(group, at, wrote)?;
            }
            at += want as u64;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.check_writable()?;
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    fn is_zoned(&self) -> bool {
        self.zoned
    }

    fn is_rotational(&self) -> bool {
        self.rotational
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_writable()?;
        check_range(self.len, offset, len as usize)?;
        if self.block {
            return owner::discard_block_range(&self.file, self.start + offset, len);
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, self.start + offset, len) {
            Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }
}

impl FileDevice {
    /// Writes what a vectored write left over, buffer by buffer.
    fn finish_short_write(&self, bufs: &[IoSlice<'_>], start: u64, wrote: usize) -> io::Result<()> {
        let mut at = 0;
        for buf in bufs {
            let skip = wrote.saturating_sub(at).min(buf.len());
            if skip < buf.len() {
                self.file.write_all_at(&buf[skip..], start + (at + skip) as u64)?;
            }
            at += buf.len();
        }
        Ok(())
    }
}

/// What the kernel says of a block device's queue; a partition has that of the whole device.
fn queue_attribute(device: u64, name: &str) -> Option<String> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let device = format!("/sys/dev/block/{major}:{minor}");
    let read = |path: String| std::fs::read_to_string(path).ok();
    let text =
        read(format!("{device}/queue/{name}")).or_else(|| read(format!("{device}/../queue/{name}")))?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(len: u64) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("img");
        File::create(&path).unwrap().set_len(len).unwrap();
        (dir, path)
    }

    #[test]
    fn one_writer_at_a_time_readers_always() {
        let (_dir, path) = image(1 << 20);
        let first = FileDevice::open(&path, Access::Exclusive, Window::default()).unwrap();
        let second = FileDevice::open(&path, Access::Exclusive, Window::default());
        assert_eq!(second.err().unwrap().kind(), io::ErrorKind::ResourceBusy);
        assert!(FileDevice::open(&path, Access::ReadOnly, Window::default()).is_ok());
        drop(first);
        assert!(FileDevice::open(&path, Access::Exclusive, Window::default()).is_ok());
    }

    #[test]
    fn a_child_that_is_being_started_does_not_keep_the_claim() {
        let (_dir, path) = image(1 << 20);
        let first = FileDevice::open(&path, Access::Exclusive, Window::default()).unwrap();
        let inherited = first.file.try_clone().unwrap(); // what a fork does to every descriptor
        drop(first);
        assert!(FileDevice::open(&path, Access::Exclusive, Window::default()).is_ok());
        drop(inherited);
    }

    #[test]
    fn window_and_vectors() {
        let (_dir, path) = image(1 << 20);
        let window = Window { offset: 4096, size_limit: Some(8192) };
        let dev = FileDevice::open(&path, Access::Exclusive, window).unwrap();
        assert_eq!(dev.len_bytes(), 8192);
        let parts: Vec<Vec<u8>> = (0..1000).map(|i| vec![i as u8; 8]).collect();
        let bufs: Vec<_> = parts.iter().map(|p| IoSlice::new(p)).collect();
        dev.write_at(100, &bufs).unwrap();
        let mut got = vec![0; 8000];
        dev.read_at(100, &mut got).unwrap();
        assert_eq!(got, parts.concat());
        assert!(dev.write_at(8000, &[IoSlice::new(&[1; 193])]).is_err());
        dev.discard(0, 4096).unwrap();
        dev.read_at(100, &mut got[..8]).unwrap();
        assert_eq!(got[..8], [0; 8]);
    }

    #[test]
    fn read_only_writes_nothing() {
        let (_dir, path) = image(8192);
        let dev = FileDevice::open(&path, Access::ReadOnly, Window::default()).unwrap();
        assert!(dev.write_at(0, &[IoSlice::new(b"x")]).is_err());
        assert!(dev.discard(0, 4096).is_err());
    }
}
