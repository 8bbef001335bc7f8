//! A snapshot that is taken while eight threads write is a moment that existed: what it shows of each thread is what
//! there was after so many of its operations, and there is a time at which all of these had begun and none of the
//! others had ended. It is the same when it was just taken, later, when opened again, and for the kernel.
//!
//! Every operation is one call that the library does in one piece: what is written lies within a sector or is whole
//! sectors, and files become shorter at sectors' ends only.

use buttery::{DirEntry, Fallocate, FileId, Filesystem, NewNode, RenameMode, TreeId, attr};
use buttery_judge::check::{btrfs_check_data, kernel_scrub};
use buttery_judge::workload::rng::Rng;
use buttery_judge::{KernelMount, Need, TempDir, need};
use buttery_sim::image;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const LEN: u64 = 4 << 30;
const KINDS: u64 = 8;
/// The directory of each thread.
const DIRS: [&str; KINDS as usize] = ["nocow", "direct", "space", "log", "packed", "cow", "names", "mix"];
const SNAPSHOTS: usize = 12;
const BLOCK: u64 = 4096;

/// One call.
enum Op {
    Create(String, u32),
    Write { name: String, at: u64, data: Vec<u8>, direct: bool },
    Truncate(String, u64),
    Allocate { name: String, len: u64, keep: bool },
    Rename(String, String),
    Unlink(String),
}

/// Bytes that only operation `n` writes.
fn stamp(n: u64, len: u64) -> Vec<u8> {
    (0..len / 8).flat_map(|at| ((n << 16) + at % 251).to_le_bytes()).collect()
}

fn write(name: &str, at: u64, n: u64, len: u64, direct: bool) -> Op {
    Op::Write { name: name.into(), at, data: stamp(n, len), direct }
}

/// What is done before the threads begin.
fn begin(kind: u64) -> Vec<Op> {
    let create = |name: &str, flags| Op::Create(name.into(), flags);
    match kind {
        0 => vec![create("nocow", attr::NOCOW), write("nocow", 0, 0, 512 << 10, false)],
        1 => vec![create("direct", attr::NOCOW), write("direct", 0, 0, 64 << 10, false)],
        2 => vec![create("space-0", 0)],
        3 | 4 => vec![create("log-0", 0)],
        5 => vec![create("cow", 0), write("cow", 0, 0, 512 << 10, false)],
        6 => ["a-0", "a-1", "a-2", "b-0", "b-1", "b-2", "b-3", "b-4", "b-5"].map(|n| create(n, 0)).into(),
        _ => vec![create("mix", 0)],
    }
}

/// Operation `n`, from 1 on, of the thread of this kind.
fn op(kind: u64, n: u64) -> Op {
    match kind {
        // in place; no write begins where the last one ended, or it would be gathered
        0 => write("nocow", n * 7 % 16 * (32 << 10), n, 32 << 10, false),
        1 => write("direct", n * 5 % 16 * BLOCK, n, BLOCK, true),
        2 => preallocated(n - 1),
        3 => log(n - 1, 128, 0),
        4 => log(n - 1, 256, attr::COMPRESS),
        5 => write("cow", n * 13 % 104 * BLOCK, n, 96 << 10, false),
        6 => names(n - 1),
        _ => mix(n),
    }
}

/// Of each file, space first, then data into it, then over these.
fn preallocated(n: u64) -> Op {
    const BLOCKS: u64 = 12;
    const BYTES: u64 = 4 * BLOCK;
    let (file, step) = (n / (2 * BLOCKS + 3), n % (2 * BLOCKS + 3));
    let name = format!("space-{}", file + 1);
    match step {
        0 => Op::Create(name, 0),
        1 => Op::Allocate { name, len: BLOCKS * BYTES, keep: file % 2 == 1 },
        26 => Op::Unlink(format!("space-{file}")),
        // one that is written directly keeps the next one from being gathered
        _ => write(&name, (step - 2) % BLOCKS * BYTES, n, BYTES, step % 2 == 1),
    }
}

/// Small writes, each behind the last: these are gathered in memory.
fn log(n: u64, bytes: u64, flags: u32) -> Op {
    const PIECES: u64 = 1000;
    let (file, step) = (n / (PIECES + 2), n % (PIECES + 2));
    let name = format!("log-{}", file + 1);
    match step {
        0 => Op::Create(name, flags),
        _ if step > PIECES => Op::Unlink(format!("log-{file}")),
        _ => write(&name, (step - 1) * bytes, n, bytes, false),
    }
}

fn names(n: u64) -> Op {
    let at = n / 3;
    match n % 3 {
        0 => Op::Create(format!("a-{}", at + 3), 0),
        1 => Op::Rename(format!("a-{at}"), format!("b-{}", at + 6)),
        _ => Op::Unlink(format!("b-{at}")),
    }
}

/// The first sector tells each state from all others.
fn mix(n: u64) -> Op {
    match n % 4 {
        0 => write("mix", 304, n, 104, false),
        1 => Op::Truncate("mix".into(), (1 + n % 37) * BLOCK),
        2 => write("mix", (1 + n * 5 % 37) * BLOCK, n, 2 * BLOCK, false),
        _ => Op::Truncate("mix".into(), 64 * BLOCK + n % BLOCK),
    }
}

/// When each operation began and ended.
type Ledger = Vec<(u64, u64)>;
type Files = BTreeMap<String, Vec<u8>>;

/// A thread's files after so many of its operations.
#[derive(Clone)]
struct Model {
    kind: u64,
    done: usize,
    files: Files,
}

impl Model {
    fn new(kind: u64) -> Model {
        let mut model = Model { kind, done: 0, files: Files::new() };
        begin(kind).into_iter().for_each(|op| model.apply(op));
        model
    }

    fn file(&mut self, name: &str) -> &mut Vec<u8> {
        self.files.get_mut(name).unwrap_or_else(|| panic!("no {name}"))
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Create(name, _) => drop(self.files.insert(name, Vec::new())),
            Op::Unlink(name) => drop(self.files.remove(&name)),
            Op::Truncate(name, size) => self.file(&name).resize(size as usize, 0),
            Op::Write { name, at, data, .. } => {
                let (file, at) = (self.file(&name), at as usize);
                file.resize(file.len().max(at + data.len()), 0);
                file[at..at + data.len()].copy_from_slice(&data);
            }
            Op::Allocate { keep: true, .. } => (),
            Op::Allocate { name, len, .. } => self.file(&name).resize(len as usize, 0),
            Op::Rename(from, to) => {
                let file = self.files.remove(&from).expect("the old name");
                self.files.insert(to, file);
            }
        }
    }

    fn advance(&mut self) {
        self.done += 1;
        self.apply(op(self.kind, self.done as u64));
    }
}

/// One thread: its directory, and the files there.
struct Worker<'a> {
    fs: &'a Filesystem,
    kind: u64,
    dir: FileId,
    ids: HashMap<String, FileId>,
}

impl<'a> Worker<'a> {
    fn new(fs: &'a Filesystem, top: FileId, kind: u64) -> Worker<'a> {
        let name = DIRS[kind as usize].as_bytes();
        let dir = fs.create(top, name, NewNode::directory(0o755)).expect("a directory");
        let mut worker = Worker { fs, kind, dir, ids: HashMap::new() };
        begin(kind).into_iter().for_each(|op| worker.perform(op).expect("the beginning"));
        worker
    }

    fn perform(&mut self, op: Op) -> buttery::Result<()> {
        let (fs, dir, ids) = (self.fs, self.dir, &mut self.ids);
        match op {
            Op::Create(name, flags) => {
                let id = fs.create(dir, name.as_bytes(), NewNode::file(0o644))?;
                ids.insert(name, id);
                if flags == 0 { Ok(()) } else { fs.set_attr_flags(id, flags) }
            }
            Op::Write { name, at, data, direct: false } => fs.write(ids[&name], at, &data),
            Op::Write { name, at, data, direct: true } => fs.write_direct(ids[&name], at, &data),
            Op::Truncate(name, size) => fs.truncate(ids[&name], size),
            Op::Allocate { name, len, keep } => fs.fallocate(ids[&name], Fallocate::Allocate, 0, len, keep),
            Op::Rename(a, b) => fs.rename(dir, a.as_bytes(), dir, b.as_bytes(), RenameMode::NoReplace),
            Op::Unlink(name) => {
                ids.remove(&name);
                fs.unlink(dir, name.as_bytes())
            }
        }
    }

    /// Works until told to stop.
    fn run(mut self, clock: &AtomicU64, stop: &AtomicBool) -> Ledger {
        let mut ledger = Ledger::new();
        while !stop.load(Ordering::Relaxed) {
            let (n, kind) = (ledger.len() as u64 + 1, self.kind);
            let (op, start) = (op(kind, n), ticket(clock));
            self.perform(op).unwrap_or_else(|e| panic!("kind {kind}, operation {n}: {e:?}"));
            ledger.push((start, ticket(clock)));
            if kind == 5 {
                // what is left of space that is used up lies in pieces, and so would be what is written
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        ledger
    }
}

/// A number for what happens now: later than those that were given before.
fn ticket(clock: &AtomicU64) -> u64 {
    clock.fetch_add(1, Ordering::SeqCst)
}

/// All files of each thread in a subvolume.
fn seen(fs: &Filesystem, id: TreeId) -> Vec<Files> {
    let of = |name: &&str| {
        let dir = fs.lookup(FileId::top_of(id), name.as_bytes()).expect("a directory");
        let file = |entry: DirEntry| {
            let file = fs.lookup(dir, &entry.name).expect("a file");
            let mut bytes = vec![0; fs.stat(file).expect("a stat").size as usize];
            assert_eq!(fs.read(file, 0, &mut bytes).expect("a read"), bytes.len());
            (String::from_utf8_lossy(&entry.name).into_owned(), bytes)
        };
        fs.entries(dir).expect("entries").into_iter().map(file).collect()
    };
    DIRS.iter().map(of).collect()
}

/// The same for the kernel.
fn shown(top: &Path) -> Vec<Files> {
    let of = |name| {
        let entries = std::fs::read_dir(top.join(name)).expect("a directory");
        let file = |entry: std::io::Result<std::fs::DirEntry>| {
            let entry = entry.expect("an entry");
            let bytes = std::fs::read(entry.path()).expect("a file");
            (entry.file_name().to_string_lossy().into_owned(), bytes)
        };
        entries.map(file).collect()
    };
    DIRS.iter().map(of).collect()
}

/// A snapshot, or the source itself in the end.
struct Shot {
    name: String,
    id: TreeId,
    begin: u64,
    end: u64,
    was: Vec<Files>,
}

/// Where two states differ first.
fn difference(expected: &Files, found: &Files) -> Option<String> {
    let differs = |name: &&String| expected.get(*name) != found.get(*name);
    let name = expected.keys().chain(found.keys()).find(differs)?;
    let (Some(a), Some(b)) = (expected.get(name), found.get(name)) else {
        return Some(format!("{name} is there: {}", found.contains_key(name)));
    };
    let at = a.iter().zip(b).position(|(a, b)| a != b);
    Some(format!("{name}: {} bytes, {} expected, differ at {at:?}", b.len(), a.len()))
}

impl Shot {
    /// After how many operations a thread's files were as they are here, at least and at most: one that changes no
    /// contents may be there or not. The model is of a time before the snapshot.
    fn count(&self, model: &mut Model, ledger: &Ledger) -> Result<(usize, usize), String> {
        let was = &self.was[model.kind as usize];
        // without what had ended before it cannot be, and what began after it cannot be there
        let least = ledger.partition_point(|op| op.1 < self.begin);
        let most = ledger.partition_point(|op| op.0 < self.end);
        (model.done..least).for_each(|_| model.advance());
        let (mut ahead, mut same) = (model.clone(), Vec::new());
        for count in least..=most {
            same.extend((ahead.files == *was).then_some(count));
            ahead.advance();
        }
        let none = || {
            let mut any = Model::new(model.kind);
            while any.files != *was && any.done < ledger.len() {
                any.advance();
            }
            let ever = (any.files == *was).then_some(any.done);
            let first = difference(&model.files, was);
            format!("{least} to {most} operations were done, it was so after {ever:?}; {first:?}")
        };
        Ok((*same.first().ok_or_else(none)?, *same.last().ok_or_else(none)?))
    }
}

/// All are as they were when they were taken.
fn check_still(shots: &[Shot], when: &str, see: impl Fn(&Shot) -> Vec<Files>) {
    for shot in shots {
        for (kind, (was, is)) in shot.was.iter().zip(see(shot)).enumerate() {
            let what = difference(was, &is);
            assert!(what.is_none(), "{when}: {}: thread {kind}: {what:?}", shot.name);
        }
    }
}

/// Each of the snapshots, in the order in which they were taken, is a moment.
fn check_moments(seed: u64, shots: &[Shot], ledgers: &[Ledger]) {
    let mut models: Vec<Model> = (0..KINDS).map(Model::new).collect();
    for shot @ Shot { name, begin, end, .. } in shots {
        let (mut begun, mut ended) = ((0, 0), (u64::MAX, 0));
        for (model, ledger) in models.iter_mut().zip(ledgers) {
            let kind = model.kind;
            let count = shot.count(model, ledger);
            let (first, last) = count.unwrap_or_else(|e| panic!("seed {seed}: {name}: thread {kind}: {e}"));
            begun = begun.max((first.checked_sub(1).map_or(0, |n| ledger[n].0), kind));
            ended = ended.min((ledger.get(last).map_or(u64::MAX, |op| op.1), kind));
        }
        // time and thread
        let what = format!("what began at {begun:?} is there, what ended at {ended:?} is not");
        assert!(begun.0 < ended.0, "seed {seed}: {name}, of {begin} to {end}: {what}");
    }
}

/// Everybody works while snapshots are taken.
fn take(fs: &Filesystem, source: TreeId, seed: u64) -> (Vec<Shot>, Vec<Ledger>) {
    let (clock, stop) = (&AtomicU64::new(0), &AtomicBool::new(false));
    let workers: Vec<_> = (0..KINDS).map(|kind| Worker::new(fs, FileId::top_of(source), kind)).collect();
    fs.sync().expect("a commit");
    std::thread::scope(|scope| {
        let running: Vec<_> =
            workers.into_iter().map(|worker| scope.spawn(move || worker.run(clock, stop))).collect();
        if seed % 2 == 1 {
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    fs.sync().expect("a commit");
                    std::thread::sleep(Duration::from_millis(11));
                }
            });
        }
        let mut rng = Rng::new(seed);
        let shoot = move |n| {
            std::thread::sleep(Duration::from_millis(rng.below(40)));
            let (name, begin) = (format!("snapshot-{n}"), ticket(clock));
            let id = fs.snapshot(source, fs.root(), name.as_bytes(), n % 2 == 0).expect("a snapshot");
            let end = ticket(clock);
            Shot { name, id, begin, end, was: seen(fs, id) }
        };
        // in a thread too, so that the others end when this one fails
        let shots = scope.spawn(move || (0..SNAPSHOTS).map(shoot).collect()).join();
        stop.store(true, Ordering::Relaxed);
        (
            shots.expect("no panic"),
            running.into_iter().map(|thread| thread.join().expect("no panic")).collect(),
        )
    })
}

fn round(seed: u64) {
    let dir = TempDir::new("snapshot-moment").expect("a folder");
    let path = dir.join("image");
    image::in_file(&path, LEN, &image::spread(seed));
    let options = if seed % 3 == 2 { image::quiet_compressed(seed) } else { image::quiet() };
    let fs = Filesystem::open_writable(&[&path], &options).expect("open");
    let work = fs.create_subvolume(fs.root(), b"work", 0, 0).expect("a subvolume");
    // of the top level, the snapshot's name lies in what it is taken of
    let (source, name) = if seed % 2 == 1 { (fs.root().tree, ".") } else { (work, "work") };
    let (mut shots, ledgers) = take(&fs, source, seed);
    check_still(&shots, &format!("seed {seed}, in the end"), |shot| seen(&fs, shot.id));
    // what the threads left is after all of their operations
    let (name, end) = (name.to_string(), u64::MAX);
    shots.push(Shot { name, id: source, begin: end, end, was: seen(&fs, source) });
    check_moments(seed, &shots, &ledgers);
    fs.close().expect("close");
    btrfs_check_data(&path).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let fs = Filesystem::open_writable(&[&path], &options).expect("open");
    check_still(&shots, &format!("seed {seed}, opened again"), |shot| seen(&fs, shot.id));
    fs.close().expect("close");
    let mount = KernelMount::one(&path, "").expect("the kernel mounts it");
    check_still(&shots, &format!("seed {seed}, the kernel"), |shot| shown(&mount.path().join(&shot.name)));
    kernel_scrub(mount.path()).expect("a clean scrub");
    mount.unmount_without_complaints().expect("a silent kernel");
    println!("seed {seed}: operations {:?}", ledgers.iter().map(Vec::len).collect::<Vec<_>>());
}

/// Some of them, or the one that `BUTTERY_SIM_SEED` names.
#[test]
fn what_it_shows_was_there_at_one_time() {
    let Some(()) = need(&[Need::KernelBtrfs, Need::Program("btrfs")]) else { return };
    match std::env::var("BUTTERY_SIM_SEED") {
        Ok(text) => round(text.parse().unwrap_or_else(|e| panic!("BUTTERY_SIM_SEED={text}: {e}"))),
        Err(_) => (0..5).for_each(round),
    }
}
