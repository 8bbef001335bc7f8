//! An image as the library sees it, told in the judge's facts.
//!
//! Every file is read in three ways (where there are data, from end to end, and in odd pieces), which must agree.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use buttery::{FileId, Filesystem, Options};
use buttery_judge::walk::child;
use buttery_judge::{ContentHasher, Fact, Kind, Time};

/// Larger files are read where they have data only.
const WHOLE_READ_MAX_BYTES: u64 = 24 << 20;
/// A tree with more paths than this leads in circles.
const PATHS_MAX: usize = 1_000_000;

/// Opens an image; the options are those after `-o`.
pub fn open(files: &[PathBuf], options: &str) -> Result<Filesystem, String> {
    let mut parsed = Options::default();
    parsed.parse(options).map_err(|e| e.to_string())?;
    let paths: Vec<_> = files.iter().map(PathBuf::as_path).collect();
    Filesystem::open(&paths, &parsed).map_err(|e| e.to_string())
}

/// Opens an image and tells everything in it.
pub fn of_image(files: &[PathBuf], options: &str) -> Result<Vec<Fact>, String> {
    walk(&open(files, options)?)
}

/// Every path below the root, sorted, the root itself included.
pub fn walk(fs: &Filesystem) -> Result<Vec<Fact>, String> {
    walk_from(fs, fs.root())
}

/// The same below another directory.
pub fn walk_from(fs: &Filesystem, top: FileId) -> Result<Vec<Fact>, String> {
    let mut facts = Vec::new();
    for (path, id) in paths_from(fs, top)? {
        let named = |e| format!("/{}: {e}", String::from_utf8_lossy(&path));
        facts.push(fact(fs, id, path.clone()).map_err(named)?);
    }
    Ok(facts)
}

/// Every path below the root with the file it leads to, sorted. A directory is entered once. That a look-up of the
/// name leads to the same file as the listing's entry is asserted.
pub fn paths(fs: &Filesystem) -> Result<Vec<(Vec<u8>, FileId)>, String> {
    paths_from(fs, fs.root())
}

/// The same below another directory.
pub fn paths_from(fs: &Filesystem, top: FileId) -> Result<Vec<(Vec<u8>, FileId)>, String> {
    paths_with(fs, top, &|dir, entry| {
        let (listed, looked_up) = (fs.follow(dir, &entry.name, entry.target)?, fs.lookup(dir, &entry.name)?);
        assert_eq!(listed, looked_up, "the listing and a look-up of {:?} agree", entry.name);
        Ok(listed)
    })
}

/// The same for an image where they may differ: what the look-up finds, as a mount does.
pub fn paths_by_name(fs: &Filesystem) -> Result<Vec<(Vec<u8>, FileId)>, String> {
    paths_with(fs, fs.root(), &|dir, entry| fs.lookup(dir, &entry.name))
}

type Follow<'a> = &'a dyn Fn(FileId, &buttery::DirEntry) -> buttery::Result<FileId>;

fn paths_with(fs: &Filesystem, top: FileId, follow: Follow<'_>) -> Result<Vec<(Vec<u8>, FileId)>, String> {
    let mut found = Vec::new();
    let mut entered = HashSet::new();
    let mut todo = vec![(Vec::new(), top)];
    while let Some((path, id)) = todo.pop() {
        let named = |e: buttery::Error| format!("/{}: {e}", String::from_utf8_lossy(&path));
        let is_dir = fs.stat(id).map_err(named)?.kind() == buttery::Kind::Directory;
        if is_dir && (id.is_empty_dir() || entered.insert(id)) {
            for entry in fs.entries(id).map_err(named)? {
                let below = child(&path, &entry.name);
                let target =
                    follow(id, &entry).map_err(|e| format!("/{}: {e}", String::from_utf8_lossy(&below)))?;
                todo.push((below, target));
            }
        }
        found.push((path, id));
        if found.len() > PATHS_MAX {
            return Err("no end of paths".into());
        }
    }
    found.sort();
    Ok(found)
}

/// The fact about one file.
pub fn fact(fs: &Filesystem, id: FileId, path: Vec<u8>) -> Result<Fact, String> {
    let mut fact = Fact { xattrs: xattrs(fs, id)?, ..stat(fs, id, path)? };
    match fact.kind {
        Kind::File => fact.content = Some(content(fs, id, fact.size)?),
        Kind::Symlink => fact.target = Some(fs.read_link(id).map_err(|e| e.to_string())?),
        _ => {}
    }
    Ok(fact)
}

/// The part of the fact that `stat` tells: no xattrs, contents nor target.
pub fn stat(fs: &Filesystem, id: FileId, path: Vec<u8>) -> Result<Fact, String> {
    let stat = fs.stat(id).map_err(|e| e.to_string())?;
    let kind = kind(stat.kind());
    let mut fact = Fact {
        mode: stat.mode & 0o7777,
        uid: stat.uid,
        gid: stat.gid,
        rdev: if matches!(kind, Kind::Char | Kind::Block) { stat.rdev } else { (0, 0) },
        size: stat.size,
        nlink: stat.nlink,
        ino: stat.id.shown_ino(),
        mtime: time(stat.mtime),
        ctime: time(stat.ctime),
        btime: Some(time(stat.otime)),
        ..Fact::new(path, kind)
    };
    if fact.stub() {
        // The kernel invents its times, and knows no birth.
        (fact.mtime, fact.ctime, fact.btime) = (Time::default(), Time::default(), None);
    }
    Ok(fact)
}

fn xattrs(fs: &Filesystem, id: FileId) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, String> {
    let all = fs.xattrs(id).map_err(|e| e.to_string())?;
    for (name, value) in &all {
        let one = fs.xattr(id, name).map_err(|e| e.to_string())?;
        assert_eq!(&one, value, "the list and a look-up of xattr {name:?} agree");
    }
    Ok(all.into_iter().collect())
}

/// The hash of a file's contents, read in three ways.
fn content(fs: &Filesystem, id: FileId, size: u64) -> Result<u128, String> {
    let sparse = sparse_content(fs, id, size)?;
    if size <= WHOLE_READ_MAX_BYTES {
        let whole = read(fs, id, 0, size as usize)?;
        let mut hasher = ContentHasher::new();
        hasher.update(0, &whole);
        if hasher.finish(size) != sparse {
            return Err("seeking to data misses some".into());
        }
        odd_pieces(fs, id, &whole)?;
    }
    Ok(sparse)
}

/// Reads only where there is data.
fn sparse_content(fs: &Filesystem, id: FileId, size: u64) -> Result<u128, String> {
    let mut hasher = ContentHasher::new();
    let mut at = 0;
    while at < size {
        at = match fs.seek(id, at, true) {
            Ok(data) => data / 4096 * 4096,
            Err(buttery::Error::NotFound) => break,
            Err(e) => return Err(e.to_string()),
        };
        let hole = fs.seek(id, at, false).map_err(|e| e.to_string())?;
        let end = hole.next_multiple_of(4096).min(size);
        if end <= at {
            return Err(format!("data at {at}, and a hole at {hole}"));
        }
        while at < end {
            let want = (1 << 20).min(end - at) as usize;
            hasher.update(at, &read(fs, id, at, want)?);
            at += want as u64;
        }
    }
    Ok(hasher.finish(size))
}

/// Pieces that begin and end within sectors and extents hold the same bytes as the whole.
fn odd_pieces(fs: &Filesystem, id: FileId, whole: &[u8]) -> Result<(), String> {
    let mut at = 0;
    let mut step: usize = 1;
    while at < whole.len() {
        let len = (step * 7919 % 150_001 + 1).min(whole.len() - at);
        if read(fs, id, at as u64, len)? != whole[at..at + len] {
            return Err(format!("{len} bytes at {at} differ from those of a read of the whole file"));
        }
        at += len + step * 104_729 % 90_001;
        step += 1;
    }
    let mut beyond = [7; 10];
    match fs.read(id, whole.len() as u64, &mut beyond) {
        Ok(0) => Ok(()),
        other => Err(format!("a read behind the end gives {other:?}")),
    }
}

fn read(fs: &Filesystem, id: FileId, at: u64, len: usize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0xAA; len];
    match fs.read(id, at, &mut bytes) {
        Ok(n) if n == len => Ok(bytes),
        Ok(n) => Err(format!("{n} instead of {len} bytes at {at}")),
        Err(e) => Err(e.to_string()),
    }
}

fn kind(kind: buttery::Kind) -> Kind {
    match kind {
        buttery::Kind::File => Kind::File,
        buttery::Kind::Directory => Kind::Dir,
        buttery::Kind::Symlink => Kind::Symlink,
        buttery::Kind::CharDevice => Kind::Char,
        buttery::Kind::BlockDevice => Kind::Block,
        buttery::Kind::Fifo => Kind::Fifo,
        buttery::Kind::Socket => Kind::Socket,
    }
}

fn time(t: buttery::Time) -> Time {
    Time { sec: t.sec, nsec: t.nsec }
}
