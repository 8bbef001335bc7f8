//! Devices that are missing, come back, or were written to apart.

use buttery::Filesystem;
use buttery_judge::check::btrfs_check_devices;
use buttery_judge::workload::{self, Data, Fill, Op};
use buttery_judge::{KernelMount, Need, TempDir, need, walk};
use buttery_mkfs::{MkfsOptions, Profile};
use buttery_sim::turns::kernel_ops;
use buttery_sim::{Sim, Weights, image, several};
use std::path::{Path, PathBuf};

const SIZE: u64 = 512 << 20;

fn made(dir: &TempDir, profile: Profile, n: usize, seed: u64) -> Vec<PathBuf> {
    let files = several::files(dir, &vec![SIZE; n]);
    several::make_ours(&files, &MkfsOptions { data: profile, metadata: profile, ..image::spread(seed) });
    files
}

fn without(files: &[PathBuf], gone: usize) -> Vec<PathBuf> {
    files.iter().enumerate().filter(|(n, _)| *n != gone).map(|(_, f)| f.clone()).collect()
}

/// Without flags: where the root is immutable, halves would not differ.
fn weights() -> Weights {
    Weights { flags: false, ..Weights::default() }
}

/// Random operations by the library, compared.
fn work(files: &[PathBuf], options: &str, seed: u64, steps: usize) -> Result<Sim, String> {
    let fs = several::try_open(files, options)?;
    let mut sim = Sim::new(&fs, fs.root(), seed, weights())?;
    for _ in 0..steps {
        sim.step(&fs)?;
    }
    sim.compare(&fs)?;
    fs.close().map_err(|e| e.to_string())?;
    Ok(sim)
}

/// What the kernel says of a device that is not there, or was not.
fn is_of_missing(line: &str) -> bool {
    ["missing", "is not found", "degraded"].iter().any(|word| line.contains(word))
}

/// The kernel's turn, without a device.
fn kernels_turn(files: &[PathBuf], sim: &Sim, seed: u64) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    let mount = KernelMount::new(files, "degraded").map_err(text)?;
    sim.compare_with(&walk(mount.path()).map_err(text)?).map_err(|e| format!("the kernel: {e}"))?;
    workload::run(mount.path(), &kernel_ops(&sim.model, seed, seed as usize)).map_err(text)?;
    mount.unmount_with_complaints_of(&is_of_missing).map_err(text)
}

/// A device goes away, the rest is worked in by us, by the kernel, by us; it comes back as it was.
fn gone_and_back(profile: Profile, n: usize, gone: usize, seed: u64) -> Result<(), String> {
    let dir = TempDir::new("degraded").map_err(|e| e.to_string())?;
    let files = made(&dir, profile, n, seed);
    work(&files, "", seed, 300)?;
    let rest = without(&files, gone);
    let refused = several::try_open(&rest, "").err().ok_or("it was opened without -o degraded")?;
    if !refused.contains("is missing") || !refused.contains("-o degraded") {
        return Err(refused);
    }
    let sim = work(&rest, "degraded", seed + 100, 300).map_err(|e| format!("without: {e}"))?;
    btrfs_check_devices(&rest, true)?;
    kernels_turn(&rest, &sim, seed)?;
    work(&rest, "degraded", seed + 200, 100).map_err(|e| format!("after the kernel: {e}"))?;
    // it is back, with everything that it had, which is old
    let before = several::try_open(&files, "")?;
    assert_eq!(before.engine().volume().stale(), [gone as u64 + 1]);
    let sim = Sim::new(&before, before.root(), 0, weights())?;
    before.close().map_err(|e| e.to_string())?;
    let known = several::try_open(&rest, "degraded")?;
    sim.compare(&known).map_err(|e| format!("back: {e}"))?;
    known.close().map_err(|e| e.to_string())?;
    let sim = work(&files, "", seed + 300, 300).map_err(|e| format!("back: {e}"))?;
    // what it missed it still misses, and that is known; the others have everything
    let again = several::try_open(&files, "")?;
    assert_eq!(again.engine().volume().stale(), [gone as u64 + 1]);
    sim.compare(&again).map_err(|e| format!("back again: {e}"))?;
    again.close().map_err(|e| e.to_string())?;
    btrfs_check_devices(&rest, true)
}

#[test]
fn a_device_that_was_away_is_read_last() {
    if need(&[Need::Program("btrfs"), Need::KernelBtrfs]).is_none() {
        return;
    }
    for (seed, (profile, n, gone)) in [
        (Profile::Raid1, 2, 0),
        (Profile::Raid1, 2, 1),
        (Profile::Raid1, 3, 1),
        (Profile::Raid1c3, 3, 2),
        (Profile::Raid1c4, 4, 0),
        (Profile::Raid10, 4, 3),
    ]
    .into_iter()
    .enumerate()
    {
        gone_and_back(profile, n, gone, seed as u64)
            .unwrap_or_else(|e| panic!("{profile:?} without {gone}: {e}"));
    }
}

/// A little work in one half: `rounds` times opened and closed.
fn a_little_of_ours(file: &Path, seed: u64, rounds: u64) {
    for round in 0..rounds {
        let fs = several::open(&[file.to_owned()], "degraded");
        let mut sim = Sim::new(&fs, fs.root(), seed * 100 + round, weights()).expect("the tree");
        (0..40).for_each(|_| sim.step(&fs).expect("a step"));
        fs.close().expect("close");
    }
}

fn a_little_of_the_kernels(file: &Path, seed: u64, rounds: u64) {
    for round in 0..rounds {
        let mount = KernelMount::one(file, "degraded").expect("a degraded mount");
        let name = |n: u64| format!("{seed}-{round}-{n}").into_bytes();
        let data = |n| Data::new(Fill::Text, seed * 1000 + n, 20_000);
        let file = |n| Op::Write { path: name(n), offset: 0, data: data(n) };
        let ops: Vec<Op> = (0..5).map(file).collect();
        let create = (0..5).map(|n| Op::Create { path: name(n), mode: 0o644 });
        let ops: Vec<Op> = create.chain(ops).collect();
        workload::run(mount.path(), &ops).expect("the kernel writes");
        mount.unmount().expect("unmount");
    }
}

/// Both halves are refused together, whichever is named first, and each is sound alone.
fn refused_together(files: &[PathBuf], what: &str) {
    let bytes = || files.iter().map(|f| std::fs::read(f).expect("an image")).collect::<Vec<_>>();
    let before = bytes();
    for order in [[0, 1], [1, 0]] {
        let files = order.map(|n| files[n].clone());
        for options in ["", "degraded", "ro"] {
            let error = match options {
                "ro" => {
                    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
                    Filesystem::open(&paths, &several::options("ro")).err().map(|e| e.to_string())
                }
                _ => several::try_open(&files, options).err(),
            };
            let error = error.unwrap_or_else(|| panic!("{what}: opened with {options:?}"));
            assert!(error.contains("split brain"), "{what}: {error}");
        }
    }
    assert!(before == bytes(), "{what}: something was written");
    for file in files {
        drop(several::open(std::slice::from_ref(file), "degraded"));
        btrfs_check_devices(std::slice::from_ref(file), true).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}

#[test]
fn halves_that_we_wrote_apart_are_refused() {
    if need(&[Need::Program("btrfs")]).is_none() {
        return;
    }
    for (seed, [one, other]) in [[1, 1], [1, 2], [3, 1], [2, 12], [20, 9], [1, 30]].into_iter().enumerate() {
        let dir = TempDir::new("apart").expect("a folder");
        let files = made(&dir, Profile::Raid1, 2, seed as u64);
        work(&files, "", seed as u64, 200).expect("a beginning");
        a_little_of_ours(&files[0], 1, one);
        a_little_of_ours(&files[1], 2, other);
        refused_together(&files, &format!("{one} and {other} rounds"));
    }
}

/// The same work in both: the same addresses, the same generations.
#[test]
fn halves_that_did_the_same_apart_are_refused() {
    if need(&[Need::Program("btrfs")]).is_none() {
        return;
    }
    for rounds in [1, 2, 5] {
        let dir = TempDir::new("apart").expect("a folder");
        let files = made(&dir, Profile::Raid1, 2, rounds);
        work(&files, "", 7, 200).expect("a beginning");
        for file in &files {
            for round in 0..rounds {
                let fs = several::open(std::slice::from_ref(file), "degraded");
                let name = format!("file{round}").into_bytes();
                let id = fs.create(fs.root(), &name, buttery::NewNode::file(0o644)).expect("a file");
                let what = if file == &files[0] { b"one" } else { b"two" };
                fs.write(id, 0, what).expect("a write");
                fs.close().expect("close");
            }
        }
        refused_together(&files, &format!("{rounds} rounds of the same"));
    }
}

#[test]
fn halves_that_the_kernel_wrote_apart_are_refused() {
    if need(&[Need::Program("btrfs"), Need::KernelBtrfs]).is_none() {
        return;
    }
    for (seed, [one, other]) in [[1, 1], [2, 1], [1, 9], [7, 3]].into_iter().enumerate() {
        let dir = TempDir::new("apart").expect("a folder");
        let files = made(&dir, Profile::Raid1, 2, seed as u64);
        work(&files, "", seed as u64, 200).expect("a beginning");
        a_little_of_the_kernels(&files[0], 1, one);
        a_little_of_the_kernels(&files[1], 2, other);
        refused_together(&files, &format!("the kernel, {one} and {other} rounds"));
    }
}
