//! The mount: translates the FUSE protocol, and holds no rule of a file system itself.
//!
//! [`serve`] mounts and serves until it is unmounted. `point` is the mount itself, `server` has a method for each
//! request, `nodes` the numbers that the kernel knows files by, `errno` the one table from errors to what the kernel is told.
#![forbid(unsafe_code)]

mod attr;
mod errno;
mod nodes;
mod point;
mod server;
mod syncer;

pub use errno::errno;
pub use point::unmount;

use buttery::{Error, Filesystem};
use fuser::{Config, Session, SessionACL};
use parking_lot::Mutex;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The attribute of a mount's root that commits when it is read.
pub const CONTROL_SYNC: &str = "buttery.sync";
/// The attribute of a mount's root that says the server's process id.
pub const CONTROL_PID: &str = "buttery.pid";

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
    let server = server::Server::new(fs, closed.clone()).map_err(ServeError::Close)?;
    let (point, device) = point::Point::mount(mountpoint, options).map_err(ServeError::Fuse)?;
    let config = config(options);
    let session = Session::from_fd(server, device, config.acl, config).map_err(ServeError::Fuse)?;
    let signals = signal_hook::consts::TERM_SIGNALS;
    let mut signals = signal_hook::iterator::Signals::new(signals).map_err(ServeError::Fuse)?;
    let handle = signals.handle();
    let dir = mountpoint.to_path_buf();
    let waiter = std::thread::spawn(move || {
        for signal in signals.forever() {
            tracing::info!("signal {signal}: unmounting");
            if let Err(error) = leave(&dir) {
                tracing::error!("unmounting: {error}");
            }
        }
    });
    ready();
    let result = session.run();
    drop(point);
    handle.close();
    let _ = waiter.join();
    match closed.lock().take() {
        Some(Err(error)) => return Err(ServeError::Close(error)),
        Some(Ok(())) => {}
        None => return Err(ServeError::Fuse(io::Error::other("the file system was not closed"))),
    }
    result.map_err(ServeError::Fuse)
}

/// Commits and unmounts. Whoever has files open may go on, and the server ends after them.
fn leave(dir: &Path) -> io::Result<()> {
    let committed = rustix::fs::getxattr(dir, CONTROL_SYNC, &mut [0; 2]);
    unmount(dir, true)?;
    committed?;
    Ok(())
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
