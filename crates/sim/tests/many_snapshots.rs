//! Many snapshots of one tree: what one costs does not grow with how many there are, and extents that all of them share lose their references
//! one by one. BUTTERY_SNAPSHOTS and BUTTERY_FILES say how many; 1000 and 10000 are the long form.

use buttery::{FileId, Filesystem, Left, NewNode, TreeId, count};
use buttery_judge::check::{btrfs_check_data, kernel_scrub};
use buttery_judge::workload::rng::Rng;
use buttery_judge::{KernelMount, Need, TempDir, need};
use buttery_mkfs::MkfsOptions;
use buttery_sim::image;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn text(n: u64) -> Vec<u8> {
    // some in the items, some in extents
    let len = if n.is_multiple_of(3) { 9000 } else { 300 };
    n.to_le_bytes().iter().copied().cycle().take(len).collect()
}

fn file(fs: &Filesystem, top: FileId, n: u64) -> FileId {
    fs.lookup(top, format!("file-{n}").as_bytes()).unwrap_or_else(|e| panic!("file-{n}: {e}"))
}

fn check_file(fs: &Filesystem, top: FileId, n: u64, expected: &[u8]) {
    let mut found = vec![0; expected.len() + 1];
    let len = fs.read(file(fs, top, n), 0, &mut found).expect("a read");
    assert_eq!(&found[..len], expected, "file {n} of tree {}", top.tree.0);
}

#[test]
fn what_one_costs_does_not_grow() {
    let Some(()) = need(&[Need::KernelBtrfs, Need::Program("btrfs")]) else { return };
    let (snapshots, files) = (number("BUTTERY_SNAPSHOTS", 100), number("BUTTERY_FILES", 2000));
    let dir = TempDir::new("many").expect("a folder");
    let path = dir.join("image");
    image::in_file(&path, 4 << 30, &MkfsOptions { discard: false, ..MkfsOptions::default() });
    let fs = Filesystem::open_writable(&[&path], &image::quiet()).expect("open");
    let tree = fs.create_subvolume(fs.root(), b"tree", 0, 0).expect("a subvolume");
    let top = FileId::top_of(tree);
    for n in 0..files {
        let made = fs.create(top, format!("file-{n}").as_bytes(), NewNode::file(0o644)).expect("a file");
        fs.write(made, 0, &text(n)).expect("a write");
    }
    fs.sync().expect("sync");

    // each with one change before it, so that it is one of its own
    let mut rng = Rng::new(1);
    let (mut taken, mut costs): (Vec<(TreeId, u64)>, Vec<u64>) = (Vec::new(), Vec::new());
    for n in 0..snapshots {
        let changed = rng.below(files);
        fs.write(file(&fs, top, changed), 0, &n.to_le_bytes()).expect("a write");
        let before = count::of_this_thread();
        let id = fs.snapshot(tree, fs.root(), format!("s{n}").as_bytes(), true).expect("a snapshot");
        costs.push(count::of_this_thread().since(before).copied_bytes);
        taken.push((id, changed));
    }
    // each child of the root gets a reference more, which may stand in a leaf of the extent tree of its own; that does not
    // grow with the number of snapshots
    let nodesize = fs.engine().store().nodesize() as u64;
    let children = (fs.engine().tree(tree).expect("a tree").bytes_used() / nodesize).min(nodesize / 33);
    let most = 2 * (children + 64) * nodesize;
    let worst = costs.iter().max().copied().unwrap_or_default();
    assert!(worst <= most, "bytes of blocks copied for one: {worst}, at most {most}");
    println!("bytes of blocks copied: {} for the first, {worst} at most", costs[0]);

    for n in (0..files).step_by(7) {
        fs.write(file(&fs, top, n), 100, b"below all of them").expect("a write");
    }
    for (n, _) in taken.iter().enumerate().step_by(2) {
        fs.delete_subvolume(fs.root(), format!("s{n}").as_bytes()).expect("deleted");
    }
    while fs.drop_deleted().expect("dropping") == Left::More {}
    fs.close().expect("close");
    btrfs_check_data(&path).unwrap_or_else(|e| panic!("{e}"));

    let fs = Filesystem::open_writable(&[&path], &image::quiet()).expect("open");
    for (n, (id, changed)) in (0..).zip(&taken).filter(|(n, _)| n % 2 == 1) {
        let mut expected = text(*changed);
        expected[..8].copy_from_slice(&u64::to_le_bytes(n));
        check_file(&fs, FileId::top_of(*id), *changed, &expected);
    }
    for (n, _) in taken.iter().enumerate().skip(1).step_by(2) {
        fs.delete_subvolume(fs.root(), format!("s{n}").as_bytes()).expect("deleted");
    }
    while fs.drop_deleted().expect("dropping") == Left::More {}
    fs.close().expect("close");
    btrfs_check_data(&path).unwrap_or_else(|e| panic!("{e}"));
    let mount = KernelMount::one(&path, "").expect("the kernel mounts it");
    kernel_scrub(mount.path()).expect("a clean scrub");
    mount.unmount_without_complaints().expect("a silent kernel");
}
