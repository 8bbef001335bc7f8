//! Images that the kernel made: mkfs.btrfs, a mount, a workload, and the facts the kernel tells about the result.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::check;
use crate::facts::Fact;
use crate::guard::{KernelMount, Loop, TempDir, run};
use crate::oracle::{Need, need};
use crate::walk::walk;
use crate::workload::{self, Op, random, shapes};

/// What image to make.
#[derive(Clone, Debug)]
pub struct ImageSpec {
    pub devices: usize,
    pub device_bytes: u64,
    /// Arguments for mkfs.btrfs: `["--csum", "blake2", "-O", "block-group-tree"]`.
    pub mkfs: Vec<String>,
    /// Options of the mount under which the workload runs.
    pub mount: String,
    pub ops: Vec<Op>,
}

impl ImageSpec {
    /// One device of 1 GiB (sparse), mkfs's defaults, nothing in it.
    pub fn new() -> ImageSpec {
        ImageSpec { devices: 1, device_bytes: 1 << 30, mkfs: vec![], mount: String::new(), ops: vec![] }
    }

    pub fn devices(mut self, count: usize, bytes: u64) -> ImageSpec {
        (self.devices, self.device_bytes) = (count, bytes);
        self
    }

    /// Adds arguments for mkfs.btrfs, separated by blanks.
    pub fn mkfs(mut self, arguments: &str) -> ImageSpec {
        self.mkfs.extend(arguments.split_whitespace().map(String::from));
        self
    }

    pub fn mount(mut self, options: &str) -> ImageSpec {
        self.mount = options.into();
        self
    }

    pub fn ops(mut self, ops: Vec<Op>) -> ImageSpec {
        self.ops.extend(ops);
        self
    }

    /// Every shape for this node size, and then `count` random operations.
    pub fn workload(self, nodesize: usize, seed: u64, count: usize) -> ImageSpec {
        let mix = random::Mix::new(seed, count);
        self.ops(shapes::all(nodesize)).ops(random::ops(&mix))
    }
}

impl Default for ImageSpec {
    fn default() -> ImageSpec {
        ImageSpec::new()
    }
}

/// An unmounted image, one file per device, that `btrfs check` found sound.
#[derive(Debug)]
pub struct KernelImage {
    pub dir: TempDir,
    pub files: Vec<PathBuf>,
    /// What the kernel sees on it when it is mounted again, read-only.
    pub facts: Vec<Fact>,
    pub report: workload::Report,
}

impl KernelImage {
    /// The image file, where there is but one device.
    pub fn file(&self) -> &Path {
        assert_eq!(self.files.len(), 1, "an image with one device");
        &self.files[0]
    }
}

/// Makes the image, or skips the test where the kernel cannot be asked. Panics when anything goes wrong: a judge
/// that fails proves nothing.
pub fn kernel_image(spec: &ImageSpec) -> Option<KernelImage> {
    need(&[Need::KernelBtrfs])?;
    let image = make(spec)
        .unwrap_or_else(|e| panic!("no image of {spec_text}: {e}", spec_text = spec.mkfs.join(" ")));
    check::btrfs_check_devices(&image.files, true)
        .unwrap_or_else(|e| panic!("the kernel's image is unsound: {e}"));
    Some(image)
}

fn make(spec: &ImageSpec) -> io::Result<KernelImage> {
    let dir = TempDir::new("image")?;
    let files = blank_files(&dir, spec.devices, spec.device_bytes)?;
    let loops = Loop::attach_all(&files)?;
    mkfs(&loops, &spec.mkfs)?;
    let mount = KernelMount::of_loops(loops, &spec.mount)?;
    let report = workload::run(mount.path(), &spec.ops)?;
    mount.unmount_without_complaints()?;
    let facts = kernel_facts(&files)?;
    Ok(KernelImage { dir, files, facts, report })
}

/// What the kernel reads from an image that was unmounted. Read before the unmount, a fact can be one that was never
/// written: renaming a subvolume changes its root's ctime in memory only.
pub fn kernel_facts(files: &[PathBuf]) -> io::Result<Vec<Fact>> {
    kernel_facts_with(files, "ro")
}

/// The same, under these mount options.
pub fn kernel_facts_with(files: &[PathBuf], options: &str) -> io::Result<Vec<Fact>> {
    let mount = KernelMount::new(files, options)?;
    let facts = walk(mount.path())?;
    mount.unmount()?;
    Ok(facts)
}

/// Sparse files `0.img`, `1.img`, ...
pub fn blank_files(dir: &TempDir, count: usize, bytes: u64) -> io::Result<Vec<PathBuf>> {
    let files: Vec<PathBuf> = (0..count).map(|n| dir.join(format!("{n}.img"))).collect();
    files.iter().try_for_each(|file| File::create_new(file)?.set_len(bytes))?;
    Ok(files)
}

pub fn mkfs(loops: &[Loop], arguments: &[String]) -> io::Result<()> {
    let mut command = Command::new("mkfs.btrfs");
    command.args(["--quiet", "--force"]).args(arguments).args(loops.iter().map(Loop::device));
    run(&mut command).map(drop)
}
