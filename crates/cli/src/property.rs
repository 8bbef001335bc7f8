//! `buttery property`: what can be set of a subvolume (ro), a file (compression) and a file system (label), in an unmounted
//! image or on a mount.

use crate::source::{self, SourceArgs};
use crate::subvolume::{in_image, on_image, on_mount};
use anyhow::{Context, Result, bail};
use buttery::{Error, Filesystem, XattrMode};
use clap::{Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use xattr::FileExt as _;

const COMPRESSION: &str = "btrfs.compression";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// Whether a subvolume is read-only: true or false
    Ro,
    /// How a file is compressed, or what comes into a directory: zlib, lzo, zstd, none, or nothing for what the mount says
    Compression,
    /// The file system's label
    Label,
}

#[derive(Subcommand)]
pub enum Command {
    /// Show a property, or all that there are
    Get {
        #[command(flatten)]
        source: SourceArgs,
        /// IMAGE, IMAGE:PATH, or a path on a mount
        object: OsString,
        name: Option<Name>,
    },
    /// Set a property
    Set {
        #[command(flatten)]
        source: SourceArgs,
        /// Make a subvolume writable even if it was received
        #[arg(short, long)]
        force: bool,
        /// IMAGE, IMAGE:PATH, or a path on a mount
        object: OsString,
        name: Name,
        value: String,
    },
}

pub fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Get { source, object, name } => {
            let one = name.is_some();
            let names = name.map_or(Name::value_variants().to_vec(), |name| vec![name]);
            for name in names {
                match get(source, object, name) {
                    Ok(Some(text)) => println!("{text}"),
                    Ok(None) => {}
                    // of all those that make sense here
                    Err(_) if !one => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Command::Set { source, force, object, name, value } => set(source, object, *name, value, *force)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn get(source: &SourceArgs, object: &OsString, name: Name) -> Result<Option<String>> {
    if !is_of_image(object, name) {
        let path = Path::new(object);
        return Ok(match name {
            Name::Ro => Some(format!("ro={}", on_mount::is_read_only(path)?)),
            Name::Label => Some(format!("label={}", String::from_utf8_lossy(&on_mount::label(path)?))),
            Name::Compression => {
                let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
                let value = file.get_xattr(COMPRESSION).with_context(|| path.display().to_string())?;
                value.map(|value| compression(&value))
            }
        });
    }
    let (image, path) = source::split(object);
    let fs = source.open(&image)?;
    let shown = || object.display().to_string();
    Ok(match name {
        Name::Ro => {
            let id = on_image::subvolume_at(&fs, &path)?;
            let flags = fs.subvolume_info(id).with_context(shown)?.item.flags.get();
            Some(format!("ro={}", flags & buttery_disk::root::flags::RDONLY != 0))
        }
        Name::Label => Some(format!("label={}", String::from_utf8_lossy(&fs.label()))),
        Name::Compression => match fs.xattr(source::resolve(&fs, &path, true)?, COMPRESSION.as_bytes()) {
            Ok(value) => Some(compression(&value)),
            Err(Error::NoAttribute) => None,
            Err(error) => return Err(error).with_context(shown),
        },
    })
}

/// A file without a path in it is an image, unless it is asked how it is compressed itself.
fn is_of_image(object: &OsString, name: Name) -> bool {
    match name {
        Name::Compression => source::is_in_image(object),
        _ => in_image(object),
    }
}

fn compression(value: &[u8]) -> String {
    format!("compression={}", String::from_utf8_lossy(value))
}

fn set(source: &SourceArgs, object: &OsString, name: Name, value: &str, force: bool) -> Result<()> {
    if is_of_image(object, name) {
        let (image, path) = source::split(object);
        let fs = source.open_writable(&image)?;
        set_in_image(&fs, &path, name, value, force).with_context(|| object.display().to_string())?;
        return fs.close().with_context(|| image.display().to_string());
    }
    let path = Path::new(object);
    match name {
        Name::Ro => {
            let yes = boolean(value)?;
            let dir = std::fs::File::open(path).with_context(|| path.display().to_string())?;
            check_received(&on_mount::info(&dir)?.received_uuid, yes, force)?;
            on_mount::set_read_only(path, yes)
        }
        Name::Label => on_mount::set_label(path, value.as_bytes()),
        Name::Compression => {
            let file = std::fs::File::open(path).with_context(|| path.display().to_string())?;
            let set = match value {
                "" => file.remove_xattr(COMPRESSION),
                _ => file.set_xattr(COMPRESSION, value.as_bytes()),
            };
            set.with_context(|| path.display().to_string())
        }
    }
}

fn set_in_image(fs: &Filesystem, path: &[u8], name: Name, value: &str, force: bool) -> Result<()> {
    match name {
        Name::Ro => {
            let (id, yes) = (on_image::subvolume_at(fs, path)?, boolean(value)?);
            check_received(&fs.subvolume_info(id)?.item.received_uuid, yes, force)?;
            fs.set_read_only(id, yes)?;
        }
        Name::Label => fs.set_label(value.as_bytes())?,
        Name::Compression => {
            let (file, name) = (source::resolve(fs, path, true)?, COMPRESSION.as_bytes());
            match value {
                "" => fs.remove_xattr(file, name)?,
                _ => fs.set_xattr(file, name, value.as_bytes(), XattrMode::Any)?,
            }
        }
    }
    Ok(())
}

fn boolean(value: &str) -> Result<bool> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => bail!("{value:?}: true or false"),
    }
}

/// One that was received and is changed is not what others take it for.
fn check_received(received: &[u8; 16], read_only: bool, force: bool) -> Result<()> {
    if *received != [0; 16] && !read_only && !force {
        bail!(
            "it was received; --force makes it writable all the same, and of no use as a base to receive on"
        );
    }
    Ok(())
}
