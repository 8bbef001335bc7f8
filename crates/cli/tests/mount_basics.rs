//! What a mounted file system must do, call by call; the image is judged at the end of each test.

mod support;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::process::Command;

use buttery_judge::workload::{self, Data, Fill, Op, shapes};
use buttery_judge::{Compare, TempDir, compare};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, SeekFrom as At, XattrFlags, makedev, mknodat, open,
    renameat_with,
};
use rustix::io::Errno;
use support::mount::{Mount, can_mount_and_judge, facts, judged};

fn new(label: &str) -> Option<(TempDir, Mount)> {
    can_mount_and_judge()?;
    let dir = TempDir::new(label).expect("a folder");
    let mount = Mount::create(&dir, "1G");
    Some((dir, mount))
}

fn write(path: &Path, data: &[u8]) {
    std::fs::write(path, data).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn everything_ordinary_comes_back_after_a_remount() {
    let Some((_dir, mount)) = new("ordinary") else { return };
    let mut ops = shapes::small(b"small");
    ops.extend(shapes::sizes(b"sizes"));
    ops.extend(shapes::colliding_names(b"collide"));
    ops.extend(shapes::long_names(b"names"));
    ops.extend(shapes::symlinks(b"symlinks", 16384));
    ops.extend(shapes::special_files(b"special"));
    ops.extend(shapes::attributes(b"attributes"));
    ops.extend(shapes::many_links(b"links", 16384));
    let report = workload::run(mount.path(), &ops).expect("the workload");
    assert_eq!(report.refused.len(), 0, "{:?}", report.refused);
    let image = mount.image.clone();
    let before = mount.judge();
    let mount = Mount::new(&image, "");
    compare(&before, &facts(mount.path()), &Compare::default()).unwrap_or_else(|e| panic!("{e}"));
    mount.umount();
}

#[test]
fn files_links_and_device_nodes() {
    let Some((_dir, mount)) = new("links") else { return };
    let at = |name: &str| mount.join(name);
    write(&at("file"), b"contents");
    assert_eq!(read(&at("file")), b"contents");
    std::fs::hard_link(at("file"), at("link")).expect("a link");
    let (file, link) = (at("file").metadata().expect("stat"), at("link").metadata().expect("stat"));
    assert_eq!((file.ino(), file.nlink(), link.nlink()), (link.ino(), 2, 2));
    std::fs::rename(at("file"), at("renamed")).expect("a rename");
    assert!(!at("file").exists());
    std::fs::remove_file(at("link")).expect("removed");
    assert_eq!(at("renamed").metadata().expect("stat").nlink(), 1);

    symlink("renamed", at("symlink")).expect("a symlink");
    assert_eq!(read(&at("symlink")), b"contents");
    let node = makedev(1, 3);
    mknodat(CWD, at("null"), FileType::CharacterDevice, Mode::from(0o666), node).expect("a node");
    assert_eq!(at("null").metadata().expect("stat").rdev(), node);
    File::options().write(true).open(at("null")).expect("/dev/null").write_all(b"gone").expect("a write");
    mknodat(CWD, at("fifo"), FileType::Fifo, Mode::from(0o600), 0).expect("a fifo");

    std::fs::create_dir_all(at("full/inside")).expect("folders");
    let refused = std::fs::remove_dir(at("full")).expect_err("it is not empty");
    assert_eq!(refused.raw_os_error(), Some(Errno::NOTEMPTY.raw_os_error()));
    std::fs::remove_dir_all(at("full")).expect("removed");
    mount.judge();
}

#[test]
fn extended_attributes() {
    let Some((_dir, mount)) = new("xattrs") else { return };
    let file = mount.join("file");
    write(&file, b"");
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&file, name, value, flags);
    set("user.a", b"1", XattrFlags::CREATE).expect("set");
    assert_eq!(set("user.a", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("user.b", b"2", XattrFlags::REPLACE), Err(Errno::NODATA));
    set("user.a", b"three", XattrFlags::REPLACE).expect("replaced");
    set("trusted.t", b"t", XattrFlags::empty()).expect("trusted");
    set("security.s", b"s", XattrFlags::empty()).expect("security");
    set("user.empty", b"", XattrFlags::empty()).expect("empty");
    let mut value = [0; 64];
    assert_eq!(rustix::fs::getxattr(&file, "user.a", &mut value[..]), Ok(5));
    assert_eq!(&value[..5], b"three");
    assert_eq!(rustix::fs::getxattr(&file, "user.a", &mut value[..3]), Err(Errno::RANGE));
    let length = rustix::fs::listxattr(&file, &mut value[..]).expect("a list");
    let mut names: Vec<&[u8]> = value[..length].split(|&b| b == 0).filter(|n| !n.is_empty()).collect();
    names.sort();
    assert_eq!(names, [&b"security.s"[..], b"trusted.t", b"user.a", b"user.empty"]);
    rustix::fs::removexattr(&file, "user.a").expect("removed");
    assert_eq!(rustix::fs::removexattr(&file, "user.a"), Err(Errno::NODATA));
    mount.judge();
}

#[test]
fn renames_that_exchange_and_that_do_not_replace() {
    let Some((_dir, mount)) = new("renames") else { return };
    let at = |name: &str| mount.join(name);
    write(&at("a"), b"a");
    std::fs::create_dir(at("d")).expect("a folder");
    write(&at("d/b"), b"b");
    let rename = |from: &str, to: &str, how| renameat_with(CWD, at(from), CWD, at(to), how);
    assert_eq!(rename("a", "d/b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    assert_eq!(rename("a", "missing", RenameFlags::EXCHANGE), Err(Errno::NOENT));
    rename("a", "d/b", RenameFlags::EXCHANGE).expect("exchanged");
    assert_eq!((read(&at("a")), read(&at("d/b"))), (b"b".to_vec(), b"a".to_vec()));
    rename("a", "c", RenameFlags::NOREPLACE).expect("renamed");
    write(&at("file"), b"f");
    rename("file", "d", RenameFlags::EXCHANGE).expect("a file and a directory");
    assert!(at("d").is_file() && at("file").is_dir());
    assert_eq!(read(&at("file/b")), b"a");
    let inside = rename("file", "file/below", RenameFlags::empty());
    assert_eq!(inside, Err(Errno::INVAL));
    assert_eq!(rename("c", "d", RenameFlags::WHITEOUT), Err(Errno::INVAL));
    std::fs::create_dir_all(at("x/y")).expect("folders");
    std::fs::create_dir(at("z")).expect("a folder");
    assert_eq!(rename("z", "x", RenameFlags::empty()), Err(Errno::NOTEMPTY));
    rename("x/y", "z", RenameFlags::empty()).expect("onto an empty directory");
    mount.judge();
}

#[test]
fn mapped_files() {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    const LEN: usize = 300_000;
    let Some((_dir, mount)) = new("mapped") else { return };
    let path = mount.join("mapped");
    let data = Data::new(Fill::Random, 1, LEN).bytes();
    write(&path, &data);
    let file = File::options().read(true).write(true).open(&path).expect("a file");
    let (kind, access) = (MapFlags::SHARED, ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: nothing else uses the mapping, which is unmapped below; the file is not cut while it is mapped.
    let map = unsafe {
        let at = mmap(std::ptr::null_mut(), LEN, access, kind, &file, 0).expect("a mapping");
        std::slice::from_raw_parts_mut(at.cast::<u8>(), LEN)
    };
    assert!(map[..] == data[..]);
    map[100_000..100_010].copy_from_slice(b"0123456789");
    map[LEN - 1] = b'e';
    // SAFETY: as above.
    unsafe { msync(map.as_mut_ptr().cast(), LEN, MsyncFlags::SYNC) }.expect("msync");
    assert_eq!(&read(&path)[100_000..100_010], b"0123456789");
    map[5] = b'x';
    // SAFETY: as above; `map` is not used again.
    unsafe { munmap(map.as_mut_ptr().cast(), LEN) }.expect("munmap");
    drop(file);
    assert_eq!((read(&path)[5], read(&path)[LEN - 1]), (b'x', b'e'));
    mount.judge();
}

#[test]
fn holes_are_found_and_read_as_zeros() {
    let Some((_dir, mount)) = new("holes") else { return };
    let path = mount.join("holes");
    let file = File::options().create_new(true).read(true).write(true).open(&path).expect("a file");
    file.write_all_at(&[1; 4096], 1 << 20).expect("a write");
    file.write_all_at(&[2; 10_000], 3 << 20).expect("a write");
    file.set_len(5 << 20).expect("longer");
    file.sync_all().expect("fsync");
    let seek = |at| rustix::fs::seek(&file, at);
    assert_eq!(seek(At::Data(0)), Ok(1 << 20));
    assert_eq!(seek(At::Hole(0)), Ok(0));
    assert_eq!(seek(At::Hole(1 << 20)), Ok((1 << 20) + 4096));
    assert_eq!(seek(At::Data((1 << 20) + 4096)), Ok(3 << 20));
    assert_eq!(seek(At::Hole(3 << 20)), Ok((3 << 20) + 12_288));
    assert_eq!(seek(At::Data(4 << 20)), Err(Errno::NXIO));
    assert_eq!(seek(At::Hole(5 << 20)), Err(Errno::NXIO));
    assert_eq!(file.metadata().expect("stat").blocks(), 32, "16 KiB of data");
    let mut buffer = vec![9; 8192];
    file.read_exact_at(&mut buffer, (3 << 20) - 4096).expect("a read");
    assert!(buffer[..4096].iter().all(|&b| b == 0) && buffer[4096..].iter().all(|&b| b == 2));
    // what was cut off does not come back
    file.set_len((3 << 20) + 100).expect("shorter");
    file.set_len(4 << 20).expect("longer");
    file.read_exact_at(&mut buffer, 3 << 20).expect("a read");
    assert!(buffer[..100].iter().all(|&b| b == 2) && buffer[100..].iter().all(|&b| b == 0));
    drop(file);
    mount.judge();
}

#[test]
fn a_listing_loses_and_repeats_nothing_while_files_are_removed() {
    const COUNT: usize = 2000;
    let Some((_dir, mount)) = new("listing") else { return };
    let dir = mount.join("d");
    std::fs::create_dir(&dir).expect("a folder");
    (0..COUNT).for_each(|n| write(&dir.join(format!("file-{n}")), b""));

    // Where a listing stood, it goes on, also when it comes back there later (telldir and seekdir).
    let mut list = rustix::fs::Dir::read_from(File::open(&dir).expect("a folder")).expect("a listing");
    let mut whole = Vec::new();
    while let Some(entry) = list.read() {
        let entry = entry.expect("an entry");
        whole.push((entry.file_name().to_owned(), entry.offset()));
    }
    assert_eq!(whole.len(), COUNT + 2);
    for n in [COUNT, 5, 1000, 0, 255, 256, 257, 1999] {
        list.seek(whole[n].1).expect("a seek");
        let next = list.read().expect("more").expect("an entry");
        assert_eq!(next.file_name(), whole[n + 1].0.as_c_str(), "after entry {n}");
    }

    // Removing what was listed, and making more, disturbs nothing.
    list.rewind();
    let mut seen = std::collections::HashSet::new();
    while let Some(entry) = list.read() {
        let name = entry.expect("an entry").file_name().to_str().expect("text").to_owned();
        if name.starts_with("file-") {
            assert!(seen.insert(name.clone()), "{name} twice");
            std::fs::remove_file(dir.join(&name)).expect("removed");
        }
        if seen.len() == 10 {
            write(&dir.join("late"), b"");
        }
    }
    assert_eq!(seen.len(), COUNT);
    drop(list);
    let left: Vec<_> = std::fs::read_dir(&dir).expect("a listing").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["late"]);
    mount.judge();
}

/// A buffer at an address and of a length that direct I/O takes.
fn aligned(len: usize, fill: u8, hold: &mut Vec<u8>) -> &mut [u8] {
    hold.resize(len + 4096, fill);
    let start = hold.as_ptr().align_offset(4096);
    &mut hold[start..start + len]
}

#[test]
fn direct_and_buffered_io_see_each_other() {
    let Some((_dir, mount)) = new("direct") else { return };
    let path = mount.join("direct");
    let flags = OFlags::DIRECT.bits() as i32;
    let options =
        || File::options().create(true).read(true).write(true).custom_flags(flags).clone().open(&path);
    let direct = options().expect("an O_DIRECT file");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let data = aligned(1 << 20, 7, &mut ours);
    direct.write_all_at(data, 0).expect("a direct write");
    assert!(read(&path).iter().all(|&b| b == 7));

    let buffered = File::options().read(true).write(true).open(&path).expect("a file");
    buffered.write_all_at(&[8; 4096], 8192).expect("a buffered write");
    let back = aligned(1 << 20, 0, &mut theirs);
    direct.read_exact_at(back, 0).expect("a direct read");
    assert!(back[..8192].iter().all(|&b| b == 7) && back[8192..12288].iter().all(|&b| b == 8));

    // over what the page cache holds
    direct.write_all_at(&aligned(4096, 9, &mut Vec::new())[..], 4096).expect("a direct write");
    let mut seen = [0; 4096];
    buffered.read_exact_at(&mut seen, 4096).expect("a buffered read");
    assert_eq!(seen, [9; 4096]);
    // beyond the end, where the size is no whole number of blocks
    buffered.set_len((1 << 20) + 100).expect("longer");
    let n = direct.read_at(&mut aligned(8192, 1, &mut Vec::new())[..], 1 << 20).expect("a direct read");
    assert_eq!(n, 100);
    drop((direct, buffered));
    mount.judge();
}

#[test]
fn a_removed_file_lives_until_it_is_closed() {
    let Some((_dir, mount)) = new("orphan") else { return };
    let path = mount.join("orphan");
    let mut file = File::options().create_new(true).read(true).write(true).open(&path).expect("a file");
    file.write_all(&[3; 200_000]).expect("a write");
    std::fs::remove_file(&path).expect("removed");
    assert!(!path.exists());
    file.write_all(&[4; 100_000]).expect("a write to a file without a name");
    file.seek(SeekFrom::Start(0)).expect("a seek");
    let mut data = Vec::new();
    file.read_to_end(&mut data).expect("a read");
    assert!(data.len() == 300_000 && data[..200_000].iter().all(|&b| b == 3));
    assert_eq!(file.metadata().expect("stat").nlink(), 0);
    drop(file);

    // replaced by a rename while it is open
    write(&path, b"old");
    write(&mount.join("new"), b"new");
    let mut old = File::open(&path).expect("a file");
    std::fs::rename(mount.join("new"), &path).expect("a rename");
    let mut text = String::new();
    old.read_to_string(&mut text).expect("a read");
    assert_eq!((text.as_str(), read(&path).as_slice()), ("old", &b"new"[..]));
    drop(old);
    let seen = mount.judge();
    assert_eq!(seen.len(), 2, "the root and one file");
}

#[test]
fn an_open_file_without_a_name_goes_after_a_crash() {
    let Some((_dir, mount)) = new("crashed") else { return };
    let image = mount.image.clone();
    let path = mount.join("orphan");
    write(&path, &[5; 1 << 20]);
    let file = File::open(&path).expect("a file");
    std::fs::remove_file(&path).expect("removed");
    support::program::buttery(&["sync".as_ref(), mount.path().as_os_str()]).quiet();
    mount.crash();
    drop(file);
    let mount = Mount::new(&image, "");
    write(&mount.join("another"), b"1");
    let seen = mount.judge();
    assert_eq!(seen.len(), 2, "the root and one file");
    let orphans =
        support::program::buttery(&["inspect".as_ref(), "dump-tree".as_ref(), image.as_os_str()]).ok();
    assert!(!String::from_utf8_lossy(&orphans.stdout).contains("ORPHAN_ITEM"), "an orphan is left");
}

#[test]
fn times_before_1970_are_what_was_set() {
    let Some((_dir, mount)) = new("times") else { return };
    let file = mount.join("file");
    write(&file, b"1");
    for (tv_sec, tv_nsec) in [(-1, 999_999_999), (-2_000_000_000, 1), (-5, 0), (1 << 33, 5)] {
        let spec = rustix::fs::Timespec { tv_sec, tv_nsec };
        let times = rustix::fs::Timestamps { last_access: spec, last_modification: spec };
        rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty()).expect("utimensat");
        let meta = file.metadata().expect("stat");
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (tv_sec, tv_nsec));
        assert_eq!((meta.atime(), meta.atime_nsec()), (tv_sec, tv_nsec));
    }
    mount.judge();
}

#[test]
fn the_size_is_told_and_space_comes_back() {
    let Some((_dir, mount)) = new("space") else { return };
    let free = || rustix::fs::statvfs(mount.path()).map(|s| s.f_bavail * s.f_frsize).expect("statvfs");
    let before = free();
    assert!(before > 500 << 20 && before <= 1 << 30, "{before}");
    write(&mount.join("big"), &vec![1; 100 << 20]);
    support::program::buttery(&["sync".as_ref(), mount.path().as_os_str()]).quiet();
    assert!(free() < before - (90 << 20));
    std::fs::remove_file(mount.join("big")).expect("removed");
    support::program::buttery(&["sync".as_ref(), mount.path().as_os_str()]).quiet();
    assert!(free() > before - (10 << 20), "{} of {before}", free());
    mount.judge();
}

#[test]
fn nodatacow_and_nodatasum_are_what_the_kernel_sees() {
    let Some((dir, mount)) = new("nodata") else { return };
    let image = mount.image.clone();
    mount.umount();
    for (n, (option, nocow)) in [("nodatacow", true), ("nodatasum", false)].into_iter().enumerate() {
        let mount = Mount::new(&image, option);
        write(&mount.join(format!("file-{n}")), &[7; 100_000]);
        std::fs::create_dir(mount.join(format!("dir-{n}"))).expect("a folder");
        mount.judge();
        let mount = buttery_judge::KernelMount::one(&image, "ro").expect("the kernel mounts it");
        let file = File::open(mount.path().join(format!("file-{n}"))).expect("a file");
        let flags = rustix::fs::ioctl_getflags(&file).expect("flags");
        assert_eq!(flags.contains(rustix::fs::IFlags::NOCOW), nocow, "{option}");
    }
    // no data but the kernel's own have a checksum
    let said = support::program::buttery(&["inspect".as_ref(), "dump-tree".as_ref(), image.as_os_str()]).ok();
    assert!(
        !String::from_utf8_lossy(&said.stdout).contains("EXTENT_CSUM EXTENT_CSUM"),
        "there are checksums"
    );
    drop(dir);
}

#[test]
fn flags_of_inodes_are_kept_and_obeyed() {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let Some((_dir, mount)) = new("flags") else { return };
    let image = mount.image.clone();
    let shown =
        |top: &Path, name: &str| ioctl_getflags(File::open(top.join(name)).expect("a file")).expect("flags");
    let all = [
        ("sync", IFlags::SYNC),
        ("nodump", IFlags::NODUMP),
        ("noatime", IFlags::NOATIME),
        ("nocow", IFlags::NOCOW),
        ("immutable", IFlags::IMMUTABLE),
        ("append", IFlags::APPEND),
        ("compress", IFlags::COMPRESSED),
    ];
    for (name, flag) in all {
        write(&mount.join(name), b"");
        let file = File::open(mount.join(name)).expect("a file");
        ioctl_setflags(&file, flag).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(shown(mount.path(), name), flag, "{name}");
    }
    let both = IFlags::NOCOW | IFlags::COMPRESSED;
    let nocow = File::open(mount.join("nocow")).expect("a file");
    assert_eq!(ioctl_setflags(&nocow, both), Err(Errno::INVAL));
    // a file that has contents keeps how they are written
    write(&mount.join("full"), &[1; 5000]);
    let full = File::open(mount.join("full")).expect("a file");
    ioctl_setflags(&full, IFlags::NOCOW).expect("nothing to do");
    assert_eq!(shown(mount.path(), "full"), IFlags::empty());
    let open = |name: &str, append: bool| {
        let result = File::options().write(true).append(append).open(mount.join(name));
        result.map(drop).map_err(|e| Errno::from_io_error(&e).expect("an errno"))
    };
    assert_eq!(open("immutable", false), Err(Errno::PERM));
    assert_eq!(open("append", false), Err(Errno::PERM));
    assert_eq!(open("append", true), Ok(()));
    drop((nocow, full));
    assert!(Command::new("lsattr").arg("-p").arg(mount.join("full")).status().expect("lsattr").success());
    mount.judge();
    let theirs = buttery_judge::KernelMount::one(&image, "ro").expect("the kernel mounts it");
    for (name, flag) in all {
        assert_eq!(shown(theirs.path(), name), flag, "{name}, to the kernel");
    }
}

#[test]
fn df_shows_what_the_kernel_shows() {
    let Some(()) = can_mount_and_judge() else { return };
    for options in [&[][..], &["-d", "dup"]] {
        let dir = TempDir::new("df").expect("a folder");
        let image = dir.join("image");
        let line = [&["mkfs", "--quiet", "--create", "1G"], options].concat();
        let line: Vec<&std::ffi::OsStr> =
            line.into_iter().map(AsRef::as_ref).chain([image.as_ref()]).collect();
        support::program::buttery(&line).quiet();
        for size in [0, 100 << 20] {
            let mount = Mount::new(&image, "");
            write(&mount.join("file"), &vec![7; size]);
            support::program::buttery(&["sync".as_ref(), mount.path().as_os_str()]).quiet();
            let ours = rustix::fs::statvfs(mount.path()).expect("statvfs");
            mount.umount();
            let mount = Mount::new(&image, "ro");
            let read_only = rustix::fs::statvfs(mount.path()).expect("statvfs");
            mount.umount();
            let mount = buttery_judge::KernelMount::one(&image, "ro").expect("the kernel mounts it");
            let theirs = rustix::fs::statvfs(mount.path()).expect("statvfs");
            mount.unmount().expect("an unmount");
            assert_eq!((ours.f_frsize, ours.f_blocks), (theirs.f_frsize, theirs.f_blocks));
            let near = |a: u64, b: u64| a.abs_diff(b) <= ours.f_blocks / 40;
            for s in [&ours, &read_only] {
                let told = [s.f_bfree, s.f_bavail, theirs.f_bfree, theirs.f_bavail];
                assert!(near(told[0], told[2]) && near(told[1], told[3]), "free, available: {told:?}");
            }
        }
    }
}

#[test]
fn root_keeps_its_files_from_others() {
    let Some((_dir, mount)) = new("others") else { return };
    write(&mount.join("secret"), b"secret");
    rustix::fs::chmod(mount.join("secret"), Mode::from(0o600)).expect("chmod");
    write(&mount.join("open"), b"open");
    rustix::fs::chmod(mount.join("open"), Mode::from(0o644)).expect("chmod");
    let cat = |name: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "cat"]).arg(mount.join(name));
        command.output().expect("setpriv")
    };
    assert_eq!(cat("open").stdout, b"open");
    let refused = cat("secret");
    assert!(!refused.status.success() && refused.stdout.is_empty());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Permission denied"));
    mount.judge();
}

#[test]
fn a_write_takes_privileges_away() {
    let Some((_dir, mount)) = new("privileges") else { return };
    let file = mount.join("file");
    let mode = || file.metadata().expect("stat").mode() & 0o7777;
    let capable = || rustix::fs::getxattr(&file, "security.capability", &mut [0; 64]).is_ok();
    let reset = || {
        write(&file, b"1");
        rustix::fs::chmod(&file, Mode::from(0o6777)).expect("chmod");
        let value = shapes::capability();
        rustix::fs::setxattr(&file, "security.capability", &value, XattrFlags::empty()).expect("set");
        assert!(capable() && mode() == 0o6777);
    };
    reset();
    File::options().append(true).open(&file).expect("a file").write_all(b"2").expect("a write");
    assert!(!capable() && mode() == 0o6777, "root keeps set-id bits, not capabilities");
    // through each way into the file, also after it was opened
    for (read, direct) in [(false, 0), (true, 0), (true, rustix::fs::OFlags::DIRECT.bits() as i32)] {
        let options = || {
            let mut options = File::options();
            options.read(read).write(true).custom_flags(direct).to_owned()
        };
        let block = [7; 4096];
        reset();
        options().open(&file).expect("a file").write_all_at(&block, 0).expect("a write");
        assert!(!capable() && mode() == 0o6777, "read {read}, flags {direct}");
        let opened = options().open(&file).expect("a file");
        reset();
        opened.write_all_at(&block, 4096).expect("a write");
        assert!(!capable() && mode() == 0o6777, "given later: read {read}, flags {direct}");
    }
    reset();
    File::options().write(true).open(&file).expect("a file").set_len(1).expect("shorter");
    assert!(!capable());
    let shell = |script: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-ec", script]);
        assert!(command.current_dir(mount.path()).status().expect("setpriv").success(), "{script}");
    };
    for script in [
        "echo 3 >> file",
        "truncate -s 1 file",
        "dd if=/dev/zero of=file oflag=direct bs=4096 count=1 status=none",
    ] {
        reset();
        shell(script);
        assert!(!capable() && mode() == 0o777, "{script} left {:o}", mode());
    }
    reset();
    rustix::fs::chown(&file, Some(rustix::fs::Uid::from_raw(1)), None).expect("chown");
    assert!(!capable() && mode() == 0o777);
    mount.judge();
}

#[test]
fn what_is_written_with_o_sync_survives_a_crash() {
    let Some((_dir, mount)) = new("osync") else { return };
    let image = mount.image.clone();
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::SYNC;
    let file = File::from(open(mount.join("sync"), flags, Mode::from(0o644)).expect("an O_SYNC file"));
    file.write_all_at(&[6; 10_000], 0).expect("a write");
    mount.crash();
    drop(file);
    let mount = Mount::new(&image, "");
    assert_eq!(read(&mount.join("sync")), [6; 10_000]);
    let seen = facts(mount.path());
    mount.umount();
    judged(&image, &seen);
}

#[test]
fn a_workload_with_syncs_in_between() {
    let Some((_dir, mount)) = new("syncs") else { return };
    let mut ops = shapes::many_files(b"many", 500);
    for n in (100..ops.len()).rev().step_by(100) {
        ops.insert(n, Op::Sync);
        ops.insert(n - 50, Op::Fsync { path: vec![] });
    }
    workload::run(mount.path(), &ops).expect("the workload");
    let at = mount.join("many");
    let stat = rustix::fs::statat(CWD, &at, AtFlags::empty()).expect("stat");
    assert_eq!(stat.st_nlink, 1, "a directory's link count is 1, as the kernel's btrfs has it");
    mount.judge();
}
