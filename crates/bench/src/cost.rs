//! What an operation costs, however fast the machine is: descents, copies, allocations, instructions.

use anyhow::{Context, Result, bail};
use buttery::count::{self, Counts};
use stats_alloc::{INSTRUMENTED_SYSTEM, Stats, StatsAlloc};
use std::alloc::System;
use std::process::Command;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The costs of one operation, on average.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Descents of trees.
    pub descents: f64,
    /// Bytes of items and blocks copied.
    pub copied_bytes: f64,
    /// Allocations of memory, of all threads.
    pub allocations: f64,
    /// Instructions; 0 where they were not counted.
    pub instructions: f64,
}

/// Counts from here on.
pub struct Meter {
    counts: Counts,
    allocated: Stats,
}

impl Meter {
    /// Of this thread.
    pub fn start() -> Meter {
        Meter { counts: count::of_this_thread(), allocated: ALLOCATOR.stats() }
    }

    /// What each of so many operations cost since.
    pub fn stop(&self, operations: u64) -> Cost {
        let counts = count::of_this_thread().since(self.counts);
        let allocated = ALLOCATOR.stats() - self.allocated;
        let each = |n: f64| n / operations.max(1) as f64;
        Cost {
            descents: each(counts.descents as f64),
            copied_bytes: each(counts.copied_bytes as f64),
            allocations: each((allocated.allocations + allocated.reallocations) as f64),
            instructions: 0.0,
        }
    }
}

/// Instructions of an operation in one form: this program is run anew under valgrind, with and without `count` of them.
pub fn instructions(pair: &str, form: usize, count: u64) -> Result<f64> {
    let more = refs(pair, form, count * 2)?;
    let less = refs(pair, form, count)?;
    Ok(more.saturating_sub(less) as f64 / count as f64)
}

/// What cachegrind says of a run.
fn refs(pair: &str, form: usize, count: u64) -> Result<u64> {
    let program = std::env::current_exe()?;
    let out = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(program)
        .args(["operations", pair, &form.to_string(), &count.to_string()])
        .output()
        .context("valgrind")?;
    let text = String::from_utf8_lossy(&out.stderr);
    let line = text.lines().find(|l| l.contains("I") && l.contains("refs:"));
    let number = line.and_then(|l| l.rsplit(':').next()).map(|n| n.replace([',', ' '], ""));
    match number.and_then(|n| n.parse().ok()) {
        Some(refs) if out.status.success() => Ok(refs),
        _ => bail!("valgrind: {text}"),
    }
}
