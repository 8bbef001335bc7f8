//! The blocks of a tree, one after the other. What cannot be read is left out with all that is below it.
//!
//! [`Blocks`] descends depth first and holds one block of each level, at most 8. For an order by levels it is run once
//! for each level, and passes over the blocks of others: that reads nodes again, but needs no list of a level's blocks.
//!
//! A child's first key must be its parent's and its last key below the parent's next one, so that no block is met
//! twice in a tree, however the pointers of a hostile image are tangled.

use buttery_disk::check::Expect;
use buttery_disk::{Key, Node};
use buttery_volume::Volume;
use buttery_volume::walk::child;
use std::rc::Rc;

/// Where a tree begins.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// What must be true of the root. The owner is that of all blocks.
    pub root: Expect,
    /// All below this key was given back already: the tree is being deleted, and what is not to be found is no error.
    pub freed: Option<Key>,
}

/// A block that cannot be printed.
#[derive(Debug)]
pub struct Bad {
    pub level: Option<u8>,
    /// Which device, which address, which rule.
    pub why: String,
}

/// A block of the way down to the current one.
struct Step {
    block: Rc<Vec<u8>>,
    next: usize,
    /// Every key below it is smaller.
    end: Option<Key>,
}

/// The blocks of a tree, depth first.
pub struct Blocks<'a> {
    volume: &'a Volume,
    /// The level to answer; every level if absent.
    level: Option<u8>,
    start: Start,
    started: bool,
    way: Vec<Step>,
}

impl<'a> Blocks<'a> {
    /// The blocks of one level, from left to right, or all, each before those below it.
    pub fn new(volume: &'a Volume, start: Start, level: Option<u8>) -> Blocks<'a> {
        Blocks { volume, level, start, started: false, way: Vec::new() }
    }

    /// Reads a block and makes ready to go down from it; answers it if it is of the level that is wanted.
    fn enter(&mut self, expect: &Expect, end: Option<Key>) -> Option<Result<Rc<Vec<u8>>, Bad>> {
        let block = match self.read(expect, end) {
            Ok(block) => Rc::new(block),
            Err(_) if end.is_some() && end <= self.start.freed => return None,
            Err(why) => return Some(Err(Bad { level: expect.level, why })),
        };
        let level = Node::new(&block).level();
        if level > self.level.unwrap_or(0) {
            self.way.push(Step { block: block.clone(), next: 0, end });
        }
        self.level.is_none_or(|wanted| wanted == level).then_some(Ok(block))
    }

    fn read(&self, expect: &Expect, end: Option<Key>) -> Result<Vec<u8>, String> {
        let block = self.volume.read_block(expect).map_err(|e| e.to_string())?;
        let node = Node::new(&block);
        if let Some(end) = end
            && let Some(last) = node.nritems().checked_sub(1)
            && node.key(last) >= end
        {
            let place = place(self.volume, expect.bytenr);
            let key = node.key(last);
            return Err(format!("block {}: {place}: keys must be below {end}, found {key}", expect.bytenr));
        }
        Ok(block)
    }
}

impl Iterator for Blocks<'_> {
    type Item = Result<Rc<Vec<u8>>, Bad>;

    fn next(&mut self) -> Option<Self::Item> {
        if !std::mem::replace(&mut self.started, true)
            && let Some(found) = self.enter(&self.start.root.clone(), None)
        {
            return Some(found);
        }
        loop {
            let step = self.way.last_mut()?;
            let (node, slot) = (Node::new(&step.block), step.next);
            if slot >= node.nritems() {
                self.way.pop();
                continue;
            }
            let expect = child(node, slot, self.start.root.owner);
            let end = if slot + 1 < node.nritems() { Some(node.key(slot + 1)) } else { step.end };
            step.next += 1;
            if let Some(found) = self.enter(&expect, end) {
                return Some(found);
            }
        }
    }
}

/// Device and physical address of a block's first copy.
fn place(volume: &Volume, bytenr: u64) -> String {
    let Some(chunk) = volume.chunks().find(bytenr) else { return "no chunk maps it".into() };
    let place = chunk.place(bytenr, 0);
    match volume.devices().get(&place.devid) {
        Some(device) => format!("{} at {}", device.name(), place.physical),
        None => format!("missing device {} at {}", place.devid, place.physical),
    }
}
