//! `buttery cp` out of images that want to write elsewhere, or that cannot be copied whole.

mod support;

use std::path::Path;

use buttery::{FileId, Filesystem};
use buttery_disk::dir::{Entry, entries, file_type};
use buttery_disk::extent::FILE_EXTENT_INLINE_START;
use buttery_disk::{Key, Node, edit, item};
use buttery_judge::golden::{self, Golden};
use support::program::{Run, buttery, inside};
use support::{damage, facts};

/// An entry of the directory `small`, which the image's tree is made to have.
struct Forged {
    /// The entry that is replaced, and what it is then called and leads to.
    old: &'static [u8],
    name: &'static [u8],
    target: &'static [u8],
    kind: u8,
}

fn id(fs: &Filesystem, path: &str) -> FileId {
    fs.resolve_no_follow(fs.root(), path.as_bytes()).expect("a file")
}

/// Forges entries of `small` and makes its symbolic link lead to `link` (as long as the old target).
fn forge(image: &Golden, forged: &[Forged], link: &[u8; 8]) {
    let fs = facts::open(&image.files, "").expect("the image");
    let dir = id(&fs, "/small");
    for f in forged {
        let path = format!("/small/{}", String::from_utf8_lossy(f.target));
        let target = id(&fs, &path);
        let index = index_of(&fs, dir, f.old);
        let key = Key::new(dir.ino, item::DIR_INDEX, index);
        let leaf = damage::leaf_with(&fs, dir.tree.0, key);
        damage::edit(&fs, &leaf, |bytes| {
            let slot = Node::new(bytes).search(&key).expect("the entry");
            let old = entries(Node::new(bytes).data(slot)).next().expect("an entry");
            let location = Key::new(target.ino, item::INODE_ITEM, 0);
            let new = Entry { location, kind: f.kind, name: f.name, ..old }.to_bytes();
            edit::delete_items(bytes, slot..slot + 1);
            edit::insert_item(bytes, slot, key, &new);
        });
    }
    let key = Key::new(id(&fs, "/small/symlink").ino, item::EXTENT_DATA, 0);
    damage::edit(&fs, &damage::leaf_with(&fs, dir.tree.0, key), |bytes| {
        let slot = Node::new(bytes).search(&key).expect("the link");
        edit::data_mut(bytes, slot)[FILE_EXTENT_INLINE_START..].copy_from_slice(link);
    });
}

fn index_of(fs: &Filesystem, dir: FileId, name: &[u8]) -> u64 {
    let entries = fs.entries(dir).expect("a directory");
    entries.iter().find(|e| e.name == name).expect("an entry").index
}

fn copy(image: &Golden, to: &Path) -> Run {
    let spec = inside(&image.files[0], "/");
    let words = ["cp".as_ref(), "-r".as_ref(), "--keep-going".as_ref(), spec.as_os_str(), to.as_os_str()];
    // without root, devices cannot be made
    buttery(&words)
}

#[test]
fn a_link_and_a_file_of_the_same_name_write_nothing_outside() {
    let image = golden::open("csum-crc32c").expect("a golden image");
    let forged = [
        Forged { old: b"noise", name: b"noise", target: b"symlink", kind: file_type::SYMLINK },
        Forged { old: b"symlink", name: b"noise", target: b"noise", kind: file_type::REG },
    ];
    forge(&image, &forged, b"../../vf");
    let victim = image.dir.join("vf");
    std::fs::write(&victim, "precious").expect("a file");
    copy(&image, &image.dir.join("out"));
    assert_eq!(std::fs::read(&victim).expect("a file"), b"precious");
}

#[test]
fn a_link_and_a_directory_of_the_same_name_write_nothing_outside() {
    let image = golden::open("csum-crc32c").expect("a golden image");
    let forged = [
        Forged { old: b"sub", name: b"sub", target: b"symlink", kind: file_type::SYMLINK },
        Forged { old: b"symlink", name: b"sub", target: b"sub", kind: file_type::DIR },
    ];
    forge(&image, &forged, b"../../vd");
    let victim = image.dir.join("vd");
    std::fs::create_dir(&victim).expect("a folder");
    copy(&image, &image.dir.join("out"));
    assert_eq!(std::fs::read_dir(&victim).expect("a folder").count(), 0);
}

#[test]
fn a_name_with_a_slash_writes_nothing_outside() {
    for name in [b"symlink/x".as_slice(), b"../../vd/x", b"..", b".", b"a\0b"] {
        let image = golden::open("csum-crc32c").expect("a golden image");
        forge(&image, &[Forged { old: b"noise", name, target: b"noise", kind: file_type::REG }], b"../../vd");
        let victim = image.dir.join("vd");
        std::fs::create_dir(&victim).expect("a folder");
        let said = copy(&image, &image.dir.join("out")).stderr;
        assert!(said.contains("not a name that a file can have"), "{said}");
        assert_eq!(std::fs::read_dir(&victim).expect("a folder").count(), 0);
    }
}

#[test]
fn a_target_that_is_no_text_for_a_link_is_skipped() {
    let image = golden::open("csum-crc32c").expect("a golden image");
    forge(&image, &[], b"a\0/b/c/d");
    let out = image.dir.join("out");
    let said = copy(&image, &out).stderr;
    assert!(said.contains("/small/symlink: "), "{said}");
    assert!(out.join("small/sub/text").exists() && !out.join("small/symlink").exists());
}

#[test]
fn a_second_copy_replaces_the_first() {
    let image = golden::open("csum-crc32c").expect("a golden image");
    let (out, spec) = (image.dir.join("out"), inside(&image.files[0], "/small/sub"));
    std::fs::create_dir(&out).expect("a folder");
    for _ in 0..2 {
        buttery(&["cp".as_ref(), "-r".as_ref(), spec.as_os_str(), out.as_os_str()]).quiet();
        let text = std::fs::read(out.join("sub/text")).expect("a copy");
        assert_eq!(text.len(), 200_000);
        std::fs::write(out.join("sub/text"), "changed").expect("a file");
    }
    // The destination that the user names may be a link.
    let (real, link) = (image.dir.join("real"), image.dir.join("link"));
    std::os::unix::fs::symlink(&real, &link).expect("a link");
    std::fs::write(&real, "").expect("a file");
    let file = inside(&image.files[0], "/small/sub/text");
    buttery(&["cp".as_ref(), file.as_os_str(), link.as_os_str()]).quiet();
    assert_eq!(std::fs::read(&real).expect("a copy").len(), 200_000);
}

#[test]
fn a_directory_in_itself_is_entered_once() {
    let image = golden::open("csum-crc32c").expect("a golden image");
    forge(&image, &[Forged { old: b"noise", name: b"self", target: b"", kind: file_type::DIR }], b"sub/text");
    let said = buttery(&["ls".as_ref(), "-R".as_ref(), image.files[0].as_os_str()]);
    said.fails(&["buttery: /small/self: ", "linked twice"]);
    let out = image.dir.join("out");
    let said = copy(&image, &out).fails(&["could not be copied"]).stderr;
    assert!(said.contains("/small/self: ") && said.contains("linked twice"), "{said}");
    assert!(out.join("small/sub/text").exists());
}

#[test]
fn a_link_to_itself_ends() {
    let image = golden::open("csum-crc32c").expect("a golden image");
    forge(&image, &[], b"symlink/");
    let spec = inside(&image.files[0], "/small/symlink");
    buttery(&["cat".as_ref(), spec.as_os_str()])
        .fails(&["/small/symlink: too many levels of symbolic links"]);
}

#[test]
fn a_snapshot_with_two_nested_subvolumes_has_two_stand_ins() {
    // The snapshot `gone` of the commit before the last has two.
    let image = golden::open("subvolumes").expect("a golden image");
    let fs = facts::open(&image.files, "").expect("the image");
    damage::root_of_roots(&fs).places.iter().for_each(|(file, at)| damage::flip(file, at + 500, 1));
    drop(fs);
    let (spec, out) = (inside(&image.files[0], "/subvolumes/gone"), image.dir.join("out"));
    let rescue = "rescue=usebackuproot";
    let words = ["-o".as_ref(), rescue.as_ref(), spec.as_os_str()];
    let listed = buttery(&[&["ls".as_ref(), "-R".as_ref()], &words[..]].concat()).quiet().stdout;
    let listed = String::from_utf8(listed).expect("text");
    assert!(listed.contains("\n/subvolumes/gone/inner:\n\n/subvolumes/gone/within:\n"), "{listed}");
    buttery(&[&["cp".as_ref(), "-r".as_ref()], &words[..], &[out.as_os_str()]].concat()).quiet();
    assert!(out.join("inner").is_dir() && out.join("within").is_dir());
}

#[test]
fn an_extent_of_no_bytes_is_no_data() {
    let image = golden::open("csum-crc32c").expect("a golden image");
    let fs = facts::open(&image.files, "").expect("the image");
    let noise = id(&fs, "/small/noise");
    let key = Key::new(noise.ino, item::EXTENT_DATA, 0);
    damage::edit(&fs, &damage::leaf_with(&fs, noise.tree.0, key), |bytes| {
        let slot = Node::new(bytes).search(&key).expect("the extent");
        edit::data_mut(bytes, slot)[45..53].fill(0); // num_bytes
    });
    drop(fs);
    let out = image.dir.join("out");
    copy(&image, &out).sane().expect("an end");
    assert!(std::fs::read(out.join("small/noise")).expect("a copy") == [0; 10_000]);
}
