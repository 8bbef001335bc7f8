//! Each profile, on two to six devices of unlike sizes, made by us and by mkfs.btrfs: worked in by us, by the kernel, and
//! by us again; judged each time.

use buttery_judge::check::{btrfs_check_devices, kernel_scrub};
use buttery_judge::{Compare, Need, TempDir, compare, need, walk, workload};
use buttery_mkfs::{MkfsOptions, Profile};
use buttery_sim::sim::ownerless;
use buttery_sim::turns::{kernel_ops, mounted};
use buttery_sim::{Sim, Weights, facts, image, several};
use std::path::PathBuf;

/// Profiles of data and of metadata, and how many devices.
const PAIRS: [(Profile, Profile, usize); 8] = [
    (Profile::Single, Profile::Dup, 2),
    (Profile::Raid0, Profile::Raid1, 3),
    (Profile::Raid1, Profile::Raid1, 2),
    (Profile::Raid1, Profile::Raid1c3, 4),
    (Profile::Raid10, Profile::Raid10, 4),
    (Profile::Raid1c3, Profile::Raid1c4, 5),
    (Profile::Raid0, Profile::Raid10, 6),
    (Profile::Raid1c4, Profile::Raid1, 5),
];

fn sizes(n: usize) -> Vec<u64> {
    (0..n as u64).map(|n| (640 + 192 * (n % 3)) << 20).collect()
}

/// Two rounds of ours, with one of the kernel's after each.
fn in_turns(files: &[PathBuf], seed: u64) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    for round in 0..2 {
        let fs = several::open(files, "");
        let mut sim = Sim::new(&fs, fs.root(), seed * 10 + round, Weights::default())?;
        for step in 0..500 {
            sim.step(&fs).map_err(|e| format!("round {round}: {e}"))?;
            if step % 250 == 249 {
                sim.compare(&fs).map_err(|e| format!("round {round}, step {step}: {e}"))?;
            }
        }
        fs.close().map_err(|e| format!("round {round}: close: {e}"))?;
        btrfs_check_devices(files, true).map_err(|e| format!("round {round}: {e}"))?;
        mounted(files, "", |top| {
            sim.compare_with(&walk(top).map_err(text)?).map_err(|e| format!("the kernel: {e}"))?;
            kernel_scrub(top)?;
            workload::run(top, &kernel_ops(&sim.model, seed * 77 + round, round as usize)).map_err(text)
        })?;
        btrfs_check_devices(files, true).map_err(|e| format!("round {round}, after the kernel: {e}"))?;
        let seen = mounted(files, "ro", |top| walk(top).map_err(text))?;
        let ours = facts::of_image(files, "")?;
        compare(&ownerless(seen), &ownerless(ours), &Compare::default())
            .map_err(|e| format!("read again: {e}"))?;
    }
    Ok(())
}

#[test]
fn made_by_us() {
    if need(&[Need::Program("btrfs"), Need::KernelBtrfs]).is_none() {
        return;
    }
    for (seed, (data, metadata, n)) in PAIRS.into_iter().enumerate() {
        let dir = TempDir::new("profiles").expect("a folder");
        let files = several::files(&dir, &sizes(n));
        several::make_ours(&files, &MkfsOptions { data, metadata, ..image::spread(seed as u64) });
        btrfs_check_devices(&files, true).unwrap_or_else(|e| panic!("{data:?} {metadata:?}, new: {e}"));
        in_turns(&files, seed as u64 + 1).unwrap_or_else(|e| panic!("{data:?} {metadata:?}: {e}"));
    }
}

#[test]
fn made_by_mkfs_btrfs() {
    if need(&[Need::Program("mkfs.btrfs"), Need::KernelBtrfs]).is_none() {
        return;
    }
    for (seed, (data, metadata, n)) in PAIRS.into_iter().enumerate() {
        let dir = TempDir::new("profiles").expect("a folder");
        let files = several::files(&dir, &sizes(n));
        let arguments = format!("-d {} -m {}", data.name(), metadata.name()).to_ascii_lowercase();
        several::make_kernels(&files, &arguments);
        in_turns(&files, seed as u64 + 51).unwrap_or_else(|e| panic!("{arguments}: {e}"));
    }
}
