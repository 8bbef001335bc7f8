//! Where data are summed: by the writer or by workers, the same comes out; and a zoned device gets its writes in order.

use buttery::{CsumSubmit, FileId, Filesystem, NewNode, Options};
use buttery_codec::CsumType;
use buttery_device::{Device, MemDevice};
use buttery_judge::check::btrfs_check_data;
use buttery_judge::{Need, TempDir, need};
use buttery_mkfs::{MkfsOptions, make};
use buttery_sim::image;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ThreadId};

const MIB: usize = 1 << 20;

/// A device that knows who writes to it, and, where it is zoned, refuses what does not continue the write before.
struct Watched {
    inner: MemDevice,
    zoned: bool,
    watching: AtomicBool,
    /// Where the next write must begin, once one was seen.
    next: Mutex<Option<u64>>,
    writers: Mutex<HashSet<ThreadId>>,
}

impl Device for Watched {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        if self.watching.load(Ordering::SeqCst) {
            self.writers.lock().insert(thread::current().id());
            let len: usize = bufs.iter().map(|b| b.len()).sum();
            let mut next = self.next.lock();
            if self.zoned && next.is_some_and(|next| next != offset) {
                return Err(io::Error::other("a write out of order"));
            }
            *next = Some(offset + len as u64);
        }
        self.inner.write_at(offset, bufs)
    }
    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }
    fn is_zoned(&self) -> bool {
        self.zoned
    }
}

struct Bed {
    device: Arc<Watched>,
    fs: Filesystem,
    file: FileId,
}

fn bed(csum: CsumType, submit: CsumSubmit, zoned: bool) -> Bed {
    let device = Arc::new(Watched {
        inner: MemDevice::new("watched", 512 << 20),
        zoned,
        watching: false.into(),
        next: Mutex::default(),
        writers: Mutex::default(),
    });
    let shared: Arc<dyn Device> = device.clone();
    make(&shared, &MkfsOptions { csum, discard: false, ..MkfsOptions::default() }).expect("mkfs");
    let mut options = Options { ..image::quiet() };
    options.mechanisms.csum_submit = submit;
    let fs = Filesystem::open_devices_writable(vec![shared], &options).expect("open");
    let file = fs.create(fs.root(), b"file", NewNode::file(0o644)).expect("a file");
    fs.write(file, 0, &[1; 8192]).expect("a first write, which makes the chunk");
    Bed { device, fs, file }
}

impl Bed {
    /// Writes 4 MiB; answers who else than this thread wrote to the device.
    fn others(&self, offset: usize, direct: bool) -> usize {
        let data = pattern(4 * MIB);
        self.device.writers.lock().clear();
        *self.device.next.lock() = None;
        self.device.watching.store(true, Ordering::SeqCst);
        let done = match direct {
            true => self.fs.write_direct(self.file, offset as u64, &data),
            false => self.fs.write(self.file, offset as u64, &data),
        };
        self.device.watching.store(false, Ordering::SeqCst);
        done.expect("a write");
        let mut got = vec![0; data.len()];
        self.fs.read(self.file, offset as u64, &mut got).expect("a read, verified");
        assert!(got == data, "read back");
        self.device.writers.lock().iter().filter(|&&id| id != thread::current().id()).count()
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ (i >> 9)) as u8).collect()
}

#[test]
fn workers_write_what_the_writer_would() {
    let has_btrfs_check = need(&[Need::Program("btrfs")]).is_some();
    for csum in [CsumType::Crc32c, CsumType::Xxhash64, CsumType::Sha256, CsumType::Blake2b] {
        let inline = bed(csum, CsumSubmit::Inline, false);
        assert_eq!(inline.others(MIB, false), 0, "{}: inline", csum.name());
        let offload = bed(csum, CsumSubmit::Offload, false);
        assert!(offload.others(MIB, false) > 0, "{}: by workers", csum.name());
        assert_eq!(offload.others(9 * MIB + 4096, true).min(1), 1, "{}: direct", csum.name());
        let device: Arc<dyn Device> = offload.device.clone();
        offload.fs.close().expect("close");
        if has_btrfs_check {
            let dir = TempDir::new("csum-submit").expect("a folder");
            image::dump(&*device, &dir.join("i"));
            btrfs_check_data(&dir.join("i")).unwrap_or_else(|e| panic!("{}: {e}", csum.name()));
        }
    }
}

#[test]
fn what_pays_is_decided_by_the_checksum_and_by_who_waits() {
    // sha256 is slow everywhere, xxhash64 fast on whatever runs this in earnest
    let slow = bed(CsumType::Sha256, CsumSubmit::Auto, false);
    assert!(slow.others(MIB, false) > 0, "a slow checksum goes to workers");
    assert_eq!(slow.others(9 * MIB, true), 0, "but nobody is woken for a write that is waited for");
    let small = slow.device.writers.lock().len();
    assert_eq!(small, 1, "the writer");
    assert_eq!(bed(CsumType::Xxhash64, CsumSubmit::Auto, false).others(MIB, false), 0, "a fast one");
}

#[test]
fn a_zoned_device_is_written_in_order() {
    for submit in [CsumSubmit::Auto, CsumSubmit::Inline, CsumSubmit::Offload] {
        let zoned = bed(CsumType::Sha256, submit, true);
        for n in 1..8 {
            assert_eq!(zoned.others(n * 4 * MIB, false), 0, "{submit:?}: somebody else wrote");
        }
        // it would have been seen
        let device = &zoned.device;
        device.watching.store(true, Ordering::SeqCst);
        *device.next.lock() = Some(4096);
        assert!(device.write_at(8192, &[IoSlice::new(&[0])]).is_err());
    }
}
