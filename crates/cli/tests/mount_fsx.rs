//! fsx: random reads, writes, truncates and mapped accesses of one file, compared with a copy in memory.

mod support;

use std::process::Command;

use buttery_judge::oracle::program;
use buttery_judge::{Compare, Need, TempDir, compare, need};
use support::mount::{Mount, can_mount_and_judge, facts};

/// What differs from an ordinary mount.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Plain,
    Nocow,
    Writeback,
}

/// Runs this many operations with the program fsx, as this configuration says, from each seed on a file of its own, and
/// has the image judged. It gets slower with each operation, since it leaves its mappings: so several short runs.
fn fsx(label: &str, seeds: std::ops::Range<u32>, operations: u32, configuration: &str, how: How) {
    let Some(()) = can_mount_and_judge() else { return };
    let Some(()) = need(&[Need::Program("fsx")]) else { return };
    let dir = TempDir::new(label).expect("a folder");
    let mut mount = Mount::create(&dir, "1G");
    if how == How::Writeback {
        let image = mount.image.clone();
        mount.umount();
        mount = Mount::new(&image, "writeback_cache");
    }
    let file = dir.join("configuration");
    std::fs::write(&file, configuration).expect("a file");
    if how == How::Nocow {
        let run = Command::new("chattr").arg("+C").arg(mount.path()).status().expect("chattr");
        assert!(run.success(), "chattr +C on the root");
    }
    for seed in seeds {
        let mut command = Command::new(program("fsx").expect("fsx"));
        command.arg("-f").arg(&file).args(["-N", &operations.to_string(), "-S", &seed.to_string(), "-P"]);
        let out = command.arg(dir.path()).arg(mount.join(format!("file-{seed}"))).output().expect("fsx");
        let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert!(
            out.status.success() && said.contains("A-OK"),
            "{label}, seed {seed}: {}\n{said}",
            out.status
        );
    }
    if how == How::Writeback {
        // the kernel's clock and ours differ by up to a tick where both stamp a file, as fallocate does
        let (image, seen) = (mount.image.clone(), facts(mount.path()));
        mount.umount();
        mount = Mount::new(&image, "");
        let but_times = Compare { mtime: false, ctime: false, ..Compare::default() };
        compare(&facts(mount.path()), &seen, &but_times).unwrap_or_else(|e| panic!("{label}: {e}"));
    }
    mount.judge();
}

/// Without a commit after each mapped write, so that what the page cache and the server hold is mixed for long.
/// `BUTTERY_SIM_ROUNDS=10` makes a million of them.
#[test]
fn a_hundred_thousand_operations() {
    let configuration = "
        flen = 524288
        nomsyncafterwrite = true
        [opsize]
        max = 65536
        [weights]
        close_open = 1.0
        invalidate = 1.0
        mapread = 10.0
        mapwrite = 10.0
        read = 10.0
        write = 10.0
        truncate = 5.0
        fsync = 0.01
        fdatasync = 0.01
        posix_fallocate = 2.0
        punch_hole = 4.0
        copy_file_range = 4.0
        sendfile = 1.0
        posix_fadvise = 1.0
    ";
    let rounds: u32 = std::env::var("BUTTERY_SIM_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    fsx("fsx", 1..1 + 10 * rounds, 10_000, configuration, How::Plain);
    fsx("fsx-writeback", 31..33, 10_000, configuration, How::Writeback);
}

#[test]
fn small_operations_with_many_commits() {
    let configuration = "
        flen = 65536
        [opsize]
        max = 5000
        [weights]
        close_open = 1.0
        invalidate = 1.0
        mapread = 5.0
        mapwrite = 5.0
        read = 10.0
        write = 10.0
        truncate = 10.0
        fsync = 1.0
        fdatasync = 1.0
        posix_fallocate = 3.0
        punch_hole = 5.0
        copy_file_range = 5.0
    ";
    fsx("fsx-small", 11..12, 5000, configuration, How::Plain);
    fsx("fsx-nocow", 21..22, 5000, configuration, How::Nocow);
    fsx("fsx-small-writeback", 41..42, 5000, configuration, How::Writeback);
}
