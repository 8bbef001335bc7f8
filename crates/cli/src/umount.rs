//! `buttery umount` and `buttery sync`: what a plain umount does not give: the commit's status, and a return only when
//! the image is released.

use anyhow::{Context, Result, bail};
use buttery_fuse::{CONTROL_PID, CONTROL_SYNC};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// The directory on which it is mounted
    dir: PathBuf,
}

/// Commits.
pub fn sync(args: &Args) -> Result<ExitCode> {
    server(&args.dir)?;
    commit(&args.dir)?;
    Ok(ExitCode::SUCCESS)
}

/// Commits, unmounts, and waits for the server's end.
pub fn run(args: &Args) -> Result<ExitCode> {
    // not canonicalize(): that fails where the server is gone
    let dir = std::path::absolute(&args.dir).with_context(|| args.dir.display().to_string())?;
    let pid = match server(&dir) {
        Err(error) if is_dead(&error) => {
            unmount(&dir)?;
            bail!("{}: the server was gone; what was changed since its last commit is lost", dir.display());
        }
        pid => pid?,
    };
    let server = pidfd_open(pid, PidfdFlags::empty()).context("the server's process")?;
    let committed = commit(&dir);
    unmount(&dir)?;
    loop {
        let mut fds = [PollFd::new(&server, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error).context("waiting for the server"),
        }
    }
    committed?;
    Ok(ExitCode::SUCCESS)
}

/// The process that serves a mount.
fn server(dir: &Path) -> Result<Pid> {
    let context = || format!("{}: is no mount of buttery", dir.display());
    let Some(text) = xattr::get(dir, CONTROL_PID).with_context(context)? else { bail!(context()) };
    let number: i32 = String::from_utf8_lossy(&text).parse().with_context(context)?;
    Pid::from_raw(number).with_context(context)
}

fn commit(dir: &Path) -> Result<()> {
    xattr::get(dir, CONTROL_SYNC).with_context(|| format!("{}: the commit failed", dir.display()))?;
    Ok(())
}

/// Whether a mount is left of a server that has ended.
fn is_dead(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<std::io::Error>();
    cause.and_then(|e| e.raw_os_error()) == Some(rustix::io::Errno::NOTCONN.raw_os_error())
}

fn unmount(dir: &Path) -> Result<()> {
    buttery_fuse::unmount(dir, false).with_context(|| format!("unmounting {}", dir.display()))
}
