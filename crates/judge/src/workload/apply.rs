//! Runs one operation through the system calls, or the `btrfs` program where there is no call for it.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, IFlags, Mode, RenameFlags, Timespec, Timestamps, Uid,
    XattrFlags,
};
use rustix::io::Errno;

use super::{Data, Fallocate, Name, Node, Op};
use crate::facts::Time;
use crate::guard;
use crate::walk::join;

/// Runs `op` below `root`.
pub fn apply(root: &Path, op: &Op) -> io::Result<()> {
    let at = |path: &Name| join(root, path);
    match op {
        Op::Mkdir { path, mode } => Ok(rustix::fs::mkdir(at(path), Mode::from(*mode))?),
        Op::Rmdir { path } => Ok(rustix::fs::rmdir(at(path))?),
        Op::Create { path, mode } => {
            File::options().write(true).create_new(true).mode(*mode).open(at(path)).map(drop)
        }
        Op::Rename { from, to } => Ok(rustix::fs::rename(at(from), at(to))?),
        Op::Exchange { a, b } => {
            Ok(rustix::fs::renameat_with(CWD, at(a), CWD, at(b), RenameFlags::EXCHANGE)?)
        }
        Op::Link { from, to } => Ok(rustix::fs::linkat(CWD, at(from), CWD, at(to), AtFlags::empty())?),
        Op::Unlink { path } => Ok(rustix::fs::unlink(at(path))?),
        Op::Symlink { path, target } => symlink(std::ffi::OsStr::from_bytes(target), at(path)),
        Op::Mknod { path, node, mode } => mknod(&at(path), *node, *mode),
        Op::Fsync { path } => File::open(at(path))?.sync_all(),
        Op::Sync => Ok(rustix::fs::syncfs(File::open(root)?)?),
        Op::Write { .. }
        | Op::Append { .. }
        | Op::Truncate { .. }
        | Op::Fallocate { .. }
        | Op::Clone { .. } => apply_data(root, op),
        Op::CreateSubvolume { .. }
        | Op::Snapshot { .. }
        | Op::DeleteSubvolume { .. }
        | Op::SetDefaultSubvolume { .. } => apply_subvolume(root, op),
        _ => apply_attribute(root, op),
    }
}

fn apply_data(root: &Path, op: &Op) -> io::Result<()> {
    let write = |path: &Name| File::options().write(true).open(join(root, path));
    match op {
        Op::Write { path, offset, data } => write(path)?.write_all_at(&data.bytes(), *offset),
        Op::Append { path, data } => append(&join(root, path), data),
        Op::Truncate { path, size } => write(path)?.set_len(*size),
        Op::Fallocate { path, offset, len, how } => {
            let flags = match how {
                Fallocate::Allocate => FallocateFlags::empty(),
                Fallocate::KeepSize => FallocateFlags::KEEP_SIZE,
                Fallocate::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                Fallocate::ZeroRange => FallocateFlags::ZERO_RANGE,
            };
            Ok(rustix::fs::fallocate(write(path)?, flags, *offset, *len)?)
        }
        Op::Clone { from, from_offset, to, to_offset, len } => {
            // Btrfs answers copy_file_range on one file system with shared extents, as it does FICLONERANGE.
            let (source, dest) = (File::open(join(root, from))?, write(to)?);
            let (mut read_at, mut write_at, mut left) = (*from_offset, *to_offset, *len as usize);
            while left > 0 {
                let (r, w) = (Some(&mut read_at), Some(&mut write_at));
                match rustix::fs::copy_file_range(&source, r, &dest, w, left)? {
                    0 => break,
                    n => left -= n,
                }
            }
            Ok(())
        }
        other => unreachable!("{other:?} is not about data"),
    }
}

fn append(full: &Path, data: &Data) -> io::Result<()> {
    File::options().append(true).open(full)?.write_all(&data.bytes())
}

fn apply_attribute(root: &Path, op: &Op) -> io::Result<()> {
    match op {
        Op::SetXattr { path, name, value } => {
            Ok(rustix::fs::lsetxattr(join(root, path), name.as_slice(), value, XattrFlags::empty())?)
        }
        Op::RemoveXattr { path, name } => Ok(rustix::fs::lremovexattr(join(root, path), name.as_slice())?),
        Op::Chmod { path, mode } => Ok(rustix::fs::chmod(join(root, path), Mode::from(*mode))?),
        Op::Chown { path, uid, gid } => {
            let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
            let (full, flags) = (join(root, path), AtFlags::SYMLINK_NOFOLLOW);
            Ok(rustix::fs::chownat(CWD, full, Some(uid), Some(gid), flags)?)
        }
        Op::Utimens { path, atime, mtime } => {
            let times = Timestamps { last_access: timespec(*atime), last_modification: timespec(*mtime) };
            Ok(rustix::fs::utimensat(CWD, join(root, path), &times, AtFlags::SYMLINK_NOFOLLOW)?)
        }
        Op::SetNocow { path } => {
            let file = File::open(join(root, path))?;
            let flags = rustix::fs::ioctl_getflags(&file)?;
            Ok(rustix::fs::ioctl_setflags(&file, flags | IFlags::NOCOW)?)
        }
        other => unreachable!("{other:?} is not about an attribute"),
    }
}

fn apply_subvolume(root: &Path, op: &Op) -> io::Result<()> {
    let mut command = Command::new("btrfs");
    command.arg("subvolume");
    match op {
        Op::CreateSubvolume { path } => command.arg("create").arg(join(root, path)),
        Op::Snapshot { from, to, read_only } => {
            if join(root, to).symlink_metadata().is_ok() {
                // The program would put the snapshot into an existing directory.
                return Err(Errno::EXIST.into());
            }
            command.arg("snapshot").args(read_only.then_some("-r")).arg(join(root, from)).arg(join(root, to))
        }
        Op::DeleteSubvolume { path } => {
            // Not a subvolume's top directory; the program would say so in words.
            if join(root, path).symlink_metadata()?.ino() != 256 {
                return Err(Errno::INVAL.into());
            }
            command.arg("delete").arg(join(root, path))
        }
        Op::SetDefaultSubvolume { path } => command.arg("set-default").arg(join(root, path)),
        other => unreachable!("{other:?} is not about a subvolume"),
    };
    guard::run(&mut command).map(drop)
}

fn mknod(full: &Path, node: Node, mode: u32) -> io::Result<()> {
    let (kind, major, minor) = match node {
        Node::Char(major, minor) => (FileType::CharacterDevice, major, minor),
        Node::Block(major, minor) => (FileType::BlockDevice, major, minor),
        Node::Fifo => (FileType::Fifo, 0, 0),
        Node::Socket => (FileType::Socket, 0, 0),
    };
    Ok(rustix::fs::mknodat(CWD, full, kind, Mode::from(mode), rustix::fs::makedev(major, minor))?)
}

fn timespec(time: Time) -> Timespec {
    Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() }
}
