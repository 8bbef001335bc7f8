//! `buttery mount`: opens the devices, mounts, and serves in the background.
//!
//! The command starts itself a second time; that process opens, mounts, says "ready" on its standard output and goes
//! on serving, detached. So an error on the way is the command's own.

use crate::mkfs::{create_file, make_on, parse_bytes};
use anyhow::{Context, Result, bail};
use buttery::{Filesystem, Options};
use buttery_fuse::{MountOptions, serve};
use buttery_mkfs::{MkfsOptions, Profile};
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// What the serving process says when it is mounted.
const READY: &str = "ready";

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Options, with the kernel's names: ro, subvol=, subvolid=, commit=, degraded, rescue=, offset=, sizelimit=,
    /// allow_other, default_permissions, nodatacow, nodatasum, compress=, ssd, max_inline=, thread_pool=, discard;
    /// and cache=SIZE, csum_submit=, writeback_cache
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Make the image files first, with this size each, if none is there; the directory too
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    create: Option<u64>,
    /// Stay in the foreground
    #[arg(short = 'f', long)]
    foreground: bool,
    /// Write messages to this file
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Which copy of the superblock to use: 0, 1 or 2
    #[arg(long = "super", value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..3))]
    super_copy: u8,
    /// This is the process that serves
    #[arg(long, hide = true)]
    child: bool,
    /// DEVICE... DIRECTORY
    #[arg(required = true, num_args = 2.., value_name = "DEVICE... DIRECTORY")]
    paths: Vec<PathBuf>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    if args.foreground || args.child { serve_here(args) } else { serve_in_background(args) }
}

/// Starts the serving process and waits until it is mounted or has failed.
fn serve_in_background(args: &Args) -> Result<ExitCode> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(arguments(args))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting the serving process")?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    if line.trim_end() == READY {
        return Ok(ExitCode::SUCCESS);
    }
    let status = child.wait()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The arguments of the serving process.
fn arguments(args: &Args) -> Vec<OsString> {
    let mut out: Vec<OsString> = vec!["mount".into(), "--child".into()];
    out.extend([OsString::from("--super"), args.super_copy.to_string().into()]);
    for list in &args.options {
        out.extend([OsString::from("-o"), list.into()]);
    }
    if let Some(size) = args.create {
        out.extend([OsString::from("--create"), size.to_string().into()]);
    }
    if let Some(log) = &args.log {
        out.extend([OsString::from("--log"), log.into()]);
    }
    out.push("--".into());
    out.extend(args.paths.iter().map(OsString::from));
    out
}

fn serve_here(args: &Args) -> Result<ExitCode> {
    let (dir, devices) = args.paths.split_last().context("no directory given")?;
    let mut options = Options { super_copy: args.super_copy as usize, ..Options::default() };
    for list in &args.options {
        options.parse(list)?;
    }
    options.clock = crate::mkfs::epoch()?;
    if let Some(size) = args.create {
        create(devices, dir, size)?;
    }
    let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
    let fs = open(devices, &options)?;
    let mount = mount_options(&devices[0], &options);
    start_log(args)?;
    let detach = args.child;
    let log = args.log.clone();
    serve(fs, &dir, &mount, move || {
        if detach && let Err(error) = announce(log.as_deref()) {
            tracing::error!("detaching: {error}");
        }
    })
    .with_context(|| dir.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn create(images: &[PathBuf], dir: &Path, size: u64) -> Result<()> {
    if images.iter().all(|image| !image.exists()) {
        images.iter().try_for_each(|image| create_file(image, size))?;
        let metadata = if images.len() > 1 { Profile::Raid1 } else { Profile::Dup };
        let time = crate::mkfs::epoch()?;
        let options = MkfsOptions { time, discard: false, metadata, ..MkfsOptions::default() };
        if let Err(error) = make_on(images, &options, false) {
            images.iter().for_each(|image| drop(std::fs::remove_file(image)));
            return Err(error);
        }
    }
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())
}

fn open(devices: &[PathBuf], options: &Options) -> Result<Filesystem> {
    let paths: Vec<&Path> = devices.iter().map(PathBuf::as_path).collect();
    let context = || devices[0].display().to_string();
    if !options.read_only {
        return Filesystem::open_writable(&paths, options).with_context(context);
    }
    let fs = Filesystem::open(&paths, options).with_context(context)?;
    if fs.engine().has_log() && !options.rescue.no_log_replay {
        bail!(
            "{}: an fsync log waits to be replayed, which is not supported yet; -o ro,rescue=nologreplay shows the \
             last commit before it",
            devices[0].display()
        );
    }
    Ok(fs)
}

fn mount_options(device: &Path, options: &Options) -> MountOptions {
    let root = rustix::process::geteuid().is_root();
    let has = |name: &str| options.ignored.iter().any(|o| o == name);
    let mut flags = Vec::new();
    if root {
        // as a kernel mount has it, unless it is told otherwise
        for (flag, denied) in [("dev", "nodev"), ("suid", "nosuid")] {
            if !has(denied) {
                flags.push(flag.to_owned());
            }
        }
    }
    if has("noexec") {
        flags.push("noexec".into());
    }
    let cpus = std::thread::available_parallelism().map_or(2, usize::from);
    MountOptions {
        source: device.display().to_string(),
        read_only: options.read_only,
        allow_other: root || options.allow_other,
        default_permissions: root || options.allow_other || options.default_permissions,
        writeback_cache: options.writeback_cache,
        threads: options.thread_pool.unwrap_or((cpus * 2).clamp(4, 16)),
        flags,
    }
}

fn start_log(args: &Args) -> Result<()> {
    let builder = tracing_subscriber::fmt().with_target(false).with_ansi(false);
    match &args.log {
        Some(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path);
            let file = file.with_context(|| path.display().to_string())?;
            builder.with_writer(std::sync::Mutex::new(file)).init();
        }
        None => builder.with_writer(std::io::stderr).init(),
    }
    Ok(())
}

/// Tells the waiting command that it is mounted, and lets go of terminal and standard streams.
fn announce(log: Option<&Path>) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{READY}")?;
    out.flush()?;
    let _ = rustix::process::setsid();
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    match log {
        Some(path) => rustix::stdio::dup2_stderr(&OpenOptions::new().append(true).open(path)?)?,
        None => rustix::stdio::dup2_stderr(&null)?,
    }
    std::env::set_current_dir("/")
}

/// The arguments as mount(8) gives them to `mount.fuse.buttery`: SOURCE DIR [-sfnv] [-o OPTIONS] [-t TYPE].
pub fn from_mount8(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut out: Vec<OsString> = vec!["buttery".into(), "mount".into()];
    let (mut args, mut paths) = (args.skip(1), Vec::new());
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("-o") => out.extend([OsString::from("-o"), args.next().unwrap_or_default()]),
            Some("-t" | "-N") => drop(args.next()),
            Some(flag) if flag.starts_with('-') => {}
            _ => paths.push(arg),
        }
    }
    out.push("--".into());
    out.extend(paths);
    out
}

/// Whether the program was called as the helper of mount(8).
pub fn is_mount8(program: Option<&OsStr>) -> bool {
    program
        .and_then(|p| Path::new(p).file_name())
        .is_some_and(|n| n == "mount.fuse.buttery" || n == "mount.buttery")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_mount8() {
        let words = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<_>>();
        let given = words(&[
            "mount.fuse.buttery",
            "disk.img",
            "/mnt",
            "-sv",
            "-o",
            "rw,noatime",
            "-t",
            "fuse.buttery",
        ]);
        let got = from_mount8(given.into_iter());
        assert_eq!(got, words(&["buttery", "mount", "-o", "rw,noatime", "--", "disk.img", "/mnt"]));
        assert!(is_mount8(Some(OsStr::new("/sbin/mount.fuse.buttery"))));
        assert!(!is_mount8(Some(OsStr::new("/usr/bin/buttery"))));
    }
}
