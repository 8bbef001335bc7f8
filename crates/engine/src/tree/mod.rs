//! One B-tree, whatever it contains.
//!
//! Readers take the tree's lock shared and move a [`Cursor`]; a writer takes it alone, with a transaction handle, as
//! an [`Editor`]. Start reading at [`cursor`], then `path` (descents that copy on write), `insert`
//! and `delete`. The lock is held for one operation in memory, never across data I/O.

mod cow;
mod cursor;
mod delete;
pub mod edit;
mod gate;
mod insert;
mod path;
mod splice;

pub use cursor::Cursor;
pub use edit::Editor;
pub use gate::Still;
pub(crate) use splice::Splice;

use crate::count;
use crate::error::Result;
use crate::store::{Block, Store};
use buttery_disk::check::Expect;
use buttery_disk::inode::Timespec;
use buttery_disk::root::RootItem;
use buttery_disk::{Key, TreeId, objectid};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Where a tree's root is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootPtr {
    pub bytenr: u64,
    pub level: u8,
    pub generation: u64,
}

/// A tree.
pub struct Tree {
    id: TreeId,
    /// The key of its ROOT_ITEM; of a snapshot it holds the transaction that made it.
    item_key: Key,
    root: RwLock<RootPtr>,
    /// The ROOT_ITEM: of a subvolume what users see of it; `bytenr`, `level`, `generation` are as of the last commit.
    item: Mutex<RootItem>,
    /// What the last commit wrote for the root, to tell which roots changed.
    committed: Mutex<RootPtr>,
    /// The generation up to which blocks may be shared with a snapshot.
    last_snapshot: AtomicU64,
    /// Bytes of the tree's blocks.
    bytes_used: AtomicI64,
    /// The item changed otherwise than by the root's move.
    item_dirty: AtomicBool,
    /// The next inode number, once it was looked for.
    next_ino: Mutex<Option<u64>>,
    gate: gate::Gate,
    /// It is being dropped, and nobody else's any more.
    dropping: AtomicBool,
    /// The last change of an inode: in which transaction, and when.
    touched: Mutex<(u64, Timespec)>,
}

impl Tree {
    /// A tree with this root; `item` is all zeros for the trees that have none (root tree, chunk tree), and the key
    /// then says no more than the tree's id.
    pub fn new(item_key: Key, root: RootPtr, item: RootItem) -> Tree {
        Tree {
            id: TreeId(item_key.objectid),
            item_key,
            root: RwLock::new(root),
            committed: Mutex::new(root),
            last_snapshot: AtomicU64::new(item.last_snapshot.get()),
            bytes_used: AtomicI64::new(item.bytes_used.get() as i64),
            item: Mutex::new(item),
            item_dirty: false.into(),
            next_ino: Mutex::new(None),
            gate: gate::Gate::default(),
            dropping: is_half_dropped(&item).into(),
            touched: Default::default(),
        }
    }

    /// A tree as its ROOT_ITEM has it.
    pub fn from_item(item_key: Key, item: RootItem) -> Tree {
        let root =
            RootPtr { bytenr: item.bytenr.get(), level: item.level, generation: item.generation.get() };
        Tree::new(item_key, root, item)
    }

    /// The tree's id.
    pub fn id(&self) -> TreeId {
        self.id
    }

    /// The key of the root item.
    pub fn item_key(&self) -> Key {
        self.item_key
    }

    /// A copy of the root item.
    pub fn item(&self) -> RootItem {
        *self.item.lock()
    }

    /// Changes the root item; the next commit writes it.
    pub fn update_item(&self, update: impl FnOnce(&mut RootItem)) {
        update(&mut self.item.lock());
        self.item_dirty.store(true, Ordering::Release);
    }

    /// The transaction of the last snapshot that was taken of this subvolume.
    pub fn last_snapshot(&self) -> u64 {
        self.last_snapshot.load(Ordering::Acquire)
    }

    /// A snapshot is being taken of it in this transaction: from now on its blocks may be shared, those of this transaction
    /// too.
    pub(crate) fn set_last_snapshot(&self, transid: u64) {
        self.update_item(|item| item.last_snapshot = transid.into());
        self.last_snapshot.store(transid, Ordering::Release);
    }

    /// The tree got an inode that was changed. The root item tells the last time, as the kernel's does.
    pub(crate) fn touch(&self, transid: u64, ctime: Timespec) {
        let order = |time: &Timespec| (time.sec.get(), time.nsec.get());
        let mut touched = self.touched.lock();
        if touched.0 != transid || order(&ctime) > order(&touched.1) {
            *touched = (transid, ctime);
        }
    }

    /// It is being dropped from now on, and is not found any more.
    pub(crate) fn set_dropping(&self) {
        self.dropping.store(true, Ordering::Release);
    }

    pub(crate) fn is_dropping(&self) -> bool {
        self.dropping.load(Ordering::Acquire)
    }

    /// Brings that into the root item. There are no handles meanwhile.
    pub(crate) fn note_touch(&self, transid: u64) {
        let (at, ctime) = *self.touched.lock();
        if at == transid && self.is_subvolume() {
            let mut item = self.item.lock();
            item.ctransid = transid.into();
            item.ctime = ctime;
        }
    }

    /// Whether the tree holds files, so that its blocks may be shared with snapshots.
    pub fn is_subvolume(&self) -> bool {
        objectid::is_subvolume(self.id.0) || self.id.0 == objectid::DATA_RELOC_TREE
    }

    /// Whether users made it read-only.
    pub fn is_read_only(&self) -> bool {
        self.item.lock().flags.get() & buttery_disk::root::flags::RDONLY != 0
    }

    /// Bytes of the tree's blocks.
    pub fn bytes_used(&self) -> u64 {
        self.bytes_used.load(Ordering::Relaxed).max(0) as u64
    }

    /// Where the root is now.
    pub fn root(&self) -> RootPtr {
        *self.root.read()
    }

    /// Who must own a block of this tree; `None` where it may be shared.
    fn owner(&self) -> Option<u64> {
        (!self.is_subvolume()).then_some(self.id.0)
    }

    /// Takes the lock for reading.
    pub fn read<'a>(&'a self, store: &'a Store) -> View<'a> {
        View { store, owner: self.owner(), root: self.root.read() }
    }

    /// A new inode number; `first` finds the first one.
    pub(crate) fn next_ino(&self, first: impl FnOnce() -> Result<u64>) -> Result<u64> {
        let mut next = self.next_ino.lock();
        let ino = match *next {
            Some(ino) => ino,
            None => first()?,
        };
        if ino > objectid::LAST_FREE {
            return Err(crate::Error::NoSpace);
        }
        *next = Some(ino + 1);
        Ok(ino)
    }

    /// What the next commit has to write of this tree's root; `None` if nothing changed.
    pub(crate) fn changed(&self) -> Option<RootPtr> {
        let root = self.root();
        (root != *self.committed.lock() || self.item_dirty.load(Ordering::Acquire)).then_some(root)
    }

    /// The root item as it is to be written for `root`, which is from then on what was written last.
    pub(crate) fn take_change(&self, root: RootPtr, transid: u64) -> RootItem {
        self.item_dirty.store(false, Ordering::Release);
        *self.committed.lock() = root;
        self.note_touch(transid);
        let mut item = self.item.lock();
        item.bytenr = root.bytenr.into();
        item.level = root.level;
        item.generation = root.generation.into();
        item.generation_v2 = root.generation.into();
        item.bytes_used = self.bytes_used().into();
        *item
    }
}

/// A tree locked for reading.
pub struct View<'a> {
    store: &'a Store,
    owner: Option<u64>,
    root: RwLockReadGuard<'a, RootPtr>,
}

/// A found item: the leaf that holds it and the slot.
pub struct Found {
    leaf: Arc<Block>,
    slot: usize,
}

impl Found {
    /// The item's data.
    pub fn data(&self) -> &[u8] {
        self.leaf.node().data(self.slot)
    }

    /// The item's key.
    pub fn key(&self) -> Key {
        self.leaf.node().key(self.slot)
    }
}

impl View<'_> {
    /// A cursor at the first item that is not before `key`.
    pub fn seek(&self, key: Key) -> Result<Cursor<'_>> {
        Cursor::seek(self.store, &root_expect(&self.root, self.owner), key)
    }

    /// The item with this key.
    pub fn get(&self, key: Key) -> Result<Option<Found>> {
        count::descent();
        let mut expect = root_expect(&self.root, self.owner);
        loop {
            let block = self.store.read(&expect)?;
            let node = block.node();
            if node.level() == 0 {
                return Ok(node.search(&key).ok().map(|slot| Found { leaf: block, slot }));
            }
            expect = buttery_volume::walk::child(node, node.child_slot(&key), self.owner);
        }
    }

    /// The last item that is not behind `key`, and at or behind `floor`.
    pub fn last_at_or_before(&self, key: Key, floor: Key) -> Result<Option<Found>> {
        let mut cursor = self.seek(key)?;
        if cursor.key() != Some(key) && !cursor.prev()? {
            return Ok(None);
        }
        Ok(cursor.found().filter(|f| f.key() >= floor))
    }
}

/// Whether somebody began to drop the tree.
fn is_half_dropped(item: &RootItem) -> bool {
    item.refs.get() == 0 && Key::from(item.drop_progress) != Key::MIN
}

fn root_expect(root: &RootPtr, owner: Option<u64>) -> Expect {
    Expect {
        bytenr: root.bytenr,
        level: Some(root.level),
        generation: Some(root.generation),
        first_key: None,
        owner,
    }
}
