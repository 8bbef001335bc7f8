//! A device that remembers every write and flush, and one that shows what a crash may leave.

use buttery_device::{Device, MemDevice};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::sync::Arc;

/// What was done to a device.
#[derive(Clone, Debug)]
pub enum Event {
    Write { offset: u64, data: Vec<u8> },
    Flush,
}

/// A device in memory that notes what is done to it.
pub struct Recorder {
    inner: MemDevice,
    events: Mutex<Vec<Event>>,
}

impl Recorder {
    /// A recorder that begins with what another device holds.
    pub fn copy_of(device: &dyn Device) -> Recorder {
        let inner = copy(device);
        Recorder { inner, events: Mutex::default() }
    }

    /// The events since the last call.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock())
    }
}

/// A device in memory with the same contents.
pub fn copy(device: &dyn Device) -> MemDevice {
    let out = MemDevice::new("copy", device.len_bytes());
    let (mut at, mut buf) = (0, vec![0; 64 << 10]);
    while at < device.len_bytes() {
        let len = (device.len_bytes() - at).min(buf.len() as u64) as usize;
        device.read_at(at, &mut buf[..len]).expect("memory");
        if buf[..len].iter().any(|&b| b != 0) {
            out.write_at(at, &[IoSlice::new(&buf[..len])]).expect("memory");
        }
        at += len as u64;
    }
    out
}

impl Device for Recorder {
    fn name(&self) -> &str {
        "recorder"
    }

    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let mut events = self.events.lock();
        self.inner.write_at(offset, bufs)?;
        let data = bufs.iter().flat_map(|b| b.iter().copied()).collect();
        events.push(Event::Write { offset, data });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.events.lock().push(Event::Flush);
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Sectors that reach the medium whole or not at all.
pub const SECTOR: usize = 4096;

/// A device that keeps what is written to it to itself: what lies below stays.
pub struct Overlay {
    below: Arc<MemDevice>,
    sectors: Mutex<HashMap<u64, Vec<u8>>>,
}

impl Overlay {
    pub fn new(below: &Arc<MemDevice>) -> Overlay {
        Overlay { below: below.clone(), sectors: Mutex::default() }
    }
}

impl Device for Overlay {
    fn name(&self) -> &str {
        "after a crash"
    }

    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.below.read_at(offset, buf)?;
        let sectors = self.sectors.lock();
        let end = offset + buf.len() as u64;
        for number in offset / SECTOR as u64..end.div_ceil(SECTOR as u64) {
            if let Some(bytes) = sectors.get(&number) {
                let at = number * SECTOR as u64;
                let (from, to) = (at.max(offset), (at + SECTOR as u64).min(end));
                buf[(from - offset) as usize..(to - offset) as usize]
                    .copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let data: Vec<u8> = bufs.iter().flat_map(|b| b.iter().copied()).collect();
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (number, within) = (at / SECTOR as u64, at as usize % SECTOR);
            let take = (SECTOR - within).min(data.len() - done);
            let mut bytes = vec![0; SECTOR];
            self.read_at(number * SECTOR as u64, &mut bytes)?;
            bytes[within..within + take].copy_from_slice(&data[done..done + take]);
            self.sectors.lock().insert(number, bytes);
            done += take;
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
