//! The public test images that `.ci/install` fetches: many are broken on purpose.
//!
//! btrfs-progs' come as metadata dumps (`.img`), packed dumps (`.img.xz`) and packed images (`.raw.xz`);
//! dissect.btrfs' as packed images (`.bin.gz`). Unpacked, some are terabytes long and all hole: never read one from
//! end to end.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::guard::run;
use crate::oracle;
use crate::sparse;

/// The packed images of btrfs-progs' tests, sorted; empty where they were not fetched.
pub fn progs_images() -> Vec<PathBuf> {
    let dir = oracle::corpus(oracle::PROGS_IMAGES);
    dir.map_or(vec![], |dir| files_below(&dir, &[".img", ".img.xz", ".raw.xz"]))
}

/// The packed images of dissect.btrfs, sorted: `btrfs-raid5-1.bin.gz` is the first device of its file system.
pub fn dissect_images() -> Vec<PathBuf> {
    let dir = oracle::corpus(oracle::DISSECT_IMAGES);
    dir.map_or(vec![], |dir| files_below(&dir.join("tests/_data"), &[".bin.gz"]))
}

/// Unpacks an image to the file `to`. A dump that `btrfs-image` cannot restore is an error.
pub fn unpack(packed: &Path, to: &Path) -> io::Result<()> {
    let name = packed.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let dump = to.with_extension("dump");
    if name.ends_with(".bin.gz") {
        return decompress("gzip", packed, to);
    }
    if name.ends_with(".raw.xz") {
        return decompress("xz", packed, to);
    }
    let restore = |dump: &Path| run(limited("btrfs-image").arg("-r").arg(dump).arg(to)).map(drop);
    if name.ends_with(".img.xz") {
        decompress("xz", packed, &dump)?;
        let restored = restore(&dump);
        std::fs::remove_file(&dump)?;
        return restored;
    }
    restore(packed)
}

fn decompress(program: &str, packed: &Path, to: &Path) -> io::Result<()> {
    let mut child = limited(program).arg("-dc").arg(packed).stdout(Stdio::piped()).spawn()?;
    let mut output = child.stdout.take().expect("a pipe");
    let written = sparse::write(&mut output, to);
    drop(output);
    let status = child.wait()?;
    written?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("{program} {}: {status}", packed.display())))
    }
}

fn limited(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program);
    command
}

fn files_below(dir: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                todo.push(path);
            } else if endings.iter().any(|end| path.to_string_lossy().ends_with(end)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
