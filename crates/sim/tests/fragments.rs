//! Free space in so many pieces that the free-space tree takes bitmaps, and in so few again that it gives them up;
//! the library and the kernel take turns.

use buttery::{Filesystem, NewNode};
use buttery_device::{Access, Device, FileDevice, Window};
use buttery_disk::chunk::{FREE_SPACE_USING_BITMAPS, FreeSpaceInfo, bg};
use buttery_disk::superblock::{OFFSETS, compat_ro};
use buttery_disk::zerocopy::{FromBytes, IntoBytes};
use buttery_disk::{Key, TreeId, item, objectid};
use buttery_engine::txn::Purpose;
use buttery_judge::check::{btrfs_check_data, kernel_scrub};
use buttery_judge::{Compare, KernelMount, Need, TempDir, compare, need, walk};
use buttery_sim::{facts, image};
use std::io::IoSlice;
use std::path::Path;

const FILES: usize = 4000;

/// How many block groups have bitmaps.
fn bitmaps(fs: &Filesystem) -> usize {
    let tree = fs.engine().tree(TreeId(objectid::FREE_SPACE_TREE)).expect("the tree");
    let view = tree.read(fs.engine().store());
    let mut cursor = view.seek(Key::MIN).expect("a cursor");
    let mut count = 0;
    while let Some((key, data)) = cursor.item() {
        if let (item::FREE_SPACE_INFO, Ok(info)) = (key.kind, FreeSpaceInfo::read_from_bytes(data)) {
            count += usize::from(info.flags.get() & FREE_SPACE_USING_BITMAPS != 0);
        }
        cursor.advance().expect("the next item");
    }
    count
}

fn name(n: usize) -> Vec<u8> {
    format!("file-{n}").into_bytes()
}

fn make(fs: &Filesystem, numbers: impl Iterator<Item = usize>) {
    for n in numbers {
        let file = fs.create(fs.root(), &name(n), NewNode::file(0o644)).expect("a file");
        fs.write(file, 0, &vec![n as u8; 4096 * (1 + n % 3)]).expect("a write");
    }
}

fn remove(fs: &Filesystem, numbers: impl Iterator<Item = usize>) {
    for n in numbers {
        fs.unlink(fs.root(), &name(n)).expect("an unlink");
    }
}

fn close(fs: Filesystem, file: &Path, when: &str) -> Filesystem {
    fs.close().expect("close");
    btrfs_check_data(file).unwrap_or_else(|e| panic!("{when}: {e}"));
    Filesystem::open_writable(&[file], &image::quiet()).expect("open")
}

#[test]
fn bitmaps_come_and_go() {
    let Some(()) = need(&[Need::KernelBtrfs]) else { return };
    for seed in 0..3 {
        let dir = TempDir::new("fragments").expect("a folder");
        let file = dir.join("image");
        image::in_file(&file, 1 << 30, &image::spread(seed));
        let fs = Filesystem::open_writable(&[&file], &image::quiet()).expect("open");
        make(&fs, 0..FILES);
        let fs = close(fs, &file, "filled");
        remove(&fs, (0..FILES).step_by(2));
        let fs = close(fs, &file, "every other file removed");
        let most = bitmaps(&fs);
        assert!(most > 0, "seed {seed}: no bitmaps");
        make(&fs, (0..FILES).step_by(4));
        remove(&fs, (1..FILES).step_by(8));
        let fs = close(fs, &file, "some made, some removed");
        let ours = facts::walk(&fs).expect("a walk");
        fs.close().expect("close");

        let mount = KernelMount::one(&file, "").expect("a mount");
        compare(&ours, &walk(mount.path()).expect("a walk"), &Compare::default()).expect("the same");
        kernel_scrub(mount.path()).expect("no errors");
        for n in (3..FILES).step_by(8) {
            std::fs::remove_file(mount.path().join(format!("file-{n}"))).expect("an unlink");
        }
        for n in 0..500 {
            std::fs::write(mount.path().join(format!("kernel-{n}")), vec![1; 5000]).expect("a write");
        }
        mount.unmount().expect("an unmount");
        btrfs_check_data(&file).expect("the kernel goes on");

        let fs = Filesystem::open_writable(&[&file], &image::quiet()).expect("open");
        let left: Vec<Vec<u8>> = fs.entries(fs.root()).expect("a list").into_iter().map(|e| e.name).collect();
        for (n, name) in left.iter().enumerate() {
            fs.unlink(fs.root(), name).expect("an unlink");
            if n % 700 == 0 {
                fs.sync().expect("a commit");
            }
        }
        let fs = close(fs, &file, "emptied");
        assert!(bitmaps(&fs) < most, "seed {seed}: bitmaps stay");
    }
}

/// Leaves a free-space tree that says something wrong of the data groups, and a superblock that says so.
fn invalidate(file: &Path) {
    let fs = Filesystem::open_writable(&[file], &image::quiet()).expect("open");
    let engine = fs.engine();
    let tree = engine.tree(TreeId(objectid::FREE_SPACE_TREE)).expect("the tree");
    let keys = {
        let view = tree.read(engine.store());
        let mut cursor = view.seek(Key::MIN).expect("a cursor");
        let mut keys = Vec::new();
        while let Some(key) = cursor.key() {
            let group = engine.volume().chunks().find(key.objectid).expect("a chunk");
            if group.kind & bg::DATA != 0 && key.kind != item::FREE_SPACE_INFO {
                keys.push(key);
            }
            cursor.advance().expect("the next item");
        }
        keys
    };
    engine
        .change(64, Purpose::Change, |trans| {
            let mut editor = tree.write(trans);
            for pair in keys.chunks(2).take(8) {
                editor.remove(pair[0])?;
            }
            editor.insert(Key::new(12345 << 40, item::FREE_SPACE_EXTENT, 4096), &[])
        })
        .expect("a wrong tree");
    engine.commit().expect("a commit");
    drop(fs);
    let fs = Filesystem::open(&[file], &image::quiet()).expect("open");
    let mut sb = fs.engine().superblock().clone();
    drop(fs);
    sb.compat_ro_flags = (sb.compat_ro_flags.get() & !compat_ro::FREE_SPACE_TREE_VALID).into();
    let device = FileDevice::open(file, Access::Exclusive, Window::default()).expect("the image");
    for offset in OFFSETS.into_iter().filter(|o| o + 4096 <= device.len_bytes()) {
        sb.bytenr = offset.into();
        sb.csum =
            buttery_codec::CsumType::from_disk(sb.csum_type.get()).expect("known").sum(&sb.as_bytes()[32..]);
        device.write_at(offset, &[IoSlice::new(sb.as_bytes())]).expect("a write");
    }
}

#[test]
fn a_tree_that_is_not_valid_is_made_anew() {
    let Some(()) = need(&[Need::KernelBtrfs]) else { return };
    for seed in 0..6 {
        let dir = TempDir::new("rebuild").expect("a folder");
        let file = dir.join("image");
        image::in_file(&file, 1 << 30, &image::spread(seed));
        let fs = Filesystem::open_writable(&[&file], &image::quiet()).expect("open");
        make(&fs, 0..FILES);
        if seed < 3 {
            remove(&fs, (0..FILES).step_by(2));
        }
        let fs = close(fs, &file, "filled");
        let (ours, most) = (facts::walk(&fs).expect("a walk"), bitmaps(&fs));
        assert_eq!(most > 0, seed < 3, "seed {seed}");
        fs.close().expect("close");
        invalidate(&file);

        let read_only = Filesystem::open(&[&file], &image::quiet()).expect("open");
        compare(&ours, &facts::walk(&read_only).expect("a walk"), &Compare::default()).expect("the same");
        drop(read_only);
        let fs = Filesystem::open_writable(&[&file], &image::quiet()).expect("open");
        assert_eq!(bitmaps(&fs), most, "seed {seed}");
        let fs = close(fs, &file, "made anew");
        make(&fs, FILES..FILES + 100);
        remove(&fs, (1..FILES).step_by(2));
        close(fs, &file, "and worked with").close().expect("close");
        let mount = KernelMount::one(&file, "").expect("a mount");
        std::fs::write(mount.path().join("kernel"), vec![1; 5000]).expect("a write");
        mount.unmount_without_complaints().expect("an unmount");
        btrfs_check_data(&file).expect("the kernel goes on");
    }
}
