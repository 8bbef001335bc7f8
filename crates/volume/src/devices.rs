//! The devices that were given, their superblocks, and which file system they make up.

use crate::error::{Error, uuid_text};
use buttery_codec::CsumType;
use buttery_device::Device;
use buttery_disk::check::sb::check_superblock;
use buttery_disk::superblock::{OFFSETS, SIZE, Superblock, flags};
use std::sync::Arc;

/// A device with its superblock.
#[derive(Clone)]
pub struct Member {
    pub device: Arc<dyn Device>,
    pub sb: Superblock,
}

impl Member {
    /// Whether the device is a seed: a read-only base of another file system.
    pub fn is_seed(&self) -> bool {
        self.sb.flags.get() & flags::SEEDING != 0
    }
}

/// Reads and checks one copy of a device's superblock.
pub fn read_super(device: &dyn Device, copy: usize) -> Result<Superblock, String> {
    let offset = OFFSETS[copy];
    if offset + SIZE as u64 > device.len_bytes() {
        return Err(format!("the device ends at {}, before this copy", device.len_bytes()));
    }
    let mut bytes = vec![0; SIZE];
    device.read_at(offset, &mut bytes).map_err(|e| e.to_string())?;
    let sb = Superblock::parse(&bytes).ok_or("a superblock has 4096 bytes")?;
    if bytes.iter().all(|&b| b == 0) {
        return Err("magic must be _BHRfS_M, found zeros: there is no btrfs here".into());
    }
    check_magic_first(&sb)?;
    let Some(csum) = CsumType::from_disk(sb.csum_type.get()) else {
        return Err(format!("checksum type {} is not supported", sb.csum_type.get()));
    };
    if !csum.verify(&bytes[32..], &bytes[..csum.size()]) {
        return Err(format!("its {} checksum is wrong", csum.name()));
    }
    check_superblock(&sb, offset).map_err(|v| v.to_string())?;
    Ok(sb)
}

/// A foreign file is told as such, not as a bad checksum.
fn check_magic_first(sb: &Superblock) -> Result<(), String> {
    let magic = sb.magic.get();
    if magic == buttery_disk::superblock::MAGIC || magic == buttery_disk::superblock::MAGIC_UNFINISHED {
        return Ok(());
    }
    Err(format!("magic must be _BHRfS_M, found {:?}", String::from_utf8_lossy(&magic.to_le_bytes())))
}

/// Reads the chosen copy; a failure tells how the other copies are and what to try.
pub fn open_member(device: Arc<dyn Device>, copy: usize) -> Result<Member, Error> {
    match read_super(&*device, copy) {
        Ok(sb) => Ok(Member { device, sb }),
        Err(rule) => {
            let advice = other_copies(&*device, copy);
            Err(Error::Super { device: device.name().to_owned(), offset: OFFSETS[copy], rule, advice })
        }
    }
}

fn other_copies(device: &dyn Device, bad: usize) -> String {
    let (mut text, mut good) = (String::new(), None);
    for copy in (0..OFFSETS.len()).filter(|&c| c != bad) {
        match read_super(device, copy) {
            Ok(sb) => {
                good = good.or(Some(copy));
                text += &format!(
                    "; copy {copy} at {} is good, generation {}",
                    OFFSETS[copy],
                    sb.generation.get()
                );
            }
            Err(rule) => text += &format!("; copy {copy} at {}: {rule}", OFFSETS[copy]),
        }
    }
    match good {
        Some(copy) => text + &format!(" - try --super {copy}"),
        None => text,
    }
}

/// The member whose superblock speaks for the file system: the newest one that is no seed, or the only seed.
pub fn leader(members: &[Member]) -> Result<usize, Error> {
    let newest = |seed: bool| {
        (0..members.len())
            .filter(|&i| members[i].is_seed() == seed)
            .max_by_key(|&i| members[i].sb.generation.get())
    };
    let lead = newest(false)
        .or_else(|| newest(true))
        .ok_or_else(|| Error::Inconsistent("no device given".into()))?;
    let main = &members[lead];
    for other in members.iter().filter(|m| !m.is_seed()) {
        if other.sb.fsid != main.sb.fsid {
            return Err(Error::Inconsistent(format!(
                "{} belongs to file system {}, but {} to {}",
                other.device.name(),
                uuid_text(&other.sb.fsid),
                main.device.name(),
                uuid_text(&main.sb.fsid)
            )));
        }
    }
    Ok(lead)
}
