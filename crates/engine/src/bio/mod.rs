//! The one gateway where file data meets the volume: look up checksums, read, verify, read again from another mirror;
//! sum and write.
//!
//! Callers hand in a range of logical addresses and know nothing of mirrors; nothing here knows of files.

mod submit;

pub(crate) use submit::Submitter;
pub use submit::write;

use crate::mechanisms::ReadLookup;
use crate::{Engine, Error, Result, csum};
use buttery_volume::{BlockError, Unfit};

/// Whether somebody waits for just this write to be on the device: a direct or a synchronous one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wait {
    /// Nobody does.
    #[default]
    No,
    /// Somebody does: what takes time only at first sight, such as waking others, is not done.
    Yes,
}

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
    if verify == Verify::None || engine.rescue().ignore_data_csums {
        return Ok(engine.volume().read_data(bytenr, buf)?);
    }
    let sector = engine.volume().context().sectorsize as usize;
    let once = match engine.mechanisms.read_lookup {
        ReadLookup::Whole => buf.len().max(1),
        ReadLookup::Sector => sector,
    };
    let mut at = bytenr;
    for part in buf.chunks_mut(once) {
        read_summed(engine, at, part)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// Reads what has checksums, all of which are looked up at once.
fn read_summed(engine: &Engine, bytenr: u64, buf: &mut [u8]) -> Result<()> {
    let volume = engine.volume();
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
            false => Err(Unfit::corrupt(format!("its {} data checksum is wrong", kind.name()))),
        })?;
    }
    Ok(())
}

/// A missing checksum without NODATASUM is an error, not trust.
fn no_csum(bytenr: u64) -> Error {
    let rule = "data without a checksum, and the inode is not NODATASUM".to_string();
    let tries = vec![buttery_volume::Attempt { device: "any device".into(), physical: 0, rule }];
    Error::Io(Box::new(Box::new(BlockError { bytenr, tries }).into()))
}
