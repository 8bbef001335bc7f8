//! Images that are cut off, damaged in one place, or no btrfs at all: what is said, what can be read all the same.
//!
//! No root and no kernel is needed: the golden images are what is damaged.

mod support;

use std::ffi::OsString;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use buttery_disk::superblock::{Superblock, compat_ro, incompat};
use buttery_disk::zerocopy::IntoBytes;
use buttery_disk::{TreeId, objectid};
use buttery_judge::golden::{self, Golden};
use buttery_judge::{Fact, Need, guard, need};
use support::program::{Run, buttery, inside};
use support::untouched::untouched;
use support::{damage, facts};

fn golden(name: &str) -> Golden {
    golden::open(name).expect("a golden image")
}

fn ls(file: &Path, options: &[&str]) -> Run {
    let mut line: Vec<OsString> = vec!["ls".into(), "-R".into(), "-l".into()];
    line.extend(options.iter().map(OsString::from));
    line.push(file.into());
    untouched(&[file.to_path_buf()], || buttery(&line))
}

fn cat(image: &Path, path: &str, options: &[&str]) -> Run {
    let mut line: Vec<OsString> = vec!["cat".into()];
    line.extend(options.iter().map(OsString::from));
    line.push(inside(image, path));
    buttery(&line)
}

#[test]
fn a_truncated_image_gives_what_is_left_and_nothing_wrong() {
    let image = golden("csum-crc32c");
    let file = &image.files[0];
    let whole = facts::of_image(&image.files, "").expect("a walk");
    let device = damage::open(file);
    let (mut full, mut none) = (0, 0);
    let steps = (1..=32).rev().map(|n| n << 22);
    let near: [u64; 8] =
        [(64 << 20) + 4096, (64 << 20) + 1, 1 << 20, (64 << 10) + 4096, (64 << 10) + 4095, 64 << 10, 1, 0];
    for len in steps.chain(near).filter(|&len| len <= 128 << 20) {
        device.set_len(len).expect("a length");
        match what_is_left(file, &whole) {
            Ok(0) => full += 1,
            Ok(_) => {}
            Err(error) => {
                assert!(error.contains(&file.display().to_string()), "{len}: {error}");
                none += 1;
            }
        }
        let run = ls(file, &[]);
        run.sane().unwrap_or_else(|e| panic!("{len}: {e}"));
    }
    assert!(full > 3 && none > 3, "whole {full} times, refused {none} times");
}

/// How many files cannot be read; all others are right.
fn what_is_left(file: &Path, whole: &[Fact]) -> Result<usize, String> {
    let fs = facts::open(&[file.to_path_buf()], "")?;
    let mut lost = 0;
    for (path, id) in facts::paths(&fs)? {
        match facts::fact(&fs, id, path) {
            Ok(fact) => assert!(whole.contains(&fact), "{fact}"),
            Err(error) => {
                assert!(error.contains(" at ") && error.contains("beyond the end"), "{error}");
                lost += 1;
            }
        }
    }
    Ok(lost)
}

#[test]
fn each_copy_of_the_superblock_bad_in_turn() {
    let image = golden("csum-xxhash");
    let file = &image.files[0];
    damage::break_super(file, 0);
    let parts =
        ["superblock at 65536: its xxhash64 checksum is wrong", "copy 1 at 67108864 is good, generation "];
    ls(file, &[])
        .fails(&parts)
        .fails(&["try --super 1", "copy 2 at 274877906944: the device ends at 134217728"]);
    ls(file, &["--super", "1"]).quiet();
    let facts = {
        let options = buttery::Options { super_copy: 1, ..Default::default() };
        facts::walk(&buttery::Filesystem::open(&[file.as_path()], &options).expect("the image"))
            .expect("a walk")
    };
    buttery_judge::render::compare_listing(&image.listing, &facts).unwrap_or_else(|e| panic!("{e}"));

    damage::break_super(file, 1);
    let said =
        ls(file, &[]).fails(&["superblock at 65536: ", "copy 1 at 67108864: its xxhash64 checksum is wrong"]);
    assert!(!said.stderr.contains("try --super"), "{}", said.stderr);

    damage::break_super(file, 0); // and good again
    ls(file, &[]).quiet();
    ls(file, &["--super", "1"]).fails(&[
        "superblock at 67108864",
        "copy 0 at 65536 is good",
        "try --super 0",
    ]);
    ls(file, &["--super", "2"]).fails(&["superblock at 274877906944: the device ends at 134217728"]);
}

/// Edits the primary superblock and makes its checksum right.
fn edit_super(file: &Path, edit: impl FnOnce(&mut Superblock)) {
    let device = damage::open(file);
    let mut bytes = vec![0; 4096];
    device.read_exact_at(&mut bytes, damage::SUPERS[0]).expect("a superblock");
    let mut sb = Superblock::parse(&bytes).expect("a superblock");
    edit(&mut sb);
    let mut bytes = sb.as_bytes().to_vec();
    damage::resum(buttery_codec::CsumType::Crc32c, &mut bytes);
    device.write_all_at(&bytes, damage::SUPERS[0]).expect("a write");
}

#[test]
fn a_superblock_that_asks_for_more_than_is_known() {
    type Edit = fn(&mut Superblock);
    let refused: [(Edit, &[&str]); 7] = [
        (
            |sb| sb.incompat_flags = (sb.incompat_flags.get() | 1 << 40).into(),
            &["incompat", "unknown bits 0x10000000000"],
        ),
        (|sb| sb.incompat_flags = (sb.incompat_flags.get() | incompat::ZONED).into(), &["incompat", "ZONED"]),
        (|sb| sb.csum_type = 9.into(), &["checksum type 9 is not supported"]),
        (|sb| sb.sectorsize = 8192.into(), &["sectorsize 8192 is not supported"]),
        (|sb| sb.nodesize = 12345.into(), &["nodesize 12345"]),
        (|sb| sb.bytenr = 4096.into(), &["bytenr must be 65536, found 4096"]),
        (|sb| sb.magic = buttery_disk::superblock::MAGIC_UNFINISHED.into(), &["was not finished"]),
    ];
    for (edit, parts) in refused {
        let image = golden("csum-crc32c");
        edit_super(&image.files[0], edit);
        ls(&image.files[0], &[]).fails(&["superblock at 65536: ", "copy 1 at 67108864 is good"]).fails(parts);
    }
    // What only a writer must know is no bar.
    let image = golden("csum-crc32c");
    edit_super(&image.files[0], |sb| {
        sb.compat_ro_flags = (sb.compat_ro_flags.get() | 1 << 50 | compat_ro::VERITY).into();
        sb.compat_flags = (1 << 60).into();
    });
    ls(&image.files[0], &[]).quiet();
}

#[test]
fn what_is_no_btrfs_is_told_as_such() {
    let dir = guard::TempDir::new("foreign").expect("a folder");
    let file = |name: &str, bytes: &[u8]| {
        std::fs::write(dir.join(name), bytes).expect("a file");
        dir.join(name)
    };
    let noise = buttery_judge::workload::Data::new(buttery_judge::workload::Fill::Random, 1, 1 << 20).bytes();
    let text = "not an image\n".repeat(20_000);
    for (foreign, part) in [
        (file("noise", &noise), "magic must be _BHRfS_M"),
        (file("text", text.as_bytes()), "magic must be _BHRfS_M"),
        (file("zeros", &vec![0; 1 << 20]), "there is no btrfs here"),
        (file("empty", b""), "the device ends at 0"),
        (file("short", b"short"), "the device ends at 5"),
        (dir.path().to_path_buf(), "neither a file nor a block device"),
        ("/dev/null".into(), "neither a file nor a block device"),
        (dir.join("missing"), "No such file or directory"),
    ] {
        let name = foreign.display().to_string();
        let said = buttery(&["ls".as_ref(), foreign.as_os_str()]).fails(&[&name, part]).stderr;
        assert!(said.matches(&name).count() == 1, "{said}");
    }
}

#[test]
fn an_ext4_image_is_told_as_such() {
    let Some(()) = need(&[Need::Program("mkfs.ext4")]) else { return };
    let dir = guard::TempDir::new("ext4").expect("a folder");
    let file = dir.join("ext4.img");
    std::fs::File::create(&file).expect("a file").set_len(128 << 20).expect("a length");
    let mkfs = buttery_judge::oracle::program("mkfs.ext4").expect("the program");
    guard::run(std::process::Command::new(mkfs).arg("-q").arg(&file)).expect("mkfs.ext4");
    ls(&file, &[]).fails(&["superblock at 65536: magic must be _BHRfS_M"]);
}

#[test]
fn a_partition_in_a_disk_image() {
    let image = golden("csum-sha256");
    let disk = image.dir.join("disk.img");
    let out = std::fs::File::create(&disk).expect("a file");
    let size = 128u64 << 20;
    out.set_len((5 << 20) + size + (3 << 20)).expect("a length");
    out.write_all_at(&[0xEE; 4096], 0).expect("a write");
    copy_into(&image.files[0], &out, 5 << 20);
    ls(&disk, &[]).fails(&["superblock at 65536: magic"]);
    let whole = ls(&image.files[0], &[]).quiet().stdout;
    for options in ["offset=5242880", "offset=5M,sizelimit=128M", "offset=5MiB,sizelimit=0"] {
        assert_eq!(ls(&disk, &["-o", options]).quiet().stdout, whole, "{options}");
        let found = facts::of_image(std::slice::from_ref(&disk), options).expect("a walk");
        buttery_judge::render::compare_listing(&image.listing, &found).unwrap_or_else(|e| panic!("{e}"));
    }
    ls(&disk, &["-o", "offset=6M"]).fails(&["superblock at 65536: magic"]);
    ls(&disk, &["-o", "offset=1T"]).fails(&["offset= lies beyond the end of the file"]);
    ls(&disk, &["-o", "offset=5M,sizelimit=64K"]).fails(&["the device ends at 65536, before this copy"]);
    ls(&disk, &["-o", "offset=5M,sizelimit=20M"]).fails(&["beyond the end of the device"]);
}

fn copy_into(from: &Path, to: &std::fs::File, offset: u64) {
    let (input, mut at) = (damage::open(from), 0);
    let mut buffer = vec![0; 1 << 20];
    while at < input.metadata().expect("an image").len() {
        input.read_exact_at(&mut buffer, at).expect("a read");
        if buffer.iter().any(|&b| b != 0) {
            to.write_all_at(&buffer, offset + at).expect("a write");
        }
        at += buffer.len() as u64;
    }
}

#[test]
fn a_bad_data_block_fails_one_file_and_no_other() {
    for (name, csum) in [
        ("csum-crc32c", "crc32c"),
        ("csum-xxhash", "xxhash64"),
        ("csum-sha256", "sha256"),
        ("csum-blake2", "blake2b"),
    ] {
        let image = golden(name);
        let file = &image.files[0];
        let whole = cat(file, "/small/noise", &[]).quiet().stdout;
        let place = damage::find(file, &whole[4096..8192])[0];
        damage::flip(file, place + 5, 1);
        let rule = format!("{} at {place}: its {csum} data checksum is wrong", file.display());
        cat(file, "/small/noise", &[]).fails(&["/small/noise: ", "no good copy", &rule]);
        copies_all_but(&image, &["small/noise"], &rule);

        let mut changed = whole.clone();
        changed[4096 + 5] = !changed[4096 + 5];
        for options in ["rescue=ignoredatacsums", "rescue=idatacsums", "rescue=all"] {
            assert_eq!(cat(file, "/small/noise", &["-o", options]).quiet().stdout, changed);
        }
    }
}

/// `cp --keep-going` copies everything but these, names each with the reason, and ends with 1.
fn copies_all_but(image: &Golden, lost: &[&str], rule: &str) {
    let out = image.dir.join("out");
    let line = |words: &[&str]| -> Vec<OsString> {
        let mut line: Vec<OsString> = words.iter().map(OsString::from).collect();
        line.extend(image.files[1..].iter().flat_map(|f| ["-d".into(), f.clone().into()]));
        line.extend([inside(&image.files[0], "/small"), out.clone().into()]);
        line
    };
    let count = format!("{} could not be copied", lost.len());
    let said = buttery(&line(&["cp", "-r", "--keep-going"])).fails(&[rule, &count]).stderr;
    for name in lost {
        assert!(said.contains(&format!("buttery: /{name}: ")), "{said}");
    }
    let names = ["empty", "inline", "noise", "sub/linked", "sub/text", "symlink"];
    for name in names {
        let there = out.join(name).symlink_metadata().is_ok();
        assert_eq!(there, !lost.contains(&format!("small/{name}").as_str()), "{name}");
    }
    std::fs::remove_dir_all(&out).expect("the copy");
    // Without --keep-going the first failure ends it.
    buttery(&line(&["cp", "-r"])).fails(&["/small/"]);
}

#[test]
fn both_copies_of_data_bad_is_an_error_that_names_both() {
    for name in ["dup", "raid1"] {
        let image = golden(name);
        let devices: Vec<&str> =
            if name == "raid1" { vec!["-d", image.files[1].to_str().expect("text")] } else { vec![] };
        let file = &image.files[0];
        let whole = cat(file, "/small/noise", &devices).quiet().stdout;
        let found = |f: &PathBuf| {
            damage::find(f, &whole[..4096]).into_iter().map(|at| (f.clone(), at)).collect::<Vec<_>>()
        };
        let places: Vec<(PathBuf, u64)> = image.files.iter().flat_map(found).collect();
        assert_eq!(places.len(), 2, "{name}: {places:?}");
        damage::flip(&places[0].0, places[0].1, 1);
        assert_eq!(cat(file, "/small/noise", &devices).quiet().stdout, whole);
        damage::flip(&places[1].0, places[1].1 + 4095, 1);
        let rules = places
            .iter()
            .map(|(f, at)| format!("{} at {at}: its crc32c data checksum is wrong", f.display()));
        let rules: Vec<String> = rules.collect();
        cat(file, "/small/noise", &devices).fails(&[&rules[0], &rules[1]]);
        copies_all_but(&image, &["small/noise"], &rules[0]);
        damage::flip(&places[0].0, places[0].1, 1);
        assert_eq!(cat(file, "/small/noise", &devices).quiet().stdout, whole);
    }
}

#[test]
fn a_bad_tree_block_is_read_from_its_copy_or_named() {
    let image = golden("nodesize-4k");
    let file = &image.files[0];
    let fs = facts::open(&image.files, "").expect("the image");
    let blocks = damage::tree_blocks(&fs);
    assert!(blocks.iter().all(|b| b.places.len() == 2), "metadata are there twice");
    drop(fs);
    blocks.iter().for_each(|b| damage::flip(file, b.places[0].1 + 200, 1));
    let found = facts::of_image(&image.files, "").expect("a walk");
    buttery_judge::render::compare_listing(&image.listing, &found).unwrap_or_else(|e| panic!("{e}"));

    let leaves: Vec<_> = blocks.iter().filter(|b| b.owner == 5 && b.level == 0).collect();
    assert!(leaves.len() > 20);
    let victim = leaves[leaves.len() / 2];
    damage::flip(file, victim.places[1].1 + 300, 1);
    let parts =
        victim.places.iter().map(|(f, at)| format!("{} at {at}: its crc32c checksum is wrong", f.display()));
    let parts: Vec<String> = parts.collect();
    let block = format!("block {}: no good copy", victim.bytenr);
    let run = ls(file, &[]).fails(&[&block, &parts[0], &parts[1]]);
    assert!(run.stdout.len() > 1000, "the rest is listed");
}

#[test]
fn backup_roots_are_suggested_and_used() {
    let image = golden("subvolumes");
    let file = &image.files[0];
    let fs = facts::open(&image.files, "").expect("the image");
    let root = damage::root_of_roots(&fs);
    drop(fs);
    ls(file, &["-o", "rescue=usebackuproot"]).quiet();
    root.places.iter().for_each(|(f, at)| damage::flip(f, at + 500, 1));
    let block = format!("block {}", root.bytenr);
    ls(file, &[]).fails(&[&block, &root.places[0].1.to_string(), "try -o rescue=usebackuproot"]);
    let run = ls(file, &["-o", "rescue=usebackuproot"]).ok();
    assert!(String::from_utf8_lossy(&run.stdout).contains("/subvolumes/outer:"), "{}", run.stderr);
    ls(file, &["-o", "rescue=all"]).ok();

    // Zeros where every backup was: there is nothing to be had from them, and it is said.
    let device = damage::open(file);
    let mut bytes = vec![0; 4096];
    device.read_exact_at(&mut bytes, damage::SUPERS[0]).expect("a superblock");
    let sb = Superblock::parse(&bytes).expect("a superblock");
    let fs_places = sb.super_roots.iter().map(|b| b.tree_root.get()).filter(|&b| b != 0 && b != root.bytenr);
    let (from, to) =
        (root.places[0].1 as i64 - root.bytenr as i64, root.places[1].1 as i64 - root.bytenr as i64);
    for bytenr in fs_places {
        [from, to].iter().for_each(|shift| damage::flip(file, (bytenr as i64 + shift) as u64 + 500, 1));
    }
    ls(file, &["-o", "rescue=usebackuproot"]).fails(&["none of the backup roots can be read either"]);
}

#[test]
fn a_backup_root_is_one_whose_trees_can_be_read() {
    let image = golden("subvolumes");
    let root = |options: &str| {
        let fs = facts::open(&image.files, options).expect("the image");
        fs.engine().root_tree().root().bytenr
    };
    let (main, backup) = (root(""), "rescue=usebackuproot");
    assert_eq!(root(backup), main, "a sound file system needs none");
    let fs = facts::open(&image.files, "").expect("the image");
    let extents = fs.engine().tree(TreeId(objectid::EXTENT_TREE)).expect("the extent tree").root().bytenr;
    let places = damage::places(&fs, extents);
    drop(fs);
    places.iter().for_each(|(f, at)| damage::flip(f, at + 500, 1));
    assert_ne!(root(backup), main, "the newest leads to a tree that cannot be read");
    assert_eq!(root("rescue=usebackuproot:ignorebadroots"), main, "reading files does not need it");
    ls(&image.files[0], &["-o", backup]).quiet();
}

#[test]
fn options_that_are_not_known_are_refused_by_name() {
    let image = golden("empty");
    for (options, part) in [
        ("bogus", "unknown option bogus"),
        ("rescue=bogus", "unknown option rescue=bogus"),
        ("offset=x", "option offset: x is not a size"),
        ("subvolid=-1", "option subvolid"),
    ] {
        ls(&image.files[0], &["-o", options]).fails(&[part]);
    }
    for options in ["ro", "noatime,ssd,discard=async", "rescue=nologreplay", "degraded", "cache=1M"] {
        ls(&image.files[0], &["-o", options]).quiet();
    }
}
