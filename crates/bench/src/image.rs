//! File systems to measure on: in memory, or in a file.

use anyhow::{Context, Result};
use buttery::{Filesystem, Options};
use buttery_codec::CsumType;
use buttery_device::{Access, Device, FileDevice, MemDevice, Window};
use buttery_mkfs::{MkfsOptions, make};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// A new file system: in a file that is made, or in memory.
pub fn new(path: Option<&Path>, len: u64, csum: CsumType) -> Result<Arc<dyn Device>> {
    let device: Arc<dyn Device> = match path {
        Some(path) => {
            fill(path, len).with_context(|| path.display().to_string())?;
            Arc::new(FileDevice::open(path, Access::Exclusive, Window::default())?)
        }
        None => Arc::new(MemDevice::new("memory", len)),
    };
    make(&device, &MkfsOptions { csum, discard: false, ..MkfsOptions::default() })
        .map_err(|e| anyhow::anyhow!("mkfs: {e}"))?;
    Ok(device)
}

/// Writes a file from end to end: the first touch of a page costs more than any file system does.
fn fill(path: &Path, len: u64) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    std::io::copy(&mut std::io::repeat(0).take(len), &mut file)?;
    Ok(())
}

/// Opens it for writing.
pub fn open(device: &Arc<dyn Device>, options: &Options) -> Result<Filesystem> {
    Ok(Filesystem::open_devices_writable(vec![device.clone()], options)?)
}
