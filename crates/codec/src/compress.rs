//! Compressing data as the kernel does: at most 128 KiB at a time, one stream each.

use crate::{Compression, lzo};

/// The most that is compressed at once.
pub const COMPRESS_MAX: usize = 128 << 10;
const SECTOR: usize = 4096;
/// The kernel decodes no zstd frame with a larger window.
const ZSTD_WINDOW_LOG: u32 = 17;

/// An algorithm and how hard it tries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Method {
    /// The algorithm.
    pub algorithm: Compression,
    /// zlib: 1 to 9. zstd: −15 to 15. LZO has no levels.
    pub level: i32,
}

impl Method {
    /// The method by the name that mount options and the property `btrfs.compression` have for it, with an optional
    /// `:LEVEL`, which is brought into its bounds; level 0 is the default one, as none is.
    pub fn parse(text: &str) -> Option<Method> {
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, level.parse().ok()?),
            None => (text, 0),
        };
        let (algorithm, least, most) = match name {
            "zlib" => (Compression::Zlib, 1, 9),
            "lzo" => (Compression::Lzo, 0, 0),
            "zstd" => (Compression::Zstd, -15, 15),
            _ => return None,
        };
        let level = if level == 0 && algorithm != Compression::Lzo { 3 } else { level };
        Some(Method { algorithm, level: level.clamp(least, most) })
    }
}

/// Compresses at most [`COMPRESS_MAX`] bytes. `None` if the result would not be shorter than `below`.
pub fn compress(method: Method, data: &[u8], below: usize) -> Option<Vec<u8>> {
    let out = match method.algorithm {
        Compression::Zlib => zlib(data, method.level as u32),
        Compression::Lzo => Some(lzo_segments(data)),
        Compression::Zstd => zstd_frame(data, method.level),
    }?;
    (out.len() < below).then_some(out)
}

fn zlib(data: &[u8], level: u32) -> Option<Vec<u8>> {
    let mut state = flate2::Compress::new(flate2::Compression::new(level), true);
    let mut out = Vec::with_capacity(data.len());
    // what does not fit into the room of the data is of no use
    match state.compress_vec(data, &mut out, flate2::FlushCompress::Finish) {
        Ok(flate2::Status::StreamEnd) => Some(out),
        _ => None,
    }
}

fn zstd_frame(data: &[u8], level: i32) -> Option<Vec<u8>> {
    use zstd::zstd_safe::CParameter;
    let mut compressor = zstd::bulk::Compressor::new(level).ok()?;
    compressor.set_parameter(CParameter::WindowLog(ZSTD_WINDOW_LOG)).ok()?;
    compressor.compress(data).ok()
}

/// A total length, then a segment for each sector behind its own length, which never straddles a sector.
fn lzo_segments(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    out.extend([0; 4]);
    for part in data.chunks(SECTOR) {
        if SECTOR - out.len() % SECTOR < 4 {
            out.resize(out.len().next_multiple_of(SECTOR), 0);
        }
        let at = out.len();
        out.extend([0; 4]);
        lzo::encode(part, &mut out);
        let len = (out.len() - at - 4) as u32;
        out[at..at + 4].copy_from_slice(&len.to_le_bytes());
    }
    let total = out.len() as u32;
    out[..4].copy_from_slice(&total.to_le_bytes());
    out
}

/// How many bytes in all are looked at, a few at each place.
const SAMPLE: usize = 16;
const SAMPLE_EVERY: usize = 256;

/// Whether data look as if they could become shorter, by a sample: few different bytes, or bytes that are far from
/// equally frequent.
pub fn looks_compressible(data: &[u8]) -> bool {
    let mut counts = [0u32; 256];
    let mut total = 0;
    for place in data.chunks(SAMPLE_EVERY) {
        let sample = &place[..place.len().min(SAMPLE)];
        sample.iter().for_each(|&b| counts[b as usize] += 1);
        total += sample.len() as u32;
    }
    if total < 256 {
        return true; // too little to tell
    }
    let different = counts.iter().filter(|&&n| n > 0).count();
    if different < 64 {
        return true;
    }
    // the bits that a byte carries, of eight
    let entropy: f64 = counts
        .iter()
        .filter(|&&n| n > 0)
        .map(|&n| {
            let p = f64::from(n) / f64::from(total);
            -p * p.log2()
        })
        .sum();
    entropy < 0.85 * 8.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decompress;

    fn text(len: usize) -> Vec<u8> {
        (0..len).map(|i| b"the quick brown fox jumps over it "[(i * i / 77) % 34]).collect()
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut x = 1u64;
        (0..len)
            .map(|_| {
                x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (x >> 56) as u8
            })
            .collect()
    }

    #[test]
    fn what_is_compressed_decodes() {
        for name in ["zlib", "zlib:1", "zlib:9", "lzo", "zstd", "zstd:15", "zstd:-15"] {
            let method = Method::parse(name).expect(name);
            for len in [4097, 8192, 70_000, COMPRESS_MAX] {
                let data = text(len);
                let packed = compress(method, &data, len).expect(name);
                let mut out = vec![1; len];
                decompress(method.algorithm, &packed, &mut out).expect(name);
                assert!(out == data, "{name}, {len} bytes");
            }
            assert_eq!(compress(method, &noise(COMPRESS_MAX), COMPRESS_MAX - SECTOR), None, "{name}");
        }
    }

    #[test]
    fn names_and_levels() {
        let parsed = |text| Method::parse(text).map(|m| (m.algorithm, m.level));
        assert_eq!(parsed("zlib"), Some((Compression::Zlib, 3)));
        assert_eq!(parsed("zlib:99"), Some((Compression::Zlib, 9)));
        assert_eq!(parsed("zstd:-7"), Some((Compression::Zstd, -7)));
        assert_eq!(parsed("zstd:0"), Some((Compression::Zstd, 3)));
        assert_eq!(parsed("lzo"), Some((Compression::Lzo, 0)));
        assert_eq!((parsed("zip"), parsed("zstd:x"), parsed("")), (None, None, None));
    }

    #[test]
    fn the_sample_tells_text_from_noise() {
        assert!(looks_compressible(&text(COMPRESS_MAX)) && looks_compressible(&[0; 9000]));
        assert!(!looks_compressible(&noise(COMPRESS_MAX)));
    }
}
