//! Mounting and unmounting: root by the system call, everybody else through fusermount3.
//!
//! The protocol's library could mount too. But it calls the type `fuse` where root mounts, so that the mount table does
//! not tell whose mount it is, and it cannot unmount what somebody still uses.

use crate::MountOptions;
use crate::process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags, IoSliceMut, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};
use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FUSERMOUNT: &str = "fusermount3";
/// Where fusermount3 looks for the socket over which it sends the device.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

/// A mount that this process serves; unmounted on drop if it still is one.
pub(crate) struct Point {
    dir: PathBuf,
    /// The mount's device, as `mountinfo` has it.
    pub place: Option<String>,
    device: OwnedFd,
}

impl Point {
    /// Mounts on a directory. The other descriptor is the server's.
    pub fn mount(dir: &Path, options: &MountOptions) -> io::Result<(Point, OwnedFd)> {
        // afterwards the server would be asked, who does not serve yet
        let real = std::fs::canonicalize(dir)?;
        let device = if rustix::process::geteuid().is_root() {
            mount_as_root(dir, options)?
        } else {
            mount_as_user(dir, options)?
        };
        let kept = fcntl_dupfd_cloexec(&device, 3)?;
        let place = process::device_at(&real);
        Ok((Point { dir: dir.to_path_buf(), place, device: kept }, device))
    }

    /// Takes a mount that is in use out of the tree of directories.
    pub fn detach(self) -> io::Result<()> {
        unmount(&self.dir, true)?;
        // it lives on, but no longer here: what may stand here now is not ours to unmount
        std::mem::forget(self);
        Ok(())
    }

    /// Whether the kernel still has it.
    fn lives(&self) -> bool {
        let mut fds = [PollFd::new(&self.device, PollFlags::IN)];
        let polled = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        polled.is_ok() && !fds[0].revents().contains(PollFlags::ERR)
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        if self.lives()
            && let Err(error) = unmount(&self.dir, true)
        {
            tracing::error!("unmounting {}: {error}", self.dir.display());
        }
    }
}

fn mount_as_root(dir: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let mode = rustix::fs::stat(dir)?.st_mode;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data = format!("fd={},rootmode={mode:o},user_id={uid},group_id={gid}", device.as_raw_fd());
    for (on, word) in kernel_words(options) {
        if on {
            data.push(',');
            data.push_str(word);
        }
    }
    let has = |flag: &str| options.flags.iter().any(|f| f == flag);
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NODEV, !has("dev"));
    flags.set(MountFlags::NOSUID, !has("suid"));
    flags.set(MountFlags::NOEXEC, has("noexec"));
    let data = CString::new(data)?;
    rustix::mount::mount(options.source.as_str(), dir, "fuse.buttery", flags, data.as_c_str())?;
    Ok(device)
}

fn kernel_words(options: &MountOptions) -> [(bool, &'static str); 2] {
    [(options.default_permissions, "default_permissions"), (options.allow_other, "allow_other")]
}

fn mount_as_user(dir: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut words = format!("fsname={source},subtype=buttery");
    let noexec = options.flags.iter().any(|f| f == "noexec");
    for (on, word) in [(options.read_only, "ro"), (noexec, "noexec")].into_iter().chain(kernel_words(options))
    {
        if on {
            words.push(',');
            words.push_str(word);
        }
    }
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)?;
    fcntl_setfd(&ours, FdFlags::CLOEXEC)?;
    let mut command = Command::new(FUSERMOUNT);
    command.arg("-o").arg(words).arg("--").arg(dir).env(SOCKET_VARIABLE, theirs.as_raw_fd().to_string());
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let child = child.map_err(|e| io::Error::new(e.kind(), format!("{FUSERMOUNT}: {e}")))?;
    drop(theirs);
    let device = receive(&ours);
    let output = child.wait_with_output()?;
    match device? {
        Some(device) => Ok(device),
        None => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// The device that fusermount3 sends, or nothing if it has failed.
fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        let mut data = [IoSliceMut::new(&mut byte)];
        match recvmsg(socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    }))
}

/// Unmounts. `lazily`: also if somebody uses it; the server then ends after the last of them.
pub fn unmount(dir: &Path, lazily: bool) -> io::Result<()> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(dir, flags) {
        Ok(()) => return Ok(()),
        Err(Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let mut command = Command::new(FUSERMOUNT);
    command.arg("-u").args(lazily.then_some("-z")).arg("--").arg(dir);
    let output = command.output().map_err(|e| io::Error::new(e.kind(), format!("{FUSERMOUNT}: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let kind = if said.contains("busy") { ErrorKind::ResourceBusy } else { ErrorKind::Other };
    Err(io::Error::new(kind, said))
}
