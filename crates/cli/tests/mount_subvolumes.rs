//! Images with subvolumes and snapshots that the kernel made: what a mount shows of them, and what it must not allow.

mod support;

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use buttery_judge::workload::{Op, shapes};
use buttery_judge::{Compare, ImageSpec, KernelImage, compare, image, kernel_image, need};
use rustix::fs::CWD;
use rustix::io::Errno;
use support::mount::{Mount, all_but_births, facts, judged, stubs};

/// Nested subvolumes, snapshots of both kinds.
fn subvolumes() -> Option<KernelImage> {
    need(&[buttery_judge::Need::Fuse])?;
    kernel_image(&ImageSpec::new().ops(shapes::subvolumes(b"s")).ops(shapes::small(b"small")))
}

fn errno<T>(result: std::io::Result<T>) -> Option<Errno> {
    result.err().and_then(|e| Errno::from_io_error(&e))
}

#[test]
fn the_mount_shows_what_the_kernel_shows() {
    let Some(made) = subvolumes() else { return };
    let mount = Mount::new(made.file(), "ro");
    let seen = facts(mount.path());
    compare(&stubs(&made.facts), &seen, &all_but_births()).unwrap_or_else(|e| panic!("{e}"));
    mount.umount();
}

#[test]
fn numbers_are_unique_across_subvolumes() {
    let Some(made) = subvolumes() else { return };
    let mount = Mount::new(made.file(), "");
    let mut seen = HashMap::new();
    let mut todo = vec![mount.path().to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).expect("a folder").flatten() {
            let (path, meta) = (entry.path(), entry.path().symlink_metadata().expect("stat"));
            assert_eq!(entry.metadata().expect("stat").ino(), meta.ino());
            let number = rustix_ino(&dir, &entry.file_name());
            assert_eq!(number, meta.ino(), "{}: readdir and stat differ", path.display());
            if meta.is_dir() {
                todo.push(path.clone());
            }
            if meta.nlink() == 1
                && let Some(other) = seen.insert(meta.ino(), path.clone())
            {
                panic!("{} and {} are both {}", path.display(), other.display(), meta.ino());
            }
        }
    }
    assert!(seen.len() > 15);
    mount.umount();
}

/// The number that a listing tells.
fn rustix_ino(dir: &Path, name: &std::ffi::OsStr) -> u64 {
    let mut list = rustix::fs::Dir::read_from(File::open(dir).expect("a folder")).expect("a listing");
    let found = list.find(|e| e.as_ref().is_ok_and(|e| e.file_name().to_bytes() == name.as_encoded_bytes()));
    found.expect("listed").expect("an entry").ino()
}

#[test]
fn subvolumes_have_borders() {
    let Some(made) = subvolumes() else { return };
    let mount = Mount::new(made.file(), "");
    let at = |name: &str| mount.join(name);
    let exdev = Some(Errno::XDEV);
    assert_eq!(errno(std::fs::rename(at("small/noise"), at("s/outer/noise"))), exdev);
    assert_eq!(errno(std::fs::rename(at("s/outer/one"), at("one"))), exdev);
    assert_eq!(errno(std::fs::hard_link(at("small/noise"), at("s/writable/noise"))), exdev);
    let exchange = rustix::fs::RenameFlags::EXCHANGE;
    let (a, b) = (at("small/noise"), at("s/outer/one"));
    assert_eq!(rustix::fs::renameat_with(CWD, &a, CWD, &b, exchange), Err(Errno::XDEV));
    std::fs::rename(at("s/outer/one"), at("s/outer/renamed")).expect("within a subvolume");
    assert_eq!(errno(std::fs::remove_dir(at("s/outer"))), Some(Errno::NOTEMPTY));
    mount.judge();
}

#[test]
fn a_read_only_snapshot_takes_nothing() {
    let Some(made) = subvolumes() else { return };
    let mount = Mount::new(made.file(), "");
    let frozen = mount.join("s/frozen");
    let before = facts(&frozen);
    let one = frozen.join("one");
    let results = [
        errno(File::create(frozen.join("new"))),
        errno(File::options().write(true).open(&one)),
        errno(std::fs::remove_file(&one)),
        errno(std::fs::create_dir(frozen.join("dir"))),
        errno(std::fs::rename(&one, frozen.join("two"))),
        errno(std::fs::hard_link(&one, frozen.join("two"))),
        errno(std::os::unix::fs::symlink("x", frozen.join("link"))),
        errno(std::fs::set_permissions(&one, std::os::unix::fs::PermissionsExt::from_mode(0o600))),
        errno(
            File::options().append(true).open(&one).and_then(|mut f| std::io::Write::write_all(&mut f, b"1")),
        ),
        rustix::fs::setxattr(&one, "user.a", b"1", rustix::fs::XattrFlags::empty()).err(),
        errno(rustix::fs::chown(&one, Some(rustix::fs::Uid::from_raw(1)), None).map_err(Into::into)),
        errno(File::open(&one).and_then(|f| f.set_modified(std::time::SystemTime::UNIX_EPOCH))),
    ];
    for (n, result) in results.into_iter().enumerate() {
        assert_eq!(result, Some(Errno::ROFS), "call {n}");
    }
    compare(&before, &facts(&frozen), &Compare::default()).unwrap_or_else(|e| panic!("{e}"));
    let seen = mount.judge();
    assert!(seen.iter().any(|f| f.path == b"s/frozen/one"));
}

#[test]
fn a_nested_subvolume_is_a_stub_in_a_snapshot() {
    let Some(made) = subvolumes() else { return };
    let mount = Mount::new(made.file(), "");
    let stub = mount.join("s/writable/inner");
    let meta = stub.metadata().expect("stat");
    assert!(meta.is_dir() && std::fs::read_dir(&stub).expect("a folder").count() == 0);
    assert!(File::create(stub.join("new")).is_err(), "a stub takes no files");
    std::fs::remove_dir(&stub).expect("a stub may be removed, as the kernel has it");
    assert!(stub.symlink_metadata().is_err());
    mount.judge();
}

#[test]
fn a_subvolume_may_be_the_root() {
    let Some(made) = subvolumes() else { return };
    let ids = subvolume_ids(&made);
    for (path, id) in &ids {
        for options in [format!("subvol={path}"), format!("subvol=/{path}"), format!("subvolid={id}")] {
            let theirs = image::kernel_facts_with(&made.files, &format!("ro,{options}")).expect("the kernel");
            let mount = Mount::new(made.file(), &format!("ro,{options}"));
            assert_eq!(mount.path().metadata().expect("stat").ino(), 256);
            compare(&stubs(&theirs), &facts(mount.path()), &all_but_births())
                .unwrap_or_else(|e| panic!("{options}: {e}"));
            mount.umount();
        }
    }
    let mount = Mount::new(made.file(), "subvolid=5");
    compare(&stubs(&made.facts), &facts(mount.path()), &all_but_births()).unwrap_or_else(|e| panic!("{e}"));
    mount.umount();

    let mount = Mount::new(made.file(), "subvol=s/writable");
    std::fs::write(mount.join("from-below"), b"1").expect("a file");
    mount.umount();
    let mount = Mount::new(made.file(), "");
    assert!(mount.join("s/writable/from-below").exists());
    mount.judge();
}

/// Some subvolumes, and their ids as the kernel's `btrfs subvolume list` tells them.
fn subvolume_ids(made: &KernelImage) -> Vec<(String, u64)> {
    let mount = buttery_judge::KernelMount::one(made.file(), "ro").expect("a mount");
    let mut command = std::process::Command::new("btrfs");
    let text =
        buttery_judge::guard::run(command.args(["subvolume", "list"]).arg(mount.path())).expect("a list");
    let lines = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let all = lines.map(|words| (words[8].to_string(), words[1].parse().expect("an id")));
    all.filter(|(path, _)| path == "s/outer" || path == "s/frozen" || path == "s/moved").collect()
}

#[test]
fn the_default_subvolume_is_mounted() {
    let Some(()) = need(&[buttery_judge::Need::Fuse]) else { return };
    let set = Op::SetDefaultSubvolume { path: b"s/writable".to_vec() };
    let Some(made) = kernel_image(&ImageSpec::new().ops(shapes::subvolumes(b"s")).ops(vec![set])) else {
        return;
    };
    let mount = Mount::new(made.file(), "");
    assert!(mount.join("new").exists() && !mount.join("s").exists());
    std::fs::write(mount.join("more"), b"1").expect("a file");
    let seen = facts(mount.path());
    mount.umount();
    judged(made.file(), &seen);
    let mount = Mount::new(made.file(), "subvol=/");
    assert!(mount.join("s/writable/more").exists());
    mount.umount();
}
