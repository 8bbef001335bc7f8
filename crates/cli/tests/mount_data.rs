//! The data path of a mount: handles that go past the page cache and handles that do not, and what is told of devices.

mod support;

use buttery_judge::TempDir;
use buttery_judge::workload::{Data, Fill};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use support::mount::{Mount, can_mount_and_judge};
use support::program::buttery;

const LEN: usize = 4 << 20;

fn open(path: &Path) -> File {
    File::options().create(true).truncate(false).read(true).write(true).open(path).expect("a file")
}

/// A large preallocated file is written past the page cache by who opens it then, not by who had it open before.
#[test]
fn handles_of_a_preallocated_file_see_each_other() {
    let Some(()) = can_mount_and_judge() else { return };
    let dir = TempDir::new("bulk").expect("a folder");
    let mount = Mount::create(&dir, "1G");
    let path = mount.join("bulk");
    let cached = open(&path);
    fallocate(&cached, FallocateFlags::empty(), 0, LEN as u64).expect("preallocated");
    let bulk = open(&path);
    let mut model = vec![0; LEN];
    let (mut at, mut n) = (0, 0u64);
    while at < LEN {
        let len = (5000 + 70_001 * (n as usize % 5)).min(LEN - at);
        let data = Data::new(Fill::Random, n, len).bytes();
        let (writer, reader) = if n.is_multiple_of(2) { (&bulk, &cached) } else { (&cached, &bulk) };
        writer.write_all_at(&data, at as u64).expect("a write");
        model[at..at + len].copy_from_slice(&data);
        let mut seen = vec![1; LEN.min(at + len + 9000)];
        reader.read_exact_at(&mut seen, 0).expect("a read");
        assert!(seen[..] == model[..seen.len()], "after write {n} at {at}");
        at += len;
        n += 1;
    }
    // a mapping of the handle that goes past the cache
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: nothing else uses the mapping, which is unmapped below; the file is not cut while it is mapped.
    let map = unsafe {
        let at = mmap(std::ptr::null_mut(), LEN, access, MapFlags::SHARED, &bulk, 0).expect("a mapping");
        std::slice::from_raw_parts_mut(at.cast::<u8>(), LEN)
    };
    assert!(map[..] == model[..]);
    map[100_000..100_004].copy_from_slice(b"abcd");
    model[100_000..100_004].copy_from_slice(b"abcd");
    let mut seen = vec![0; LEN];
    for file in [&bulk, &cached] {
        file.read_exact_at(&mut seen, 0).expect("a read");
        assert!(seen == model, "what was written through the mapping");
    }
    bulk.write_all_at(b"wxyz", 200_000).expect("a write");
    assert_eq!(&map[200_000..200_004], b"wxyz");
    // SAFETY: as above; `map` is not used again.
    unsafe { munmap(map.as_mut_ptr().cast(), LEN) }.expect("munmap");
    drop((bulk, cached));
    mount.judge();
}

#[test]
fn a_mount_tells_what_went_wrong_with_its_device() {
    let Some(()) = can_mount_and_judge() else { return };
    let dir = TempDir::new("stats").expect("a folder");
    let mount = Mount::create(&dir, "512M");
    let stats = || buttery(&["device".as_ref(), "stats".as_ref(), "-c".as_ref(), mount.path().as_os_str()]);
    let lines = stats().ok().stdout;
    let name = mount.image.display().to_string();
    let expected =
        ["write_io_errs  ", "read_io_errs   ", "flush_io_errs  ", "corruption_errs", "generation_errs"];
    let expected: String = expected.iter().map(|what| format!("[{name}].{what} 0\n")).collect();
    assert_eq!(String::from_utf8_lossy(lines.as_ref()), expected);
    buttery(&["device".as_ref(), "stats".as_ref(), "-z".as_ref(), mount.path().as_os_str()]).ok();
    mount.judge();
}
