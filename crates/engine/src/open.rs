//! Opening a file system: the volume, then the root of the tree of roots.

use crate::bio::Submitter;
use crate::space::Media;
use crate::store::Store;
use crate::tree::{RootPtr, Tree};
use crate::{Engine, Error, Mechanisms, Result};
use buttery_device::Device;
use buttery_disk::root::RootItem;
use buttery_disk::superblock::Superblock;
use buttery_disk::{Key, item, objectid};
use buttery_volume::Volume;
use hashbrown::HashMap;
use parking_lot::RwLock;
use std::sync::{Arc, OnceLock};

/// What to put up with on a damaged file system (`-o rescue=`), by the kernel's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rescue {
    /// Where the root tree cannot be read, try those of the backup roots.
    pub use_backup_root: bool,
    /// Do without trees that cannot be read, where reading files does not need them.
    pub ignore_bad_roots: bool,
    /// Give out data without looking at their checksums.
    pub ignore_data_csums: bool,
    /// Do not replay the log (a read-only mount).
    pub no_log_replay: bool,
}

/// What `max_inline` is unless something else is asked for, as the kernel has it.
pub const MAX_INLINE: u64 = 2048;

/// How to open a file system.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// What to put up with.
    pub rescue: Rescue,
    /// How many bytes of clean tree blocks to keep in memory.
    pub cache_bytes: u64,
    /// Discard space after the commit that frees it.
    pub discard: bool,
    /// The largest file, in bytes, that is kept in its item.
    pub max_inline: u64,
    /// What the file system lies on; the devices tell if absent.
    pub media: Option<Media>,
    /// Which forms of the data path's mechanisms to use.
    pub mechanisms: Mechanisms,
    /// How to open the volume.
    pub volume: buttery_volume::OpenOptions,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            rescue: Rescue::default(),
            cache_bytes: 64 << 20,
            discard: false,
            max_inline: MAX_INLINE,
            media: None,
            mechanisms: Mechanisms::default(),
            volume: Default::default(),
        }
    }
}

impl Engine {
    /// Opens the file system that these devices make up, for reading.
    pub fn open(devices: Vec<Arc<dyn Device>>, options: OpenOptions) -> Result<Engine> {
        let mut volume_options = options.volume;
        volume_options.use_backup_root |= options.rescue.use_backup_root;
        let volume = Volume::open(devices, volume_options)?;
        let sb = volume.superblock().clone();
        let store = Store::new(volume, options.cache_bytes);
        let chunk_root = RootPtr {
            bytenr: sb.chunk_root.get(),
            level: sb.chunk_root_level,
            generation: sb.chunk_root_generation.get(),
        };
        let chunk_tree =
            Tree::new(Key::new(objectid::CHUNK_TREE, item::ROOT_ITEM, 0), chunk_root, RootItem::zeroed());
        let root_tree = find_root_tree(&store, &sb, options.rescue)?;
        Ok(Engine {
            store,
            root_tree: Arc::new(root_tree),
            chunk_tree: Arc::new(chunk_tree),
            trees: RwLock::new(HashMap::new()),
            core: OnceLock::new(),
            rescue: options.rescue,
            mechanisms: options.mechanisms,
            submitter: Submitter::new(options.mechanisms.csum_submit),
            writer: None,
            discard: options.discard,
            max_inline: options.max_inline,
            relief: OnceLock::new(),
        })
    }

    /// What is put up with.
    pub fn rescue(&self) -> Rescue {
        self.rescue
    }
}

/// The root tree of the superblock, or with `usebackuproot` the newest of the backup roots that can be read.
fn find_root_tree(store: &Store, sb: &Superblock, rescue: Rescue) -> Result<Tree> {
    let main = RootPtr { bytenr: sb.root.get(), level: sb.root_level, generation: sb.generation.get() };
    let mut candidates = vec![main];
    let mut backups: Vec<RootPtr> = sb
        .super_roots
        .iter()
        .map(|b| RootPtr {
            bytenr: b.tree_root.get(),
            level: b.tree_root_level,
            generation: b.tree_root_gen.get(),
        })
        .filter(|b| b.bytenr != 0 && *b != main)
        .collect();
    backups.sort_by_key(|b| std::cmp::Reverse(b.generation));
    if rescue.use_backup_root {
        candidates.extend(&backups);
    }
    let mut first = None;
    for depth in if rescue.use_backup_root { [Probe::Trees, Probe::Root].as_slice() } else { &[Probe::Root] }
    {
        for root in &candidates {
            let tree =
                Tree::new(Key::new(objectid::ROOT_TREE, item::ROOT_ITEM, 0), *root, RootItem::zeroed());
            match probe(&tree, store, *depth, rescue) {
                Ok(()) => return Ok(tree),
                Err(error) => first = first.or(Some(error)),
            }
        }
    }
    let error = first.unwrap_or(Error::NotFound);
    let advice = match (rescue.use_backup_root, backups.is_empty()) {
        (true, _) => "; none of the backup roots can be read either",
        (false, true) => "",
        (false, false) => " - try -o rescue=usebackuproot",
    };
    Err(Error::Corrupt(format!("root tree: {error}{advice}").into()))
}

/// How closely a root tree is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Probe {
    /// Its own root can be read and knows the top-level subvolume.
    Root,
    /// So can the roots of the trees that it leads to.
    Trees,
}

/// Whether a root tree is of use.
fn probe(tree: &Tree, store: &Store, depth: Probe, rescue: Rescue) -> Result<()> {
    probe_tree(tree, store, objectid::FS_TREE, depth)?;
    if depth == Probe::Trees && !rescue.ignore_bad_roots {
        for id in [objectid::EXTENT_TREE, objectid::DEV_TREE, objectid::CSUM_TREE] {
            probe_tree(tree, store, id, depth)?;
        }
    }
    Ok(())
}

fn probe_tree(root_tree: &Tree, store: &Store, id: u64, depth: Probe) -> Result<()> {
    let view = root_tree.read(store);
    let low = Key::new(id, item::ROOT_ITEM, 0);
    let high = Key::new(id, item::ROOT_ITEM, u64::MAX);
    let corrupt = |what: &str| Error::corrupt(root_tree.id(), low, what);
    let found = view.last_at_or_before(high, low)?.ok_or_else(|| corrupt("a tree has no root item"))?;
    if depth == Probe::Trees {
        let item = RootItem::parse(found.data()).ok_or_else(|| corrupt("a root item is cut off"))?;
        Tree::from_item(found.key(), item).read(store).seek(Key::MIN)?;
    }
    Ok(())
}
