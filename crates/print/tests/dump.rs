//! Whole dumps of file systems that the kernel wrote, compared with those of btrfs-progs 6.14.

mod support;

use std::path::{Path, PathBuf};
use support::{Mounted, Skip, mkfs, walk, with_oracle};

/// Files of all kinds, names of all kinds, links, attributes, clones, snapshots, quotas.
const RICH: &str = r#"
mkdir -p d/e h
i=0; while [ $i -lt 300 ]; do echo "file $i" > "d/f $i"; i=$((i+1)); done
head -c 200000 /dev/urandom > r; head -c 300000 /dev/zero > z; yes hello | head -c 500000 > c
printf inline > in; ln in lnk; ln -s target sym; mknod n c 1 3; mkfifo p
printf 'odd\n' > "$(printf 'new\nline \\ \001\303\251')"
btrfs property set z compression zstd
if command -v setfattr; then setfattr -n user.one -v 'x y' r; setfattr -n user.two r; fi
cp --reflink=always r r2
btrfs subvolume create s1; cp r s1/x; sync
btrfs subvolume snapshot s1 d/s1snap; btrfs subvolume snapshot -r . ro
: > h/t
i=0; while [ $i -lt 120 ]; do ln h/t "h/$(printf 'hardlink-%0100d' $i)"; i=$((i+1)); done
fallocate -l 1M pre; chattr +C d/e; head -c 12288 /dev/zero > d/e/nocow
i=0; while [ $i -lt 60 ]; do cp --reflink=always r "d/r$i"; i=$((i+1)); done
echo x >> d/s1snap/x; sync
"#;

/// Some of what the file system must then hold.
const CLEAN: [&str; 8] = [
    "(zstd)",
    "(inline)",
    "prealloc data",
    "EXTENT_DATA_REF",
    "shared data backref parent",
    "QGROUP_LIMIT 0/256",
    "flags 0x1(RDONLY)",
    "type SYMLINK",
];

/// Renames and writes that stay in the log.
const LOG: &str = r#"
mkdir -p log; sync
echo hi > log/a; echo ho > log/b; sync log/a; rm log/b; sync log; echo more >> log/a; sync log/a
"#;

/// Free space in many pieces.
const PIECES: &str = "
i=0; while [ $i -lt 800 ]; do head -c 8192 /dev/zero > f$i; i=$((i+1)); done; sync
i=0; while [ $i -lt 800 ]; do rm f$i; i=$((i+2)); done; sync
";

fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).expect("the image can be copied");
}

#[test]
fn a_bit_of_everything() {
    with_oracle("everything", true, |dir| {
        let (image, dirty) = (dir.join("a.img"), dir.join("dirty.img"));
        mkfs(std::slice::from_ref(&image), 400, &["-L", "a \\ label"])?;
        let mounted = Mounted::new(std::slice::from_ref(&image), "compress=zstd")?;
        mounted.script(RICH)?;
        mounted.script("btrfs quota enable .; btrfs quota rescan -w .; btrfs qgroup create 1/100 .")?;
        mounted.script("btrfs qgroup assign --no-rescan 0/256 1/100 .; btrfs qgroup limit 100M 0/256 .")?;
        // an inode without a name
        let orphan = mounted.dir.join("orphan");
        let held = std::fs::File::create(&orphan).expect("a file can be made");
        std::fs::remove_file(&orphan).expect("it can be removed");
        mounted.script(LOG)?;
        copy(&image, &dirty);
        drop(held);
        drop(mounted);
        walk::compare("clean", &[&image], &CLEAN)?;
        walk::compare("with a log", &[&dirty], &["log root tree", "log tree key", "dir log end"])?;
        assert_ne!(support::image::Image::open(&dirty).sb.log_root.get(), 0);
        Ok(())
    });
}

#[test]
fn small_nodes_and_simple_quotas() {
    with_oracle("small", true, |dir| {
        let image = dir.join("a.img");
        mkfs(std::slice::from_ref(&image), 400, &["-n", "4096", "-O", "^no-holes", "--csum", "xxhash"])?;
        let mounted = Mounted::new(std::slice::from_ref(&image), "compress=lzo")?;
        mounted.script("btrfs quota enable --simple .")?;
        mounted.script(RICH)?;
        mounted.script(
            "i=0; while [ $i -lt 2000 ]; do : > d/e/n$i; i=$((i+1)); done; btrfs subvolume delete ro",
        )?;
        mounted.script("head -c 100000 /dev/zero > hole; truncate -s 10M hole; sync")?;
        drop(mounted);
        walk::compare(
            "small nodes",
            &[&image],
            &["textent owner", "enable_gen", "level 2 items", "INODE_EXTREF", "(lzo)"],
        )
    });
}

#[test]
fn two_devices_and_a_paused_balance() {
    with_oracle("balance", true, |dir| {
        let images: Vec<PathBuf> = vec![dir.join("a.img"), dir.join("b.img")];
        mkfs(&images, 400, &["-d", "raid1", "-m", "raid1", "--csum", "sha256"])?;
        let mounted = Mounted::new(&images, "compress=zlib")?;
        mounted.script(RICH)?;
        mounted.script("head -c 50000000 /dev/urandom > big; sync")?;
        // whether it is over before the pause does not matter
        mounted.script("btrfs balance start --bg --full-balance . ; btrfs balance pause . || true; sync")?;
        mounted.script("btrfs device stats -z . || true; sync")?;
        drop(mounted);
        walk::compare("two devices", &[&images[0], &images[1]], &["METADATA|RAID1", "devid 2", "(zlib)"])
    });
}

#[test]
fn the_old_space_cache_and_old_references() {
    with_oracle("cache", true, |dir| {
        let image = dir.join("a.img");
        let features = "^free-space-tree,^skinny-metadata,^extref";
        // block groups of less than 100 MiB are not cached
        mkfs(std::slice::from_ref(&image), 2000, &["-O", features, "--csum", "blake2", "-n", "4096"])?;
        let mounted = Mounted::new(std::slice::from_ref(&image), "space_cache=v1")?;
        mounted.script("btrfs subvolume create s1; head -c 12000000 /dev/urandom > s1/r; sync")?;
        mounted.script("mkdir d; i=0; while [ $i -lt 2500 ]; do echo $i > s1/f$i; i=$((i+1)); done; sync")?;
        mounted
            .script("btrfs subvolume snapshot s1 s2; btrfs subvolume snapshot s1 s3; echo x > s1/f1; sync")?;
        mounted.script("btrfs subvolume delete s1; echo y > s3/f5; sync; btrfs subvolume sync .; sync")?;
        drop(mounted);
        walk::compare(
            "space cache",
            &[&image],
            &["cache generation", "tree block key", "shared block backref"],
        )
    });
}

#[test]
fn block_group_tree_and_free_space_bitmaps() {
    with_oracle("bitmaps", true, |dir| {
        let image = dir.join("a.img");
        mkfs(std::slice::from_ref(&image), 400, &["-O", "block-group-tree", "-s", "4096"])?;
        let mounted = Mounted::new(std::slice::from_ref(&image), "nodatasum")?;
        mounted.script(PIECES)?;
        mounted.script("btrfs subvolume create 'a b'; btrfs subvolume set-default 'a b'; sync")?;
        drop(mounted);
        walk::compare("bitmaps", &[&image], &["free space bitmap", "block group tree key"])?;
        let image_ = support::image::Image::open(&image);
        let dump = walk::Dump {
            args: &["-t", "block-group"],
            selection: buttery_print::heading::Selection::Tree(11),
            options: Default::default(),
            depth_first: false,
        };
        let ours = walk::ours(&image_, &dump).expect("memory can be written");
        support::assert_same("block groups", &ours, &walk::theirs(&[&image], dump.args)?);
        Ok::<(), Skip>(())
    });
}
