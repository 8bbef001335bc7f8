//! Which handles go through the kernel's page cache, and which past it; and whose writes the kernel may hold back.

use buttery::{Error, FileId, Filesystem, Result};
use buttery_disk::inode::flags::PREALLOC;
use fuser::{FileHandle, FopenFlags, INodeNo, Notifier};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// From this size on, in bytes, a file is one that is written in bulk.
const LARGE: u64 = 1 << 20;

/// A handle, as the kernel gives it back when it is closed.
const CACHED: FileHandle = FileHandle(0);
const PAST: FileHandle = FileHandle(1);
/// O_DIRECT goes past the cache whatever others do.
const DIRECT: FileHandle = FileHandle(2);

/// Whether a handle would better go past the page cache. With `through` only who asks for
/// direct I/O does.
///
/// One that can only write does: nothing can be read from the cache through it, each write is a request with the cache as
/// well, and without it no page is filled, and writers of one file need not wait for one another.
fn wants_past(fs: &Filesystem, id: FileId, flags: i32, through: bool) -> Result<bool> {
    match flags & libc::O_ACCMODE {
        _ if through => Ok(false),
        libc::O_RDONLY => Ok(false),
        libc::O_WRONLY => Ok(true),
        _ => is_for_bulk(fs, id),
    }
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

/// The open handles of a file.
#[derive(Clone, Copy, Default)]
struct Open {
    cached: usize,
    past: usize,
    writers: usize,
}

/// The open handles of all files.
///
/// The kernel drops pages that are written over past the cache before it writes, so who reads at the same moment could
/// fill them with what was there before. So the handles of a file go all one way: the first decides, unless it asks for
/// direct I/O.
#[derive(Default)]
pub struct Handles(Mutex<HashMap<u64, Open>>);

impl Handles {
    /// A file is opened: how the kernel caches it, and the handle.
    pub fn open(
        &self,
        fs: &Filesystem,
        (id, node): (FileId, INodeNo),
        flags: i32,
        through: bool,
    ) -> Result<(FileHandle, FopenFlags)> {
        let direct = flags & libc::O_DIRECT != 0;
        let past = direct || wants_past(fs, id, flags, through)?;
        let mut files = self.0.lock();
        let open = files.entry(node.0).or_default();
        open.writers += usize::from(writes(flags));
        let handle = match past {
            _ if direct => DIRECT,
            true if open.cached == 0 => PAST,
            false if open.past > 0 => PAST,
            _ => CACHED,
        };
        open.cached += usize::from(handle == CACHED);
        open.past += usize::from(handle == PAST);
        let how = match handle {
            CACHED => FopenFlags::FOPEN_KEEP_CACHE,
            _ => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
        };
        Ok((handle, how))
    }

    /// A handle is closed.
    pub fn close(&self, node: INodeNo, handle: FileHandle, flags: i32) {
        let mut files = self.0.lock();
        let Some(open) = files.get_mut(&node.0) else { return };
        open.writers = open.writers.saturating_sub(usize::from(writes(flags)));
        open.cached = open.cached.saturating_sub(usize::from(handle == CACHED));
        open.past = open.past.saturating_sub(usize::from(handle == PAST));
        if (open.cached, open.past, open.writers) == (0, 0, 0) {
            files.remove(&node.0);
        }
    }

    /// The files that are open for writing. If the kernel holds writes back, only they may have any: it waits for them
    /// when a file is closed.
    pub fn written(&self) -> Vec<INodeNo> {
        let files = self.0.lock();
        files.iter().filter(|(_, open)| open.writers > 0).map(|(node, _)| INodeNo(*node)).collect()
    }
}

/// Whether a handle that was opened with these flags can write.
pub fn writes(flags: i32) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY
}

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
