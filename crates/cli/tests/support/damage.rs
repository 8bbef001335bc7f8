//! Images damaged on purpose: bytes flipped, superblocks broken, tree blocks edited with their checksums made right
//! again, so that what is wrong lies behind the checksum.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use buttery::Filesystem;
use buttery_codec::CsumType;
use buttery_disk::{Key, Node, objectid};
use rustix::fs::SeekFrom;

use super::blocks::{self, Block};

/// Where the superblock's copies are.
pub const SUPERS: [u64; 2] = [64 << 10, 64 << 20];

/// A tree block, and where it lies.
#[derive(Clone, Debug)]
pub struct TreeBlock {
    pub bytenr: u64,
    pub owner: u64,
    pub level: u8,
    /// Each copy: the device's file and the offset there.
    pub places: Vec<(PathBuf, u64)>,
}

/// Every block of every tree.
pub fn tree_blocks(fs: &Filesystem) -> Vec<TreeBlock> {
    let found = |b: Block| TreeBlock {
        bytenr: b.bytenr,
        owner: b.owner,
        level: b.level,
        places: places(fs, b.bytenr),
    };
    blocks::all(fs).into_iter().map(found).collect()
}

/// Where the copies of a logical address are.
pub fn places(fs: &Filesystem, logical: u64) -> Vec<(PathBuf, u64)> {
    let devices = fs.engine().volume().devices();
    let file = |(devid, at): (u64, u64)| (PathBuf::from(devices[&devid].name()), at);
    blocks::places(fs, logical).into_iter().map(file).collect()
}

/// Edits a tree block in all its copies and makes the checksum right again.
pub fn edit(fs: &Filesystem, block: &TreeBlock, edit: impl FnOnce(&mut [u8])) {
    let engine = fs.engine();
    let mut bytes = vec![0; engine.store().nodesize()];
    open(&block.places[0].0).read_exact_at(&mut bytes, block.places[0].1).expect("a block");
    edit(&mut bytes);
    resum(engine.volume().csum(), &mut bytes);
    for (file, at) in &block.places {
        open(file).write_all_at(&bytes, *at).expect("a write");
    }
}

/// Makes the checksum of a tree block or superblock right.
pub fn resum(csum: CsumType, bytes: &mut [u8]) {
    let sum = csum.sum(&bytes[32..]);
    bytes[..32].copy_from_slice(&sum);
}

/// The leaf of a subvolume's tree that holds this item.
pub fn leaf_with(fs: &Filesystem, tree: u64, key: Key) -> TreeBlock {
    let blocks = tree_blocks(fs);
    let holds = |block: &&TreeBlock| {
        let mut bytes = vec![0; fs.engine().store().nodesize()];
        open(&block.places[0].0).read_exact_at(&mut bytes, block.places[0].1).expect("a block");
        Node::new(&bytes).search(&key).is_ok()
    };
    let mut leaves = blocks.iter().filter(|b| b.owner == tree && b.level == 0);
    leaves.find(holds).unwrap_or_else(|| panic!("no leaf of tree {tree} holds {key}")).clone()
}

/// The blocks of one tree.
pub fn of_tree(fs: &Filesystem, tree: u64) -> Vec<TreeBlock> {
    let mut blocks = tree_blocks(fs);
    blocks.retain(|b| b.owner == tree);
    blocks
}

/// The root of the tree of roots.
pub fn root_of_roots(fs: &Filesystem) -> TreeBlock {
    let bytenr = fs.engine().root_tree().root().bytenr;
    let mut blocks = of_tree(fs, objectid::ROOT_TREE);
    blocks.retain(|b| b.bytenr == bytenr);
    blocks.remove(0)
}

/// Turns every bit of a range.
pub fn flip(file: &Path, offset: u64, len: usize) {
    let device = open(file);
    let mut bytes = vec![0; len];
    device.read_exact_at(&mut bytes, offset).expect("bytes");
    bytes.iter_mut().for_each(|b| *b = !*b);
    device.write_all_at(&bytes, offset).expect("a write");
}

/// Breaks one copy of the superblock.
pub fn break_super(file: &Path, copy: usize) {
    flip(file, SUPERS[copy] + 1000, 8);
}

/// Turns every bit of a device's data and metadata, and leaves its superblocks.
pub fn spoil(file: &Path) {
    spoil_range(file, 1 << 20, file.metadata().expect("an image").len());
}

/// Turns every bit of what is written in a range, save superblocks.
pub fn spoil_range(file: &Path, start: u64, end: u64) {
    let device = open(file);
    let mut at = start;
    while let Ok(data) = rustix::fs::seek(&device, SeekFrom::Data(at)) {
        let hole = rustix::fs::seek(&device, SeekFrom::Hole(data)).expect("an end").min(end);
        let mut from = data;
        while from < hole {
            let len = (hole - from).min(4096);
            if !SUPERS.iter().any(|s| from < s + 4096 && *s < from + len) {
                flip(file, from, len as usize);
            }
            from += len;
        }
        at = hole;
        if data >= end || at >= end {
            break;
        }
    }
}

/// Where in a file these bytes stand, at multiples of 4 KiB.
pub fn find(file: &Path, bytes: &[u8]) -> Vec<u64> {
    let device = open(file);
    let (mut found, mut at) = (Vec::new(), 0);
    let mut buffer = vec![0; bytes.len()];
    while let Ok(data) = rustix::fs::seek(&device, SeekFrom::Data(at)) {
        let hole = rustix::fs::seek(&device, SeekFrom::Hole(data)).expect("an end");
        for place in (data / 4096 * 4096..hole).step_by(4096) {
            if device.read_exact_at(&mut buffer, place).is_ok() && buffer == bytes {
                found.push(place);
            }
        }
        at = hole;
    }
    found.dedup();
    found
}

pub fn open(file: &Path) -> File {
    File::options().read(true).write(true).open(file).expect("an image")
}
