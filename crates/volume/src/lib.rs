//! Superblocks, chunks and profiles: a logical address to mirrors and stripes.
//!
//! [`Volume::open`] reads the superblocks and the chunk tree; [`Volume::read_block`] returns a tree block that was
//! checked in every way, from another mirror when one is bad; [`Volume::read_data`] and [`Volume::read_verified`] do
//! the same for data; [`Volume::write`] writes every mirror. Nothing above this crate knows of devices' addresses.
#![forbid(unsafe_code)]

pub mod chunk_map;
mod devices;
mod error;
mod faults;
mod history;
mod open;
mod read;
mod standing;
pub mod walk;
mod write;

pub use chunk_map::{Chunk, ChunkMap, Place};
pub use devices::read_super;
pub use error::{Attempt, BlockError, Error, uuid_text};
pub use faults::{Fault, FaultCounts, Unfit};
pub use open::OpenOptions;

use buttery_codec::CsumType;
use buttery_device::Device;
use buttery_disk::check::Context;
use buttery_disk::chunk::DevItem;
use buttery_disk::superblock::Superblock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The devices of a file system seen as one range of logical addresses.
pub struct Volume {
    devices: BTreeMap<u64, Arc<dyn Device>>,
    faults: BTreeMap<u64, faults::Faults>,
    chunks: ChunkMap,
    sb: Superblock,
    ctx: Context,
    /// The last generation that is on the devices: what a block states may be one ahead of it.
    generation: AtomicU64,
    csum: CsumType,
    /// Which fsids tree blocks may carry: the file system's, and those of its seeds.
    fsids: Vec<[u8; 16]>,
    writable: bool,
    /// The items of all devices, as they were at the opening.
    items: Vec<DevItem>,
    missing: Vec<u64>,
}

impl Volume {
    /// The superblock that was opened.
    pub fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// What the tree checker needs to know; its generation is that of the opening.
    pub fn context(&self) -> &Context {
        &self.ctx
    }

    /// A commit is on the devices: blocks of this generation may be read from now on.
    pub fn advance(&self, generation: u64) {
        self.generation.fetch_max(generation, Ordering::Release);
    }

    /// The checksum of this file system.
    pub fn csum(&self) -> CsumType {
        self.csum
    }

    /// The chunk map.
    pub fn chunks(&self) -> &ChunkMap {
        &self.chunks
    }

    /// The devices that are there, by id.
    pub fn devices(&self) -> &BTreeMap<u64, Arc<dyn Device>> {
        &self.devices
    }

    /// The items of all devices of the file system, as the chunk tree had them at the opening.
    pub fn device_items(&self) -> &[DevItem] {
        &self.items
    }

    /// The ids of devices that are missing from a degraded volume.
    pub fn missing(&self) -> &[u64] {
        &self.missing
    }

    /// Whether any device is zoned: its writes must go out in order.
    pub fn is_zoned(&self) -> bool {
        self.devices.values().any(|device| device.is_zoned())
    }

    /// Whether any device has to move to where it reads and writes.
    pub fn is_rotational(&self) -> bool {
        self.devices.values().any(|device| device.is_rotational())
    }

    /// Whether blocks may be written.
    pub fn is_writable(&self) -> bool {
        self.writable
    }
}
