//! The diff-walk: images that the kernel made, read by the library and by the kernel, tell the same facts.
//!
//! Every checksum meets every node size, and each of both meets file systems with and without a block-group tree.

mod support;

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use buttery_judge::workload::{Data, Fill, Op, shapes};
use buttery_judge::{Compare, ImageSpec, KernelImage, KernelMount, Loop, Need, TempDir};
use buttery_judge::{compare, golden, image, kernel_image, need, walk};
use support::program::{args, buttery, inside};
use support::untouched::untouched;
use support::{damage, facts};

/// How many random operations each image has seen.
const RANDOM_OPS: usize = 4000;

fn spec(nodesize: usize, csum: &str, block_group_tree: bool, seed: u64) -> ImageSpec {
    let tree = if block_group_tree { "" } else { "^" };
    let arguments = format!("-n {nodesize} --csum {csum} -O {tree}block-group-tree");
    ImageSpec::new().mkfs(&arguments).workload(nodesize, seed, RANDOM_OPS)
}

fn same(image: &KernelImage, what: &str) {
    untouched(&image.files, || {
        let found = facts::of_image(&image.files, "").unwrap_or_else(|e| panic!("{what}: {e}"));
        compare(&image.facts, &found, &Compare::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    });
}

fn walk_checksums(nodesize: usize, trees: [bool; 4]) {
    for (n, csum) in ["crc32c", "xxhash", "sha256", "blake2"].into_iter().enumerate() {
        let seed = nodesize as u64 + n as u64;
        let Some(image) = kernel_image(&spec(nodesize, csum, trees[n], seed)) else { return };
        same(&image, &format!("nodesize {nodesize}, {csum}, block-group-tree {}, seed {seed}", trees[n]));
    }
}

#[test]
fn nodes_of_4k_with_every_checksum() {
    walk_checksums(4096, [true, false, true, false]);
}

#[test]
fn nodes_of_16k_with_every_checksum() {
    walk_checksums(16384, [false, true, false, true]);
}

#[test]
fn nodes_of_64k_with_every_checksum() {
    walk_checksums(65536, [true, false, false, true]);
}

#[test]
fn mount_options_and_features_of_old() {
    let old = "-n 4096 -O ^free-space-tree,^block-group-tree,^no-holes,^skinny-metadata,^extref";
    let specs = [
        ImageSpec::new().mkfs(old).mount("nospace_cache").workload(4096, 1, RANDOM_OPS),
        ImageSpec::new().mkfs("--mixed -n 4096").workload(4096, 2, RANDOM_OPS),
        ImageSpec::new().mkfs("-m single").mount("compress-force=zstd:3").workload(16384, 3, RANDOM_OPS),
        ImageSpec::new().mount("compress-force=lzo").workload(16384, 4, RANDOM_OPS),
        ImageSpec::new().mount("compress-force=zlib,max_inline=0").workload(16384, 5, RANDOM_OPS),
        ImageSpec::new().mount("nodatasum,autodefrag").workload(16384, 6, RANDOM_OPS),
        ImageSpec::new().mkfs("-O quota").mount("nodatacow").workload(16384, 7, RANDOM_OPS),
    ];
    for spec in specs {
        let Some(image) = kernel_image(&spec) else { return };
        same(&image, &format!("{:?} {}", spec.mkfs, spec.mount));
    }
}

#[test]
fn a_tree_with_many_levels_and_a_file_with_many_extents() {
    let mut ops = shapes::many_files(b"many", 6000);
    let file = b"scattered".to_vec();
    ops.push(Op::Create { path: file.clone(), mode: 0o600 });
    for n in 0..1500 {
        let data = Data::new(Fill::Random, n, 4096);
        ops.push(Op::Write { path: file.clone(), offset: (n * 7919 % 1500) * 8192, data });
        if n % 50 == 0 {
            ops.push(Op::Fsync { path: file.clone() });
        }
    }
    ops.push(Op::Snapshot { from: vec![], to: b"snap".to_vec(), read_only: true });
    let Some(image) = kernel_image(&ImageSpec::new().mkfs("-n 4096").ops(ops)) else { return };
    let fs = facts::open(&image.files, "").expect("the image");
    assert!(fs.engine().tree(buttery::TreeId(5)).expect("a tree").root().level >= 2);
    drop(fs);
    same(&image, "many levels");
}

#[test]
fn the_last_commit_is_what_the_kernel_sees_without_the_log() {
    let Some(()) = need(&[Need::KernelBtrfs]) else { return };
    let image = golden::open("log").expect("a golden image");
    let device = Loop::attach_read_only(&image.files[0]).expect("a loop device");
    let mount = KernelMount::of_loops(vec![device], "ro,rescue=nologreplay").expect("a mount");
    let theirs = walk(mount.path()).expect("a walk");
    drop(mount);
    let ours = facts::of_image(&image.files, "").expect("a walk");
    compare(&theirs, &ours, &Compare::default()).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn backup_roots_give_what_they_give_the_kernel() {
    let Some(()) = need(&[Need::KernelBtrfs]) else { return };
    let mut alike = 0;
    for name in
        ["subvolumes", "csum-xxhash", "compressed", "nodesize-4k", "xattrs", "no-space-cache", "raid1"]
    {
        let image = golden::open(name).expect("a golden image");
        let fs = facts::open(&image.files, "").expect("the image");
        let root = damage::root_of_roots(&fs);
        drop(fs);
        root.places.iter().for_each(|(file, at)| damage::flip(file, at + 500, 1));
        let options = "rescue=usebackuproot";
        let ours = facts::of_image(&image.files, options);
        match (image::kernel_facts_with(&image.files, &format!("ro,{options}")), ours) {
            (Ok(theirs), Ok(ours)) => {
                compare(&theirs, &ours, &Compare::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
                alike += 1;
            }
            (Err(_), _) => {} // less is needed to read files than to mount
            (Ok(_), Err(error)) => panic!("{name}: {error}"),
        }
    }
    assert!(alike >= 3, "{alike}");
}

#[test]
fn every_subvolume_as_root() {
    let spec = ImageSpec::new().ops(shapes::subvolumes(b"subvolumes"));
    let Some(image) = kernel_image(&spec) else { return };
    let fs = facts::open(&image.files, "").expect("the image");
    let subvolumes = fs.subvolumes().expect("a list");
    assert_eq!(subvolumes.len(), 7, "all but the one that was deleted");
    for subvolume in subvolumes {
        let options = format!("subvolid={}", subvolume.id.0);
        let theirs = image::kernel_facts_with(&image.files, &format!("ro,{options}"));
        let theirs = theirs.unwrap_or_else(|e| panic!("{options}: {e}"));
        let ours = facts::of_image(&image.files, &options).unwrap_or_else(|e| panic!("{options}: {e}"));
        compare(&theirs, &ours, &Compare::default()).unwrap_or_else(|e| panic!("{options}: {e}"));
    }
}

#[test]
fn cp_archives_all_that_the_kernel_shows() {
    let spec = ImageSpec::new().workload(16384, 11, 400);
    let Some(image) = kernel_image(&spec) else { return };
    let dir = TempDir::new("copies").expect("a folder");
    let blank = image::blank_files(&dir, 1, 1 << 30).expect("a file");
    image::mkfs(&[Loop::attach(&blank[0]).expect("a loop device")], &[]).expect("mkfs");
    let mount = KernelMount::one(&blank[0], "").expect("a mount");
    let target = mount.path().join("copy");
    let mut line = args(&["cp", "-a"], &image.files);
    line.extend([inside(&image.files[0], "/"), target.as_os_str().to_owned()]);
    buttery(&line).quiet();
    let copied = walk(&target).expect("a walk");
    compare(&image.facts, &copied, &Compare::copied()).unwrap_or_else(|e| panic!("{e}"));

    // What is a hole in the image is one in the copy.
    let blocks = |path: PathBuf| std::fs::metadata(path).map(|m| m.blocks()).expect("a file");
    let original = KernelMount::one(image.file(), "ro").expect("a mount");
    for name in ["holes/front", "holes/far", "holes/all", "prealloc/unwritten"] {
        let (theirs, ours) = (blocks(original.path().join(name)), blocks(target.join(name)));
        assert!(ours <= theirs, "{name}: {ours} blocks, in the image {theirs}");
    }
}
