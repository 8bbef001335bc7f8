//! `buttery inspect`: what stands on disk, with the options and the output of `btrfs inspect-internal dump-super`,
//! `dump-tree` and `btrfs subvolume list`. Nothing is written, and no lock is taken.
//!
//! Here is what the three share; [`blocks`] walks the trees of a dump.

mod blocks;
mod dump_super;
mod dump_tree;
pub mod list_subvolumes;

use anyhow::{Context, Result, bail};
use buttery::Options;
use buttery_device::{Access, Device, FileDevice, Window};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Print superblocks
    DumpSuper(dump_super::Args),
    /// Print the blocks of trees
    DumpTree(dump_tree::Args),
    /// List subvolumes and snapshots
    ListSubvolumes(list_subvolumes::Args),
}

pub fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::DumpSuper(args) => dump_super::run(args),
        Command::DumpTree(args) => dump_tree::run(args),
        Command::ListSubvolumes(args) => list_subvolumes::run(args),
    }
}

/// The options of `-o`. Missing devices are put up with: what lies on the others can be shown.
fn options(super_copy: u8, lists: &[String]) -> Result<Options> {
    let mut options = Options { super_copy: super_copy as usize, degraded: true, ..Options::default() };
    for list in lists {
        options.parse(list)?;
    }
    if options.subvol.is_some() || options.subvolid.is_some() {
        bail!("subvol= and subvolid= choose what a mount shows; here they mean nothing");
    }
    options.read_only = true;
    Ok(options)
}

/// Opens a file or block device for reading.
fn open_device(path: &Path, options: &Options) -> Result<Arc<dyn Device>> {
    let window = Window { offset: options.offset, size_limit: options.size_limit };
    let device = FileDevice::open(path, Access::ReadOnly, window);
    Ok(Arc::new(device.with_context(|| path.display().to_string())?))
}
