//! A device that is watched, and can fail.

use crate::image;
use buttery::{Filesystem, NewNode, Options};
use buttery_device::{Device, MemDevice};
use buttery_disk::chunk::bg;
use buttery_judge::check::{btrfs_check_data, kernel_scrub};
use buttery_judge::{KernelMount, Need, TempDir, need};
use buttery_mkfs::MkfsOptions;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A device that counts what is written to where file data are, and can refuse it.
pub struct Watched {
    inner: MemDevice,
    data: Mutex<Vec<(u64, u64)>>,
    writes: AtomicU64,
    bytes: AtomicU64,
    /// Refuses file data.
    pub broken: AtomicBool,
    /// Takes so many more writes of file data.
    pub allowed: AtomicU64,
    /// Refuses all that is written.
    pub dead: AtomicBool,
}

impl Watched {
    /// Of so many bytes, with a new file system.
    pub fn new(len: u64) -> Arc<Watched> {
        Self::of(len, &image::spread(0))
    }

    /// The same of this kind.
    pub fn of(len: u64, options: &MkfsOptions) -> Arc<Watched> {
        let device = image::in_memory(len, options);
        let inner = crate::crash::copy(&*device);
        Arc::new(Watched {
            inner,
            data: Mutex::default(),
            writes: 0.into(),
            bytes: 0.into(),
            broken: false.into(),
            allowed: u64::MAX.into(),
            dead: false.into(),
        })
    }

    /// Opens it; there is one file.
    pub fn open(self: &Arc<Watched>) -> Filesystem {
        self.open_with(&image::quiet())
    }

    /// The same with these options.
    pub fn open_with(self: &Arc<Watched>, options: &Options) -> Filesystem {
        let device: Arc<dyn Device> = self.clone();
        let fs = Filesystem::open_devices_writable(vec![device], options).expect("open");
        // so that there is a block group for data
        let first = fs.create(fs.root(), b"first", NewNode::file(0o644)).expect("a file");
        fs.write(first, 0, &[1; 100_000]).expect("a write");
        self.look(&fs);
        fs.sync().expect("a commit");
        self.take();
        fs
    }

    /// Looks where file data are.
    pub fn look(&self, fs: &Filesystem) {
        let chunks = fs.engine().volume().chunks().all();
        let data = chunks.iter().filter(|c| c.kind & bg::DATA != 0);
        *self.data.lock().expect("a lock") = data.map(|c| (c.stripes[0].1, c.len)).collect();
    }

    /// How often data were written since this was last asked, and how many bytes.
    pub fn take(&self) -> (u64, u64) {
        (self.writes.swap(0, Ordering::Relaxed), self.bytes.swap(0, Ordering::Relaxed))
    }

    /// Has it judged, and looked at while the kernel has it mounted.
    pub fn check(&self, mounted: impl FnOnce(&Path)) {
        let dir = TempDir::new("gathered").expect("a folder");
        let path = dir.join("image");
        image::dump(&self.inner, &path);
        if let Some(()) = need(&[Need::KernelBtrfs, Need::Program("btrfs")]) {
            btrfs_check_data(&path).expect("check");
            let mount = KernelMount::one(&path, "").expect("a mount");
            kernel_scrub(mount.path()).expect("scrub");
            mounted(mount.path());
            mount.unmount_without_complaints().expect("nothing in the log");
        }
    }
}

impl Device for Watched {
    fn name(&self) -> &str {
        "watched"
    }

    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        if self.dead.load(Ordering::Relaxed) {
            return Err(io::Error::other("dead"));
        }
        let data = self.data.lock().expect("a lock");
        if data.iter().any(|(start, len)| (*start..start + len).contains(&offset)) {
            let allowed = self.allowed.load(Ordering::Relaxed);
            self.allowed.store(allowed.saturating_sub(1), Ordering::Relaxed);
            if self.broken.load(Ordering::Relaxed) || allowed == 0 {
                return Err(io::Error::other("broken"));
            }
            self.writes.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(bufs.iter().map(|b| b.len() as u64).sum(), Ordering::Relaxed);
        }
        self.inner.write_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
}
