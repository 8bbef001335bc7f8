//! Every tree block of a sound file system, found by walking all trees.

use buttery::{Filesystem, TreeId};
use buttery_disk::check::Expect;
use buttery_disk::root::RootItem;
use buttery_disk::{Key, Node, item};

/// A tree block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub bytenr: u64,
    pub owner: u64,
    pub level: u8,
    pub generation: u64,
}

/// The blocks, by address.
pub fn all(fs: &Filesystem) -> Vec<Block> {
    let engine = fs.engine();
    let mut found = Vec::new();
    let mut roots = vec![engine.chunk_tree().root(), engine.root_tree().root()];
    let view = engine.root_tree().read(engine.store());
    let mut cursor = view.seek(Key::MIN).expect("the root tree");
    while let Some((key, data)) = cursor.item() {
        if key.kind == item::ROOT_ITEM && RootItem::parse(data).is_some_and(|root| root.bytenr.get() != 0) {
            roots.push(engine.tree(TreeId(key.objectid)).expect("a tree").root());
        }
        cursor.advance().expect("the root tree");
    }
    for root in roots {
        let mut todo = vec![(root.bytenr, root.level, root.generation)];
        while let Some((bytenr, level, generation)) = todo.pop() {
            let expect =
                Expect { bytenr, level: Some(level), generation: Some(generation), ..Expect::default() };
            let bytes = engine.volume().read_block(&expect).expect("a sound block");
            let node = Node::new(&bytes);
            if level > 0 {
                let children = (0..node.nritems()).map(|slot| node.ptr(slot));
                todo.extend(children.map(|p| (p.blockptr.get(), level - 1, p.generation.get())));
            }
            found.push(Block { bytenr, owner: node.header().owner.get(), level, generation });
        }
    }
    found.sort_by_key(|b| b.bytenr);
    found.dedup_by_key(|b| b.bytenr);
    found
}

/// Where the copies of a logical address are: device id and offset.
pub fn places(fs: &Filesystem, logical: u64) -> Vec<(u64, u64)> {
    let chunk = fs.engine().volume().chunks().find(logical).expect("a chunk");
    (0..chunk.copies()).map(|mirror| chunk.place(logical, mirror)).map(|p| (p.devid, p.physical)).collect()
}
