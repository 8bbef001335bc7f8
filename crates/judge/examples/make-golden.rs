//! Makes the golden images anew, with mkfs.btrfs and the kernel: `make-golden [NAME]...`. Needs root.
//! See `tests/golden/make`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

use buttery_judge::guard::run;
use buttery_judge::image::{self, kernel_facts_with};
use buttery_judge::render::render;
use buttery_judge::workload::{self, Data, Fill, Op, shapes};
use buttery_judge::{ImageSpec, KernelMount, Loop, TempDir, check, golden, kernel_image};

type Make = fn(&TempDir) -> Result<Vec<PathBuf>>;
type Result<T> = std::result::Result<T, Box<dyn Error>>;

const DEVICE_BYTES: u64 = 128 << 20;

struct Recipe {
    name: &'static str,
    devices: usize,
    mkfs: &'static str,
    mount: &'static str,
    ops: Vec<Op>,
}

fn recipe(name: &'static str, mkfs: &'static str, ops: Vec<Op>) -> Recipe {
    Recipe { name, devices: 1, mkfs, mount: "", ops }
}

fn over(devices: usize, name: &'static str, mkfs: &'static str) -> Recipe {
    Recipe { devices, ..recipe(name, mkfs, shapes::small(b"small")) }
}

fn recipes() -> Vec<Recipe> {
    let small = || shapes::small(b"small");
    let deep = |count| [small(), shapes::many_files(b"many", count)].concat();
    let nodes = |nodesize| [deep(200), shapes::many_links(b"links", nodesize)].concat();
    let default = Op::SetDefaultSubvolume { path: b"subvolumes/writable".to_vec() };
    let mut list = vec![
        recipe("empty", "", vec![]),
        recipe("csum-crc32c", "--csum crc32c -L golden-label", small()),
        recipe("csum-xxhash", "--csum xxhash", small()),
        recipe("csum-sha256", "--csum sha256", small()),
        recipe("csum-blake2", "--csum blake2", small()),
        recipe("nodesize-4k", "-n 4096", nodes(4096)),
        recipe("nodesize-16k", "-n 16384", nodes(16384)),
        recipe("nodesize-64k", "-n 65536", nodes(65536)),
        recipe("compressed", "", shapes::compressed(b"compressed", 4096)),
        recipe("no-holes", "-O no-holes", shapes::holes(b"holes")),
        recipe("holes", "-O ^no-holes", shapes::holes(b"holes")),
        recipe("preallocated", "", shapes::preallocated(b"prealloc")),
        recipe("collisions", "", shapes::colliding_names(b"collide")),
        recipe("names", "", [shapes::long_names(b"names"), shapes::symlinks(b"symlinks", 16384)].concat()),
        recipe("xattrs", "", shapes::xattrs(b"xattrs", 16384)),
        recipe(
            "special",
            "",
            [shapes::special_files(b"special"), shapes::attributes(b"attributes")].concat(),
        ),
        recipe("clones", "", shapes::clones(b"clones")),
        recipe("nocow", "", shapes::nocow(b"nocow")),
        recipe("subvolumes", "", shapes::subvolumes(b"subvolumes")),
        recipe("default-subvolume", "", [shapes::subvolumes(b"subvolumes"), vec![default]].concat()),
        recipe("mixed", "--mixed", deep(50)),
        recipe("block-group-tree", "-O block-group-tree", deep(50)),
        recipe("no-skinny-metadata", "-O ^skinny-metadata", deep(50)),
        recipe("quota", "-O quota", shapes::subvolumes(b"subvolumes")),
        recipe("squota", "-O squota", shapes::subvolumes(b"subvolumes")),
        over(1, "dup", "-d dup -m dup"),
        over(2, "single-of-two", "-d single -m single"),
        over(2, "raid0", "-d raid0 -m raid0"),
        over(2, "raid1", "-d raid1 -m raid1"),
        over(4, "raid10", "-d raid10 -m raid10"),
        over(3, "raid1c3", "-d raid1c3 -m raid1c3"),
        over(4, "raid1c4", "-d raid1c4 -m raid1c4"),
        over(3, "raid5", "-d raid5 -m raid5"),
        over(4, "raid6", "-d raid6 -m raid6"),
    ];
    let no_tree = "-O ^free-space-tree,^block-group-tree";
    list.push(Recipe { mount: "nospace_cache", ..recipe("no-space-cache", no_tree, deep(50)) });
    list.push(Recipe { mount: "space_cache=v1", ..recipe("space-cache-v1", no_tree, deep(50)) });
    list
}

fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let want = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    for recipe in recipes().into_iter().filter(|r| want(r.name)) {
        // mkfs.btrfs wants more where one device holds everything twice.
        let bytes = if recipe.name == "dup" { 2 * DEVICE_BYTES } else { DEVICE_BYTES };
        let spec = ImageSpec::new().devices(recipe.devices, bytes).mkfs(recipe.mkfs);
        let image =
            kernel_image(&spec.mount(recipe.mount).ops(recipe.ops)).ok_or("needs root and the kernel")?;
        assert!(image.report.refused.is_empty(), "{}: {:?}", recipe.name, image.report);
        keep(recipe.name, &image.files)?;
    }
    let special =
        [("seed-and-sprout", seed_and_sprout as Make), ("metadata-uuid", metadata_uuid), ("log", log)];
    for (name, make) in special.into_iter().filter(|(name, _)| want(name)) {
        let dir = TempDir::new("golden")?;
        keep(name, &make(&dir)?)?;
    }
    Ok(())
}

/// Packs the devices and writes the listings; the images themselves are left as they are.
fn keep(name: &str, files: &[PathBuf]) -> Result<()> {
    let folder = golden::folder();
    let copies = TempDir::new("copies")?;
    let mut copied = Vec::new();
    for (n, file) in files.iter().enumerate() {
        let packed = folder.join(format!("{name}.{n}.img.zst"));
        run(Command::new("zstd").args(["-q", "-f", "-19", "--long=27"]).arg(file).arg("-o").arg(&packed))?;
        println!("{:7} {}", packed.metadata()?.len(), packed.file_name().ok_or("a name")?.display());
        copied.push(copies.join(format!("{n}.img")));
        copy(file, &copied[n])?;
    }
    // A mount replays the log, even a read-only one: so the listing is made from a copy.
    let top = kernel_facts_with(&copied, "ro,subvolid=5")?;
    std::fs::write(folder.join(format!("{name}.txt")), render(&top))?;
    let default = kernel_facts_with(&copied, "ro")?;
    if default != top {
        std::fs::write(folder.join(format!("{name}.default.txt")), render(&default))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    run(Command::new("cp").arg("--sparse=always").arg(from).arg(to))?;
    Ok(())
}

/// A file system made a seed, and another device added to it. The sprout is the first file.
fn seed_and_sprout(dir: &TempDir) -> Result<Vec<PathBuf>> {
    let files = image::blank_files(dir, 2, DEVICE_BYTES)?;
    let (sprout, seed) = (&files[0], &files[1]);
    image::mkfs(&[Loop::attach(seed)?], &[])?;
    let mount = KernelMount::one(seed, "")?;
    workload::run(mount.path(), &shapes::small(b"seeded"))?;
    mount.unmount()?;
    run(Command::new("btrfstune").args(["-f", "-S", "1"]).arg(seed))?;

    let mut mount = KernelMount::one(seed, "ro")?;
    let device = Loop::attach(sprout)?;
    run(Command::new("btrfs").args(["device", "add", "-f"]).arg(device.device()).arg(mount.path()))?;
    mount.adopt(device);
    mount.remount("rw")?;
    let change =
        Op::Write { path: b"seeded/sub/text".into(), offset: 5000, data: Data::new(Fill::Text, 9, 9000) };
    workload::run(mount.path(), &[shapes::many_files(b"sprouted", 20), vec![change]].concat())?;
    mount.unmount()?;
    Ok(files)
}

/// The file system's id was changed without rewriting its metadata.
fn metadata_uuid(dir: &TempDir) -> Result<Vec<PathBuf>> {
    let files = image::blank_files(dir, 1, DEVICE_BYTES)?;
    image::mkfs(&[Loop::attach(&files[0])?], &[])?;
    let mount = KernelMount::one(&files[0], "")?;
    workload::run(mount.path(), &shapes::small(b"small"))?;
    mount.unmount()?;
    run(Command::new("btrfstune").args(["-f", "-m"]).arg(&files[0]))?;
    check::btrfs_check(&files[0])?;
    Ok(files)
}

/// As a power cut leaves it: the last commit, and a log of what was fsynced since.
fn log(dir: &TempDir) -> Result<Vec<PathBuf>> {
    let files = image::blank_files(dir, 1, DEVICE_BYTES)?;
    image::mkfs(&[Loop::attach(&files[0])?], &[])?;
    let mount = KernelMount::one(&files[0], "commit=300")?;
    workload::run(mount.path(), &[shapes::small(b"small"), shapes::many_files(b"many", 10)].concat())?;
    for op in unsynced() {
        workload::apply(mount.path(), &op)?;
    }
    let cut = dir.join("cut.img");
    copy(&files[0], &cut)?;
    mount.unmount()?;
    let says = run(Command::new("btrfs").args(["inspect-internal", "dump-super"]).arg(&cut))?;
    let root = says.lines().find_map(|line| line.strip_prefix("log_root\t")).map(str::trim);
    if matches!(root, None | Some("0")) {
        return Err(format!("the image has no log: {root:?}").into());
    }
    Ok(vec![cut])
}

fn unsynced() -> Vec<Op> {
    let path = |name: &str| name.as_bytes().to_vec();
    let fsync = |name: &str| Op::Fsync { path: path(name) };
    let text = |seed, len| Data::new(Fill::Text, seed, len);
    vec![
        Op::Create { path: path("small/logged"), mode: 0o640 },
        Op::Write { path: path("small/logged"), offset: 0, data: text(1, 20_000) },
        Op::SetXattr { path: path("small/logged"), name: b"user.logged".to_vec(), value: b"yes".to_vec() },
        fsync("small/logged"),
        Op::Write { path: path("small/sub/text"), offset: 100_000, data: text(2, 20_000) },
        Op::Truncate { path: path("small/sub/text"), size: 200_001 },
        fsync("small/sub/text"),
        Op::Link { from: path("many/file-00003"), to: path("many/linked") },
        fsync("many/file-00003"),
        Op::Append { path: path("many/file-00004"), data: text(3, 9000) },
        fsync("many/file-00004"),
        Op::Rename { from: path("many/file-00005"), to: path("many/renamed") },
        fsync("many/renamed"),
        Op::Unlink { path: path("many/file-00006") },
        fsync("many"),
        Op::Create { path: path("many/not-synced"), mode: 0o644 },
        Op::Append { path: path("many/file-00007"), data: text(4, 9000) },
    ]
}
