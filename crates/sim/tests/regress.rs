//! Faults that the random tests found, each as short as it gets.

use buttery::{Fallocate, FileId, Filesystem, NewNode, attr};
use buttery_device::Device;
use buttery_engine::file;
use buttery_engine::txn::Purpose;
use buttery_judge::check::btrfs_check_data;
use buttery_judge::{Need, TempDir, need};
use buttery_mkfs::MkfsOptions;
use buttery_sim::image;
use std::sync::Arc;

fn small() -> MkfsOptions {
    MkfsOptions { nodesize: 4096, discard: false, ..MkfsOptions::default() }
}

fn new() -> (Arc<dyn Device>, Filesystem) {
    let device = image::in_memory(256 << 20, &small());
    let fs = image::open(&device);
    (device, fs)
}

/// A file whose last sector holds `x` behind the file's end, as the kernel leaves it.
fn with_rest(fs: &Filesystem) -> FileId {
    let id = fs.create(fs.root(), b"file", NewNode::file(0o644)).expect("a file");
    fs.write(id, 0, &[b'x'; 4096]).expect("a write");
    let tree = fs.engine().tree(id.tree).expect("the tree");
    fs.engine()
        .change(2, Purpose::Change, |trans| {
            file::inode::update(trans, &tree, id.ino, |item| item.size = 17.into())
        })
        .expect("a smaller size");
    id
}

#[test]
fn what_lies_behind_the_end_is_not_seen_when_a_file_grows() {
    let (_device, fs) = new();
    let check = |id: FileId, size: usize| {
        let mut bytes = vec![7; size];
        assert_eq!(fs.read(id, 0, &mut bytes).expect("a read"), size);
        assert!(bytes[..17].iter().all(|&b| b == b'x') && bytes[17..4096].iter().all(|&b| b == 0));
        fs.unlink(fs.root(), b"file").expect("an unlink");
    };
    let id = with_rest(&fs);
    fs.truncate(id, 10_000).expect("a truncation");
    check(id, 10_000);
    let id = with_rest(&fs);
    fs.write(id, 8192, b"behind a hole").expect("a write");
    check(id, 8192 + 13);
    let id = with_rest(&fs);
    fs.write(id, 4096, &[0; 4096]).expect("a write");
    check(id, 8192);
}

#[test]
fn a_file_in_its_item_that_claims_to_be_huge_is_not_copied_at_once() {
    let (_device, fs) = new();
    let id = fs.create(fs.root(), b"small", NewNode::file(0o644)).expect("a file");
    fs.write(id, 0, b"in its item").expect("a write");
    let tree = fs.engine().tree(id.tree).expect("the tree");
    fs.engine()
        .change(2, Purpose::Change, |trans| {
            file::inode::update(trans, &tree, id.ino, |item| item.size = (1u64 << 50).into())
        })
        .expect("a larger size");
    let to = fs.create(fs.root(), b"copy", NewNode::file(0o644)).expect("a file");
    assert!(matches!(fs.clone_range(id, 0, to, 0, 0), Err(buttery::Error::Invalid)));
    assert!(matches!(fs.copy_range(id, 0, to, u64::MAX - 10, 100), Err(buttery::Error::FileTooBig)));
}

/// A file's first extent, shared from far behind in another, is dropped by a truncation.
#[test]
fn a_piece_from_far_behind_is_truncated() {
    let device = image::in_memory(256 << 20, &image::spread(0));
    let fs = image::open(&device);
    let [from, to] = ["from", "to"]
        .map(|name| fs.create(fs.root(), name.as_bytes(), NewNode::file(0o644)).expect("a file"));
    fs.write(from, 0, &[7; 256 << 10]).expect("data");
    fs.clone_range(from, 128 << 10, to, 0, 64 << 10).expect("a clone");
    fs.truncate(to, 4096).expect("truncate");
    fs.truncate(to, 0).expect("truncate");
    assert_eq!((fs.stat(to).expect("stat").size, fs.stat(to).expect("stat").nbytes), (0, 0));
    fs.truncate(from, 100_000).expect("truncate");
    fs.close().expect("close");
}

/// Two references of one extent whose hashes are the same stand behind each other; the second is found also after the first
/// went.
#[test]
fn references_that_collide_are_found_when_one_is_gone() {
    // the hashes of these two places are the same, whatever the subvolume and the inode
    const FAR: u64 = 0x105E_C76F_1000;
    for again in [false, true] {
        let device = image::in_memory(256 << 20, &image::spread(1));
        let fs = image::open(&device);
        let [src, many, two] = ["src", "many", "two"]
            .map(|name| fs.create(fs.root(), name.as_bytes(), NewNode::file(0o644)).expect("a file"));
        fs.write(src, 0, &[7; 4096]).expect("data");
        // until further ones are items of their own
        for n in 0..200 {
            fs.clone_range(src, 0, many, n << 20, 4096).expect("a clone");
        }
        fs.sync().expect("a commit");
        for place in [0, FAR] {
            fs.clone_range(src, 0, two, place, 4096).expect("a clone");
            fs.sync().expect("a commit");
        }
        fs.fallocate(two, Fallocate::PunchHole, 0, 4096, true).expect("a hole");
        fs.sync().expect("a commit");
        if again {
            fs.clone_range(src, 0, two, FAR, 4096).expect("the same again");
            fs.sync().expect("a commit");
        }
        fs.fallocate(two, Fallocate::PunchHole, FAR, 4096, true).expect("a hole");
        fs.sync().expect("a commit");
        fs.close().expect("close");
        if need(&[Need::Program("btrfs")]).is_some() {
            let dir = TempDir::new("collide").expect("a folder");
            image::dump(&*device, &dir.join("image"));
            btrfs_check_data(&dir.join("image")).unwrap_or_else(|e| panic!("{e}"));
        }
    }
}

/// A cache above was allowed to write when the file was opened; what it hands over later, in whole pages, counts.
#[test]
fn what_was_held_back_is_written_to_a_file_that_no_longer_changes() {
    let (_device, fs) = new();
    for flag in [attr::APPEND, attr::IMMUTABLE] {
        let id = fs.create(fs.root(), flag.to_string().as_bytes(), NewNode::file(0o644)).expect("a file");
        fs.write(id, 0, b"hello\n").expect("a write");
        fs.set_attr_flags(id, flag).expect("flags");
        assert!(matches!(fs.write(id, 0, b"jello\n"), Err(buttery::Error::NotPermitted)));
        fs.write_held_back(id, 0, b"hello\nworld\n").expect("what was held back");
        let mut seen = [0; 12];
        fs.read(id, 0, &mut seen).expect("a read");
        assert_eq!(&seen, b"hello\nworld\n");
    }
}
