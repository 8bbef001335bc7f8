//! Delayed references: what changed since the last commit in the references of each extent, netted.

use buttery_disk::extent::{BackRef, flags};
use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What an extent is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExtentKind {
    Data,
    Tree { level: u8 },
}

/// The changes of one extent.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub len: u64,
    pub kind: ExtentKind,
    /// Allocated in this transaction: the extent tree has no item for it.
    pub is_new: bool,
    /// Flags to set in the extent item.
    pub flags: u64,
    /// How often each reference was added (positive) or dropped, in sum.
    pub refs: RefCounts,
}

/// Counts by reference, in their order. Nearly every extent has one, which takes no memory of its own: one thread would
/// allocate it, and the commit's free it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefCounts(SmallVec<[(BackRef, i64); 1]>);

impl RefCounts {
    /// Adds to a count. Answers whether the reference is a new one.
    fn add(&mut self, backref: BackRef, by: i64) -> bool {
        match self.0.binary_search_by_key(&backref, |(r, _)| *r) {
            Ok(at) => {
                self.0[at].1 += by;
                false
            }
            Err(at) => {
                self.0.insert(at, (backref, by));
                true
            }
        }
    }

    /// The count of one; 0 if there is none.
    pub fn get(&self, backref: BackRef) -> i64 {
        self.0.binary_search_by_key(&backref, |(r, _)| *r).map_or(0, |at| self.0[at].1)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (BackRef, i64)> {
        self.0.iter().copied()
    }

    /// All counts together.
    pub fn sum(&self) -> i64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

const SHARDS: usize = 16;

/// All changes of a transaction, by the extent's address.
#[derive(Default)]
pub(crate) struct DelayedRefs {
    shards: [Mutex<HashMap<u64, Head>>; SHARDS],
    heads: AtomicUsize,
    /// References with changes, of all heads.
    refs: AtomicUsize,
    /// Extents of which the free-space tree has not been told yet.
    told_later: AtomicUsize,
    /// Bytes of the data extents among them that are older than this transaction, and whose checksums may go.
    old_data: AtomicU64,
}

impl DelayedRefs {
    fn shard(&self, bytenr: u64) -> &Mutex<HashMap<u64, Head>> {
        &self.shards[(bytenr >> 12) as usize % SHARDS]
    }

    fn change(&self, bytenr: u64, len: u64, kind: ExtentKind, change: impl FnOnce(&mut Head)) {
        let mut shard = self.shard(bytenr).lock();
        let head = shard.entry(bytenr).or_insert_with(|| {
            self.heads.fetch_add(1, Ordering::Relaxed);
            Head { len, kind, is_new: false, flags: 0, refs: RefCounts::default() }
        });
        change(head);
    }

    /// The first reference of an extent allocated in this transaction.
    pub fn add_new(&self, bytenr: u64, len: u64, kind: ExtentKind, backref: BackRef) {
        self.change(bytenr, len, kind, |head| {
            // an extent freed and allocated anew is pinned in between, so this head is a fresh one
            head.is_new = true;
            self.count(head, backref, 1);
        });
    }

    /// Makes an extent longer whose only reference is this one, new in this transaction and not in the extent tree yet.
    /// Answers whether that was so.
    pub fn grow(&self, bytenr: u64, from: u64, to: u64, only: BackRef) -> bool {
        let mut shard = self.shard(bytenr).lock();
        let Some(head) = shard.get_mut(&bytenr) else { return false };
        let alone = head.is_new && head.len == from && head.refs.len() == 1 && head.refs.get(only) == 1;
        if alone {
            head.len = to;
        }
        alone
    }

    fn count(&self, head: &mut Head, backref: BackRef, by: i64) {
        if head.refs.add(backref, by) {
            self.refs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A reference more, or fewer.
    pub fn add(&self, bytenr: u64, len: u64, kind: ExtentKind, backref: BackRef, count: i64) {
        self.change(bytenr, len, kind, |head| {
            if kind == ExtentKind::Data && head.refs.is_empty() {
                self.old_data.fetch_add(len, Ordering::Relaxed);
            }
            self.count(head, backref, count);
        });
    }

    /// The block's children are referenced by the block from now on.
    pub fn set_full_backref(&self, bytenr: u64, len: u64, level: u8) {
        self.change(bytenr, len, ExtentKind::Tree { level }, |head| head.flags |= flags::FULL_BACKREF);
    }

    /// What is pending for an extent: references in sum, and flags.
    pub fn pending(&self, bytenr: u64) -> (i64, u64) {
        match self.shard(bytenr).lock().get(&bytenr) {
            Some(head) => (head.refs.sum(), head.flags),
            None => (0, 0),
        }
    }

    /// The pending references of an extent: all, and those of one kind.
    pub fn pending_of(&self, bytenr: u64, backref: BackRef) -> (i64, i64) {
        match self.shard(bytenr).lock().get(&bytenr) {
            Some(head) => (head.refs.sum(), head.refs.get(backref)),
            None => (0, 0),
        }
    }

    /// How many extents have changes.
    pub fn len(&self) -> usize {
        self.heads.load(Ordering::Relaxed)
    }

    /// How many references have changes, of all extents.
    pub fn count_refs(&self) -> usize {
        self.refs.load(Ordering::Relaxed)
    }

    /// Extents that ran ahead of the commit, and of which the free-space tree is still to be told.
    pub fn told_later(&self) -> usize {
        self.told_later.load(Ordering::Relaxed)
    }

    /// So many are waiting for that.
    pub fn tell_later(&self, count: usize) {
        self.told_later.store(count, Ordering::Relaxed);
    }

    /// Bytes of the older data extents with changes.
    pub fn old_data(&self) -> u64 {
        self.old_data.load(Ordering::Relaxed)
    }

    /// The extents with changes, by address.
    pub fn addresses(&self) -> Vec<u64> {
        let mut all = Vec::with_capacity(self.len());
        for shard in &self.shards {
            all.extend(shard.lock().keys());
        }
        all.sort_unstable();
        all
    }

    /// Takes the changes of one extent. They are counted until [`brought`](Self::brought) is told. Whoever has the extent
    /// tree's lock for writing may take them, so that who has it for reading finds each change either here or there.
    pub fn take(&self, bytenr: u64) -> Option<Head> {
        self.shard(bytenr).lock().remove(&bytenr)
    }

    /// What was taken is in the extent tree.
    pub fn brought(&self, head: &Head) {
        self.heads.fetch_sub(1, Ordering::Relaxed);
        self.refs.fetch_sub(head.refs.len(), Ordering::Relaxed);
        if head.kind == ExtentKind::Data && !head.is_new {
            self.old_data.fetch_sub(head.len, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_netted() {
        let refs = DelayedRefs::default();
        let r = BackRef::TreeBlock { root: 5 };
        refs.add_new(65536, 16384, ExtentKind::Tree { level: 0 }, r);
        refs.add(65536, 16384, ExtentKind::Tree { level: 0 }, r, -1);
        assert_eq!(refs.pending(65536), (0, 0));
        assert_eq!((refs.len(), refs.count_refs()), (1, 1));
        assert_eq!(refs.addresses(), [65536]);
        let head = refs.take(65536).expect("a head");
        assert!(head.is_new && refs.take(65536).is_none());
        assert_eq!((refs.len(), refs.count_refs()), (1, 1));
        refs.brought(&head);
        assert_eq!((refs.len(), refs.count_refs(), refs.old_data()), (0, 0, 0));
    }
}
