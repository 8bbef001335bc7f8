//! The thread that tells the kernel of names that came or went without its doing, and drops what is left of deleted
//! subvolumes.

use buttery::{Filesystem, Left};
use fuser::{INodeNo, Notifier};
use parking_lot::Mutex;
use std::ffi::OsString;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long until files of a deleted subvolume may be used no more.
const AGAIN: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(3600);

struct Job {
    /// A directory, and the name that changed.
    what: Option<(INodeNo, OsString)>,
    done: Box<dyn FnOnce() + Send>,
}

/// The thread.
pub struct Dropper {
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Dropper {
    pub fn start(fs: &Arc<Filesystem>, notifier: &Arc<OnceLock<Notifier>>) -> Dropper {
        let (jobs, queue) = channel();
        let (fs, notifier) = (Arc::downgrade(fs), notifier.clone());
        let thread = std::thread::spawn(move || run(&fs, &notifier, &queue));
        Dropper { jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)) }
    }

    /// Has the kernel look anew at a name, and calls `done` after that. Not by the caller: the kernel may wait for a
    /// directory that somebody else changes, and he for a thread of the server.
    pub fn tell(&self, dir: INodeNo, name: OsString, done: Box<dyn FnOnce() + Send>) {
        self.send(Job { what: Some((dir, name)), done });
    }

    /// A subvolume may have been deleted.
    pub fn wake(&self) {
        self.send(Job { what: None, done: Box::new(|| ()) });
    }

    fn send(&self, job: Job) {
        if let Some(jobs) = &*self.jobs.lock()
            && let Err(refused) = jobs.send(job)
        {
            (refused.0.done)();
        }
    }

    /// Ends the thread, after what was asked for.
    pub fn stop(&self) {
        self.jobs.lock().take();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

fn run(fs: &Weak<Filesystem>, notifier: &OnceLock<Notifier>, queue: &Receiver<Job>) {
    let mut wait = Duration::ZERO;
    loop {
        match queue.recv_timeout(wait) {
            Ok(job) => {
                if let (Some((dir, name)), Some(notifier)) = (job.what, notifier.get()) {
                    // what the kernel does not know it need not forget
                    let _ = notifier.inval_entry(dir, &name);
                    let _ = notifier.inval_inode(dir, 0, 0);
                }
                (job.done)();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        wait = match fs.upgrade().map(|fs| fs.drop_deleted()) {
            Some(Ok(Left::More)) => Duration::ZERO,
            Some(Ok(Left::Used)) => AGAIN,
            Some(Err(buttery::Error::ReadOnly)) | Some(Ok(Left::Nothing)) | None => LONG,
            Some(Err(error)) => {
                tracing::error!("a deleted subvolume cannot be dropped: {error}");
                AGAIN
            }
        };
    }
}
