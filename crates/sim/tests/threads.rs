//! Several threads work in directories of their own while one commits: each finds what it did, and the whole is sound.

use buttery::{FileId, NewNode};
use buttery_judge::check::btrfs_check_data;
use buttery_judge::{Need, TempDir, need};
use buttery_sim::{Sim, Weights, facts, image};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn each_in_its_own_directory() {
    for seed in 0..4u64 {
        let device = image::in_memory(1 << 30, &image::spread(seed));
        let fs = image::open(&device);
        let dirs: Vec<FileId> = (0..4)
            .map(|n| {
                let name = format!("dir-{n}").into_bytes();
                match n {
                    3 => FileId::top_of(fs.create_subvolume(fs.root(), &name, 0, 0).expect("a subvolume")),
                    _ => fs.create(fs.root(), &name, NewNode::directory(0o755)).expect("a directory"),
                }
            })
            .collect();
        let stop = AtomicBool::new(false);
        let commits = AtomicU64::new(0);
        let sims = std::thread::scope(|scope| {
            let (fs, stop, commits) = (&fs, &stop, &commits);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    fs.sync().expect("a commit");
                    commits.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            let workers: Vec<_> = dirs
                .iter()
                .enumerate()
                .map(|(n, dir)| {
                    scope.spawn(move || {
                        // a subvolume's uuid comes from how many there are: not twice the same
                        let weights = Weights { subvolumes: n == 0, nodes_max: 150, ..Weights::default() };
                        let mut sim = Sim::new(fs, *dir, seed * 10 + n as u64, weights)?;
                        for step in 0..1500 {
                            sim.step(fs)?;
                            if step % 300 == 0 {
                                sim.compare(fs).map_err(|e| format!("step {step}: {e}"))?;
                            }
                        }
                        Ok::<Sim, String>(sim)
                    })
                })
                .collect();
            let sims: Vec<_> = workers.into_iter().map(|w| w.join().expect("a thread")).collect();
            stop.store(true, Ordering::Relaxed);
            sims
        });
        assert!(commits.load(Ordering::Relaxed) > 3);
        fs.close().unwrap_or_else(|e| panic!("seed {seed}: close: {e}"));
        let fs = image::open(&device);
        for (n, sim) in sims.into_iter().enumerate() {
            let sim = sim.unwrap_or_else(|e| panic!("seed {seed}, thread {n}: {e}"));
            sim.compare(&fs).unwrap_or_else(|e| panic!("seed {seed}, thread {n}, opened again: {e}"));
        }
        facts::walk(&fs).expect("all can be read");
        drop(fs);
        let Some(()) = need(&[Need::Program("btrfs")]) else { return };
        let dir = TempDir::new("threads").expect("a folder");
        image::dump(&*device, &dir.join("image"));
        btrfs_check_data(&dir.join("image")).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

/// One thread overwrites a file and commits, so that space is freed and used again, while others read it.
#[test]
fn reading_while_it_is_overwritten() {
    let device = image::in_memory(256 << 20, &image::spread(1));
    let fs = image::open(&device);
    let file = fs.create(fs.root(), b"file", NewNode::file(0o644)).expect("a file");
    const LEN: usize = 400_000;
    fs.write(file, 0, &vec![0; LEN]).expect("a write");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut bytes = vec![0; LEN];
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(fs.read(file, 0, &mut bytes).expect("a sound read"), LEN);
                    assert!(bytes.iter().all(|b| *b == bytes[0]), "a write is seen whole or not at all");
                }
            });
        }
        for n in 0..400u32 {
            fs.write(file, 0, &vec![n as u8; LEN]).expect("a write");
            fs.sync().expect("a commit");
        }
        stop.store(true, Ordering::Relaxed);
    });
}
