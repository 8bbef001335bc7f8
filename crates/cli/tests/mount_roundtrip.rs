//! There and back: what the kernel made is mounted, worked in, and given back to the kernel, who works in it too.
//!
//! The images hold snapshots, shared extents and compressed files, so that most of what is changed or removed through
//! the mount is shared with something that must stay as it is.

mod support;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use buttery_judge::workload::random::{Mix, ops};
use buttery_judge::workload::rng::Rng;
use buttery_judge::workload::{self, Data, Fill, Op};
use buttery_judge::{ImageSpec, KernelMount, Kind, Need, check, compare, image, kernel_image, need};
use rustix::io::Errno;
use support::mount::{Mount, all_but_births, facts, judged, stubs};

/// Operations with which the kernel fills each image, and that are run on the mount in each place.
const KERNEL_OPS: usize = 1500;
const OPS: usize = 400;

/// What a mount takes: no subvolumes yet.
fn supported(seed: u64) -> Vec<Op> {
    let mix = Mix { subvolumes: false, ..Mix::new(seed, OPS) };
    ops(&mix)
}

/// Runs random operations in a new directory.
fn work(dir: &Path, seed: u64) {
    std::fs::create_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    workload::run(dir, &supported(seed)).unwrap_or_else(|e| panic!("{}, seed {seed}: {e}", dir.display()));
}

/// What a read-only snapshot refuses is no fault.
fn unless_read_only(path: &Path, result: io::Result<()>) {
    match result {
        Err(e) if Errno::from_io_error(&e) == Some(Errno::ROFS) => {}
        other => other.unwrap_or_else(|e| panic!("{}: {e}", path.display())),
    }
}

/// Removes, cuts, lengthens or overwrites most of the files that are there.
fn change_files(root: &Path, seed: u64) {
    let mut rng = Rng::new(seed);
    for fact in facts(root) {
        if fact.kind != Kind::File {
            continue;
        }
        let path = walk_join(root, &fact.path);
        let how = rng.below(6);
        let at = rng.below(fact.size.min(1 << 20) + 1);
        let data = Data::new(Fill::Text, rng.next(), rng.size(70_000) as usize + 1).bytes();
        let write = |at| File::options().write(true).open(&path)?.write_all_at(&data, at);
        let changed = match how {
            0 => std::fs::remove_file(&path),
            1 => File::options().write(true).open(&path).and_then(|f| f.set_len(at)),
            2 => write(fact.size),
            3 => write(at),
            4 => write(at / 4096 * 4096),
            _ => Ok(()),
        };
        unless_read_only(&path, changed);
    }
}

fn walk_join(root: &Path, path: &[u8]) -> PathBuf {
    buttery_judge::walk::join(root, path)
}

/// Fills the file system until nothing more goes in, removes what filled it, and sees that it can be used again.
fn fill_and_empty(mount: &Mount) {
    let dir = mount.join("filling");
    std::fs::create_dir(&dir).expect("a folder");
    let piece = Data::new(Fill::Random, 5, 1 << 20).bytes();
    let full = |e: &io::Error| Errno::from_io_error(e) == Some(Errno::NOSPC);
    let big = File::create(dir.join("big")).expect("a file");
    let mut at = 0;
    loop {
        match big.write_all_at(&piece, at) {
            Ok(()) => at += piece.len() as u64,
            Err(e) if full(&e) => break,
            Err(e) => panic!("filling: {e}"),
        }
        assert!(at < 1 << 30, "more went in than there is");
    }
    drop(big);
    for n in 0..5000 {
        match std::fs::write(dir.join(format!("small-{n}")), &piece[..1500]) {
            Ok(()) => {}
            Err(e) if full(&e) => break,
            Err(e) => panic!("filling: {e}"),
        }
    }
    std::fs::remove_dir_all(&dir).expect("a full file system can be emptied");
    support::program::buttery(&["sync".as_ref(), mount.path().as_os_str()]).quiet();
    std::fs::write(mount.join("after"), &piece).expect("space came back");
}

/// The kernel mounts what we left, works in it, and we read what it left.
fn kernel_works_on(image: &Path, seed: u64) {
    let mount = KernelMount::one(image, "").expect("a kernel mount");
    let dir = mount.path().join("kernel");
    std::fs::create_dir(&dir).expect("a folder");
    workload::run(&dir, &ops(&Mix::new(seed, OPS))).expect("the kernel's work");
    std::fs::remove_dir_all(mount.path().join("beside")).expect("what was made through the mount");
    mount.unmount_without_complaints().unwrap_or_else(|e| panic!("{e}"));
    check::btrfs_check_data(image).unwrap_or_else(|e| panic!("after the kernel: {e}"));
    let theirs = image::kernel_facts(&[image.into()]).expect("the kernel's walk");
    let mount = Mount::new(image, "ro");
    compare(&stubs(&theirs), &facts(mount.path()), &all_but_births()).unwrap_or_else(|e| panic!("{e}"));
    mount.umount();
}

fn there_and_back(nodesize: usize, arguments: &str, options: &str, seed: u64) {
    let Some(()) = need(&[Need::Fuse]) else { return };
    let mkfs = format!("-n {nodesize} {arguments}");
    let spec = ImageSpec::new().devices(1, 640 << 20).mkfs(&mkfs).mount(options);
    let Some(made) = kernel_image(&spec.workload(nodesize, seed, KERNEL_OPS)) else { return };
    let image = made.file();

    let mount = Mount::new(image, options);
    compare(&stubs(&made.facts), &facts(mount.path()), &all_but_births()).unwrap_or_else(|e| panic!("{e}"));
    work(&mount.join("beside"), seed + 1);
    for (n, subvolume) in ["writable", "outer", "again"].into_iter().enumerate() {
        work(&mount.join(format!("subvolumes/{subvolume}/below")), seed + 2 + n as u64);
    }
    mount.judge();

    let mount = Mount::new(image, options);
    change_files(mount.path(), seed + 5);
    mount.judge();

    let mount = Mount::new(image, "");
    fill_and_empty(&mount);
    change_files(mount.path(), seed + 6);
    let seen = facts(mount.path());
    mount.umount();
    judged(image, &seen);
    kernel_works_on(image, seed + 7);
}

#[test]
fn nodes_of_4k_and_zstd() {
    there_and_back(4096, "--csum crc32c -O ^block-group-tree", "compress-force=zstd", 100);
}

#[test]
fn nodes_of_16k_and_xxhash() {
    there_and_back(16384, "--csum xxhash -O block-group-tree", "", 200);
}

#[test]
fn nodes_of_16k_and_blake2() {
    there_and_back(16384, "--csum blake2 -O ^block-group-tree", "compress=lzo", 300);
}

#[test]
fn nodes_of_64k_and_sha256() {
    there_and_back(65536, "--csum sha256 -O block-group-tree", "compress=zlib", 400);
}
