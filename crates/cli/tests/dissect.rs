//! The images of dissect.btrfs, another reader: every profile, compression, subvolumes, holes, with the contents that
//! its own tests know of. The parity profiles are refused.

mod support;

use std::path::PathBuf;

use buttery::{FileId, Filesystem, Kind};
use buttery_judge::{Need, TempDir, corpus, need, oracle};
use support::facts;
use support::program::{args, buttery};
use support::untouched::untouched;

fn needs() -> Option<()> {
    need(&[Need::Corpus(oracle::DISSECT_IMAGES), Need::Program("gzip")])
}

/// The devices of one file system, unpacked.
fn unpack(name: &str) -> (TempDir, Vec<PathBuf>) {
    let dir = TempDir::new("dissect").expect("a folder");
    let mut files = Vec::new();
    for packed in corpus::dissect_images() {
        let file = packed.file_name().expect("a name").to_string_lossy().into_owned();
        let stem = file.strip_suffix(".bin.gz").expect("the ending");
        let device = |rest: &str| rest.strip_prefix('-').is_some_and(|n| n.parse::<u32>().is_ok());
        if stem.strip_prefix(name).is_some_and(|rest| rest.is_empty() || device(rest)) {
            let to = dir.join(stem);
            corpus::unpack(&packed, &to).expect("an image");
            files.push(to);
        }
    }
    assert!(!files.is_empty(), "{name}");
    (dir, files)
}

fn open(files: &[PathBuf], options: &str) -> Filesystem {
    facts::open(files, options).unwrap_or_else(|e| panic!("{files:?}: {e}"))
}

fn id(fs: &Filesystem, path: &str) -> FileId {
    fs.resolve_no_follow(fs.root(), path.as_bytes()).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn read(fs: &Filesystem, path: &str) -> Vec<u8> {
    let id = id(fs, path);
    let mut bytes = vec![0; fs.stat(id).expect("a file").size as usize];
    assert_eq!(fs.read(id, 0, &mut bytes).unwrap_or_else(|e| panic!("{path}: {e}")), bytes.len());
    bytes
}

/// What most of the images hold.
fn holds_the_test_data(fs: &Filesystem) {
    let dir = fs.stat(id(fs, "/path")).expect("a directory");
    assert_eq!((dir.kind(), dir.size, dir.uid, dir.gid), (Kind::Directory, 4, 1000, 1000));
    assert_eq!(read(fs, "/path/to/a/file.txt"), b"file in dir\n");
    assert_eq!(read(fs, "/small.txt"), b"small file content goes here\n");
    assert!(read(fs, "/large.txt") == repeat(b"a", 5_242_880, b"\n"));
    assert_eq!(fs.read_link(id(fs, "/link.txt")).expect("a link"), b"path/to/a/file.txt");
    facts::walk(fs).expect("everything can be read");
}

fn repeat(unit: &[u8], times: usize, end: &[u8]) -> Vec<u8> {
    [unit.repeat(times), end.to_vec()].concat()
}

#[test]
fn one_device() {
    let Some(()) = needs() else { return };
    let (_dir, files) = unpack("btrfs-default");
    untouched(&files, || {
        let fs = open(&files, "");
        assert_eq!(fs.engine().superblock().label(), b"btrfs-default");
        let names: Vec<Vec<u8>> =
            fs.entries(fs.root()).expect("a directory").into_iter().map(|e| e.name).collect();
        assert_eq!(names, [&b"path"[..], b"link.txt", b"small.txt", b"large.txt"]);
        holds_the_test_data(&fs);
        let stat = fs.stat(id(&fs, "/path")).expect("a directory");
        assert_eq!(stat.mode, 0o40755);
        assert_eq!((stat.atime.sec, stat.mtime.sec, stat.otime.sec), (1_687_921_456, 1_687_921_452, 0));
    });
}

#[test]
fn subvolumes() {
    let Some(()) = needs() else { return };
    let (_dir, files) = unpack("btrfs-subvolume");
    let fs = open(&files, "");
    holds_the_test_data(&fs);
    let names: Vec<Vec<u8>> =
        fs.entries(id(&fs, "/subvol")).expect("a directory").into_iter().map(|e| e.name).collect();
    assert_eq!(names, [&b"cross-volume-link.txt"[..], b"small.txt", b"large.txt", b"some"]);
    assert_eq!(read(&fs, "/subvol/some/more/dirs/empty.txt"), b"");
    assert_eq!(read(&fs, "/subvol/small.txt"), b"file in subvolume\n");
    assert!(read(&fs, "/subvol/large.txt") == repeat(b"b", 5_242_880, b"\n"));
    let link = fs.resolve(fs.root(), b"/subvol/cross-volume-link.txt").expect("what the link leads to");
    assert_eq!(link, id(&fs, "/path/to/a/file.txt"));

    let (_dir, files) = unpack("btrfs-subvolume-nested");
    let mut list: Vec<(u64, String)> = open(&files, "")
        .subvolumes()
        .expect("a list")
        .iter()
        .map(|s| (s.id.0, path_of(&files, s.id.0)))
        .collect();
    list.sort();
    let expected = [(5, ""), (256, "dir/volume"), (257, "default"), (258, "default/volume")];
    assert_eq!(list, expected.map(|(id, path)| (id, path.to_string())));

    let (_dir, files) = unpack("btrfs-subvolume-snapshot");
    holds_the_test_data(&open(&files, ""));

    let (_dir, files) = unpack("btrfs-subvolume-custom-default");
    let fs = open(&files, "");
    assert_eq!(fs.engine().superblock().label(), b"btrfs-subvolume-custom-default");
    assert_ne!(fs.root().tree.0, 5);
    facts::walk(&fs).expect("everything can be read");
    holds_the_test_data(&open(&files, "subvolid=5"));
}

/// The path of a subvolume's top from the top level down, by its parents.
fn path_of(files: &[PathBuf], id: u64) -> String {
    let fs = open(files, "subvolid=5");
    let mut at = FileId::top_of(buttery::TreeId(id));
    let mut names = Vec::new();
    while at != fs.root() {
        let parent = fs.parent(at).expect("a parent");
        let entries = fs.entries(parent).expect("a directory");
        let entry = entries.into_iter().find(|e| fs.follow(parent, &e.name, e.target).expect("a file") == at);
        names.push(String::from_utf8(entry.expect("an entry").name).expect("text"));
        at = parent;
    }
    names.reverse();
    names.join("/")
}

#[test]
fn compression() {
    let Some(()) = needs() else { return };
    let (_dir, files) = unpack("btrfs-compression");
    let fs = open(&files, "");
    for method in ["zlib", "lzo", "zstd"] {
        assert!(
            read(&fs, &format!("/{method}.txt")) == repeat(method.as_bytes(), 5 << 20, b"\n"),
            "{method}"
        );
        assert!(
            read(&fs, &format!("/{method}_inline.txt")) == repeat(method.as_bytes(), 256, b"\n"),
            "{method}"
        );
    }
    let sum = buttery_codec::CsumType::Sha256.sum(&read(&fs, "/zstd_lorem_ipsum.txt"));
    let hex: String = sum.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, "ac9db55e11e804c58cb5ac8baded462cd3e7a570e4f3c980298ef2b417467b1d");
    facts::walk(&fs).expect("everything can be read");
}

#[test]
fn holes() {
    let Some(()) = needs() else { return };
    let (_dir, files) = unpack("btrfs-sparse");
    let fs = open(&files, "");
    let (ones, zeros) = ([1; 20 * 4096], [0; 20 * 4096]);
    let parts: [(&str, [&[u8]; 3], [u64; 2]); 3] = [
        ("sparse_start", [&zeros, &zeros, &ones], [40, 0]),
        ("sparse_hole", [&ones, &zeros, &ones], [0, 20]),
        ("sparse_end", [&ones, &zeros, &zeros], [0, 20]),
    ];
    for (name, parts, [data, hole]) in parts {
        assert!(read(&fs, name) == parts.concat(), "{name}");
        let id = id(&fs, name);
        assert_eq!(fs.seek(id, 0, true).expect("data"), data * 4096, "{name}");
        assert_eq!(fs.seek(id, 0, false).expect("a hole"), hole * 4096, "{name}");
    }
}

#[test]
fn every_profile() {
    let Some(()) = needs() else { return };
    for profile in ["dup", "raid0", "raid1", "raid1c3", "raid1c4", "raid10"] {
        let (_dir, files) = unpack(&format!("btrfs-{profile}"));
        assert!(files.len() > 1, "{profile}");
        untouched(&files, || holds_the_test_data(&open(&files, "")));
        let rest: &[PathBuf] = if profile == "dup" { &files[..files.len() - 1] } else { &files[1..] };
        partial(profile, rest);
    }
}

/// Without one device.
fn partial(profile: &str, rest: &[PathBuf]) {
    let refused =
        facts::open(rest, "").err().unwrap_or_else(|| panic!("{profile} opens with a device missing"));
    assert!(refused.contains("is missing"), "{profile}: {refused}");
    match (profile, facts::open(rest, "degraded")) {
        ("dup" | "raid0", Err(error)) => assert!(error.contains("missing"), "{profile}: {error}"),
        ("dup" | "raid0", Ok(fs)) => drop(facts::walk(&fs).expect_err("not everything is there")),
        (_, fs) => holds_the_test_data(&fs.unwrap_or_else(|e| panic!("{profile}: {e}"))),
    }
}

#[test]
fn parity_is_refused_by_name() {
    let Some(()) = needs() else { return };
    for profile in ["raid5", "raid6"] {
        let (_dir, files) = unpack(&format!("btrfs-{profile}"));
        let mut line = args(&["ls"], &files);
        line.push(files[0].clone().into());
        buttery(&line).fails(&["not supported", profile]);
    }
}

#[test]
fn the_kernel_reads_the_same() {
    let Some(()) = needs() else { return };
    let Some(()) = need(&[Need::KernelBtrfs]) else { return };
    for name in
        ["default", "subvolume-nested", "subvolume-snapshot", "compression", "sparse", "raid10", "raid1c3"]
    {
        let (_dir, files) = unpack(&format!("btrfs-{name}"));
        let theirs = buttery_judge::image::kernel_facts(&files).unwrap_or_else(|e| panic!("{name}: {e}"));
        let ours = facts::of_image(&files, "").unwrap_or_else(|e| panic!("{name}: {e}"));
        let what = buttery_judge::Compare::default();
        buttery_judge::compare(&theirs, &ours, &what).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}
