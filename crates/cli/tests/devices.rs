//! File systems over several devices, and over one that holds everything twice: whole, with the devices in another
//! order, with one damaged, with one missing.
//!
//! The kernel makes the images; what it says of the whole file system is what must be read from the rest of it.

mod support;

use std::path::PathBuf;

use buttery::Filesystem;
use buttery_judge::workload::{self, Data, Fill, Op, random, shapes};
use buttery_judge::{
    Compare, Fact, ImageSpec, KernelImage, KernelMount, Kind, Need, TempDir, compare, golden, guard, image,
    kernel_image, need,
};
use support::program::{args, buttery};
use support::untouched::untouched;
use support::{damage, facts};

fn make(devices: usize, mkfs: &str) -> Option<KernelImage> {
    // No NOCOW files: what has no checksum cannot be told from what is spoilt.
    let mix = random::Mix { subvolumes: false, properties: false, ..random::Mix::new(devices as u64, 300) };
    let snapshot = Op::Snapshot { from: b"sizes".to_vec(), to: b"snap".to_vec(), read_only: true };
    let mut ops = shapes::sizes(b"sizes");
    ops[0] = Op::CreateSubvolume { path: b"sizes".to_vec() };
    ops.extend(shapes::compressed(b"compressed", 100_000));
    ops.push(snapshot);
    kernel_image(&ImageSpec::new().devices(devices, 512 << 20).mkfs(mkfs).ops(ops).ops(random::ops(&mix)))
}

fn same(image: &KernelImage, files: &[PathBuf], options: &str, what: &str) {
    untouched(files, || {
        let found = facts::of_image(files, options).unwrap_or_else(|e| panic!("{what}: {e}"));
        compare(&image.facts, &found, &Compare::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    });
}

/// A copy of the devices, to be damaged.
fn copies(files: &[PathBuf]) -> (TempDir, Vec<PathBuf>) {
    let dir = TempDir::new("copies").expect("a folder");
    let copy = |file: &PathBuf| {
        let to = dir.join(file.file_name().expect("a name"));
        let mut command = std::process::Command::new("cp");
        guard::run(command.arg("--sparse=always").arg(file).arg(&to)).expect("a copy");
        to
    };
    let copied = files.iter().map(copy).collect();
    (dir, copied)
}

fn without(files: &[PathBuf], gone: &[usize]) -> Vec<PathBuf> {
    files.iter().enumerate().filter(|(n, _)| !gone.contains(n)).map(|(_, f)| f.clone()).collect()
}

/// Whole, in any order; refused with a device missing unless degraded is asked for.
fn order_and_number(image: &KernelImage, profile: &str) {
    same(image, &image.files, "", profile);
    let reversed: Vec<PathBuf> = image.files.iter().rev().cloned().collect();
    same(image, &reversed, "", &format!("{profile}, reversed"));
    let mut rotated = image.files.clone();
    rotated.rotate_left(1);
    same(image, &rotated, "", &format!("{profile}, rotated"));
    for gone in 0..image.files.len() {
        let rest = without(&image.files, &[gone]);
        let mut line = args(&["ls"], &rest);
        line.push(rest[0].clone().into());
        let missing = format!("device {} (", gone + 1);
        buttery(&line).fails(&[&missing, "is missing", "-d", "-o degraded"]);
    }
}

/// Every set of `lost` devices may be missing, and each single one may be damaged.
fn survives(devices: usize, profile: &str, lost: usize) {
    let Some(image) = make(devices, &format!("-d {profile} -m {profile}")) else { return };
    order_and_number(&image, profile);
    for set in 1..1usize << devices {
        let gone: Vec<usize> = (0..devices).filter(|n| set >> n & 1 == 1).collect();
        if gone.len() <= lost {
            same(&image, &without(&image.files, &gone), "degraded", &format!("{profile} without {gone:?}"));
        }
    }
    for bad in 0..devices {
        let (_dir, files) = copies(&image.files);
        damage::spoil(&files[bad]);
        same(&image, &files, "", &format!("{profile} with device {} spoilt", bad + 1));
    }
}

#[test]
fn raid1_survives_one_device() {
    survives(2, "raid1", 1);
    survives(3, "raid1", 1);
}

#[test]
fn raid1c3_survives_two_devices() {
    survives(3, "raid1c3", 2);
}

#[test]
fn raid1c4_survives_three_devices() {
    survives(4, "raid1c4", 3);
}

#[test]
fn raid10_survives_one_device() {
    survives(4, "raid10", 1);
}

#[test]
fn an_odd_number_of_devices_makes_raid10_too() {
    survives(5, "raid10", 1);
}

#[test]
fn dup_survives_the_loss_of_either_copy() {
    let Some(image) = make(1, "-d dup -m dup") else { return };
    same(&image, &image.files, "", "dup");
    for copy in 0..2 {
        let (_dir, files) = copies(&image.files);
        let fs = facts::open(&files, "").expect("the image");
        spoil_copy(&fs, copy);
        drop(fs);
        same(&image, &files, "", &format!("dup with copy {copy} spoilt"));
    }
}

/// Turns every bit of one copy of each chunk that has two.
fn spoil_copy(fs: &Filesystem, copy: usize) {
    let volume = fs.engine().volume();
    for chunk in volume.chunks().all() {
        let (devid, start) = chunk.stripes[copy];
        let file = PathBuf::from(volume.devices()[&devid].name());
        assert_eq!(chunk.copies(), 2);
        damage::spoil_range(&file, start, start + chunk.stripe_size());
    }
}

#[test]
fn raid0_gives_what_is_left() {
    for (devices, profile) in [(2, "raid0"), (3, "raid0"), (2, "single")] {
        let Some(image) = make(devices, &format!("-d {profile} -m raid1")) else { return };
        order_and_number(&image, profile);
        for gone in 0..devices {
            let rest = without(&image.files, &[gone]);
            untouched(&rest, || what_is_left(&image.facts, &rest, gone + 1));
        }
    }
}

/// Everything is listed; each file is either whole or an error that names the missing device.
fn what_is_left(whole: &[Fact], files: &[PathBuf], devid: usize) {
    let fs = facts::open(files, "degraded").expect("the image");
    let (mut read, mut lost) = (0, 0);
    let paths = facts::paths(&fs).expect("a listing");
    assert_eq!(paths.len(), whole.len());
    for ((path, id), expected) in paths.into_iter().zip(whole) {
        match facts::fact(&fs, id, path) {
            Ok(fact) => {
                compare(std::slice::from_ref(expected), &[fact], &Compare::default())
                    .unwrap_or_else(|e| panic!("{e}"));
                read += usize::from(expected.kind == Kind::File);
            }
            Err(error) => {
                assert!(error.contains(&format!("device {devid} is missing")), "{error}");
                lost += 1;
            }
        }
    }
    assert!(read > 10 && lost > 1, "{read} read, {lost} lost");
}

#[test]
fn data_and_metadata_in_different_profiles() {
    let Some(image) = make(4, "-d raid10 -m raid1c4") else { return };
    order_and_number(&image, "raid10 with raid1c4 metadata");
    same(&image, &without(&image.files, &[2]), "degraded", "without device 3");
}

#[test]
fn chunks_that_were_moved_and_converted_and_a_device_that_was_removed() {
    let Some(mut image) = make(3, "-d single -m dup") else { return };
    let mount = KernelMount::new(&image.files, "").expect("a mount");
    let btrfs = |words: &[&str]| {
        let mut command = std::process::Command::new("btrfs");
        guard::run(command.args(words).arg(mount.path())).expect("btrfs");
    };
    btrfs(&["device", "remove", "1"]);
    btrfs(&["balance", "start", "-dconvert=raid1", "-mconvert=raid1", "--force"]);
    mount.unmount().expect("unmounted");
    image.files.remove(0);
    image.facts = image::kernel_facts(&image.files).expect("a mount");
    same(&image, &image.files, "", "converted");
    for gone in 0..2 {
        same(&image, &without(&image.files, &[gone]), "degraded", &format!("converted, without {gone}"));
    }
}

#[test]
fn a_device_that_missed_the_last_writes_is_not_believed() {
    let Some(mut image) = make(2, "-d raid1 -m raid1") else { return };
    let mount = KernelMount::new(&image.files[..1], "degraded").expect("a mount");
    let ops = [
        Op::Unlink { path: b"sizes/random-4096".to_vec() },
        Op::Write {
            path: b"sizes/random-65536".to_vec(),
            offset: 5000,
            data: Data::new(Fill::Text, 1, 20_000),
        },
        Op::Rename { from: b"compressed".to_vec(), to: b"renamed".to_vec() },
    ];
    let report = workload::run(mount.path(), &[&ops[..], &shapes::many_files(b"later", 100)].concat());
    assert!(report.expect("a run").refused.is_empty());
    mount.unmount().expect("unmounted");
    image.facts = image::kernel_facts_with(&image.files[..1], "ro,degraded").expect("a mount");
    same(&image, &image.files, "", "the stale device second");
    let reversed: Vec<PathBuf> = image.files.iter().rev().cloned().collect();
    same(&image, &reversed, "", "the stale device first");
}

#[test]
fn devices_that_do_not_belong_together_are_told_apart() {
    let (one, other) = (golden::open("raid1").expect("an image"), golden::open("raid0").expect("an image"));
    let single = golden::open("csum-crc32c").expect("an image");
    let run = |files: &[PathBuf], options: &[&str]| {
        let mut line = args(&["ls"], files);
        line.extend(options.iter().map(Into::into));
        line.push(files[0].clone().into());
        buttery(&line)
    };
    let name = |file: &PathBuf| file.display().to_string();
    let mixed = [one.files[0].clone(), other.files[1].clone()];
    run(&mixed, &[]).fails(&["belongs to file system", &name(&mixed[0]), &name(&mixed[1])]);
    let strange = [single.files[0].clone(), one.files[0].clone()];
    run(&strange, &[]).fails(&["belongs to file system"]);
    let twice = [one.files[0].clone(), one.files[0].clone()];
    run(&twice, &[]).fails(&["both say that they are device 1"]);
    run(&one.files[1..], &[]).fails(&["device 1 (", "is missing", "-o degraded"]);
    run(&one.files[1..], &["-o", "degraded"]).ok();
    run(&one.files, &[]).quiet();
    run(&[one.files[1].clone(), one.files[0].clone()], &[]).quiet();
    // A golden raid0 keeps metadata on both devices.
    run(&other.files[..1], &["-o", "degraded"]).fails(&["missing"]);
}

#[test]
fn a_sprout_needs_its_seed() {
    let image = golden::open("seed-and-sprout").expect("an image");
    let mut line = args(&["ls"], &image.files[..1]);
    line.push(image.files[0].clone().into());
    buttery(&line).fails(&["is missing"]);
    // The seed alone is a file system of its own, as it was when it was made one.
    let seed = facts::of_image(&image.files[1..], "").expect("the seed");
    assert!(
        seed.iter().any(|f| f.path == b"seeded/sub/text")
            && seed.iter().all(|f| !f.path.starts_with(b"sprouted"))
    );
    let reversed: Vec<PathBuf> = image.files.iter().rev().cloned().collect();
    let both = facts::of_image(&reversed, "").expect("both");
    assert!(both.iter().any(|f| f.path.starts_with(b"sprouted/")));
}

#[test]
fn the_kernel_agrees_on_a_degraded_file_system() {
    let Some(()) = need(&[Need::KernelBtrfs]) else { return };
    let image = golden::open("raid1c3").expect("an image");
    let rest = without(&image.files, &[1]);
    let theirs = image::kernel_facts_with(&rest, "ro,degraded").expect("a mount");
    let ours = facts::of_image(&rest, "degraded").expect("a walk");
    compare(&theirs, &ours, &Compare::default()).unwrap_or_else(|e| panic!("{e}"));
}
