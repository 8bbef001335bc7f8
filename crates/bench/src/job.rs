//! The jobs: what is read or written, in which order, by how many threads.

use crate::cost::{Cost, Meter};
use anyhow::{Context, Result};
use buttery::{Fallocate, FileId, Filesystem, NewNode, attr};
use buttery_judge::workload::rng::Rng;
use cpu_time::ProcessTime;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Whether a job reads or writes, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// One block after the other.
    Sequential,
    /// At random multiples of the block's size.
    Random,
}

/// What a job does.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// The name on the command line.
    pub name: &'static str,
    /// What it stands for; shown by `jobs`.
    pub about: &'static str,
    /// Whether it writes; else it reads what was laid out before.
    pub writes: bool,
    /// The order of its blocks.
    pub access: Access,
    /// Bytes of a block; one of them at random for each.
    pub blocks: &'static [usize],
    /// How many files it uses.
    pub files: usize,
    /// Bytes of all files together.
    pub bytes: u64,
    /// Whether the files are preallocated, rather than written, before.
    pub preallocated: bool,
    /// Whether the files are not copied on write.
    pub nocow: bool,
}

/// From 4k to 64k.
pub const MIXED: &[usize] = &[4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// What the jobs have in common.
pub const BASE: Job = Job {
    name: "",
    about: "",
    writes: true,
    access: Access::Random,
    blocks: MIXED,
    files: 1,
    bytes: 2 << 30,
    preallocated: true,
    nocow: false,
};

/// All jobs, by the names that they have elsewhere.
pub const JOBS: &[Job] = &[
    Job { name: "s0", about: "4k to 64k at random into preallocated space, then copied on write", ..BASE },
    Job { name: "s0-nocow", about: "the same into a file that is not copied on write", nocow: true, ..BASE },
    Job {
        name: "s1-seq",
        about: "8k one after the other into 1,024 files",
        access: Access::Sequential,
        blocks: &[8 << 10],
        files: 1024,
        preallocated: false,
        ..BASE
    },
    Job {
        name: "s1-rnd",
        about: "8k at random into 1,024 files",
        blocks: &[8 << 10],
        files: 1024,
        preallocated: false,
        ..BASE
    },
    Job {
        name: "s2",
        about: "1m one after the other into a preallocated file",
        access: Access::Sequential,
        blocks: &[1 << 20],
        ..BASE
    },
    Job {
        name: "s3-4k",
        about: "reads of 4k at random",
        writes: false,
        blocks: &[4 << 10],
        preallocated: false,
        ..BASE
    },
    Job {
        name: "s3-1m",
        about: "reads of 1m one after the other",
        writes: false,
        access: Access::Sequential,
        blocks: &[1 << 20],
        preallocated: false,
        ..BASE
    },
];

/// When a job ends.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// After this time.
    Time(Duration),
    /// After so many operations of each thread.
    Operations(u64),
}

/// What a job did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    /// How many blocks.
    pub operations: u64,
    /// How many bytes.
    pub bytes: u64,
    /// In what time.
    pub time: Duration,
    /// Of the processors, commits in the background included.
    pub cpu: Duration,
    /// Of all threads together, how long they neither ran nor waited for a processor: for locks, and commits of others.
    pub blocked: Duration,
    /// What an operation cost, on average over the threads.
    pub cost: Cost,
}

impl Done {
    /// The speed in MiB/s.
    pub fn speed(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) / self.time.as_secs_f64()
    }
}

/// Makes a job's files; their contents are written in pieces of `piece` bytes.
pub fn lay_out(fs: &Filesystem, job: &Job, piece: &[usize], rng: &mut Rng) -> Result<Vec<FileId>> {
    let each = job.bytes / job.files as u64;
    let data = noise(piece.iter().copied().max().unwrap_or(4096), rng);
    let mut files = Vec::new();
    for n in 0..job.files {
        let name = format!("{}-{n}", job.name);
        let file = fs.create(fs.root(), name.as_bytes(), NewNode::file(0o644)).context("create")?;
        if job.nocow {
            fs.set_attr_flags(file, attr::NOCOW)?;
        }
        if job.preallocated {
            fs.fallocate(file, Fallocate::Allocate, 0, each, false)?;
        } else {
            let mut at = 0;
            while at < each {
                let len = piece[rng.below(piece.len() as u64) as usize].min((each - at) as usize);
                fs.write(file, at, &data[..len])?;
                at += len as u64;
            }
        }
        files.push(file);
    }
    fs.sync()?;
    Ok(files)
}

/// Runs a job with so many threads.
pub fn run(
    fs: &Filesystem,
    files: &[FileId],
    job: &Job,
    threads: usize,
    limit: Limit,
    seed: u64,
) -> Result<Done> {
    let next = AtomicU64::new(0);
    let began = Instant::now();
    let cpu = ProcessTime::now();
    let parts: Vec<Result<Done>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads as u64)
            .map(|n| {
                let next = &next;
                scope.spawn(move || one_thread(fs, files, job, limit, seed * 1000 + n, next, began))
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap_or_else(|_| anyhow::bail!("a thread panicked"))).collect()
    });
    let mut sum = Done { time: began.elapsed(), cpu: cpu.elapsed(), ..Done::default() };
    let threads = parts.len() as f64;
    for part in parts {
        let part = part?;
        sum.cost.descents += part.cost.descents / threads;
        sum.cost.copied_bytes += part.cost.copied_bytes / threads;
        sum.cost.allocations += part.cost.allocations / threads;
        sum.operations += part.operations;
        sum.bytes += part.bytes;
        sum.blocked += part.blocked;
    }
    Ok(sum)
}

fn one_thread(
    fs: &Filesystem,
    files: &[FileId],
    job: &Job,
    limit: Limit,
    seed: u64,
    next: &AtomicU64,
    began: Instant,
) -> Result<Done> {
    let mut rng = Rng::new(seed);
    let largest = job.blocks.iter().copied().max().unwrap_or(4096);
    let mut buf = noise(largest, &mut rng);
    let each = job.bytes / job.files as u64;
    let mut done = Done::default();
    let meter = Meter::start();
    let lived = Instant::now();
    loop {
        let ends = match limit {
            Limit::Time(time) => began.elapsed() >= time,
            Limit::Operations(most) => done.operations >= most,
        };
        if ends {
            let blocked = lived.elapsed().saturating_sub(awake()?);
            return Ok(Done { cost: meter.stop(done.operations), blocked, ..done });
        }
        let len = job.blocks[rng.below(job.blocks.len() as u64) as usize];
        let (file, at) = match job.access {
            Access::Random => {
                (rng.below(files.len() as u64) as usize, rng.below(each / len as u64) * len as u64)
            }
            Access::Sequential => {
                // file after file, over and over
                let at = next.fetch_add(len as u64, Ordering::Relaxed) % job.bytes;
                ((at / each) as usize, at % each)
            }
        };
        if job.writes {
            fs.write(files[file], at, &buf[..len])?;
        } else {
            let got = fs.read(files[file], at, &mut buf[..len])?;
            anyhow::ensure!(got == len, "{} bytes of {len} read", got);
        }
        done.operations += 1;
        done.bytes += len as u64;
    }
}

/// How long this thread has run or waited for a processor, all its life.
fn awake() -> Result<Duration> {
    let text =
        std::fs::read_to_string("/proc/thread-self/schedstat").context("/proc/thread-self/schedstat")?;
    let times = text.split_whitespace().take(2).map(str::parse::<u64>);
    Ok(Duration::from_nanos(times.sum::<Result<u64, _>>()?))
}

/// Data that cannot be compressed.
fn noise(len: usize, rng: &mut Rng) -> Vec<u8> {
    let mut data = vec![0; len];
    for chunk in data.chunks_mut(8) {
        chunk.copy_from_slice(&rng.next().to_le_bytes()[..chunk.len()]);
    }
    data
}
