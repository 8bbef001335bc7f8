//! A mirror that fails while it is written to: the others go on, and everything that was said to be on the device is.

use buttery::Filesystem;
use buttery_device::{Device, MemDevice};
use buttery_judge::check::btrfs_check_devices;
use buttery_judge::{Need, TempDir, need};
use buttery_mkfs::{MkfsOptions, Profile};
use buttery_sim::{Sim, Weights, image, several};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What fails, once it is let loose.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// Every write.
    Writes,
    /// One write of three.
    SomeWrites,
    Flushes,
    /// Writes of everything but the superblock.
    Blocks,
    /// Writes of the superblock only.
    Superblocks,
    /// It is gone: reads too.
    All,
}

struct Failing {
    inner: Arc<MemDevice>,
    how: How,
    loose: AtomicBool,
    writes: AtomicU64,
    failed: AtomicU64,
}

impl Failing {
    fn fails(&self, wanted: bool) -> io::Result<()> {
        if wanted && self.loose.load(Ordering::Relaxed) {
            self.failed.fetch_add(1, Ordering::Relaxed);
            return Err(io::Error::other("it fails"));
        }
        Ok(())
    }
}

impl Device for Failing {
    fn name(&self) -> &str {
        "failing"
    }

    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.fails(self.how == How::All)?;
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let n = self.writes.fetch_add(1, Ordering::Relaxed);
        self.fails(match self.how {
            How::All | How::Writes => true,
            How::SomeWrites => n.is_multiple_of(3),
            How::Blocks => !buttery_disk::superblock::OFFSETS.contains(&offset),
            How::Superblocks => buttery_disk::superblock::OFFSETS.contains(&offset),
            How::Flushes => false,
        })?;
        self.inner.write_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.fails(matches!(self.how, How::All | How::Flushes))
    }

    fn discard(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

fn open(devices: Vec<Arc<dyn Device>>, more: &str) -> Filesystem {
    Filesystem::open_devices_writable(devices, &several::options(more))
        .unwrap_or_else(|e| panic!("open with {more:?}: {e}"))
}

/// One device of `n` fails in the midst; then it is left out, and then it is back, well again.
fn fails(profile: Profile, n: usize, bad: usize, how: How, seed: u64) -> Result<(), String> {
    let options = MkfsOptions { data: profile, metadata: profile, ..image::spread(seed) };
    let memory = several::in_memory(&vec![512 << 20; n], &options);
    let failing = Arc::new(Failing {
        inner: memory[bad].clone(),
        how,
        loose: false.into(),
        writes: 0.into(),
        failed: 0.into(),
    });
    let plain = |n: usize| memory[n].clone() as Arc<dyn Device>;
    let some = |n: usize| if n == bad { failing.clone() as Arc<dyn Device> } else { plain(n) };
    let fs = open((0..n).map(some).collect(), "");
    let mut sim = Sim::new(&fs, fs.root(), seed, Weights { flags: false, ..Weights::default() })?;
    for step in 0..400 {
        failing.loose.store(step >= 200, Ordering::Relaxed);
        sim.step(&fs)?;
    }
    sim.compare(&fs)?;
    fs.close().map_err(|e| e.to_string())?;
    if failing.failed.load(Ordering::Relaxed) == 0 {
        return Err("it never failed".into());
    }
    // everything is on the others
    let rest = || (0..n).filter(|&n| n != bad);
    let fs = open(rest().map(plain).collect(), "degraded");
    sim.compare(&fs).map_err(|e| format!("without it: {e}"))?;
    fs.close().map_err(|e| e.to_string())?;
    // and it is not believed when it is back
    let fs = open((0..n).map(plain).collect(), "");
    if fs.engine().volume().stale() != [bad as u64 + 1] {
        return Err("it is taken for current".into());
    }
    sim.compare(&fs).map_err(|e| format!("back: {e}"))?;
    (0..100).try_for_each(|_| sim.step(&fs))?;
    sim.compare(&fs).map_err(|e| format!("back, and gone on: {e}"))?;
    fs.close().map_err(|e| e.to_string())?;
    if need(&[Need::Program("btrfs"), Need::KernelBtrfs]).is_none() {
        return Ok(());
    }
    let dir = TempDir::new("failing").map_err(|e| e.to_string())?;
    let files = several::files(&dir, &vec![512 << 20; n - 1]);
    for (file, n) in files.iter().zip(rest()) {
        image::dump(&*memory[n], file);
    }
    btrfs_check_devices(&files, true)
}

#[test]
fn the_others_go_on() {
    let hows = [How::Writes, How::SomeWrites, How::Blocks, How::Flushes, How::Superblocks, How::All];
    let mut seed = 0;
    for (profile, n) in
        [(Profile::Raid1, 2), (Profile::Raid1c3, 3), (Profile::Raid10, 4), (Profile::Raid1c4, 4)]
    {
        for how in hows {
            let bad = seed as usize % n;
            fails(profile, n, bad, how, seed)
                .unwrap_or_else(|e| panic!("{profile:?}, device {} fails {how:?}: {e}", bad + 1));
            seed += 1;
        }
    }
}

/// Without a second copy, what fails is told to the writer and nothing goes on as if it had not.
#[test]
fn a_stripe_that_fails_ends_writing() {
    for how in [How::Writes, How::Flushes, How::All] {
        let options = MkfsOptions { data: Profile::Raid0, metadata: Profile::Raid0, ..image::spread(1) };
        let memory = several::in_memory(&[512 << 20; 2], &options);
        let failing = Arc::new(Failing {
            inner: memory[1].clone(),
            how,
            loose: false.into(),
            writes: 0.into(),
            failed: 0.into(),
        });
        let devices: Vec<Arc<dyn Device>> = vec![memory[0].clone(), failing.clone()];
        let fs = open(devices, "");
        let file = fs.create(fs.root(), b"file", buttery::NewNode::file(0o644)).expect("a file");
        fs.sync().expect("a commit");
        failing.loose.store(true, Ordering::Relaxed);
        let result = fs.write(file, 0, &vec![7; 1 << 20]).and_then(|_| fs.sync());
        assert!(result.is_err(), "{how:?}: it was said to be written");
    }
}
