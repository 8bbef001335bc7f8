//! Opening for writing, commits from time to time, and closing.

use crate::delalloc::Gathered;
use crate::dropping::Dead;
use crate::ranges::Ranges;
use crate::{FileId, Filesystem, Options, Result, Time, engine_options, open_devices};
use buttery_device::{Access, Device};
use buttery_disk::TreeId;
use buttery_disk::inode::Timespec;
use buttery_engine::Engine;
use buttery_engine::file::write::Compress;
use hashbrown::{HashMap, HashSet};
use parking_lot::{Condvar, Mutex, RwLock};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A commit begins when this many bytes of tree blocks have changed.
const DIRTY_MAX: u64 = 96 << 20;
/// A commit begins when references of this many extents have changed.
const REFS_MAX: u64 = 60_000;

/// What a file system that is open for writing has besides.
pub(crate) struct WriteState {
    /// Names change one at a time.
    pub namespace: Mutex<()>,
    /// The inodes' locks, and what of their data is in memory only.
    pub gathered: Arc<Gathered>,
    pub ranges: Ranges,
    /// How often each inode is held by somebody who may still use it without a name.
    pub held: Mutex<HashMap<FileId, u64>>,
    /// Deleted subvolumes whose trees are there still.
    pub dead: Dead,
    /// Subvolumes whose orphans were removed.
    pub cleaned: Mutex<HashSet<TreeId>>,
    pub nodatacow: bool,
    pub nodatasum: bool,
    /// How files are compressed unless they say otherwise.
    pub compress: Option<Compress>,
    /// The time that everything gets, for images that are made the same way twice.
    pub clock: Option<Time>,
    operations: AtomicU32,
    committer: Mutex<Option<Committer>>,
}

/// The thread that commits every few seconds.
struct Committer {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: std::thread::JoinHandle<()>,
}

impl WriteState {
    fn new(engine: &Arc<Engine>, options: &Options) -> WriteState {
        WriteState {
            namespace: Mutex::new(()),
            gathered: Arc::new(Gathered::new(engine.clone())),
            ranges: Ranges::new(),
            held: Mutex::default(),
            dead: Dead::default(),
            cleaned: Mutex::default(),
            nodatacow: options.nodatacow,
            nodatasum: options.nodatasum,
            compress: options.compress,
            clock: options.clock,
            operations: 0.into(),
            committer: Mutex::new(None),
        }
    }

    /// The lock of an inode's data, which others may share.
    pub fn inode(&self, id: FileId) -> &RwLock<()> {
        self.gathered.locks.of(id)
    }
}

impl Filesystem {
    /// Opens the file system that these files or block devices make up, for reading and writing. One owner at a time:
    /// a device that another program or a kernel mount has is refused.
    pub fn open_writable(paths: &[&Path], options: &Options) -> Result<Filesystem> {
        let devices = open_devices(paths, Access::Exclusive, options)?;
        Self::open_devices_writable(devices, options)
    }

    /// Opens the file system that these devices make up, for reading and writing.
    pub fn open_devices_writable(devices: Vec<Arc<dyn Device>>, options: &Options) -> Result<Filesystem> {
        let engine = Arc::new(Engine::open_writable(devices, engine_options(options))?);
        let mut fs = Self::with_engine(engine.clone(), options)?;
        let state = WriteState::new(&engine, options);
        let relief: Weak<Gathered> = Arc::downgrade(&state.gathered);
        engine.set_relief(relief);
        *state.committer.lock() = Some(Committer::start(engine, state.gathered.clone(), options.commit_secs));
        fs.write = Some(state);
        fs.find_dead()?;
        Ok(fs)
    }

    /// Commits: returns when everything that was changed before the call is on the device.
    pub fn sync(&self) -> Result<()> {
        match &self.write {
            Some(state) => {
                // what can be written is committed even where not all of it can
                let settled = state.gathered.settle_all();
                self.engine.commit().and(settled)
            }
            None => Ok(()),
        }
    }

    /// Whether [`sync`](Self::sync) has nothing to do: all that was changed before the call is on the device.
    pub fn is_synced(&self) -> bool {
        self.write.as_ref().is_none_or(|state| state.gathered.is_empty() && self.engine.is_committed())
    }

    /// Removes what is left of files without a name, commits, and gives the devices back.
    pub fn close(mut self) -> Result<()> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> Result<()> {
        let Some(state) = &self.write else { return Ok(()) };
        if let Some(committer) = state.committer.lock().take() {
            committer.stop();
        }
        if !self.engine.is_writable() {
            self.write = None;
            return Err(crate::Error::Aborted);
        }
        let held: Vec<FileId> = state.held.lock().drain().map(|(id, _)| id).collect();
        let trees: HashSet<TreeId> = held.iter().map(|id| id.tree).collect();
        // of a deleted subvolume all goes
        for tree in trees.into_iter().filter(|tree| self.subvolume(*tree).is_ok()) {
            self.remove_orphans(tree)?;
        }
        // what can be written is committed even where not all of it can
        let settled = state.gathered.settle_all();
        self.engine.commit()?;
        // a commit moves blocks together, and may so empty another group
        const ROUNDS_MAX: usize = 8;
        for _ in 0..ROUNDS_MAX {
            if self.engine.remove_empty_groups()? == 0 {
                break;
            }
            self.engine.commit()?;
        }
        self.write = None;
        settled
    }

    /// Called after each operation: commits when a lot has changed.
    pub(crate) fn after_operation(&self) -> Result<()> {
        let Some(state) = &self.write else { return Ok(()) };
        state.gathered.settle_surplus();
        if !state.operations.fetch_add(1, Ordering::Relaxed).is_multiple_of(64) {
            return Ok(());
        }
        let exceeds = |times: u64| {
            self.engine.dirty_bytes() > times * DIRTY_MAX
                || self.engine.changed_extents() as u64 > times * REFS_MAX
        };
        // while one commits others go on, but not without bound
        while exceeds(1) && !self.engine.try_commit()? && exceeds(2) {
            self.engine.await_commit()?;
        }
        Ok(())
    }

    /// The time that a change gets.
    pub(crate) fn now(&self) -> Timespec {
        if let Some(time) = self.write.as_ref().and_then(|w| w.clock) {
            return time.into();
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timespec::new(since.as_secs() as i64, since.subsec_nanos())
    }
}

impl Drop for Filesystem {
    fn drop(&mut self) {
        // whoever wants to know whether it worked calls `close`
        let _ = self.shut_down();
    }
}

impl Committer {
    fn start(engine: Arc<Engine>, gathered: Arc<Gathered>, secs: u64) -> Committer {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let signal = stop.clone();
        let thread = std::thread::spawn(move || {
            let (stopped, wake) = &*signal;
            let mut stopped = stopped.lock();
            while !*stopped {
                let timed_out = wake.wait_for(&mut stopped, Duration::from_secs(secs.max(1))).timed_out();
                if *stopped || !timed_out {
                    continue;
                }
                parking_lot::MutexGuard::unlocked(&mut stopped, || {
                    // what cannot be written stays, and whoever syncs is told
                    if let Err(error) = gathered.settle_all() {
                        tracing::error!("data in memory cannot be written: {error}");
                    }
                    // a failure is kept by the engine and met by the next operation
                    if engine.commit().is_ok() {
                        let _ = engine.remove_empty_groups();
                    }
                });
            }
        });
        Committer { stop, thread }
    }

    fn stop(self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        let _ = self.thread.join();
    }
}
