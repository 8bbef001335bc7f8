//! What a thread has had done to trees: for benchmarks, and for tests that promise how much work an operation is.

use std::cell::Cell;

/// What was counted of a thread, from its beginning on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Descents from a root to a leaf.
    pub descents: u64,
    /// Bytes of items and blocks of trees that were copied.
    pub copied_bytes: u64,
}

thread_local! {
    static COUNTS: Cell<Counts> = const { Cell::new(Counts { descents: 0, copied_bytes: 0 }) };
}

/// What was counted of this thread.
pub fn of_this_thread() -> Counts {
    COUNTS.get()
}

/// One descent more.
pub(crate) fn descent() {
    let counts = COUNTS.get();
    COUNTS.set(Counts { descents: counts.descents + 1, ..counts });
}

/// So many bytes were copied.
pub(crate) fn copied(bytes: usize) {
    let counts = COUNTS.get();
    COUNTS.set(Counts { copied_bytes: counts.copied_bytes + bytes as u64, ..counts });
}

impl Counts {
    /// What was counted since `before`.
    pub fn since(self, before: Counts) -> Counts {
        Counts {
            descents: self.descents - before.descents,
            copied_bytes: self.copied_bytes - before.copied_bytes,
        }
    }
}
