//! Which files have data in memory that no item tells of, and when those are written.
//!
//! A file has such data only while it is written to in small pieces, each behind the last. All else settles it first:
//! whoever locks the inode to change it, a reader of just these data, a rename, a commit that somebody asked for or that
//! is due. Only `stat` knows of them.

use crate::locks::{InodeLocks, hash};
use crate::{Error, FileId, Filesystem, Result, Stat, TreeId};
use buttery_disk::inode::{Timespec, flags};
use buttery_engine::file::delalloc::Delalloc;
use buttery_engine::file::inode;
use buttery_engine::tree::Tree;
use buttery_engine::{Engine, Relief};
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLockWriteGuard};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// A write of so many bytes or more goes to the device at once.
const SMALL_MAX: usize = 64 << 10;
/// When more files than this have data in memory, the oldest are written.
const RANGES_MAX: usize = 64;
const SHARDS: usize = 64;
/// How many files' last writes are remembered.
const LAST: usize = 1024;
/// So many small writes of a file are not gathered after one came that did not go on, or met another: writers who take
/// turns, or one who goes back and forth, would have little pieces settled all the time.
const SHY: u32 = 256;

/// What is seen of a file's data in memory without its lock.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    start: u64,
    end: u64,
    now: Timespec,
    ctime: Timespec,
}

impl Seen {
    fn of(range: &Delalloc) -> Seen {
        Seen { start: range.start(), end: range.end(), now: range.now(), ctime: range.ctime() }
    }

    /// What a file is that has these data besides.
    pub fn add_to(&self, mut stat: Stat, sector: u64) -> Stat {
        if self.end > stat.size {
            // preallocated space was counted before
            if stat.flags & flags::PREALLOC == 0 {
                stat.nbytes += self.end.next_multiple_of(sector) - stat.size.next_multiple_of(sector);
            }
            stat.size = self.end;
        }
        stat.mtime = self.now.into();
        // whoever changed it meanwhile was later
        let changed = stat.ctime != self.ctime.into();
        stat.ctime = if changed { stat.ctime.max(self.now.into()) } else { self.now.into() };
        stat
    }
}

struct Entry {
    seen: Seen,
    /// Absent while who has the inode's lock works with it.
    range: Option<Box<Delalloc>>,
}

/// The data in memory, by file, and the inodes' locks. What is said of an inode's lock below means the one for writing.
pub(crate) struct Gathered {
    pub locks: InodeLocks,
    engine: Arc<Engine>,
    shards: Vec<Mutex<HashMap<FileId, Entry>>>,
    count: AtomicUsize,
    /// In the order in which they came.
    order: Mutex<VecDeque<FileId>>,
    /// Of the last small write, which file it was and where it ended, both in one number.
    last: Vec<AtomicU64>,
    /// How many of the next small writes are not gathered.
    shy: Vec<AtomicU32>,
}

thread_local! {
    /// This thread is giving space back, and needs none from who waits for it.
    static RELIEVING: Cell<bool> = const { Cell::new(false) };
}

impl Gathered {
    pub fn new(engine: Arc<Engine>) -> Gathered {
        Gathered {
            locks: InodeLocks::new(),
            engine,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            count: 0.into(),
            order: Mutex::default(),
            last: (0..LAST).map(|_| AtomicU64::new(0)).collect(),
            shy: (0..LAST).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    fn shard(&self, id: FileId) -> &Mutex<HashMap<FileId, Entry>> {
        &self.shards[hash(id) as usize % SHARDS]
    }

    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// What a file has in memory.
    pub fn seen(&self, id: FileId) -> Option<Seen> {
        if self.is_empty() {
            return None;
        }
        self.shard(id).lock().get(&id).map(|entry| entry.seen)
    }

    /// Whether a write is small and begins where the file's last small one ended.
    fn goes_on(&self, id: FileId, offset: u64, len: usize) -> bool {
        if len >= SMALL_MAX {
            return false;
        }
        let of =
            |at: u64| (u64::from(hash(id)) << 32 | 1).wrapping_add(at.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let slot = hash(id) as usize % LAST;
        let goes_on =
            self.last[slot].swap(of(offset.wrapping_add(len as u64)), Ordering::Relaxed) == of(offset);
        let shy = self.shy[slot].load(Ordering::Relaxed);
        if shy > 0 {
            self.shy[slot].store(shy - 1, Ordering::Relaxed);
        }
        goes_on && shy == 0
    }

    /// A write comes that does not go on.
    pub fn broken_off(&self, id: FileId) {
        if self.seen(id).is_some() {
            self.shy_away(id);
        }
    }

    fn shy_away(&self, id: FileId) {
        self.shy[hash(id) as usize % LAST].store(SHY, Ordering::Relaxed);
    }

    /// Takes what a file has in memory, to work with it. The inode is locked until it was put back or removed.
    fn take(&self, id: FileId) -> Option<Box<Delalloc>> {
        if self.is_empty() {
            return None;
        }
        self.shard(id).lock().get_mut(&id)?.range.take()
    }

    fn put(&self, id: FileId, range: Box<Delalloc>) {
        let entry = Entry { seen: Seen::of(&range), range: Some(range) };
        if self.shard(id).lock().insert(id, entry).is_none() {
            self.count.fetch_add(1, Ordering::AcqRel);
            self.order.lock().push_back(id);
        }
    }

    fn remove(&self, id: FileId) {
        if self.shard(id).lock().remove(&id).is_some() {
            self.count.fetch_sub(1, Ordering::AcqRel);
            self.order.lock().retain(|&other| other != id);
        }
    }

    /// Writes what a file has in memory, whose inode is locked. What cannot be written stays.
    pub fn settle_locked(&self, id: FileId) -> Result<()> {
        let Some(mut range) = self.take(id) else { return Ok(()) };
        let tree = self.engine.tree(id.tree);
        if matches!(tree, Err(Error::NotFound)) {
            // the subvolume was deleted, and nobody has the file
            self.remove(id);
            return range.release(&self.engine);
        }
        match tree.and_then(|tree| range.settle(&self.engine, &tree, id.ino)) {
            Ok(()) => {
                self.remove(id);
                range.release(&self.engine)
            }
            Err(error) => {
                self.put(id, range);
                Err(error)
            }
        }
    }

    /// Forgets what a file has in memory: the file goes. Its inode is locked.
    pub fn forget(&self, id: FileId) -> Result<()> {
        let Some(range) = self.take(id) else { return Ok(()) };
        self.remove(id);
        range.release(&self.engine)
    }

    /// Has a file end at `size`, whose inode is locked: what it has in memory behind that need not be written, but is kept
    /// until the file ends there.
    pub fn cut(&self, id: FileId, size: u64, truncate: impl Fn() -> Result<()>) -> Result<()> {
        if self.seen(id).is_some_and(|seen| size <= seen.start) {
            match truncate() {
                Ok(()) => return self.forget(id),
                // what it has in memory may be what keeps the space
                Err(Error::NoSpace) => {}
                Err(error) => return Err(error),
            }
        }
        self.settle_locked(id)?;
        truncate()
    }

    /// Writes what a file has in memory.
    pub fn settle(&self, id: FileId) -> Result<()> {
        if self.seen(id).is_none() {
            return Ok(());
        }
        let _data = self.locks.of(id).write();
        self.settle_locked(id)
    }

    fn ids(&self) -> Vec<FileId> {
        if self.is_empty() {
            return Vec::new();
        }
        self.shards.iter().flat_map(|shard| shard.lock().keys().copied().collect::<Vec<_>>()).collect()
    }

    /// Writes what all files have in memory; as much of it as can be, and the first error is the answer.
    pub fn settle_all(&self) -> Result<()> {
        self.settle_each(|_| true)
    }

    /// The same for the files of one subvolume.
    pub fn settle_subvolume(&self, tree: TreeId) -> Result<()> {
        self.settle_each(|id| id.tree == tree)
    }

    fn settle_each(&self, which: impl Fn(FileId) -> bool) -> Result<()> {
        let mut result = Ok(());
        for id in self.ids().into_iter().filter(|id| which(*id)) {
            result = result.and(self.settle(id));
        }
        result
    }

    /// Writes what the oldest file has in memory if there are many. No inode is locked.
    pub fn settle_surplus(&self) {
        if self.count.load(Ordering::Relaxed) <= RANGES_MAX {
            return;
        }
        let Some(oldest) = self.order.lock().front().copied() else { return };
        if self.settle(oldest).is_err() {
            // it stays, and whoever asks for just this file is told; the next is another's turn
            let mut order = self.order.lock();
            if let Some(at) = order.iter().position(|&other| other == oldest) {
                order.remove(at);
                order.push_back(oldest);
            }
        }
    }
}

impl Relief for Gathered {
    fn relieve(&self) -> bool {
        if self.is_empty() || RELIEVING.replace(true) {
            return false;
        }
        let mut any = false;
        for id in self.ids() {
            // who asks may have a lock, and others may wait for what he has
            if let Some(_data) = self.locks.of(id).try_write() {
                any |= self.seen(id).is_some() && self.settle_locked(id).is_ok();
            }
        }
        RELIEVING.set(false);
        any
    }
}

impl Filesystem {
    /// Locks an inode's data for a change; nothing of them is in memory only.
    pub(crate) fn lock_inode(&self, id: FileId) -> Result<RwLockWriteGuard<'_, ()>> {
        let gathered = &self.write_state()?.gathered;
        let guard = gathered.locks.of(id).write();
        gathered.settle_locked(id)?;
        Ok(guard)
    }

    /// The same with two inodes, which may be one.
    pub(crate) fn lock_two(
        &self,
        a: FileId,
        b: FileId,
    ) -> Result<(RwLockWriteGuard<'_, ()>, Option<RwLockWriteGuard<'_, ()>>)> {
        let gathered = &self.write_state()?.gathered;
        let guards = gathered.locks.two(a, b);
        gathered.settle_locked(a)?;
        gathered.settle_locked(b)?;
        Ok(guards)
    }

    /// Before somebody reads a range of a file.
    pub(crate) fn settle_range(&self, id: FileId, start: u64, end: u64) -> Result<()> {
        match self.write.as_ref().and_then(|state| Some((state, state.gathered.seen(id)?))) {
            Some((state, seen)) if seen.start < end && start < seen.end => state.gathered.settle(id),
            _ => Ok(()),
        }
    }

    /// Before the name of a file changes: writes what it has in memory, if it has so many names.
    pub(crate) fn settle_named(&self, dir: FileId, name: &[u8], links_min: u32) -> Result<()> {
        let gathered = &self.write_state()?.gathered;
        if gathered.is_empty() {
            return Ok(());
        }
        let Ok(id) = self.lookup(dir, name) else { return Ok(()) }; // whoever changes the name says what is wrong
        if gathered.seen(id).is_none() || self.stat(id)?.nlink < links_min {
            return Ok(());
        }
        gathered.settle(id)
    }

    /// Takes a small write that goes on where the last one ended. Answers `false` if it has to be written at once;
    /// nothing of the file is then in memory.
    pub(crate) fn gather(
        &self,
        tree: &Tree,
        id: FileId,
        offset: u64,
        data: &[u8],
        now: Timespec,
    ) -> Result<bool> {
        let gathered = &self.write_state()?.gathered;
        if !gathered.goes_on(id, offset, data.len()) {
            return Ok(false);
        }
        // a snapshot of what is written later must not lack it
        let Some(_open) = tree.gathering() else { return Ok(false) };
        // who would wait for another's piece does better beside him
        let Some(_data) = gathered.locks.of(id).try_write() else {
            gathered.shy_away(id);
            return Ok(false);
        };
        let Some(mut range) = gathered.take(id) else {
            return self.begin_to_gather(tree, id, offset, data, now);
        };
        let taken = match range.end() == offset {
            true => range.extend(&self.engine, tree, id.ino, data, now),
            false => {
                gathered.broken_off(id);
                Ok(false)
            }
        };
        gathered.put(id, range);
        if !taken? {
            gathered.settle_locked(id)?;
            return Ok(false);
        }
        Ok(true)
    }

    fn begin_to_gather(
        &self,
        tree: &Tree,
        id: FileId,
        offset: u64,
        data: &[u8],
        now: Timespec,
    ) -> Result<bool> {
        let gathered = &self.write_state()?.gathered;
        let item = inode::read(&self.engine, tree, id.ino)?;
        let stat = Stat::new(id, &item);
        let denied =
            self.check_data(&stat).is_err() || stat.flags & flags::APPEND != 0 && offset != stat.size;
        let many = gathered.count.load(Ordering::Relaxed) >= 2 * RANGES_MAX;
        if stat.kind() != crate::Kind::File || denied || many || data.is_empty() {
            return Ok(false);
        }
        let compress = self.how(tree, &stat)?.compress;
        let range = Delalloc::begin(&self.engine, tree, id.ino, &item, offset, data, now, compress)?;
        let Some(range) = range else { return Ok(false) };
        gathered.put(id, Box::new(range));
        Ok(true)
    }
}
