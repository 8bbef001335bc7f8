//! A copy that a read finds bad is written anew from the good one, where the file system is open for writing.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use buttery::{Filesystem, NewNode, Options};
use buttery_judge::guard::run;
use buttery_judge::{KernelMount, Need, TempDir, check, need};

const NAME: &[u8] = b"a-name-that-stands-nowhere-else";
const MARK: &[u8] = b"contents that stand nowhere else";

/// An image with two copies of everything, and one file in it.
fn image(dir: &TempDir) -> std::path::PathBuf {
    let image = dir.join("x.img");
    let mut mkfs = Command::new(env!("CARGO_BIN_EXE_buttery"));
    run(mkfs.args(["mkfs", "-q", "-d", "dup", "--create", "512M"]).arg(&image)).expect("mkfs");
    let fs = Filesystem::open_writable(&[&image], &Options::default()).expect("the image");
    let file = fs.create(fs.root(), NAME, NewNode::file(0o644)).expect("a file");
    fs.write(file, 0, &MARK.repeat(1000)).expect("data");
    fs.close().expect("a commit");
    image
}

/// Where a text stands in the image, each first of a sector-sized block.
fn places(image: &Path, text: &[u8]) -> Vec<u64> {
    let bytes = fs::read(image).expect("the image");
    let found = bytes.chunks(4096).enumerate().filter(|(_, b)| b.windows(text.len()).any(|w| w == text));
    found.map(|(i, _)| i as u64 * 4096).collect()
}

fn read_all(image: &Path) -> Vec<u8> {
    let fs = Filesystem::open_writable(&[image], &Options::default()).expect("the image");
    let file = fs.lookup(fs.root(), NAME).expect("the file");
    let mut data = vec![0; MARK.len() * 1000];
    assert_eq!(fs.read(file, 0, &mut data).expect("data"), data.len());
    fs.close().expect("closed");
    data
}

/// Damages the first copy of what holds `text`; a read must give the right data and mend the copy.
fn mends(text: &[u8]) {
    let dir = TempDir::new("repair").expect("a folder");
    let image = image(&dir);
    let all = places(&image, text);
    assert!(all.len() >= 2 && all.len().is_multiple_of(2), "{all:?}");
    let first = all[0];
    let before = fs::read(&image).expect("the image");
    let file = File::options().write(true).open(&image).expect("the image");
    file.write_all_at(&[0xff; 64], first + 200).expect("damage");
    drop(file);
    assert_eq!(read_all(&image), MARK.repeat(1000));
    let after = fs::read(&image).expect("the image");
    let block = first as usize..first as usize + 4096;
    assert!(before[block.clone()] == after[block], "the copy at {first} was not mended");
    counted(&image);
    let Some(()) = need(&[Need::KernelBtrfs]) else { return };
    check::btrfs_check_data(&image).expect("check");
    let mount = KernelMount::one(&image, "").expect("a kernel mount");
    check::kernel_scrub(mount.path()).expect("a scrub without errors");
}

/// The fault was counted where btrfs counts it, and the kernel goes on from there.
fn counted(image: &Path) {
    let stats = |args: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_buttery"));
        let out = program.args(["device", "stats"]).args(args).arg(image).output().expect("the program");
        (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let expected = |corruptions: u32| {
        let name = image.display();
        format!(
            "[{name}].write_io_errs   0\n[{name}].read_io_errs    0\n[{name}].flush_io_errs   0\n\
             [{name}].corruption_errs {corruptions}\n[{name}].generation_errs 0\n"
        )
    };
    assert_eq!(stats(&["--check"]), (Some(64), expected(1)));
    if need(&[Need::KernelBtrfs]).is_some() {
        let mount = KernelMount::one(image, "").expect("a kernel mount");
        let out = run(Command::new("btrfs").args(["device", "stats"]).arg(mount.path())).expect("stats");
        assert!(out.contains("corruption_errs  1") || out.contains("corruption_errs 1"), "{out}");
    }
    assert_eq!(stats(&["--reset"]), (Some(0), expected(1)));
    assert_eq!(stats(&["-c"]), (Some(0), expected(0)));
}

#[test]
fn data() {
    mends(MARK);
}

#[test]
fn tree_blocks() {
    mends(NAME);
}
