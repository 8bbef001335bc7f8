//! What was found out about extents and stays true: that nobody else refers to one, and that it has no checksums.
//!
//! A write in place must know it, and asking takes two trees. Only the file that has the extent can lend it to others,
//! and a snapshot is told by generations; so a fact holds until a reference is added that is not the file's, or the
//! extent goes.

use buttery_disk::extent::BackRef;
use hashbrown::HashMap;
use parking_lot::Mutex;

/// What is known of an extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fact {
    /// All of its references are this one, however often.
    pub only: BackRef,
    /// Its length on disk, so that another extent at the same place is not taken for it.
    pub len: u64,
    /// No data in it have a checksum, and the file that has it gives them none.
    pub no_csums: bool,
}

const SHARDS: usize = 16;
/// How many facts a shard keeps; one that is full forgets all of them.
const FACTS_MAX: usize = 4096;

/// The facts, by the extent's address.
#[derive(Default)]
pub(crate) struct Alone([Mutex<HashMap<u64, Fact>>; SHARDS]);

impl Alone {
    fn shard(&self, bytenr: u64) -> &Mutex<HashMap<u64, Fact>> {
        &self.0[(bytenr >> 12) as usize % SHARDS]
    }

    pub fn get(&self, bytenr: u64) -> Option<Fact> {
        self.shard(bytenr).lock().get(&bytenr).copied()
    }

    pub fn learn(&self, bytenr: u64, fact: Fact) {
        let mut shard = self.shard(bytenr).lock();
        if shard.len() >= FACTS_MAX {
            shard.clear();
        }
        shard.insert(bytenr, fact);
    }

    /// A reference is added: if it is another's, nothing is known any more.
    pub fn add_ref(&self, bytenr: u64, backref: BackRef) {
        let mut shard = self.shard(bytenr).lock();
        if shard.get(&bytenr).is_some_and(|fact| fact.only != backref) {
            shard.remove(&bytenr);
        }
    }

    /// The extent is a new one.
    pub fn forget(&self, bytenr: u64) {
        self.shard(bytenr).lock().remove(&bytenr);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_file(ino: u64) -> BackRef {
        BackRef::Data { root: 5, objectid: ino, offset: 0 }
    }

    #[test]
    fn only_another_reference_ends_it() {
        let alone = Alone::default();
        let fact = Fact { only: of_file(257), len: 4096, no_csums: true };
        alone.learn(65536, fact);
        alone.add_ref(65536, of_file(257));
        assert_eq!(alone.get(65536), Some(fact));
        alone.add_ref(65536, of_file(258));
        assert_eq!(alone.get(65536), None);
    }

    #[test]
    fn it_does_not_grow_without_end() {
        let alone = Alone::default();
        let shard = |n: u64| n << 16; // all in one
        for n in 0..3 * FACTS_MAX as u64 {
            alone.learn(shard(n), Fact { only: of_file(n), len: 4096, no_csums: false });
        }
        assert!(alone.0.iter().map(|s| s.lock().len()).sum::<usize>() <= FACTS_MAX);
    }
}
