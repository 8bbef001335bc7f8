//! Mounting and unmounting: options, refusals, signals, crashes, the way that mount(8) goes.

mod support;

use std::fs::File;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use buttery_judge::{KernelMount, Loop, TempDir, check, golden};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::Signal;
use support::mount::{Mount, can_mount, can_mount_and_judge, facts, is_mount, judged};
use support::program::buttery;
use support::untouched::untouched;

fn new(label: &str) -> Option<(TempDir, Mount)> {
    can_mount()?;
    let dir = TempDir::new(label).expect("a folder");
    let mount = Mount::create(&dir, "1G");
    Some((dir, mount))
}

fn write(path: &Path, data: &[u8]) {
    std::fs::write(path, data).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn refused(image: &Path, options: &str, parts: &[&str]) {
    match Mount::try_new(image, options) {
        Ok(_) => panic!("-o {options} was mounted"),
        Err(run) => drop(run.fails(parts)),
    }
}

#[test]
fn create_makes_the_image_and_the_directory_once() {
    let Some(()) = can_mount() else { return };
    let dir = TempDir::new("create").expect("a folder");
    let (image, point) = (dir.join("new.img"), dir.join("new/dir"));
    let line = ["mount".as_ref(), "--create".as_ref(), "512M".as_ref(), image.as_os_str(), point.as_os_str()];
    buttery(&line).quiet();
    let mount = Mount::adopt(&image, TempDir::new("unused").expect("a folder"), &point);
    assert_eq!(image.metadata().expect("an image").len(), 512 << 20);
    write(&mount.join("kept"), b"kept");
    mount.umount();
    buttery(&line).quiet();
    let mount = Mount::adopt(&image, TempDir::new("unused").expect("a folder"), &point);
    assert_eq!(read(&mount.join("kept")), b"kept");
    mount.umount();
    let small = dir.join("small.img");
    let line = ["mount".as_ref(), "--create".as_ref(), "1M".as_ref(), small.as_os_str(), point.as_os_str()];
    buttery(&line).fails(&["small.img"]);
    assert!(!small.exists(), "an image that could not be made is left");
}

#[test]
fn umount_returns_when_the_image_is_released() {
    let Some((_dir, mount)) = new("release") else { return };
    let image = mount.image.clone();
    mount.umount();
    for n in 0..5 {
        let mount = Mount::new(&image, "");
        write(&mount.join(format!("file-{n}")), &vec![n; 3 << 20]);
        mount.umount();
        let file = File::options().read(true).write(true).open(&image).expect("the image");
        let lock = rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(lock, Ok(()), "the image is in use after umount");
    }
}

#[test]
fn umount_of_a_busy_mount_fails_and_it_goes_on() {
    let Some((_dir, mount)) = new("busy") else { return };
    write(&mount.join("file"), b"1");
    let open = File::open(mount.join("file")).expect("a file");
    buttery(&["umount".as_ref(), mount.path().as_os_str()]).fails(&["busy"]);
    write(&mount.join("file"), b"2");
    drop(open);
    assert_eq!(read(&mount.join("file")), b"2");
    mount.umount();
    let dir = TempDir::new("none").expect("a folder");
    for command in ["umount", "sync"] {
        buttery(&[command.as_ref(), dir.path().as_os_str()]).fails(&["is no mount of buttery"]);
    }
}

#[test]
fn an_image_in_use_is_refused() {
    let Some(()) = can_mount_and_judge() else { return };
    let Some((_dir, mount)) = new("twice") else { return };
    let image = mount.image.clone();
    refused(&image, "", &["image", "another program has it open for writing"]);
    write(&mount.join("still"), b"here");
    mount.umount();

    let kernel = KernelMount::one(&image, "").expect("a kernel mount");
    refused(&image, "", &["image", "is in use by /dev/loop"]);
    let device = kernel.loops()[0].device().to_path_buf();
    refused(&device, "", &["loop", "busy"]);
    kernel.unmount().expect("an unmount");

    let idle = Loop::attach(&image).expect("a loop device");
    let mount = Mount::new(idle.device(), "");
    assert_eq!(read(&mount.join("still")), b"here");
    mount.umount();
    drop(idle);
    Mount::new(&image, "").umount();
    check::btrfs_check(&image).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn sigterm_commits_and_unmounts() {
    let Some(()) = can_mount_and_judge() else { return };
    for signal in [Signal::TERM, Signal::INT] {
        let Some((_dir, mount)) = new("signal") else { return };
        let image = mount.image.clone();
        write(&mount.join("file"), &[1; 300_000]);
        let seen = facts(mount.path());
        mount.signal(signal);
        assert!(mount.ended(Duration::from_secs(60)), "{signal:?} did not end it");
        assert!(!is_mount(mount.path()), "{signal:?} left the mount");
        mount.vanished();
        judged(&image, &seen);
    }
}

#[test]
fn sigterm_commits_and_ends_although_files_are_open() {
    let Some(()) = can_mount_and_judge() else { return };
    let Some((_dir, mount)) = new("detached") else { return };
    let image = mount.image.clone();
    let open = |name: &str| {
        write(&mount.join(name), b"before");
        File::options().read(true).write(true).open(mount.join(name)).expect("a file")
    };
    let (file, orphan) = (open("file"), open("orphan"));
    std::fs::remove_file(mount.join("orphan")).expect("removed");
    file.write_all_at(b"beyond", 0).expect("a write");
    mount.signal(Signal::TERM);
    assert!(mount.ended(Duration::from_secs(60)), "it does not end");
    assert!(file.write_all_at(b"late", 0).is_err(), "a write that nobody serves");
    mount.vanished();
    drop((file, orphan));
    check::btrfs_check_data(&image).unwrap_or_else(|e| panic!("{e}"));
    let mount = Mount::new(&image, "");
    assert_eq!(read(&mount.join("file")), b"beyond");
    let seen = facts(mount.path());
    assert_eq!(seen.len(), 2, "the root and one file");
    mount.umount();
    judged(&image, &seen);
}

#[test]
fn what_is_left_of_a_killed_server_is_unmounted() {
    let Some((_dir, mount)) = new("killed") else { return };
    write(&mount.join("file"), b"1");
    mount.signal(Signal::KILL);
    assert!(mount.ended(Duration::from_secs(60)));
    assert!(std::fs::read_dir(mount.path()).is_err());
    buttery(&["umount".as_ref(), mount.path().as_os_str()]).fails(&["the server was gone"]);
    mount.vanished();
}

#[test]
fn what_was_there_at_the_last_sync_survives_a_crash() {
    let Some(()) = can_mount_and_judge() else { return };
    let Some((_dir, mount)) = new("crash") else { return };
    let image = mount.image.clone();
    for n in 0..200 {
        write(&mount.join(format!("before-{n}")), &vec![n as u8; n * 100]);
    }
    let seen = facts(mount.path());
    buttery(&["sync".as_ref(), mount.path().as_os_str()]).quiet();
    write(&mount.join("after"), &[1; 100_000]);
    mount.crash();
    check::btrfs_check_data(&image).unwrap_or_else(|e| panic!("{e}"));
    let mount = Mount::new(&image, "");
    let left = facts(mount.path());
    mount.umount();
    let all = |list: &[buttery_judge::Fact]| list.iter().filter(|f| f.path.starts_with(b"before")).count();
    assert_eq!(all(&left), all(&seen));
    let same = seen.iter().skip(1).all(|fact| left.contains(fact));
    assert!(same, "a file that was synced has changed");
    judged(&image, &left);
}

#[test]
fn read_only_writes_no_byte() {
    let Some((_dir, mount)) = new("ro") else { return };
    let image = mount.image.clone();
    write(&mount.join("file"), b"1");
    let seen = facts(mount.path());
    mount.umount();
    untouched(std::slice::from_ref(&image), || {
        let mount = Mount::new(&image, "ro");
        assert_eq!(facts(mount.path()), seen);
        for error in [
            File::create(mount.join("new")).err(),
            std::fs::remove_file(mount.join("file")).err(),
            std::fs::create_dir(mount.join("dir")).err(),
            std::fs::rename(mount.join("file"), mount.join("b")).err(),
        ] {
            assert_eq!(error.and_then(|e| e.raw_os_error()), Some(Errno::ROFS.raw_os_error()));
        }
        let again = Mount::new(&image, "ro");
        assert_eq!(read(&again.join("file")), b"1", "several may read");
        again.umount();
        mount.umount();
    });
}

#[test]
fn a_log_that_was_not_replayed_is_refused() {
    let Some(()) = can_mount() else { return };
    let image = golden::open("log").expect("a golden image");
    untouched(&image.files, || {
        refused(&image.files[0], "", &["log", "replay"]);
        refused(&image.files[0], "ro", &["log", "rescue=nologreplay"]);
        let mount = Mount::new(&image.files[0], "ro,rescue=nologreplay");
        let seen = facts(mount.path());
        assert!(seen.len() > 1);
        mount.umount();
    });
}

#[test]
fn options_that_cannot_be_served_are_refused_by_name() {
    let Some((_dir, mount)) = new("options") else { return };
    let image = mount.image.clone();
    mount.umount();
    for (options, text) in [
        ("autodefrag", "option autodefrag is not supported yet"),
        ("compress=zip", "zip is not zlib, lzo or zstd"),
        ("noatime,bogus", "unknown option bogus"),
        ("rescue=nonsense", "unknown option rescue=nonsense"),
        ("subvolid=x", "option subvolid: x is not a number"),
        ("commit", "option commit needs a value"),
        ("subvol=/missing", "No such file"),
        ("subvolid=999", "No such file"),
    ] {
        if let Err(run) = Mount::try_new(&image, options) {
            let said = run.stderr.to_lowercase();
            assert!(said.contains(&text.to_lowercase()) || said.contains("not found"), "{options}: {said}");
        } else {
            panic!("-o {options} was mounted");
        }
    }
    Mount::new(&image, "rw,noatime,nodev,x-systemd.automount,commit=5,cache=32M").umount();
}

#[test]
fn the_mount_table_and_flags() {
    let Some((_dir, mount)) = new("table") else { return };
    let image = mount.image.clone();
    let entry = |mount: &Mount| {
        let table = std::fs::read_to_string("/proc/self/mounts").expect("the mount table");
        let point = mount.path().display().to_string();
        table.lines().find(|line| line.contains(&point)).expect("an entry").to_owned()
    };
    let line = entry(&mount);
    assert!(
        line.starts_with(&format!("{} ", image.display())) && line.contains(" fuse.buttery rw,"),
        "{line}"
    );
    assert!(!line.contains("nosuid") && !line.contains("nodev"), "{line}");
    assert!(line.contains("default_permissions") && line.contains("allow_other"), "{line}");
    mount.umount();
    let mount = Mount::new(&image, "ro,nodev,nosuid,noexec");
    let line = entry(&mount);
    for flag in [" ro,", "nodev", "nosuid", "noexec"] {
        assert!(line.contains(flag), "{flag}: {line}");
    }
    mount.umount();
}

/// The helper under which mount(8) finds the program, for as long as this lives.
struct Helper(PathBuf);

impl Helper {
    fn install() -> Helper {
        let link = PathBuf::from("/sbin/mount.fuse.buttery");
        if link.symlink_metadata().is_ok_and(|m| m.is_symlink()) {
            std::fs::remove_file(&link).expect("a link that was left");
        }
        symlink(env!("CARGO_BIN_EXE_buttery"), &link).expect("a link in /sbin");
        Helper(link)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn mount8_finds_its_helper() {
    let Some((dir, mount)) = new("mount8") else { return };
    let image = mount.image.clone();
    write(&mount.join("file"), b"1");
    mount.umount();
    let helper = Helper::install();
    for (n, program) in ["mount", helper.0.to_str().expect("text")].into_iter().enumerate() {
        let folder = TempDir::new("mount8").expect("a folder");
        let point = folder.join("mnt");
        std::fs::create_dir(&point).expect("a folder");
        let mut command = Command::new(program);
        if n == 0 {
            command.args(["-t", "fuse.buttery", "-o", "ro,noatime"]).arg(&image).arg(&point);
        } else {
            command.arg(&image).arg(&point).args(["-o", "ro,noatime"]);
        }
        let out = command.output().expect("mount");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success(), "{program}: {said}");
        let mount = Mount::adopt(&image, folder, &point);
        assert_eq!(read(&mount.join("file")), b"1");
        assert!(File::create(mount.join("new")).is_err(), "ro was lost");
        // umount(8) works too; only that it may return before the server has ended
        let status = Command::new("umount").arg(mount.path()).status().expect("umount");
        assert!(status.success());
        assert!(mount.ended(Duration::from_secs(60)), "the server goes on after umount(8)");
        mount.vanished();
    }
    drop(dir);
}
