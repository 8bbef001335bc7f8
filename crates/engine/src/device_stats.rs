//! The counters of faults that a file system keeps of its devices, in the tree of devices.

use crate::txn::Trans;
use crate::{Engine, Error, Result};
use buttery_disk::{Key, TreeId, item, objectid};
use buttery_volume::FaultCounts;

/// The counters of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceStats {
    /// The device's number.
    pub devid: u64,
    /// Its path.
    pub name: String,
    /// Failed writes, reads and flushes; corruptions; lost writes.
    pub counts: FaultCounts,
}

fn key(devid: u64) -> Key {
    Key::new(objectid::DEV_STATS, item::PERSISTENT_ITEM, devid)
}

impl Engine {
    /// What went wrong with each device, ever since the counters were set to zero.
    pub fn device_stats(&self) -> Result<Vec<DeviceStats>> {
        let devices = self.volume().devices().iter();
        devices
            .map(|(&devid, device)| {
                let mut counts = self.volume().fault_counts(devid);
                if self.writer.is_none() {
                    // one that is open for writing has taken them over
                    let before = self.stored_stats(devid)?;
                    counts.iter_mut().zip(before).for_each(|(count, before)| *count += before);
                }
                Ok(DeviceStats { devid, name: device.name().to_owned(), counts })
            })
            .collect()
    }

    /// Sets the counters to zero; the next commit makes it last.
    pub fn reset_device_stats(&self) -> Result<()> {
        self.writer()?;
        self.volume().reset_fault_counts();
        Ok(())
    }

    fn stored_stats(&self, devid: u64) -> Result<FaultCounts> {
        let tree = self.tree(TreeId(objectid::DEV_TREE))?;
        let Some(found) = tree.read(&self.store).get(key(devid))? else { return Ok([0; 5]) };
        let short = || Error::corrupt(tree.id(), key(devid), "device statistics are cut off");
        let mut counts = [0; 5];
        for (count, bytes) in counts.iter_mut().zip(found.data().chunks(8)) {
            *count = u64::from_le_bytes(bytes.try_into().map_err(|_| short())?);
        }
        Ok(counts)
    }

    /// Goes on counting where the file system was left.
    pub(crate) fn take_over_stats(&self) -> Result<()> {
        for &devid in self.volume().devices().keys() {
            self.volume().add_fault_counts(devid, self.stored_stats(devid)?);
        }
        Ok(())
    }
}

/// Writes the counters that changed.
pub(crate) fn write(trans: &mut Trans<'_>) -> Result<()> {
    for (devid, counts) in trans.store().volume().take_new_faults() {
        let tree = trans.engine().tree(TreeId(objectid::DEV_TREE))?;
        let data: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        tree.write(trans).put(key(devid), &data)?;
    }
    Ok(())
}
