//! Trees, space, transactions, extents, data checksums and subvolumes of Btrfs.
//!
//! [`Engine`] is an open file system: the store of tree blocks and the trees. Files, names and subvolumes are reached
//! through the modules of that name; what changes anything takes a transaction handle ([`txn::Trans`]). This crate
//! knows no paths, permissions or users: those are the library's above it.
#![forbid(unsafe_code)]

pub mod bio;
pub mod count;
pub mod csum;
mod device_stats;
pub mod dir;
pub mod error;
pub mod extent;
pub mod file;
mod first_trees;
mod mechanisms;
mod open;
mod open_write;
pub mod space;
pub mod store;
pub mod subvol;
pub mod tree;
pub mod txn;

pub use device_stats::DeviceStats;
pub use error::{Error, Result};
pub use mechanisms::{CsumSubmit, Mechanisms, NocowCheck, ReadLookup, Replace};
pub use open::{MAX_INLINE, OpenOptions, Rescue};

use buttery_disk::chunk::DevItem;
use buttery_disk::extent::FILE_EXTENT_INLINE_START;
use buttery_disk::node::{ITEM_LEN, leaf_data_size};
use buttery_disk::root::RootItem;
use buttery_disk::superblock::Superblock;
use buttery_disk::{Key, TreeId, item, objectid};
use buttery_volume::Volume;
use hashbrown::HashMap;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use store::Store;
use tree::Tree;

/// The ids of the trees that there is one of are below.
const CORE_TREES: usize = 12;

/// An open file system.
pub struct Engine {
    store: Store,
    root_tree: Arc<Tree>,
    chunk_tree: Arc<Tree>,
    trees: RwLock<HashMap<u64, Arc<Tree>>>,
    /// Those of them that every write asks for, by id, on a file system that is open for writing.
    core: OnceLock<[Option<Arc<Tree>>; CORE_TREES]>,
    rescue: Rescue,
    mechanisms: Mechanisms,
    submitter: bio::Submitter,
    /// What writing needs; absent on a file system opened for reading.
    writer: Option<Writer>,
    /// Freed space is discarded after the commit that frees it.
    discard: bool,
    max_inline: u64,
    /// Who keeps space for what is yet to be written.
    relief: OnceLock<Weak<dyn Relief>>,
}

/// Who keeps space for what is yet to be written, and can give it back by writing it.
pub trait Relief: Send + Sync {
    /// Writes what can be written without waiting for anybody's lock. Answers whether any space came back.
    fn relieve(&self) -> bool;
}

/// What an engine that writes has besides.
pub(crate) struct Writer {
    pub space: space::Space,
    pub refs: txn::DelayedRefs,
    pub alone: file::Alone,
    pub inodes: file::Inodes,
    pub txn: txn::Transactions,
    /// Held while a block that several trees may have is copied by one of them.
    pub sharing: parking_lot::Mutex<()>,
    /// The superblock as the next commit will write it, save what that commit itself fills in.
    pub sb: parking_lot::Mutex<Superblock>,
    /// The items of all devices, those that are missing too, as the next commit will write them.
    pub devices: parking_lot::Mutex<BTreeMap<u64, DevItem>>,
}

impl Engine {
    /// Says who keeps space for what is yet to be written. The first is asked when space runs out.
    pub fn set_relief(&self, relief: Weak<dyn Relief>) {
        // a second one is nobody's: one file system has one owner
        let _ = self.relief.set(relief);
    }

    /// Has space given back that is kept for what is yet to be written. Answers whether any was.
    pub(crate) fn relieve(&self) -> bool {
        self.relief.get().and_then(Weak::upgrade).is_some_and(|relief| relief.relieve())
    }

    /// The largest file, in bytes, that is kept in its item: what was asked for, if it is less than a sector and fits into
    /// a leaf.
    pub fn max_inline(&self) -> u64 {
        let ctx = self.volume().context();
        let in_leaf =
            leaf_data_size(ctx.nodesize as usize).saturating_sub(ITEM_LEN + FILE_EXTENT_INLINE_START);
        self.max_inline.min(ctx.sectorsize as u64 - 1).min(in_leaf as u64)
    }

    /// The store of tree blocks.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The volume below.
    pub fn volume(&self) -> &Volume {
        self.store.volume()
    }

    /// The superblock as it was opened.
    pub fn superblock(&self) -> &Superblock {
        self.volume().superblock()
    }

    /// The tree of tree roots.
    pub fn root_tree(&self) -> &Arc<Tree> {
        &self.root_tree
    }

    /// The tree of chunks and devices.
    pub fn chunk_tree(&self) -> &Arc<Tree> {
        &self.chunk_tree
    }

    /// The tree with this id, loaded at its first use. `NotFound` if there is none, or it is being dropped.
    pub fn tree(&self, id: TreeId) -> Result<Arc<Tree>> {
        let tree = self.tree_or_dropping(id)?;
        if tree.is_dropping() { Err(Error::NotFound) } else { Ok(tree) }
    }

    pub(crate) fn tree_or_dropping(&self, id: TreeId) -> Result<Arc<Tree>> {
        match id.0 {
            objectid::ROOT_TREE => return Ok(self.root_tree.clone()),
            objectid::CHUNK_TREE => return Ok(self.chunk_tree.clone()),
            _ => {}
        }
        if let Some(Some(tree)) = self.core.get().and_then(|core| core.get(id.0 as usize)) {
            return Ok(tree.clone());
        }
        if let Some(tree) = self.trees.read().get(&id.0) {
            return Ok(tree.clone());
        }
        let (key, item) = self.root_item(id)?;
        let mut trees = self.trees.write();
        let tree = trees.entry(id.0).or_insert_with(|| Arc::new(Tree::from_item(key, item)));
        Ok(tree.clone())
    }

    /// The newest ROOT_ITEM of a tree.
    fn root_item(&self, id: TreeId) -> Result<(Key, RootItem)> {
        let view = self.root_tree.read(&self.store);
        let low = Key::new(id.0, item::ROOT_ITEM, 0);
        let high = Key::new(id.0, item::ROOT_ITEM, u64::MAX);
        let found = view.last_at_or_before(high, low)?.ok_or(Error::NotFound)?;
        let item = RootItem::parse(found.data()).ok_or_else(|| {
            Error::corrupt(TreeId(objectid::ROOT_TREE), found.key(), "a root item is cut off")
        })?;
        Ok((found.key(), item))
    }

    /// What writing needs; an error on a file system opened for reading, and after a failure that ended writing.
    pub(crate) fn writer(&self) -> Result<&Writer> {
        self.writer.as_ref().ok_or(Error::ReadOnly)
    }

    /// Whether this engine may write.
    pub fn is_writable(&self) -> bool {
        self.writer.as_ref().is_some_and(|w| !w.txn.is_aborted())
    }

    /// Bytes of tree blocks that changed since the last commit.
    pub fn dirty_bytes(&self) -> u64 {
        self.store.dirty_bytes()
    }

    /// How many extents' references changed since the last commit.
    pub fn changed_extents(&self) -> usize {
        self.writer.as_ref().map_or(0, |w| w.refs.len())
    }

    /// What each block group's space is taken by, and what of it only operations that free space may use.
    pub fn usage(&self) -> Result<Usage> {
        let groups = match &self.writer {
            Some(writer) => writer.space.all_groups(),
            None => space::load(self)?.into_values().collect(),
        };
        let metadata = groups.iter().filter(|g| g.serves(space::Class::Metadata)).map(|g| g.len).sum();
        let nodesize = self.store.nodesize() as u64;
        Ok(Usage {
            groups: groups
                .iter()
                .map(|g| GroupUsage { flags: g.flags, len: g.len, used: g.used() })
                .collect(),
            devices: self.device_items().iter().map(DeviceUsage::of).collect(),
            global_reserve: space::reserve::global_reserve_of(metadata, nodesize),
        })
    }

    /// The items of all devices, by number.
    fn device_items(&self) -> Vec<DevItem> {
        match &self.writer {
            Some(writer) => writer.devices.lock().values().copied().collect(),
            None => self.volume().device_items().to_vec(),
        }
    }

    /// Removes empty block groups, one of each class kept. Answers how many went; the next commit makes it last.
    pub fn remove_empty_groups(&self) -> Result<usize> {
        space::chunks::remove_empty(self)
    }

    /// Whether an fsync log waits to be replayed; what is read is the state before it.
    pub fn has_log(&self) -> bool {
        self.superblock().log_root.get() != 0
    }
}

/// How full the block groups are.
#[derive(Clone, Debug)]
pub struct Usage {
    pub groups: Vec<GroupUsage>,
    /// By number; those that are missing too.
    pub devices: Vec<DeviceUsage>,
    /// Bytes of metadata space that only operations that free space may use.
    pub global_reserve: u64,
}

/// How much of a device chunks occupy.
#[derive(Clone, Copy, Debug)]
pub struct DeviceUsage {
    pub devid: u64,
    /// Bytes of the device that the file system has.
    pub total: u64,
    /// Bytes that chunks occupy.
    pub allocated: u64,
}

impl DeviceUsage {
    fn of(item: &DevItem) -> DeviceUsage {
        DeviceUsage {
            devid: item.devid.get(),
            total: item.total_bytes.get(),
            allocated: item.bytes_used.get(),
        }
    }
}

/// How full a block group is.
#[derive(Clone, Copy, Debug)]
pub struct GroupUsage {
    /// Type and profile bits.
    pub flags: u64,
    pub len: u64,
    /// Bytes of extents, copies not counted.
    pub used: u64,
}
