//! The contents of one file: blocks, and holes where there are none.

use buttery_judge::ContentHasher;
use std::collections::BTreeMap;

const BLOCK: u64 = 4096;

/// A sparse array of bytes.
#[derive(Clone, Debug, Default)]
pub struct Content {
    size: u64,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl Content {
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Writes at an offset; the size follows.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let within = (at % BLOCK) as usize;
            let take = (BLOCK as usize - within).min(data.len() - done);
            let block = self.blocks.entry(at / BLOCK).or_insert_with(|| vec![0; BLOCK as usize]);
            block[within..within + take].copy_from_slice(&data[done..done + take]);
            done += take;
        }
        if !data.is_empty() {
            self.size = self.size.max(offset + data.len() as u64);
        }
    }

    /// Sets the size; what comes back later is zeros.
    pub fn truncate(&mut self, size: u64) {
        self.blocks.split_off(&size.div_ceil(BLOCK));
        if let Some(block) = self.blocks.get_mut(&(size / BLOCK)) {
            block[(size % BLOCK) as usize..].fill(0);
        }
        self.size = size;
    }

    /// Makes zeros of a range; the size stays.
    pub fn zero(&mut self, start: u64, end: u64) {
        let numbers: Vec<u64> =
            self.blocks.range(start / BLOCK..end.div_ceil(BLOCK)).map(|(n, _)| *n).collect();
        for number in numbers {
            let at = number * BLOCK;
            let (from, to) = (start.max(at) - at, end.min(at + BLOCK) - at);
            if let Some(block) = self.blocks.get_mut(&number) {
                block[from as usize..to as usize].fill(0);
            }
        }
    }

    /// The blocks of a range that begins with one, by their distance from there.
    pub fn part(&self, start: u64, end: u64) -> Vec<(u64, Vec<u8>)> {
        let range = start / BLOCK..end.div_ceil(BLOCK);
        self.blocks.range(range).map(|(n, block)| (n - start / BLOCK, block.clone())).collect()
    }

    /// Puts such blocks in the place of what is there.
    pub fn paste(&mut self, start: u64, end: u64, blocks: &[(u64, Vec<u8>)]) {
        let first = start / BLOCK;
        self.blocks.retain(|n, _| *n < first || *n >= end.div_ceil(BLOCK));
        self.blocks.extend(blocks.iter().map(|(n, block)| (first + n, block.clone())));
        self.size = self.size.max(end);
    }

    /// The hash that facts hold.
    pub fn hash(&self) -> u128 {
        let mut hasher = ContentHasher::new();
        for (number, block) in &self.blocks {
            let at = number * BLOCK;
            hasher.update(at, &block[..(self.size - at).min(BLOCK) as usize]);
        }
        hasher.finish(self.size)
    }

    /// Bytes of the blocks that are there.
    pub fn allocated(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK
    }
}
