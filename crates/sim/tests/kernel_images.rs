//! Images that the kernel made, with snapshots, reflinks, compression and all: worked in by the library beside and
//! below the snapshots, judged, worked in by the kernel, and read again.
//!
//! What is looked for are references: of blocks and data that several trees share.

use buttery::{FileId, Filesystem};
use buttery_disk::objectid;
use buttery_judge::check::{btrfs_check_data, kernel_scrub};
use buttery_judge::guard::run;
use buttery_judge::workload::{self, Op, random, shapes};
use buttery_judge::{Compare, ImageSpec, KernelImage, KernelMount, compare, kernel_image, walk};
use buttery_sim::sim::ownerless;
use buttery_sim::turns::{kernel_ops, mounted};
use buttery_sim::{Sim, Weights, facts, image};
use std::path::Path;
use std::process::Command;

/// The top of the file system, whatever the default subvolume is.
fn top() -> FileId {
    FileId::top_of(buttery::TreeId(objectid::FS_TREE))
}

fn open(file: &Path) -> Filesystem {
    Filesystem::open_writable(&[file], &image::quiet()).unwrap_or_else(|e| panic!("open: {e}"))
}

/// Random operations by the library in an image, judged after each round.
fn work(image: &KernelImage, seed: u64, rounds: usize, steps: usize) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    let file = image.file();
    for round in 0..rounds {
        let fs = open(file);
        let weights = Weights { nodes_max: 3000, ..Weights::default() };
        let mut sim = Sim::new(&fs, top(), seed * 100 + round as u64, weights)?;
        for step in 0..steps {
            sim.step(&fs).map_err(|e| format!("round {round}: {e}"))?;
            if step % (steps / 2).max(1) == 0 {
                sim.compare(&fs).map_err(|e| format!("round {round}, step {step}: {e}"))?;
            }
        }
        fs.close().map_err(|e| format!("round {round}: close: {e}"))?;
        btrfs_check_data(file).map_err(|e| format!("round {round}: {e}"))?;
        mounted(&image.files, "subvolid=5", |top| {
            sim.compare_with(&walk(top).map_err(text)?).map_err(|e| format!("the kernel: {e}"))?;
            kernel_scrub(top)?;
            workload::run(top, &kernel_ops(&sim.model, seed * 77 + round as u64, round)).map_err(text)
        })?;
        btrfs_check_data(file).map_err(|e| format!("round {round}, after the kernel: {e}"))?;
        let seen = mounted(&image.files, "ro,subvolid=5", |top| walk(top).map_err(text))?;
        let ours = facts::of_image(&image.files, "subvolid=5")?;
        compare(&ownerless(seen), &ownerless(ours), &Compare::default())
            .map_err(|e| format!("read again: {e}"))?;
    }
    Ok(())
}

/// `BUTTERY_SIM_ROUNDS` multiplies the rounds.
fn rounds(default: usize) -> usize {
    let factor = std::env::var("BUTTERY_SIM_ROUNDS").ok();
    default * factor.map_or(1, |n| n.parse().expect("a number"))
}

fn specs() -> Vec<(&'static str, usize)> {
    vec![
        ("-n 4096", 4096),
        ("-n 4096 -O block-group-tree --csum xxhash", 4096),
        ("-n 16384 --csum blake2", 16384),
        ("-n 16384 -O block-group-tree", 16384),
        ("-n 65536 --csum sha256 -m single", 65536),
        ("-n 4096 -m single -O block-group-tree", 4096),
    ]
}

#[test]
fn random_workloads_with_snapshots_go_on() {
    for (seed, (mkfs, nodesize)) in specs().into_iter().enumerate() {
        let mount = if seed % 2 == 0 { "compress=zstd" } else { "" };
        let spec = ImageSpec::new()
            .mkfs(&format!("{mkfs} -O no-holes,free-space-tree"))
            .mount(mount)
            .workload(nodesize, 500 + seed as u64, 1000);
        let Some(image) = kernel_image(&spec) else { return };
        work(&image, 40 + seed as u64, rounds(1), 600).unwrap_or_else(|e| panic!("{mkfs}: {e}"));
    }
}

/// Many snapshots of one busy subvolume: blocks that many trees share, and leaves that own what others read.
#[test]
fn towers_of_snapshots() {
    for (seed, (mkfs, _)) in specs().into_iter().enumerate() {
        let spec = ImageSpec::new()
            .mkfs(&format!("{mkfs} -O no-holes,free-space-tree"))
            .ops(tower(900 + seed as u64, 12));
        let Some(image) = kernel_image(&spec) else { return };
        work(&image, 60 + seed as u64, rounds(1), 400).unwrap_or_else(|e| panic!("{mkfs}: {e}"));
    }
}

fn tower(seed: u64, height: usize) -> Vec<Op> {
    const EACH: usize = 150;
    let mix = random::Mix { subvolumes: false, ..random::Mix::new(seed, EACH * height) };
    let mut ops = shapes::sizes(b"base");
    for (n, some) in random::ops(&mix).chunks(EACH).enumerate() {
        ops.extend_from_slice(some);
        let from = if n % 3 == 2 { format!("snap{}", n - 1).into_bytes() } else { Vec::new() };
        ops.push(Op::Snapshot { from, to: format!("snap{n}").into_bytes(), read_only: n % 4 == 3 });
    }
    ops
}

/// Blocks that a balance moved: they carry the RELOC flag and full back references, though no snapshot is younger.
#[test]
fn after_a_balance() {
    for (seed, (mkfs, _)) in specs().into_iter().enumerate().skip(1).step_by(2) {
        let spec = ImageSpec::new()
            .mkfs(&format!("{mkfs} -O no-holes,free-space-tree"))
            .ops(tower(700 + seed as u64, 5));
        let Some(image) = kernel_image(&spec) else { return };
        let mount = KernelMount::one(image.file(), "").expect("a mount");
        let mut command = Command::new("btrfs");
        command.args(["balance", "start", "--full-balance"]).arg(mount.path());
        run(&mut command).expect("a balance");
        mount.unmount().expect("an unmount");
        work(&image, 80 + seed as u64, rounds(1), 400).unwrap_or_else(|e| panic!("{mkfs}: {e}"));
    }
}
