//! Which devices may be believed, and which could be lost.
//!
//! A device is *stale* when it missed a write that others have: its superblock is older than theirs, or a write to it
//! failed while a copy elsewhere succeeded. What it has is read last, it goes on being written to, and its superblock
//! stays as old as it is, so that the next opening knows too.

use crate::{Chunk, Volume};
use std::sync::atomic::Ordering;

impl Volume {
    /// Whether a device missed writes that others have.
    pub fn is_stale(&self, devid: u64) -> bool {
        self.faults.get(&devid).is_some_and(|faults| faults.stale.load(Ordering::Acquire))
    }

    /// The devices that missed writes.
    pub fn stale(&self) -> Vec<u64> {
        self.faults.keys().copied().filter(|&devid| self.is_stale(devid)).collect()
    }

    pub(crate) fn set_stale(&self, devid: u64) {
        if let Some(faults) = self.faults.get(&devid)
            && !faults.stale.swap(true, Ordering::AcqRel)
        {
            tracing::warn!(
                "{}: device {devid} missed a write; it is read last from now on",
                self.device_name(devid)
            );
        }
    }

    /// Whether a device is there and missed nothing.
    pub fn is_current(&self, devid: u64) -> bool {
        self.devices.contains_key(&devid) && !self.is_stale(devid)
    }

    /// The order in which copies of a place are to be read: those that missed writes come last.
    pub(crate) fn order<'a>(&'a self, chunk: &'a Chunk, logical: u64) -> impl Iterator<Item = usize> + 'a {
        let of = move |current| {
            let is = move |&mirror: &usize| self.is_current(chunk.place(logical, mirror).devid) == current;
            (0..chunk.copies()).filter(is)
        };
        of(true).chain(of(false))
    }

    /// A chunk that has no current copy of everything if these devices are lost; `None` if all have.
    pub(crate) fn chunk_lost_without(&self, lost: &dyn Fn(u64) -> bool) -> Option<u64> {
        let chunks = self.chunks.all();
        chunks.iter().find(|chunk| !self.survives(chunk, lost)).map(|chunk| chunk.logical)
    }

    fn survives(&self, chunk: &Chunk, lost: &dyn Fn(u64) -> bool) -> bool {
        if !chunk.profile().is_some_and(|profile| profile.is_mirrored()) {
            return !chunk.stripes.iter().any(|&(devid, _)| lost(devid));
        }
        chunk
            .stripes
            .chunks(chunk.copies())
            .all(|group| group.iter().any(|&(devid, _)| !lost(devid) && !self.is_stale(devid)))
    }

    /// Whether writing can go on when a device is lost.
    pub(crate) fn can_do_without(&self, devid: u64) -> bool {
        let lost = |other| other == devid || !self.devices.contains_key(&other);
        self.devices.len() > 1 && self.chunk_lost_without(&lost).is_none()
    }
}
