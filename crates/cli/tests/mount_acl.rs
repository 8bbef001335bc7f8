//! Access control lists: the same calls on a mount of ours and on the kernel's end alike, leave the same modes and
//! attributes, and give the same users the same access.
//!
//! One test in this file sets the process's umask, so there is only one.

mod support;

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use buttery_judge::workload::rng::Rng;
use buttery_judge::{
    Compare, Fact, ImageSpec, KernelMount, Need, TempDir, compare, kernel_image, need, walk,
};
use rustix::fs::{Mode, XattrFlags};
use rustix::io::Errno;
use support::mount::{Mount, facts, judged};

const OPS: usize = 1200;
const NAMES: &[&str] = &["a", "b", "c", "d"];
/// User and group of everybody who tries what they may do.
const USERS: &[(u32, u32)] = &[(1, 1), (2, 1), (3, 2), (65534, 3)];

/// A call, the same on both sides.
#[derive(Debug)]
enum Call {
    File { path: String, mode: u32, umask: u32 },
    Dir { path: String, mode: u32, umask: u32 },
    Set { path: String, name: &'static str, value: Vec<u8> },
    Remove { path: String, name: &'static str },
    Chmod { path: String, mode: u32 },
    Chown { path: String, uid: u32, gid: u32 },
}

impl Call {
    fn run(&self, top: &Path) -> Result<(), Errno> {
        let result = match self {
            Call::File { path, mode, umask } => under(*umask, || {
                File::options().write(true).create_new(true).mode(*mode).open(top.join(path)).map(drop)
            }),
            Call::Dir { path, mode, umask } => {
                under(*umask, || DirBuilder::new().mode(*mode).create(top.join(path)))
            }
            Call::Set { path, name, value } => {
                rustix::fs::setxattr(top.join(path), *name, value, XattrFlags::empty()).map_err(Into::into)
            }
            Call::Remove { path, name } => rustix::fs::removexattr(top.join(path), *name).map_err(Into::into),
            Call::Chmod { path, mode } => {
                std::fs::set_permissions(top.join(path), PermissionsExt::from_mode(*mode))
            }
            Call::Chown { path, uid, gid } => {
                std::os::unix::fs::chown(top.join(path), Some(*uid), Some(*gid))
            }
        };
        result.map_err(|e| Errno::from_io_error(&e).expect("an errno"))
    }
}

fn under<T>(umask: u32, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let before = rustix::process::umask(Mode::from(umask));
    let result = call();
    rustix::process::umask(before);
    result
}

/// A list with random permissions; now and then one that is none.
fn list(rng: &mut Rng) -> Vec<u8> {
    let mut entries = vec![(0x01, u32::MAX), (0x04, u32::MAX), (0x20, u32::MAX)];
    for (tag, named) in [(0x02, 3), (0x08, 3)] {
        for _ in 0..rng.below(3) {
            entries.push((tag, 1 + rng.below(named) as u32));
        }
    }
    if entries.len() > 3 || rng.one_in(3) {
        entries.push((0x10, u32::MAX));
    }
    entries.sort();
    entries.dedup();
    if rng.one_in(12) {
        entries.remove(rng.below(entries.len() as u64) as usize);
    }
    if rng.one_in(30) {
        entries.reverse();
    }
    if rng.one_in(30) {
        entries.clear();
    }
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, id) in entries {
        value.extend(u16::to_le_bytes(tag));
        value.extend((rng.below(8) as u16).to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

fn calls(seed: u64) -> Vec<Call> {
    let mut rng = Rng::new(seed);
    let path = |rng: &mut Rng| {
        let depth = 1 + rng.below(3);
        let names: Vec<&str> = (0..depth).map(|_| *rng.pick(NAMES).expect("a name")).collect();
        names.join("/")
    };
    let one = |rng: &mut Rng| {
        let path = path(rng);
        let name = if rng.one_in(2) { "system.posix_acl_access" } else { "system.posix_acl_default" };
        let (mode, umask) = (rng.below(0o10000) as u32, *rng.pick(&[0, 0o22, 0o27, 0o77]).expect("a umask"));
        match rng.below(8) {
            0 => Call::File { path, mode: mode & 0o777, umask },
            1 | 2 => Call::Dir { path, mode: mode & 0o1777, umask },
            3..=5 => Call::Set { path, name, value: list(rng) },
            6 if rng.one_in(4) => Call::Remove { path, name },
            6 => Call::Chmod { path, mode },
            _ => Call::Chown { path, uid: rng.below(4) as u32, gid: rng.below(4) as u32 },
        }
    };
    std::iter::repeat_with(|| one(&mut rng)).take(OPS).collect()
}

/// What users may do to each file, a line each.
fn access(top: &Path, list: &[Fact]) -> String {
    let paths: Vec<&str> = list.iter().map(|f| std::str::from_utf8(&f.path).expect("text")).collect();
    let script = r#"for f; do
        r=; [ -r "$f" ] && r=r; [ -w "$f" ] && r=${r}w; [ -x "$f" ] && r=${r}x; echo "$f $r"
        if [ -f "$f" ]; then cat "$f" >/dev/null 2>&1 && echo read; : 2>/dev/null >>"$f" && echo written; fi
    done"#;
    let mut told = String::new();
    for (uid, gid) in USERS {
        let mut command = Command::new("setpriv");
        command.args([
            &format!("--reuid={uid}"),
            &format!("--regid={gid}"),
            "--clear-groups",
            "sh",
            "-c",
            script,
        ]);
        let out = command.arg("sh").args(&paths).current_dir(top).output().expect("setpriv");
        told.push_str(&format!("user {uid}:\n{}", String::from_utf8_lossy(&out.stdout)));
    }
    told
}

#[test]
fn lists_are_kept_and_obeyed_as_the_kernel_does() {
    let Some(()) = need(&[Need::Fuse, Need::KernelBtrfs, Need::Program("setpriv")]) else { return };
    let dir = TempDir::new("acl").expect("a folder");
    let ours = Mount::create(&dir, "1G");
    let Some(made) = kernel_image(&ImageSpec::new()) else { return };
    let theirs = KernelMount::one(made.file(), "").expect("the kernel mounts it");
    for top in [ours.path(), theirs.path()] {
        std::fs::set_permissions(top, PermissionsExt::from_mode(0o755)).expect("chmod");
    }
    let (mut done, mut refused) = (0, 0);
    for (n, call) in calls(1).iter().enumerate() {
        let results = [ours.path(), theirs.path()].map(|top| call.run(top));
        assert_eq!(results[0], results[1], "call {n}, ours and the kernel's: {call:?}");
        *(if results[0].is_ok() { &mut done } else { &mut refused }) += 1;
    }
    assert!(done > OPS / 3 && refused > OPS / 20, "{done} done, {refused} refused");
    let what = Compare { btime: false, ..Compare::timeless() };
    let seen = facts(ours.path());
    let kernel = walk(theirs.path()).expect("a walk");
    compare(&kernel, &seen, &what).unwrap_or_else(|e| panic!("{e}"));
    assert!(seen.iter().filter(|f| f.xattrs.len() == 2).count() > 3, "too few lists");
    let expected = access(theirs.path(), &kernel);
    assert!(expected.contains("read") && expected.contains("written"));
    assert_eq!(access(ours.path(), &seen), expected);
    ours.umount();
    theirs.unmount().expect("an unmount");
    judged(&dir.join("image"), &seen);
    // what the kernel made is obeyed too, with nothing in any cache
    let ours = Mount::new(made.file(), "");
    assert_eq!(access(ours.path(), &kernel), expected);
    ours.judge();
}
