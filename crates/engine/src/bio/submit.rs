//! Writing file data: summed and sent to every mirror, by the writer or by workers.
//!
//! A fast checksum is computed where the write is submitted: handing it over would cost more. A slow one is worth
//! several processors, where the write is large and nobody counts the microseconds.

use super::Wait;
use crate::mechanisms::CsumSubmit;
use crate::{Engine, Error, Result};
use buttery_codec::CsumType;
use rayon_core::{ThreadPool, ThreadPoolBuilder};
use std::sync::OnceLock;
use std::time::Instant;

/// What one worker takes at a time. A write of less than two is not worth handing over.
const PIECE: usize = 128 << 10;
/// How many workers there are at most.
const WORKERS_MAX: usize = 8;
/// A checksum that does so many bytes in a second is fast.
const FAST_BYTES_PER_SEC: f64 = 1.5e9;

/// Who sums and submits.
pub(crate) struct Submitter {
    mode: CsumSubmit,
    /// Whether the checksum is fast, once somebody wanted to know.
    fast: OnceLock<bool>,
    /// The workers, once they are needed; `None` if there are none to be had.
    workers: OnceLock<Option<ThreadPool>>,
}

impl Submitter {
    pub fn new(mode: CsumSubmit) -> Submitter {
        Submitter { mode, fast: OnceLock::new(), workers: OnceLock::new() }
    }

    /// The workers, for whatever takes long.
    pub fn workers(&self) -> Option<&ThreadPool> {
        self.workers.get_or_init(start_workers).as_ref()
    }

    /// The workers, if this write is theirs.
    fn workers_for(&self, engine: &Engine, len: usize, summed: bool, wait: Wait) -> Option<&ThreadPool> {
        let wanted = match self.mode {
            CsumSubmit::Inline => false,
            CsumSubmit::Offload => true,
            CsumSubmit::Auto => {
                let fast = || *self.fast.get_or_init(|| is_fast(engine.volume().csum()));
                summed && wait == Wait::No && !fast()
            }
        };
        if !wanted || len < 2 * PIECE || engine.volume().is_zoned() {
            return None;
        }
        self.workers()
    }
}

/// As many workers as processors, within bounds.
fn start_workers() -> Option<ThreadPool> {
    let count = std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX);
    let name = |n| format!("data-{n}");
    match ThreadPoolBuilder::new().num_threads(count).thread_name(name).build() {
        Ok(pool) => Some(pool),
        Err(error) => {
            tracing::warn!("no workers for checksums: {error}");
            None
        }
    }
}

/// Whether a checksum is fast here: by what the processor has, as the kernel says it, and by trying.
fn is_fast(csum: CsumType) -> bool {
    if !csum.is_accelerated() {
        return false;
    }
    let data = vec![0x5a; 64 << 10];
    let best = (0..3)
        .map(|_| {
            let began = Instant::now();
            std::hint::black_box(csum.sum(std::hint::black_box(&data)));
            began.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    data.len() as f64 >= best * FAST_BYTES_PER_SEC
}

/// Writes data to every mirror of a logical address; address and length are aligned to the sector size. Answers the
/// checksums, one for each sector, if they are `summed`. Returns when the devices have the data.
pub fn write(engine: &Engine, bytenr: u64, data: &[u8], summed: bool, wait: Wait) -> Result<Vec<u8>> {
    let volume = engine.volume();
    let (sector, csum) = (volume.context().sectorsize as usize, volume.csum());
    let Some(workers) = engine.submitter.workers_for(engine, data.len(), summed, wait) else {
        let mut sums = Vec::new();
        if summed {
            csum.sum_blocks(data, sector, &mut sums);
        }
        volume.write(bytenr, data)?;
        return Ok(sums);
    };
    let pieces: Vec<(u64, &[u8])> =
        data.chunks(PIECE).enumerate().map(|(n, piece)| (bytenr + (n * PIECE) as u64, piece)).collect();
    let mut done: Vec<Result<Vec<u8>>> = pieces.iter().map(|_| Err(Error::Aborted)).collect();
    workers.in_place_scope(|scope| {
        for ((at, piece), done) in pieces.into_iter().zip(&mut done) {
            scope.spawn(move |_| {
                let mut sums = Vec::new();
                if summed {
                    csum.sum_blocks(piece, sector, &mut sums);
                }
                *done = volume.write(at, piece).map(|()| sums).map_err(Error::from);
            });
        }
    });
    let mut sums = Vec::with_capacity(data.len() / sector * csum.size());
    for part in done {
        sums.extend(part?);
    }
    Ok(sums)
}
