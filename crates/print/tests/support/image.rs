//! A reader of images, as small as can be: of each chunk it reads the first stripe that lies on device 1. Good for
//! single, dup and raid1.

use buttery_disk::chunk::{ChunkItem, Stripe};
use buttery_disk::key::{DiskKey, item};
use buttery_disk::node::Node;
use buttery_disk::superblock::{SIZE, Superblock};
use buttery_disk::zerocopy::FromBytes;
use buttery_disk::{Key, TreeId};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// An image and where its chunks lie.
pub struct Image {
    file: File,
    pub sb: Superblock,
    /// By logical address: length and physical address.
    chunks: BTreeMap<u64, (u64, u64)>,
}

/// A tree to be walked: its id, the key of its ROOT_ITEM if it has one, where its root is, and the root's level.
pub struct Root {
    pub id: TreeId,
    pub key: Option<Key>,
    pub bytenr: u64,
    pub level: u8,
}

impl Image {
    pub fn open(path: &Path) -> Image {
        let file = File::open(path).expect("the image opens");
        let mut bytes = [0; SIZE];
        file.read_exact_at(&mut bytes, 64 << 10).expect("a superblock can be read");
        let sb = Superblock::parse(&bytes).expect("4096 bytes");
        let mut image = Image { file, sb, chunks: BTreeMap::new() };
        let array = image.sb.sys_chunks().to_vec();
        let mut at = 0;
        while let Ok((key, data)) = DiskKey::ref_from_prefix(&array[at..]) {
            at += size_of::<DiskKey>() + image.add_chunk(Key::from(*key).offset, data);
        }
        let root = image.chunk_root();
        image.each_item(&root, |image, key, data| {
            if key.kind == item::CHUNK_ITEM {
                image.add_chunk(key.offset, data);
            }
        });
        image
    }

    /// Takes note of a chunk; returns its item's length.
    fn add_chunk(&mut self, logical: u64, data: &[u8]) -> usize {
        let (chunk, mut rest) = ChunkItem::ref_from_prefix(data).expect("a chunk item");
        for _ in 0..chunk.num_stripes.get() {
            let (stripe, after) = Stripe::ref_from_prefix(rest).expect("a stripe");
            rest = after;
            if stripe.devid.get() == 1 {
                self.chunks.entry(logical).or_insert((chunk.length.get(), stripe.offset.get()));
            }
        }
        data.len() - rest.len()
    }

    /// Where a logical address lies in the file.
    pub fn physical(&self, logical: u64) -> u64 {
        let (start, (length, physical)) = self.chunks.range(..=logical).next_back().expect("a chunk");
        assert!(logical - start < *length, "{logical} is in no chunk of device 1");
        physical + (logical - start)
    }

    pub fn block(&self, logical: u64) -> Vec<u8> {
        let mut block = vec![0; self.sb.nodesize.get() as usize];
        self.file.read_exact_at(&mut block, self.physical(logical)).expect("a block can be read");
        block
    }

    pub fn root_root(&self) -> Root {
        Root { id: TreeId(1), key: None, bytenr: self.sb.root.get(), level: self.sb.root_level }
    }

    pub fn chunk_root(&self) -> Root {
        Root { id: TreeId(3), key: None, bytenr: self.sb.chunk_root.get(), level: self.sb.chunk_root_level }
    }

    pub fn log_root(&self) -> Option<Root> {
        let id = TreeId(buttery_disk::objectid::TREE_LOG);
        let (bytenr, level) = (self.sb.log_root.get(), self.sb.log_root_level);
        (bytenr != 0).then_some(Root { id, key: None, bytenr, level })
    }

    /// The blocks of a tree in the order in which they are printed.
    pub fn blocks(&self, bytenr: u64, depth_first: bool) -> Vec<Vec<u8>> {
        let mut todo = VecDeque::from([bytenr]);
        let mut blocks = Vec::new();
        while let Some(bytenr) = todo.pop_front() {
            let block = self.block(bytenr);
            let node = Node::new(&block);
            if node.level() > 0 {
                let children: Vec<u64> = (0..node.nritems()).map(|i| node.ptr(i).blockptr.get()).collect();
                match depth_first {
                    true => children.into_iter().rev().for_each(|child| todo.push_front(child)),
                    false => todo.extend(children),
                }
            }
            blocks.push(block);
        }
        blocks
    }

    /// Calls `f` with every item of a tree.
    fn each_item(&mut self, root: &Root, mut f: impl FnMut(&mut Image, Key, &[u8])) {
        for block in self.blocks(root.bytenr, true) {
            let node = Node::new(&block);
            if node.level() == 0 {
                (0..node.nritems()).for_each(|slot| f(self, node.key(slot), node.data(slot)));
            }
        }
    }

    /// Every item of a tree.
    pub fn items(&self, bytenr: u64) -> Vec<(Key, Vec<u8>)> {
        let mut items = Vec::new();
        for block in self.blocks(bytenr, true) {
            let node = Node::new(&block);
            if node.level() == 0 {
                items.extend((0..node.nritems()).map(|slot| (node.key(slot), node.data(slot).to_vec())));
            }
        }
        items
    }

    /// The trees whose ROOT_ITEMs stand in this tree.
    pub fn roots_in(&self, bytenr: u64) -> Vec<Root> {
        let mut roots = Vec::new();
        for (key, data) in self.items(bytenr) {
            if key.kind == item::ROOT_ITEM {
                let root = buttery_disk::root::RootItem::parse(&data).expect("a root item");
                let (bytenr, level) = (root.bytenr.get(), root.level);
                roots.push(Root { id: TreeId(key.objectid), key: Some(key), bytenr, level });
            }
        }
        roots
    }
}
