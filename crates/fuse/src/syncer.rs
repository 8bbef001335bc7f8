//! Commits asked for by several at once are one commit, and keep no thread of the server busy.

use crate::errno;
use buttery::Filesystem;
use parking_lot::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// What to do with a commit's outcome.
pub type Done = Box<dyn FnOnce(Result<(), fuser::Errno>) + Send>;

/// The thread that commits.
pub struct Syncer {
    jobs: Mutex<Option<Sender<Done>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Syncer {
    pub fn start(fs: &Arc<Filesystem>) -> Syncer {
        let (jobs, queue) = channel();
        let fs = Arc::downgrade(fs);
        let thread = std::thread::spawn(move || run(&fs, &queue));
        Syncer { jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)) }
    }

    /// Calls `done` after a commit that began after this call.
    pub fn commit(&self, done: Done) {
        if let Some(jobs) = &*self.jobs.lock()
            && let Err(refused) = jobs.send(done)
        {
            (refused.0)(Err(fuser::Errno::EIO));
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

fn run(fs: &Weak<Filesystem>, queue: &Receiver<Done>) {
    while let Ok(first) = queue.recv() {
        let mut waiting = vec![first];
        waiting.extend(queue.try_iter());
        let result = match fs.upgrade() {
            Some(fs) => fs.sync().map_err(|e| match e {
                buttery::Error::Aborted => fuser::Errno::EIO,
                other => errno::reply(&other),
            }),
            None => Err(fuser::Errno::EIO),
        };
        for done in waiting {
            done(result);
        }
    }
}
