//! `buttery cp` into an image: files of this machine, as far as they can be read.

use crate::source::{self, SourceArgs};
use anyhow::{Context, Result, bail};
use buttery::{Error, FileId, Filesystem, Kind, NewNode, SetAttr, Time, XattrMode};
use rustix::fs::SeekFrom;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Bytes that are read and written at a time.
const BUFFER: usize = 4 << 20;

struct CopyIn<'a> {
    fs: &'a Filesystem,
    archive: bool,
    /// Where the first name of a file with several was copied to, by device and inode.
    links: HashMap<(u64, u64), FileId>,
    /// Directories get their attributes when all is in them.
    directories: Vec<(PathBuf, FileId, Metadata)>,
    buffer: Vec<u8>,
}

/// Copies `sources` to `destination`, which lies in an image. Answers how many could not be copied.
pub fn run(
    args: &SourceArgs,
    sources: &[OsString],
    destination: &OsStr,
    archive: bool,
    recursive: bool,
    keep_going: bool,
) -> Result<usize> {
    let (image, path) = source::split(destination);
    let fs = args.open_writable(&image)?;
    let into = match fs.resolve(fs.root(), &path) {
        Ok(id) => fs.stat(id)?.kind() == Kind::Directory,
        Err(Error::NotFound) => false,
        Err(error) => return Err(error).context(String::from_utf8_lossy(&path).into_owned()),
    };
    if sources.len() > 1 && !into {
        bail!("{}: not a directory", String::from_utf8_lossy(&path));
    }
    let mut failures = 0;
    for source in sources {
        let source = Path::new(source);
        let meta = std::fs::symlink_metadata(source).with_context(|| source.display().to_string())?;
        if meta.is_dir() && !(archive || recursive) {
            bail!("{}: is a directory; -r copies what is in it", source.display());
        }
        let (dir, name) = match (into, source.canonicalize()?.file_name()) {
            (true, Some(name)) => (fs.resolve(fs.root(), &path)?, name.as_bytes().to_vec()),
            (true, None) => bail!("{}: has no name", source.display()),
            (false, _) => parent_and_name(&fs, &path)?,
        };
        let mut copy = CopyIn {
            fs: &fs,
            archive,
            links: HashMap::new(),
            directories: Vec::new(),
            buffer: vec![0; BUFFER],
        };
        failures += copy.tree(source, dir, &name, keep_going)?;
    }
    fs.close().with_context(|| image.display().to_string())?;
    Ok(failures)
}

fn parent_and_name(fs: &Filesystem, path: &[u8]) -> Result<(FileId, Vec<u8>)> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let at = path.iter().rposition(|&b| b == b'/').map_or(0, |i| i + 1);
    let dir = source::resolve(fs, &[b"/", &path[..at]].concat(), true)?;
    Ok((dir, path[at..].to_vec()))
}

impl CopyIn<'_> {
    fn tree(&mut self, source: &Path, dir: FileId, name: &[u8], keep_going: bool) -> Result<usize> {
        let mut failures = 0;
        let mut stack = vec![(source.to_owned(), dir, name.to_vec())];
        while let Some((path, dir, name)) = stack.pop() {
            match self.one(&path, dir, &name) {
                Ok(Some(below)) => {
                    for entry in std::fs::read_dir(&path).with_context(|| path.display().to_string())? {
                        let entry = entry?;
                        stack.push((entry.path(), below, entry.file_name().as_bytes().to_vec()));
                    }
                }
                Ok(None) => {}
                Err(error) if keep_going && is_readers(&error) => {
                    eprintln!("buttery: {}: {error:#}", path.display());
                    failures += 1;
                }
                Err(error) => return Err(error).with_context(|| path.display().to_string()),
            }
        }
        for (path, id, meta) in std::mem::take(&mut self.directories).iter().rev() {
            self.attributes(path, *id, meta)?;
        }
        Ok(failures)
    }

    /// Copies one thing; answers the directory that was made, whose contents are next.
    fn one(&mut self, path: &Path, dir: FileId, name: &[u8]) -> Result<Option<FileId>> {
        let meta = std::fs::symlink_metadata(path)?;
        let key = (meta.dev(), meta.ino());
        if self.archive
            && !meta.is_dir()
            && meta.nlink() > 1
            && let Some(&id) = self.links.get(&key)
        {
            self.make_way(dir, name)?;
            self.fs.link(id, dir, name)?;
            return Ok(None);
        }
        if meta.is_dir() {
            let id = match self.fs.lookup(dir, name) {
                Ok(id) if self.fs.stat(id)?.kind() == Kind::Directory => id,
                Ok(_) => bail!("is there already, and not a directory"),
                Err(Error::NotFound) => self.fs.create(dir, name, NewNode::directory(0o755))?,
                Err(error) => return Err(error.into()),
            };
            self.directories.push((path.to_owned(), id, meta));
            return Ok(Some(id));
        }
        let id = if meta.is_symlink() {
            let target = std::fs::read_link(path)?;
            self.make_way(dir, name)?;
            self.fs.symlink(dir, name, target.as_os_str().as_bytes(), 0, 0)?
        } else if meta.is_file() {
            let file = File::open(path)?;
            self.make_way(dir, name)?;
            let id = self.fs.create(dir, name, NewNode::file(meta.mode() & 0o777))?;
            self.contents(&file, meta.len(), id)?;
            id
        } else {
            let rdev = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
            self.make_way(dir, name)?;
            self.fs.create(dir, name, NewNode { mode: meta.mode(), uid: 0, gid: 0, rdev, umask: None })?
        };
        self.links.insert(key, id);
        self.attributes(path, id, &meta)?;
        Ok(None)
    }

    fn make_way(&self, dir: FileId, name: &[u8]) -> Result<()> {
        match self.fs.unlink(dir, name) {
            Ok(()) | Err(Error::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Copies contents; what is a hole stays one.
    fn contents(&mut self, file: &File, len: u64, id: FileId) -> Result<()> {
        let mut offset = 0;
        while offset < len {
            let data = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
                Ok(data) => data,
                Err(rustix::io::Errno::NXIO) => break,
                Err(_) => offset, // a file system without holes
            };
            let end = rustix::fs::seek(file, SeekFrom::Hole(data)).unwrap_or(len).min(len);
            offset = data;
            while offset < end {
                let want = (end - offset).min(self.buffer.len() as u64) as usize;
                let n = file.read_at(&mut self.buffer[..want], offset)?;
                if n == 0 {
                    break;
                }
                self.fs.write(id, offset, &self.buffer[..n])?;
                offset += n as u64;
            }
            if end <= data {
                break;
            }
        }
        if self.fs.stat(id)?.size < len { Ok(self.fs.truncate(id, len)?) } else { Ok(()) }
    }

    fn attributes(&self, path: &Path, id: FileId, meta: &Metadata) -> Result<()> {
        if !self.archive {
            return Ok(());
        }
        for name in xattr::list(path).into_iter().flatten() {
            if name.as_bytes().starts_with(b"btrfs.") {
                continue;
            }
            if let Ok(Some(value)) = xattr::get(path, &name) {
                self.fs.set_xattr(id, name.as_bytes(), &value, XattrMode::Any)?;
            }
        }
        let time = |sec, nsec| Some(Time { sec, nsec: nsec as u32 });
        let attr = SetAttr {
            mode: (!meta.is_symlink()).then_some(meta.mode() & 0o7777),
            uid: Some(meta.uid()),
            gid: Some(meta.gid()),
            atime: time(meta.atime(), meta.atime_nsec()),
            mtime: time(meta.mtime(), meta.mtime_nsec()),
            ..SetAttr::default()
        };
        Ok(self.fs.set_attr(id, &attr)?)
    }
}

/// Whether this side could not be read, as against the image that could not be written.
fn is_readers(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some()
}
