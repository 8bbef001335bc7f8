//! What went wrong with each device, counted: what `btrfs device stats` shows.

use crate::{Error, Volume};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What went wrong, in the order in which the format counts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A write failed.
    Write,
    /// A read failed.
    Read,
    /// A flush failed.
    Flush,
    /// What was read is not what was written, by its checksum or its structure.
    Corruption,
    /// What was read is older than it should be: a write was lost.
    Generation,
}

/// How often each fault was met, by [`Fault`].
pub type FaultCounts = [u64; 5];

/// The counters of one device.
#[derive(Default)]
pub(crate) struct Faults {
    counts: [AtomicU64; 5],
    /// They are not on the device yet.
    changed: AtomicBool,
    /// The device missed writes that others have.
    pub(crate) stale: AtomicBool,
}

/// Why a copy was not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unfit {
    /// What it counts as.
    pub fault: Fault,
    /// The rule that it breaks.
    pub rule: String,
}

impl Unfit {
    /// A copy that is not what was written.
    pub fn corrupt(rule: String) -> Unfit {
        Unfit { fault: Fault::Corruption, rule }
    }
}

impl Volume {
    /// Counts a fault of a device.
    pub(crate) fn count(&self, devid: u64, fault: Fault) {
        if let Some(faults) = self.faults.get(&devid) {
            faults.counts[fault as usize].fetch_add(1, Ordering::Relaxed);
            faults.changed.store(true, Ordering::Release);
        }
    }

    /// Counts the fault if there was one, and says of which device the error is.
    pub(crate) fn counted<T>(
        &self,
        devid: u64,
        fault: Fault,
        result: std::io::Result<T>,
        place: (&'static str, u64, usize),
    ) -> Result<T, Error> {
        result.map_err(|source| {
            self.count(devid, fault);
            let (op, offset, len) = place;
            Error::Device { device: self.device_name(devid), op, offset, len, source }
        })
    }

    /// The counters of a device.
    pub fn fault_counts(&self, devid: u64) -> FaultCounts {
        let faults = self.faults.get(&devid);
        faults.map_or([0; 5], |f| std::array::from_fn(|i| f.counts[i].load(Ordering::Relaxed)))
    }

    /// Adds what was counted before, by others.
    pub fn add_fault_counts(&self, devid: u64, before: FaultCounts) {
        if let Some(faults) = self.faults.get(&devid) {
            for (count, before) in faults.counts.iter().zip(before) {
                count.fetch_add(before, Ordering::Relaxed);
            }
        }
    }

    /// Sets the counters of all devices to zero.
    pub fn reset_fault_counts(&self) {
        for faults in self.faults.values() {
            faults.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
            faults.changed.store(true, Ordering::Release);
        }
    }

    /// Whether counters changed that were not taken to be written.
    pub fn has_new_faults(&self) -> bool {
        self.faults.values().any(|faults| faults.changed.load(Ordering::Acquire))
    }

    /// The devices whose counters changed, with them; they count as written then.
    pub fn take_new_faults(&self) -> Vec<(u64, FaultCounts)> {
        let changed = self.faults.iter().filter(|(_, f)| f.changed.swap(false, Ordering::AcqRel));
        changed.map(|(&devid, _)| (devid, self.fault_counts(devid))).collect()
    }
}
