//! Golden images in memory: what the fuzzing starts from.

use std::io::{self, IoSlice};
use std::sync::Arc;

use buttery_device::{Device, MemDevice};
use buttery_disk::superblock::{OFFSETS, SIZE};

macro_rules! golden {
    ($($device:literal),+) => {
        &[$(include_bytes!(concat!("../../tests/golden/", $device, ".img.zst"))),+]
    };
}

/// The images' names.
pub const NAMES: [&str; 8] =
    ["subvolumes", "compressed", "nodesize-4k", "xattrs", "holes", "collisions", "csum-xxhash", "raid10"];

const PACKED: [&[&[u8]]; 8] = [
    golden!("subvolumes.0"),
    golden!("compressed.0"),
    golden!("nodesize-4k.0"),
    golden!("xattrs.0"),
    golden!("holes.0"),
    golden!("collisions.0"),
    golden!("csum-xxhash.0"),
    golden!("raid10.0", "raid10.1", "raid10.2", "raid10.3"),
];

/// The devices of the `n`th image.
pub fn unpack(n: usize) -> Vec<Arc<MemDevice>> {
    PACKED[n].iter().map(|bytes| Arc::new(unpack_device(bytes))).collect()
}

fn unpack_device(packed: &[u8]) -> MemDevice {
    let mut input = zstd::Decoder::with_buffer(packed).expect("a zstd file");
    let device = MemDevice::new("device", 256 << 20);
    let (mut at, mut piece, zeros) = (0, vec![0; 1 << 16], [0; 1 << 16]);
    loop {
        let n = io::Read::read(&mut input, &mut piece).expect("a zstd file");
        if n == 0 {
            return device;
        }
        if piece[..n] != zeros[..n] {
            device.write_at(at, &[IoSlice::new(&piece[..n])]).expect("room");
        }
        at += n as u64;
    }
}

/// The same devices, for those who open them.
pub fn shared(devices: &[Arc<MemDevice>]) -> Vec<Arc<dyn Device>> {
    devices.iter().map(|d| d.clone() as Arc<dyn Device>).collect()
}

/// A device's superblock.
pub fn superblock(device: &MemDevice) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    device.read_at(OFFSETS[0], &mut bytes).expect("a superblock");
    bytes
}
