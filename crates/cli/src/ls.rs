//! `buttery ls`: what is in an image.

use crate::source::{self, SourceArgs};
use crate::text;
use crate::walk;
use anyhow::{Context, Result};
use buttery::{FileId, Filesystem, Kind};
use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    source: SourceArgs,
    /// List what is in subdirectories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// One line for each: mode, links, owner, group, size, time (UTC), name
    #[arg(short)]
    long: bool,
    /// List directories themselves, not what is in them
    #[arg(hide = true, long = "directory")]
    itself: bool,
    /// IMAGE[:PATH]
    #[arg(required = true, value_name = "IMAGE[:PATH]")]
    paths: Vec<OsString>,
}

struct Listing<'a> {
    fs: &'a Filesystem,
    long: bool,
    out: BufWriter<std::io::Stdout>,
    failed: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let (fs, paths) = source::open_all(&args.source, &args.paths)?;
    let mut list =
        Listing { fs: &fs, long: args.long, out: BufWriter::new(std::io::stdout()), failed: false };
    for path in &paths {
        let id = source::resolve(&fs, path, !args.long || path.ends_with(b"/"))?;
        let stat = fs.stat(id).with_context(|| String::from_utf8_lossy(path).into_owned())?;
        let is_dir = stat.kind() == Kind::Directory;
        if !is_dir || args.itself {
            list.line(id, path)?;
        } else if args.recursive {
            list.tree(id, path)?;
        } else {
            list.directory(id, path)?;
        }
    }
    list.out.flush()?;
    Ok(if list.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Listing<'_> {
    fn fail(&mut self, path: &[u8], error: &dyn std::fmt::Display) {
        self.failed = true;
        eprintln!("buttery: {}: {error}", String::from_utf8_lossy(path));
    }

    /// One directory's entries; answers the subdirectories.
    fn directory(&mut self, dir: FileId, path: &[u8]) -> Result<Vec<(FileId, Vec<u8>)>> {
        let mut below = Vec::new();
        let entries = match walk::sorted(self.fs, dir) {
            Ok(entries) => entries,
            Err(error) => {
                self.fail(path, &error);
                return Ok(below);
            }
        };
        for entry in entries {
            let full = [path.strip_suffix(b"/").unwrap_or(path), b"/", &entry.name].concat();
            match self.fs.follow(dir, &entry.name, entry.target) {
                Ok(id) => {
                    self.line(id, &entry.name)?;
                    if entry.kind == buttery::file_type::DIR {
                        below.push((id, full));
                    }
                }
                Err(error) => self.fail(&full, &error),
            }
        }
        Ok(below)
    }

    fn tree(&mut self, dir: FileId, path: &[u8]) -> Result<()> {
        let mut met = std::collections::HashSet::new();
        let mut stack = vec![(dir, path.to_vec())];
        let mut first = true;
        while let Some((dir, path)) = stack.pop() {
            if !dir.is_empty_dir() && !met.insert(dir) {
                self.fail(&path, &"this directory is linked twice");
                continue;
            }
            if !std::mem::take(&mut first) {
                writeln!(self.out)?;
            }
            self.out.write_all(&path)?;
            self.out.write_all(b":\n")?;
            let below = self.directory(dir, &path)?;
            stack.extend(below.into_iter().rev());
        }
        Ok(())
    }

    fn line(&mut self, id: FileId, name: &[u8]) -> Result<()> {
        if !self.long {
            self.out.write_all(name)?;
            return Ok(self.out.write_all(b"\n")?);
        }
        let stat = match self.fs.stat(id) {
            Ok(stat) => stat,
            Err(error) => {
                self.fail(name, &error);
                return Ok(());
            }
        };
        let size = match stat.kind() {
            Kind::CharDevice | Kind::BlockDevice => format!("{}, {}", stat.rdev.0, stat.rdev.1),
            _ => stat.size.to_string(),
        };
        let (mode, time) = (text::mode(&stat), text::time_secs(stat.mtime.sec));
        write!(self.out, "{mode} {:>2} {:>5} {:>5} {size:>10} {time} ", stat.nlink, stat.uid, stat.gid)?;
        self.out.write_all(name)?;
        if stat.kind() == Kind::Symlink {
            match self.fs.read_link(id) {
                Ok(target) => {
                    self.out.write_all(b" -> ")?;
                    self.out.write_all(&target)?;
                }
                Err(error) => self.fail(name, &error),
            }
        }
        Ok(self.out.write_all(b"\n")?)
    }
}
