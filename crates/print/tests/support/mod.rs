//! What the oracle tests share: running programs, temporary places, file systems on loop devices.
#![allow(dead_code)]

pub mod image;
pub mod walk;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What keeps a test from running here.
pub struct Skip(pub String);

/// Runs a test that needs the programs of btrfs-progs 6.14, and for `mounts` the right to mount. Without them the
/// test is passed over, or fails if the environment has `BUTTERY_ORACLES=require`.
pub fn with_oracle(test: &str, mounts: bool, body: impl FnOnce(&Path) -> Result<(), Skip>) {
    let dir = std::env::temp_dir().join(format!("buttery-print-{test}-{}", std::process::id()));
    let cleanup = Cleanup(dir.clone());
    let outcome = available(mounts).and_then(|()| {
        std::fs::create_dir_all(&dir).expect("a temporary directory can be made");
        body(&dir)
    });
    drop(cleanup);
    if let Err(Skip(what)) = outcome {
        let required = std::env::var("BUTTERY_ORACLES").is_ok_and(|v| v == "require");
        assert!(!required, "{test} is required to run: {what}");
        println!("SKIPPED {test}: {what}");
    }
}

/// Removes a directory when dropped.
struct Cleanup(PathBuf);

impl Drop for Cleanup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn available(mounts: bool) -> Result<(), Skip> {
    let version = run("btrfs", &["--version"])?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    if !version.starts_with("btrfs-progs v6.14") {
        return Err(Skip(format!("btrfs is not of btrfs-progs 6.14 but {}", version.trim())));
    }
    run("mkfs.btrfs", &["--version"])?;
    if mounts {
        let id = run("id", &["-u"])?;
        if id.stdout != b"0\n" {
            return Err(Skip("only root may mount".to_string()));
        }
        if !std::fs::read_to_string("/proc/filesystems").is_ok_and(|list| list.contains("\tbtrfs\n")) {
            let _ = run("modprobe", &["btrfs"]);
        }
    }
    Ok(())
}

/// Runs a program, in UTC.
pub fn run(program: &str, args: &[&str]) -> Result<Output, Skip> {
    let output = Command::new(program).args(args).env("TZ", "UTC").output();
    output.map_err(|e| Skip(format!("{program} does not run: {e}")))
}

/// Runs a program that must succeed.
pub fn must(program: &str, args: &[&str]) -> Result<Vec<u8>, Skip> {
    let output = run(program, args)?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(Skip(format!("{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))),
    }
}

/// Makes a file system on new image files.
pub fn mkfs(images: &[PathBuf], megabytes: u64, options: &[&str]) -> Result<(), Skip> {
    for image in images {
        let file = std::fs::File::create(image).expect("an image can be made");
        file.set_len(megabytes << 20).expect("an image can grow");
    }
    let mut args = vec!["-q"];
    args.extend(options);
    args.extend(images.iter().map(|image| image.to_str().expect("a plain path")));
    must("mkfs.btrfs", &args).map(|_| ())
}

/// A mounted file system; unmounted, and its loop devices freed, when dropped.
pub struct Mounted {
    pub dir: PathBuf,
    loops: Vec<String>,
    mounted: bool,
}

impl Mounted {
    /// Mounts the file system on these images.
    pub fn new(images: &[PathBuf], options: &str) -> Result<Mounted, Skip> {
        let dir = images[0].with_extension("mnt");
        std::fs::create_dir_all(&dir).expect("a mount point can be made");
        let mut this = Mounted { dir, loops: Vec::new(), mounted: false };
        for image in images {
            let device = must("losetup", &["--find", "--show", image.to_str().expect("a plain path")])?;
            this.loops.push(String::from_utf8_lossy(&device).trim().to_string());
        }
        must(
            "btrfs",
            &[&["device", "scan"], this.loops.iter().map(String::as_str).collect::<Vec<_>>().as_slice()]
                .concat(),
        )?;
        let dir = this.dir.to_str().expect("a plain path").to_string();
        must("mount", &["-t", "btrfs", "-o", options, &this.loops[0].clone(), &dir])?;
        this.mounted = true;
        Ok(this)
    }

    /// Runs a shell script inside.
    pub fn script(&self, script: &str) -> Result<(), Skip> {
        let dir = self.dir.to_str().expect("a plain path");
        must("sh", &["-ec", &format!("cd '{dir}'\n{script}")]).map(|_| ())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.mounted {
            let _ = run("umount", &[self.dir.to_str().expect("a plain path")]);
        }
        for device in &self.loops {
            let _ = run("losetup", &["--detach", device]);
            let _ = run("btrfs", &["device", "scan", "--forget", device]);
        }
    }
}

/// Compares two texts and shows the first lines that differ.
pub fn assert_same(what: &str, ours: &[u8], theirs: &[u8]) {
    if ours == theirs {
        return;
    }
    let split = |text: &[u8]| -> Vec<String> {
        text.split(|&b| b == b'\n').map(|line| line.escape_ascii().to_string()).collect()
    };
    let (ours, theirs) = (split(ours), split(theirs));
    let at = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
    let around =
        |lines: &[String]| lines[at.saturating_sub(4).min(lines.len())..lines.len().min(at + 4)].join("\n");
    panic!(
        "{what}: line {} of {} differs\n--- btrfs-progs\n{}\n--- ours\n{}",
        at + 1,
        theirs.len(),
        around(&theirs),
        around(&ours)
    );
}
