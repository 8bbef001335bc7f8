//! Damaged copies under a mount. All data and metadata are there twice: every copy that a read meets damaged is written
//! anew from the other one. Where both are bad, reading that block fails, and nothing else does.

mod support;

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use buttery::{FileId, Filesystem, Kind, NewNode, Options, XattrMode};
use buttery_disk::objectid;
use buttery_engine::file::extents::{self, Body};
use buttery_judge::guard::run;
use buttery_judge::workload::rng::Rng;
use buttery_judge::workload::{Data, Fill};
use buttery_judge::{Fact, TempDir, check, compare};
use rustix::io::Errno;
use support::mount::{Mount, all_but_births, can_mount_and_judge, judged};
use support::{damage, facts};

const BLOCK: usize = 4096;
const VICTIM: &str = "victim";
const VICTIM_BLOCKS: usize = 100;

/// A tree block or a sector of data: what it holds, and where each copy lies in the image.
struct Unit {
    /// The tree that owns it; of data, none.
    tree: Option<u64>,
    good: Vec<u8>,
    copies: [u64; 2],
}

impl Unit {
    fn new(image: &File, tree: Option<u64>, len: usize, places: &[(PathBuf, u64)]) -> Unit {
        let [(_, a), (_, b)] = places else { panic!("two copies, not {places:?}") };
        let copies = [*a, *b];
        let [first, second] = copies.map(|at| read(image, at, len));
        assert!(first == second, "both copies are good at first");
        Unit { tree, good: first, copies }
    }

    fn is_good(&self, image: &File, copy: usize) -> bool {
        read(image, self.copies[copy], self.good.len()) == self.good
    }

    /// Whether who walks the files and reads them comes by.
    fn is_read(&self) -> bool {
        let read = [objectid::FS_TREE, objectid::CSUM_TREE, objectid::ROOT_TREE, objectid::CHUNK_TREE];
        self.tree.is_none_or(|tree| read.contains(&tree))
    }
}

fn read(file: &File, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, at).unwrap_or_else(|e| panic!("{len} bytes at {at}: {e}"));
    bytes
}

/// What the victim holds.
fn victim() -> Vec<u8> {
    Data::new(Fill::Random, 77, VICTIM_BLOCKS * BLOCK).bytes()
}

/// An image with two copies of everything: directories, attributes, and files from nothing to some mebibytes.
fn image(dir: &TempDir) -> PathBuf {
    let image = dir.join("image");
    let mut mkfs = Command::new(env!("CARGO_BIN_EXE_buttery"));
    mkfs.args(["mkfs", "-q", "-n", "4096", "-d", "dup", "-m", "dup", "--create", "256M"]);
    run(mkfs.arg(&image)).expect("mkfs");
    let fs = Filesystem::open_writable(&[&image], &Options::default()).expect("the image");
    let mut rng = Rng::new(1);
    for d in 0..12 {
        let name = format!("directory-{d}");
        let dir = fs.create(fs.root(), name.as_bytes(), NewNode::directory(0o755)).expect("a directory");
        for f in 0..40 {
            let len = if f == 0 { 1 << 20 } else { rng.size(60_000) };
            let data = Data::new(Fill::Random, rng.next(), len as usize).bytes();
            let file = file(&fs, dir, &format!("file-{f}"), &data);
            fs.set_xattr(file, b"user.note", &[f; 300], XattrMode::Any).expect("an attribute");
        }
        fs.symlink(dir, b"symlink", name.as_bytes(), 0, 0).expect("a symlink");
    }
    file(&fs, fs.root(), VICTIM, &victim());
    fs.close().expect("a commit");
    image
}

fn file(fs: &Filesystem, dir: FileId, name: &str, data: &[u8]) -> FileId {
    let file = fs.create(dir, name.as_bytes(), NewNode::file(0o644)).expect("a file");
    fs.write(file, 0, data).expect("data");
    file
}

/// The logical addresses of a file's sectors, in order.
fn sectors(fs: &Filesystem, id: FileId) -> Vec<u64> {
    let tree = fs.engine().tree(id.tree).expect("the tree");
    let view = tree.read(fs.engine().store());
    let mut found = Vec::new();
    extents::for_each(&tree, &view, id.ino, 0, u64::MAX, &mut |extent| {
        if let Body::Regular(item) = extent.body {
            let start = item.disk_bytenr.get() + item.offset.get();
            found.extend((start..start + extent.len).step_by(BLOCK));
        }
        Ok(true)
    })
    .expect("extents");
    found
}

/// Every tree block, and every sector of data.
fn units(image: &Path) -> Vec<Unit> {
    let fs = facts::open(&[image.into()], "").expect("the image");
    let (file, nodesize) = (damage::open(image), fs.engine().store().nodesize());
    let blocks = damage::tree_blocks(&fs);
    let mut units: Vec<Unit> =
        blocks.iter().map(|b| Unit::new(&file, Some(b.owner), nodesize, &b.places)).collect();
    for (_, id) in facts::paths(&fs).expect("a walk") {
        if fs.stat(id).expect("stat").kind() == Kind::File {
            let sectors = sectors(&fs, id);
            units.extend(sectors.iter().map(|&at| Unit::new(&file, None, BLOCK, &damage::places(&fs, at))));
        }
    }
    units
}

/// What is seen through a mount: every name, attribute and byte.
fn seen(mount: &Mount) -> Vec<Fact> {
    support::mount::facts(mount.path())
}

fn seen_in(image: &Path) -> Vec<Fact> {
    let mount = Mount::new(image, "ro");
    let seen = seen(&mount);
    mount.umount();
    seen
}

/// What was met was counted, and nothing else; the counters are set to zero, for the judges that look at them.
fn counted(image: &Path) {
    let stats = |args: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_buttery"));
        run(program.args(["device", "stats"]).args(args).arg(image)).expect("the program")
    };
    let of = |what: &str, text: &str| -> u64 {
        let line = text.lines().find(|l| l.contains(what)).unwrap_or_else(|| panic!("{what}: {text}"));
        line.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    };
    let text = stats(&["-z"]);
    assert!(of("corruption_errs", &text) > 0, "{text}");
    for what in ["write_io_errs", "read_io_errs", "flush_io_errs", "generation_errs"] {
        assert_eq!(of(what, &text), 0, "{text}");
    }
    assert_eq!(of("corruption_errs", &stats(&["-c"])), 0);
}

#[test]
fn every_damaged_copy_that_is_met_is_mended() {
    let Some(()) = can_mount_and_judge() else { return };
    let dir = TempDir::new("mirrors").expect("a folder");
    let image = image(&dir);
    let (before, units, file) = (seen_in(&image), units(&image), damage::open(&image));
    let (blocks, data) = (units.iter().filter(|u| u.tree.is_some()).count(), units.len());
    assert!(blocks > 100 && data - blocks > 3000, "{blocks} tree blocks, {data} units");

    // the first copy of one, the second copy of the next
    units.iter().enumerate().for_each(|(n, u)| damage::flip(&image, u.copies[n % 2] + 100, 64));
    assert!(check::btrfs_check_data(&image).is_err(), "nothing was damaged");

    // who may not write reads the same and mends nothing
    compare(&before, &seen_in(&image), &all_but_births()).unwrap_or_else(|e| panic!("read-only: {e}"));
    for (n, unit) in units.iter().enumerate() {
        assert!(!unit.is_good(&file, n % 2) && unit.is_good(&file, 1 - n % 2), "a read-only mount wrote");
    }

    let mount = Mount::new(&image, "");
    // a listing that gives attributes spares the kernel looking names up, so they are looked up before
    for fact in &before {
        let path = mount.join(OsStr::from_bytes(&fact.path));
        std::fs::symlink_metadata(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    compare(&before, &seen(&mount), &all_but_births()).unwrap_or_else(|e| panic!("{e}"));
    mount.umount();
    let mut left = 0;
    for (n, unit) in units.iter().enumerate() {
        let (bad, of, at) = (n % 2, unit.tree, unit.copies);
        assert!(unit.is_good(&file, 1 - bad), "the good copy of {at:?} was written over, tree {of:?}");
        // the first copy is always read first; the second one only where the first is bad
        if bad == 0 && unit.is_read() {
            assert!(unit.is_good(&file, 0), "the first copy of {at:?} was not mended, tree {of:?}");
        }
        left += usize::from(!unit.is_good(&file, bad));
    }
    // half of them, and a few blocks of trees that only writing needs
    assert!(left < data / 2 + 20, "{left} of {data} copies are still damaged");

    // those that no read met are mended by hand; then all is as it was
    for (n, unit) in units.iter().enumerate() {
        file.write_all_at(&unit.good, unit.copies[n % 2]).expect("a write");
    }
    counted(&image);
    judged(&image, &before);
}

#[test]
fn where_both_copies_are_bad_one_block_fails() {
    const BAD: [usize; 5] = [0, 17, 18, 50, VICTIM_BLOCKS - 1];
    let Some(()) = can_mount_and_judge() else { return };
    let dir = TempDir::new("mirrors").expect("a folder");
    let image = image(&dir);
    let before = seen_in(&image);
    let fs = facts::open(std::slice::from_ref(&image), "").expect("the image");
    let sectors = sectors(&fs, fs.lookup(fs.root(), VICTIM.as_bytes()).expect("the file"));
    assert_eq!(sectors.len(), VICTIM_BLOCKS);
    let places: Vec<u64> =
        BAD.iter().flat_map(|&n| damage::places(&fs, sectors[n])).map(|(_, at)| at).collect();
    drop(fs);
    let flip = || places.iter().for_each(|at| damage::flip(&image, at + 100, 64));
    flip();

    let mount = Mount::new(&image, "");
    let whole = victim();
    let file = File::open(mount.join(VICTIM)).expect("the file");
    // twice: an error is not kept, nor anything in its place
    for n in (0..VICTIM_BLOCKS).chain(0..VICTIM_BLOCKS) {
        let mut bytes = [0; BLOCK];
        match file.read_exact_at(&mut bytes, (n * BLOCK) as u64) {
            Ok(()) => assert!(!BAD.contains(&n) && bytes == whole[n * BLOCK..][..BLOCK], "block {n}"),
            Err(e) => {
                let io = Errno::from_io_error(&e) == Some(Errno::IO);
                assert!(BAD.contains(&n) && io, "block {n}: {e}");
            }
        }
    }
    drop(file);
    // all the other files are read as ever
    for fact in before.iter().filter(|f| f.content.is_some() && f.path != VICTIM.as_bytes()) {
        let path = buttery_judge::walk::join(mount.path(), &fact.path);
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut hasher = buttery_judge::ContentHasher::new();
        hasher.update(0, &bytes);
        assert_eq!(Some(hasher.finish(fact.size)), fact.content, "{}", path.display());
    }
    mount.umount();

    flip(); // and good again: nothing was written there meanwhile
    let mount = Mount::new(&image, "");
    assert!(std::fs::read(mount.join(VICTIM)).expect("the file") == whole);
    compare(&before, &seen(&mount), &all_but_births()).unwrap_or_else(|e| panic!("{e}"));
    mount.umount();
    counted(&image);
    judged(&image, &before);
}
