//! Locks on ranges of files: writers of disjoint ranges work side by side, and readers wait only for who changes what
//! they read.

use crate::FileId;
use parking_lot::{Condvar, Mutex};

const SHARDS: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Held {
    id: FileId,
    start: u64,
    end: u64,
    writing: bool,
}

impl Held {
    fn excludes(&self, other: &Held) -> bool {
        (self.writing || other.writing)
            && self.id == other.id
            && self.start < other.end
            && other.start < self.end
    }
}

#[derive(Default)]
struct Shard {
    held: Mutex<Vec<Held>>,
    released: Condvar,
}

/// The ranges that are locked, of all files.
pub(crate) struct Ranges(Vec<Shard>);

/// A locked range.
pub(crate) struct RangeGuard<'a> {
    shard: &'a Shard,
    range: Held,
}

impl Ranges {
    pub fn new() -> Ranges {
        Ranges((0..SHARDS).map(|_| Shard::default()).collect())
    }

    /// Waits until nobody has a range that this one excludes. A thread locks one range at a time.
    pub fn lock(&self, id: FileId, start: u64, end: u64, writing: bool) -> RangeGuard<'_> {
        let hash = (id.ino ^ id.tree.0.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let shard = &self.0[(hash >> 32) as usize % SHARDS];
        let range = Held { id, start, end, writing };
        let mut held = shard.held.lock();
        while held.iter().any(|other| range.excludes(other)) {
            shard.released.wait(&mut held);
        }
        held.push(range);
        RangeGuard { shard, range }
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut held = self.shard.held.lock();
        if let Some(at) = held.iter().position(|other| *other == self.range) {
            held.swap_remove(at);
        }
        drop(held);
        self.shard.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use buttery_disk::TreeId;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn only_what_overlaps_a_writer_waits() {
        let id = |ino| FileId { tree: TreeId(5), ino };
        let ranges = Ranges::new();
        let _one = ranges.lock(id(257), 0, 4096, true);
        let _beside = ranges.lock(id(257), 4096, 8192, true);
        let _other_file = ranges.lock(id(258), 0, 4096, true);
        let readers = [ranges.lock(id(259), 0, 9000, false), ranges.lock(id(259), 100, 200, false)];
        let stage = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _writer = ranges.lock(id(259), 150, 160, true);
                assert_eq!(stage.load(Ordering::SeqCst), 1, "written under a reader");
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            let [first, second] = readers;
            drop(first);
            std::thread::sleep(std::time::Duration::from_millis(20));
            stage.store(1, Ordering::SeqCst);
            drop(second);
        });
    }
}
