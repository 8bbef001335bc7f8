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

/// The features are those of the kernel's btrfs.
fn configuration(allow_remount: bool) -> String {
    format!(
        r#"
        [features]
        utime_now = {{}}
        utimensat = {{}}
        rename_ctime = {{}}
        posix_fallocate = {{}}

        [settings]
        naptime = 0.001
        allow_remount = {allow_remount}

        [dummy_auth]
        entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
        "#
    )
}

/// Runs the tests that fit a pattern on a mount; they must pass, and at least so many of them.
fn passes(allow_remount: bool, pattern: &[&str], at_least: usize) {
    let Some(()) = can_mount_and_judge() else { return };
    let Some(()) = need(&[Need::Program("pjdfstest"), Need::Program("mount")]) else { return };
    let dir = TempDir::new("pjdfstest").expect("a folder");
    let mount = Mount::create(&dir, "1G");
    let file = dir.join("configuration");
    std::fs::write(&file, configuration(allow_remount)).expect("a file");
    // The suite remounts with mount(8), which would ask a helper for this type of mount.
    let real = program("mount").expect("mount(8)");
    let wrapper = dir.join("mount");
    std::fs::write(&wrapper, format!("#!/bin/sh\nexec {} -i \"$@\"\n", real.display())).expect("a file");
    std::fs::set_permissions(&wrapper, PermissionsExt::from_mode(0o755)).expect("chmod");
    let path = std::env::var("PATH").unwrap_or_default();

    let mut command = Command::new(program("pjdfstest").expect("pjdfstest"));
    command.arg("-c").arg(&file).arg("-p").arg(mount.path()).arg("-s").arg(dir.path()).args(pattern);
    let out = command.env("PATH", format!("{}:{path}", dir.path().display())).output().expect("pjdfstest");
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    let ended = |how: &str| -> BTreeSet<&str> {
        let lines = said.lines().filter_map(|line| line.trim_end().strip_suffix(how));
        lines.map(str::trim_end).filter(|name| name.contains("::") && !name.contains(' ')).collect()
    };
    let failed: Vec<&str> = ended("FAILED").into_iter().filter(|name| !ALLOWED.contains(name)).collect();
    assert!(failed.is_empty(), "{failed:#?}\n{said}");
    // a suite that skips everything would prove nothing
    let passed = ended("ok").len();
    assert!(passed >= at_least, "only {passed} passed\n{said}");
    mount.judge();
}

#[test]
fn pjdfstest_passes() {
    passes(false, &[], 378);
}

/// Apart from the others: after some of those a file system cannot be made read-only, the kernel's btrfs neither.
#[test]
fn pjdfstest_passes_where_it_remounts_read_only() {
    passes(true, &["erofs"], 13);
}
