//! Deduplication on a mount. The kernel's FUSE does not pass FIDEDUPERANGE on, so it is asked for by two extended
//! attributes of user space: who may read a file gets a ticket for it from one, and who may write another file hands the
//! ticket in with the other. So the kernel checks both permissions.

use crate::errno;
use buttery::{Error, FileId, Filesystem, Result, uuid};
use fuser::{Errno, ReplyEmpty, ReplyXattr};
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Read from a file: a ticket of [`TICKET_LEN`] bytes, by which its extents may be shared with others.
pub const CONTROL_LEND: &str = "user.buttery.lend";
/// Written to a file: a [`Request`]. `EILSEQ` means that the files differ.
pub const CONTROL_DEDUPE: &str = "user.buttery.dedupe";
/// Bytes of a ticket.
pub const TICKET_LEN: usize = 16;
/// How many tickets are good at a time; the oldest goes.
const TICKETS_MAX: usize = 256;

/// What is to be shared, as FIDEDUPERANGE has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Of the file whose extents are kept.
    pub ticket: [u8; TICKET_LEN],
    /// Where the range begins there, in bytes.
    pub offset: u64,
    /// Where it begins in the file that is written to.
    pub to_offset: u64,
    /// Its length; 0 means up to the end.
    pub len: u64,
}

impl Request {
    /// The attribute's value: the ticket, then the numbers, little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        let numbers = [self.offset, self.to_offset, self.len].map(u64::to_le_bytes);
        [&self.ticket[..], &numbers.concat()].concat()
    }

    /// Reads one; `None` if it has another length.
    pub fn parse(bytes: &[u8]) -> Option<Request> {
        let (ticket, numbers) = bytes.split_first_chunk()?;
        let (numbers, rest) = numbers.as_chunks::<8>();
        match (numbers, rest) {
            ([offset, to_offset, len], []) => {
                let [offset, to_offset, len] = [offset, to_offset, len].map(|n| u64::from_le_bytes(*n));
                Some(Request { ticket: *ticket, offset, to_offset, len })
            }
            _ => None,
        }
    }
}

/// The tickets that are out.
#[derive(Default)]
pub(crate) struct Lent(Mutex<VecDeque<([u8; TICKET_LEN], FileId)>>);

impl Lent {
    /// Answers who reads [`CONTROL_LEND`] of a file; its size is asked for first.
    pub fn answer_lend(&self, id: FileId, size: u32, reply: ReplyXattr) {
        match size as usize {
            0 => reply.size(TICKET_LEN as u32),
            1..TICKET_LEN => reply.error(Errno::ERANGE),
            _ => match self.lend(id) {
                Ok(ticket) => reply.data(&ticket),
                Err(error) => reply.error(error.into()),
            },
        }
    }

    /// Answers who writes [`CONTROL_DEDUPE`] to a file.
    pub fn answer_dedupe(&self, fs: &Filesystem, to: FileId, value: &[u8], reply: ReplyEmpty) {
        match self.dedupe(fs, to, value) {
            Ok(true) => reply.ok(),
            Ok(false) => reply.error(Errno::EILSEQ),
            Err(error) => reply.error(errno::reply(&error)),
        }
    }

    /// A ticket for a file.
    fn lend(&self, id: FileId) -> std::io::Result<[u8; TICKET_LEN]> {
        let ticket = uuid::random()?;
        let mut out = self.0.lock();
        if out.len() >= TICKETS_MAX {
            out.pop_front();
        }
        out.push_back((ticket, id));
        Ok(ticket)
    }

    /// Shares extents of the ticket's file with `to`. Answers whether both hold the same bytes there.
    fn dedupe(&self, fs: &Filesystem, to: FileId, value: &[u8]) -> Result<bool> {
        let request = Request::parse(value).ok_or(Error::Invalid)?;
        let from = self.0.lock().iter().find(|(ticket, _)| *ticket == request.ticket).map(|(_, id)| *id);
        let from = from.ok_or(Error::NotPermitted)?;
        fs.dedupe_range(from, request.offset, to, request.to_offset, request.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use buttery_disk::TreeId;

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let request = Request { ticket: [7; TICKET_LEN], offset: 1, to_offset: 1 << 40, len: u64::MAX };
        let bytes = request.to_bytes();
        assert_eq!(Request::parse(&bytes), Some(request));
        assert_eq!(Request::parse(&bytes[1..]), None);
        assert_eq!(Request::parse(&[&bytes[..], &[0]].concat()), None);
        assert_eq!(Request::parse(b""), None);
    }

    #[test]
    fn tickets_differ_and_the_oldest_goes() {
        let lent = Lent::default();
        let id = FileId { tree: TreeId(5), ino: 257 };
        let tickets: Vec<_> = (0..=TICKETS_MAX).map(|_| lent.lend(id).expect("a ticket")).collect();
        let out = lent.0.lock();
        assert_eq!(out.len(), TICKETS_MAX);
        assert!(out.iter().all(|(ticket, _)| *ticket != tickets[0]));
        assert_ne!(tickets[1], tickets[2]);
    }
}
