//! `buttery untar`: a tar archive into an image, with owners, modes, devices, links, attributes and capabilities, and
//! without any privilege: it writes through the library.

use crate::source::{self, SourceArgs};
use anyhow::{Context, Result, bail};
use buttery::{Error, FileId, Filesystem, Kind, NewNode, SetAttr, Time, XattrMode};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Read;
use std::process::ExitCode;
use tar::EntryType;

/// Bytes that are read and written at a time.
const BUFFER: usize = 4 << 20;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    source: SourceArgs,
    /// Say each name
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Where to: IMAGE[:DIRECTORY]; the archive comes from standard input
    #[arg(value_name = "IMAGE[:DIRECTORY]")]
    target: OsString,
}

/// What an entry says of its file besides its contents.
struct Meta {
    attr: SetAttr,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// GNU's sparse files in a PAX archive carry their name, size and map apart.
    sparse: PaxSparse,
}

/// A sparse file in a PAX archive, as GNU tar writes it.
#[derive(Default)]
struct PaxSparse {
    /// The version; 1.0 keeps the map before the data, 0.1 in the extension.
    major: Option<u32>,
    name: Option<Vec<u8>>,
    size: Option<u64>,
    map: Option<Vec<(u64, u64)>>,
}

struct Untar<'a> {
    fs: &'a Filesystem,
    top: FileId,
    /// Directories get their attributes when all is in them.
    directories: Vec<(FileId, Meta)>,
    /// Directories by path, so that not every name is looked up from the top.
    known: HashMap<Vec<u8>, FileId>,
    buffer: Vec<u8>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let (image, path) = source::split(&args.target);
    let fs = args.source.open_writable(&image)?;
    let top = source::resolve(&fs, &path, true)?;
    if fs.stat(top)?.kind() != Kind::Directory {
        bail!("{}: not a directory", String::from_utf8_lossy(&path));
    }
    let mut untar =
        Untar { fs: &fs, top, directories: Vec::new(), known: HashMap::new(), buffer: vec![0; BUFFER] };
    let mut archive = tar::Archive::new(std::io::stdin().lock());
    for entry in archive.entries().context("archive")? {
        let mut entry = entry.context("archive")?;
        let name = entry.path_bytes().into_owned();
        if args.verbose {
            eprintln!("{}", String::from_utf8_lossy(&name));
        }
        untar.entry(&mut entry, &name).with_context(|| String::from_utf8_lossy(&name).into_owned())?;
    }
    untar.finish()?;
    fs.close().with_context(|| image.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

impl Untar<'_> {
    fn entry(&mut self, entry: &mut tar::Entry<'_, impl Read>, name: &[u8]) -> Result<()> {
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) {
            return Ok(());
        }
        let mut meta = meta(entry)?;
        let sparse = std::mem::take(&mut meta.sparse);
        let name = sparse.name.as_deref().unwrap_or(name);
        let Some((dirs, last)) = split_name(name)? else {
            // the archive's own top
            if kind.is_dir() {
                self.directories.push((self.top, meta));
            }
            return Ok(());
        };
        let dir = self.directory(&dirs)?;
        let permissions = meta.attr.mode.unwrap_or(0o644);
        let bits =
            |kind: u32| NewNode { mode: kind | permissions, uid: 0, gid: 0, rdev: (0, 0), umask: None };
        let node = match kind {
            EntryType::Directory => return self.make_directory(dir, name, &last, meta),
            EntryType::Link => return self.hard_link(entry, dir, &last),
            EntryType::Symlink => {
                let target =
                    entry.link_name_bytes().context("a symbolic link without a target")?.into_owned();
                self.make_way(dir, &last)?;
                let id = self.fs.symlink(dir, &last, &target, 0, 0)?;
                return self.attributes(id, &meta);
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => bits(0o100000),
            EntryType::Char | EntryType::Block => {
                let header = entry.header();
                let rdev = (header.device_major()?.unwrap_or(0), header.device_minor()?.unwrap_or(0));
                NewNode { rdev, ..bits(if kind == EntryType::Char { 0o020000 } else { 0o060000 }) }
            }
            EntryType::Fifo => bits(0o010000),
            other => bail!("entries of type {other:?} are not supported"),
        };
        self.make_way(dir, &last)?;
        let id = self.fs.create(dir, &last, node)?;
        if node.mode & 0o170000 == 0o100000 {
            match sparse.size {
                Some(size) => self.sparse_contents(entry, id, sparse, size)?,
                None => self.contents(entry, id, kind == EntryType::GNUSparse)?,
            }
        }
        self.attributes(id, &meta)
    }

    /// The directory at a path; what is missing of it is made.
    fn directory(&mut self, path: &[Vec<u8>]) -> Result<FileId> {
        let key = path.join(&b'/');
        if let Some(&id) = self.known.get(&key) {
            return Ok(id);
        }
        let mut at = self.top;
        for name in path {
            at = match self.fs.lookup(at, name) {
                Ok(next) => match self.fs.stat(next)?.kind() {
                    Kind::Symlink => self.fs.resolve(at, name)?,
                    _ => next,
                },
                Err(Error::NotFound) => self.fs.create(at, name, NewNode::directory(0o755))?,
                Err(error) => return Err(error.into()),
            };
        }
        self.known.insert(key, at);
        Ok(at)
    }

    fn make_directory(&mut self, dir: FileId, path: &[u8], name: &[u8], meta: Meta) -> Result<()> {
        let id = match self.fs.lookup(dir, name) {
            Ok(id) if self.fs.stat(id)?.kind() == Kind::Directory => id,
            Ok(_) => bail!("is there already, and not a directory"),
            Err(Error::NotFound) => self.fs.create(dir, name, NewNode::directory(0o700))?,
            Err(error) => return Err(error.into()),
        };
        if let Some((mut dirs, last)) = split_name(path)? {
            dirs.push(last);
            self.known.insert(dirs.join(&b'/'), id);
        }
        self.directories.push((id, meta));
        Ok(())
    }

    fn hard_link(&mut self, entry: &tar::Entry<'_, impl Read>, dir: FileId, name: &[u8]) -> Result<()> {
        let target = entry.link_name_bytes().context("a hard link without a target")?.into_owned();
        let Some((dirs, last)) = split_name(&target)? else { bail!("a hard link to the top") };
        let from = self.directory(&dirs)?;
        let id =
            self.fs.lookup(from, &last).with_context(|| String::from_utf8_lossy(&target).into_owned())?;
        self.make_way(dir, name)?;
        Ok(self.fs.link(id, dir, name)?)
    }

    /// What has the name and is no directory goes, as tar has it.
    fn make_way(&self, dir: FileId, name: &[u8]) -> Result<()> {
        match self.fs.unlink(dir, name) {
            Ok(()) | Err(Error::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn contents(&mut self, entry: &mut tar::Entry<'_, impl Read>, id: FileId, sparse: bool) -> Result<()> {
        let mut offset = 0;
        loop {
            let mut have = 0;
            while have < self.buffer.len() {
                match entry.read(&mut self.buffer[have..])? {
                    0 => break,
                    n => have += n,
                }
            }
            if have == 0 {
                break;
            }
            let data = &self.buffer[..have];
            if !sparse || data.iter().any(|&b| b != 0) {
                self.fs.write(id, offset, data)?;
            }
            offset += have as u64;
        }
        if sparse { Ok(self.fs.truncate(id, offset)?) } else { Ok(()) }
    }

    /// Writes the parts that a map names, each to its place.
    fn sparse_contents(
        &mut self,
        entry: &mut tar::Entry<'_, impl Read>,
        id: FileId,
        sparse: PaxSparse,
        size: u64,
    ) -> Result<()> {
        let map = match sparse.map {
            Some(map) => map,
            None if sparse.major == Some(1) => read_map(entry)?,
            None => bail!("sparse files of this version are not supported"),
        };
        for (start, len) in map {
            let (mut offset, end) =
                (start, start.checked_add(len).filter(|&e| e <= size).context("sparse map")?);
            while offset < end {
                let want = (end - offset).min(self.buffer.len() as u64) as usize;
                entry.read_exact(&mut self.buffer[..want])?;
                self.fs.write(id, offset, &self.buffer[..want])?;
                offset += want as u64;
            }
        }
        Ok(self.fs.truncate(id, size)?)
    }

    fn attributes(&self, id: FileId, meta: &Meta) -> Result<()> {
        for (name, value) in &meta.xattrs {
            self.fs.set_xattr(id, name, value, XattrMode::Any)?;
        }
        Ok(self.fs.set_attr(id, &meta.attr)?)
    }

    fn finish(&mut self) -> Result<()> {
        for (id, meta) in std::mem::take(&mut self.directories).iter().rev() {
            self.attributes(*id, meta)?;
        }
        Ok(())
    }
}

/// Directories and last name of a path; `None` for the top itself. A path that leads upwards is refused.
fn split_name(path: &[u8]) -> Result<Option<(Vec<Vec<u8>>, Vec<u8>)>> {
    let mut names = Vec::new();
    for name in path.split(|&b| b == b'/') {
        match name {
            b"" | b"." => {}
            b".." => bail!("a name with .. in it"),
            _ => names.push(name.to_vec()),
        }
    }
    Ok(names.pop().map(|last| (names, last)))
}

fn meta(entry: &mut tar::Entry<'_, impl Read>) -> Result<Meta> {
    let header = entry.header();
    let mtime = Time { sec: header.mtime()? as i64, nsec: 0 };
    let mut attr = SetAttr {
        mode: Some(header.mode()? & 0o7777),
        uid: Some(u32::try_from(header.uid()?).context("uid")?),
        gid: Some(u32::try_from(header.gid()?).context("gid")?),
        atime: Some(mtime),
        mtime: Some(mtime),
        ..SetAttr::default()
    };
    let (mut xattrs, mut sparse) = (Vec::new(), PaxSparse::default());
    if let Some(extensions) = entry.pax_extensions()? {
        for extension in extensions {
            let extension = extension?;
            let (key, value) = (extension.key_bytes(), extension.value_bytes());
            match key {
                b"mtime" => attr.mtime = pax_time(value).or(attr.mtime),
                b"atime" => attr.atime = pax_time(value).or(attr.atime),
                b"uid" => attr.uid = pax_number(value).or(attr.uid),
                b"gid" => attr.gid = pax_number(value).or(attr.gid),
                b"GNU.sparse.major" => sparse.major = pax_number(value),
                b"GNU.sparse.name" => sparse.name = Some(value.to_vec()),
                b"GNU.sparse.realsize" | b"GNU.sparse.size" => sparse.size = pax_number(value),
                b"GNU.sparse.map" => sparse.map = Some(parse_map(value).context("sparse map")?),
                _ => {
                    if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                        xattrs.push((name.to_vec(), value.to_vec()));
                    }
                }
            }
        }
    }
    Ok(Meta { attr, xattrs, sparse })
}

fn pax_number<T: std::str::FromStr>(value: &[u8]) -> Option<T> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// `offset,size,offset,size...`
fn parse_map(value: &[u8]) -> Option<Vec<(u64, u64)>> {
    let numbers = value.split(|&b| b == b',').map(pax_number).collect::<Option<Vec<u64>>>()?;
    Some(numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
}

/// The map of version 1.0 stands before the data: how many pairs, then the pairs, a number a line, padded to a block.
fn read_map(entry: &mut impl Read) -> Result<Vec<(u64, u64)>> {
    const PAIRS_MAX: u64 = 1 << 20;
    let mut block = [0u8; 512];
    let (mut at, mut line) = (block.len(), Vec::new());
    let mut number = |entry: &mut dyn Read| -> Result<u64> {
        line.clear();
        loop {
            if at == block.len() {
                entry.read_exact(&mut block)?;
                at = 0;
            }
            at += 1;
            match block[at - 1] {
                b'\n' => return pax_number(&line).context("sparse map"),
                byte if line.len() < 20 => line.push(byte),
                _ => bail!("sparse map"),
            }
        }
    };
    let count = number(entry)?;
    if count > PAIRS_MAX {
        bail!("a sparse map of {count} parts");
    }
    (0..count).map(|_| Ok((number(entry)?, number(entry)?))).collect()
}

/// `seconds.fraction`, the fraction cut to nanoseconds.
fn pax_time(value: &[u8]) -> Option<Time> {
    let text = std::str::from_utf8(value).ok()?;
    let (sec, fraction) = text.split_once('.').unwrap_or((text, ""));
    let negative = sec.starts_with('-');
    let sec: i64 = sec.parse().ok()?;
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nsec: u32 = digits.parse().ok()?;
    Some(match negative && nsec > 0 {
        true => Time { sec: sec - 1, nsec: 1_000_000_000 - nsec },
        false => Time { sec, nsec },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pax_times() {
        assert_eq!(pax_time(b"12"), Some(Time { sec: 12, nsec: 0 }));
        assert_eq!(pax_time(b"12.0345"), Some(Time { sec: 12, nsec: 34_500_000 }));
        assert_eq!(pax_time(b"-1.25"), Some(Time { sec: -2, nsec: 750_000_000 }));
        assert_eq!(pax_time(b"x"), None);
    }

    #[test]
    fn sparse_maps() {
        assert_eq!(parse_map(b"0,512,4096,10"), Some(vec![(0, 512), (4096, 10)]));
        let mut map = b"2\n0\n512\n40000000\n3\n".to_vec();
        map.resize(512, 0);
        map.extend(b"data");
        let mut rest = &map[..];
        assert_eq!(read_map(&mut rest).unwrap(), [(0, 512), (40_000_000, 3)]);
        assert_eq!(rest, b"data");
        assert!(read_map(&mut &b"99999999999\n"[..]).is_err());
    }

    #[test]
    fn names_do_not_lead_out() {
        assert!(split_name(b"./").unwrap().is_none());
        assert_eq!(split_name(b"/a//./b/").unwrap().unwrap(), (vec![b"a".to_vec()], b"b".to_vec()));
        assert!(split_name(b"a/../b").is_err());
    }
}
