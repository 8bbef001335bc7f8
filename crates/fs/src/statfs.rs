//! How full a file system is.

use crate::{Filesystem, Result};
use buttery_disk::check::sb::STRIPE_LEN;
use buttery_disk::chunk::bg;
use buttery_disk::profile::Profile;

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
        let copies = |flags: u64| Profile::of(flags).map_or(1, |profile| profile.shape().copies as u64);
        let usage = self.engine.usage()?;
        let (mut used, mut data_free, mut profile) = (0, 0, Profile::Single);
        for group in &usage.groups {
            used += group.used * copies(group.flags);
            if group.flags & bg::DATA != 0 {
                profile = Profile::of(group.flags).unwrap_or(profile);
                data_free += group.len.saturating_sub(group.used);
            }
        }
        let factor = profile.shape().copies as u64;
        let devices: Vec<u64> = usage.devices.iter().map(|d| d.total.saturating_sub(d.allocated)).collect();
        let total = usage.devices.iter().map(|d| d.total).sum::<u64>() / factor;
        let free = total.saturating_sub(used / factor + usage.global_reserve);
        Ok(StatFs {
            total,
            free,
            available: (data_free + room_for_data(devices, profile) / factor).min(free),
            block_size: sb.sectorsize.get(),
        })
    }
}

/// Bytes of the devices, copies counted, that new chunks of a profile could take, where each device has so many left.
/// From the fullest on: what it has, as often as the profile spreads a chunk.
fn room_for_data(devices: Vec<u64>, profile: Profile) -> u64 {
    let shape = profile.shape();
    let least = shape.stripes_per_device as u64 * STRIPE_LEN;
    let mut left: Vec<u64> = devices
        .into_iter()
        .map(|free| free / STRIPE_LEN * STRIPE_LEN)
        .filter(|&free| free > DEVICE_RESERVED + least)
        .map(|free| free - DEVICE_RESERVED)
        .collect();
    left.sort_unstable_by_key(|&free| std::cmp::Reverse(free));
    let wide = match profile {
        Profile::Raid10 => 4,
        _ => shape.devices_max.unwrap_or(left.len()),
    };
    let mut sum = 0;
    while left.len() >= shape.devices_min.max(1) {
        let from = left.len() - wide.min(left.len());
        let smallest = left[left.len() - 1];
        if smallest >= least {
            sum += smallest * (left.len() - from) as u64;
            left[from..].iter_mut().for_each(|free| *free = free.saturating_sub(smallest));
        }
        left.pop();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_copy_needs_another_device() {
        let reserved = DEVICE_RESERVED;
        let of =
            |devices: &[u64], profile| room_for_data(devices.iter().map(|d| d + reserved).collect(), profile);
        assert_eq!(of(&[GIB, 3 * GIB], Profile::Single), 4 * GIB);
        assert_eq!(of(&[GIB, 3 * GIB], Profile::Raid1), 2 * GIB);
        assert_eq!(of(&[GIB, 3 * GIB], Profile::Raid0), 4 * GIB);
        assert_eq!(of(&[GIB, GIB], Profile::Raid1c3), 0);
        assert_eq!(of(&[4 * GIB], Profile::Dup), 4 * GIB);
    }
}
