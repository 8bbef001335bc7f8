//! Two things at once, brought about on purpose: what is read while a commit writes it, what is renamed while its last
//! holder lets go, what is synced while another syncs.

use buttery::{Error, FileId, Filesystem, NewNode, Options, RenameMode, XattrMode};
use buttery_device::{Device, MemDevice};
use buttery_disk::TreeId;
use buttery_disk::inode::flags;
use buttery_mkfs::make;
use buttery_sim::image;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn file(fs: &Filesystem, dir: FileId, name: &str) -> FileId {
    fs.create(dir, name.as_bytes(), NewNode::file(0o644)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// More inodes than are kept in memory are read while a commit writes those that changed.
#[test]
fn an_inode_that_a_commit_is_writing_is_read_as_it_is() {
    const MANY: usize = 36_000;
    let device = image::in_memory(1 << 30, &image::spread(0));
    let fs = image::open(&device);
    let top = FileId::top_of(fs.create_subvolume(fs.root(), b"sub", 0, 0).expect("a subvolume"));
    let old: Vec<FileId> = (0..MANY).map(|n| file(&fs, top, &format!("old-{n}"))).collect();
    fs.close().expect("close");
    let fs = image::open(&device);
    let first = file(&fs, fs.root(), "first");
    fs.write(first, 0, b"first").expect("a write");
    let new: Vec<FileId> = (0..MANY).map(|n| file(&fs, top, &format!("new-{n}"))).collect();
    for &id in &new {
        fs.write(id, 0, b"some bytes").expect("a write");
    }
    thread::scope(|scope| {
        // the commit writes the inodes of tree 5 first, and waits there
        let tree = fs.engine().tree(TreeId(5)).expect("the tree");
        let view = tree.read(fs.engine().store());
        let commit = scope.spawn(|| fs.sync());
        thread::sleep(Duration::from_millis(300));
        for &id in &old {
            assert_eq!(fs.stat(id).expect("stat").nlink, 1);
        }
        for &id in &new {
            let stat = fs.stat(id).expect("stat");
            assert_eq!((stat.nlink, stat.size), (1, 10), "inode {}", id.ino);
        }
        drop(view);
        commit.join().expect("a thread").expect("a commit");
    });
    for &id in &new {
        fs.hold(id, 1);
        fs.release(id, 1).expect("a release");
        assert_eq!(fs.stat(id).expect("stat").size, 10);
    }
    fs.close().expect("close");
}

/// Either the ranges share their data afterwards or they do not; the data are there in any case.
#[test]
fn what_is_deduplicated_without_space_keeps_its_data() {
    let device = image::in_memory(256 * MIB, &image::spread(0));
    let fs = image::open(&device);
    let data: Vec<u8> = (0..MIB).map(|n| (n / 4096) as u8).collect();
    let pairs: Vec<[FileId; 2]> = (0..8)
        .map(|n| {
            ["a", "b"].map(|name| {
                let id = file(&fs, fs.root(), &format!("{name}-{n}"));
                fs.write(id, 0, &data).expect("data");
                id
            })
        })
        .collect();
    fs.sync().expect("a commit");
    let (mut n, mut refused) = (0, 0);
    while refused < 8 {
        let value = vec![1; if refused == 0 { 3900 } else { 100 }];
        let made = fs
            .create(fs.root(), format!("filler-{n}").as_bytes(), NewNode::file(0o644))
            .and_then(|id| fs.set_xattr(id, b"user.x", &value, XattrMode::Any));
        refused = if made.is_ok() { 0 } else { refused + 1 };
        n += 1;
    }
    let mut full = 0;
    for [a, b] in &pairs {
        match fs.dedupe_range(*a, 0, *b, 0, MIB) {
            Ok(_) => {}
            Err(Error::NoSpace) => full += 1,
            Err(error) => panic!("{error}"),
        }
        let mut seen = vec![0; MIB as usize];
        fs.read(*b, 0, &mut seen).expect("a read");
        assert!(seen == data, "the data of a file that was deduplicated");
    }
    assert!(full > 0, "there was space");
}

/// A device whose flushes can be held up.
struct Slow {
    inner: MemDevice,
    /// Whether they are, and whether one waits.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Slow {
    fn hold(&self, hold: bool) {
        self.state.lock().expect("a lock").0 = hold;
        self.changed.notify_all();
    }

    fn wait_for_flush(&self) {
        let state = self.state.lock().expect("a lock");
        drop(self.changed.wait_while(state, |state| !state.1).expect("a lock"));
    }
}

impl Device for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.inner.write_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state.lock().expect("a lock");
        state.1 = true;
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |state| state.0).expect("a lock");
        state.1 = false;
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Data that were written in place are behind no item: only the flush tells that they are on the device.
#[test]
fn nothing_is_synced_while_its_flush_is_under_way() {
    let slow = Arc::new(Slow {
        inner: MemDevice::new("slow", 512 * MIB),
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    let device: Arc<dyn Device> = slow.clone();
    make(&device, &image::spread(0)).expect("mkfs");
    let fs = Filesystem::open_devices_writable(vec![device], &image::quiet()).expect("open");
    let id = file(&fs, fs.root(), "nocow");
    let nocow = flags::NODATACOW | flags::NODATASUM;
    fs.set_flags(id, nocow, nocow).expect("flags");
    fs.write(id, 0, &[1; 65536]).expect("data");
    fs.sync().expect("a commit");
    for round in 0..2u8 {
        fs.write(id, 4096, &[round; 8192]).expect("in place");
        assert!(!fs.is_synced());
        slow.state.lock().expect("a lock").1 = false;
        slow.hold(true);
        thread::scope(|scope| {
            let sync = scope.spawn(|| fs.sync());
            slow.wait_for_flush();
            let seen = fs.is_synced();
            slow.hold(false);
            assert!(!seen, "round {round}: synced before the device had it");
            sync.join().expect("a thread").expect("a commit");
        });
        assert!(fs.is_synced());
    }
    fs.close().expect("close");
}

/// A name that moves is one link all the time.
#[test]
fn renaming_beside_the_last_holder() {
    let device = image::in_memory(256 * MIB, &image::spread(0));
    let fs = image::open(&device);
    let id = file(&fs, fs.root(), "a");
    fs.write(id, 0, b"contents").expect("a write");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (fs, stop) = (&fs, &stop);
        let until = move |work: &mut dyn FnMut()| {
            while !stop.load(Ordering::Relaxed) {
                work();
            }
        };
        let others = [
            scope.spawn(move || {
                until(&mut || {
                    fs.hold(id, 1);
                    fs.release(id, 1).expect("a release");
                })
            }),
            scope.spawn(move || until(&mut || assert_eq!(fs.stat(id).expect("stat").nlink, 1))),
        ];
        let root = fs.root();
        let renamed = (0..4000).try_for_each(|_| {
            fs.rename(root, b"a", root, b"b", RenameMode::Replace)?;
            fs.rename(root, b"b", root, b"a", RenameMode::NoReplace)
        });
        stop.store(true, Ordering::Relaxed);
        for other in others {
            other.join().expect("a thread");
        }
        renamed.expect("renames");
    });
    assert_eq!(fs.stat(id).expect("stat").size, 8);
    fs.close().expect("close");
}

/// Whether a file's data have checksums is settled before the first of them is written.
#[test]
fn flags_beside_the_first_write() {
    let device = image::in_memory(512 * MIB, &image::spread(0));
    let fs = Filesystem::open_devices_writable(vec![device], &Options { nodatacow: true, ..image::quiet() })
        .expect("open");
    let nocow = flags::NODATACOW | flags::NODATASUM;
    for n in 0..1500 {
        let id = file(&fs, fs.root(), &format!("file-{n}"));
        thread::scope(|scope| {
            scope.spawn(|| fs.set_attr_flags(id, 0).expect("flags"));
            scope.spawn(|| fs.write(id, 0, &[7; 8192]).expect("a write"));
        });
        let mut seen = [0; 8192];
        fs.read(id, 0, &mut seen)
            .unwrap_or_else(|e| panic!("file {n}, flags {:#x}: {e}", fs.stat(id).expect("stat").flags));
        assert_eq!(seen, [7; 8192]);
    }
    let nobody = FileId { ino: 1 << 30, ..fs.root() };
    assert!(matches!(fs.set_flags(nobody, nocow, nocow), Err(Error::NotFound)));
    fs.sync().expect("writing goes on");
    fs.close().expect("close");
}
