//! A source tree: thousands of small files unpacked on a mount, half of them removed again.

mod support;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use buttery_judge::workload::rng::Rng;
use buttery_judge::workload::{Data, Fill};
use buttery_judge::{Compare, Need, TempDir, compare, need, walk};
use support::mount::{Mount, can_mount_and_judge, facts};

const DIRECTORIES: u64 = 500;
const FILES: u64 = 20;

/// An archive of 10,000 files in 500 directories: most are small, some are large, some are links.
fn archive() -> Vec<u8> {
    let mut rng = Rng::new(851);
    let mut archive = tar::Builder::new(Vec::new());
    for d in 0..DIRECTORIES {
        let dir = format!("tree/part-{}/dir-{d}", d / 25);
        if d == 0 {
            append_dir(&mut archive, "tree");
        }
        if d % 25 == 0 {
            append_dir(&mut archive, &format!("tree/part-{}", d / 25));
        }
        append_dir(&mut archive, &dir);
        for f in 0..FILES {
            let name = format!("{dir}/file{f}.rs");
            let mut header = tar::Header::new_gnu();
            header.set_mode(if rng.one_in(10) { 0o755 } else { 0o644 });
            header.set_mtime(1_600_000_000 + d * 100 + f);
            if rng.one_in(40) {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_size(0);
                archive.append_link(&mut header, &name, format!("file{}.rs", f + 1)).expect("a link");
                continue;
            }
            let data = Data::new(Fill::Text, rng.next(), rng.size(60_000) as usize).bytes();
            header.set_size(data.len() as u64);
            archive.append_data(&mut header, &name, &data[..]).expect("a file");
        }
    }
    archive.into_inner().expect("an archive")
}

fn append_dir(archive: &mut tar::Builder<Vec<u8>>, name: &str) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_mode(0o755);
    header.set_mtime(1_500_000_000);
    header.set_size(0);
    archive.append_data(&mut header, format!("{name}/"), &[][..]).expect("a folder");
}

fn unpack(archive: &[u8], to: &Path) {
    let mut command = Command::new("tar");
    let mut child = command.args(["-xf", "-", "-C"]).arg(to).stdin(Stdio::piped()).spawn().expect("tar");
    child.stdin.take().expect("a pipe").write_all(archive).expect("a write");
    assert!(child.wait().expect("an end").success());
}

fn remove_half(root: &Path) {
    for d in (0..DIRECTORIES).step_by(2) {
        let dir = root.join(format!("tree/part-{}/dir-{d}", d / 25));
        if d % 4 == 0 {
            std::fs::remove_dir_all(&dir).expect("a folder removed");
            continue;
        }
        for f in 0..FILES {
            std::fs::remove_file(dir.join(format!("file{f}.rs"))).expect("a file removed");
        }
    }
}

#[test]
fn a_source_tree_is_unpacked_and_half_of_it_removed() {
    let Some(()) = can_mount_and_judge() else { return };
    let Some(()) = need(&[Need::Program("tar")]) else { return };
    let dir = TempDir::new("tree").expect("a folder");
    let archive = archive();
    let plain = dir.join("plain");
    std::fs::create_dir(&plain).expect("a folder");
    unpack(&archive, &plain);

    let mount = Mount::create(&dir, "1G");
    unpack(&archive, mount.path());
    let what = Compare { root: false, ..Compare::copied() };
    let expected = walk(&plain).expect("a walk");
    compare(&expected, &facts(mount.path()), &what).unwrap_or_else(|e| panic!("{e}"));

    // with a cold cache on both sides
    let image = mount.image.clone();
    mount.umount();
    let mount = Mount::new(&image, "");
    remove_half(mount.path());
    remove_half(&plain);
    let what = Compare { mtime: false, ..what };
    let expected = walk(&plain).expect("a walk");
    compare(&expected, &facts(mount.path()), &what).unwrap_or_else(|e| panic!("{e}"));
    mount.judge();
}
