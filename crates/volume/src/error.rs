//! What can go wrong between a logical address and its devices.

use std::fmt;
use std::io;
use thiserror::Error;

/// An error of the volume: which device, which address, which rule.
#[derive(Debug, Error)]
pub enum Error {
    /// A device's superblock cannot be used.
    #[error("{device}: superblock at {offset}: {rule}{advice}")]
    Super { device: String, offset: u64, rule: String, advice: String },
    /// A device failed.
    #[error("{device}: {op} of {len} bytes at {offset}: {source}")]
    Device { device: String, op: &'static str, offset: u64, len: usize, source: io::Error },
    /// No copy of a block, or of a range of data, is good.
    #[error("{0}")]
    Block(#[from] Box<BlockError>),
    /// An address that no chunk holds.
    #[error("logical address {logical} (+{len}): no chunk maps it")]
    NoChunk { logical: u64, len: u64 },
    /// Something that Buttery does not read or write yet.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// A device that the file system has was not given.
    #[error(
        "device {devid} ({uuid}) is missing: name it with -d (after -o of mount: as a further device), or use -o degraded"
    )]
    Missing { devid: u64, uuid: String },
    /// The devices or chunks contradict each other.
    #[error("{0}")]
    Inconsistent(String),
}

/// A block none of whose copies could be trusted.
#[derive(Debug)]
pub struct BlockError {
    /// The logical address.
    pub bytenr: u64,
    /// What was wrong with each copy.
    pub tries: Vec<Attempt>,
}

/// One copy of a block that was no good.
#[derive(Clone, Debug)]
pub struct Attempt {
    pub device: String,
    pub physical: u64,
    pub rule: String,
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}: no good copy", self.bytenr)?;
        for (i, t) in self.tries.iter().enumerate() {
            write!(f, "{} {} at {}: {}", if i == 0 { ":" } else { ";" }, t.device, t.physical, t.rule)?;
        }
        Ok(())
    }
}

impl std::error::Error for BlockError {}

/// A uuid as everyone writes it.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
