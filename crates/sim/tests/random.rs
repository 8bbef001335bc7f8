//! Random operations through the library against the model; the kernel and `btrfs check` judge what is left.
//!
//! `BUTTERY_SIM_SEED=7` runs one seed, `BUTTERY_SIM_SEEDS` and `BUTTERY_SIM_STEPS` set the counts.

use buttery::{FileId, Filesystem, TreeId};
use buttery_device::Device;
use buttery_judge::check::btrfs_check_data;
use buttery_judge::{KernelMount, Need, TempDir, need, walk};
use buttery_sim::{Sim, Weights, image};
use std::path::Path;
use std::sync::Arc;

const STEPS: usize = 2000;
const SEEDS: u64 = 20;

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")),
        Err(_) => default,
    }
}

fn seeds(first: u64, count: u64) -> Vec<u64> {
    match std::env::var("BUTTERY_SIM_SEED") {
        Ok(_) => vec![number("BUTTERY_SIM_SEED", 0)],
        Err(_) => (first..first + number("BUTTERY_SIM_SEEDS", count)).collect(),
    }
}

/// Runs a seed; the device must hold a new file system. The file system is opened anew every few hundred steps.
fn run(seed: u64, open: &dyn Fn() -> Filesystem) -> Result<Sim, String> {
    let mut fs = open();
    let mut sim = Sim::new(&fs, fs.root(), seed, Weights::default())?;
    let steps = number("BUTTERY_SIM_STEPS", STEPS as u64) as usize;
    while sim.steps < steps {
        sim.step(&fs)?;
        let at = sim.steps;
        if at % 250 == 0 {
            sim.compare(&fs).map_err(|e| format!("after step {at}: {e}"))?;
        }
        if at % 500 == 0 {
            fs.close().map_err(|e| format!("close after step {at}: {e}"))?;
            fs = open();
            sim.compare(&fs).map_err(|e| format!("opened again after step {at}: {e}"))?;
        }
    }
    fs.close().map_err(|e| format!("close: {e}"))?;
    Ok(sim)
}

#[test]
fn in_memory() {
    for seed in seeds(1000, SEEDS) {
        let device = image::in_memory(1 << 30, &image::spread(seed));
        let sim = run(seed, &|| image::open(&device)).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(sim.refused * 2 < sim.steps, "seed {seed}: {} of {} were refused", sim.refused, sim.steps);
    }
}

#[test]
fn judged_by_the_kernel() {
    let Some(()) = need(&[Need::KernelBtrfs]) else { return };
    for seed in seeds(0, SEEDS) {
        let dir = TempDir::new("sim").expect("a folder");
        let file = dir.join("image");
        image::in_file(&file, 1 << 30, &image::spread(seed));
        let open = || Filesystem::open_writable(&[&file], &image::quiet_compressed(seed)).expect("the image");
        let sim = run(seed, &open).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        judge(&file, &sim).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

/// `btrfs check` finds no fault, the kernel sees what the model holds, and does not complain.
fn judge(file: &Path, sim: &Sim) -> Result<(), String> {
    btrfs_check_data(file)?;
    let text = |e: std::io::Error| e.to_string();
    let mount = KernelMount::one(file, "ro").map_err(text)?;
    sim.compare_with(&walk(mount.path()).map_err(text)?).map_err(|e| format!("the kernel: {e}"))?;
    mount.unmount_without_complaints().map_err(text)
}

#[test]
fn the_same_seed_does_the_same() {
    let facts = || {
        let device: Arc<dyn Device> = image::in_memory(1 << 30, &image::spread(7));
        let fs = image::open(&device);
        let mut sim = Sim::new(&fs, FileId::top_of(TreeId(5)), 7, Weights::default()).expect("a model");
        (0..300).for_each(|_| sim.step(&fs).unwrap_or_else(|e| panic!("{e}")));
        sim.model.facts()
    };
    assert!(facts() == facts());
}
