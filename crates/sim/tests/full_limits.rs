//! Corners of a full file system, each as small as it could be made: what finds no space says so, in finite time, and
//! everything can be deleted afterwards.

use buttery::{Error, Fallocate, FileId, Filesystem, NewNode, Options, XattrMode};
use buttery_codec::CsumType;
use buttery_disk::chunk::bg;
use buttery_judge::check::btrfs_check_data;
use buttery_judge::guard::run;
use buttery_judge::workload::rng::Rng;
use buttery_judge::{Need, TempDir, need};
use buttery_mkfs::MkfsOptions;
use buttery_sim::image;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::Duration;

const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;
const NODESIZES: [u32; 2] = [4096, 16384];

/// A new file system. Times change at every write, as they do in life.
fn made(size: u64, nodesize: u32) -> Filesystem {
    let options = MkfsOptions { nodesize, csum: CsumType::Sha256, ..image::spread(0) };
    let device = image::in_memory(size, &options);
    let options = Options { clock: None, ..image::quiet() };
    Filesystem::open_devices_writable(vec![device], &options).unwrap_or_else(|e| panic!("open: {e}"))
}

fn file(fs: &Filesystem, name: &str) -> FileId {
    fs.create(fs.root(), name.as_bytes(), NewNode::file(0o644)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// `true` if it was done, `false` if there was no space. Anything else ends the test.
fn done(what: &str, fs: &Filesystem, result: Result<(), Error>) -> bool {
    match result {
        Ok(()) => true,
        Err(Error::NoSpace) => false,
        Err(e) => panic!("{what}: {e} ({:?})", fs.engine().abort_reason()),
    }
}

/// Preallocates a file that takes all of the space for data. Answers how long it became.
fn take_data(fs: &Filesystem, id: FileId) -> u64 {
    let mut len = 0;
    while done("fallocate", fs, fs.fallocate(id, Fallocate::Allocate, len, MIB, false)) {
        len += MIB;
    }
    len
}

/// Bytes of metadata that are used.
fn metadata(fs: &Filesystem) -> u64 {
    let groups = fs.engine().usage().expect("groups").groups;
    groups.iter().filter(|g| g.flags & bg::METADATA != 0).map(|g| g.used).sum()
}

/// Takes space for metadata until so many bytes are used, or none is left.
fn take_metadata(fs: &Filesystem, until: u64) {
    let mut refused = 0;
    for n in 0.. {
        if refused == 4 || metadata(fs) >= until {
            return;
        }
        // the last ones are small, so that little is left
        let value = vec![1; if refused == 0 { 3900 } else { 100 }];
        let name = format!("attribute-{n}");
        let made = fs.create(fs.root(), name.as_bytes(), NewNode::file(0o644));
        let made = made.and_then(|id| fs.set_xattr(id, b"user.x", &value, XattrMode::Any));
        refused = if done("an attribute", fs, made) { 0 } else { refused + 1 };
    }
}

/// Everything goes, and takes nothing along.
fn empty(fs: &Filesystem, when: &str) {
    let names: Vec<_> = fs.entries(fs.root()).expect("a list").into_iter().map(|e| e.name).collect();
    for name in names {
        fs.unlink(fs.root(), &name).unwrap_or_else(|e| {
            let name = String::from_utf8_lossy(&name);
            panic!("{when}: unlink of {name}: {e} ({:?})", fs.engine().abort_reason())
        });
    }
    fs.sync().unwrap_or_else(|e| panic!("{when}: a commit: {e}"));
    let used: u64 = fs.engine().usage().expect("groups").groups.iter().map(|g| g.used).sum();
    assert!(used < 16 * fs.engine().store().nodesize() as u64, "{when}: {used} bytes are used");
}

/// One extent with very many references: each of them may change another leaf of the extent tree, which a commit must
/// have the space for.
#[test]
fn an_extent_that_is_shared_very_often() {
    const COUNT: u64 = 2000;
    for nodesize in NODESIZES {
        let fs = made(128 * MIB, nodesize);
        let when = format!("nodes of {nodesize}");
        let (base, mixed, many) = (file(&fs, "base"), file(&fs, "mixed"), file(&fs, "many"));
        fs.write(base, 0, &vec![7; (COUNT * BLOCK) as usize]).expect("a write");
        let mut rng = Rng::new(1);
        for n in 0..COUNT {
            fs.clone_range(base, rng.below(COUNT) * BLOCK, mixed, n * BLOCK, BLOCK).expect("a clone");
        }
        take_data(&fs, file(&fs, "space"));
        take_metadata(&fs, 24 * MIB);
        // far apart, so that no two references are the same one
        for n in 0.. {
            let at = n * (2 * COUNT + n % 7) * BLOCK;
            if !done("a clone", &fs, fs.clone_range(mixed, 0, many, at, COUNT * BLOCK)) {
                break;
            }
        }
        fs.sync().unwrap_or_else(|e| panic!("{when}: a commit: {e} ({:?})", fs.engine().abort_reason()));
        empty(&fs, &when);
        fs.close().expect("close");
    }
}

/// Blocks written here and there into preallocated space need items, and those need space for metadata. It must not be
/// that which deleting needs.
#[test]
fn preallocated_space_leaves_what_deleting_needs() {
    for nodesize in NODESIZES {
        let fs = made(256 * MIB, nodesize);
        let space = file(&fs, "space");
        let blocks = take_data(&fs, space) / BLOCK;
        take_metadata(&fs, u64::MAX);
        // every second one, so that none continues another
        let write = |&n: &u64| done("a write", &fs, fs.write(space, n * BLOCK, &[n as u8; BLOCK as usize]));
        let written = (0..blocks).step_by(2).take_while(write).count();
        empty(&fs, &format!("nodes of {nodesize}, {written} of {blocks} blocks written"));
        fs.close().expect("close");
    }
}

/// Data are full, metadata nearly, and what is left of the device is too small for both: a write ends.
#[test]
fn a_write_ends_when_metadata_are_short_too() {
    for step in 0..20u64 {
        let fs = Arc::new(made(128 * MIB, 16384));
        let (space, more) = (file(&fs, "space"), file(&fs, "more"));
        let len = take_data(&fs, space);
        take_metadata(&fs, 26 * MIB + step * MIB / 8);
        // the last groups were the smallest, and are given back
        fs.truncate(space, len - 5 * MIB).expect("space");
        fs.sync().expect("a commit");
        fs.engine().remove_empty_groups().expect("groups");
        let (sender, answer) = mpsc::channel();
        let writer = fs.clone();
        std::thread::spawn(move || sender.send(writer.write(more, 0, &vec![1; 8 << 20])));
        let answer = answer.recv_timeout(Duration::from_secs(20));
        let answer = answer.unwrap_or_else(|_| panic!("step {step}: a write comes to no end"));
        assert!(!done("a write", &fs, answer), "there was space");
        empty(&fs, &format!("step {step}"));
    }
}

/// Where data and metadata share their groups, data leave what a commit needs.
#[test]
fn data_leave_space_for_commits_in_mixed_groups() {
    let Some(()) = need(&[Need::KernelBtrfs, Need::Program("btrfs")]) else { return };
    let dir = TempDir::new("mixed").expect("a folder");
    let path = dir.join("image");
    std::fs::File::create(&path).and_then(|f| f.set_len(256 * MIB)).expect("an image");
    let mkfs = ["-q", "--mixed", "-O", "no-holes,free-space-tree"];
    run(Command::new("mkfs.btrfs").args(mkfs).arg(&path)).expect("mkfs.btrfs");
    let fs = Filesystem::open_writable(&[&path], &image::quiet()).expect("open");
    let id = file(&fs, "large");
    assert!(!done("fallocate", &fs, fs.fallocate(id, Fallocate::Allocate, 0, 1 << 40, false)));
    assert!(!done("a write", &fs, fs.write(id, 0, &vec![1; 300 << 20])));
    fs.sync().expect("a commit");
    let small = file(&fs, "small");
    let mut refused = false;
    for n in 0..300 {
        refused |= !done("a write", &fs, fs.write(small, n * MIB, &vec![2; MIB as usize]));
    }
    assert!(refused, "300 MiB in 256");
    fs.sync().expect("a commit");
    for name in ["large", "small"] {
        fs.unlink(fs.root(), name.as_bytes()).expect("unlink");
    }
    fs.write(file(&fs, "after"), 0, &vec![3; 50 << 20]).expect("there is space again");
    fs.close().expect("close");
    btrfs_check_data(&path).unwrap_or_else(|e| panic!("{e}"));
}
