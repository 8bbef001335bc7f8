//! Eight threads work in one file system, in files of their own and in files that they share. Between the phases the
//! kernel takes snapshots of all of it.
//!
//! Every read gives what the thread's model holds; `btrfs check` and the kernel's scrub find no fault after any phase;
//! and in the end each snapshot holds what there was when it was taken, for us and for the kernel.

mod worker;

use buttery::{Fallocate, FileId, Filesystem, NewNode, Options};
use buttery_judge::check::{btrfs_check_data, kernel_scrub};
use buttery_judge::guard::run;
use buttery_judge::workload::rng::Rng;
use buttery_judge::{ContentHasher, Fact, KernelMount, Kind, Need, TempDir, need, walk};
use buttery_sim::{facts, image};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use worker::{File, STRIPES, THREADS, Worker, create};

const PHASES: u64 = 3;
/// Files that each thread has to itself: every second one is NOCOW.
const OWN: u64 = 6;
/// The subvolume in which all work is done.
const WORK: &str = "work";
/// Files that all share, NOCOW or not, and how long a thread's stripe of them is.
const SHARED: [(&str, bool, u64); 4] = [
    ("blocks", false, 32 << 10),
    ("blocks-nocow", true, 32 << 10),
    // these meet within blocks
    ("ragged", false, 10_000),
    ("ragged-nocow", true, 10_000),
];

/// Path, size and hash of every file.
type State = BTreeMap<Vec<u8>, (u64, u128)>;

fn open(path: &Path, seed: u64) -> Filesystem {
    // times change at every write, as they do in life
    let options = Options { clock: None, ..image::quiet_compressed(seed) };
    Filesystem::open_writable(&[path], &options).unwrap_or_else(|e| panic!("open: {e}"))
}

/// The files of each thread, all but the shared ones empty.
fn begin(fs: &Filesystem) -> buttery::Result<Vec<Vec<File>>> {
    let work = FileId::top_of(fs.create_subvolume(fs.root(), WORK.as_bytes(), 0, 0)?);
    let mut shared = Vec::new();
    for (name, nocow, stripe) in SHARED {
        let id = create(fs, work, name, nocow)?;
        let bytes = vec![0; (stripe * STRIPES * THREADS) as usize];
        fs.write(id, 0, &bytes[..bytes.len() / 2])?;
        fs.fallocate(id, Fallocate::Allocate, 0, bytes.len() as u64, false)?;
        shared.push(File { path: name.into(), id, nocow, bytes, stripe: Some(stripe) });
    }
    let mut threads = Vec::new();
    for thread in 0..THREADS {
        let dir = format!("thread-{thread}");
        let id = fs.create(work, dir.as_bytes(), NewNode::directory(0o755))?;
        let mut files = Vec::new();
        for n in 0..OWN {
            let (name, nocow) = (format!("file-{n}"), n % 2 == 1);
            let id = create(fs, id, &name, nocow)?;
            files.push(File { path: format!("{dir}/{name}"), id, nocow, bytes: Vec::new(), stripe: None });
        }
        files.extend_from_slice(&shared);
        threads.push(files);
    }
    Ok(threads)
}

/// All threads at once.
fn phase(
    fs: &Filesystem,
    threads: Vec<Vec<File>>,
    old: &[File],
    seed: u64,
) -> Result<Vec<Vec<File>>, String> {
    let work = fs.lookup(fs.root(), WORK.as_bytes()).map_err(|e| e.to_string())?;
    std::thread::scope(|scope| {
        let start = |(thread, files): (usize, Vec<File>)| {
            let (thread, rng) = (thread as u64, Rng::new(seed * THREADS + thread as u64));
            scope.spawn(move || {
                let name = format!("thread-{thread}");
                let dir = fs.lookup(work, name.as_bytes()).map_err(|e| e.to_string())?;
                Worker { fs, thread, rng, dir, files, old }.run()
            })
        };
        let running: Vec<_> = threads.into_iter().enumerate().map(start).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Every file as it is when all threads are done: of a shared one, each stripe as its thread knows it.
fn whole(threads: &[Vec<File>]) -> Vec<File> {
    let mut all: Vec<File> = threads.iter().flatten().filter(|f| f.stripe.is_none()).cloned().collect();
    for (n, shared) in threads[0].iter().enumerate().skip(OWN as usize) {
        let mut file = shared.clone();
        let stripe = file.stripe.take().expect("a shared file") as usize;
        for (at, part) in file.bytes.chunks_mut(stripe).enumerate() {
            part.copy_from_slice(&threads[at % THREADS as usize][n].bytes[at * stripe..][..part.len()]);
        }
        all.push(file);
    }
    all
}

fn state(files: &[File]) -> State {
    let summary = |bytes: &[u8]| {
        let mut hasher = ContentHasher::new();
        hasher.update(0, bytes);
        (bytes.len() as u64, hasher.finish(bytes.len() as u64))
    };
    files.iter().map(|f| (f.path.clone().into_bytes(), summary(&f.bytes))).collect()
}

/// The same of what somebody tells.
fn told(facts: &[Fact]) -> State {
    let files = facts.iter().filter(|f| f.kind == Kind::File);
    files.map(|f| (f.path.clone(), (f.size, f.content.unwrap_or_default()))).collect()
}

fn same(expected: &State, found: &[Fact]) -> Result<(), String> {
    let found = told(found);
    let name = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    for (path, summary) in expected {
        if found.get(path) != Some(summary) {
            return Err(format!("{} is not as it was: {summary:?}, {:?}", name(path), found.get(path)));
        }
    }
    if found.len() == expected.len() { Ok(()) } else { Err(format!("{} files", found.len())) }
}

/// What we see in a subvolume.
fn seen(fs: &Filesystem, name: &str) -> Result<Vec<Fact>, String> {
    let top = fs.lookup(fs.root(), name.as_bytes()).map_err(|e| e.to_string())?;
    facts::walk_from(fs, top)
}

fn text(e: std::io::Error) -> String {
    e.to_string()
}

/// The image is sound, and the kernel finds each subvolume as expected. Then it takes the snapshots.
fn kernel(path: &Path, expected: &BTreeMap<String, State>, snapshots: &[String]) -> Result<(), String> {
    btrfs_check_data(path)?;
    let mount = KernelMount::one(path, "").map_err(text)?;
    for (name, state) in expected {
        let found = walk(&mount.path().join(name)).map_err(text)?;
        same(state, &found).map_err(|e| format!("the kernel: {name}: {e}"))?;
    }
    for name in snapshots {
        let mut command = Command::new("btrfs");
        command.args(["subvolume", "snapshot"]).args(name.starts_with("read-only").then_some("-r"));
        run(command.arg(mount.path().join(WORK)).arg(mount.path().join(name))).map_err(text)?;
    }
    kernel_scrub(mount.path())?;
    mount.unmount_without_complaints().map_err(text)
}

fn phases(path: &Path, seed: u64) -> Result<(), String> {
    let mut fs = open(path, seed);
    let mut threads = begin(&fs).map_err(|e| e.to_string())?;
    let (mut expected, mut old) = (BTreeMap::new(), Vec::new());
    for n in 0..PHASES {
        let failed = |e: String| format!("phase {n}: {e}");
        threads = phase(&fs, threads, &old, seed * PHASES + n).map_err(failed)?;
        let files = whole(&threads);
        expected.insert(WORK.to_string(), state(&files));
        let found = seen(&fs, WORK).map_err(failed)?;
        same(&expected[WORK], &found).map_err(failed)?;
        fs.close().map_err(|e| failed(format!("close: {e}")))?;
        let snapshots = [format!("writable-{n}"), format!("read-only-{n}")];
        kernel(path, &expected, &snapshots).map_err(failed)?;
        // what is compressed, and how, changes from phase to phase
        fs = open(path, seed + n + 1);
        for name in snapshots {
            for file in &files {
                let path = format!("/{name}/{}", file.path);
                let id =
                    fs.resolve(fs.root(), path.as_bytes()).map_err(|e| failed(format!("{path}: {e}")))?;
                old.push(File { path, id, ..file.clone() });
            }
            expected.insert(name, state(&files));
        }
        for (name, state) in &expected {
            same(state, &seen(&fs, name)?).map_err(|e| failed(format!("opened again: {name}: {e}")))?;
        }
    }
    fs.close().map_err(|e| format!("close: {e}"))?;
    kernel(path, &expected, &[])
}

/// Two of them, or the one that `BUTTERY_SIM_SEED` names.
fn seeds() -> Vec<u64> {
    match std::env::var("BUTTERY_SIM_SEED") {
        Ok(text) => vec![text.parse().unwrap_or_else(|e| panic!("BUTTERY_SIM_SEED={text}: {e}"))],
        Err(_) => vec![1, 2],
    }
}

#[test]
fn work_beside_each_other_and_beside_snapshots() {
    let Some(()) = need(&[Need::KernelBtrfs, Need::Program("btrfs")]) else { return };
    for seed in seeds() {
        println!("seed {seed}");
        let dir = TempDir::new("eight-threads").expect("a folder");
        let path = dir.join("image");
        image::in_file(&path, 2 << 30, &image::spread(seed));
        phases(&path, seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}
