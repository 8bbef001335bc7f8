//! How full a file system is.

use crate::{Filesystem, Result};
use buttery_disk::chunk::bg;

/// Sizes in bytes, as `df` shows them: the kernel's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// All that the devices hold, copies not counted twice.
    pub total: u64,
    /// What is not used, for data or metadata.
    pub free: u64,
    /// What files could still take.
    pub available: u64,
    /// Bytes of a sector.
    pub block_size: u32,
}

/// Bytes at the start of each device that no chunk is given.
const DEVICE_RESERVED: u64 = 1 << 20;

impl Filesystem {
    /// How full the file system is.
    pub fn statfs(&self) -> Result<StatFs> {
        let sb = self.engine.superblock();
        let device_bytes = sb.total_bytes.get();
        let chunks = self.engine.volume().chunks().all();
        let copies = |kind: u64| chunks.iter().find(|c| c.kind == kind).map_or(1, |c| c.copies() as u64);
        let allocated: u64 = chunks.iter().map(|c| c.stripe_size() * c.stripes.len() as u64).sum();
        let usage = self.engine.usage()?;
        let (mut used, mut data_free, mut factor) = (0, 0, 1);
        for group in &usage.groups {
            used += group.used * copies(group.flags);
            if group.flags & bg::DATA != 0 {
                factor = copies(group.flags);
                data_free += group.len.saturating_sub(group.used);
            }
        }
        let reserved = sb.num_devices.get() * DEVICE_RESERVED;
        let unallocated = device_bytes.saturating_sub(allocated + reserved);
        let total = device_bytes / factor;
        let free = total.saturating_sub(used / factor + usage.global_reserve);
        Ok(StatFs {
            total,
            free,
            available: (data_free + unallocated / factor).min(free),
            block_size: sb.sectorsize.get(),
        })
    }
}
