//! Commits asked for by several at once are one commit, and keep no thread of the server busy.

use crate::{caching, errno};
use buttery::Filesystem;
use fuser::{INodeNo, Notifier};
use parking_lot::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;

/// What to do with a commit's outcome.
pub type Done = Box<dyn FnOnce(Result<(), fuser::Errno>) + Send>;

struct Job {
    /// Files of which the kernel is to hand over what it holds back, before the commit.
    held_back: Vec<INodeNo>,
    done: Done,
}

/// The thread that commits.
pub struct Syncer {
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Syncer {
    pub fn start(fs: &Arc<Filesystem>, notifier: &Arc<OnceLock<Notifier>>) -> Syncer {
        let (jobs, queue) = channel();
        let (fs, notifier) = (Arc::downgrade(fs), notifier.clone());
        let thread = std::thread::spawn(move || run(&fs, &notifier, &queue));
        Syncer { jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)) }
    }

    /// Calls `done` after a commit that began after this call.
    pub fn commit(&self, done: Done) {
        self.commit_all(Vec::new(), done);
    }

    /// The same, after the kernel has handed over what it holds back of these files.
    pub fn commit_all(&self, held_back: Vec<INodeNo>, done: Done) {
        if let Some(jobs) = &*self.jobs.lock()
            && let Err(refused) = jobs.send(Job { held_back, done })
        {
            (refused.0.done)(Err(fuser::Errno::EIO));
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
    while let Ok(first) = queue.recv() {
        let mut waiting = vec![first];
        waiting.extend(queue.try_iter());
        waiting.iter().for_each(|job| caching::hand_over(notifier, &job.held_back));
        let result = match fs.upgrade() {
            Some(fs) => fs.sync().map_err(|e| match e {
                buttery::Error::Aborted => fuser::Errno::EIO,
                other => errno::reply(&other),
            }),
            None => Err(fuser::Errno::EIO),
        };
        for job in waiting {
            (job.done)(result);
        }
    }
}
