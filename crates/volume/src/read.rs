//! Reading: one copy after the other, until one can be trusted.

use crate::{Attempt, BlockError, Chunk, Error, Fault, Unfit, Volume};
use buttery_disk::Node;
use buttery_disk::check::{Context, Expect, check_block};
use std::io::IoSlice;
use std::sync::atomic::Ordering;

impl Volume {
    /// Reads a tree block and checks it in every way; tries each mirror, and on a writable volume mends the bad ones.
    pub fn read_block(&self, expect: &Expect) -> Result<Vec<u8>, Error> {
        let mut buf = vec![0; self.ctx.nodesize as usize];
        if !expect.bytenr.is_multiple_of(self.ctx.sectorsize as u64) {
            let rule = "the address must be aligned to the sector size".to_string();
            let tries = vec![Attempt { device: "any device".into(), physical: 0, rule }];
            return Err(Box::new(BlockError { bytenr: expect.bytenr, tries }).into());
        }
        self.read_verified(expect.bytenr, &mut buf, &|block| self.check(block, expect))?;
        Ok(buf)
    }

    /// One copy of a tree block, if it is sound. Nothing is counted or mended.
    pub(crate) fn sound_copy(&self, chunk: &Chunk, expect: &Expect, mirror: usize) -> Option<Vec<u8>> {
        let mut buf = vec![0; self.ctx.nodesize as usize];
        let place = chunk.place(expect.bytenr, mirror);
        if place.len < buf.len() as u64 {
            return None;
        }
        self.devices.get(&place.devid)?.read_at(place.physical, &mut buf).ok()?;
        self.check(&buf, expect).is_ok().then_some(buf)
    }

    fn check(&self, block: &[u8], expect: &Expect) -> Result<(), Unfit> {
        if !self.csum.verify(&block[32..], &block[..self.csum.size()]) {
            return Err(Unfit::corrupt(format!("its {} checksum is wrong", self.csum.name())));
        }
        let header = Node::new(block).header();
        let fsid = header.fsid;
        let generation = self.generation.load(Ordering::Acquire);
        let is_old = expect.generation.is_some_and(|generation| generation != header.generation.get());
        let fault = if is_old { Fault::Generation } else { Fault::Corruption };
        let fsid = if self.fsids.contains(&fsid) { fsid } else { self.ctx.fsid };
        check_block(block, &Context { fsid, generation, ..self.ctx }, expect)
            .map_err(|v| Unfit { fault, rule: v.to_string() })
    }

    /// Fills `buf` with the first copy that `verify` accepts. Copies found bad before it are overwritten with it on a
    /// writable volume; that a repair fails is no error of the read.
    pub fn read_verified(
        &self,
        logical: u64,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> Result<(), Unfit>,
    ) -> Result<(), Error> {
        let chunk = self.chunk_of(logical, buf.len() as u64)?;
        let (mut tries, mut unfit_mirrors) = (Vec::new(), Vec::new());
        for mirror in self.order(&chunk, logical) {
            let rule = match self.read_mirror(&chunk, logical, buf, mirror) {
                Ok(()) => match verify(buf) {
                    Ok(()) => {
                        if self.writable {
                            self.repair(&chunk, logical, buf, &unfit_mirrors);
                        }
                        return Ok(());
                    }
                    Err(unfit) => {
                        self.count(chunk.place(logical, mirror).devid, unfit.fault);
                        unfit.rule
                    }
                },
                Err(error) => error.to_string(),
            };
            let place = chunk.place(logical, mirror);
            unfit_mirrors.push(mirror);
            tries.push(Attempt { device: self.device_name(place.devid), physical: place.physical, rule });
        }
        Err(Box::new(BlockError { bytenr: logical, tries }).into())
    }

    /// Fills `buf` from the first device that can be read, with nothing to verify it by.
    pub fn read_data(&self, logical: u64, buf: &mut [u8]) -> Result<(), Error> {
        let (mut at, mut done) = (logical, 0);
        while done < buf.len() {
            let chunk = self.chunk_of(at, 1)?;
            // in a striped profile, each stripe has its own devices to choose from
            let take = (chunk.place(at, 0).len as usize).min(buf.len() - done);
            self.read_verified(at, &mut buf[done..done + take], &|_| Ok(()))?;
            at += take as u64;
            done += take;
        }
        Ok(())
    }

    /// Overwrites copies that are no good. That one cannot be is no error: it is counted.
    fn repair(&self, chunk: &Chunk, logical: u64, good: &[u8], mirrors: &[usize]) {
        for &mirror in mirrors {
            let mut done = 0;
            while done < good.len() {
                let place = chunk.place(logical + done as u64, mirror);
                let take = (place.len as usize).min(good.len() - done);
                let _ = self.write_place(place, &[IoSlice::new(&good[done..done + take])], take);
                done += take;
            }
        }
    }

    /// The chunk that holds the whole range.
    pub(crate) fn chunk_of(&self, logical: u64, len: u64) -> Result<std::sync::Arc<Chunk>, Error> {
        let chunk = self.chunks.find(logical).ok_or(Error::NoChunk { logical, len })?;
        match logical.checked_add(len) {
            Some(end) if end <= chunk.end() => Ok(chunk),
            _ => Err(Error::NoChunk { logical, len }),
        }
    }

    fn read_mirror(&self, chunk: &Chunk, logical: u64, buf: &mut [u8], mirror: usize) -> Result<(), Error> {
        let mut done = 0;
        while done < buf.len() {
            let place = chunk.place(logical + done as u64, mirror);
            let take = (place.len as usize).min(buf.len() - done);
            let device = self.device(place.devid)?;
            let result = device.read_at(place.physical, &mut buf[done..done + take]);
            self.counted(place.devid, Fault::Read, result, ("read", place.physical, take))?;
            done += take;
        }
        Ok(())
    }

    pub(crate) fn device_name(&self, devid: u64) -> String {
        self.devices.get(&devid).map_or_else(|| format!("missing device {devid}"), |d| d.name().to_owned())
    }
}
