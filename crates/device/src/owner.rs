//! Who may write: one owner at a time.
//!
//! A file is claimed by an open-file-description lock. A kernel mount holds no lock that could be seen, so every loop
//! device is asked for its backing file too. Block devices are claimed by the kernel itself (`O_EXCL`).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Takes the write lock of `file`, and looks that no loop device stands on it.
pub(crate) fn claim(file: &File, path: &Path) -> io::Result<()> {
    lock_exclusive(file)?;
    if let Some(device) = loop_device_of(file)? {
        let text = format!("{} is in use by {device}, a loop device of the kernel", path.display());
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
    }
    Ok(())
}

/// Gives the write lock of `file` back, for all descriptors that came of the same opening.
pub(crate) fn give_back(file: &File) {
    // a lock that cannot be given back ends with the last descriptor
    let _ = set_lock(file, libc::F_UNLCK);
}

fn set_lock(file: &File, kind: libc::c_int) -> io::Result<()> {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open for the call's duration, and `lock` is a valid flock structure.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn lock_exclusive(file: &File) -> io::Result<()> {
    let Err(error) = set_lock(file, libc::F_WRLCK) else { return Ok(()) };
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => {
            Err(io::Error::new(io::ErrorKind::ResourceBusy, "another program has it open for writing"))
        }
        _ => Err(error),
    }
}

/// The loop device that stands on this file, if any.
fn loop_device_of(file: &File) -> io::Result<Option<String>> {
    let meta = file.metadata()?;
    let Ok(blocks) = std::fs::read_dir("/sys/block") else {
        return Ok(None); // no sysfs: nothing that could be asked
    };
    for entry in blocks.flatten() {
        let Ok(backing) = std::fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        let Ok(other) = std::fs::metadata(backing.trim_end_matches('\n')) else { continue };
        if (other.dev(), other.ino()) == (meta.dev(), meta.ino()) {
            return Ok(Some(format!("/dev/{}", entry.file_name().to_string_lossy())));
        }
    }
    Ok(None)
}

/// Discards a range of a block device; one that cannot discard is left as it is.
pub(crate) fn discard_block_range(file: &File, offset: u64, len: u64) -> io::Result<()> {
    const BLKDISCARD: libc::c_ulong = 0x1277;
    let range = [offset, len];
    // SAFETY: BLKDISCARD reads two u64 from the pointer, which outlives the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD as _, range.as_ptr()) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOTTY) => Ok(()),
        _ => Err(error),
    }
}
