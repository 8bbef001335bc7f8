//! `buttery inspect dump-super`: superblocks, as they stand there. A damaged one is printed too, unless it is not even
//! recognisable.

use super::{open_device, options};
use anyhow::{Context, Result, bail};
use buttery_codec::CsumType;
use buttery_device::Device;
use buttery_disk::superblock::{OFFSETS, SIZE, Superblock};
use buttery_print::{CsumState, SuperOptions, superblock};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

// of the options that choose copies the last one counts
const CHOICES: [&str; 4] = ["all", "copy", "bytenr", "old_copy"];

#[derive(clap::Args)]
#[command(args_override_self = true)]
pub struct Args {
    /// Print the system chunk array and the backup roots too
    #[arg(short, long)]
    full: bool,
    /// Print every copy
    #[arg(short, long, overrides_with_all = CHOICES)]
    all: bool,
    /// Which copy to print: 0, 1 or 2; another number is taken for --bytenr
    #[arg(short = 's', long = "super", value_name = "N", overrides_with_all = CHOICES)]
    copy: Option<u64>,
    /// Print what stands at this offset
    #[arg(long, value_name = "BYTENR", overrides_with_all = CHOICES)]
    bytenr: Option<u64>,
    /// The old name of --super
    #[arg(short = 'i', value_name = "N", overrides_with_all = CHOICES)]
    old_copy: Option<u64>,
    /// Print what has not the magic number of a superblock, too
    #[arg(short = 'F', long)]
    force: bool,
    /// Where the device lies in the file: offset=, sizelimit=
    #[arg(short = 'o', long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let options = options(0, &args.options)?;
    let places = args.places()?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    for path in &args.devices {
        let device = open_device(path, &options)?;
        for &place in &places {
            if !args.print(&mut out, &*device, place)? {
                out.flush()?;
                bail!(
                    "bad magic on superblock on {} at {place} (use --force to dump it anyway)",
                    device.name()
                );
            }
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    /// Where the copies stand that are to be printed.
    fn places(&self) -> Result<Vec<u64>> {
        let known = |copy: u64| OFFSETS.get(usize::try_from(copy).ok()?).copied();
        if self.all {
            return Ok(OFFSETS.to_vec());
        }
        if let Some(copy) = self.old_copy {
            eprintln!("buttery: option -i is deprecated, use -s or --super");
            let Some(place) = known(copy) else { bail!("there is no copy {copy}, only 0, 1 and 2") };
            return Ok(vec![place]);
        }
        let place = match (self.copy, self.bytenr) {
            (Some(copy), _) => known(copy).unwrap_or_else(|| {
                eprintln!("buttery: -s {copy} is no copy's number, --bytenr is assumed");
                copy
            }),
            (None, Some(bytenr)) => bytenr,
            (None, None) => OFFSETS[0],
        };
        Ok(vec![place])
    }

    /// Prints one copy, or nothing where the device ends before it. Whether it could be told for a superblock.
    fn print(&self, out: &mut dyn Write, device: &dyn Device, place: u64) -> Result<bool> {
        if place >= device.len_bytes() {
            return Ok(true);
        }
        let mut bytes = [0; SIZE];
        let read = device.read_at(place, &mut bytes);
        read.with_context(|| format!("{}: superblock at {place}", device.name()))?;
        let sb = Superblock::parse(&bytes).context("a superblock has 4096 bytes")?;
        let csum = match CsumType::from_disk(sb.csum_type.get()) {
            Some(csum) if csum.verify(&bytes[32..], &bytes[..csum.size()]) => CsumState::Match,
            _ => CsumState::Mismatch,
        };
        let options = SuperOptions { full: self.full, force: self.force };
        Ok(superblock(out, &sb, device.name(), place, csum, options)?)
    }
}
