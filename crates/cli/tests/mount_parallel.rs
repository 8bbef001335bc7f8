//! Many at once: threads that work side by side, with commits in between; and direct I/O beside buffered, compared with
//! a copy in memory.

mod support;

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use buttery_judge::TempDir;
use buttery_judge::workload::random::{Mix, ops};
use buttery_judge::workload::rng::Rng;
use buttery_judge::workload::{self, Data, Fill, Op};
use rustix::fs::OFlags;
use support::mount::{Mount, can_mount_and_judge};
use support::program::buttery;

const THREADS: u64 = 4;
const BLOCK: usize = 4096;

/// Commits as fast as it can until it is told to stop.
fn commit_until(done: &AtomicBool, point: &Path) {
    while !done.load(Ordering::Relaxed) {
        buttery(&["sync".as_ref(), point.as_os_str()]).quiet();
    }
}

#[test]
fn threads_work_side_by_side_while_commits_go_on() {
    let Some(()) = can_mount_and_judge() else { return };
    let dir = TempDir::new("threads").expect("a folder");
    let mount = Mount::create(&dir, "2G");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| commit_until(&done, mount.path()));
        let workers: Vec<_> = (0..THREADS)
            .map(|n| {
                let own = mount.join(format!("thread-{n}"));
                scope.spawn(move || {
                    std::fs::create_dir(&own).expect("a folder");
                    let mix = Mix { subvolumes: false, ..Mix::new(n, 1000) };
                    let list: Vec<Op> = ops(&mix);
                    workload::run(&own, &list)
                })
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(|w| w.join().expect("no panic")).collect();
        done.store(true, Ordering::Relaxed);
        results
            .into_iter()
            .enumerate()
            .for_each(|(n, r)| drop(r.unwrap_or_else(|e| panic!("thread {n}: {e}"))));
    });
    mount.judge();
}

#[test]
fn threads_share_a_directory() {
    let Some(()) = can_mount_and_judge() else { return };
    let dir = TempDir::new("shared").expect("a folder");
    let mount = Mount::create(&dir, "1G");
    std::thread::scope(|scope| {
        for n in 0..THREADS {
            let root = mount.path();
            scope.spawn(move || {
                let mut rng = Rng::new(n);
                for _ in 0..1500 {
                    // few names, so that they meet: most calls fail, and none may do harm
                    let (a, b) = (root.join(rng.below(20).to_string()), root.join(rng.below(20).to_string()));
                    let _ = match rng.below(8) {
                        0 | 1 => std::fs::write(&a, vec![n as u8; rng.size(9000) as usize]),
                        2 => std::fs::remove_file(&a),
                        3 => std::fs::rename(&a, &b),
                        4 => std::fs::hard_link(&a, &b),
                        5 => std::fs::create_dir(&a),
                        6 => std::fs::remove_dir(&a),
                        _ => std::fs::read_dir(root).map(|list| list.for_each(drop)),
                    };
                }
            });
        }
    });
    mount.judge();
}

/// A buffer that direct I/O takes, filled with data.
struct Aligned(Vec<u8>, usize);

impl Aligned {
    fn new(data: &[u8]) -> Aligned {
        let mut hold = vec![0; data.len() + BLOCK];
        let start = hold.as_ptr().align_offset(BLOCK);
        hold[start..start + data.len()].copy_from_slice(data);
        Aligned(hold, start)
    }

    fn get(&mut self, len: usize) -> &mut [u8] {
        &mut self.0[self.1..self.1 + len]
    }
}

fn direct(path: &Path) -> File {
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true);
    options.custom_flags(OFlags::DIRECT.bits() as i32).open(path).expect("an O_DIRECT file")
}

#[test]
fn direct_beside_buffered_is_what_memory_says() {
    const BLOCKS: u64 = 200;
    let Some(()) = can_mount_and_judge() else { return };
    let dir = TempDir::new("direct").expect("a folder");
    let mount = Mount::create(&dir, "1G");
    let path = mount.join("file");
    let direct = direct(&path);
    let buffered = File::options().read(true).write(true).open(&path).expect("a file");
    let (mut rng, mut memory) = (Rng::new(1), Vec::new());
    for n in 0..4000 {
        let at = rng.below(BLOCKS) as usize * BLOCK;
        let len = (1 + rng.below(20) as usize) * BLOCK;
        let file = if rng.one_in(2) { &direct } else { &buffered };
        match rng.below(10) {
            0..4 => {
                let data = Data::new(Fill::Random, n, len).bytes();
                file.write_all_at(Aligned::new(&data).get(len), at as u64).expect("a write");
                memory.resize(memory.len().max(at + len), 0);
                memory[at..at + len].copy_from_slice(&data);
            }
            4..9 => {
                let want = len.min(memory.len().saturating_sub(at));
                let mut buffer = Aligned::new(&vec![1; len]);
                let read = file.read_at(buffer.get(len), at as u64).expect("a read");
                assert_eq!(read, want, "operation {n} at {at}");
                assert!(
                    buffer.get(want)[..] == memory[at.min(memory.len())..][..want],
                    "operation {n} at {at}"
                );
            }
            _ => {
                let size = at + rng.below(BLOCK as u64) as usize;
                file.set_len(size as u64).expect("truncate");
                memory.resize(size, 0);
            }
        }
    }
    drop((direct, buffered));
    assert!(std::fs::read(&path).expect("a read") == memory);
    mount.judge();
}

#[test]
fn direct_writes_of_several_threads_into_one_file() {
    const EACH: usize = 300;
    let Some(()) = can_mount_and_judge() else { return };
    let dir = TempDir::new("direct").expect("a folder");
    let mount = Mount::create(&dir, "1G");
    let path = mount.join("file");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| commit_until(&done, mount.path()));
        let workers: Vec<_> = (0..THREADS as usize)
            .map(|n| {
                let file = direct(&path);
                scope.spawn(move || {
                    // every fourth block is this thread's, twice over, in an order of its own
                    for k in 0..EACH * 2 {
                        let block = (k * 7 % EACH) * THREADS as usize + n;
                        let mut data = Aligned::new(&vec![(block + k / EACH) as u8; BLOCK]);
                        file.write_all_at(data.get(BLOCK), (block * BLOCK) as u64).expect("a write");
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|w| w.join().expect("no panic"));
        done.store(true, Ordering::Relaxed);
    });
    let data = std::fs::read(&path).expect("a read");
    assert_eq!(data.len(), EACH * THREADS as usize * BLOCK);
    for (block, bytes) in data.chunks(BLOCK).enumerate() {
        assert!(bytes.iter().all(|&b| b == (block + 1) as u8), "block {block}");
    }
    mount.judge();
}
