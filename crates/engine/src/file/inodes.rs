//! Inode items in memory.
//!
//! The first change of an inode in a transaction is made in the tree, so that its leaf is one of this transaction; those
//! that follow are made here, and the commit writes the last of them, which then takes no space. What is here is newer
//! than the tree, or the same.
//!
//! A shard's lock is taken inside of a tree's, never around it. Entries are made only under the tree's lock: one that was
//! read cannot be older than the tree.

use crate::tree::Tree;
use crate::txn::Trans;
use crate::{Error, Result};
use buttery_disk::TreeId;
use buttery_disk::inode::InodeItem;
use buttery_disk::zerocopy::FromBytes;
use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};

/// An inode item, and what is known of the file.
#[derive(Clone, Copy)]
struct Entry {
    item: InodeItem,
    /// The transaction that last wrote it to the tree; 0 if it was only read.
    in_tree: u64,
    /// It is newer than in the tree.
    dirty: bool,
    /// The file has no data in its item.
    no_inline: bool,
}

type Shard = HashMap<(u64, u64), Entry>;

const SHARDS: usize = 64;
/// How many inodes a shard keeps. One that is full forgets those that are not dirty.
const ENTRIES_MAX: usize = 512;

/// Inode items, by tree and number.
pub(crate) struct Inodes([Mutex<Shard>; SHARDS]);

impl Inodes {
    pub fn new() -> Inodes {
        Inodes(std::array::from_fn(|_| Mutex::default()))
    }

    fn shard(&self, tree: TreeId, ino: u64) -> MutexGuard<'_, Shard> {
        self.0[(ino ^ tree.0.rotate_left(3)) as usize % SHARDS].lock()
    }

    /// An inode that is in memory.
    pub fn get(&self, tree: TreeId, ino: u64) -> Option<InodeItem> {
        self.shard(tree, ino).get(&(tree.0, ino)).map(|entry| entry.item)
    }

    /// An inode that was just read; the caller still has the tree's lock.
    pub fn fill(&self, tree: TreeId, ino: u64, item: InodeItem) {
        let mut shard = self.shard(tree, ino);
        make_room(&mut shard);
        let entry = Entry { item, in_tree: 0, dirty: false, no_inline: false };
        shard.entry((tree.0, ino)).or_insert(entry);
    }

    /// An inode was inserted into the tree, whose lock the caller still has.
    pub fn insert(&self, tree: TreeId, ino: u64, item: InodeItem, transid: u64) {
        let mut shard = self.shard(tree, ino);
        make_room(&mut shard);
        shard.insert((tree.0, ino), Entry { item, in_tree: transid, dirty: false, no_inline: false });
    }

    /// An inode was removed from the tree, whose lock the caller still has.
    pub fn remove(&self, tree: TreeId, ino: u64) {
        self.shard(tree, ino).remove(&(tree.0, ino));
    }

    /// Forgets all inodes of a tree that is being dropped.
    pub fn forget(&self, tree: TreeId) {
        for shard in &self.0 {
            shard.lock().retain(|(id, _), _| *id != tree.0);
        }
    }

    /// Changes an inode in memory, if this transaction has written it before. Else gives `change` back.
    pub fn change<R, F: FnOnce(&mut InodeItem) -> R>(
        &self,
        tree: TreeId,
        ino: u64,
        transid: u64,
        change: F,
    ) -> std::result::Result<R, F> {
        match self.shard(tree, ino).get_mut(&(tree.0, ino)) {
            Some(entry) if entry.in_tree == transid => {
                entry.dirty = true;
                Ok(change(&mut entry.item))
            }
            _ => Err(change),
        }
    }

    /// An inode was changed in the tree, whose lock the caller still has.
    pub fn changed(&self, tree: TreeId, ino: u64, item: InodeItem, transid: u64) {
        let mut shard = self.shard(tree, ino);
        make_room(&mut shard);
        let no_inline = shard.get(&(tree.0, ino)).is_some_and(|entry| entry.no_inline);
        // without room the tree alone has it
        if shard.len() < ENTRIES_MAX || shard.contains_key(&(tree.0, ino)) {
            shard.insert((tree.0, ino), Entry { item, in_tree: transid, dirty: false, no_inline });
        }
    }

    /// Whether the file is known to have no data in its item.
    pub fn has_no_inline(&self, tree: TreeId, ino: u64) -> bool {
        self.shard(tree, ino).get(&(tree.0, ino)).is_some_and(|entry| entry.no_inline)
    }

    /// It was found to have none, or it gets some.
    pub fn set_no_inline(&self, tree: TreeId, ino: u64, none: bool) {
        if let Some(entry) = self.shard(tree, ino).get_mut(&(tree.0, ino)) {
            entry.no_inline = none;
        }
    }

    /// Writes what is newer than the trees into them. All of it lies in leaves of this transaction. There are no handles
    /// meanwhile, so nothing becomes newer; but there are readers, for whose sake an entry stays dirty, and so here,
    /// until the tree has it.
    pub fn flush(&self, trans: &mut Trans<'_>) -> Result<()> {
        let mut dirty = Vec::new();
        for shard in &self.0 {
            let shard = shard.lock();
            dirty
                .extend(shard.iter().filter(|(_, entry)| entry.dirty).map(|(key, entry)| (*key, entry.item)));
        }
        dirty.sort_unstable_by_key(|(key, _)| *key);
        for ((id, ino), item) in dirty {
            // one that is to be dropped is whole until its inodes are forgotten
            let tree = trans.engine().tree_or_dropping(TreeId(id))?;
            write(trans, &tree, ino, &item)?;
            tree.touch(trans.id(), item.ctime);
            if let Some(entry) = self.shard(tree.id(), ino).get_mut(&(id, ino)) {
                entry.dirty = false;
            }
        }
        Ok(())
    }
}

fn write(trans: &mut Trans<'_>, tree: &Tree, ino: u64, item: &InodeItem) -> Result<()> {
    let key = super::inode::key(ino);
    let written = tree.write(trans).modify(key, |data| match InodeItem::mut_from_bytes(data) {
        Ok(place) => {
            *place = *item;
            true
        }
        Err(_) => false,
    })?;
    if written { Ok(()) } else { Err(Error::corrupt(tree.id(), key, "an inode item has 160 bytes")) }
}

fn make_room(shard: &mut Shard) {
    if shard.len() >= ENTRIES_MAX {
        shard.retain(|_, entry| entry.dirty);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: TreeId = TreeId(5);

    #[test]
    fn only_what_this_transaction_wrote_is_changed_here() {
        let inodes = Inodes::new();
        inodes.fill(TREE, 257, InodeItem::default());
        let grow = |item: &mut InodeItem| item.size = 1.into();
        assert!(inodes.change(TREE, 257, 7, grow).is_err());
        inodes.changed(TREE, 257, InodeItem::default(), 7);
        assert!(inodes.change(TREE, 257, 7, grow).is_ok());
        assert!(inodes.change(TREE, 257, 8, grow).is_err());
        // what is read is never newer than what is here
        inodes.fill(TREE, 257, InodeItem::default());
        assert_eq!(inodes.get(TREE, 257).map(|item| item.size.get()), Some(1));
        inodes.remove(TREE, 257);
        assert!(inodes.get(TREE, 257).is_none());
    }

    #[test]
    fn what_is_not_dirty_makes_room() {
        let inodes = Inodes::new();
        let same_shard = |n: u64| n * SHARDS as u64;
        inodes.changed(TREE, same_shard(0), InodeItem::default(), 7);
        assert!(inodes.change(TREE, same_shard(0), 7, |_| ()).is_ok());
        for n in 1..3 * ENTRIES_MAX as u64 {
            inodes.fill(TREE, same_shard(n), InodeItem::default());
        }
        assert!(inodes.get(TREE, same_shard(0)).is_some());
        assert!(inodes.0.iter().map(|s| s.lock().len()).sum::<usize>() <= ENTRIES_MAX);
    }
}
