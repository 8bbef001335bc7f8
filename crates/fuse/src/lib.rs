//! The mount: translates the FUSE protocol, and holds no rule of a file system itself.
//!
//! [`serve`] mounts and serves until it is unmounted. `point` is the mount itself, `requests` has a method for each
//! request, `nodes` the numbers that the kernel knows files by, `caching` which handles the page cache serves, `errno` the one table from errors to what the kernel is
//! told.
#![forbid(unsafe_code)]

mod attr;
mod caching;
mod dropper;
mod errno;
mod ioctl;
pub mod lend;
mod nodes;
mod point;
mod process;
mod requests;
mod server;
mod subvolumes;
mod syncer;

pub use errno::errno;
pub use point::unmount;

use buttery::{Error, Filesystem};
use fuser::{Config, Session, SessionACL};
use parking_lot::Mutex;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};

/// The attribute of a mount's root that commits when it is read.
pub const CONTROL_SYNC: &str = "buttery.sync";
/// The attribute of a mount's root that says the server's process id.
pub const CONTROL_PID: &str = "buttery.pid";
/// The control attribute that answers with the counters of each device, a line for each; setting it sets them to zero.
pub const CONTROL_STATS: &str = "buttery.device_stats";

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// What the mount table shows as the source.
    pub source: String,
    pub read_only: bool,
    /// Other users may use it.
    pub allow_other: bool,
    /// The kernel checks permissions.
    pub default_permissions: bool,
    /// The kernel holds buffered writes back, and tells of errors when a file is closed or synced.
    pub writeback_cache: bool,
    /// Threads that serve.
    pub threads: usize,
    /// Flags for the kernel such as `nosuid`, by their names.
    pub flags: Vec<String>,
}

/// What ended a mount.
#[derive(Debug)]
pub enum ServeError {
    /// It could not be mounted, or the connection to the kernel broke.
    Fuse(io::Error),
    /// The last commit failed.
    Close(Error),
}

impl std::fmt::Display for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ServeError::Fuse(error) => write!(f, "FUSE: {error}"),
            ServeError::Close(error) => write!(f, "the last commit failed: {error}"),
        }
    }
}

impl std::error::Error for ServeError {}

/// Mounts a file system on a directory and serves it until it is unmounted, or SIGTERM or SIGINT comes. `ready` is
/// called once it is mounted.
pub fn serve(
    fs: Filesystem,
    mountpoint: &Path,
    options: &MountOptions,
    ready: impl FnOnce(),
) -> Result<(), ServeError> {
    let closed = Arc::new(Mutex::new(None));
    let mut server = server::Server::new(fs, options, closed.clone()).map_err(ServeError::Close)?;
    let (notifier, handles) = (server.notifier(), server.handles());
    let shared = server.shared();
    let (point, device) = point::Point::mount(mountpoint, options).map_err(ServeError::Fuse)?;
    server.place = point.place.clone();
    let config = config(options);
    let session = Session::from_fd(server, device, config.acl, config).map_err(ServeError::Fuse)?;
    let _ = notifier.set(session.notifier());
    let (events, queue) = channel();
    let signals = watch_signals(events.clone()).map_err(ServeError::Fuse)?;
    std::thread::spawn(move || events.send(Event::Ended(session.run())));
    ready();
    let result = loop {
        match queue.recv() {
            Ok(Event::Ended(result)) => break result,
            Ok(Event::Signal(number)) => {
                tracing::info!("signal {number}: committing and unmounting");
                if options.writeback_cache {
                    caching::hand_over(&notifier, &handles.written());
                }
                sync(&shared).map_err(ServeError::Close)?;
                if let Err(error) = unmount(mountpoint, false) {
                    // somebody still uses it: out of sight with it, and what they do from now on fails
                    tracing::warn!("unmounting: {error}; detaching instead");
                    point.detach().map_err(ServeError::Fuse)?;
                    return sync(&shared).map_err(ServeError::Close);
                }
            }
            Err(_) => break Err(io::Error::other("the server is gone")),
        }
    };
    drop(point);
    signals.close();
    match closed.lock().take() {
        Some(Err(error)) => return Err(ServeError::Close(error)),
        Some(Ok(())) => {}
        None => return Err(ServeError::Fuse(io::Error::other("the file system was not closed"))),
    }
    result.map_err(ServeError::Fuse)
}

/// What the thread that mounted waits for.
enum Event {
    /// It was unmounted, or the connection broke.
    Ended(io::Result<()>),
    /// SIGTERM, SIGINT or the like.
    Signal(i32),
}

fn watch_signals(events: Sender<Event>) -> io::Result<signal_hook::iterator::Handle> {
    let mut signals = signal_hook::iterator::Signals::new(signal_hook::consts::TERM_SIGNALS)?;
    let handle = signals.handle();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                break;
            }
        }
    });
    Ok(handle)
}

fn sync(fs: &Weak<Filesystem>) -> Result<(), Error> {
    fs.upgrade().map_or(Ok(()), |fs| fs.sync())
}

fn config(options: &MountOptions) -> Config {
    let mut config = Config::default();
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = can_clone();
    config
}

/// Whether each thread may have a descriptor of its own: an ordinary user may not open the device everywhere.
fn can_clone() -> bool {
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok()
}
