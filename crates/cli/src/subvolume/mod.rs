//! `buttery subvolume`: subvolumes of an unmounted image (IMAGE:PATH) and on a mount (a path), with the same words.

mod find_new;
pub mod on_image;
pub mod on_mount;
mod show;

use crate::inspect::list_subvolumes;
use crate::source::{self, SourceArgs};
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum Command {
    /// Make empty subvolumes
    Create {
        #[command(flatten)]
        source: SourceArgs,
        /// Make the directories above them, too
        #[arg(short, long)]
        parents: bool,
        /// Each IMAGE:PATH, or a path on a mount
        #[arg(required = true)]
        targets: Vec<OsString>,
    },
    /// Take a snapshot of a subvolume
    Snapshot {
        #[command(flatten)]
        source: SourceArgs,
        /// Make it read-only
        #[arg(short)]
        read_only: bool,
        /// The subvolume: IMAGE:PATH, or a path on a mount
        of: OsString,
        /// Where to: a new name, or a directory that gets one of the same name
        target: OsString,
    },
    /// Delete subvolumes with all that is in them
    Delete {
        #[command(flatten)]
        source: SourceArgs,
        /// Return when all of it is on the device
        #[arg(short, long)]
        commit_after: bool,
        /// The same after each
        #[arg(short = 'C', long, conflicts_with = "commit_after")]
        commit_each: bool,
        /// The id of the one to be deleted; what follows is then the image, or a path on the mount
        #[arg(short = 'i', long, value_name = "ID")]
        subvolid: Option<u64>,
        /// Each IMAGE:PATH, or a path on a mount
        #[arg(required = true)]
        targets: Vec<OsString>,
    },
    /// List subvolumes: of an image all, of a mount those below a directory
    #[command(disable_help_flag = false)]
    List(list_subvolumes::Args),
    /// Show what is known of a subvolume
    Show {
        #[command(flatten)]
        source: SourceArgs,
        /// IMAGE:PATH, or a path on a mount
        what: OsString,
    },
    /// Choose the subvolume that is mounted by default, by its id or path
    SetDefault {
        #[command(flatten)]
        source: SourceArgs,
        /// ID IMAGE, ID PATH, or IMAGE:PATH or a path on a mount of a subvolume
        #[arg(required = true, num_args = 1..=2)]
        what: Vec<OsString>,
    },
    /// Show the subvolume that is mounted by default, of an image
    GetDefault {
        #[command(flatten)]
        source: SourceArgs,
        image: OsString,
    },
    /// List what of files changed since a generation, in a subvolume of an image
    FindNew {
        #[command(flatten)]
        source: SourceArgs,
        /// IMAGE:PATH of the subvolume
        what: OsString,
        /// The generation
        since: u64,
    },
}

pub fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Create { source, parents, targets } => {
            for target in targets {
                match in_image(target) {
                    true => on_image::create(source, target, *parents)?,
                    false => on_mount::create(Path::new(target), *parents)?,
                }
            }
        }
        Command::Snapshot { source, read_only, of, target } => match (in_image(of), in_image(target)) {
            (true, true) => on_image::snapshot(source, of, target, *read_only)?,
            (false, false) => on_mount::snapshot(Path::new(of), Path::new(target), *read_only)?,
            _ => bail!("both must lie in one image, or on one mount"),
        },
        Command::Delete { source, commit_after, commit_each, subvolid, targets } => {
            if subvolid.is_some() && targets.len() > 1 {
                bail!("an id, and one image or path");
            }
            for target in targets {
                match in_image(target) {
                    true => on_image::delete(source, target, *subvolid)?,
                    false => on_mount::delete(Path::new(target), *subvolid, *commit_each)?,
                }
            }
            if *commit_after && let Some(last) = targets.iter().rfind(|target| !in_image(target)) {
                on_mount::commit(Path::new(last))?;
            }
        }
        Command::List(args) => return list_subvolumes::run(args),
        Command::Show { source, what } => match in_image(what) {
            true => show::of_image(source, what)?,
            false => show::of_mount(Path::new(what))?,
        },
        Command::SetDefault { source, what } => set_default(source, what)?,
        Command::GetDefault { source, image } => {
            if !in_image(image) {
                bail!("{}: the default of a mount cannot be asked for yet", image.display());
            }
            println!("{}", on_image::default_line(source, &source::split(image).0)?);
        }
        Command::FindNew { source, what, since } => {
            if !in_image(what) {
                bail!("{}: not on a mount yet", what.display());
            }
            find_new::run(source, what, *since)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether something lies in an image. What is there as a directory lies on a mount, and so will what is to be made there.
pub fn in_image(spec: &OsString) -> bool {
    let (image, _) = source::split(spec);
    image.as_os_str() != spec.as_os_str() || (image.exists() && !image.is_dir())
}

fn set_default(source: &SourceArgs, what: &[OsString]) -> Result<()> {
    let (id, place) = match what {
        [id, place] => {
            let number: u64 =
                id.to_str().and_then(|t| t.parse().ok()).with_context(|| format!("{id:?} is not an id"))?;
            (Some(number), place)
        }
        _ => (None, &what[0]),
    };
    match in_image(place) {
        true => on_image::set_default(source, place, id),
        false => on_mount::set_default(Path::new(place), id),
    }
}

/// Where something new goes: below a directory that is there it gets the name of what it is made from.
fn goes_to(target: &Path, is_dir: bool, from: &Path) -> PathBuf {
    match (is_dir, from.file_name()) {
        (true, Some(name)) => target.join(name),
        _ => target.to_path_buf(),
    }
}
