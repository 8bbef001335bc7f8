//! The program `buttery`. Each command is a file; what they share is in `source` (opening an image) and `text`.
#![forbid(unsafe_code)]

mod cat;
mod copy_in;
mod copy_out;
mod device;
mod inspect;
mod ls;
mod mkfs;
mod mount;
mod property;
mod share;
mod source;
mod stat;
mod subvolume;
mod text;
mod umount;
mod untar;
mod walk;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Btrfs in user space: read and write the Linux kernel's on-disk format without its driver.
#[derive(Parser)]
#[command(name = "buttery", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List what is in an image: IMAGE[:PATH]
    Ls(ls::Args),
    /// Write files of an image to standard output
    Cat(cat::Args),
    /// Show everything that is known of a file in an image
    Stat(stat::Args),
    /// Copy files out of an image, or into one
    Cp(copy_out::Args),
    /// Make a new file system
    Mkfs(mkfs::Args),
    /// Unpack a tar archive from standard input into an image
    Untar(untar::Args),
    /// Mount a file system on a directory
    Mount(mount::Args),
    /// Unmount, and return when the image is released
    Umount(umount::Args),
    /// Commit what a mount has changed
    Sync(umount::Args),
    /// Copy a file by sharing its extents, in an image or on a mount
    Reflink(share::ReflinkArgs),
    /// Let files of an image that hold the same bytes share extents
    Dedupe(share::DedupeArgs),
    /// Make, snapshot, delete, list and show subvolumes, and choose the default one
    #[command(subcommand)]
    Subvolume(subvolume::Command),
    /// Show and set properties of subvolumes, files and file systems
    #[command(subcommand)]
    Property(property::Command),
    /// What is known of devices
    #[command(subcommand)]
    Device(device::Command),
    /// Print what stands on disk
    #[command(subcommand)]
    Inspect(inspect::Command),
}

fn main() -> ExitCode {
    let cli = match mount::is_mount8(std::env::args_os().next().as_deref()) {
        true => Cli::parse_from(mount::from_mount8(std::env::args_os())),
        false => Cli::parse(),
    };
    let result = match cli.command {
        Command::Ls(args) => ls::run(&args),
        Command::Cat(args) => cat::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Cp(args) => copy_out::run(&args),
        Command::Mkfs(args) => mkfs::run(&args),
        Command::Untar(args) => untar::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Umount(args) => umount::run(&args),
        Command::Sync(args) => umount::sync(&args),
        Command::Reflink(args) => share::reflink(&args),
        Command::Dedupe(args) => share::dedupe(&args),
        Command::Subvolume(command) => subvolume::run(&command),
        Command::Property(command) => property::run(&command),
        Command::Device(command) => device::run(&command),
        Command::Inspect(command) => inspect::run(&command),
    };
    match result {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("buttery: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The reader of our output has seen enough.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}
