//! pjdfstest, a POSIX test suite that others wrote, on a mount.
//!
//! It knows no way to be told what a file system need not do, so the failures that are allowed are listed here.

mod support;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use buttery_judge::oracle::program;
use buttery_judge::{Need, TempDir, need};
use support::mount::{Mount, can_mount_and_judge};

/// The kernel's btrfs fails this too: a directory's link count is always 1 there.
const ALLOWED: &[&str] = &["rename::updates_link_parent"];

/// How many must have run, so that a suite that skips everything proves nothing.
const PASSED_AT_LEAST: usize = 380;

/// The features are those of the kernel's btrfs; `posix_fallocate` is not served yet.
const CONFIGURATION: &str = r#"
[features]
utime_now = {}
utimensat = {}
rename_ctime = {}

[settings]
naptime = 0.001
allow_remount = true

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

#[test]
fn pjdfstest_passes() {
    let Some(()) = can_mount_and_judge() else { return };
    let Some(()) = need(&[Need::Program("pjdfstest"), Need::Program("mount")]) else { return };
    let dir = TempDir::new("pjdfstest").expect("a folder");
    let mount = Mount::create(&dir, "1G");
    let configuration = dir.join("configuration");
    std::fs::write(&configuration, CONFIGURATION).expect("a file");
    // The suite remounts read-only with mount(8), which would ask a helper for each type of FUSE mount.
    let real = program("mount").expect("mount(8)");
    let wrapper = dir.join("mount");
    std::fs::write(&wrapper, format!("#!/bin/sh\nexec {} -i \"$@\"\n", real.display())).expect("a file");
    std::fs::set_permissions(&wrapper, PermissionsExt::from_mode(0o755)).expect("chmod");
    let path = std::env::var("PATH").unwrap_or_default();

    let mut command = Command::new(program("pjdfstest").expect("pjdfstest"));
    command.arg("-c").arg(&configuration).arg("-p").arg(mount.path()).arg("-s").arg(dir.path());
    let out = command.env("PATH", format!("{}:{path}", dir.path().display())).output().expect("pjdfstest");
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    let ended = |how: &str| -> BTreeSet<&str> {
        let lines = said.lines().filter_map(|line| line.trim_end().strip_suffix(how));
        lines.map(str::trim_end).filter(|name| name.contains("::") && !name.contains(' ')).collect()
    };
    let failed: Vec<&str> = ended("FAILED").into_iter().filter(|name| !ALLOWED.contains(name)).collect();
    assert!(failed.is_empty(), "{failed:#?}\n{said}");
    let passed = ended("ok").len();
    assert!(passed >= PASSED_AT_LEAST, "only {passed} passed\n{said}");
    mount.judge();
}
