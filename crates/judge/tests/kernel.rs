//! The judge judged: the kernel agrees with itself, the guards give back, the comparison sees one byte.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

use buttery_judge::render::compare_listing;
use buttery_judge::workload::{random, shapes};
use buttery_judge::{Compare, ImageSpec, KernelMount, Loop, Need, TempDir};
use buttery_judge::{check, compare, corpus, golden, image, kernel_image, need, oracle, walk};

#[test]
fn shapes_are_all_accepted_and_survive_a_remount() {
    for nodesize in [4096, 16384, 65536] {
        let spec = ImageSpec::new().mkfs(&format!("-n {nodesize}")).ops(shapes::all(nodesize));
        let Some(image) = kernel_image(&spec) else { return };
        assert!(image.report.refused.is_empty(), "nodesize {nodesize}: {:?}", image.report.refused);
        let mount = KernelMount::one(image.file(), "ro").expect("a mount");
        let again = walk(mount.path()).expect("a walk");
        compare(&image.facts, &again, &Compare::default())
            .unwrap_or_else(|e| panic!("nodesize {nodesize}: {e}"));
    }
}

#[test]
fn a_random_workload_is_deterministic() {
    let spec = ImageSpec::new().ops(random::ops(&random::Mix::new(7, 3000)));
    let Some(one) = kernel_image(&spec) else { return };
    let two = kernel_image(&spec).expect("the kernel is here");
    assert_eq!(one.report, two.report);
    compare(&one.facts, &two.facts, &Compare::timeless()).unwrap_or_else(|e| panic!("{e}"));
    assert!(one.report.done > 2800, "most operations mean something: {:?}", one.report);
}

#[test]
fn the_kernel_scrubs_and_the_log_is_quiet() {
    let Some(image) = kernel_image(&ImageSpec::new().ops(shapes::sizes(b"sizes"))) else {
        return;
    };
    let mount = KernelMount::one(image.file(), "").expect("a mount");
    check::kernel_scrub(mount.path()).expect("no errors");
    mount.unmount_without_complaints().expect("no complaint");
}

#[test]
fn a_flipped_byte_is_seen_by_each_judge() {
    let spec = ImageSpec::new().mkfs("-d single -m single").mount("nodatasum").ops(shapes::sizes(b"sizes"));
    let Some(image) = kernel_image(&spec) else { return };
    let mount = KernelMount::one(image.file(), "").expect("a mount");
    let path = mount.path().join("sizes/random-65536");
    File::options().write(true).open(path).expect("a file").write_all_at(&[0], 40_000).expect("a write");
    let text = compare(&image.facts, &walk(mount.path()).expect("a walk"), &Compare::copied())
        .expect_err("a change");
    assert!(text.contains("sizes/random-65536: content"), "{text}");
    drop(mount);

    // The superblock at 64 KiB, in its label: its checksum no longer fits.
    let file = File::options().write(true).open(image.file()).expect("the image");
    file.write_all_at(b"x", 65536 + 0x12b).expect("a write");
    check::btrfs_check(image.file()).expect_err("a broken superblock");
    KernelMount::one(image.file(), "").expect_err("no mount");
}

/// Tests run side by side, and losetup gives the lowest number that is free: names change hands all the time.
#[test]
fn what_a_device_did_before_it_was_attached_is_not_held_against_it() {
    let Some(image) = kernel_image(&ImageSpec::new()) else { return };
    let spoilt = image.dir.join("spoilt");
    std::fs::copy(image.file(), &spoilt).expect("a copy");
    let file = File::options().write(true).open(&spoilt).expect("the copy");
    file.write_all_at(b"x", 65536 + 0x12b).expect("a write");
    for _ in 0..50 {
        let device = Loop::attach(&spoilt).expect("a loop device");
        let name = device.device().to_path_buf();
        let mut line = Command::new("mount");
        line.args(["-t", "btrfs"]).arg(&name).arg(image.dir.path());
        assert!(!line.output().expect("mount").status.success(), "a broken superblock");
        assert_ne!(
            device.complaints().expect("the log"),
            Vec::<String>::new(),
            "while it is ours, it counts"
        );
        drop(device);
        let mount = KernelMount::one(image.file(), "").expect("a mount");
        let same = mount.loops()[0].device() == name;
        mount.unmount_without_complaints().expect("its own doings only");
        if same {
            return;
        }
    }
    panic!("no device came back under its old name");
}

#[test]
fn guards_give_back_what_they_took_in_a_panic() {
    let Some(()) = need(&[Need::KernelBtrfs]) else {
        return;
    };
    let taken = std::sync::Mutex::new(Vec::new());
    let result = std::panic::catch_unwind(|| {
        let dir = TempDir::new("guards").expect("a folder");
        let image = dir.join("image");
        File::create(&image).expect("a file").set_len(1 << 28).expect("a size");
        let device = Loop::attach(&image).expect("a loop device");
        buttery_judge::image::mkfs(&[device], &[]).expect("mkfs");
        let mount = KernelMount::one(&image, "").expect("a mount");
        let device = mount.loops()[0].device().display().to_string();
        taken.lock().expect("a lock").extend([
            dir.path().display().to_string(),
            device,
            mount.path().display().to_string(),
        ]);
        panic!("as a failing test does");
    });
    assert!(result.is_err());
    let taken = taken.into_inner().expect("a lock");
    assert!(!std::path::Path::new(&taken[0]).exists() && !std::path::Path::new(&taken[2]).exists());
    let mounts = std::fs::read_to_string("/proc/mounts").expect("mounts");
    assert!(!mounts.contains(&taken[2]));
    let out = Command::new("losetup").args(["--noheadings", "--output", "BACK-FILE", "--list"]).output();
    let loops = String::from_utf8(out.expect("losetup").stdout).expect("text");
    assert!(!loops.contains(&taken[0]), "{loops}");
}

#[test]
fn several_devices_make_one_file_system() {
    let spec =
        ImageSpec::new().devices(3, 512 << 20).mkfs("-d raid0 -m raid1c3").ops(shapes::sizes(b"sizes"));
    let Some(image) = kernel_image(&spec) else { return };
    let mount = KernelMount::new(&image.files, "ro").expect("a mount");
    let again = walk(mount.path()).expect("a walk");
    compare(&image.facts, &again, &Compare::default()).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn the_kernel_reads_what_the_golden_listings_say() {
    let Some(()) = need(&[Need::KernelBtrfs]) else { return };
    let names = golden::names().expect("the golden images");
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        let image = golden::open(&name).expect("a golden image");
        let top = image::kernel_facts_with(&image.files, "ro,subvolid=5").expect("a mount");
        compare_listing(&image.listing, &top).unwrap_or_else(|e| panic!("{name}: {e}"));
        if let Some(listing) = image.default_listing {
            let facts = image::kernel_facts(&image.files).expect("a mount");
            compare_listing(&listing, &facts).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}

#[test]
fn the_public_images_unpack() {
    let needs = [
        Need::Corpus(oracle::PROGS_IMAGES),
        Need::Corpus(oracle::DISSECT_IMAGES),
        Need::Program("btrfs-image"),
    ];
    let Some(()) = need(&needs) else { return };
    let (progs, dissect) = (corpus::progs_images(), corpus::dissect_images());
    assert!(progs.len() > 120 && dissect.len() == 27, "{} and {} images", progs.len(), dissect.len());
    let dir = TempDir::new("corpus").expect("a folder");
    for packed in progs.iter().chain(&dissect).step_by(9) {
        let file = dir.join("image");
        corpus::unpack(packed, &file).unwrap_or_else(|e| panic!("{}: {e}", packed.display()));
        std::fs::remove_file(&file).expect("a file was made");
    }
}

#[test]
fn random_workloads_run_on_every_kind_of_file_system() {
    let specs = [
        ImageSpec::new().mkfs("-n 4096"),
        ImageSpec::new().mkfs("-n 65536 --csum blake2"),
        ImageSpec::new().mkfs("--csum xxhash -O block-group-tree").mount("compress=lzo"),
        ImageSpec::new().mkfs("--mixed"),
        ImageSpec::new().mkfs("-O ^no-holes,^free-space-tree").mount("nospace_cache"),
        ImageSpec::new().devices(2, 1 << 30).mkfs("-d raid1 -m raid1").mount("compress=zstd"),
    ];
    for (seed, spec) in specs.into_iter().enumerate() {
        let spec = spec.ops(random::ops(&random::Mix::new(100 + seed as u64, 2000)));
        let Some(image) = kernel_image(&spec) else { return };
        assert!(image.report.done > 1850, "{:?}: {:?}", spec.mkfs, image.report);
    }
}
