//! Compressing what is written, unit by unit; the units of a large write by several workers.

use super::write::Compress;
use crate::{Engine, Result};
use buttery_codec::{COMPRESS_MAX, Compression, compress, looks_compressible};
use buttery_disk::superblock::incompat;
use std::collections::VecDeque;

/// What a piece of data became.
pub(super) struct Packed {
    pub algorithm: Compression,
    /// Whole sectors, the last one filled with zeros.
    pub bytes: Vec<u8>,
    /// Bytes of the data.
    pub len: u64,
}

/// The units of a write, compressed ahead.
#[derive(Default)]
pub(super) struct Units {
    /// Where the first of them begins in the file.
    at: u64,
    ahead: VecDeque<Option<Packed>>,
}

/// How many units are compressed at a time, at most.
const AHEAD_MAX: usize = 16;

impl Units {
    /// The first unit of the whole sectors at `at`, if it wins a sector by being compressed.
    pub fn next(&mut self, engine: &Engine, how: Compress, at: u64, data: &[u8]) -> Option<Packed> {
        let fits = |unit: &Option<Packed>| unit.as_ref().is_none_or(|p| p.len <= data.len() as u64);
        if self.at != at || !self.ahead.front().is_some_and(fits) {
            self.ahead = compress_units(engine, how, &data[..data.len().min(AHEAD_MAX * COMPRESS_MAX)]);
        }
        self.at = at + COMPRESS_MAX as u64;
        self.ahead.pop_front().flatten()
    }
}

fn compress_units(engine: &Engine, how: Compress, data: &[u8]) -> VecDeque<Option<Packed>> {
    let sector = engine.volume().context().sectorsize as usize;
    let units = data.chunks(COMPRESS_MAX);
    let workers = (units.len() > 1).then(|| engine.submitter.workers()).flatten();
    let Some(workers) = workers else {
        return units.map(|unit| compressed(sector, how, unit)).collect();
    };
    let mut out: VecDeque<Option<Packed>> = units.clone().map(|_| None).collect();
    workers.in_place_scope(|scope| {
        for (unit, place) in units.zip(&mut out) {
            scope.spawn(move |_| *place = compressed(sector, how, unit));
        }
    });
    out
}

/// Compresses a unit of whole sectors, if a sector is won.
fn compressed(sector: usize, how: Compress, data: &[u8]) -> Option<Packed> {
    if data.len() <= sector || !how.force && !looks_compressible(data) {
        return None;
    }
    let mut bytes = compress(how.method, data, data.len() - sector + 1)?;
    bytes.resize(bytes.len().next_multiple_of(sector), 0);
    Some(Packed { algorithm: how.method.algorithm, bytes, len: data.len() as u64 })
}

/// The first use of an algorithm is told by the superblock of the commit that brings it.
pub(super) fn note_algorithm(engine: &Engine, algorithm: Compression) -> Result<()> {
    let bit = match algorithm {
        Compression::Zlib => return Ok(()),
        Compression::Lzo => incompat::COMPRESS_LZO,
        Compression::Zstd => incompat::COMPRESS_ZSTD,
    };
    let mut sb = engine.writer()?.sb.lock();
    sb.incompat_flags = (sb.incompat_flags.get() | bit).into();
    Ok(())
}
