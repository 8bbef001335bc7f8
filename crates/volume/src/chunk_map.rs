//! Where a logical address lies: chunks, their profiles, stripes and mirrors. Arithmetic only, no I/O.

use buttery_disk::check::sb::{STRIPE_LEN, data_stripes};
use buttery_disk::chunk::{ChunkItem, Stripe, bg};
use buttery_disk::profile::Profile;
use buttery_disk::zerocopy::FromBytes;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A range of logical addresses and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub logical: u64,
    pub len: u64,
    /// Type and profile bits ([`bg`]).
    pub kind: u64,
    pub sub_stripes: u16,
    /// Device id and physical address of each stripe.
    pub stripes: Vec<(u64, u64)>,
}

/// A contiguous part of a chunk on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub devid: u64,
    pub physical: u64,
    /// How many bytes from there on lie together.
    pub len: u64,
}

impl Chunk {
    /// Reads a CHUNK_ITEM that the tree checker has passed; `None` if it is cut off.
    pub fn parse(logical: u64, data: &[u8]) -> Option<Chunk> {
        let (item, mut rest) = ChunkItem::ref_from_prefix(data).ok()?;
        let mut stripes = Vec::with_capacity(item.num_stripes.get() as usize);
        for _ in 0..item.num_stripes.get() {
            let (stripe, after) = Stripe::ref_from_prefix(rest).ok()?;
            stripes.push((stripe.devid.get(), stripe.offset.get()));
            rest = after;
        }
        Some(Chunk {
            logical,
            len: item.length.get(),
            kind: item.kind.get(),
            sub_stripes: item.sub_stripes.get(),
            stripes,
        })
    }

    /// The address behind its last.
    pub fn end(&self) -> u64 {
        self.logical + self.len
    }

    /// How many copies there are of each byte.
    pub fn copies(&self) -> usize {
        self.profile().map_or(1, |profile| profile.shape().copies)
    }

    /// The profile; `None` if the bits are of several, which the tree checker does not pass.
    pub fn profile(&self) -> Option<Profile> {
        Profile::of(self.kind)
    }

    /// Bytes that the chunk takes on each of its devices' stripes.
    pub fn stripe_size(&self) -> u64 {
        self.len / data_stripes(self.kind, self.stripes.len() as u16, self.sub_stripes) as u64
    }

    /// Where copy `mirror` of an address lies; the address must be the chunk's.
    pub fn place(&self, logical: u64, mirror: usize) -> Place {
        let offset = logical - self.logical;
        let (index, in_stripe, len) = match self.kind & bg::PROFILE_MASK {
            bg::RAID0 => Self::striped(offset, self.stripes.len() as u64, 1),
            bg::RAID10 => {
                let sub = self.sub_stripes.max(1) as u64;
                Self::striped(offset, self.stripes.len() as u64 / sub, sub)
            }
            _ => (0, offset, self.len - offset),
        };
        let (devid, start) = self.stripes[index + mirror];
        Place { devid, physical: start + in_stripe, len: len.min(self.end() - logical) }
    }

    /// The logical address of byte `offset` of a stripe, and how many bytes from there on lie together; the other way
    /// round than [`place`](Self::place). For profiles without parity.
    pub fn logical_of(&self, stripe: usize, offset: u64) -> (u64, u64) {
        let sub = match self.kind & bg::PROFILE_MASK {
            bg::RAID0 => 1,
            bg::RAID10 => self.sub_stripes.max(1) as usize,
            _ => return (self.logical + offset, self.len - offset),
        };
        let columns = (self.stripes.len() / sub) as u64;
        let (row, within) = (offset / STRIPE_LEN, offset % STRIPE_LEN);
        let nr = row * columns + (stripe / sub) as u64;
        (self.logical + nr * STRIPE_LEN + within, STRIPE_LEN - within)
    }

    fn striped(offset: u64, columns: u64, sub: u64) -> (usize, u64, u64) {
        let (nr, within) = (offset / STRIPE_LEN, offset % STRIPE_LEN);
        let (row, column) = (nr / columns, nr % columns);
        ((column * sub) as usize, row * STRIPE_LEN + within, STRIPE_LEN - within)
    }
}

/// All chunks of a file system.
#[derive(Default)]
pub struct ChunkMap {
    chunks: RwLock<BTreeMap<u64, Arc<Chunk>>>,
}

impl ChunkMap {
    /// The chunk that holds an address.
    pub fn find(&self, logical: u64) -> Option<Arc<Chunk>> {
        let chunks = self.chunks.read();
        let (_, chunk) = chunks.range(..=logical).next_back()?;
        (logical < chunk.end()).then(|| chunk.clone())
    }

    /// Adds a chunk. The same chunk again is no error; one that overlaps another is, and is given back.
    pub fn insert(&self, chunk: Chunk) -> Result<(), Arc<Chunk>> {
        let mut chunks = self.chunks.write();
        if let Some((_, before)) = chunks.range(..chunk.end()).next_back()
            && before.end() > chunk.logical
        {
            return if **before == chunk { Ok(()) } else { Err(before.clone()) };
        }
        chunks.insert(chunk.logical, Arc::new(chunk));
        Ok(())
    }

    /// Forgets a chunk.
    pub fn remove(&self, logical: u64) {
        self.chunks.write().remove(&logical);
    }

    /// Every chunk, by address.
    pub fn all(&self) -> Vec<Arc<Chunk>> {
        self.chunks.read().values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(kind: u64, sub_stripes: u16, n: u64) -> Chunk {
        let stripes = (0..n).map(|i| (i + 1, (i + 1) << 30)).collect();
        Chunk { logical: 1 << 20, len: 8 << 20, kind, sub_stripes, stripes }
    }

    #[test]
    fn raid0_goes_round_the_devices() {
        let c = chunk(bg::DATA | bg::RAID0, 1, 2);
        let at = |offset: u64| c.place((1 << 20) + offset, 0);
        assert_eq!(at(0), Place { devid: 1, physical: 1 << 30, len: 65536 });
        assert_eq!(at(65536 + 5), Place { devid: 2, physical: (2 << 30) + 5, len: 65531 });
        assert_eq!(at(131072), Place { devid: 1, physical: (1 << 30) + 65536, len: 65536 });
        assert_eq!(c.stripe_size(), 4 << 20);
    }

    #[test]
    fn raid10_pairs_devices() {
        let c = chunk(bg::DATA | bg::RAID10, 2, 4);
        let devs = |offset: u64| [0, 1].map(|m| c.place((1 << 20) + offset, m).devid);
        assert_eq!(devs(0), [1, 2]);
        assert_eq!(devs(65536), [3, 4]);
        assert_eq!(devs(131072), [1, 2]);
    }

    #[test]
    fn stripes_lead_back_to_addresses() {
        for (kind, sub, n) in [(bg::RAID0, 1, 3), (bg::RAID10, 2, 4), (bg::RAID1, 1, 2), (bg::DUP, 1, 2)] {
            let c = chunk(bg::DATA | kind, sub, n);
            let c = Chunk { len: c.len / 3 / 65536 * 3 * 65536, ..c };
            for at in (0..c.len).step_by(28 << 10).map(|offset| c.logical + offset) {
                for mirror in 0..c.copies() {
                    let place = c.place(at, mirror);
                    let stripe = c.stripes.iter().position(|&(devid, _)| devid == place.devid).unwrap();
                    assert_eq!(c.logical_of(stripe, place.physical - c.stripes[stripe].1), (at, place.len));
                }
            }
        }
    }

    #[test]
    fn overlapping_chunks_are_given_back() {
        let map = ChunkMap::default();
        assert!(map.insert(chunk(bg::DATA, 1, 1)).is_ok());
        assert!(map.insert(chunk(bg::DATA, 1, 1)).is_ok());
        assert!(map.insert(Chunk { logical: 2 << 20, ..chunk(bg::DATA, 1, 1) }).is_err());
        assert!(map.find(0).is_none() && map.find(9 << 20).is_none());
        assert!(map.find((9 << 20) - 1).is_some());
    }
}
