//! Benchmarks of Buttery, in process: `jobs` runs the data path's loads, `mechanisms` each mechanism against the form
//! that it replaces.
//!
//! Figures are ratios of one run; a machine's speed drifts, so absolute ones say little.
#![forbid(unsafe_code)]

mod chart;
mod codec;
mod cost;
mod image;
mod job;
mod mechanisms;
mod report;

use anyhow::{Result, bail};
use buttery::{Options, parse_size};
use buttery_codec::CsumType;
use buttery_judge::workload::rng::Rng;
use clap::{Parser, Subcommand};
use job::{JOBS, Limit};
use mechanisms::Plan;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Parser)]
#[command(name = "buttery-bench", about = "Measures Buttery in process")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run loads on the data path
    Jobs {
        /// Which; all if none is named
        names: Vec<String>,
        /// How many threads, one run for each
        #[arg(long, value_delimiter = ',', default_value = "2")]
        threads: Vec<usize>,
        /// How many seconds each run takes
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
        /// End after so many operations of each thread instead
        #[arg(long)]
        operations: Option<u64>,
        /// Bytes of a job's files
        #[arg(long, default_value = "2G", value_parser = bytes)]
        size: u64,
        /// An image file to make (a memory file system's, to leave the disk out); in memory if absent
        #[arg(long)]
        image: Option<PathBuf>,
    },
    /// Measure each mechanism of the data path in its two forms
    Mechanisms {
        /// Which; all if none is named
        names: Vec<String>,
        /// Runs of each form, in turn
        #[arg(long, default_value_t = 7)]
        runs: usize,
        /// Bytes of the files; the trees follow from it
        #[arg(long, default_value = "8G", value_parser = bytes)]
        size: u64,
        /// Do one in so many operations of a run
        #[arg(long, default_value_t = 1)]
        shorter: u64,
        /// Count instructions too (needs valgrind)
        #[arg(long)]
        instructions: bool,
        /// Draw the speeds into this file
        #[arg(long)]
        svg: Option<PathBuf>,
    },
    /// Measure compression
    Codec,
    /// Do operations in one form of a mechanism, for counting instructions
    #[command(hide = true)]
    Operations { name: String, form: usize, count: u64 },
}

fn bytes(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| format!("not a size: {text}"))
}

fn main() -> Result<()> {
    match Args::parse().command {
        Command::Jobs { names, threads, seconds, operations, size, image } => {
            for name in &names {
                if !JOBS.iter().any(|j| j.name == name) {
                    bail!("no job is called {name}");
                }
            }
            println!(
                "{:10} {:>7} {:>10} {:>12} {:>10} {:>10}",
                "job", "threads", "MiB/s", "operations", "cpu us/op", "blocked %"
            );
            for job in JOBS.iter().filter(|j| names.is_empty() || names.iter().any(|n| n == j.name)) {
                println!("# {}", job.about);
                let job = job::Job { bytes: size, ..*job };
                let device = image::new(image.as_deref(), size * 5 / 2 + (1 << 30), CsumType::Crc32c)?;
                let fs = image::open(&device, &Options::default())?;
                let files = job::lay_out(&fs, &job, &[1 << 20], &mut Rng::new(1))?;
                for (n, &threads) in threads.iter().enumerate() {
                    let limit = match operations {
                        Some(most) => Limit::Operations(most),
                        None => Limit::Time(Duration::from_secs_f64(seconds)),
                    };
                    let done = job::run(&fs, &files, &job, threads, limit, n as u64)?;
                    println!(
                        "{:10} {threads:>7} {:>10.0} {:>12} {:>10.1} {:>10.1}",
                        job.name,
                        done.speed(),
                        done.operations,
                        done.cpu.as_secs_f64() * 1e6 / done.operations.max(1) as f64,
                        done.blocked.as_secs_f64() * 100.0 / (threads as f64 * done.time.as_secs_f64())
                    );
                }
                fs.close()?;
            }
        }
        Command::Mechanisms { names, runs, size, shorter, instructions, svg } => {
            let plan = Plan { runs, size, shorter: shorter.max(1), instructions };
            return report::mechanisms(&names, plan, svg.as_deref());
        }
        Command::Codec => codec::run(),
        Command::Operations { name, form, count } => return mechanisms::operations(&name, form, count),
    }
    Ok(())
}
