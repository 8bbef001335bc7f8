//! One of the threads: random operations on files, each of them done to bytes in memory too.

use buttery::{Fallocate, FileId, Filesystem, NewNode};
use buttery_disk::inode::flags;
use buttery_judge::workload::rng::Rng;
use buttery_judge::workload::{Data, Fill};

pub const BLOCK: u64 = 4096;
pub const THREADS: u64 = 8;
/// How many stripes of each shared file every thread has.
pub const STRIPES: u64 = 12;
const STEPS: u64 = 2500;
/// How long a thread's own files become.
const OWN_MAX: u64 = 400_000;

/// A file, and what a thread knows of it.
#[derive(Clone)]
pub struct File {
    pub path: String,
    pub id: FileId,
    pub nocow: bool,
    pub bytes: Vec<u8>,
    /// Of a shared file, how long a stripe is: they go round the threads.
    pub stripe: Option<u64>,
}

/// What one thread works in.
pub struct Worker<'a> {
    pub fs: &'a Filesystem,
    pub thread: u64,
    pub rng: Rng,
    pub dir: FileId,
    /// Its own files, and then those that all threads share.
    pub files: Vec<File>,
    /// Files in snapshots.
    pub old: &'a [File],
}

pub fn create(fs: &Filesystem, dir: FileId, name: &str, nocow: bool) -> buttery::Result<FileId> {
    let id = fs.create(dir, name.as_bytes(), NewNode::file(0o644))?;
    if nocow {
        let bits = flags::NODATACOW | flags::NODATASUM;
        fs.set_flags(id, bits, bits)?;
    }
    Ok(id)
}

fn down(n: u64) -> u64 {
    n / BLOCK * BLOCK
}

impl Worker<'_> {
    pub fn run(mut self) -> Result<Vec<File>, String> {
        for step in 0..STEPS {
            let at = self.rng.below(self.files.len() as u64) as usize;
            let done = self.step(at);
            let File { path, nocow, .. } = &self.files[at];
            done.map_err(|e| {
                let why = self.fs.engine().abort_reason().unwrap_or_default();
                format!("thread {}, step {step}, {path}, nocow {nocow}: {e} {why}", self.thread)
            })?;
        }
        Ok(self.files)
    }

    fn step(&mut self, at: usize) -> Result<(), String> {
        let text = |what: &'static str| move |e: buttery::Error| format!("{what}: {e:?}");
        let own = self.files[at].stripe.is_none();
        match self.rng.below(24) {
            0..8 => self.write(at).map_err(text("write")),
            8..11 => self.fallocate(at).map_err(text("fallocate")),
            11..15 => self.clone(at).map_err(text("clone")),
            15 if own => self.truncate(at).map_err(text("truncate")),
            16 if own && self.rng.one_in(3) => self.make_anew(at).map_err(text("make anew")),
            17 if self.rng.one_in(3) => self.fs.sync().map_err(text("sync")),
            _ => self.compare(at),
        }
    }

    /// Where the thread may work in a file: all of it, or one of its stripes.
    fn area(&mut self, at: usize) -> (u64, u64) {
        match self.files[at].stripe {
            None => (0, OWN_MAX),
            Some(len) => {
                let start = (self.rng.below(STRIPES) * THREADS + self.thread) * len;
                (start, start + len)
            }
        }
    }

    /// Somewhere in there: whole blocks, or anything.
    fn range(&mut self, at: usize) -> (u64, u64) {
        let (start, end) = self.area(at);
        let from = start + self.rng.below(end - start);
        let to = (from + 1 + self.rng.size(100_000)).min(end);
        let (low, high) = (down(from), to.next_multiple_of(BLOCK));
        if self.rng.one_in(2) && low >= start && high <= end { (low, high) } else { (from, to) }
    }

    fn write(&mut self, at: usize) -> buttery::Result<()> {
        let (from, to) = self.range(at);
        let fill = *self.rng.pick(&[Fill::Random, Fill::Text]).unwrap_or(&Fill::Text);
        let data = Data::new(fill, self.rng.next(), (to - from) as usize).bytes();
        let file = &mut self.files[at];
        // at once, or in pieces that are gathered
        let piece = if self.rng.one_in(2) { data.len() } else { 500 + self.rng.size(6000) as usize };
        for (n, part) in data.chunks(piece).enumerate() {
            self.fs.write(file.id, from + (n * piece) as u64, part)?;
        }
        grow(&mut file.bytes, to)[from as usize..to as usize].copy_from_slice(&data);
        Ok(())
    }

    fn fallocate(&mut self, at: usize) -> buttery::Result<()> {
        let (from, to) = self.range(at);
        let all = [Fallocate::Allocate, Fallocate::PunchHole, Fallocate::ZeroRange];
        let what = *self.rng.pick(&all).unwrap_or(&Fallocate::Allocate);
        let keep_size = what == Fallocate::PunchHole || self.rng.one_in(2);
        let file = &mut self.files[at];
        self.fs.fallocate(file.id, what, from, to - from, keep_size)?;
        if !keep_size {
            grow(&mut file.bytes, to);
        }
        if what != Fallocate::Allocate {
            let size = file.bytes.len();
            file.bytes[size.min(from as usize)..size.min(to as usize)].fill(0);
        }
        Ok(())
    }

    /// Shares blocks of one file with another: of this thread's, or of a snapshot.
    fn clone(&mut self, at: usize) -> buttery::Result<()> {
        let (start, end) = self.area(at);
        let to = start.next_multiple_of(BLOCK) + down(self.rng.below(end - start));
        let other = if self.rng.one_in(3) && !self.old.is_empty() {
            self.old[self.rng.below(self.old.len() as u64) as usize].clone()
        } else {
            self.files[self.rng.below(self.files.len() as u64) as usize].clone()
        };
        // within one file, or with checksums on one side only, is refused or another matter
        if other.id == self.files[at].id || other.nocow != self.files[at].nocow || to >= end {
            return Ok(());
        }
        let (first, last) = match other.stripe {
            Some(len) => {
                let start = (self.rng.below(STRIPES) * THREADS + self.thread) * len;
                (start.next_multiple_of(BLOCK), start + len)
            }
            None => (0, other.bytes.len() as u64),
        };
        let last = last.min(other.bytes.len() as u64);
        let from = first + down(self.rng.below(last.saturating_sub(first) + 1));
        let most = down(self.rng.size(100_000) + BLOCK);
        let len = most.min(down(last.saturating_sub(from))).min(down(end - to));
        if len == 0 {
            return Ok(());
        }
        let file = &mut self.files[at];
        self.fs.clone_range(other.id, from, file.id, to, len)?;
        grow(&mut file.bytes, to + len)[to as usize..(to + len) as usize]
            .copy_from_slice(&other.bytes[from as usize..(from + len) as usize]);
        Ok(())
    }

    fn truncate(&mut self, at: usize) -> buttery::Result<()> {
        let size = self.rng.below(OWN_MAX);
        self.fs.truncate(self.files[at].id, size)?;
        self.files[at].bytes.resize(size as usize, 0);
        Ok(())
    }

    /// Removes a file, and makes another of the same name.
    fn make_anew(&mut self, at: usize) -> buttery::Result<()> {
        let file = &mut self.files[at];
        let name = file.path.rsplit('/').next().unwrap_or_default();
        self.fs.unlink(self.dir, name.as_bytes())?;
        file.id = create(self.fs, self.dir, name, file.nocow)?;
        file.bytes.clear();
        Ok(())
    }

    fn compare(&mut self, at: usize) -> Result<(), String> {
        let (from, to) = self.range(at);
        let file = &self.files[at];
        let (from, to) = (from.min(file.bytes.len() as u64), to.min(file.bytes.len() as u64));
        let mut found = vec![0xEE; (to - from) as usize];
        let count = self.fs.read(file.id, from, &mut found).map_err(|e| format!("read: {e:?}"))?;
        let expected = &file.bytes[from as usize..to as usize];
        if count == found.len() && found == expected {
            return Ok(());
        }
        let differs = found.iter().zip(expected).position(|(a, b)| a != b);
        Err(format!("a read of {from}..{to} gives {count} bytes and differs at {differs:?}"))
    }
}

fn grow(bytes: &mut Vec<u8>, to: u64) -> &mut [u8] {
    bytes.resize(bytes.len().max(to as usize), 0);
    bytes
}
