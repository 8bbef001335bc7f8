//! How full a file system is.

use crate::{Filesystem, Result};
use buttery_disk::chunk::bg;

/// Sizes in bytes, as `df` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// All that the devices hold, copies not counted twice.
    pub total: u64,
    /// What files could still take.
    pub free: u64,
    /// Bytes of a sector.
    pub block_size: u32,
}

impl Filesystem {
    /// How full the file system is.
    pub fn statfs(&self) -> Result<StatFs> {
        let sb = self.engine.superblock();
        let (mut allocated, mut data_free, mut data_factor) = (0, 0, 1);
        for chunk in self.engine.volume().chunks().all() {
            allocated += chunk.stripe_size() * chunk.stripes.len() as u64;
            if chunk.kind & bg::DATA != 0 {
                data_factor = chunk.copies() as u64;
            }
        }
        if let Some((total, used)) = self.engine.data_totals() {
            data_free = total - used;
        }
        let unallocated = sb.total_bytes.get().saturating_sub(allocated);
        let total = sb.total_bytes.get() / data_factor;
        let free = data_free + unallocated / data_factor;
        let free = match self.engine.data_totals() {
            Some(_) => free,
            None => total.saturating_sub(sb.bytes_used.get()),
        };
        Ok(StatFs { total, free, block_size: sb.sectorsize.get() })
    }
}
