//! The judges of structure: `btrfs check` on an image, the kernel's scrub on a mount.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::guard::{Loop, run};

/// Runs `btrfs check` on the image of a file system with one device. Any complaint is an error that holds the output.
pub fn btrfs_check(image: &Path) -> Result<(), String> {
    check_path(image, &[])
}

/// The same, and verifies every data checksum.
pub fn btrfs_check_data(image: &Path) -> Result<(), String> {
    check_path(image, &["--check-data-csum"])
}

/// Checks a file system over several image files, through loop devices (needs root).
pub fn btrfs_check_devices(images: &[PathBuf], data: bool) -> Result<(), String> {
    let options: &[&str] = if data { &["--check-data-csum"] } else { &[] };
    if let [image] = images {
        return check_path(image, options);
    }
    let loops: Result<Vec<Loop>, io::Error> = images.iter().map(|i| Loop::attach_read_only(i)).collect();
    let loops = loops.map_err(|e| e.to_string())?;
    for l in &loops {
        run(Command::new("btrfs").args(["device", "scan"]).arg(l.device())).map_err(|e| e.to_string())?;
    }
    check_path(loops[0].device(), options)
}

fn check_path(path: &Path, options: &[&str]) -> Result<(), String> {
    let mut command = Command::new("btrfs");
    command.args(["check", "--readonly"]).args(options).arg(path);
    let out = command.output().map_err(|e| format!("btrfs check: {e}"))?;
    let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    // It looks at every device there is; one that another test gives back meanwhile is no fault of this image.
    let elsewhere = |line: &str| line.starts_with("ERROR: cannot scan ");
    let complaint = |line: &str| (line.contains("ERROR") || line.contains("WARNING")) && !elsewhere(line);
    let complains = said.lines().any(complaint);
    if out.status.success() && !complains {
        return Ok(());
    }
    Err(format!("{command:?}: {}\n{said}", out.status))
}

/// Scrubs a kernel mount; errors found, corrected ones too, and nonzero device statistics are an error.
pub fn kernel_scrub(mount: &Path) -> Result<(), String> {
    let said =
        run(Command::new("btrfs").args(["scrub", "start", "-B"]).arg(mount)).map_err(|e| e.to_string())?;
    let summary = said.lines().find_map(|line| line.trim().strip_prefix("Error summary:"));
    if summary.map(str::trim) != Some("no errors found") {
        return Err(said);
    }
    let stats = run(Command::new("btrfs").args(["device", "stats", "--check"]).arg(mount));
    stats.map(drop).map_err(|e| e.to_string())
}
