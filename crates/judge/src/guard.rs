//! What a test borrows from the machine, given back on drop, also when the test panics: temporary folders, loop
//! devices, mounts. Each is released by its own name; nothing is searched for and nothing is killed.

use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::dmesg::Mark;

/// A fresh folder, removed with its contents on drop.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// `label` is only there for a person who looks into the temporary folder.
    pub fn new(label: &str) -> io::Result<TempDir> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let base = std::env::temp_dir();
        loop {
            let n = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = base.join(format!("buttery-{label}-{}-{n}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(TempDir(path)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(e),
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A loop device over an image file.
#[derive(Debug)]
pub struct Loop {
    device: PathBuf,
    image: PathBuf,
    /// When the device became ours; what the log says of its name before that is of somebody else's.
    since: Mark,
}

/// How long a detached loop device may stay, because another process happens to look at it.
const DETACHING: Duration = Duration::from_secs(20);

impl Loop {
    pub fn attach(image: &Path) -> io::Result<Loop> {
        Loop::attach_with(image, &[])
    }

    pub fn attach_read_only(image: &Path) -> io::Result<Loop> {
        Loop::attach_with(image, &["--read-only"])
    }

    /// The part of the file that starts at `offset`, `size` bytes long (0: to the end).
    pub fn attach_at(image: &Path, offset: u64, size: u64) -> io::Result<Loop> {
        let (offset, size) = (offset.to_string(), size.to_string());
        Loop::attach_with(image, &["--offset", &offset, "--sizelimit", &size])
    }

    pub fn attach_all(images: &[PathBuf]) -> io::Result<Vec<Loop>> {
        images.iter().map(|image| Loop::attach(image)).collect()
    }

    fn attach_with(image: &Path, options: &[&str]) -> io::Result<Loop> {
        let mut tries = 0;
        loop {
            let mut command = Command::new("losetup");
            command.args(options).args(["--find", "--show"]).arg(image);
            match run(&mut command) {
                Ok(out) => {
                    let device = PathBuf::from(out.trim());
                    return Ok(Loop { device, image: image.canonicalize()?, since: Mark::now()? });
                }
                // Another process may have taken the device that losetup found.
                Err(_) if tries < 5 => tries += 1,
                Err(e) => return Err(e),
            }
            sleep(Duration::from_millis(50));
        }
    }

    /// `/dev/loopN`
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// What the kernel complained of about this device since it was attached.
    pub fn complaints(&self) -> io::Result<Vec<String>> {
        self.since.complaints_of(&self.device)
    }

    /// Whether the device still stands on the image.
    fn attached(&self) -> bool {
        let name = self.device.file_name().unwrap_or_default();
        let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
        let found = std::fs::read_to_string(backing).unwrap_or_default();
        Path::new(found.trim_end_matches('\n')) == self.image
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // The kernel's driver remembers every device it has seen, and would find this one in a later file system.
        let _ = run(Command::new("btrfs").args(["device", "scan", "--forget"]).arg(&self.device));
        if let Err(e) = run(Command::new("losetup").arg("--detach").arg(&self.device)) {
            eprintln!("cannot detach {}: {e}", self.device.display());
        }
        // While anyone has it open, the kernel only notes that it shall go; the image is in use until then.
        let began = Instant::now();
        while self.attached() && began.elapsed() < DETACHING {
            sleep(Duration::from_millis(5));
        }
    }
}

/// A mount of the kernel's btrfs. It owns its loop devices and its mount point.
#[derive(Debug)]
pub struct KernelMount {
    mounted: bool,
    loops: Vec<Loop>,
    point: TempDir,
}

impl KernelMount {
    /// Mounts image files, one per device, with the file system's own options (`"compress=zstd,nodatasum"`).
    /// The generic words `ro` and `noatime` are understood too.
    pub fn new(images: &[PathBuf], options: &str) -> io::Result<KernelMount> {
        KernelMount::of_loops(Loop::attach_all(images)?, options)
    }

    pub fn one(image: &Path, options: &str) -> io::Result<KernelMount> {
        KernelMount::of_loops(vec![Loop::attach(image)?], options)
    }

    pub fn of_loops(loops: Vec<Loop>, options: &str) -> io::Result<KernelMount> {
        assert!(!loops.is_empty(), "a mount needs a device");
        let point = TempDir::new("mount")?;
        let (flags, mut data) = split_options(options);
        data.extend(loops[1..].iter().map(|l| format!("device={}", l.device().display())));
        let data = CString::new(data.join(","))?;
        rustix::mount::mount(loops[0].device(), point.path(), "btrfs", flags, data.as_c_str())?;
        Ok(KernelMount { mounted: true, loops, point })
    }

    pub fn path(&self) -> &Path {
        self.point.path()
    }

    pub fn loops(&self) -> &[Loop] {
        &self.loops
    }

    pub fn remount(&self, options: &str) -> io::Result<()> {
        let (flags, data) = split_options(options);
        Ok(rustix::mount::mount_remount(self.path(), flags, data.join(","))?)
    }

    /// Keeps a device for as long as the mount, e.g. one that was added to the file system.
    pub fn adopt(&mut self, device: Loop) {
        self.loops.push(device);
    }

    /// Unmounts now, and tells whether that went well; drop does the same without a word.
    pub fn unmount(mut self) -> io::Result<()> {
        self.unmount_now()
    }

    /// Unmounts, and gives as an error what the kernel complained of about its devices since they were attached.
    pub fn unmount_without_complaints(self) -> io::Result<()> {
        self.unmount_with_complaints_of(&|_| false)
    }

    /// The same, but that some complaints are expected.
    pub fn unmount_with_complaints_of(mut self, expected: &dyn Fn(&str) -> bool) -> io::Result<()> {
        self.unmount_now()?;
        let mut complaints = Vec::new();
        for device in &self.loops {
            complaints.extend(device.complaints()?.into_iter().filter(|line| !expected(line)));
        }
        if complaints.is_empty() { Ok(()) } else { Err(io::Error::other(complaints.join("\n"))) }
    }

    fn unmount_now(&mut self) -> io::Result<()> {
        let mut tries = 0;
        while self.mounted {
            match rustix::mount::unmount(self.point.path(), UnmountFlags::empty()) {
                Ok(()) => self.mounted = false,
                Err(Errno::BUSY) if tries < 50 => tries += 1,
                Err(e) => return Err(e.into()),
            }
            if self.mounted {
                sleep(Duration::from_millis(100));
            }
        }
        Ok(())
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        if let Err(e) = self.unmount_now() {
            eprintln!("cannot unmount {}: {e}", self.path().display());
            let _ = rustix::mount::unmount(self.point.path(), UnmountFlags::DETACH);
        }
    }
}

fn split_options(options: &str) -> (MountFlags, Vec<String>) {
    let mut flags = MountFlags::NOATIME;
    let mut data = Vec::new();
    for word in options.split(',').filter(|word| !word.is_empty()) {
        match word {
            "ro" => flags |= MountFlags::RDONLY,
            "rw" | "noatime" => {}
            other => data.push(other.to_string()),
        }
    }
    (flags, data)
}

/// Runs a program to its end; its standard output, or an error that holds everything it said.
pub fn run(command: &mut Command) -> io::Result<String> {
    let out = command.output()?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let said = [out.stdout, out.stderr].concat();
    Err(io::Error::other(format!("{command:?}: {}: {}", out.status, String::from_utf8_lossy(&said).trim())))
}
