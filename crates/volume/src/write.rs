//! Writing: every mirror, then flush; superblocks last.

use crate::{Chunk, Error, Fault, Volume};
use buttery_disk::superblock::{OFFSETS, SIZE, Superblock};
use buttery_disk::zerocopy::IntoBytes;
use std::io::IoSlice;

impl Volume {
    /// Writes a range to every mirror. It may reach over chunks.
    pub fn write(&self, logical: u64, data: &[u8]) -> Result<(), Error> {
        let (mut at, mut done) = (logical, 0);
        while done < data.len() {
            let chunk = self.chunk_of(at, 1)?;
            let take = ((chunk.end() - at) as usize).min(data.len() - done);
            for mirror in 0..chunk.copies() {
                self.write_mirror(&chunk, at, &data[done..done + take], mirror)?;
            }
            at += take as u64;
            done += take;
        }
        Ok(())
    }

    /// Writes buffers, one after the other, to every mirror. The range must lie in one chunk.
    pub fn write_vectored(&self, logical: u64, bufs: &[IoSlice<'_>]) -> Result<(), Error> {
        let len: usize = bufs.iter().map(|b| b.len()).sum();
        let chunk = self.chunk_of(logical, len as u64)?;
        for mirror in 0..chunk.copies() {
            let place = chunk.place(logical, mirror);
            if place.len < len as u64 {
                let joined: Vec<u8> = bufs.iter().flat_map(|b| b.iter().copied()).collect();
                self.write_mirror(&chunk, logical, &joined, mirror)?;
                continue;
            }
            let device = self.device(place.devid)?;
            let result = device.write_at(place.physical, bufs);
            self.counted(place.devid, Fault::Write, result, ("write", place.physical, len))?;
        }
        Ok(())
    }

    pub(crate) fn write_mirror(
        &self,
        chunk: &Chunk,
        logical: u64,
        data: &[u8],
        mirror: usize,
    ) -> Result<(), Error> {
        let mut done = 0;
        while done < data.len() {
            let place = chunk.place(logical + done as u64, mirror);
            let take = (place.len as usize).min(data.len() - done);
            let device = self.device(place.devid)?;
            let buf = [IoSlice::new(&data[done..done + take])];
            let result = device.write_at(place.physical, &buf);
            self.counted(place.devid, Fault::Write, result, ("write", place.physical, take))?;
            done += take;
        }
        Ok(())
    }

    fn device(&self, devid: u64) -> Result<&std::sync::Arc<dyn buttery_device::Device>, Error> {
        self.devices.get(&devid).ok_or_else(|| Error::Inconsistent(format!("device {devid} is missing")))
    }

    /// Says of a range that its contents are no longer needed, on every mirror.
    pub fn discard(&self, logical: u64, len: u64) -> Result<(), Error> {
        let chunk = self.chunk_of(logical, len)?;
        for mirror in 0..chunk.copies() {
            let mut done = 0;
            while done < len {
                let place = chunk.place(logical + done, mirror);
                let take = place.len.min(len - done);
                let device = self.device(place.devid)?;
                device.discard(place.physical, take).map_err(|source| Error::Device {
                    device: device.name().to_owned(),
                    op: "discard",
                    offset: place.physical,
                    len: take as usize,
                    source,
                })?;
                done += take;
            }
        }
        Ok(())
    }

    /// Flushes every device.
    pub fn flush(&self) -> Result<(), Error> {
        for (&devid, device) in &self.devices {
            self.counted(devid, Fault::Flush, device.flush(), ("flush", 0, 0))?;
        }
        Ok(())
    }

    /// Writes a superblock to all its places on one device, each with its own address and checksum.
    pub fn write_super(&self, devid: u64, sb: &Superblock) -> Result<(), Error> {
        let device = self.device(devid)?;
        for offset in OFFSETS.into_iter().filter(|o| o + SIZE as u64 <= device.len_bytes()) {
            let mut copy = sb.clone();
            copy.bytenr = offset.into();
            copy.csum = self.csum.sum(&copy.as_bytes()[32..]);
            let result = device.write_at(offset, &[IoSlice::new(copy.as_bytes())]);
            self.counted(devid, Fault::Write, result, ("write", offset, SIZE))?;
        }
        Ok(())
    }
}
