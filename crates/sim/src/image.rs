//! Images in memory and in files.

use buttery::{Filesystem, Options, Time};
use buttery_codec::CsumType;
use buttery_device::{Access, Device, FileDevice, MemDevice, Window};
use buttery_mkfs::{MkfsOptions, make};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The time of every change, so that times can be compared.
pub const CLOCK: Time = Time { sec: 1_700_000_000, nsec: 123_456_789 };

/// Options under which nothing happens by itself: a fixed clock, commits only on request.
pub fn quiet() -> Options {
    Options { clock: Some(CLOCK), commit_secs: 100_000, ..Options::default() }
}

/// The same, and compression for three seeds of four, for all that a file system may lie on.
pub fn quiet_compressed(seed: u64) -> Options {
    let mut options = quiet();
    let how = ["compress=no", "compress=zstd:1", "compress-force=lzo", "compress=zlib"][(seed % 4) as usize];
    let media = ["ssd", "nossd", "ssd_spread"][(seed % 3) as usize];
    options.parse(&format!("{how},{media}")).unwrap_or_else(|e| panic!("{how},{media}: {e}"));
    options
}

/// A kind of file system for each seed: node sizes, checksums, block-group tree or not.
pub fn spread(seed: u64) -> MkfsOptions {
    let csums = [CsumType::Crc32c, CsumType::Xxhash64, CsumType::Sha256, CsumType::Blake2b];
    MkfsOptions {
        nodesize: [4096, 16384, 65536][(seed % 3) as usize],
        csum: csums[(seed % 4) as usize],
        block_group_tree: seed.is_multiple_of(2),
        discard: false,
        time: Some(CLOCK),
        ..MkfsOptions::default()
    }
}

/// A new file system in memory.
pub fn in_memory(len: u64, options: &MkfsOptions) -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemDevice::new("memory", len));
    make(&device, options).unwrap_or_else(|e| panic!("mkfs: {e}"));
    device
}

/// A new file system in a file.
pub fn in_file(path: &Path, len: u64, options: &MkfsOptions) {
    File::create(path).and_then(|f| f.set_len(len)).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let device = FileDevice::open(path, Access::Exclusive, Window::default()).expect("the image");
    let device: Arc<dyn Device> = Arc::new(device);
    make(&device, options).unwrap_or_else(|e| panic!("mkfs: {e}"));
}

/// Opens a device for writing.
pub fn open(device: &Arc<dyn Device>) -> Filesystem {
    Filesystem::open_devices_writable(vec![device.clone()], &quiet()).unwrap_or_else(|e| panic!("open: {e}"))
}

/// Writes what a device holds to a sparse file.
pub fn dump(device: &dyn Device, path: &Path) {
    let file = File::create(path).expect("a file");
    file.set_len(device.len_bytes()).expect("a size");
    let (mut at, mut buf) = (0, vec![0; 64 << 10]);
    while at < device.len_bytes() {
        let len = (device.len_bytes() - at).min(buf.len() as u64) as usize;
        device.read_at(at, &mut buf[..len]).expect("a read");
        if buf[..len].iter().any(|&b| b != 0) {
            file.write_all_at(&buf[..len], at).expect("a write");
        }
        at += len as u64;
    }
}
