//! File systems to measure on: in memory, or in a file.

use anyhow::{Context, Result};
use buttery::{Filesystem, Options};
use buttery_codec::CsumType;
use buttery_device::{Access, Device, FileDevice, MemDevice, Window};
use buttery_mkfs::{MkfsOptions, make};
use std::fs::File;
use std::io::{IoSlice, Read};
use std::path::Path;
use std::sync::Arc;

/// A new file system: in a file that is made, or in memory. All of it was written once: the first touch of a page costs
/// more than any file system does.
pub fn new(path: Option<&Path>, len: u64, csum: CsumType) -> Result<Arc<dyn Device>> {
    let device: Arc<dyn Device> = match path {
        Some(path) => {
            fill(path, len).with_context(|| path.display().to_string())?;
            Arc::new(FileDevice::open(path, Access::Exclusive, Window::default())?)
        }
        None => {
            let device = MemDevice::new("memory", len);
            let zeros = vec![0; 1 << 20];
            for at in (0..len).step_by(zeros.len()) {
                let piece = (len - at).min(zeros.len() as u64) as usize;
                device.write_at(at, &[IoSlice::new(&zeros[..piece])])?;
            }
            Arc::new(device)
        }
    };
    make(&device, &MkfsOptions { csum, discard: false, ..MkfsOptions::default() })
        .map_err(|e| anyhow::anyhow!("mkfs: {e}"))?;
    Ok(device)
}

/// Writes a file from end to end.
fn fill(path: &Path, len: u64) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    std::io::copy(&mut std::io::repeat(0).take(len), &mut file)?;
    Ok(())
}

/// Opens it for writing.
pub fn open(device: &Arc<dyn Device>, options: &Options) -> Result<Filesystem> {
    Ok(Filesystem::open_devices_writable(vec![device.clone()], options)?)
}
