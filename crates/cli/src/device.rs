//! `buttery device stats`: how often a device failed, of a mount or an unmounted image.

use crate::source::SourceArgs;
use anyhow::{Context, Result, bail};
use buttery_fuse::CONTROL_STATS;
use clap::Subcommand;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum Command {
    /// Show how often reading, writing or flushing a device failed, and what was read was wrong
    Stats {
        #[command(flatten)]
        source: SourceArgs,
        /// Set the counters to zero after showing them
        #[arg(short = 'z', long)]
        reset: bool,
        /// Exit with 64 if any counter is not zero
        #[arg(short = 'c', long)]
        check: bool,
        /// A mount's directory, or an image or device that is not mounted
        path: PathBuf,
    },
}

/// The counters, in their order, as btrfs calls them.
const NAMES: [&str; 5] =
    ["write_io_errs", "read_io_errs", "flush_io_errs", "corruption_errs", "generation_errs"];
/// What btrfs exits with.
const FOUND: u8 = 64;

pub fn run(command: &Command) -> Result<ExitCode> {
    let Command::Stats { source, reset, check, path } = command;
    let list = match (path.is_dir(), reset) {
        (true, _) => of_mount(path, *reset)?,
        (false, true) => {
            let fs = source.open_writable(path)?;
            let list = of_engine(fs.engine())?;
            fs.engine().reset_device_stats()?;
            fs.close()?;
            list
        }
        (false, false) => of_engine(source.open(path)?.engine())?,
    };
    let width = NAMES.iter().map(|name| name.len()).max().unwrap_or(0);
    for (name, counts) in &list {
        for (what, count) in NAMES.iter().zip(counts) {
            println!("[{name}].{what:width$} {count}");
        }
    }
    let any = list.iter().any(|(_, counts)| counts.iter().any(|&n| n != 0));
    Ok(ExitCode::from(if *check && any { FOUND } else { 0 }))
}

type List = Vec<(String, Vec<u64>)>;

fn of_engine(engine: &buttery::Engine) -> Result<List> {
    Ok(engine.device_stats()?.into_iter().map(|stats| (stats.name, stats.counts.to_vec())).collect())
}

fn of_mount(dir: &Path, reset: bool) -> Result<List> {
    let context = || format!("{}: is no mount of buttery", dir.display());
    let Some(text) = xattr::get(dir, CONTROL_STATS).with_context(context)? else { bail!(context()) };
    if reset {
        xattr::set(dir, CONTROL_STATS, b"0").with_context(|| dir.display().to_string())?;
    }
    String::from_utf8_lossy(&text).lines().map(parse).collect()
}

fn parse(line: &str) -> Result<(String, Vec<u64>)> {
    let mut parts = line.splitn(NAMES.len() + 1, ' ');
    let counts: Vec<u64> = parts.by_ref().take(NAMES.len()).map(str::parse).collect::<Result<_, _>>()?;
    Ok((parts.next().context("a device's name")?.to_owned(), counts))
}
