//! Which handles go through the kernel's page cache, and which past it; and whose writes the kernel may hold back.

use buttery::{Error, FileId, Filesystem, Result};
use buttery_disk::inode::flags::PREALLOC;
use fuser::{FopenFlags, INodeNo, Notifier};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// From this size on, in bytes, a file is one that is written in bulk.
const LARGE: u64 = 1 << 20;

/// How a file that is opened with these flags is cached. With `writeback` the kernel holds writes back, and only who asks
/// for direct I/O goes past the cache.
///
/// A handle that can only write goes past it: nothing can be read from the cache through it, each write is a request with
/// the cache as well, and without it no page is filled, and writers of one file need not wait for one another. Pages that
/// others have cached stay coherent: the kernel drops those that are written over.
pub fn of_handle(fs: &Filesystem, id: FileId, flags: i32, writeback: bool) -> Result<FopenFlags> {
    let past = flags & libc::O_DIRECT != 0
        || match flags & libc::O_ACCMODE {
            _ if writeback => false,
            libc::O_RDONLY => false,
            libc::O_WRONLY => true,
            _ => is_for_bulk(fs, id)?,
        };
    Ok(if past {
        FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
    } else {
        FopenFlags::FOPEN_KEEP_CACHE
    })
}

/// Whether a file that is opened for reading and writing is about to be written in bulk: it is large and preallocated, and
/// has no data yet. Its pages would be copied twice, and there is nothing to read from a cache.
fn is_for_bulk(fs: &Filesystem, id: FileId) -> Result<bool> {
    let stat = fs.stat(id)?;
    if stat.size < LARGE || stat.flags & PREALLOC == 0 {
        return Ok(false);
    }
    match fs.seek(id, 0, true) {
        Err(Error::NotFound) => Ok(true),
        other => other.map(|_| false),
    }
}

/// The files that are open for writing while the kernel holds writes back. Only they may have any: it waits for them when
/// a file is closed.
#[derive(Default)]
pub struct Writers(Mutex<HashMap<u64, usize>>);

impl Writers {
    /// A handle is opened.
    pub fn opened(&self, node: INodeNo, flags: i32) {
        if flags & libc::O_ACCMODE != libc::O_RDONLY {
            *self.0.lock().entry(node.0).or_default() += 1;
        }
    }

    /// A handle is closed.
    pub fn closed(&self, node: INodeNo, flags: i32) {
        if flags & libc::O_ACCMODE == libc::O_RDONLY {
            return;
        }
        let mut open = self.0.lock();
        if let Some(count) = open.get_mut(&node.0) {
            *count -= 1;
            if *count == 0 {
                open.remove(&node.0);
            }
        }
    }

    /// Those that are open.
    pub fn nodes(&self) -> Vec<INodeNo> {
        self.0.lock().keys().map(|node| INodeNo(*node)).collect()
    }
}

/// The attribute that holds a file's capabilities.
pub const CAPABILITY: &[u8] = b"security.capability";

/// Files that may have capabilities. A write takes them away, whoever writes; for writes past the page cache the kernel
/// leaves that to the server.
#[derive(Default)]
pub struct Capable {
    any: AtomicBool,
    nodes: Mutex<HashSet<u64>>,
}

impl Capable {
    /// This one has, or is given, capabilities.
    pub fn note(&self, node: INodeNo) {
        self.nodes.lock().insert(node.0);
        self.any.store(true, Ordering::Release);
    }

    /// A file is written: whether its capabilities must be taken away.
    pub fn take(&self, node: INodeNo) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut nodes = self.nodes.lock();
        let found = nodes.remove(&node.0);
        self.any.store(!nodes.is_empty(), Ordering::Release);
        found
    }
}

/// Waits until the kernel has handed over what it holds back of these files. Never to be called by a thread that serves:
/// all of those may be needed meanwhile.
pub fn hand_over(notifier: &OnceLock<Notifier>, nodes: &[INodeNo]) {
    let Some(notifier) = notifier.get() else { return };
    for node in nodes {
        // one that is gone has nothing left
        let _ = notifier.inval_inode(*node, 0, 0);
    }
}
