//! Makes new file systems.
//!
//! [`make`] lays out the least that can be opened, every tree a single leaf ([`layout`]), then opens it with the engine
//! and lets that add what is left. So there is one writer of trees, not two.
#![forbid(unsafe_code)]

mod layout;
mod signature;

pub use signature::found as existing_signature;

pub use buttery_disk::profile::Profile;

use buttery::{Time, uuid};
use buttery_codec::CsumType;
use buttery_device::Device;
use buttery_disk::superblock::{OFFSETS, SIZE};
use buttery_engine::{Engine, OpenOptions};
use std::io::{self, IoSlice};
use std::sync::Arc;
use thiserror::Error;

/// What to make.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// At most 255 bytes.
    pub label: Vec<u8>,
    /// A random one, if absent.
    pub uuid: Option<[u8; 16]>,
    /// 4096 to 65536, a power of two.
    pub nodesize: u32,
    /// 4096.
    pub sectorsize: u32,
    pub metadata: Profile,
    pub data: Profile,
    pub csum: CsumType,
    /// The size of each device in bytes; its own, if absent.
    pub byte_count: Option<u64>,
    pub block_group_tree: bool,
    /// Discard the whole device first.
    pub discard: bool,
    /// The time of making; the clock's, if absent. With it and `uuid` given, the same is made each time.
    pub time: Option<Time>,
}

impl Default for MkfsOptions {
    fn default() -> Self {
        MkfsOptions {
            label: Vec::new(),
            uuid: None,
            nodesize: 16384,
            sectorsize: 4096,
            metadata: Profile::Dup,
            data: Profile::Single,
            csum: CsumType::Crc32c,
            byte_count: None,
            block_group_tree: true,
            discard: true,
            time: None,
        }
    }
}

/// Why nothing was made.
#[derive(Debug, Error)]
pub enum Error {
    #[error("{0}")]
    Invalid(String),
    #[error("{device}: {source}")]
    Device { device: String, source: io::Error },
    #[error("{0}")]
    Engine(#[from] buttery_engine::Error),
}

/// What was made.
#[derive(Clone, Debug)]
pub struct Made {
    pub uuid: [u8; 16],
    /// Bytes of the file system.
    pub size: u64,
    /// Bytes of the system, metadata and data chunks.
    pub chunks: [u64; 3],
}

/// Bytes at the device's beginning that are cleared.
const CLEAR: u64 = 2 << 20;

/// Makes a file system on one device. What it held is lost.
pub fn make(device: &Arc<dyn Device>, options: &MkfsOptions) -> Result<Made, Error> {
    make_on(std::slice::from_ref(device), options)
}

/// Makes a file system on devices, which get the numbers 1, 2, 3 and so on. What they held is lost.
pub fn make_on(devices: &[Arc<dyn Device>], options: &MkfsOptions) -> Result<Made, Error> {
    check(options)?;
    let plan = layout::Plan::new(devices, options)?;
    for device in devices {
        let failed = |source| Error::Device { device: device.name().to_owned(), source };
        if options.discard {
            device.discard(0, device.len_bytes()).map_err(failed)?;
        }
        clear(&**device).map_err(failed)?;
    }
    let all = || devices.iter().map(|d| d.name()).collect::<Vec<_>>().join(", ");
    let failed = |source| Error::Device { device: all(), source };
    layout::write(devices, &plan, options).map_err(failed)?;
    devices.iter().try_for_each(|device| device.flush()).map_err(failed)?;
    let engine = Engine::open_writable(devices.to_vec(), OpenOptions::default())?;
    engine.add_first_trees(plan.now.into(), plan.top_uuid)?;
    engine.commit()?;
    Ok(Made { uuid: plan.fsid, size: plan.size, chunks: plan.chunk_sizes() })
}

fn check(options: &MkfsOptions) -> Result<(), Error> {
    let bad = |text: String| Err(Error::Invalid(text));
    let node = options.nodesize;
    if options.sectorsize != 4096 {
        return bad(format!("sector size {} is not supported, only 4096 is", options.sectorsize));
    }
    if !node.is_power_of_two() || !(4096..=65536).contains(&node) {
        return bad(format!("node size {node} is not a power of two from 4096 to 65536"));
    }
    for profile in [options.data, options.metadata] {
        if profile.shape().parity > 0 {
            return bad(format!("writing profile {} is not supported", profile.name()));
        }
    }
    if options.label.len() > 255 || options.label.contains(&b'\n') || options.label.contains(&0) {
        return bad("a label has at most 255 bytes, and no line break".into());
    }
    Ok(())
}

/// Old superblocks, and whatever else stood at the beginning, must not be found again.
fn clear(device: &dyn Device) -> io::Result<()> {
    let zeros = vec![0; CLEAR.min(device.len_bytes()) as usize];
    device.write_at(0, &[IoSlice::new(&zeros)])?;
    for offset in OFFSETS.into_iter().filter(|o| o + SIZE as u64 <= device.len_bytes()) {
        device.write_at(offset, &[IoSlice::new(&zeros[..SIZE])])?;
    }
    Ok(())
}

/// A uuid: random, or derived from the one that was asked for when a time was given as well.
fn uuid_for(options: &MkfsOptions, number: u64) -> Result<[u8; 16], Error> {
    match (options.uuid, options.time) {
        (Some(base), Some(_)) => Ok(uuid::derived(&base, number)),
        _ => uuid::random().map_err(|source| Error::Device { device: "/dev/urandom".into(), source }),
    }
}
