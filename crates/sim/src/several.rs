//! File systems over several image files.

use buttery::{Filesystem, Options};
use buttery_device::{Access, Device, FileDevice, MemDevice, Window};
use buttery_judge::{TempDir, guard, image};
use buttery_mkfs::{MkfsOptions, make_on};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Blank image files, one for each size.
pub fn files(dir: &TempDir, sizes: &[u64]) -> Vec<PathBuf> {
    let make = |(n, size): (usize, &u64)| {
        let path = dir.join(format!("{}.img", n + 1));
        std::fs::File::create(&path).and_then(|f| f.set_len(*size)).expect("an image file");
        path
    };
    sizes.iter().enumerate().map(make).collect()
}

/// A file system of ours in these files.
pub fn make_ours(files: &[PathBuf], options: &MkfsOptions) {
    let open = |path: &PathBuf| -> Arc<dyn Device> {
        Arc::new(FileDevice::open(path, Access::Exclusive, Window::default()).expect("the image"))
    };
    let devices: Vec<_> = files.iter().map(open).collect();
    make_on(&devices, options).unwrap_or_else(|e| panic!("mkfs: {e}"));
}

/// A file system of mkfs.btrfs's in these files.
pub fn make_kernels(files: &[PathBuf], arguments: &str) {
    let loops = guard::Loop::attach_all(files).expect("loop devices");
    let words: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
    image::mkfs(&loops, &words).expect("mkfs.btrfs");
}

/// Opens for writing, with further options.
pub fn try_open(files: &[PathBuf], more: &str) -> Result<Filesystem, String> {
    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    Filesystem::open_writable(&paths, &options(more)).map_err(|e| e.to_string())
}

/// The same, where it must not fail.
pub fn open(files: &[PathBuf], more: &str) -> Filesystem {
    try_open(files, more).unwrap_or_else(|e| panic!("open {files:?}: {e}"))
}

/// Options under which nothing happens by itself, and these.
pub fn options(more: &str) -> Options {
    let mut options = crate::image::quiet();
    options.parse(more).unwrap_or_else(|e| panic!("{more}: {e}"));
    options
}

/// New devices in memory, with a file system of ours.
pub fn in_memory(sizes: &[u64], options: &MkfsOptions) -> Vec<Arc<MemDevice>> {
    let make = |(n, size): (usize, &u64)| Arc::new(MemDevice::new(&format!("memory {}", n + 1), *size));
    let devices: Vec<Arc<MemDevice>> = sizes.iter().enumerate().map(make).collect();
    let all: Vec<Arc<dyn Device>> = devices.iter().map(|d| d.clone() as Arc<dyn Device>).collect();
    make_on(&all, options).unwrap_or_else(|e| panic!("mkfs: {e}"));
    devices
}
