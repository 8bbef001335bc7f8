//! Deleted subvolumes: what they took up is back, what others share with them stays, and it does not matter who began, who
//! goes on, or how often it is left and taken up again.

use buttery::{FileId, Filesystem, Left, NewNode, TreeId};
use buttery_judge::check::{btrfs_check_data, kernel_scrub};
use buttery_judge::guard::run;
use buttery_judge::workload::rng::Rng;
use buttery_judge::{Compare, Fact, KernelMount, Need, TempDir, compare, golden, need, walk};
use buttery_mkfs::MkfsOptions;
use buttery_sim::{facts, image};
use std::path::{Path, PathBuf};
use std::process::Command;

const LEN: u64 = 1 << 30;
const FILES: u64 = 1500;

/// Subvolumes by name, and what is in each.
type Known = Vec<(String, Vec<Fact>)>;

fn open(path: &Path) -> Filesystem {
    Filesystem::open_writable(&[path], &image::quiet()).expect("open")
}

fn of(fs: &Filesystem, top: FileId) -> Vec<Fact> {
    facts::walk_from(fs, top).expect("a walk")
}

#[track_caller]
fn same(expected: &[Fact], found: &[Fact]) {
    compare(expected, found, &Compare::default()).unwrap_or_else(|e| panic!("{e}"));
}

fn subvolume(fs: &Filesystem, name: &str) -> FileId {
    fs.lookup(fs.root(), name.as_bytes()).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Writes, makes and removes files all over a tree.
fn change(fs: &Filesystem, top: FileId, rng: &mut Rng, times: u64) {
    for n in 0..times {
        let name = format!("file-{}", rng.below(FILES));
        match fs.lookup(top, name.as_bytes()) {
            Ok(_) if rng.below(6) == 0 => fs.unlink(top, name.as_bytes()).expect("unlink"),
            found => {
                let file = found.or_else(|_| fs.create(top, name.as_bytes(), NewNode::file(0o644)));
                let data = vec![n as u8; 1 + rng.below(6000) as usize];
                fs.write(file.expect("a file"), rng.below(6000), &data).expect("a write");
            }
        }
    }
}

fn drop_all(fs: &Filesystem) {
    let mut steps = 0;
    while fs.drop_deleted().expect("dropping") != Left::Nothing {
        steps += 1;
        assert!(steps < 100_000, "it comes to no end");
    }
    fs.sync().expect("sync");
}

fn drop_some(fs: &Filesystem, steps: u64) {
    for _ in 0..steps {
        if fs.drop_deleted().expect("dropping") == Left::Nothing {
            break;
        }
    }
}

fn new_image(dir: &TempDir, nodesize: u32) -> PathBuf {
    let path = dir.join("image");
    let options = MkfsOptions { nodesize, discard: false, ..MkfsOptions::default() };
    image::in_file(&path, LEN, &options);
    path
}

/// Bytes of data and of metadata in use.
fn used(fs: &Filesystem) -> (u64, u64) {
    let groups = fs.engine().usage().expect("usage").groups;
    let sum = |data: bool| groups.iter().filter(|g| (g.flags & 1 != 0) == data).map(|g| g.used).sum();
    (sum(true), sum(false))
}

fn check(path: &Path, known: &Known) {
    btrfs_check_data(path).unwrap_or_else(|e| panic!("{e}"));
    let fs = open(path);
    known.iter().for_each(|(name, was)| same(was, &of(&fs, subvolume(&fs, name))));
    fs.close().expect("close");
}

fn kernel(path: &Path, known: &Known, work: impl FnOnce(&Path)) {
    let mount = KernelMount::one(path, "").expect("the kernel mounts it");
    known.iter().for_each(|(name, was)| same(was, &walk(&mount.path().join(name)).expect("a walk")));
    work(mount.path());
    mount.unmount_without_complaints().expect("a silent kernel");
}

fn btrfs(words: &[&str], paths: &[&Path]) {
    run(Command::new("btrfs").args(words).args(paths)).unwrap_or_else(|e| panic!("btrfs {words:?}: {e}"));
}

/// One of the rounds of `in_any_order`.
fn round(fs: &Filesystem, known: &mut Known, rng: &mut Rng, number: u64) {
    for _ in 0..3 {
        let from = rng.below(known.len() as u64) as usize;
        let source = subvolume(fs, &known[from].0);
        match rng.below(4) {
            0 if known.len() > 2 => {
                let (name, _) = known.remove(from);
                fs.delete_subvolume(fs.root(), name.as_bytes()).expect("deleted");
                assert!(fs.lookup(fs.root(), name.as_bytes()).is_err());
            }
            1 => {
                change(fs, source, rng, 200);
                known[from].1 = of(fs, source);
            }
            _ => {
                let name = format!("s-{number}-{}", rng.below(1 << 40));
                fs.snapshot(source.tree, fs.root(), name.as_bytes(), false).expect("a snapshot");
                let top = subvolume(fs, &name);
                same(&known[from].1, &of(fs, top));
                change(fs, top, rng, 60);
                known.push((name, of(fs, top)));
            }
        }
        drop_some(fs, rng.below(40));
    }
}

#[test]
fn in_any_order() {
    let Some(()) = need(&[Need::KernelBtrfs, Need::Program("btrfs")]) else { return };
    for seed in 0..3 {
        let dir = TempDir::new("deleted").expect("a folder");
        let path = new_image(&dir, [4096, 16384, 4096][seed as usize]);
        let mut rng = Rng::new(seed);
        let fs = open(&path);
        fs.create_subvolume(fs.root(), b"first", 0, 0).expect("a subvolume");
        let top = subvolume(&fs, "first");
        change(&fs, top, &mut rng, 2 * FILES);
        let mut known: Known = vec![("first".into(), of(&fs, top))];
        fs.close().expect("close");
        for number in 0..8 {
            let fs = open(&path);
            round(&fs, &mut known, &mut rng, number);
            fs.close().expect("close");
            check(&path, &known);
            if number % 3 == 2 {
                kernel(&path, &known, |at| {
                    btrfs(&["subvolume", "sync"], &[at]);
                    kernel_scrub(at).expect("a clean scrub");
                });
                check(&path, &known);
            }
        }
        let fs = open(&path);
        for (name, _) in known.drain(..) {
            fs.delete_subvolume(fs.root(), name.as_bytes()).expect("deleted");
        }
        drop_all(&fs);
        assert_eq!(used(&fs).0, 0, "data are left");
        assert!(used(&fs).1 < 64 * 16384, "metadata are left: {}", used(&fs).1);
        fs.close().expect("close");
        check(&path, &known);
    }
}

/// Whether deleted trees wait to be dropped.
fn any_dead(path: &Path) -> bool {
    let text = run(Command::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "root"]).arg(path));
    text.expect("dump-tree").contains("ORPHAN ORPHAN_ITEM")
}

/// How far somebody came with one.
fn is_begun(path: &Path) -> bool {
    let text = run(Command::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "root"]).arg(path));
    text.expect("dump-tree").lines().any(|l| l.contains("drop_progress key (") && !l.contains("key (0 "))
}

#[test]
fn one_goes_on_where_the_other_was() {
    let Some(()) = need(&[Need::KernelBtrfs, Need::Program("btrfs")]) else { return };
    let dir = TempDir::new("deleted-both").expect("a folder");
    let path = new_image(&dir, 4096);
    let mut rng = Rng::new(7);
    let fs = open(&path);
    fs.create_subvolume(fs.root(), b"first", 0, 0).expect("a subvolume");
    let top = subvolume(&fs, "first");
    change(&fs, top, &mut rng, 2 * FILES);
    let mut known: Known = Vec::new();
    for n in 0..3 {
        fs.snapshot(top.tree, fs.root(), format!("s{n}").as_bytes(), n == 1).expect("a snapshot");
        change(&fs, top, &mut rng, 400);
    }
    known.push(("s1".into(), of(&fs, subvolume(&fs, "s1"))));
    // the one that made most blocks, of which others have many
    for name in ["first", "s0"] {
        fs.delete_subvolume(fs.root(), name.as_bytes()).expect("deleted");
    }
    drop_some(&fs, 3);
    fs.close().expect("close");
    assert!(any_dead(&path) && is_begun(&path), "nothing is left to the kernel");
    check(&path, &known);
    kernel(&path, &known, |at| btrfs(&["subvolume", "sync"], &[at]));
    assert!(!any_dead(&path), "the kernel did not go on");
    check(&path, &known);
}

/// The kernel was sent away in the middle of dropping two of three trees that share most of their blocks.
#[test]
fn what_the_kernel_had_begun_is_ended() {
    let dir = TempDir::new("half-dropped").expect("a folder");
    let path = dir.join("image");
    golden::unpack(&golden::folder().join("half-dropped.kernel.zst"), &path).expect("the golden image");
    if need(&[Need::Program("btrfs")]).is_some() {
        assert!(any_dead(&path) && is_begun(&path), "the image is another");
    }
    let fs = open(&path);
    let known: Known = vec![("kept".into(), of(&fs, subvolume(&fs, "kept")))];
    assert_eq!(known[0].1.len(), 1 + 40_000 + 40);
    assert_ne!(fs.drop_deleted().expect("dropping"), Left::Nothing);
    drop_some(&fs, 5);
    fs.close().expect("close");
    let fs = open(&path);
    drop_all(&fs);
    same(&known[0].1, &of(&fs, subvolume(&fs, "kept")));
    fs.close().expect("close");
    let Some(()) = need(&[Need::KernelBtrfs, Need::Program("btrfs")]) else { return };
    assert!(!any_dead(&path), "something is left");
    check(&path, &known);
    kernel(&path, &known, |at| kernel_scrub(at).expect("a clean scrub"));
}

/// Blocks that the deleted one made, and a snapshot shares, are let go by the snapshot while the walk is below them.
#[test]
fn a_snapshot_is_written_while_its_source_is_dropped() {
    let Some(()) = need(&[Need::KernelBtrfs, Need::Program("btrfs")]) else { return };
    let dir = TempDir::new("deleted-beside").expect("a folder");
    let path = new_image(&dir, 4096);
    let mut rng = Rng::new(11);
    let fs = open(&path);
    fs.create_subvolume(fs.root(), b"first", 0, 0).expect("a subvolume");
    let top = subvolume(&fs, "first");
    change(&fs, top, &mut rng, 2 * FILES);
    let copy = fs.snapshot(top.tree, fs.root(), b"copy", false).expect("a snapshot");
    fs.delete_subvolume(fs.root(), b"first").expect("deleted");
    let mut steps = 0;
    while fs.drop_deleted().expect("dropping") != Left::Nothing {
        steps += 1;
        if steps % 3 == 2 {
            // all of it
            for n in (0..FILES).step_by(3) {
                if let Ok(file) = fs.lookup(FileId::top_of(copy), format!("file-{n}").as_bytes()) {
                    fs.write(file, 0, &[steps as u8; 700]).expect("a write");
                }
            }
        }
    }
    assert!(steps > 5, "it was dropped in {steps} steps");
    let known: Known = vec![("copy".into(), of(&fs, subvolume(&fs, "copy")))];
    fs.close().expect("close");
    check(&path, &known);
    kernel(&path, &known, |at| kernel_scrub(at).expect("a clean scrub"));
}

#[test]
fn what_is_refused() {
    let dir = TempDir::new("deleted-refused").expect("a folder");
    let path = new_image(&dir, 16384);
    let fs = open(&path);
    let top = fs.root();
    for name in [b"outer".as_slice(), b"default"] {
        fs.create_subvolume(top, name, 0, 0).expect("a subvolume");
    }
    let outer = subvolume(&fs, "outer");
    fs.create_subvolume(outer, b"inner", 0, 0).expect("a subvolume");
    fs.create(top, b"directory", NewNode::directory(0o755)).expect("a directory");
    fs.set_default_subvolume(subvolume(&fs, "default").tree).expect("the default");
    let refused =
        |dir: FileId, name: &[u8]| format!("{:?}", fs.delete_subvolume(dir, name).expect_err("refused"));
    assert_eq!(refused(top, b"outer"), "NotEmpty");
    assert_eq!(refused(top, b"default"), "NotPermitted");
    assert_eq!(refused(top, b"directory"), "Invalid");
    assert_eq!(refused(top, b"nothing"), "NotFound");
    let copy = fs.snapshot(outer.tree, top, b"copy", true).expect("a snapshot");
    // the name of another there is no subvolume
    assert_eq!(refused(FileId::top_of(copy), b"inner"), "ReadOnly");
    fs.delete_subvolume(outer, b"inner").expect("deleted");
    fs.rmdir(top, b"outer").expect("an empty subvolume goes like a directory");
    // who has a file of it keeps it until it is let go
    let file = fs.create(subvolume(&fs, "default"), b"held", NewNode::file(0o600)).expect("a file");
    fs.write(file, 0, b"still there").expect("a write");
    fs.hold(file, 1);
    fs.set_default_subvolume(TreeId(5)).expect("the default");
    fs.delete_subvolume(top, b"default").expect("deleted");
    while fs.drop_deleted().expect("dropping") == Left::More {}
    assert_eq!(fs.drop_deleted().expect("dropping"), Left::Used);
    fs.write(file, 11, b", and written to").expect("a write");
    let mut text = [0; 27];
    fs.read(file, 0, &mut text).expect("a read");
    assert_eq!(&text, b"still there, and written to");
    fs.release(file, 1).expect("let go");
    drop_all(&fs);
    assert!(fs.stat(file).is_err());
    fs.close().expect("close");
    let fs =
        Filesystem::open_writable(&[&path], &buttery::Options { subvolid: Some(copy.0), ..image::quiet() });
    let fs = fs.expect("open");
    let refused = fs.delete_subvolume(FileId::top_of(TreeId(5)), b"copy").expect_err("refused");
    assert!(matches!(refused, buttery::Error::Busy), "{refused:?}");
    fs.close().expect("close");
}
