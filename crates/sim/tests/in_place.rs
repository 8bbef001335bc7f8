//! When data are written in place, and when they must not be: looked at where the extents lie.

use buttery::{Error, Fallocate, FileId, Filesystem, NewNode};
use buttery_device::Device;
use buttery_disk::inode::flags;
use buttery_engine::file::extents::{self, Body};
use buttery_judge::check::{btrfs_check_data, kernel_scrub};
use buttery_judge::{KernelMount, Need, TempDir, need};
use buttery_sim::crash::{Event, Recorder};
use buttery_sim::image;
use std::path::Path;
use std::sync::Arc;

const BLOCK: u64 = 4096;

/// Where each block of a file lies, whether it is only preallocated, and whether it has a checksum.
fn places(fs: &Filesystem, id: FileId) -> Vec<(u64, bool, bool)> {
    let engine = fs.engine();
    let tree = engine.tree(id.tree).expect("the tree");
    let mut found = Vec::new();
    let view = tree.read(engine.store());
    extents::for_each(&tree, &view, id.ino, 0, u64::MAX, &mut |extent| {
        let (item, prealloc) = match extent.body {
            Body::Prealloc(item) => (item, true),
            Body::Regular(item) => (item, false),
            other => panic!("{other:?}"),
        };
        assert_eq!(extent.start, found.len() as u64 * BLOCK, "a gap");
        found.extend(
            (0..extent.len / BLOCK)
                .map(|n| (item.disk_bytenr.get() + item.offset.get() + n * BLOCK, prealloc)),
        );
        Ok(true)
    })
    .expect("extents");
    let sums = |at| buttery_engine::csum::any_in_range(engine, at, BLOCK).expect("a search");
    found.into_iter().map(|(at, prealloc)| (at, prealloc, sums(at))).collect()
}

fn items(fs: &Filesystem, id: FileId) -> usize {
    let tree = fs.engine().tree(id.tree).expect("the tree");
    let view = tree.read(fs.engine().store());
    let mut count = 0;
    extents::for_each(&tree, &view, id.ino, 0, u64::MAX, &mut |_| {
        count += 1;
        Ok(true)
    })
    .expect("extents");
    count
}

fn file(fs: &Filesystem, name: &str, nocow: bool) -> FileId {
    let id = fs.create(fs.root(), name.as_bytes(), NewNode::file(0o644)).expect("a file");
    if nocow {
        let bits = flags::NODATACOW | flags::NODATASUM;
        fs.set_flags(id, bits, bits).expect("flags");
    }
    id
}

fn open(file: &Path) -> Filesystem {
    Filesystem::open_writable(&[file], &image::quiet()).expect("open")
}

fn addresses(places: &[(u64, bool, bool)]) -> Vec<u64> {
    places.iter().map(|p| p.0).collect()
}

#[test]
fn preallocated_space_is_written_where_it_is() {
    let device = image::in_memory(512 << 20, &image::spread(0));
    let fs = image::open(&device);
    for nocow in [false, true] {
        let id = file(&fs, if nocow { "nocow" } else { "cow" }, nocow);
        fs.fallocate(id, Fallocate::Allocate, 0, 64 * BLOCK, true).expect("space");
        let before = places(&fs, id);
        assert!(before.iter().all(|p| p.1 && !p.2), "space without data");
        assert_eq!((fs.stat(id).expect("stat").size, fs.stat(id).expect("stat").nbytes), (0, 64 * BLOCK));
        // out of order, and now and then over a commit
        for n in 0..64 {
            fs.write(id, (n * 37 % 64) * BLOCK, &[n as u8; BLOCK as usize]).expect("a write");
            if n % 9 == 0 {
                fs.sync().expect("a commit");
            }
        }
        let after = places(&fs, id);
        assert_eq!(addresses(&after), addresses(&before));
        assert!(after.iter().all(|p| !p.1 && p.2 != nocow), "data, with checksums unless told otherwise");
        assert_eq!(items(&fs, id), 1, "what continues each other is one extent again");
        // the second time it is data like any other
        fs.write(id, 0, &[9; 8 * BLOCK as usize]).expect("a write");
        assert_eq!(addresses(&places(&fs, id)) == addresses(&before), nocow);
        let mut bytes = vec![0; 64 * BLOCK as usize];
        assert_eq!(fs.read(id, 0, &mut bytes).expect("a read"), bytes.len());
        for n in 0..64 {
            let at = (n * 37 % 64) as usize;
            let byte = if at < 8 { 9 } else { n as u8 };
            assert!(bytes[at * BLOCK as usize..][..BLOCK as usize].iter().all(|&b| b == byte), "block {at}");
        }
    }
}

#[test]
fn what_was_written_in_place_is_flushed_by_sync() {
    let device = image::in_memory(300 << 20, &image::spread(0));
    let recorder = Arc::new(Recorder::copy_of(&*device));
    let shared: Arc<dyn Device> = recorder.clone();
    let fs = image::open(&shared); // with a fixed clock: no time changes either
    let id = file(&fs, "file", true);
    fs.write(id, 0, &[1; 16 * BLOCK as usize]).expect("a write");
    fs.sync().expect("a commit");
    assert!(fs.is_synced());
    recorder.take();
    fs.write(id, BLOCK, &[2; BLOCK as usize]).expect("a write in place");
    assert!(!fs.is_synced());
    fs.sync().expect("a flush");
    assert!(fs.is_synced());
    let events = recorder.take();
    assert!(matches!(events.as_slice(), [Event::Write { .. }, Event::Flush]), "{} events", events.len());
    fs.sync().expect("nothing");
    assert!(recorder.take().is_empty());
}

#[test]
fn what_somebody_else_sees_is_copied() {
    let device = image::in_memory(512 << 20, &image::spread(0));
    let fs = image::open(&device);
    let (id, other) = (file(&fs, "file", true), file(&fs, "other", true));
    fs.write(id, 0, &[1; 16 * BLOCK as usize]).expect("a write");
    fs.write(id, 0, &[2; 4 * BLOCK as usize]).expect("a write in place");
    assert_eq!(items(&fs, id), 1);
    let before = addresses(&places(&fs, id));
    for committed in [false, true] {
        fs.clone_range(id, 4 * BLOCK, other, 0, 8 * BLOCK).expect("a clone");
        if committed {
            fs.sync().expect("a commit");
        }
        fs.write(id, 6 * BLOCK, &[3; BLOCK as usize]).expect("a write");
        assert_ne!(addresses(&places(&fs, id))[6], before[6], "shared, and written in place");
        let mut bytes = vec![0; 8 * BLOCK as usize];
        fs.read(other, 0, &mut bytes).expect("a read");
        assert!(bytes[..2 * BLOCK as usize].iter().all(|&b| b == 1), "the clone changed");
    }
    // once the clone is gone, it is alone again
    fs.unlink(fs.root(), b"other").expect("an unlink");
    let before = addresses(&places(&fs, id));
    fs.write(id, 8 * BLOCK, &[4; 8 * BLOCK as usize]).expect("a write");
    assert_eq!(addresses(&places(&fs, id)), before);
    fs.sync().expect("a commit");
    fs.write(id, 8 * BLOCK, &[5; 8 * BLOCK as usize]).expect("a write");
    assert_eq!(addresses(&places(&fs, id)), before);
}

#[test]
fn a_snapshot_stays_what_it_was() {
    let Some(()) = need(&[Need::KernelBtrfs, Need::Program("btrfs")]) else { return };
    let dir = TempDir::new("in-place").expect("a folder");
    let path = dir.join("image");
    image::in_file(&path, 1 << 30, &image::spread(0));
    let fs = open(&path);
    let (nocow, space) = (file(&fs, "nocow", true), file(&fs, "space", false));
    fs.write(nocow, 0, &[1; 16 * BLOCK as usize]).expect("a write");
    fs.fallocate(space, Fallocate::Allocate, 0, 16 * BLOCK, false).expect("space");
    fs.close().expect("close");
    let mount = KernelMount::one(&path, "").expect("a mount");
    let snapshot = ["subvolume", "snapshot", "."].map(String::from);
    let made =
        std::process::Command::new("btrfs").args(snapshot).arg("snap").current_dir(mount.path()).output();
    assert!(made.expect("btrfs").status.success());
    mount.unmount().expect("an unmount");

    let fs = open(&path);
    let before = [nocow, space].map(|id| addresses(&places(&fs, id)));
    for (id, before) in [nocow, space].into_iter().zip(before) {
        fs.write(id, 4 * BLOCK, &[2; 4 * BLOCK as usize]).expect("a write");
        let after = addresses(&places(&fs, id));
        for n in 0..16 {
            assert_eq!(after[n] == before[n], !(4..8).contains(&n), "block {n}");
        }
        // the copy is newer than the snapshot
        fs.write(id, 4 * BLOCK, &[3; 4 * BLOCK as usize]).expect("a write");
        assert_eq!(addresses(&places(&fs, id)) == after, id == nocow);
    }
    let all = |path: &[u8]| {
        let id = fs.resolve(fs.root(), path).expect("a file");
        let mut bytes = vec![0; 16 * BLOCK as usize];
        fs.read(id, 0, &mut bytes).expect("a read");
        bytes
    };
    assert!(all(b"/snap/nocow").iter().all(|&b| b == 1) && all(b"/snap/space").iter().all(|&b| b == 0));
    assert_eq!(all(b"/nocow")[4 * BLOCK as usize], 3);
    fs.close().expect("close");
    btrfs_check_data(&path).expect("sound");
    let mount = KernelMount::one(&path, "").expect("a mount");
    assert!(std::fs::read(mount.path().join("snap/nocow")).expect("a read").iter().all(|&b| b == 1));
    kernel_scrub(mount.path()).expect("no errors");
}

#[test]
fn a_full_file_system_takes_what_has_its_space() {
    let device = image::in_memory(300 << 20, &image::spread(0));
    let fs = image::open(&device);
    let (nocow, space) = (file(&fs, "nocow", true), file(&fs, "space", false));
    fs.write(nocow, 0, &vec![1; 8 << 20]).expect("a write");
    fs.fallocate(space, Fallocate::Allocate, 0, 8 << 20, false).expect("space");
    let filler = file(&fs, "filler", false);
    let mut at = 0;
    for len in [1 << 20, BLOCK] {
        let full = loop {
            match fs.write(filler, at, &vec![7; len as usize]) {
                Ok(()) => at += len,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, Error::NoSpace), "{full}");
    }
    assert!(matches!(fs.fallocate(filler, Fallocate::Allocate, at, 1 << 30, true), Err(Error::NoSpace)));
    for round in 0..3 {
        for n in 0..2048u64 {
            let at = n * 1021 % 2048 * BLOCK;
            fs.write(nocow, at, &[round; BLOCK as usize]).expect("a write in place");
            if round == 0 {
                fs.write(space, at, &[3; BLOCK as usize]).expect("a write into preallocated space");
            }
        }
        fs.sync().expect("a commit");
    }
    for name in ["nocow", "space", "filler"] {
        fs.unlink(fs.root(), name.as_bytes()).expect("an unlink");
    }
    fs.sync().expect("a commit");
    let id = file(&fs, "again", false);
    fs.write(id, 0, &vec![7; 50 << 20]).expect("space came back");
    fs.close().expect("close");
}

/// Threads write over stripes of one file that share sectors, over commits, and read what they wrote.
#[test]
fn threads_write_side_by_side_in_one_file() {
    use buttery_judge::workload::rng::Rng;
    const STRIPE: u64 = 10_000;
    const STRIPES: u64 = 64;
    const THREADS: u64 = 4;
    let Some(()) = need(&[Need::Program("btrfs")]) else { return };
    for nocow in [false, true] {
        let device = image::in_memory(1 << 30, &image::spread(0));
        let fs = image::open(&device);
        let id = file(&fs, "file", nocow);
        let size = STRIPE * STRIPES;
        fs.write(id, 0, &vec![0; size as usize / 2]).expect("a write");
        fs.fallocate(id, Fallocate::Allocate, 0, size, false).expect("space");
        let done = std::sync::atomic::AtomicBool::new(false);
        let parts: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let fs = &fs;
                    scope.spawn(move || {
                        let mut rng = Rng::new(thread + 1);
                        let mut memory = vec![0; size as usize];
                        for n in 0..1500u64 {
                            let stripe = rng.below(STRIPES / THREADS) * THREADS + thread;
                            let within = rng.below(STRIPE);
                            let len = 1 + rng.below(STRIPE - within);
                            let (at, end) = (stripe * STRIPE + within, stripe * STRIPE + within + len);
                            let area = at as usize..end as usize;
                            if rng.one_in(4) {
                                let mut bytes = vec![0; len as usize];
                                assert_eq!(fs.read(id, at, &mut bytes).expect("a read"), bytes.len());
                                assert!(bytes == memory[area], "thread {thread}, step {n}");
                            } else {
                                memory[area].fill(1 + (n % 250) as u8);
                                fs.write(id, at, &vec![1 + (n % 250) as u8; len as usize]).expect("a write");
                            }
                        }
                        memory
                    })
                })
                .collect();
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    fs.sync().expect("a commit");
                }
            });
            let parts = workers.into_iter().map(|w| w.join().expect("a thread")).collect();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            parts
        });
        let mut bytes = vec![0; size as usize];
        fs.read(id, 0, &mut bytes).expect("a read");
        for stripe in 0..STRIPES {
            let area = (stripe * STRIPE) as usize..((stripe + 1) * STRIPE) as usize;
            assert!(bytes[area.clone()] == parts[(stripe % THREADS) as usize][area], "stripe {stripe}");
        }
        fs.close().expect("close");
        let dir = TempDir::new("side-by-side").expect("a folder");
        image::dump(&*device, &dir.join("image"));
        btrfs_check_data(&dir.join("image")).unwrap_or_else(|e| panic!("{e}"));
    }
}
