//! A mount by the program, taken down when it is dropped, also when the test panics.
//!
//! Start at [`Mount::create`] (a new image) or [`Mount::new`] (one that is there). [`judged`] is the end of a test that
//! wrote: `btrfs check`, and the kernel must see what was seen through the mount.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use buttery_judge::dmesg::Mark;
use buttery_judge::{Compare, Fact, KernelMount, Need, TempDir, check, compare, need, walk};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::program::{Limits, Run, buttery, buttery_with};

/// How long the program may take to unmount.
const LONGEST: Duration = Duration::from_secs(60);

/// Inode numbers of other subvolumes carry the subvolume's id above these bits.
const INO_BITS: u32 = 44;
/// What stands for a nested subvolume has the number of the directory around it, and this bit.
const STUB_BIT: u64 = 1 << 43;

/// A directory on which the program has mounted an image.
pub struct Mount {
    pub image: PathBuf,
    point: PathBuf,
    /// The process that serves, which cannot be mistaken for a later one.
    server: OwnedFd,
    pid: Pid,
    gone: bool,
    /// The folder of the mount point.
    _dir: TempDir,
}

/// What mounting needs; skips the test where it cannot be had.
pub fn can_mount() -> Option<()> {
    need(&[Need::Root, Need::Fuse])
}

/// The same, and the kernel as a judge of what was written.
pub fn can_mount_and_judge() -> Option<()> {
    need(&[Need::Fuse, Need::KernelBtrfs])
}

impl Mount {
    /// Mounts an image, with options as after `-o`.
    pub fn new(image: &Path, options: &str) -> Mount {
        Mount::try_new(image, options).unwrap_or_else(|run| panic!("buttery {}: {}", run.line, run.stderr))
    }

    /// Mounts an image, or tells how the program ended.
    pub fn try_new(image: &Path, options: &str) -> Result<Mount, Run> {
        let image = image.as_os_str();
        Mount::run(image.as_ref(), &["-o".as_ref(), options.as_ref(), "--".as_ref(), image])
    }

    /// Makes an image of this size in a folder, and mounts it.
    pub fn create(dir: &TempDir, size: &str) -> Mount {
        let image = dir.join("image");
        let words = ["--create".as_ref(), size.as_ref(), image.as_os_str()];
        Mount::run(&image, &words).unwrap_or_else(|run| panic!("buttery {}: {}", run.line, run.stderr))
    }

    fn run(image: &Path, words: &[&std::ffi::OsStr]) -> Result<Mount, Run> {
        let dir = TempDir::new("buttery").expect("a folder");
        let point = dir.join("mnt");
        std::fs::create_dir(&point).expect("a folder");
        let line: Vec<&std::ffi::OsStr> =
            [&["mount".as_ref()], words, &[point.as_os_str()]].into_iter().flatten().copied().collect();
        let run = buttery(&line);
        if !run.status.success() {
            return Err(run);
        }
        Ok(Mount::adopt(image, dir, &point))
    }

    /// Takes over what is mounted on `point`, somewhere in `dir`.
    pub fn adopt(image: &Path, dir: TempDir, point: &Path) -> Mount {
        let pid = server(point).unwrap_or_else(|| {
            let _ = unmount(point, UnmountFlags::DETACH);
            panic!("{} is no mount of buttery", point.display())
        });
        let server = pidfd_open(pid, PidfdFlags::empty()).expect("the server's process");
        Mount { image: image.into(), point: point.into(), server, pid, gone: false, _dir: dir }
    }

    pub fn path(&self) -> &Path {
        &self.point
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.point.join(name)
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Unmounts through the program, which must have nothing to say.
    pub fn umount(mut self) {
        buttery(&["umount".as_ref(), self.point.as_os_str()]).quiet();
        self.gone = true;
        assert!(self.ended(Duration::ZERO), "umount returned while the server is running");
        assert!(!is_mount(&self.point), "umount returned and it is still mounted");
    }

    /// Sends the server a signal.
    pub fn signal(&self, signal: Signal) {
        pidfd_send_signal(&self.server, signal).expect("the server is running");
    }

    /// Whether the server ends within this time.
    pub fn ended(&self, within: Duration) -> bool {
        let mut fds = [PollFd::new(&self.server, PollFlags::IN)];
        let within = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: within.subsec_nanos().into() };
        poll(&mut fds, Some(&within)).is_ok_and(|n| n > 0)
    }

    /// Kills the server, as a crash would, and removes what is left of the mount.
    pub fn crash(mut self) {
        self.signal(Signal::KILL);
        assert!(self.ended(LONGEST), "killed, and still running");
        unmount(&self.point, UnmountFlags::DETACH).expect("a dead mount");
        self.gone = true;
    }

    /// Unmounts; `btrfs check` must be content, and the kernel must see what was seen through the mount.
    pub fn judge(self) -> Vec<Fact> {
        let (image, seen) = (self.image.clone(), facts(self.path()));
        self.umount();
        judged(&image, &seen);
        seen
    }

    /// The server has ended, and the mount is gone.
    pub fn vanished(mut self) {
        assert!(self.ended(Duration::ZERO) && !is_mount(&self.point), "it is still mounted");
        self.gone = true;
    }

    fn take_down(&mut self) {
        let limits = Limits { time: LONGEST, ..Limits::default() };
        let run = buttery_with(&["umount".as_ref(), self.point.as_os_str()], limits);
        if run.status.success() {
            return;
        }
        eprintln!("buttery {}: {}", run.line, run.stderr);
        let _ = unmount(&self.point, UnmountFlags::DETACH);
        let _ = pidfd_send_signal(&self.server, Signal::KILL);
        self.ended(LONGEST);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.gone {
            self.take_down();
        }
    }
}

/// The process that serves a mount, if it is one of the program's.
pub fn server(point: &Path) -> Option<Pid> {
    let mut text = [0; 20];
    let length = rustix::fs::getxattr(point, "buttery.pid", &mut text[..]).ok()?;
    Pid::from_raw(std::str::from_utf8(&text[..length]).ok()?.parse().ok()?)
}

/// Whether something is mounted there.
pub fn is_mount(point: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mounts").expect("the mount table");
    table.lines().any(|line| line.split(' ').nth(1).is_some_and(|dir| Path::new(dir) == point))
}

/// What a mount of the program shows, with the inode numbers that the kernel shows: they are per subvolume there.
pub fn facts(point: &Path) -> Vec<Fact> {
    let mut facts = walk(point).unwrap_or_else(|e| panic!("a walk: {e}"));
    for fact in &mut facts {
        fact.ino &= (1 << INO_BITS) - 1;
        if fact.ino & STUB_BIT != 0 {
            fact.ino = Fact::STUB_INO;
        }
    }
    stubs(&facts)
}

/// What counts between a mount of the program and one of the kernel: FUSE tells no birth times.
pub fn all_but_births() -> Compare {
    Compare { btime: false, ..Compare::default() }
}

/// The stand-in for a nested subvolume has times that the kernel invents.
pub fn stubs(facts: &[Fact]) -> Vec<Fact> {
    let plain = |fact: &Fact| match fact.stub() {
        true => {
            let plain = Fact { mode: 0o755, ..Fact::new(fact.path.clone(), fact.kind) };
            Fact { uid: fact.uid, gid: fact.gid, ..plain }
        }
        false => fact.clone(),
    };
    facts.iter().map(plain).collect()
}

/// `btrfs check` finds the image sound, data too; the kernel mounts and scrubs it without a word, and sees this.
pub fn judged(image: &Path, seen: &[Fact]) {
    check::btrfs_check_data(image).unwrap_or_else(|e| panic!("{e}"));
    let mount = KernelMount::one(image, "").unwrap_or_else(|e| panic!("the kernel does not mount it: {e}"));
    let theirs = walk(mount.path()).unwrap_or_else(|e| panic!("the kernel's walk: {e}"));
    compare(&stubs(&theirs), seen, &all_but_births()).unwrap_or_else(|e| panic!("the kernel left: {e}"));
    check::kernel_scrub(mount.path()).unwrap_or_else(|e| panic!("{e}"));
    mount.unmount_without_complaints().unwrap_or_else(|e| panic!("{e}"));
}
