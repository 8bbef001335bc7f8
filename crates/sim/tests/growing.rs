//! What is written in pieces, one behind the other, is one extent; and what somebody else knows stays as it is.

use buttery::{Fallocate, FileId, Filesystem, NewNode};
use buttery_engine::file::extents::{self, Body};
use buttery_judge::check::{btrfs_check_data, kernel_scrub};
use buttery_judge::{KernelMount, Need, TempDir, need};
use buttery_sim::image;
use std::path::Path;
use std::sync::Arc;

const PIECE: u64 = 64 << 10;

fn open(file: &Path) -> Filesystem {
    Filesystem::open_writable(&[file], &image::quiet()).expect("open")
}

fn file(fs: &Filesystem, name: &str) -> FileId {
    fs.create(fs.root(), name.as_bytes(), NewNode::file(0o644)).expect("a file")
}

fn piece(n: u64) -> Vec<u8> {
    (0..PIECE).map(|at| (n * 131 + at / 5) as u8).collect()
}

fn write(fs: &Filesystem, id: FileId, numbers: std::ops::Range<u64>) {
    for n in numbers {
        fs.write(id, n * PIECE, &piece(n)).expect("a write");
    }
}

/// Each item of a file: where it begins, how long it is, and how long its extent is.
fn items(fs: &Filesystem, id: FileId) -> Vec<(u64, u64, u64)> {
    let tree = fs.engine().tree(id.tree).expect("the tree");
    let view = tree.read(fs.engine().store());
    let mut out = Vec::new();
    extents::for_each(&tree, &view, id.ino, 0, u64::MAX, &mut |extent| {
        if let Body::Regular(item) = extent.body {
            out.push((extent.start / PIECE, extent.len / PIECE, item.disk_num_bytes.get() / PIECE));
        }
        Ok(true)
    })
    .expect("extents");
    out
}

fn reads(fs: &Filesystem, id: FileId, numbers: &[u64]) {
    for (at, n) in numbers.iter().enumerate() {
        let mut bytes = vec![0; PIECE as usize];
        assert_eq!(fs.read(id, at as u64 * PIECE, &mut bytes).expect("a read"), bytes.len());
        assert!(bytes == piece(*n), "piece {at}");
    }
}

fn used(fs: &Filesystem) -> u64 {
    fs.sync().expect("a commit");
    let s = fs.statfs().expect("statfs");
    s.total - s.free
}

#[test]
fn pieces_written_one_behind_the_other_are_one_extent() {
    let dir = TempDir::new("growing").expect("a folder");
    let path = dir.join("image");
    image::in_file(&path, 1 << 30, &image::spread(0));
    let fs = open(&path);
    let none = used(&fs);
    let id = file(&fs, "file");
    write(&fs, id, 0..32);
    assert_eq!(items(&fs, id), [(0, 32, 32)]);
    // what a commit has written stays as it is
    fs.sync().expect("a commit");
    write(&fs, id, 32..48);
    assert_eq!(items(&fs, id), [(0, 32, 32), (32, 16, 16)]);
    // over what is there as well, and it is the same file
    write(&fs, id, 8..24);
    assert_eq!(items(&fs, id), [(0, 8, 32), (8, 16, 16), (24, 8, 32), (32, 16, 16)]);
    reads(&fs, id, &(0..48).collect::<Vec<_>>());
    // so is space that is allocated piece by piece
    let space = file(&fs, "space");
    for n in 0..4 {
        fs.fallocate(space, Fallocate::Allocate, n * PIECE, PIECE, false).expect("space");
    }
    write(&fs, space, 0..4);
    assert_eq!(items(&fs, space), [(0, 4, 4)]);
    fs.close().expect("close");
    if let Some(()) = need(&[Need::KernelBtrfs, Need::Program("btrfs")]) {
        btrfs_check_data(&path).expect("check");
        let mount = KernelMount::one(&path, "").expect("a mount");
        kernel_scrub(mount.path()).expect("scrub");
        let bytes = std::fs::read(mount.path().join("file")).expect("the file");
        assert!(bytes == (0..48).flat_map(piece).collect::<Vec<_>>());
        mount.unmount_without_complaints().expect("nothing in the log");
    }
    let fs = open(&path);
    for name in ["file", "space"] {
        fs.unlink(fs.root(), name.as_bytes()).expect("an unlink");
    }
    fs.sync().expect("a commit");
    assert!(used(&fs) <= none + (1 << 20), "all is given back");
    fs.close().expect("close");
}

/// Small block groups lie one behind the other, and an extent ends with its own; in large ones it ends at 128 MiB.
#[test]
fn an_extent_outgrows_neither_its_block_group_nor_what_an_extent_may_be() {
    let dir = TempDir::new("growing-far").expect("a folder");
    let all: Vec<u8> = (0..16).flat_map(piece).collect();
    for gib in [1, 8] {
        let path = dir.join(gib.to_string());
        image::in_file(&path, gib << 30, &image::spread(0));
        let fs = open(&path);
        let id = file(&fs, "large");
        for n in 0..300 {
            fs.write(id, n << 20, &all).expect("a write");
        }
        let seen = items(&fs, id);
        match gib {
            1 => assert!((3..=8).contains(&seen.len()), "{seen:?}"),
            // the first block group has 8 MiB
            _ => assert_eq!(seen, [(0, 128, 128), (128, 2048, 2048), (2176, 2048, 2048), (4224, 576, 576)]),
        }
        fs.close().expect("close");
        if let Some(()) = need(&[Need::Program("btrfs")]) {
            btrfs_check_data(&path).expect("check");
        }
    }
}

#[test]
fn an_extent_that_is_shared_or_cut_does_not_grow() {
    let device = image::in_memory(512 << 20, &image::spread(0));
    let fs = image::open(&device);
    // cut: what is behind its end is nobody's
    let cut = file(&fs, "cut");
    write(&fs, cut, 0..4);
    fs.truncate(cut, 2 * PIECE).expect("a truncation");
    write(&fs, cut, 2..4);
    assert_eq!(items(&fs, cut), [(0, 2, 4), (2, 2, 2)]);
    reads(&fs, cut, &[0, 1, 2, 3]);
    let (id, other) = (file(&fs, "file"), file(&fs, "other"));
    write(&fs, id, 0..4);
    fs.clone_range(id, 0, other, 0, 4 * PIECE).expect("a clone");
    write(&fs, id, 4..6);
    assert_eq!(items(&fs, id), [(0, 4, 4), (4, 2, 2)]);
    assert_eq!(items(&fs, other), [(0, 4, 4)]);
    write(&fs, other, 4..5);
    reads(&fs, other, &[0, 1, 2, 3, 4]);
    fs.unlink(fs.root(), b"file").expect("an unlink");
    fs.sync().expect("a commit");
    reads(&fs, other, &[0, 1, 2, 3, 4]);
}

/// Several files are written piece by piece by as many threads, with commits in between that run references ahead.
#[test]
fn extents_grow_beside_commits() {
    let dir = TempDir::new("growing-commits").expect("a folder");
    let path = dir.join("image");
    image::in_file(&path, 1 << 30, &image::spread(0));
    let fs = Arc::new(open(&path));
    let ids: Vec<FileId> = (0..4).map(|n| file(&fs, &format!("file{n}"))).collect();
    std::thread::scope(|scope| {
        let writers: Vec<_> = ids
            .iter()
            .map(|&id| {
                let fs = &fs;
                scope.spawn(move || {
                    for _ in 0..3 {
                        write(fs, id, 0..400);
                    }
                })
            })
            .collect();
        while !writers.iter().all(|w| w.is_finished()) {
            fs.sync().expect("a commit");
        }
    });
    for &id in &ids {
        reads(&fs, id, &(0..400).collect::<Vec<_>>());
    }
    Arc::into_inner(fs).expect("nobody else").close().expect("close");
    if let Some(()) = need(&[Need::Program("btrfs")]) {
        btrfs_check_data(&path).expect("check");
    }
}
