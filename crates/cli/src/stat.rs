//! `buttery stat`: everything that is known of a file.

use crate::source::{self, SourceArgs};
use crate::text;
use anyhow::{Context, Result};
use buttery::{Kind, Stat};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    source: SourceArgs,
    /// Show what a symbolic link leads to, not the link
    #[arg(short = 'L', long)]
    dereference: bool,
    /// IMAGE[:PATH]
    #[arg(required = true, value_name = "IMAGE[:PATH]")]
    paths: Vec<OsString>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let (fs, paths) = source::open_all(&args.source, &args.paths)?;
    let mut out = std::io::stdout().lock();
    for path in &paths {
        let id = source::resolve(&fs, path, args.dereference)?;
        let stat = fs.stat(id).with_context(|| String::from_utf8_lossy(path).into_owned())?;
        out.write_all(b"  File: ")?;
        out.write_all(path)?;
        if stat.kind() == Kind::Symlink {
            out.write_all(b" -> ")?;
            out.write_all(&fs.read_link(id)?)?;
        }
        writeln!(out)?;
        show(&mut out, &stat)?;
        for (name, value) in fs.xattrs(id)? {
            out.write_all(b" Xattr: ")?;
            out.write_all(&name)?;
            writeln!(out, "={}", value.escape_ascii())?;
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn show(out: &mut impl Write, stat: &Stat) -> std::io::Result<()> {
    let kind = match stat.kind() {
        Kind::File if stat.size == 0 => "regular empty file",
        Kind::File => "regular file",
        Kind::Directory => "directory",
        Kind::Symlink => "symbolic link",
        Kind::CharDevice => "character special file",
        Kind::BlockDevice => "block special file",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
    };
    writeln!(out, "  Size: {:<15} Blocks: {:<10} {kind}", stat.size, stat.nbytes.div_ceil(512))?;
    write!(out, "Subvol: {:<15} Inode: {:<11} Links: {}", stat.id.tree.0, stat.id.shown_ino(), stat.nlink)?;
    if matches!(stat.kind(), Kind::CharDevice | Kind::BlockDevice) {
        write!(out, "  Device type: {},{}", stat.rdev.0, stat.rdev.1)?;
    }
    writeln!(
        out,
        "\nAccess: ({:04o}/{})  Uid: {}  Gid: {}",
        stat.mode & 0o7777,
        text::mode(stat),
        stat.uid,
        stat.gid
    )?;
    writeln!(out, " Flags: {:#x}  Generation: {}", stat.flags, stat.generation)?;
    for (name, time) in
        [("Access", stat.atime), ("Modify", stat.mtime), ("Change", stat.ctime), (" Birth", stat.otime)]
    {
        writeln!(out, "{name}: {} +0000", text::time(time))?;
    }
    Ok(())
}
