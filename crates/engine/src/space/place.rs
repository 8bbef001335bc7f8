//! Where a new chunk goes: which devices, and where on each. Arithmetic only; the rules are the kernel's, by which an
//! unequal set of devices fills up evenly.

use super::group::Class;
use buttery_disk::check::sb::STRIPE_LEN;
use buttery_disk::chunk::{ChunkItem, Stripe};
use buttery_disk::key::DiskKey;
use buttery_disk::profile::Profile;
use buttery_disk::superblock::SYS_CHUNK_ARRAY_SIZE;

/// Stripes are at least this large: less is not worth a chunk.
const STRIPE_MIN: u64 = 1 << 20;
/// And at most this, on each device.
const STRIPE_MAX: u64 = 1 << 30;
/// What a stripe's size is rounded up to, when the chunk's is what bounds it.
const ROUND: u64 = 16 << 20;

/// What is free on a device that may be written.
#[derive(Clone, Debug)]
pub struct DeviceRoom {
    pub devid: u64,
    pub total: u64,
    /// Bytes that no chunk has.
    pub free: u64,
    /// Start and length of each part that no chunk has, by address.
    pub holes: Vec<(u64, u64)>,
}

/// A place for a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Bytes of logical addresses.
    pub len: u64,
    /// Device and physical address of each stripe.
    pub stripes: Vec<(u64, u64)>,
}

/// How many stripes a system chunk may have, so that the superblock's array holds two of them.
fn system_stripes_max() -> usize {
    let fixed = 2 * (size_of::<DiskKey>() + size_of::<ChunkItem>());
    (SYS_CHUNK_ARRAY_SIZE - fixed) / 2 / size_of::<Stripe>()
}

/// The largest chunk of a class, in logical bytes, on devices of so many bytes in all.
fn class_max(class: Class, total: u64) -> u64 {
    match class {
        Class::Data => 10 << 30,
        Class::Metadata if total > 50 << 30 => 1 << 30,
        Class::Metadata => 256 << 20,
        Class::System => 32 << 20,
    }
}

/// Places a chunk; `None` if the devices have no room for one.
pub fn place(devices: &[DeviceRoom], class: Class, profile: Profile) -> Option<Placed> {
    let shape = profile.shape();
    let total: u64 = devices.iter().map(|d| d.total).sum();
    let per_device = shape.stripes_per_device as u64;
    let most_bytes = class_max(class, total);
    let mut rooms: Vec<(u64, u64, u64, u64)> = devices
        .iter()
        .filter_map(|device| {
            let (start, len) = hole_for(&device.holes, most_bytes * per_device)?;
            (len >= STRIPE_MIN * per_device).then_some((len, device.free, device.devid, start))
        })
        .collect();
    // the emptiest first; equal ones in the order of their numbers
    rooms.sort_by_key(|&(len, free, devid, _)| (std::cmp::Reverse((len, free)), devid));
    let most = match class {
        Class::System => shape.devices_max.unwrap_or(usize::MAX).min(system_stripes_max()),
        _ => shape.devices_max.unwrap_or(usize::MAX),
    };
    let count = rooms.len().min(most) / shape.devices_step * shape.devices_step;
    if count < shape.devices_min {
        return None;
    }
    rooms.truncate(count);
    let parts = ((count * shape.stripes_per_device - shape.parity) / shape.copies).max(1) as u64;
    let smallest = rooms.last()?.0 / per_device;
    // no chunk has more than a tenth of everything
    let size = stripe_size(smallest, parts, most_bytes.min(total / 10).max(STRIPE_MIN));
    let stripes = rooms
        .iter()
        .flat_map(|&(_, _, devid, start)| (0..per_device).map(move |n| (devid, start + n * size)))
        .collect();
    Some(Placed { len: size * parts, stripes })
}

/// The first hole that is large enough, up to what is wanted; else the largest.
fn hole_for(holes: &[(u64, u64)], want: u64) -> Option<(u64, u64)> {
    let fits = holes.iter().find(|&&(_, len)| len >= want).map(|&(start, _)| (start, want));
    fits.or_else(|| holes.iter().copied().rev().max_by_key(|&(_, len)| len))
}

/// Bytes of each stripe, where the smallest device has room for `smallest` and `parts` of them make up the chunk.
fn stripe_size(smallest: u64, parts: u64, chunk_max: u64) -> u64 {
    let bounded = match smallest.saturating_mul(parts) > chunk_max {
        true => (chunk_max / parts).next_multiple_of(ROUND).min(smallest),
        false => smallest,
    };
    bounded.min(STRIPE_MAX) / STRIPE_LEN * STRIPE_LEN
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn devices(sizes: &[u64]) -> Vec<DeviceRoom> {
        let room = |(i, &size): (usize, &u64)| DeviceRoom {
            devid: i as u64 + 1,
            total: size,
            free: size - (1 << 20),
            holes: vec![(1 << 20, size - (1 << 20))],
        };
        sizes.iter().enumerate().map(room).collect()
    }

    /// Places chunks until there is no room. Answers the logical bytes.
    fn fill(sizes: &[u64], profile: Profile) -> u64 {
        let (mut rooms, mut sum) = (devices(sizes), 0);
        while let Some(placed) = place(&rooms, Class::Data, profile) {
            let size = {
                let shape = profile.shape();
                let parts = ((placed.stripes.len() - shape.parity) / shape.copies) as u64;
                placed.len / parts
            };
            for &(devid, start) in &placed.stripes {
                let room = &mut rooms[devid as usize - 1];
                let (at, len) = room.holes[0];
                assert_eq!(at, start, "there is one hole only");
                room.holes[0] = (at + size, len - size);
                room.free -= size;
            }
            sum += placed.len;
        }
        sum
    }

    #[test]
    fn unequal_devices_fill_up_evenly() {
        // 3 + 2 + 1: every byte of the large one finds its copy on one of the others
        let sum = fill(&[30 * GIB, 20 * GIB, 10 * GIB], Profile::Raid1);
        assert!(sum > 30 * GIB - (64 << 20), "{sum}");
        // one device larger than the others together leaves space without a place for its copy
        let sum = fill(&[50 * GIB, 20 * GIB, 10 * GIB], Profile::Raid1);
        assert!(sum <= 30 * GIB && sum > 30 * GIB - (64 << 20), "{sum}");
    }

    #[test]
    fn stripes_go_over_all_devices_that_have_room() {
        let placed = place(&devices(&[20 * GIB; 5]), Class::Data, Profile::Raid10).unwrap();
        assert_eq!(placed.stripes.iter().map(|s| s.0).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(placed.len, 2 * GIB);
        let placed = place(&devices(&[20 * GIB; 5]), Class::Data, Profile::Raid0).unwrap();
        assert_eq!((placed.stripes.len(), placed.len), (5, 5 * GIB));
    }

    #[test]
    fn too_few_devices_have_no_place() {
        for (profile, few) in
            [(Profile::Raid1, 1), (Profile::Raid1c3, 2), (Profile::Raid1c4, 3), (Profile::Raid10, 1)]
        {
            assert_eq!(place(&devices(&vec![GIB; few]), Class::Metadata, profile), None);
            assert!(place(&devices(&vec![GIB; few + 1]), Class::Metadata, profile).is_some());
        }
    }

    #[test]
    fn both_copies_of_dup_lie_in_one_hole() {
        let placed = place(&devices(&[4 * GIB]), Class::Metadata, Profile::Dup).unwrap();
        let [(1, first), (1, second)] = placed.stripes[..] else { panic!("{placed:?}") };
        assert_eq!((first, second - first), (1 << 20, placed.len));
        assert_eq!(placed.len, 256 << 20);
    }
}
