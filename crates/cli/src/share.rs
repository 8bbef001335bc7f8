//! `buttery reflink` and `buttery dedupe`: files that share their extents.

use crate::source::{self, SourceArgs};
use anyhow::{Context, Result, bail};
use buttery::{Error, FileId, Filesystem, NewNode};
use buttery_fuse::lend::{CONTROL_DEDUPE, CONTROL_LEND, Request, TICKET_LEN};
use rustix::fs::IFlags;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;
use xattr::FileExt as _;

#[derive(clap::Args)]
pub struct ReflinkArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// The file to copy: IMAGE:PATH, or a file on a mount
    from: OsString,
    /// The copy: IMAGE:PATH in the same image, or a file on the same mount. One that is there is replaced
    to: OsString,
}

#[derive(clap::Args)]
pub struct DedupeArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// The file whose extents are kept: IMAGE:PATH, or a file on a mount
    from: OsString,
    /// Files that hold the same bytes: each IMAGE:PATH in the same image, or a file on the same mount
    #[arg(required = true)]
    to: Vec<OsString>,
}

/// Copies a file by sharing its extents.
pub fn reflink(args: &ReflinkArgs) -> Result<ExitCode> {
    match (source::is_in_image(&args.from), source::is_in_image(&args.to)) {
        (true, true) => in_image(args),
        (false, false) => on_mount(Path::new(&args.from), Path::new(&args.to)),
        _ => bail!("both files must lie in one image, or on one mount"),
    }
}

fn in_image(args: &ReflinkArgs) -> Result<ExitCode> {
    let ((image, from), (other, to)) = (source::split(&args.from), source::split(&args.to));
    if image != other {
        bail!("both files must lie in one image: {} and {}", image.display(), other.display());
    }
    let fs = args.source.open_writable(&image)?;
    let from_id = source::resolve(&fs, &from, true)?;
    let to_id = target(&fs, from_id, &to)?;
    let shown = || format!("{} to {}", String::from_utf8_lossy(&from), String::from_utf8_lossy(&to));
    fs.truncate(to_id, 0).with_context(shown)?;
    // extents are shared only between files that are written alike
    let flags = fs.attr_flags(to_id)? & !NOCOW | fs.attr_flags(from_id)? & NOCOW;
    fs.set_attr_flags(to_id, flags).with_context(shown)?;
    fs.clone_range(from_id, 0, to_id, 0, 0).map_err(explain).with_context(shown)?;
    fs.close().with_context(|| image.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// The file that is to become a copy; made if it is not there.
fn target(fs: &Filesystem, from: FileId, path: &[u8]) -> Result<FileId> {
    match fs.resolve(fs.root(), path) {
        Ok(id) if id == from => bail!("{}: the same file", String::from_utf8_lossy(path)),
        Ok(id) => return Ok(id),
        Err(Error::NotFound) => {}
        Err(error) => return Err(error).with_context(|| String::from_utf8_lossy(path).into_owned()),
    }
    let at = path.iter().rposition(|&b| b == b'/').map_or(0, |i| i + 1);
    let dir = source::resolve(fs, &path[..at], true)?;
    let stat = fs.stat(from)?;
    let new = NewNode { uid: stat.uid, gid: stat.gid, ..NewNode::file(stat.mode) };
    fs.create(dir, &path[at..], new).with_context(|| String::from_utf8_lossy(path).into_owned())
}

/// FS_NOCOW_FL.
const NOCOW: u32 = 0x80_0000;

fn explain(error: Error) -> anyhow::Error {
    match error {
        Error::Invalid => anyhow::anyhow!("extents cannot be shared between a NOCOW file and another"),
        other => other.into(),
    }
}

/// On a mount the file system shares extents when it is asked to copy.
fn on_mount(from: &Path, to: &Path) -> Result<ExitCode> {
    let source = File::open(from).with_context(|| from.display().to_string())?;
    let meta = source.metadata()?;
    if !meta.is_file() {
        bail!("{}: not a regular file", from.display());
    }
    let mode = meta.permissions().mode() & 0o777;
    let shown = || to.display().to_string();
    let target =
        File::options().create(true).truncate(false).write(true).mode(mode).open(to).with_context(shown)?;
    if !is_ours(&source) || !is_ours(&target) {
        bail!("{}: not on a mount of buttery", if is_ours(&source) { to } else { from }.display());
    }
    let there = target.metadata()?;
    if (there.dev(), there.ino()) == (meta.dev(), meta.ino()) {
        bail!("{}: the same file", to.display());
    }
    target.set_len(0).with_context(shown)?;
    // extents are shared only between files that are written alike
    let (wanted, old) = (rustix::fs::ioctl_getflags(&source)?, rustix::fs::ioctl_getflags(&target)?);
    let new = old.difference(IFlags::NOCOW) | wanted.intersection(IFlags::NOCOW);
    if new != old {
        rustix::fs::ioctl_setflags(&target, new).with_context(shown)?;
    }
    let (mut read_at, mut write_at) = (0, 0);
    while read_at < meta.len() {
        let want = (meta.len() - read_at) as usize;
        match rustix::fs::copy_file_range(&source, Some(&mut read_at), &target, Some(&mut write_at), want) {
            Ok(0) => bail!("{}: became shorter while it was copied", from.display()),
            Ok(_) => {}
            Err(rustix::io::Errno::XDEV) => bail!("both files must lie on one mount"),
            Err(error) => return Err(error).with_context(shown),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a file lies on a FUSE mount.
fn is_ours(file: &File) -> bool {
    const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;
    rustix::fs::fstatfs(file).is_ok_and(|s| s.f_type == FUSE_SUPER_MAGIC)
}

/// Lets files that hold the same bytes share extents.
pub fn dedupe(args: &DedupeArgs) -> Result<ExitCode> {
    if !source::is_in_image(&args.from) {
        return dedupe_on_mount(Path::new(&args.from), &args.to);
    }
    let (image, from) = source::split(&args.from);
    let fs = args.source.open_writable(&image)?;
    let from_id = source::resolve(&fs, &from, true)?;
    let size = fs.stat(from_id)?.size;
    let mut differ = 0usize;
    for spec in &args.to {
        let (other, to) = source::split(spec);
        let shown = || String::from_utf8_lossy(&to).into_owned();
        if other != image {
            bail!("both files must lie in one image: {} and {}", image.display(), other.display());
        }
        let to_id = source::resolve(&fs, &to, true)?;
        let same_size = fs.stat(to_id)?.size == size;
        if to_id == from_id {
            continue;
        }
        let same =
            same_size && fs.dedupe_range(from_id, 0, to_id, 0, 0).map_err(explain).with_context(shown)?;
        differ += usize::from(!told(&shown(), same, size));
    }
    fs.close().with_context(|| image.display().to_string())?;
    Ok(if differ == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says whether a file's bytes are shared now, and answers it.
fn told(shown: &str, same: bool, size: u64) -> bool {
    match same {
        true => println!("{shown}: {size} bytes are shared"),
        false => eprintln!("buttery: {shown}: differs"),
    }
    same
}

/// On a mount: a ticket of the file whose extents are kept is handed in with each of the others.
fn dedupe_on_mount(from: &Path, all: &[OsString]) -> Result<ExitCode> {
    let source = File::open(from).with_context(|| from.display().to_string())?;
    let meta = source.metadata()?;
    if !meta.is_file() {
        bail!("{}: not a regular file", from.display());
    }
    // of another file system it would only be an attribute
    let ticket = if is_ours(&source) { source.get_xattr(CONTROL_LEND).unwrap_or(None) } else { None };
    let ticket: Option<[u8; TICKET_LEN]> = ticket.and_then(|bytes| bytes.try_into().ok());
    source.sync_data()?;
    let Some(ticket) = ticket else { bail!("{}: not on a mount of buttery", from.display()) };
    let request = Request { ticket, offset: 0, to_offset: 0, len: 0 }.to_bytes();
    let mut differ = 0usize;
    for to in all {
        let to = Path::new(to);
        let shown = || to.display().to_string();
        let target = File::options().read(true).write(true).open(to).with_context(shown)?;
        let there = target.metadata()?;
        if there.dev() != meta.dev() {
            bail!("{}: not on the same mount", shown());
        }
        if there.ino() == meta.ino() {
            continue;
        }
        let same = there.len() == meta.len() && hand_in(&target, &request).with_context(shown)?;
        differ += usize::from(!told(&shown(), same, meta.len()));
    }
    Ok(if differ == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn hand_in(target: &File, request: &[u8]) -> Result<bool> {
    // what the kernel may hold back is to be compared too
    target.sync_data()?;
    match target.set_xattr(CONTROL_DEDUPE, request) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::ILSEQ.raw_os_error()) => Ok(false),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
            Err(explain(Error::Invalid))
        }
        Err(error) => Err(error.into()),
    }
}
