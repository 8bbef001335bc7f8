//! Finds the judges on this machine: programs, privileges, public test images.
//!
//! A test begins with `let Some(()) = need(&[...]) else { return };`. Where a judge is missing the test is skipped
//! and says so, unless `BUTTERY_ORACLES=require` is set: then it fails.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Something outside this project that a test cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The effective user is root.
    Root,
    /// Root, the kernel's btrfs and loop devices, mkfs.btrfs: the kernel can judge an image.
    KernelBtrfs,
    /// /dev/fuse can be opened.
    Fuse,
    /// A program in PATH.
    Program(&'static str),
    /// A folder of public test images, see [`corpus`].
    Corpus(&'static str),
}

/// The images of btrfs-progs' own tests.
pub const PROGS_IMAGES: &str = "btrfs-progs";
/// The source distribution of dissect.btrfs; its images are in `tests/_data`.
pub const DISSECT_IMAGES: &str = "dissect.btrfs";

/// `Some` when everything is here; otherwise skips (prints `SKIPPED <test>: <what>`), or panics where required.
pub fn need(wants: &[Need]) -> Option<()> {
    let missing: Vec<String> = wants.iter().filter_map(|want| missing(*want)).collect();
    if missing.is_empty() {
        return Some(());
    }
    let missing = missing.join(", ");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    assert!(!required(), "{test} needs {missing}, and BUTTERY_ORACLES=require is set");
    // Not `eprintln!`: that one is swallowed when the test passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {missing}");
    None
}

/// Whether a missing judge is a failure.
pub fn required() -> bool {
    env::var_os("BUTTERY_ORACLES").is_some_and(|v| v == "require")
}

/// The full path of a program, from PATH and the folders where administrators' programs live.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".cargo/bin"));
    let extra = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(extra).chain(home).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Where a folder of public test images is, if `.ci/install` fetched it: [`PROGS_IMAGES`] or [`DISSECT_IMAGES`].
pub fn corpus(name: &str) -> Option<PathBuf> {
    let dir = oracle_dir().join(name);
    dir.join(".complete").exists().then_some(dir)
}

/// `BUTTERY_ORACLE_DIR`, or `target/oracles` in the repository.
pub fn oracle_dir() -> PathBuf {
    match env::var_os("BUTTERY_ORACLE_DIR") {
        Some(dir) => dir.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/oracles"),
    }
}

fn missing(want: Need) -> Option<String> {
    match want {
        Need::Root => (!is_root()).then(|| "root".to_string()),
        Need::KernelBtrfs => missing_kernel(),
        Need::Fuse => {
            let open = std::fs::File::options().read(true).write(true).open("/dev/fuse");
            open.err().map(|e| format!("/dev/fuse ({e})"))
        }
        Need::Program(name) => program(name).is_none().then(|| format!("the program {name}")),
        Need::Corpus(name) => corpus(name).is_none().then(|| format!("the images of {name} (.ci/install)")),
    }
}

fn missing_kernel() -> Option<String> {
    if !is_root() {
        return Some("root".into());
    }
    for name in ["mkfs.btrfs", "btrfs", "losetup"] {
        if program(name).is_none() {
            return Some(format!("the program {name}"));
        }
    }
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !known.lines().any(|line| line.ends_with("\tbtrfs")) {
        return Some("the kernel's btrfs".into());
    }
    (!Path::new("/dev/loop-control").exists()).then(|| "loop devices".into())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_or_not() {
        assert!(program("sh").is_some());
        assert!(program("no-such-program-here").is_none());
    }
}
