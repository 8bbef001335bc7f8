//! Walks a mounted directory into facts, across subvolumes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, SeekFrom, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

use crate::facts::{ContentHasher, Fact, Kind, Time};

/// Every path under `root`, sorted, the root itself included.
pub fn walk(root: &Path) -> io::Result<Vec<Fact>> {
    let mut facts = Vec::new();
    let mut todo: Vec<Vec<u8>> = vec![Vec::new()];
    while let Some(path) = todo.pop() {
        let full = join(root, &path);
        let fact =
            fact(&full, path).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", full.display())))?;
        if fact.kind == Kind::Dir {
            for name in names(&full)? {
                todo.push(child(&fact.path, &name));
            }
        }
        facts.push(fact);
    }
    facts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(facts)
}

/// The fact about one path of a mounted file system; `path` is what the fact will be called.
pub fn fact(full: &Path, path: Vec<u8>) -> io::Result<Fact> {
    let mut fact = stat(full, path)?;
    fact.xattrs = xattrs(full)?;
    match fact.kind {
        Kind::File => fact.content = Some(content(full, fact.size)?),
        Kind::Symlink => fact.target = Some(std::fs::read_link(full)?.into_os_string().into_vec()),
        _ => {}
    }
    Ok(fact)
}

/// The part of the fact that `stat` tells: no xattrs, contents nor target.
pub fn stat(full: &Path, path: Vec<u8>) -> io::Result<Fact> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let stat = rustix::fs::statx(CWD, full, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    let mut fact = stat_fact(&stat, path);
    if fact.stub() {
        (fact.mtime, fact.ctime) = (Time::default(), Time::default());
        fact.btime = fact.btime.map(|_| Time::default());
    }
    Ok(fact)
}

/// The names in a directory.
pub fn names(full: &Path) -> io::Result<Vec<Vec<u8>>> {
    std::fs::read_dir(full)?.map(|entry| Ok(entry?.file_name().into_vec())).collect()
}

fn stat_fact(stat: &Statx, path: Vec<u8>) -> Fact {
    let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::CharacterDevice => Kind::Char,
        FileType::BlockDevice => Kind::Block,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        _ => Kind::File,
    };
    let has_btime = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    Fact {
        mode: u32::from(stat.stx_mode) & 0o7777,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
        size: stat.stx_size,
        nlink: stat.stx_nlink,
        ino: stat.stx_ino,
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
        btime: has_btime.then(|| time(stat.stx_btime)),
        ..Fact::new(path, kind)
    }
}

fn time(t: StatxTimestamp) -> Time {
    Time { sec: t.tv_sec, nsec: t.tv_nsec }
}

fn xattrs(full: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    // 64 KiB is the kernel's limit for the list and for each value.
    let mut buffer = vec![0; 65536];
    let length = match rustix::fs::llistxattr(full, &mut buffer[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        Err(e) => return Err(e.into()),
    };
    let names = buffer[..length].to_vec();
    let mut found = BTreeMap::new();
    for name in names.split(|&b| b == 0).filter(|name| !name.is_empty()) {
        let length = rustix::fs::lgetxattr(full, name, &mut buffer[..])?;
        found.insert(name.to_vec(), buffer[..length].to_vec());
    }
    Ok(found)
}

/// Reads only where there is data.
fn content(full: &Path, size: u64) -> io::Result<u128> {
    let file = File::open(full)?;
    let mut hasher = ContentHasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while at < size {
        at = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(data) => data / 4096 * 4096,
            Err(Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        let hole = rustix::fs::seek(&file, SeekFrom::Hole(at)).unwrap_or(size);
        let end = hole.next_multiple_of(4096).min(size);
        while at < end {
            let want = buffer.len().min((end - at) as usize);
            file.read_exact_at(&mut buffer[..want], at)?;
            hasher.update(at, &buffer[..want]);
            at += want as u64;
        }
    }
    Ok(hasher.finish(size))
}

/// A path below the root of a tree.
pub fn join(root: &Path, path: &[u8]) -> PathBuf {
    if path.is_empty() { root.to_path_buf() } else { root.join(OsStr::from_bytes(path)) }
}

/// `dir/name`, or `name` in the root.
pub fn child(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}
