//! One B-tree under random inserts, replacements and deletions of items of all sizes, against an ordered map.
//!
//! The items have a type that means nothing to the format, so that any size will do; they stand in the top-level
//! subvolume, in its top directory's name, and `btrfs check` looks at the tree's structure.

use buttery_device::Device;
use buttery_disk::node::{ITEM_LEN, leaf_data_size};
use buttery_disk::{Key, TreeId, item, objectid};
use buttery_engine::txn::Purpose;
use buttery_engine::{Engine, Error, OpenOptions};
use buttery_judge::check::btrfs_check;
use buttery_judge::workload::rng::Rng;
use buttery_judge::{Need, TempDir, need};
use buttery_mkfs::MkfsOptions;
use buttery_sim::image;
use std::collections::BTreeMap;
use std::sync::Arc;

type Items = BTreeMap<Key, Vec<u8>>;

/// How a run picks its items.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Keys come from this many.
    keys: u64,
    /// One in so many items is up to a whole leaf long.
    large_one_in: u64,
    small_max: u64,
    /// Keys lie close together for a while, as those of one directory do.
    runs: bool,
}

fn open(device: &Arc<dyn Device>) -> Engine {
    Engine::open_writable(vec![device.clone()], OpenOptions::default()).expect("a sound file system")
}

fn key(n: u64) -> Key {
    Key::new(objectid::FIRST_FREE, item::STRING_ITEM, 2 * n)
}

/// All items of the test in the tree.
fn contents(engine: &Engine) -> Items {
    let tree = engine.tree(TreeId(objectid::FS_TREE)).expect("the tree");
    let view = tree.read(engine.store());
    let mut cursor = view.seek(key(0)).expect("a cursor");
    let mut out = Items::new();
    while let Some((key, data)) = cursor.item() {
        assert!(out.insert(key, data.to_vec()).is_none());
        cursor.advance().expect("the next item");
    }
    // and backwards
    let mut count = 0;
    while cursor.prev().expect("the item before") && cursor.key().is_some_and(|k| k >= key(0)) {
        count += 1;
    }
    assert_eq!(count, out.len());
    out
}

struct Stress {
    rng: Rng,
    shape: Shape,
    nodesize: usize,
    items: Items,
    base: u64,
}

impl Stress {
    fn key(&mut self) -> Key {
        if self.shape.runs {
            if self.rng.one_in(50) {
                self.base = self.rng.below(self.shape.keys);
            }
            return key(self.base + self.rng.below(64));
        }
        key(self.rng.below(self.shape.keys))
    }

    fn data(&mut self) -> Vec<u8> {
        let max = leaf_data_size(self.nodesize) - ITEM_LEN;
        let len = match self.rng.one_in(self.shape.large_one_in) {
            true if self.rng.one_in(4) => max,
            true => self.rng.below(max as u64 + 1) as usize,
            false => self.rng.below(self.shape.small_max + 1) as usize,
        };
        vec![self.rng.next() as u8; len]
    }

    /// One operation in one transaction handle; `growing` says what there is more of.
    fn step(&mut self, engine: &Engine, growing: bool) {
        let tree = engine.tree(TreeId(objectid::FS_TREE)).expect("the tree");
        let (k, data) = (self.key(), self.data());
        let there = self.items.get(&k).cloned();
        let remove = self.rng.below(10) < if growing { 2 } else { 7 };
        let run = remove && !growing && self.rng.one_in(20);
        let rekey = self.rng.one_in(12);
        let items = &mut self.items;
        engine
            .change(8, Purpose::Change, |trans| {
                let mut editor = tree.write(trans);
                if run {
                    let end = Key { offset: k.offset + 300, ..k };
                    while let Some(at) = editor.seek(k)?.key().filter(|f| *f < end) {
                        editor.remove_run(at, &mut |f, _| f < end)?;
                    }
                    items.retain(|f, _| *f < k || *f >= end);
                    return Ok(());
                }
                match &there {
                    None => {
                        assert!(matches!(editor.remove(k), Err(Error::NotFound)));
                        if !remove {
                            editor.insert(k, &data)?;
                            items.insert(k, data);
                        }
                    }
                    Some(old) => {
                        assert!(matches!(editor.insert(k, &data), Err(Error::Exists)));
                        assert_eq!(editor.get(k)?.as_ref(), Some(old));
                        let free = Key { offset: k.offset + 1, ..k };
                        if remove {
                            editor.remove(k)?;
                            items.remove(&k);
                        } else if rekey && !items.contains_key(&free) {
                            editor.rekey(k, free)?;
                            items.remove(&k);
                            items.insert(free, old.clone());
                        } else {
                            editor.replace(k, &data)?;
                            items.insert(k, data);
                        }
                    }
                }
                Ok(())
            })
            .unwrap_or_else(|e| panic!("{k}: {e}"));
    }
}

fn stress(seed: u64, nodesize: u32, shape: Shape, steps: usize) -> usize {
    let options = MkfsOptions { nodesize, ..image::spread(seed) };
    let device = image::in_memory(1 << 30, &options);
    let mut engine = open(&device);
    let nodesize = nodesize as usize;
    let mut s = Stress { rng: Rng::new(seed), shape, nodesize, items: Items::new(), base: 0 };
    let mut deepest = 0;
    for n in 0..steps {
        let growing = (n * 4 / steps).is_multiple_of(2);
        s.step(&engine, growing);
        deepest = deepest.max(engine.tree(TreeId(objectid::FS_TREE)).expect("the tree").root().level);
        if s.rng.one_in(400) {
            engine.commit().expect("a commit");
        }
        if n % (steps / 12) == 0 {
            assert!(contents(&engine) == s.items, "seed {seed}, step {n}: the tree and the map differ");
        }
        if n % (steps / 4) == steps / 8 {
            engine.commit().expect("a commit");
            drop(engine);
            engine = open(&device);
            assert!(contents(&engine) == s.items, "seed {seed}, step {n}: opened again, they differ");
            check(&device);
        }
    }
    engine.commit().expect("a commit");
    drop(engine);
    assert!(contents(&open(&device)) == s.items, "seed {seed}: in the end they differ");
    check(&device);
    deepest as usize
}

fn check(device: &Arc<dyn Device>) {
    let Some(()) = need(&[Need::Program("btrfs")]) else { return };
    let dir = TempDir::new("tree").expect("a folder");
    image::dump(&**device, &dir.join("image"));
    btrfs_check(&dir.join("image")).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn many_small_items() {
    let shape = Shape { keys: 60_000, large_one_in: 1 << 60, small_max: 40, runs: false };
    assert!(stress(1, 4096, shape, 60_000) >= 2);
}

#[test]
fn items_of_all_sizes() {
    let shape = Shape { keys: 4000, large_one_in: 4, small_max: 300, runs: false };
    for seed in 2..5 {
        assert!(stress(seed, 4096, shape, 16_000) >= 2, "seed {seed}");
    }
}

#[test]
fn large_items_between_tiny_ones() {
    let shape = Shape { keys: 50_000, large_one_in: 60, small_max: 0, runs: true };
    for seed in 5..8 {
        stress(seed, 4096, shape, 40_000);
    }
    stress(8, 16384, Shape { large_one_in: 300, ..shape }, 40_000);
    stress(9, 65536, Shape { large_one_in: 900, ..shape }, 40_000);
}
