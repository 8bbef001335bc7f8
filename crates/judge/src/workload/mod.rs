//! Workloads: lists of operations that are the same for the same seed, and what runs them on a mounted directory.
//!
//! An [`Op`] is plain data, so that something other than a mount (a model, the library) can run it as well.
//! [`random::ops`] makes thousands of them; [`shapes`] holds the corners of the format one by one.

mod apply;
pub mod random;
pub mod rng;
pub mod shapes;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

pub use apply::apply;

use crate::facts::Time;
use rng::Rng;

/// A path relative to the root of the workload.
pub type Name = Vec<u8>;

/// One operation on a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Mkdir {
        path: Name,
        mode: u32,
    },
    Rmdir {
        path: Name,
    },
    Create {
        path: Name,
        mode: u32,
    },
    Write {
        path: Name,
        offset: u64,
        data: Data,
    },
    Append {
        path: Name,
        data: Data,
    },
    Truncate {
        path: Name,
        size: u64,
    },
    Fallocate {
        path: Name,
        offset: u64,
        len: u64,
        how: Fallocate,
    },
    /// Shares extents if the file system can; both ranges are whole blocks or end with the source.
    Clone {
        from: Name,
        from_offset: u64,
        to: Name,
        to_offset: u64,
        len: u64,
    },
    Rename {
        from: Name,
        to: Name,
    },
    Exchange {
        a: Name,
        b: Name,
    },
    Link {
        from: Name,
        to: Name,
    },
    Unlink {
        path: Name,
    },
    Symlink {
        path: Name,
        target: Vec<u8>,
    },
    Mknod {
        path: Name,
        node: Node,
        mode: u32,
    },
    SetXattr {
        path: Name,
        name: Name,
        value: Vec<u8>,
    },
    RemoveXattr {
        path: Name,
        name: Name,
    },
    Chmod {
        path: Name,
        mode: u32,
    },
    Chown {
        path: Name,
        uid: u32,
        gid: u32,
    },
    Utimens {
        path: Name,
        atime: Time,
        mtime: Time,
    },
    /// No copy-on-write and no checksums, for an empty file.
    SetNocow {
        path: Name,
    },
    Fsync {
        path: Name,
    },
    Sync,
    CreateSubvolume {
        path: Name,
    },
    Snapshot {
        from: Name,
        to: Name,
        read_only: bool,
    },
    DeleteSubvolume {
        path: Name,
    },
    SetDefaultSubvolume {
        path: Name,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    Allocate,
    KeepSize,
    PunchHole,
    ZeroRange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    Char(u32, u32),
    Block(u32, u32),
    Fifo,
    Socket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    Zeros,
    /// Does not compress.
    Random,
    /// Compresses well.
    Text,
}

/// The contents of a write, made when they are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    pub fill: Fill,
    pub seed: u64,
    pub len: usize,
}

impl Data {
    pub fn new(fill: Fill, seed: u64, len: usize) -> Data {
        Data { fill, seed, len }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut rng = Rng::new(self.seed);
        let mut out = Vec::with_capacity(self.len + 16);
        while out.len() < self.len {
            match self.fill {
                Fill::Zeros => out.resize(self.len, 0),
                Fill::Random => out.extend(rng.next().to_le_bytes()),
                Fill::Text => {
                    const WORDS: [&str; 8] =
                        ["churn ", "cream ", "butter ", "milk ", "salt\n", "bread ", "of ", "a "];
                    out.extend(WORDS[rng.below(8) as usize].as_bytes());
                }
            }
        }
        out.truncate(self.len);
        out
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub done: usize,
    /// Operations that the file system refused, as it should: by error number and operation.
    pub refused: BTreeMap<(i32, &'static str), usize>,
}

/// Runs the operations below `root`, as root, and syncs. A refusal that a sound file system gives (no such file,
/// not empty, ...) is counted; any other is an error.
pub fn run(root: &Path, ops: &[Op]) -> io::Result<Report> {
    let mut report = Report::default();
    for (n, op) in ops.iter().enumerate() {
        match apply(root, op) {
            Ok(()) => report.done += 1,
            Err(e) if is_refusal(&e) => {
                *report.refused.entry((e.raw_os_error().unwrap_or(0), op.name())).or_default() += 1;
            }
            Err(e) => return Err(io::Error::new(e.kind(), format!("operation {n}, {op:?}: {e}"))),
        }
    }
    apply(root, &Op::Sync)?;
    Ok(report)
}

fn is_refusal(e: &io::Error) -> bool {
    use rustix::io::Errno;
    const REFUSALS: [Errno; 13] = [
        // The stand-in for a nested subvolume in a snapshot takes nothing in.
        Errno::ACCESS,
        Errno::NOENT,
        Errno::EXIST,
        Errno::NOTDIR,
        Errno::ISDIR,
        Errno::NOTEMPTY,
        Errno::XDEV,
        Errno::INVAL,
        Errno::MLINK,
        Errno::NODATA,
        Errno::PERM,
        Errno::NAMETOOLONG,
        Errno::OVERFLOW,
    ];
    e.raw_os_error().is_some_and(|code| REFUSALS.iter().any(|r| r.raw_os_error() == code))
}

impl Op {
    pub fn name(&self) -> &'static str {
        match self {
            Op::Mkdir { .. } => "mkdir",
            Op::Rmdir { .. } => "rmdir",
            Op::Create { .. } => "create",
            Op::Write { .. } => "write",
            Op::Append { .. } => "append",
            Op::Truncate { .. } => "truncate",
            Op::Fallocate { .. } => "fallocate",
            Op::Clone { .. } => "clone",
            Op::Rename { .. } => "rename",
            Op::Exchange { .. } => "exchange",
            Op::Link { .. } => "link",
            Op::Unlink { .. } => "unlink",
            Op::Symlink { .. } => "symlink",
            Op::Mknod { .. } => "mknod",
            Op::SetXattr { .. } => "setxattr",
            Op::RemoveXattr { .. } => "removexattr",
            Op::Chmod { .. } => "chmod",
            Op::Chown { .. } => "chown",
            Op::Utimens { .. } => "utimens",
            Op::SetNocow { .. } => "nocow",
            Op::Fsync { .. } => "fsync",
            Op::Sync => "sync",
            Op::CreateSubvolume { .. } => "subvolume create",
            Op::Snapshot { .. } => "snapshot",
            Op::DeleteSubvolume { .. } => "subvolume delete",
            Op::SetDefaultSubvolume { .. } => "subvolume default",
        }
    }
}
