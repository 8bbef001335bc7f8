//! Which writes go past the page cache, and what `-o writeback_cache` promises although the kernel holds writes back.

mod support;

use buttery_judge::TempDir;
use buttery_judge::workload::{Data, Fill};
use rustix::fs::{SeekFrom, Timespec, Timestamps, seek};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;
use support::mount::{Mount, can_mount_and_judge, is_mount};
use support::program::buttery;

fn both(path: &Path) -> File {
    File::options().create(true).truncate(false).read(true).write(true).open(path).expect("a file")
}

/// An image that is mounted with `writeback_cache`.
fn writeback(dir: &TempDir, size: &str) -> Mount {
    let mount = Mount::create(dir, size);
    let image = mount.image.clone();
    mount.umount();
    Mount::new(&image, "writeback_cache")
}

/// What only writes goes past the page cache, and who has the pages sees it nevertheless.
#[test]
fn a_handle_that_only_writes_is_seen_by_those_that_read() {
    let Some(()) = can_mount_and_judge() else { return };
    let dir = TempDir::new("caching").expect("a folder");
    let mount = Mount::create(&dir, "512M");
    let path = mount.join("file");
    let writer = File::options().create(true).truncate(false).write(true).open(&path).expect("a file");
    let reader = both(&path);
    let mut model: Vec<u8> = Vec::new();
    for n in 0..200u64 {
        let data = Data::new(Fill::Random, n, 1 + (n as usize * 977) % 20_000).bytes();
        let at = if n.is_multiple_of(3) { model.len() } else { (n as usize * 7919) % model.len() };
        model.resize(model.len().max(at + data.len()), 0);
        model[at..at + data.len()].copy_from_slice(&data);
        let by = if n % 5 == 4 { &reader } else { &writer };
        by.write_all_at(&data, at as u64).expect("a write");
        assert_eq!(fs::metadata(&path).expect("metadata").len(), model.len() as u64);
        let mut seen = vec![0; model.len()];
        reader.read_exact_at(&mut seen, 0).expect("a read");
        assert!(seen == model, "after write {n}");
    }
    let mut appender = File::options().append(true).open(&path).expect("a file");
    appender.write_all(b"the end").expect("a write");
    model.extend(b"the end");
    assert!(fs::read(&path).expect("the file") == model);
    drop((writer, reader, appender));
    mount.judge();
}

/// Who reads the end of a file while another appends never sees anything but what was appended.
#[test]
fn the_end_of_a_growing_file_is_read_right() {
    let Some(()) = can_mount_and_judge() else { return };
    let dir = TempDir::new("growing").expect("a folder");
    let mount = Mount::create(&dir, "512M");
    for reader_first in [false, true] {
        let path = mount.join(format!("log-{reader_first}"));
        File::create(&path).expect("a file");
        let early = reader_first.then(|| File::open(&path).expect("the file"));
        let mut writer = File::options().append(true).open(&path).expect("the file");
        let reader = early.unwrap_or_else(|| File::open(&path).expect("the file"));
        std::thread::scope(|scope| {
            let writes = scope.spawn(move || {
                for _ in 0..8000 {
                    writer.write_all(&[b'x'; 97]).expect("a write");
                }
            });
            let mut tail = [0; 5000];
            while !writes.is_finished() {
                let size = reader.metadata().expect("metadata").len();
                let len = size.min(5000);
                // through the page cache the kernel gives a little less while it writes at the end
                let read = reader.read_at(&mut tail[..len as usize], size - len).expect("a read");
                assert!(tail[..read].iter().all(|&b| b == b'x'), "of {size} bytes");
            }
            writes.join().expect("the writer");
        });
        assert_eq!(fs::read(&path).expect("the file"), [b'x'; 97 * 8000]);
    }
    mount.judge();
}

/// `write` answers before the server knows; nothing else may differ.
#[test]
fn held_back_writes_are_seen_sized_timed_and_copied() {
    let Some(()) = can_mount_and_judge() else { return };
    let dir = TempDir::new("writeback").expect("a folder");
    let mount = writeback(&dir, "512M");
    let path = mount.join("file");
    let mut file = both(&path);
    let mut model = Vec::new();
    for n in 0..5000u64 {
        let piece = Data::new(Fill::Random, n, 300).bytes();
        file.write_all(&piece).expect("a write");
        model.extend(piece);
    }
    // data that the server has not seen yet are data
    assert_eq!(seek(&file, SeekFrom::Data(0)).expect("data"), 0);
    assert_eq!(seek(&file, SeekFrom::Hole(0)).expect("a hole"), model.len() as u64);
    file.set_len(2 << 20).expect("a size");
    model.resize(2 << 20, 0);
    assert_eq!(fs::metadata(&path).expect("metadata").len(), 2 << 20);
    // a copy, by what the kernel has for it, while the file is open
    let copy = mount.join("copy");
    fs::copy(&path, &copy).expect("a copy");
    assert!(fs::read(&copy).expect("the copy") == model);
    assert!(fs::read(&path).expect("the file") == model);
    // times that are set stay, and times of writes are kept
    let then = Timespec { tv_sec: 1_000_000_000, tv_nsec: 123_456_789 };
    rustix::fs::futimens(&file, &Timestamps { last_access: then, last_modification: then }).expect("times");
    let before = fs::metadata(&copy).expect("metadata").mtime();
    let mut late = File::options().append(true).open(&copy).expect("the copy");
    late.write_all(b"more").expect("a write");
    drop(late);
    drop(file);
    let (image, facts) = (mount.image.clone(), mount.judge());
    assert!(facts.len() >= 3, "{facts:?}");
    let mount = Mount::new(&image, "ro");
    let seen = fs::metadata(mount.join("file")).expect("metadata");
    assert_eq!((seen.mtime(), seen.mtime_nsec()), (1_000_000_000, 123_456_789));
    assert!(fs::metadata(mount.join("copy")).expect("metadata").mtime() >= before);
    assert!(fs::read(mount.join("file")).expect("the file") == model);
    model.extend(b"more");
    assert!(fs::read(mount.join("copy")).expect("the copy") == model);
}

/// The file stays open, so nothing but `sync` hands its data over.
#[test]
fn sync_fsync_and_signals_wait_for_what_is_held_back() {
    let Some(()) = can_mount_and_judge() else { return };
    let dir = TempDir::new("writeback-sync").expect("a folder");
    let data = Data::new(Fill::Random, 1, 3 << 20).bytes();
    for way in ["sync", "fsync", "umount", "signal"] {
        let mount = writeback(&dir, "512M");
        let image = mount.image.clone();
        let file = both(&mount.join(way));
        for (n, piece) in data.chunks(777).enumerate() {
            file.write_all_at(piece, n as u64 * 777).expect("a write");
        }
        match way {
            "sync" => {
                buttery(&["sync".as_ref(), mount.path().as_os_str()]).quiet();
                mount.crash();
            }
            "fsync" => {
                file.sync_all().expect("fsync");
                mount.crash();
            }
            "umount" => {
                drop(file);
                mount.umount();
            }
            _ => {
                mount.signal(Signal::TERM);
                assert!(mount.ended(Duration::from_secs(60)), "SIGTERM did not end it");
                assert!(!is_mount(mount.path()), "SIGTERM left the mount");
                mount.vanished();
            }
        }
        let mount = Mount::new(&image, "ro");
        let mut seen = Vec::new();
        File::open(mount.join(way)).expect("the file").read_to_end(&mut seen).expect("a read");
        assert!(seen == data, "{way}");
        mount.umount();
        fs::remove_file(&image).expect("the image");
    }
}

/// A full file system is told of at the latest when the file is closed or synced, and what was told of as written before
/// is there.
#[test]
fn a_full_file_system_is_told_of_late_but_told_of() {
    let Some(()) = can_mount_and_judge() else { return };
    let dir = TempDir::new("writeback-full").expect("a folder");
    let mount = writeback(&dir, "200M");
    let before = mount.join("before");
    let data = Data::new(Fill::Random, 7, 1 << 20).bytes();
    fs::write(&before, &data).expect("a file");
    let mut file = both(&mount.join("too-large"));
    let mut told = false;
    for _ in 0..400 {
        told |= file.write_all(&data).is_err();
    }
    told |= file.sync_all().is_err();
    assert!(told, "400 MiB in 200");
    drop(file);
    assert!(fs::read(&before).expect("the file") == data);
    fs::remove_file(mount.join("too-large")).expect("an unlink");
    fs::write(mount.join("after"), &data).expect("there is space again");
    mount.judge();
}
