//! `buttery cp`: files out of an image.

use crate::copy_in;
use crate::source::{self, SourceArgs};
use crate::walk::{self, Failure, Visit};
use anyhow::{Result, bail};
use buttery::{Error, FileId, Filesystem, Kind, Stat, Time};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timestamps, Uid};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    source: SourceArgs,
    /// Copy everything: recursively, with owners, modes, times, attributes, links and devices
    #[arg(short = 'a', long)]
    archive: bool,
    /// Copy directories with what is in them
    #[arg(short = 'r', short_alias = 'R', long)]
    recursive: bool,
    /// Skip what cannot be read, list it with the reason, and end with exit status 1
    #[arg(long)]
    keep_going: bool,
    /// IMAGE:PATH... DESTINATION
    #[arg(required = true, num_args = 2.., value_name = "IMAGE:PATH... DESTINATION")]
    paths: Vec<OsString>,
}

struct Copy<'a> {
    fs: &'a Filesystem,
    archive: bool,
    /// Where the first name of an inode with several was copied to.
    links: HashMap<FileId, PathBuf>,
    /// Directories get their mode and times when all is in them.
    directories: Vec<(PathBuf, Stat, Vec<(Vec<u8>, Vec<u8>)>)>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let Some((destination, sources)) = args.paths.split_last() else { bail!("nothing to copy") };
    if source::is_in_image(destination) {
        if let Some(both) = sources.iter().find(|s| source::is_in_image(s)) {
            bail!("{}: copying from one image into another is not supported yet", both.display());
        }
        let failed =
            copy_in::run(&args.source, sources, destination, args.archive, args.recursive, args.keep_going)?;
        return Ok(finish(failed));
    }
    let destination = Path::new(destination);
    let (fs, paths) = source::open_all(&args.source, sources)?;
    let into = destination.is_dir();
    if paths.len() > 1 && !into {
        bail!("{} is not a directory", destination.display());
    }
    let mut failures = 0;
    for path in &paths {
        let id = source::resolve(&fs, path, !args.archive)?;
        if fs.stat(id)?.kind() == Kind::Directory && !(args.recursive || args.archive) {
            bail!("{}: is a directory; -r copies what is in it", String::from_utf8_lossy(path));
        }
        let name = path.split(|&b| b == b'/').rfind(|n| !n.is_empty());
        let target = match name {
            Some(name) if into => destination.join(OsStr::from_bytes(name)),
            _ => destination.to_owned(),
        };
        let mut copy =
            Copy { fs: &fs, archive: args.archive, links: HashMap::new(), directories: Vec::new() };
        failures += copy.tree(id, path, &target, args.keep_going)?;
    }
    Ok(finish(failures))
}

fn finish(failures: usize) -> ExitCode {
    if failures > 0 {
        eprintln!("buttery: {failures} could not be copied");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

impl Copy<'_> {
    fn tree(&mut self, id: FileId, from: &[u8], target: &Path, keep_going: bool) -> Result<usize> {
        let mut failures = 0;
        // what the walk's callback could not write on our side, kept apart from what could not be read
        let local: RefCell<Option<anyhow::Error>> = RefCell::new(None);
        let fs = self.fs;
        let result = walk::walk(
            fs,
            id,
            &mut |visit| {
                self.one(visit, target).map_err(|error| match error {
                    CopyError::Image(error) => error,
                    CopyError::Local(error) => {
                        *local.borrow_mut() = Some(error);
                        Error::Aborted
                    }
                })
            },
            &mut |Failure { path, error }| {
                let full = String::from_utf8_lossy(&full_path(from, &path)).into_owned();
                let error = local.take().unwrap_or_else(|| error.into());
                if !keep_going || ends_everything(&error) {
                    return Err(error.context(full));
                }
                eprintln!("buttery: {full}: {error:#}");
                failures += 1;
                Ok(())
            },
        );
        result?;
        for (path, stat, xattrs) in std::mem::take(&mut self.directories).iter().rev() {
            if let Err(error) = self.attributes(path, stat, xattrs).map_err(|e| at(path, e)) {
                if !keep_going || ends_everything(&error) {
                    return Err(error);
                }
                eprintln!("buttery: {error:#}");
                failures += 1;
            }
        }
        Ok(failures)
    }

    fn one(&mut self, visit: &Visit, top: &Path) -> Result<(), CopyError> {
        let stat = &visit.stat;
        let target = match visit.path.as_slice() {
            b"" => top.to_owned(),
            path => top.join(OsStr::from_bytes(path)),
        };
        if self.archive && stat.nlink > 1 && stat.kind() != Kind::Directory {
            if let Some(first) = self.links.get(&stat.id) {
                let _ = std::fs::remove_file(&target);
                return std::fs::hard_link(first, &target).map_err(|e| at(&target, e).into());
            }
            self.links.insert(stat.id, target.clone());
        }
        let xattrs = if self.archive { self.fs.xattrs(stat.id)? } else { Vec::new() };
        match stat.kind() {
            Kind::Directory => {
                match std::fs::create_dir(&target) {
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists && is_dir(&target, top) => {}
                    other => other.map_err(|e| at(&target, e))?,
                }
                self.directories.push((target, *stat, xattrs));
                return Ok(());
            }
            Kind::File => {
                if target != top {
                    make_way(&target).map_err(|e| at(&target, e))?;
                }
                self.file(stat, &target, target == top)?;
            }
            Kind::Symlink => {
                let link = self.fs.read_link(stat.id)?;
                let _ = std::fs::remove_file(&target);
                std::os::unix::fs::symlink(OsStr::from_bytes(&link), &target).map_err(|e| at(&target, e))?;
            }
            kind => make_special(kind, stat, &target).map_err(|e| at(&target, e))?,
        }
        Ok(self.attributes(&target, stat, &xattrs).map_err(|e| at(&target, e))?)
    }

    /// Copies contents; what is a hole in the image stays one.
    fn file(&self, stat: &Stat, target: &Path, through_links: bool) -> Result<(), CopyError> {
        let local = |e: io::Error| at(target, e);
        let flags = if through_links { OFlags::empty() } else { OFlags::NOFOLLOW };
        let out = OpenOptions::new()
            .custom_flags(flags.bits() as i32)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(stat.mode & 0o777)
            .open(target)
            .map_err(local)?;
        let result = self.contents(stat, &out, target);
        if result.is_err() {
            let _ = std::fs::remove_file(target);
        }
        result
    }

    fn contents(&self, stat: &Stat, out: &File, target: &Path) -> Result<(), CopyError> {
        let local = |e: io::Error| at(target, e);
        let mut buf = vec![0; (1u64 << 20).min(stat.size.max(1)) as usize];
        let mut offset = 0;
        while offset < stat.size {
            offset = match self.fs.seek(stat.id, offset, true) {
                Ok(data) => data,
                Err(Error::NotFound) => break,
                Err(error) => return Err(error.into()),
            };
            let end = self.fs.seek(stat.id, offset, false)?;
            if end <= offset {
                return Err(Error::Corrupt(format!("data and a hole are both at {offset}").into()).into());
            }
            while offset < end {
                let want = (end - offset).min(buf.len() as u64) as usize;
                let n = self.fs.read(stat.id, offset, &mut buf[..want])?;
                if n == 0 {
                    break;
                }
                out.write_all_at(&buf[..n], offset).map_err(local)?;
                offset += n as u64;
            }
        }
        Ok(out.set_len(stat.size).map_err(local)?)
    }

    /// Owner and group as far as we may, then attributes, mode and times.
    fn attributes(&self, path: &Path, stat: &Stat, xattrs: &[(Vec<u8>, Vec<u8>)]) -> io::Result<()> {
        if !self.archive {
            return Ok(());
        }
        let owned = rustix::fs::chownat(
            CWD,
            path,
            Some(Uid::from_raw(stat.uid)),
            Some(Gid::from_raw(stat.gid)),
            AtFlags::SYMLINK_NOFOLLOW,
        );
        if !rustix::process::geteuid().is_root() {
            let _ = owned; // an ordinary user keeps what is theirs
        } else {
            owned?;
        }
        for (name, value) in xattrs {
            let set = xattr::set(path, OsStr::from_bytes(name), value);
            if rustix::process::geteuid().is_root()
                && !name.starts_with(b"btrfs.")
                && stat.kind() != Kind::Symlink
            {
                set?;
            }
        }
        if stat.kind() != Kind::Symlink {
            rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(stat.mode & 0o7777), AtFlags::empty())?;
        }
        let spec = |t: Time| rustix::fs::Timespec { tv_sec: t.sec, tv_nsec: t.nsec as _ };
        let times = Timestamps { last_access: spec(stat.atime), last_modification: spec(stat.mtime) };
        Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

/// Where a file is in the image.
fn full_path(from: &[u8], path: &[u8]) -> Vec<u8> {
    match path {
        b"" => from.to_vec(),
        path => [from.strip_suffix(b"/").unwrap_or(from), b"/", path].concat(),
    }
}

/// Whether nothing more can be written, whatever is skipped.
fn ends_everything(error: &anyhow::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|e| matches!(e.kind(), StorageFull | QuotaExceeded | ReadOnlyFilesystem))
}

/// Makes way for a file below the destination. What the image holds is never written through a symbolic link there:
/// a hostile one can have a link and a file of the same name.
fn make_way(target: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(target) {
        Ok(there) if !there.is_file() => std::fs::remove_file(target),
        _ => Ok(()),
    }
}

/// Whether there is a directory already. The user's own destination may be a symbolic link to one.
fn is_dir(target: &Path, top: &Path) -> bool {
    if target == top { target.is_dir() } else { target.symlink_metadata().is_ok_and(|m| m.is_dir()) }
}

fn make_special(kind: Kind, stat: &Stat, target: &Path) -> io::Result<()> {
    let file_type = match kind {
        Kind::CharDevice => FileType::CharacterDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Fifo => FileType::Fifo,
        _ => FileType::Socket,
    };
    let _ = std::fs::remove_file(target);
    let dev = rustix::fs::makedev(stat.rdev.0, stat.rdev.1);
    Ok(rustix::fs::mknodat(CWD, target, file_type, Mode::from_raw_mode(stat.mode & 0o7777), dev)?)
}

/// Which side failed: what could not be read may be skipped, what could not be written may not.
enum CopyError {
    Image(Error),
    Local(anyhow::Error),
}

fn at(path: &Path, error: io::Error) -> anyhow::Error {
    anyhow::Error::new(error).context(path.display().to_string())
}

impl From<Error> for CopyError {
    fn from(error: Error) -> CopyError {
        CopyError::Image(error)
    }
}

impl From<anyhow::Error> for CopyError {
    fn from(error: anyhow::Error) -> CopyError {
        CopyError::Local(error)
    }
}
