//! A device that now and then gives other bytes than it holds, under four writers and commits: everything is read right
//! from the other copy, and mending never puts old bytes where new ones are.

use buttery::{FileId, Filesystem, NewNode};
use buttery_device::{Device, MemDevice};
use buttery_judge::check::{btrfs_check_data, kernel_scrub};
use buttery_judge::{KernelMount, Need, TempDir, need};
use buttery_mkfs::{MkfsOptions, Profile, make};
use buttery_sim::{Sim, Weights, image};
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::Duration;

/// Every third read of a first copy is wrong in one byte; some of these take their time.
struct Flaky {
    inner: MemDevice,
    first_copies: RwLock<Vec<(u64, u64)>>,
    reads: AtomicU64,
    wrong: AtomicU64,
}

impl Flaky {
    /// From now on first copies are read wrong.
    fn strike(&self, fs: &Filesystem) {
        let chunks = fs.engine().volume().chunks().all();
        let found = chunks.iter().filter(|c| c.copies() == 2).map(|c| (c.stripes[0].1, c.len));
        *self.first_copies.write().expect("a lock") = found.collect();
    }

    fn rest(&self) {
        self.first_copies.write().expect("a lock").clear();
    }
}

impl Device for Flaky {
    fn name(&self) -> &str {
        "flaky"
    }

    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)?;
        let n = self.reads.fetch_add(1, Ordering::Relaxed);
        let copies = self.first_copies.read().expect("a lock");
        if n.is_multiple_of(3) && copies.iter().any(|(start, len)| offset >= *start && offset < start + len) {
            buf[(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) as usize % buf.len()] ^= 0x55;
            self.wrong.fetch_add(1, Ordering::Relaxed);
            if n.is_multiple_of(2) {
                thread::sleep(Duration::from_micros(300));
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.inner.write_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Four folders, worked in side by side.
fn work(fs: &Filesystem, flaky: &Flaky, seed: u64) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                flaky.strike(fs);
                fs.sync().expect("sync");
                thread::sleep(Duration::from_millis(1));
            }
        });
        let writers: Vec<_> = (0..4)
            .map(|n| {
                let dir: FileId = fs
                    .create(fs.root(), format!("d{n}").as_bytes(), NewNode::directory(0o755))
                    .expect("a folder");
                let weights =
                    Weights { subvolumes: false, flags: false, nodes_max: 150, ..Weights::default() };
                scope.spawn(move || {
                    let mut sim = Sim::new(fs, dir, seed * 10 + n, weights)?;
                    for step in 0..1500 {
                        sim.step(fs)?;
                        if step % 200 == 0 {
                            sim.compare(fs)?;
                        }
                    }
                    sim.compare(fs)
                })
            })
            .collect();
        let results: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        stop.store(true, Ordering::Relaxed);
        for result in results {
            result.expect("a writer").unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
    });
}

#[test]
fn a_copy_that_is_read_wrong_is_never_mended_with_old_bytes() {
    let seeds = std::env::var("BUTTERY_SIM_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1) * 3;
    for seed in 0..seeds {
        let flaky = Arc::new(Flaky {
            inner: MemDevice::new("flaky", 2 << 30),
            first_copies: RwLock::default(),
            reads: 0.into(),
            wrong: 0.into(),
        });
        let device: Arc<dyn Device> = flaky.clone();
        make(&device, &MkfsOptions { data: Profile::Dup, ..image::spread(seed) }).expect("mkfs");
        let options = buttery::Options { cache_bytes: 1 << 20, ..image::quiet() };
        let fs = Filesystem::open_devices_writable(vec![device.clone()], &options).expect("open");
        work(&fs, &flaky, seed);
        flaky.rest();
        assert!(flaky.wrong.load(Ordering::Relaxed) > 100, "the device was hardly ever wrong");
        // the judges take counters for damage
        fs.engine().reset_device_stats().expect("counters");
        fs.close().expect("close");
        if need(&[Need::Program("btrfs"), Need::KernelBtrfs]).is_none() {
            return;
        }
        let dir = TempDir::new("flaky").expect("a folder");
        let file = dir.join("image");
        image::dump(&*device, &file);
        btrfs_check_data(&file).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let mount = KernelMount::one(&file, "").expect("the kernel mounts it");
        kernel_scrub(mount.path()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        mount.unmount().expect("unmount");
    }
}
