//! The one gateway where file data meets the volume: look up checksums, read, verify, read again from another mirror.
//!
//! Callers hand in a range of logical addresses and know nothing of mirrors; nothing here knows of files.

use crate::{Engine, Error, Result, csum};
use buttery_volume::BlockError;

/// Whether data must have a checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verify {
    /// Every block must have one, and it must be right.
    Csum,
    /// The inode is NODATASUM: there is none to look at.
    None,
}

/// Reads `buf.len()` bytes of data at a logical address; both must be aligned to the sector size. One search of the
/// checksum tree serves the whole read.
pub fn read(engine: &Engine, bytenr: u64, buf: &mut [u8], verify: Verify) -> Result<()> {
    let volume = engine.volume();
    if verify == Verify::None || engine.rescue().ignore_data_csums {
        return Ok(volume.read_data(bytenr, buf)?);
    }
    let sums = match csum::lookup(engine, bytenr, buf.len() as u64) {
        Ok(sums) => sums,
        Err(_) if engine.rescue().ignore_bad_roots => return Ok(volume.read_data(bytenr, buf)?),
        Err(error) => return Err(error),
    };
    let sector = volume.context().sectorsize as usize;
    let kind = volume.csum();
    // the whole range in one read; what does not verify is read again block by block, from each mirror
    let whole = volume.read_data(bytenr, buf);
    for (i, block) in buf.chunks_mut(sector).enumerate() {
        let address = bytenr + (i * sector) as u64;
        let Some(sum) = sums.get(i) else {
            return Err(no_csum(address));
        };
        if whole.is_ok() && kind.verify(block, sum) {
            continue;
        }
        volume.read_verified(address, block, &|bytes| match kind.verify(bytes, sum) {
            true => Ok(()),
            false => Err(format!("its {} data checksum is wrong", kind.name())),
        })?;
    }
    Ok(())
}

/// Writes data to every mirror of a logical address; address and length are aligned to the sector size.
pub fn write(engine: &Engine, bytenr: u64, data: &[u8]) -> Result<()> {
    Ok(engine.volume().write(bytenr, data)?)
}

/// The checksums of data as they are to stand on the device, one for each sector.
pub fn sums(engine: &Engine, data: &[u8]) -> Vec<u8> {
    let volume = engine.volume();
    let mut sums = Vec::new();
    volume.csum().sum_blocks(data, volume.context().sectorsize as usize, &mut sums);
    sums
}

/// A missing checksum without NODATASUM is an error, not trust.
fn no_csum(bytenr: u64) -> Error {
    let rule = "data without a checksum, and the inode is not NODATASUM".to_string();
    let tries = vec![buttery_volume::Attempt { device: "any device".into(), physical: 0, rule }];
    Error::Io(Box::new(Box::new(BlockError { bytenr, tries }).into()))
}
