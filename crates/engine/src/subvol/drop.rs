//! Dropping the tree of a deleted subvolume.
//!
//! Blocks that only this tree has are freed, and what they refer to loses a reference. Of a block that others have too,
//! this tree's reference goes; if it was made by this tree, those of its children are in this tree's name, and before that
//! become full ones, held by the block, as they do in every block below that this tree made.
//!
//! The walk goes depth first, left to right; what is left of it is gone, and no descent looks there.

use super::delete;
use crate::extent::children::{self, RefBy};
use crate::store::Block;
use crate::tree::{RootPtr, Tree};
use crate::txn::{ExtentKind, Purpose, Trans};
use crate::{Engine, Error, Result, extent};
use buttery_disk::check::Expect;
use buttery_disk::extent::BackRef;
use buttery_disk::extent::flags::FULL_BACKREF;
use buttery_disk::root::RootItem;
use buttery_disk::{Key, TreeId};
use buttery_volume::walk;
use std::sync::Arc;

/// References that a step changes before it ends, and blocks that it looks at: little enough for what is reserved.
const STEP_REFS: usize = 256;
const STEP_BLOCKS: usize = 64;
const STEP_ITEMS: u64 = 16;

/// A node on the way, and which of its children comes next.
struct At {
    block: Arc<Block>,
    slot: usize,
    /// In whose name it holds the references of its children.
    by: RefBy,
}

impl At {
    fn level(&self) -> u8 {
        self.block.node().level()
    }

    fn bytenr(&self) -> u64 {
        self.block.node().header().bytenr.get()
    }

    fn is_done(&self) -> bool {
        self.level() == 0 || self.slot >= self.block.node().nritems()
    }
}

/// A tree that is being dropped.
pub struct Dropping {
    tree: Arc<Tree>,
    /// From the root down; only this tree has them.
    path: Vec<At>,
    /// From a block that others have too down, through those that this tree made.
    shared: Vec<At>,
    /// References that this step has changed.
    changed: usize,
}

impl Dropping {
    /// Begins, or goes on where it was left. From now on nobody else finds the tree. `None` while somebody uses it.
    pub fn begin(engine: &Engine, id: TreeId) -> Result<Option<Dropping>> {
        let tree = match engine.tree_or_dropping(id) {
            Err(Error::NotFound) => {
                engine.change(4, Purpose::Free, |trans| delete::remove_orphan(trans, id))?;
                return Err(Error::NotFound);
            }
            tree => tree?,
        };
        if tree.item().refs.get() != 0 {
            let key = delete::orphan_key(id);
            return Err(Error::corrupt(tree.id(), key, "it is to be dropped, and has references"));
        }
        {
            // with the lock nobody else gets the tree meanwhile; one is the table's, one is ours
            let _table = engine.trees.write();
            if Arc::strong_count(&tree) > 2 {
                return Ok(None);
            }
            tree.set_dropping();
        }
        engine.writer()?.inodes.forget(id);
        let path = start(engine, &tree)?;
        Ok(Some(Dropping { tree, path, shared: Vec::new(), changed: 0 }))
    }

    /// The subvolume.
    pub fn id(&self) -> TreeId {
        self.tree.id()
    }

    /// Goes on for a while. Answers whether nothing is left. After an error, of a block that cannot be read, it is of no
    /// further use; what was done before stands.
    pub fn step(&mut self, engine: &Engine) -> Result<bool> {
        engine.change(STEP_ITEMS, Purpose::Free, |trans| {
            self.changed = 0;
            let mut blocks = 0;
            loop {
                self.go_up(trans)?;
                if self.path.is_empty() {
                    self.end(trans)?;
                    return Ok(Ok(true));
                }
                blocks += 1;
                if blocks > STEP_BLOCKS || self.changed >= STEP_REFS {
                    self.note_progress(trans);
                    return Ok(Ok(false));
                }
                let next = match self.shared.is_empty() {
                    true => self.next_child(trans),
                    false => self.next_shared(trans),
                };
                if let Err(error) = next {
                    // it changed nothing
                    self.note_progress(trans);
                    return Ok(Err(error));
                }
            }
        })?
    }

    /// Leaves what is done: blocks of this tree alone are freed.
    fn go_up(&mut self, trans: &mut Trans<'_>) -> Result<()> {
        while let Some(at) = self.shared.pop_if(|at| at.is_done()) {
            if self.shared.is_empty() {
                self.let_go_shared(trans, at)?;
            }
        }
        while self.shared.is_empty()
            && let Some(at) = self.path.pop_if(|at| at.is_done())
        {
            if at.level() == 0 {
                self.change_children(trans, &at.block, at.by, -1)?;
            }
            trans.store().forget(at.bytenr());
            self.let_go(trans, at.bytenr(), at.level())?;
        }
        Ok(())
    }

    /// The block at which a shared part begins: others may have let it go meanwhile, and then it is this tree's alone.
    fn let_go_shared(&mut self, trans: &mut Trans<'_>, at: At) -> Result<()> {
        let _alone = trans.writer().sharing.lock();
        match extent::block_refs(trans.engine(), at.bytenr(), at.level())?.0 {
            0 => Err(corrupt(&self.tree, at.bytenr(), "has no references")),
            1 => {
                self.path.push(At { slot: 0, ..at });
                Ok(())
            }
            _ => self.let_go(trans, at.bytenr(), at.level()),
        }
    }

    /// Drops this tree's reference to the block that comes next, or to the root, which no block refers to.
    fn let_go(&mut self, trans: &mut Trans<'_>, bytenr: u64, level: u8) -> Result<()> {
        let backref = match self.path.last_mut() {
            Some(parent) => {
                parent.slot += 1;
                match parent.by {
                    RefBy::Root(root) => BackRef::TreeBlock { root },
                    RefBy::Parent(parent) => BackRef::SharedBlock { parent },
                }
            }
            None => BackRef::TreeBlock { root: self.tree.id().0 },
        };
        self.changed += 1;
        let len = trans.store().nodesize() as u64;
        trans.add_ref(bytenr, len, ExtentKind::Tree { level }, backref, -1)
    }

    /// Looks at the next child of the lowest node.
    fn next_child(&mut self, trans: &mut Trans<'_>) -> Result<()> {
        let Some(parent) = self.path.last() else { return Ok(()) };
        let expect = walk::child(parent.block.node(), parent.slot, None);
        let level = parent.level() - 1;
        // nobody else may count its references until ours is dropped
        let _alone = trans.writer().sharing.lock();
        let (refs, flags) = extent::block_refs(trans.engine(), expect.bytenr, level)?;
        match refs {
            0 => Err(corrupt(&self.tree, expect.bytenr, "has no references")),
            1 => {
                let block = trans.store().read(&expect)?;
                self.path.push(self.alone(block, flags)?);
                Ok(())
            }
            _ => {
                if self.may_have_made(&expect) {
                    let block = trans.store().read(&expect)?;
                    if self.has_made(&block) {
                        self.make_full(trans, block, flags)?;
                        return Ok(());
                    }
                }
                self.let_go(trans, expect.bytenr, level)
            }
        }
    }

    fn change_children(&mut self, trans: &mut Trans<'_>, block: &Block, by: RefBy, count: i64) -> Result<()> {
        self.changed += block.node().nritems();
        children::add(trans, block.node(), by, count)
    }

    /// A block that only this tree has.
    fn alone(&self, block: Arc<Block>, flags: u64) -> Result<At> {
        let by = match flags & FULL_BACKREF {
            0 if !self.has_made(&block) => {
                return Err(corrupt(&self.tree, block.node().header().bytenr.get(), "is another's"));
            }
            0 => RefBy::Root(self.tree.id().0),
            _ => RefBy::Parent(block.node().header().bytenr.get()),
        };
        Ok(At { block, slot: 0, by })
    }

    /// Whether this tree can have made a block: it is not older than the tree.
    fn may_have_made(&self, expect: &Expect) -> bool {
        expect.generation.is_none_or(|generation| generation > self.tree.item_key().offset)
    }

    fn has_made(&self, block: &Block) -> bool {
        block.node().header().owner.get() == self.tree.id().0
    }

    /// Has a block that this tree made, and others have too, hold the references of its children itself.
    fn make_full(&mut self, trans: &mut Trans<'_>, block: Arc<Block>, flags: u64) -> Result<()> {
        let header = *block.node().header();
        let by = RefBy::Parent(header.bytenr.get());
        if flags & FULL_BACKREF == 0 {
            self.change_children(trans, &block, by, 1)?;
            self.change_children(trans, &block, RefBy::Root(self.tree.id().0), -1)?;
            trans.set_full_backref(header.bytenr.get(), header.level);
        }
        self.shared.push(At { block, slot: 0, by });
        Ok(())
    }

    /// Looks at the next child of the lowest shared node.
    fn next_shared(&mut self, trans: &mut Trans<'_>) -> Result<()> {
        let Some(parent) = self.shared.last_mut() else { return Ok(()) };
        let expect = walk::child(parent.block.node(), parent.slot, None);
        let level = parent.level() - 1;
        parent.slot += 1;
        if !self.may_have_made(&expect) {
            return Ok(());
        }
        let _alone = trans.writer().sharing.lock();
        let (refs, flags) = extent::block_refs(trans.engine(), expect.bytenr, level)?;
        if refs == 0 {
            return Err(corrupt(&self.tree, expect.bytenr, "has no references"));
        }
        let block = trans.store().read(&expect)?;
        if self.has_made(&block) {
            self.make_full(trans, block, flags)?;
        }
        Ok(())
    }

    /// Where to go on, for whoever does.
    fn note_progress(&self, trans: &mut Trans<'_>) {
        let Some(at) = self.path.last() else { return };
        let key = at.block.node().key(at.slot);
        trans.mark_modified();
        self.tree.update_item(|item| {
            item.drop_progress = key.into();
            item.drop_level = at.level();
        });
    }

    /// Nothing is left: the root item goes.
    fn end(&self, trans: &mut Trans<'_>) -> Result<()> {
        let (engine, id) = (trans.engine(), self.tree.id());
        let root_tree = engine.root_tree().clone();
        match root_tree.write(trans).remove(self.tree.item_key()) {
            // it was made in this transaction
            Err(Error::NotFound) => {}
            other => other?,
        }
        delete::remove_orphan(trans, id)?;
        // last, so that nobody finds the root item without it
        engine.trees.write().remove(&id.0);
        Ok(())
    }
}

fn corrupt(tree: &Tree, bytenr: u64, what: &str) -> Error {
    Error::Corrupt(format!("tree {}: block {bytenr} {what}", tree.id()).into())
}

/// The path to where it goes on.
fn start(engine: &Engine, tree: &Tree) -> Result<Vec<At>> {
    let (item, root): (RootItem, RootPtr) = (tree.item(), tree.root());
    let (progress, level): (Key, u8) = (item.drop_progress.into(), item.drop_level);
    let begun = progress != Key::MIN;
    if begun && (level == 0 || level > root.level) {
        return Err(Error::corrupt(tree.id(), tree.item_key(), format!("a drop level of {level}")));
    }
    let mut expect = Expect {
        bytenr: root.bytenr,
        level: Some(root.level),
        generation: Some(root.generation),
        first_key: None,
        owner: None,
    };
    let mut path: Vec<At> = Vec::new();
    loop {
        let block = engine.store().read(&expect)?;
        let here = block.node().level();
        let (refs, flags) = extent::block_refs(engine, expect.bytenr, here)?;
        if refs != 1 {
            return Err(corrupt(tree, expect.bytenr, &format!("of its own has {refs} references")));
        }
        let by = match flags & FULL_BACKREF {
            0 => RefBy::Root(tree.id().0),
            _ => RefBy::Parent(expect.bytenr),
        };
        let slot = if begun { block.node().child_slot(&progress) } else { 0 };
        let at = At { block, slot, by };
        if !begun || here == level {
            path.push(at);
            return Ok(path);
        }
        expect = walk::child(at.block.node(), slot, None);
        path.push(at);
    }
}
