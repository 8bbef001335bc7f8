//! Snapshots: each is what the subvolume was, for us and for the kernel, whatever is done to the subvolume, or to the
//! snapshot, afterwards.

use buttery::{FileId, Filesystem, NewNode, TreeId};
use buttery_judge::check::{btrfs_check_data, kernel_scrub};
use buttery_judge::guard::run;
use buttery_judge::workload::rng::Rng;
use buttery_judge::{Compare, Fact, KernelMount, Need, TempDir, compare, need, walk};
use buttery_sim::{facts, image};
use std::path::Path;
use std::process::Command;

const LEN: u64 = 512 << 20;

/// Makes, changes and removes files in a tree.
fn change(fs: &Filesystem, top: FileId, rng: &mut Rng, times: u64) {
    for n in 0..times {
        let name = format!("file-{}", rng.below(600));
        let file = match fs.lookup(top, name.as_bytes()) {
            Ok(file) if rng.below(5) == 0 => {
                fs.unlink(top, name.as_bytes()).unwrap_or_else(|e| panic!("unlink {file:?}: {e}"));
                continue;
            }
            Ok(file) => file,
            Err(_) => fs.create(top, name.as_bytes(), NewNode::file(0o644)).expect("a file"),
        };
        let data = vec![n as u8; 1 + rng.below(9000) as usize];
        fs.write(file, rng.below(12_000), &data).expect("a write");
    }
}

fn of(fs: &Filesystem, id: TreeId) -> Vec<Fact> {
    own(facts::walk_from(fs, FileId::top_of(id)).expect("a walk"))
}

/// Without what lies in nested subvolumes, which is no snapshot's.
fn own(facts: Vec<Fact>) -> Vec<Fact> {
    facts.into_iter().filter(|fact| !fact.path.starts_with(b"snapshot-")).collect()
}

#[track_caller]
fn same(expected: &[Fact], found: &[Fact]) {
    compare(expected, found, &Compare::default()).unwrap_or_else(|e| panic!("{e}"));
}

/// The fields of `btrfs subvolume show`.
fn shown(path: &Path, field: &str) -> String {
    let text = run(Command::new("btrfs").args(["subvolume", "show"]).arg(path)).expect("subvolume show");
    let line = text
        .lines()
        .find_map(|l| l.trim().strip_prefix(field))
        .unwrap_or_else(|| panic!("{field} in {text}"));
    line.trim().to_string()
}

#[test]
fn each_is_what_the_subvolume_was() {
    let Some(()) = need(&[Need::KernelBtrfs, Need::Program("btrfs")]) else { return };
    for seed in 0..3 {
        let dir = TempDir::new("snapshots").expect("a folder");
        let path = dir.join("image");
        image::in_file(&path, LEN, &image::spread(seed));
        let fs = Filesystem::open_writable(&[&path], &image::quiet()).expect("open");
        let mut rng = Rng::new(seed);
        let mut taken: Vec<(TreeId, String, Vec<Fact>)> = Vec::new();
        let top = fs.root();
        for round in 0..6 {
            change(&fs, top, &mut rng, 300);
            // of the top level, and of the snapshot before: snapshots of snapshots
            let source = match taken.last() {
                Some((id, ..)) if round % 3 == 2 => *id,
                _ => top.tree,
            };
            let mut was = of(&fs, source);
            let read_only = round % 2 == 1;
            let name = format!("snapshot-{round}");
            let id = fs.snapshot(source, top, name.as_bytes(), read_only).expect("a snapshot");
            same(&was, &of(&fs, id));
            if !read_only {
                change(&fs, FileId::top_of(id), &mut rng, 100);
                was = of(&fs, id);
            } else {
                let refused = fs.create(FileId::top_of(id), b"more", NewNode::file(0o600));
                assert!(matches!(refused, Err(buttery::Error::ReadOnly)), "{refused:?}");
            }
            taken.push((id, name, was));
        }
        let known = fs.subvolumes().expect("subvolumes");
        fs.close().expect("close");
        btrfs_check_data(&path).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let fs = Filesystem::open_writable(&[&path], &image::quiet()).expect("open");
        for (id, _, was) in &taken {
            same(was, &of(&fs, *id));
        }
        fs.close().expect("close");
        let mount = KernelMount::one(&path, "").expect("the kernel mounts it");
        for (id, name, was) in &taken {
            let at = mount.path().join(name);
            same(was, &own(walk(&at).expect("a walk")));
            let ours = known.iter().find(|s| s.id == *id).expect("it is listed");
            let parent = known.iter().find(|s| s.item.uuid == ours.item.parent_uuid).expect("its source");
            assert_eq!(shown(&at, "Subvolume ID:"), id.0.to_string());
            assert_eq!(shown(&at, "Gen at creation:"), ours.item.otransid.get().to_string());
            assert_eq!(shown(&at, "Flags:") == "readonly", ours.item.flags.get() & 1 != 0);
            assert!(parent.id.0 < id.0);
        }
        kernel_scrub(mount.path()).expect("a clean scrub");
        mount.unmount_without_complaints().expect("a silent kernel");
    }
}

/// The transaction of the last change, and of the last snapshot.
fn changed(fs: &Filesystem, id: TreeId) -> (u64, u64) {
    let item = fs.subvolume_info(id).expect("a subvolume").item;
    (item.ctransid.get(), item.last_snapshot.get())
}

#[test]
fn the_root_item_tells_of_the_last_change() {
    let dir = TempDir::new("changed").expect("a folder");
    let path = dir.join("image");
    image::in_file(&path, LEN, &image::spread(1));
    let fs = Filesystem::open_writable(&[&path], &image::quiet()).expect("open");
    let tree = fs.create_subvolume(fs.root(), b"tree", 0, 0).expect("a subvolume");
    let file = fs.create(FileId::top_of(tree), b"file", NewNode::file(0o644)).expect("a file");
    fs.sync().expect("sync");
    let (made, _) = changed(&fs, tree);
    assert_eq!(made, fs.engine().last_committed());
    // the first write is made in the tree, the second in memory
    for _ in 0..2 {
        fs.write_direct(file, 0, &[7; 5000]).expect("a write");
    }
    fs.sync().expect("sync");
    let (written, _) = changed(&fs, tree);
    assert_eq!(written, fs.engine().last_committed());
    let copy = fs.snapshot(tree, fs.root(), b"snapshot", true).expect("a snapshot");
    // what changes is the directory that got the name
    assert_eq!(changed(&fs, tree), (written, fs.engine().last_committed()));
    assert_eq!(changed(&fs, copy), (written, fs.engine().last_committed()));
    assert_eq!(changed(&fs, fs.root().tree).0, fs.engine().last_committed());
    fs.close().expect("close");
}

#[test]
fn too_many_of_what_was_received_are_refused() {
    let dir = TempDir::new("received").expect("a folder");
    let path = dir.join("image");
    let options = buttery_mkfs::MkfsOptions { nodesize: 4096, discard: false, ..Default::default() };
    image::in_file(&path, LEN, &options);
    let fs = Filesystem::open_writable(&[&path], &image::quiet()).expect("open");
    let tree = fs.create_subvolume(fs.root(), b"received", 0, 0).expect("a subvolume");
    fs.engine().tree(tree).expect("a tree").update_item(|item| item.received_uuid = [7; 16]);
    let mut taken = 0;
    let refused = loop {
        match fs.snapshot(tree, fs.root(), format!("s{taken}").as_bytes(), true) {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
        assert!(taken < 1000, "they all have a place in one item");
    };
    assert!(matches!(refused, buttery::Error::Overflow), "{refused:?}");
    assert!(taken > 400, "{taken}");
    // a writable one was not received
    fs.snapshot(tree, fs.root(), b"writable", false).expect("a snapshot");
    fs.close().expect("close");
    if need(&[Need::Program("btrfs")]).is_some() {
        btrfs_check_data(&path).unwrap_or_else(|e| panic!("{e}"));
    }
}
