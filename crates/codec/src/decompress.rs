//! What the data of a compressed extent become.
//!
//! A compressed extent holds one stream: zlib and zstd as their libraries frame it; LZO as segments of at most one
//! sector each, behind a total length, each behind its own length that never straddles a sector. The stream may be
//! followed by padding and may decode to more than was asked for.

use thiserror::Error;

/// A compression algorithm, by the number in the file extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    Zlib,
    Lzo,
    Zstd,
}

/// The stream is not what its algorithm writes.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{algorithm:?} stream is damaged: {what}")]
pub struct DecompressError {
    pub algorithm: Compression,
    pub what: &'static str,
}

/// The kernel compresses 128 KiB at a time and allows a window of that size.
const ZSTD_WINDOW_LOG_MAX: u32 = 17;
const SECTOR: usize = 4096;

impl Compression {
    /// The algorithm with this number; `None` for "none" and for numbers that the format does not have.
    pub fn from_disk(number: u8) -> Option<Compression> {
        match number {
            1 => Some(Compression::Zlib),
            2 => Some(Compression::Lzo),
            3 => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// Its number in a file extent.
    pub fn to_disk(self) -> u8 {
        match self {
            Compression::Zlib => 1,
            Compression::Lzo => 2,
            Compression::Zstd => 3,
        }
    }
}

/// Decodes `input` into `output`. A stream that ends early leaves zeros behind it, as the kernel has it; one that
/// holds more is cut at the output's end.
pub fn decompress(algorithm: Compression, input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
    let decoded = match algorithm {
        Compression::Zlib => zlib(input, output),
        Compression::Lzo => lzo(input, output),
        Compression::Zstd => zstd_stream(input, output),
    };
    let len = decoded.map_err(|what| DecompressError { algorithm, what })?;
    output[len..].fill(0);
    Ok(())
}

fn zlib(input: &[u8], output: &mut [u8]) -> Result<usize, &'static str> {
    let mut state = flate2::Decompress::new(true);
    match state.decompress(input, output, flate2::FlushDecompress::Finish) {
        Ok(flate2::Status::StreamEnd) => Ok(state.total_out() as usize),
        Ok(_) if state.total_out() as usize == output.len() => Ok(output.len()),
        Ok(_) => Err("the stream is cut off"),
        Err(_) => Err("not a deflate stream"),
    }
}

fn zstd_stream(input: &[u8], output: &mut [u8]) -> Result<usize, &'static str> {
    use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};
    let mut decoder = Decoder::new().map_err(|_| "no decoder")?;
    decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX)).map_err(|_| "no window limit")?;
    let size = output.len();
    let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(output));
    loop {
        let before = (from.pos(), to.pos());
        let hint = decoder.run(&mut from, &mut to).map_err(|_| "not a zstd frame")?;
        if hint == 0 || to.pos() == size {
            return Ok(to.pos());
        }
        if (from.pos(), to.pos()) == before {
            return Err("the frame is cut off");
        }
    }
}

fn lzo(input: &[u8], output: &mut [u8]) -> Result<usize, &'static str> {
    let total = le32(input, 0).ok_or("no total length")?;
    let input = input.get(..total).ok_or("total length exceeds the extent")?;
    let (mut at, mut done) = (4, 0);
    let mut sector = [0u8; SECTOR];
    while at < total && done < output.len() {
        if SECTOR - at % SECTOR < 4 {
            at = at.next_multiple_of(SECTOR);
            if at >= total {
                break;
            }
        }
        let len = le32(input, at).ok_or("a segment length is cut off")?;
        let segment = input.get(at + 4..).and_then(|rest| rest.get(..len)).ok_or("a segment is cut off")?;
        at += 4 + len;
        let room = &mut output[done..];
        if room.len() >= SECTOR {
            done += lzokay::decompress::decompress(segment, &mut room[..SECTOR])
                .map_err(|_| "a segment is damaged")?;
        } else {
            let got =
                lzokay::decompress::decompress(segment, &mut sector).map_err(|_| "a segment is damaged")?;
            let take = got.min(room.len());
            room[..take].copy_from_slice(&sector[..take]);
            done += take;
        }
    }
    Ok(done)
}

fn le32(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> Vec<u8> {
        (0..20_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect()
    }

    fn streams() -> [(Compression, Vec<u8>); 3] {
        let data = text();
        ["zlib", "lzo", "zstd"].map(|name| {
            let method = crate::Method::parse(name).unwrap();
            (method.algorithm, crate::compress(method, &data, data.len()).unwrap())
        })
    }

    #[test]
    fn padding_shortening_and_lengthening() {
        let data = text();
        for (kind, mut stream) in streams() {
            stream.resize(stream.len().next_multiple_of(SECTOR), 0);
            let mut out = vec![1; data.len()];
            decompress(kind, &stream, &mut out).unwrap();
            assert_eq!(out, data, "{kind:?} with padding");
            let mut short = vec![1; 5000];
            decompress(kind, &stream, &mut short).unwrap();
            assert_eq!(short, data[..5000], "{kind:?} cut at the output's end");
            let mut long = vec![1; data.len() + 9000];
            decompress(kind, &stream, &mut long).unwrap();
            assert_eq!(long[..data.len()], data);
            assert!(long[data.len()..].iter().all(|&b| b == 0), "{kind:?} fills with zeros");
        }
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic() {
        for (kind, stream) in streams() {
            let mut out = vec![0; 80_000];
            assert!(decompress(kind, &stream[..stream.len() / 2], &mut out).is_err(), "{kind:?} cut off");
            for seed in 0..500usize {
                let mut bad = stream.clone();
                let at = (seed * 7919) % bad.len();
                bad[at] ^= 1 << (seed % 8);
                let _ = decompress(kind, &bad, &mut out);
            }
            assert!(decompress(kind, &[], &mut out).is_err());
        }
    }
}
