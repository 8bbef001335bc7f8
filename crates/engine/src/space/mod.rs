//! Space: block groups and what is free in them, allocation, and what operations have reserved.
//!
//! The free ranges of metadata groups are in memory from the beginning, so that a tree can get a block while its lock
//! is held; those of data groups are read at first use. Space that a transaction frees is *pinned*: it is not given
//! out before the commit that frees it is on the device.

pub(crate) mod chunks;
pub(crate) mod free_space_tree;
mod group;
mod load;
mod place;
mod ranges;
mod rebuild;
pub(crate) mod reserve;

pub use group::Media;
pub(crate) use group::{Class, Group};
pub(crate) use load::{group_tree, load, load_free};
pub(crate) use ranges::FreeRanges;
pub(crate) use rebuild::rebuild;

use crate::{Error, Result};
use buttery_disk::chunk::bg;
use buttery_disk::profile::Profile;
use buttery_disk::{TreeId, objectid};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The space of a file system that is open for writing.
pub struct Space {
    groups: RwLock<BTreeMap<u64, Arc<Group>>>,
    /// Ranges freed since the last commit.
    pinned: Mutex<BTreeMap<u64, u64>>,
    /// Ranges freed by the transaction that is being written.
    committing: Mutex<BTreeMap<u64, u64>>,
    /// Bytes of metadata space promised to handles.
    reserved: AtomicU64,
    /// The group from which data were given out last.
    last_data: Mutex<Option<Arc<Group>>>,
    /// One promise at a time.
    pub(crate) reserving: Mutex<()>,
    /// One chunk allocation at a time.
    pub(crate) allocating: Mutex<()>,
    chunk_tree_uuid: [u8; 16],
    media: Media,
    /// Profile bits of new data and metadata chunks.
    profiles: [u64; 3],
}

impl Space {
    pub(crate) fn new(groups: BTreeMap<u64, Arc<Group>>, chunk_tree_uuid: [u8; 16], media: Media) -> Space {
        let mut profiles = [0; 3];
        for group in groups.values() {
            profiles[group.class() as usize] |= group.flags & bg::PROFILE_MASK;
        }
        Space {
            groups: RwLock::new(groups),
            pinned: Mutex::default(),
            committing: Mutex::default(),
            reserved: 0.into(),
            last_data: Mutex::new(None),
            reserving: Mutex::new(()),
            allocating: Mutex::new(()),
            chunk_tree_uuid,
            media,
            profiles,
        }
    }

    /// The uuid of the chunk tree, which every tree block carries.
    pub fn chunk_tree_uuid(&self) -> [u8; 16] {
        self.chunk_tree_uuid
    }

    /// Type and profile bits for a new chunk of a class, where so many devices can take one.
    pub(crate) fn new_chunk_flags(&self, class: Class, devices: usize) -> u64 {
        let mixed = self.is_mixed();
        let types = match class {
            Class::System => bg::SYSTEM,
            _ if mixed => bg::DATA | bg::METADATA,
            Class::Metadata => bg::METADATA,
            Class::Data => bg::DATA,
        };
        let class = if mixed && class != Class::System { Class::Metadata } else { class };
        // an image on its way from one profile to another has both; new chunks take the safest for which there are
        // devices enough, and single where there are not
        let has = self.profiles[class as usize];
        let fits = |profile: &Profile| profile.bits() & has != 0 && profile.shape().devices_min <= devices;
        let profile = Profile::ALL.into_iter().find(fits).unwrap_or(Profile::Single);
        types | profile.bits()
    }

    /// Whether data and metadata share their groups.
    pub(crate) fn is_mixed(&self) -> bool {
        self.groups.read().values().any(|g| g.flags & bg::TYPE_MASK == bg::DATA | bg::METADATA)
    }

    /// The group that holds an address.
    pub(crate) fn group(&self, bytenr: u64) -> Result<Arc<Group>> {
        let groups = self.groups.read();
        groups
            .range(..=bytenr)
            .next_back()
            .filter(|(_, g)| bytenr < g.end())
            .map(|(_, g)| g.clone())
            .ok_or_else(|| Error::Corrupt(format!("address {bytenr} lies in no block group").into()))
    }

    /// Whether two addresses are of one block group.
    pub(crate) fn is_one_group(&self, a: u64, b: u64) -> bool {
        matches!((self.group(a), self.group(b)), (Ok(a), Ok(b)) if Arc::ptr_eq(&a, &b))
    }

    /// The groups from which a class is served.
    pub(crate) fn groups(&self, class: Class) -> Vec<Arc<Group>> {
        self.groups.read().values().filter(|g| g.serves(class)).cloned().collect()
    }

    /// Every group, by address.
    pub(crate) fn all_groups(&self) -> Vec<Arc<Group>> {
        self.groups.read().values().cloned().collect()
    }

    pub(crate) fn add_group(&self, group: Group) {
        self.groups.write().insert(group.start, Arc::new(group));
    }

    pub(crate) fn remove_group(&self, start: u64) {
        self.groups.write().remove(&start);
    }

    /// A block for a tree.
    pub(crate) fn alloc_block(&self, tree: TreeId, len: u64) -> Result<u64> {
        let class = if tree.0 == objectid::CHUNK_TREE { Class::System } else { Class::Metadata };
        // always from the first group that has room, so that those behind it become empty and can go
        for group in self.groups(class) {
            if let Some(bytenr) = group.take_block(len, self.media) {
                return Ok(bytenr);
            }
        }
        Err(Error::NoSpace)
    }

    /// Up to `want` bytes for data, at least `min`. They count as used once a reference is added
    /// ([`use_data`](Self::use_data)), or are given back ([`release_data`](Self::release_data)). The groups must have
    /// been loaded.
    pub(crate) fn alloc_data(&self, want: u64, min: u64) -> Option<(u64, u64)> {
        let groups = self.groups(Class::Data);
        let whole = groups.iter().find(|g| g.largest() >= want);
        let best = || groups.iter().max_by_key(|g| g.largest());
        let group = whole.or_else(best)?;
        *self.last_data.lock() = Some(group.clone());
        group.take_data(want, min, self.media)
    }

    /// The same from the group that served last, if it has all of it.
    pub(crate) fn alloc_data_again(&self, want: u64) -> Option<(u64, u64)> {
        self.last_data.lock().as_ref()?.take_data(want, want, self.media)
    }

    /// An allocated data extent got its first reference.
    pub(crate) fn use_data(&self, bytenr: u64, len: u64) -> Result<()> {
        self.group(bytenr)?.use_data(len);
        Ok(())
    }

    /// An allocated data extent is not needed: no reference was ever added.
    pub(crate) fn release_data(&self, bytenr: u64, len: u64) {
        if let Ok(group) = self.group(bytenr) {
            group.release_data(bytenr, len);
        }
    }

    /// An extent lost its last reference: pinned until the commit is on the device.
    pub(crate) fn free(&self, bytenr: u64, len: u64) -> Result<()> {
        self.group(bytenr)?.pin(len)?;
        self.pinned.lock().insert(bytenr, len);
        Ok(())
    }

    /// The transaction is frozen: what it freed waits apart from what the next one frees.
    pub(crate) fn freeze_pinned(&self) {
        let mut pinned = self.pinned.lock();
        *self.committing.lock() = std::mem::take(&mut *pinned);
    }

    /// What the transaction that is being written freed.
    pub(crate) fn committing(&self) -> Vec<(u64, u64)> {
        self.committing.lock().iter().map(|(&s, &l)| (s, l)).collect()
    }

    /// The commit is on the device: what it freed may be given out.
    pub(crate) fn unpin(&self) {
        let mut committing = self.committing.lock();
        for (&start, &len) in committing.iter() {
            if let Ok(group) = self.group(start) {
                group.unpin(start, len);
            }
        }
        committing.clear();
    }

    /// Calls `with` with every range that is freed but not yet given out; none of them changes its state meanwhile.
    pub(crate) fn with_pinned_in<R>(&self, start: u64, end: u64, with: impl FnOnce(&[(u64, u64)]) -> R) -> R {
        // in the order in which they move
        let (pinned, committing) = (self.pinned.lock(), self.committing.lock());
        let ranges: Vec<_> =
            [&pinned, &committing].iter().flat_map(|m| m.range(start..end)).map(|(&s, &l)| (s, l)).collect();
        with(&ranges)
    }

    /// Bytes used in all groups.
    pub fn bytes_used(&self) -> u64 {
        self.groups.read().values().map(|g| g.used()).sum()
    }

    /// Bytes of metadata space promised to handles.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    pub(crate) fn reserve(&self, bytes: u64) {
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn unreserve(&self, bytes: u64) {
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes that could be given out of a class's groups.
    pub(crate) fn available(&self, class: Class) -> u64 {
        self.groups.read().values().filter(|g| g.serves(class)).map(|g| g.available()).sum()
    }

    /// Bytes of a class's groups, and how many of them are used or pinned.
    pub fn totals(&self, class: Class) -> (u64, u64) {
        let groups = self.groups.read();
        groups
            .values()
            .filter(|g| g.serves(class))
            .fold((0, 0), |(total, used), g| (total + g.len, used + g.len - g.available()))
    }
}
