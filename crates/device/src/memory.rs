//! A device in memory, sparse.

use crate::{Device, check_range};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::io::{self, IoSlice};

const PAGE: usize = 64 << 10;
/// Pages are locked in so many groups, so that writers of different places work side by side.
const SHARDS: usize = 64;

/// A device in memory. Pages that were never written read as zeros and take no room.
pub struct MemDevice {
    name: String,
    len: u64,
    shards: [RwLock<HashMap<u64, Box<[u8]>>>; SHARDS],
}

impl MemDevice {
    /// An empty device of `len` bytes.
    pub fn new(name: &str, len: u64) -> MemDevice {
        MemDevice { name: name.to_owned(), len, shards: std::array::from_fn(|_| RwLock::default()) }
    }

    /// Calls `f` with page number, range in the page and range in the buffer for each page that a range touches.
    fn shard(&self, page: u64) -> &RwLock<HashMap<u64, Box<[u8]>>> {
        &self.shards[page as usize % SHARDS]
    }

    fn for_pages(
        offset: u64,
        len: usize,
        mut f: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>),
    ) {
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let start = (at % PAGE as u64) as usize;
            let take = (PAGE - start).min(len - done);
            f(at / PAGE as u64, start..start + take, done..done + take);
            done += take;
        }
    }
}

impl Device for MemDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_bytes(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.len, offset, buf.len())?;
        Self::for_pages(offset, buf.len(), |page, from, to| match self.shard(page).read().get(&page) {
            Some(bytes) => buf[to].copy_from_slice(&bytes[from]),
            None => buf[to].fill(0),
        });
        Ok(())
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let mut at = offset;
        for buf in bufs {
            check_range(self.len, at, buf.len())?;
            Self::for_pages(at, buf.len(), |page, to, from| {
                let mut pages = self.shard(page).write();
                let bytes = pages.entry(page).or_insert_with(|| vec![0; PAGE].into_boxed_slice());
                bytes[to].copy_from_slice(&buf[from]);
            });
            at += buf.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_was_written_across_pages() {
        let dev = MemDevice::new("m", 1 << 20);
        let data: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        dev.write_at(60_000, &[IoSlice::new(&data[..1000]), IoSlice::new(&data[1000..])]).unwrap();
        let mut got = vec![9; 200_002];
        dev.read_at(59_999, &mut got).unwrap();
        assert_eq!(got[0], 0);
        assert_eq!(got[1..200_001], data);
        assert!(dev.read_at((1 << 20) - 1, &mut [0, 0]).is_err());
        assert!(dev.read_at(u64::MAX, &mut [0]).is_err());
    }
}
