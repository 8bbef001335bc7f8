//! Descents of a writer: copy on write all the way down, with room made where it will be needed.

use super::edit::Editor;
use crate::count;
use crate::error::{Error, Result};
use buttery_disk::Key;
use buttery_disk::node::{MAX_LEVEL, max_ptrs};

/// What a descent prepares for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Need {
    /// Nothing: items are changed in place or removed.
    Nothing,
    /// A new item of this many bytes, its descriptor included.
    Insert(usize),
    /// This many bytes more for the item that is there.
    Extend(usize),
}

/// From leaf to root: the block of each level and the slot taken in it. All blocks belong to the transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Path {
    pub blocks: [u64; MAX_LEVEL as usize],
    pub slots: [usize; MAX_LEVEL as usize],
    /// The root's level.
    pub top: usize,
    /// The first key of the leaf behind, as the parents have it; none behind the last one.
    pub next: Option<Key>,
}

impl Path {
    pub fn leaf(&self) -> u64 {
        self.blocks[0]
    }

    pub fn slot(&self) -> usize {
        self.slots[0]
    }
}

/// A node this full is split on the way down, so that the levels below may each add children.
const SPARE_PTRS: usize = 3;

impl Editor<'_, '_> {
    /// Descends to a key. Answers whether an item has it; the path's slot is where it is or would be.
    pub(super) fn descend(&mut self, key: &Key, need: Need) -> Result<(Path, bool)> {
        loop {
            if let Some(found) = self.try_descend(key, need)? {
                return Ok(found);
            }
        }
    }

    /// One descent; `None` if a node had to be split and the descent begins again.
    fn try_descend(&mut self, key: &Key, need: Need) -> Result<Option<(Path, bool)>> {
        count::descent();
        self.cow_root()?;
        let mut path = Path { top: self.root.level as usize, ..Path::default() };
        let mut bytenr = self.root.bytenr;
        for level in (1..=path.top).rev() {
            let block = self.store.dirty(bytenr)?;
            let node = block.node();
            path.blocks[level] = bytenr;
            let slot = node.child_slot(key);
            path.slots[level] = slot;
            if slot + 1 < node.nritems() {
                path.next = Some(node.key(slot + 1));
            }
            if need != Need::Nothing && node.nritems() + SPARE_PTRS > max_ptrs(self.store.nodesize()) {
                drop(block);
                self.split_node(&path, level)?;
                return Ok(None);
            }
            let child = node.ptr(slot);
            let (at, generation) = (child.blockptr.get(), child.generation.get());
            bytenr = if self.is_to_edit(at, generation, level - 1)? {
                at
            } else {
                drop(block);
                self.cow_child(bytenr, slot, level - 1)?
            };
        }
        path.blocks[0] = bytenr;
        let block = self.store.dirty(bytenr)?;
        let found = block.node().search(key);
        let free = block.node().leaf_free();
        drop(block);
        path.slots[0] = found.unwrap_or_else(|slot| slot);
        match need {
            Need::Insert(size) if found.is_err() && free < size => self.make_room(&mut path, *key, size)?,
            Need::Extend(more) if found.is_ok() && free < more => self.make_item_room(&mut path, more)?,
            _ => {}
        }
        Ok(Some((path, found.is_ok())))
    }

    /// The block on a path's level, one slot to the left or right below the same parent, for reading only.
    pub(super) fn sibling(&self, path: &Path, level: usize, right: bool) -> Result<Option<(usize, u64)>> {
        if level >= path.top {
            return Ok(None);
        }
        let parent = self.store.dirty(path.blocks[level + 1])?;
        let slot = match right {
            true => Some(path.slots[level + 1] + 1).filter(|&s| s < parent.node().nritems()),
            false => path.slots[level + 1].checked_sub(1),
        };
        Ok(slot.map(|s| (s, parent.node().ptr(s).blockptr.get())))
    }

    /// After the first key of a block changed: its parents say so too.
    pub(super) fn fix_low_keys(&mut self, path: &Path, from: usize) -> Result<()> {
        let mut key = {
            let block = self.store.dirty(path.blocks[from])?;
            if block.node().nritems() == 0 {
                return Ok(());
            }
            block.node().key(0)
        };
        for level in from + 1..=path.top {
            let slot = path.slots[level];
            key = self.store.edit(path.blocks[level], |bytes| {
                let ptr = *buttery_disk::Node::new(bytes).ptr(slot);
                buttery_disk::edit::set_ptr(bytes, slot, key, ptr.blockptr.get(), ptr.generation.get());
                buttery_disk::Node::new(bytes).key(0)
            })?;
            if slot != 0 {
                break;
            }
        }
        Ok(())
    }

    /// A new root above the present one. Answers the path seen from it.
    pub(super) fn grow_root(&mut self, path: &Path) -> Result<Path> {
        let level = path.top + 1;
        if level >= MAX_LEVEL as usize {
            return Err(Error::Corrupt(
                format!("tree {} would need more than 8 levels", self.tree.id()).into(),
            ));
        }
        let (old, generation) = (self.root.bytenr, self.trans.id());
        let first = self.store.dirty(old)?.node().key(0);
        let new = self.new_block(level as u8)?;
        self.store.edit(new, |bytes| buttery_disk::edit::insert_ptr(bytes, 0, first, old, generation))?;
        *self.root = super::RootPtr { bytenr: new, level: level as u8, generation };
        let mut path = *path;
        path.top = level;
        path.blocks[level] = new;
        path.slots[level] = 0;
        Ok(path)
    }

    /// Adds a child behind the one that the path takes on `level`.
    pub(super) fn insert_child(&mut self, path: &Path, level: usize, slot: usize, child: u64) -> Result<()> {
        let key = self.store.dirty(child)?.node().key(0);
        self.insert_child_key(path, level, slot, child, key)
    }

    /// Adds a child with a key that the child itself does not hold yet.
    pub(super) fn insert_child_key(
        &mut self,
        path: &Path,
        level: usize,
        slot: usize,
        child: u64,
        key: Key,
    ) -> Result<()> {
        let generation = self.trans.id();
        self.store.edit(path.blocks[level], |bytes| {
            buttery_disk::edit::insert_ptr(bytes, slot, key, child, generation)
        })?;
        if slot == 0 { self.fix_low_keys(path, level) } else { Ok(()) }
    }
}
