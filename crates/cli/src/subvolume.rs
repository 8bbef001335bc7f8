//! `buttery subvolume`: making subvolumes in an unmounted image, and choosing the default one.

use crate::source::{self, SourceArgs};
use anyhow::{Context, Result, bail};
use buttery::TreeId;
use clap::Subcommand;
use std::ffi::OsString;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum Command {
    /// Make an empty subvolume
    Create {
        #[command(flatten)]
        source: SourceArgs,
        /// IMAGE:PATH of the subvolume to be made
        target: OsString,
    },
    /// Choose the subvolume that is mounted by default, by its id or path
    SetDefault {
        #[command(flatten)]
        source: SourceArgs,
        /// ID IMAGE, or IMAGE:PATH of a subvolume
        #[arg(required = true, num_args = 1..=2)]
        what: Vec<OsString>,
    },
    /// Show the subvolume that is mounted by default
    GetDefault {
        #[command(flatten)]
        source: SourceArgs,
        image: OsString,
    },
}

pub fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Create { source, target } => create(source, target),
        Command::SetDefault { source, what } => set_default(source, what),
        Command::GetDefault { source, image } => {
            let fs = source.open(&source::split(image).0)?;
            println!("ID {}", fs.default_subvolume()?.0);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn create(source: &SourceArgs, target: &OsString) -> Result<ExitCode> {
    let (image, path) = source::split(target);
    let trimmed = path.strip_suffix(b"/").unwrap_or(&path);
    let at = trimmed.iter().rposition(|&b| b == b'/').map_or(0, |i| i + 1);
    let fs = source.open_writable(&image)?;
    let dir = source::resolve(&fs, &trimmed[..at], true)?;
    let shown = || String::from_utf8_lossy(&path).into_owned();
    fs.create_subvolume(dir, &trimmed[at..], 0, 0).with_context(shown)?;
    fs.close().with_context(|| image.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn set_default(source: &SourceArgs, what: &[OsString]) -> Result<ExitCode> {
    let (image, id) = match what {
        [id, image] => {
            let number: u64 =
                id.to_str().and_then(|t| t.parse().ok()).with_context(|| format!("{id:?} is not an id"))?;
            (source::split(image).0, Some(TreeId(number)))
        }
        _ => (source::split(&what[0]).0, None),
    };
    let fs = source.open_writable(&image)?;
    let id = match id {
        Some(id) => id,
        None => {
            let found = source::resolve(&fs, &source::split(&what[0]).1, true)?;
            if found != buttery::FileId::top_of(found.tree) {
                bail!("{}: not a subvolume", what[0].display());
            }
            found.tree
        }
    };
    fs.set_default_subvolume(id).with_context(|| format!("subvolume {}", id.0))?;
    fs.close().with_context(|| image.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}
