//! Subvolumes that share tree blocks are written side by side: whoever copies a shared block first leaves it to the
//! others, and the last one has it alone.

use buttery::{FileId, Filesystem, XattrMode};
use buttery_judge::check::{btrfs_check_data, kernel_scrub};
use buttery_judge::guard::run;
use buttery_judge::workload::rng::Rng;
use buttery_judge::{KernelMount, Need, TempDir, need};
use buttery_sim::image;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

const FILES: u64 = 3000;
const ROUNDS: u64 = 4;
const TREES: [&str; 4] = ["first", "second", "third", "fourth"];

/// What the kernel does before each round: at first it makes the files, and each time all trees are one again.
fn share(image: &Path, round: u64) {
    let mount = KernelMount::one(image, "").expect("the kernel mounts it");
    let at = |name: &str| mount.path().join(name);
    let btrfs = |words: &[&str], paths: &[&Path]| {
        run(Command::new("btrfs").args(words).args(paths)).unwrap_or_else(|e| panic!("btrfs {words:?}: {e}"));
    };
    if round == 0 {
        btrfs(&["subvolume", "create"], &[&at(TREES[0])]);
        for n in 0..FILES {
            fs::write(at(TREES[0]).join(format!("file-{n}")), vec![n as u8; 100 + n as usize % 7000])
                .expect("a file");
        }
    }
    for name in &TREES[1..] {
        if round > 0 {
            btrfs(&["subvolume", "delete", "-c"], &[&at(name)]);
        }
        btrfs(&["subvolume", "snapshot"], &[&at(TREES[0]), &at(name)]);
    }
    mount.unmount().expect("unmount");
}

/// Changes files here and there in one tree.
fn work(fs: &Filesystem, top: FileId, seed: u64) -> buttery::Result<()> {
    let mut rng = Rng::new(seed);
    for n in 0..1500 {
        let name = format!("file-{}", rng.below(FILES));
        let file = match fs.lookup(top, name.as_bytes()) {
            Err(buttery::Error::NotFound) => continue,
            file => file?,
        };
        match n % 8 {
            0 => fs.write(file, rng.below(9000), &[n as u8; 3000])?,
            1 => fs.truncate(file, rng.below(5000))?,
            2 if rng.below(4) == 0 => fs.unlink(top, name.as_bytes())?,
            _ => fs.set_xattr(file, b"user.seed", seed.to_string().as_bytes(), XattrMode::Any)?,
        }
        if n % 400 == 0 {
            fs.sync()?;
        }
    }
    Ok(())
}

#[test]
fn trees_that_share_blocks_are_written_side_by_side() {
    let Some(()) = need(&[Need::KernelBtrfs, Need::Program("btrfs")]) else { return };
    let dir = TempDir::new("shared-blocks").expect("a folder");
    let path = dir.join("image");
    fs::File::create(&path).and_then(|f| f.set_len(1 << 30)).expect("an image");
    run(Command::new("mkfs.btrfs").args(["-q", "-n", "4096", "-O", "no-holes,free-space-tree"]).arg(&path))
        .expect("mkfs.btrfs");
    for round in 0..ROUNDS {
        share(&path, round);
        let fs = Filesystem::open_writable(&[&path], &image::quiet()).expect("open");
        thread::scope(|scope| {
            let threads: Vec<_> = (0..)
                .zip(TREES)
                .map(|(n, name)| {
                    let fs = &fs;
                    let top = fs.lookup(fs.root(), name.as_bytes()).expect("a subvolume");
                    scope.spawn(move || work(fs, top, round * 10 + n))
                })
                .collect();
            for thread in threads {
                thread.join().expect("a writer").unwrap_or_else(|e| panic!("round {round}: {e}"));
            }
        });
        fs.close().expect("close");
        btrfs_check_data(&path).unwrap_or_else(|e| panic!("round {round}: {e}"));
    }
    let mount = KernelMount::one(&path, "").expect("the kernel mounts it");
    kernel_scrub(mount.path()).expect("a clean scrub");
    mount.unmount().expect("unmount");
}
