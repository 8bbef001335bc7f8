//! The small [`Device`] trait, and what implements it: a file or block device ([`FileDevice`]) and memory
//! ([`MemDevice`]).
//!
//! A device is an array of bytes that can be flushed. It knows nothing of what is written to it.

pub mod call;
mod file;
mod memory;
pub mod owner;

pub use file::{Access, FileDevice, Window};
pub use memory::MemDevice;
use std::io::{self, IoSlice};

/// An array of bytes that survives a crash once it was flushed. Calls may come from many threads at once; writes of
/// disjoint ranges do not disturb each other.
pub trait Device: Send + Sync {
    /// How messages name it.
    fn name(&self) -> &str;

    /// Its size in bytes.
    fn len_bytes(&self) -> u64;

    /// Fills `buf` from `offset` bytes on. A read beyond the end is an `UnexpectedEof` error.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes the buffers one after the other from `offset` on. A write beyond the end is an error.
    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()>;

    /// Returns when all that was written before is on the medium.
    fn flush(&self) -> io::Result<()>;

    /// Says that a range's contents are no longer needed. What is read there afterwards is undefined. A device that
    /// has no use for it does nothing.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Whether it has to move to where it reads and writes.
    fn is_rotational(&self) -> bool {
        false
    }

    /// Whether it takes writes only in the order of their places, zone by zone.
    fn is_zoned(&self) -> bool {
        false
    }
}

/// `offset..offset + len` must lie inside `size`.
fn check_range(size: u64, offset: u64, len: usize) -> io::Result<()> {
    match offset.checked_add(len as u64) {
        Some(end) if end <= size => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "beyond the end of the device")),
    }
}
