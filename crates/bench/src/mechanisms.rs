//! Each mechanism of the data path in its two forms, in turn, on the same trees.

use crate::cost::{self, Cost};
use crate::image;
use crate::job::{self, Done, Job, Limit, MIXED};
use anyhow::{Context, Result};
use buttery::{
    CsumSubmit, Fallocate, FileId, Filesystem, Mechanisms, NocowCheck, Options, ReadLookup, Replace,
};
use buttery_codec::CsumType;
use buttery_device::Device;
use buttery_judge::workload::rng::Rng;
use std::sync::Arc;

/// A mechanism in two forms.
pub struct Pair {
    /// The name on the command line.
    pub name: &'static str,
    /// What is measured.
    pub about: &'static str,
    /// The forms, the one that should lose first.
    pub forms: [(&'static str, Mechanisms); 2],
    /// By which factor the other should win.
    pub wanted: f64,
    csum: CsumType,
    job: Job,
    /// How many work at a time.
    threads: usize,
    /// Operations of a run, of each thread.
    operations: u64,
}

const FAST: Mechanisms = Mechanisms {
    nocow_check: NocowCheck::AnyInRange,
    replace: Replace::Fused,
    csum_submit: CsumSubmit::Auto,
    read_lookup: ReadLookup::Whole,
};
const SUBMIT: [(&str, Mechanisms); 2] = [
    ("offload", Mechanisms { csum_submit: CsumSubmit::Offload, ..FAST }),
    ("inline", Mechanisms { csum_submit: CsumSubmit::Inline, ..FAST }),
];
const REPLACE: [(&str, Mechanisms); 2] = [
    ("drop + insert", Mechanisms { replace: Replace::DropAndInsert, ..FAST }),
    ("fused", Mechanisms { replace: Replace::Fused, ..FAST }),
];
const READ: [(&str, Mechanisms); 2] = [
    ("per block", Mechanisms { read_lookup: ReadLookup::Sector, ..FAST }),
    ("per read", Mechanisms { read_lookup: ReadLookup::Whole, ..FAST }),
];
const FILES: Job = Job { blocks: &[8 << 10], files: 4096, preallocated: false, ..job::BASE };
const LARGE: Job = Job { blocks: &[1 << 20], access: job::Access::Sequential, ..job::BASE };
const READS: Job = Job { writes: false, preallocated: false, ..job::BASE };

/// All pairs.
pub const PAIRS: &[Pair] = &[
    Pair {
        name: "nocow-check",
        about: "4k to 64k at random into preallocated space",
        forms: [
            ("lookup", Mechanisms { nocow_check: NocowCheck::Lookup, ..FAST }),
            ("any_in_range", Mechanisms { nocow_check: NocowCheck::AnyInRange, ..FAST }),
        ],
        wanted: 1.10,
        csum: CsumType::Crc32c,
        job: job::BASE,
        threads: 1,
        operations: 10_000,
    },
    Pair {
        name: "replace-seq",
        about: "8k one after the other over 4,096 files",
        forms: REPLACE,
        wanted: 1.23,
        csum: CsumType::Crc32c,
        job: Job { access: job::Access::Sequential, ..FILES },
        threads: 1,
        operations: 40_000,
    },
    Pair {
        name: "replace-rnd",
        about: "8k at random over 4,096 files",
        forms: REPLACE,
        wanted: 1.13,
        csum: CsumType::Crc32c,
        job: FILES,
        threads: 1,
        operations: 40_000,
    },
    Pair {
        // as many writers as most machines have processors: nobody is left to hand the work to
        name: "submit-crc32c",
        about: "1m writes by two, crc32c",
        forms: SUBMIT,
        wanted: 1.47,
        csum: CsumType::Crc32c,
        job: LARGE,
        threads: 2,
        operations: 600,
    },
    Pair {
        name: "submit-crc32c-1",
        about: "1m writes by one, crc32c",
        forms: SUBMIT,
        wanted: 1.0,
        csum: CsumType::Crc32c,
        job: LARGE,
        threads: 1,
        operations: 600,
    },
    Pair {
        name: "submit-sha256",
        about: "1m writes, sha256",
        forms: [SUBMIT[1], SUBMIT[0]],
        wanted: 1.0,
        csum: CsumType::Sha256,
        job: LARGE,
        threads: 1,
        operations: 400,
    },
    Pair {
        name: "read-4k",
        about: "reads of 4k at random",
        forms: READ,
        wanted: 1.0,
        csum: CsumType::Crc32c,
        job: Job { blocks: &[4 << 10], ..READS },
        threads: 1,
        operations: 100_000,
    },
    Pair {
        name: "read-64k",
        about: "reads of 64k at random",
        forms: READ,
        wanted: 1.0,
        csum: CsumType::Crc32c,
        job: Job { blocks: &[64 << 10], ..READS },
        threads: 1,
        operations: 20_000,
    },
    Pair {
        name: "read-1m",
        about: "reads of 1m at random",
        forms: READ,
        wanted: 1.0,
        csum: CsumType::Crc32c,
        job: Job { blocks: &[1 << 20], ..READS },
        threads: 1,
        operations: 1500,
    },
];

/// How to measure.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Runs of each form.
    pub runs: usize,
    /// Bytes of the files.
    pub size: u64,
    /// Of each run's operations, one in so many is done.
    pub shorter: u64,
    /// Whether instructions are counted too.
    pub instructions: bool,
}

/// What was measured of a pair.
pub struct Measured {
    /// Operations per second of each run, of both forms.
    pub speeds: [Vec<f64>; 2],
    /// What an operation costs, of both forms.
    pub costs: [Cost; 2],
}

impl Measured {
    /// The middle one of a form's speeds.
    pub fn median(&self, form: usize) -> f64 {
        let mut sorted = self.speeds[form].clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    }

    /// By which factor the second form is faster.
    pub fn ratio(&self) -> f64 {
        self.median(1) / self.median(0)
    }
}

/// Measures a pair: both forms in turn, then what an operation of each costs.
pub fn measure(pair: &Pair, plan: Plan) -> Result<Measured> {
    let mut bed = Bed::new(pair, plan.size)?;
    let operations = (pair.operations / plan.shorter).max(1);
    let mut speeds = [Vec::new(), Vec::new()];
    for run in 0..plan.runs {
        for (form, speeds) in speeds.iter_mut().enumerate() {
            let done = bed.run(form, operations, run as u64)?.0;
            speeds.push(done.operations as f64 / done.time.as_secs_f64());
        }
    }
    let mut costs = [Cost::default(); 2];
    for (form, cost) in costs.iter_mut().enumerate() {
        *cost = bed.run(form, operations, 99)?.1;
        if plan.instructions {
            cost.instructions = cost::instructions(pair.name, form, (operations / 10).clamp(20, 1000))
                .context("counting instructions")?;
        }
    }
    Ok(Measured { speeds, costs })
}

/// Does so many operations in one form: for [`cost::instructions`], which runs it in a program of its own.
pub fn operations(name: &str, form: usize, count: u64) -> Result<()> {
    let pair = PAIRS.iter().find(|p| p.name == name).with_context(|| format!("no pair is called {name}"))?;
    const SMALL: u64 = 32 << 20;
    Bed::new(pair, SMALL)?.run(form, count, 1)?;
    Ok(())
}

/// A file system with what a pair needs.
struct Bed<'a> {
    pair: &'a Pair,
    job: Job,
    device: Arc<dyn Device>,
    files: Vec<FileId>,
}

impl Bed<'_> {
    fn new(pair: &Pair, size: u64) -> Result<Bed<'_>> {
        // what is written is a part of what is there, and needs as much again while it is copied on write
        let blocks = pair.job.blocks.iter().copied().max().unwrap_or(4096) * pair.job.files;
        let bytes = if pair.job.writes { (size / 8).max(2 * blocks as u64) } else { size };
        let job = Job { name: pair.name, bytes, ..pair.job };
        let device = image::new(None, size + 3 * bytes * u64::from(job.writes) + (1 << 30), pair.csum)?;
        let fs = image::open(&device, &Options::default())?;
        let mut rng = Rng::new(1);
        // trees as large as a fragmented file makes them
        let filler = Job { name: "filler", bytes: size, files: 1, preallocated: false, ..job };
        if job.writes {
            job::lay_out(&fs, &filler, MIXED, &mut rng)?;
        }
        let files = job::lay_out(&fs, &job, MIXED, &mut rng)?;
        fs.close()?;
        Ok(Bed { pair, job, device, files })
    }

    /// One run of a form, with caches warm.
    fn run(&mut self, form: usize, operations: u64, seed: u64) -> Result<(Done, Cost)> {
        let mechanisms = self.pair.forms[form].1;
        let options = Options { mechanisms, commit_secs: 100_000, ..Options::default() };
        let fs = image::open(&self.device, &options)?;
        if self.job.preallocated {
            self.preallocate_again(&fs)?;
        }
        let limit = |n: u64| Limit::Operations(n);
        let threads = self.pair.threads;
        job::run(&fs, &self.files, &self.job, threads, limit(operations.div_ceil(8)), seed + 500)?;
        fs.sync()?;
        let done = job::run(&fs, &self.files, &self.job, threads, limit(operations), seed)?;
        fs.close()?;
        let cost = done.cost;
        Ok((done, cost))
    }

    /// What was written becomes preallocated again.
    fn preallocate_again(&self, fs: &Filesystem) -> Result<()> {
        for &file in &self.files {
            fs.fallocate(file, Fallocate::PunchHole, 0, self.job.bytes, true)?;
            fs.sync()?;
            fs.fallocate(file, Fallocate::Allocate, 0, self.job.bytes / self.job.files as u64, false)?;
        }
        Ok(fs.sync()?)
    }
}
