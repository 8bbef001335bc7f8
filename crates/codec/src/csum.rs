//! The four checksums of the format.

/// A checksum algorithm, by the superblock's `csum_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CsumType {
    Crc32c,
    Xxhash64,
    Sha256,
    Blake2b,
}

/// A checksum in the format's field of 32 bytes, shorter ones followed by zeros.
pub type Csum = [u8; 32];

impl CsumType {
    /// The algorithm with this number; `None` for a number that the format does not have.
    pub fn from_disk(number: u16) -> Option<CsumType> {
        [CsumType::Crc32c, CsumType::Xxhash64, CsumType::Sha256, CsumType::Blake2b]
            .get(number as usize)
            .copied()
    }

    /// The superblock's number for the algorithm.
    pub fn to_disk(self) -> u16 {
        self as u16
    }

    /// Bytes of a checksum.
    pub fn size(self) -> usize {
        match self {
            CsumType::Crc32c => 4,
            CsumType::Xxhash64 => 8,
            CsumType::Sha256 | CsumType::Blake2b => 32,
        }
    }

    /// The name that mkfs.btrfs takes and the kernel prints.
    pub fn name(self) -> &'static str {
        match self {
            CsumType::Crc32c => "crc32c",
            CsumType::Xxhash64 => "xxhash64",
            CsumType::Sha256 => "sha256",
            CsumType::Blake2b => "blake2b",
        }
    }

    /// The algorithm that mkfs.btrfs would take for this name.
    pub fn from_name(name: &str) -> Option<CsumType> {
        Some(match name.to_ascii_lowercase().as_str() {
            "crc32c" => CsumType::Crc32c,
            "xxhash" | "xxhash64" => CsumType::Xxhash64,
            "sha256" => CsumType::Sha256,
            "blake2" | "blake2b" => CsumType::Blake2b,
            _ => return None,
        })
    }

    /// Whether the processor computes it with instructions made for it, or it needs none to be fast: what the kernel
    /// calls a fast implementation.
    pub fn is_accelerated(self) -> bool {
        match self {
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            CsumType::Crc32c => std::arch::is_x86_feature_detected!("sse4.2"),
            #[cfg(target_arch = "aarch64")]
            CsumType::Crc32c => std::arch::is_aarch64_feature_detected!("crc"),
            #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
            CsumType::Crc32c => false,
            CsumType::Xxhash64 => true,
            CsumType::Sha256 | CsumType::Blake2b => false,
        }
    }

    /// The checksum of `data`.
    pub fn sum(self, data: &[u8]) -> Csum {
        let mut out = [0; 32];
        match self {
            CsumType::Crc32c => out[..4].copy_from_slice(&crc32c::crc32c(data).to_le_bytes()),
            CsumType::Xxhash64 => out[..8].copy_from_slice(&xxhash_rust::xxh64::xxh64(data, 0).to_le_bytes()),
            CsumType::Sha256 => {
                use sha2::Digest;
                out.copy_from_slice(&sha2::Sha256::digest(data));
            }
            CsumType::Blake2b => {
                out.copy_from_slice(blake2b_simd::Params::new().hash_length(32).hash(data).as_bytes());
            }
        }
        out
    }

    /// Whether `sum`, of [`size`](Self::size) bytes, is that of `data`.
    pub fn verify(self, data: &[u8], sum: &[u8]) -> bool {
        self.sum(data)[..self.size()] == *sum
    }

    /// Appends the checksum of each `block_len` bytes of `data` to `out`.
    pub fn sum_blocks(self, data: &[u8], block_len: usize, out: &mut Vec<u8>) {
        out.reserve(data.len().div_ceil(block_len) * self.size());
        for block in data.chunks(block_len) {
            out.extend_from_slice(&self.sum(block)[..self.size()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn published_test_vectors() {
        let sum = |kind: CsumType, data: &[u8]| hex(&kind.sum(data)[..kind.size()]);
        assert_eq!(sum(CsumType::Crc32c, b"123456789"), "839206e3");
        assert_eq!(sum(CsumType::Xxhash64, b""), "99e9d85137db46ef");
        assert_eq!(
            sum(CsumType::Sha256, b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(
            sum(CsumType::Blake2b, b""),
            "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"
        );
    }
}
