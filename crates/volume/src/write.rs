//! Writing: every mirror, then flush; superblocks last.
//!
//! A write has succeeded when every copy has, or, for profiles that keep copies on several devices, when one has that
//! is on a device that missed nothing before. The devices that failed then count as *stale* (see `standing`).

use crate::{Chunk, Error, Fault, Place, Volume};
use buttery_device::Device;
use buttery_disk::chunk::DevItem;
use buttery_disk::superblock::{OFFSETS, SIZE, Superblock};
use buttery_disk::zerocopy::IntoBytes;
use std::io::IoSlice;
use std::sync::Arc;

impl Volume {
    /// Writes a range to every mirror. It may reach over chunks.
    pub fn write(&self, logical: u64, data: &[u8]) -> Result<(), Error> {
        let (mut at, mut done) = (logical, 0);
        while done < data.len() {
            let chunk = self.chunk_of(at, 1)?;
            // all mirrors are cut at the same places
            let take = (chunk.place(at, 0).len as usize).min(data.len() - done);
            self.write_copies(&chunk, at, &[IoSlice::new(&data[done..done + take])], take)?;
            at += take as u64;
            done += take;
        }
        Ok(())
    }

    /// Writes buffers, one after the other, to every mirror. The range must lie in one chunk.
    pub fn write_vectored(&self, logical: u64, bufs: &[IoSlice<'_>]) -> Result<(), Error> {
        let len: usize = bufs.iter().map(|b| b.len()).sum();
        let chunk = self.chunk_of(logical, len as u64)?;
        if chunk.place(logical, 0).len < len as u64 {
            let joined: Vec<u8> = bufs.iter().flat_map(|b| b.iter().copied()).collect();
            return self.write(logical, &joined);
        }
        self.write_copies(&chunk, logical, bufs, len)
    }

    /// Writes what lies together in every copy.
    fn write_copies(
        &self,
        chunk: &Chunk,
        logical: u64,
        bufs: &[IoSlice<'_>],
        len: usize,
    ) -> Result<(), Error> {
        let (mut written, mut current) = (0, false);
        let (mut failed, mut error) = (Vec::new(), None);
        for mirror in 0..chunk.copies() {
            let place = chunk.place(logical, mirror);
            match self.write_place(place, bufs, len) {
                Ok(()) => {
                    written += 1;
                    current |= !self.is_stale(place.devid);
                }
                Err(e) => {
                    failed.push(place.devid);
                    error = error.or(Some(e));
                }
            }
        }
        let enough = chunk.profile().is_some_and(|profile| profile.is_mirrored()) && current;
        match error {
            Some(error) if written < chunk.copies() && !enough => Err(error),
            _ => {
                failed.into_iter().for_each(|devid| self.set_stale(devid));
                Ok(())
            }
        }
    }

    pub(crate) fn write_place(&self, place: Place, bufs: &[IoSlice<'_>], len: usize) -> Result<(), Error> {
        let device = self.device(place.devid)?;
        let result = device.write_at(place.physical, bufs);
        self.counted(place.devid, Fault::Write, result, ("write", place.physical, len))
    }

    /// The device of this number, unless it is missing.
    pub(crate) fn device(&self, devid: u64) -> Result<&Arc<dyn Device>, Error> {
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
                done += take;
                let Some(device) = self.devices.get(&place.devid) else { continue };
                device.discard(place.physical, take).map_err(|source| Error::Device {
                    device: device.name().to_owned(),
                    op: "discard",
                    offset: place.physical,
                    len: take as usize,
                    source,
                })?;
            }
        }
        Ok(())
    }

    /// Flushes every device. One that fails is stale from then on, if the others have everything.
    pub fn flush(&self) -> Result<(), Error> {
        for (&devid, device) in &self.devices {
            let result = self.counted(devid, Fault::Flush, device.flush(), ("flush", 0, 0));
            self.or_without(devid, result)?;
        }
        Ok(())
    }

    /// A device that failed is done without, where that can be.
    fn or_without(&self, devid: u64, result: Result<(), Error>) -> Result<(), Error> {
        match result {
            Err(_) if self.can_do_without(devid) => {
                self.set_stale(devid);
                Ok(())
            }
            result => result,
        }
    }

    /// Writes a superblock to all devices that missed nothing, each with its own device item.
    pub fn write_supers(&self, sb: &Superblock, items: &[DevItem]) -> Result<(), Error> {
        let mut written = 0;
        for (&devid, device) in &self.devices {
            let item = items.iter().find(|item| item.devid.get() == devid);
            let Some(item) = item.filter(|_| !self.is_stale(devid)) else { continue };
            let mut own = sb.clone();
            own.dev_item = *item;
            let result = self.write_super(devid, &**device, &own);
            written += usize::from(result.is_ok());
            self.or_without(devid, result)?;
        }
        match written {
            0 => Err(Error::Inconsistent("no device could take the superblock".into())),
            _ => Ok(()),
        }
    }

    /// Writes a superblock to all its places on one device, each with its own address and checksum.
    fn write_super(&self, devid: u64, device: &dyn Device, sb: &Superblock) -> Result<(), Error> {
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
