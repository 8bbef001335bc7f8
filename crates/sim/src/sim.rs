//! Runs operations on the model and on the library, and compares.

use crate::facts;
use crate::image::CLOCK;
use crate::model::Model;
use crate::op::{Op, Picker, Weights};
use buttery::{FileId, Filesystem};
use buttery_judge::{Compare, Fact, Kind, compare};

/// Both file systems and what picks the operations.
pub struct Sim {
    pub model: Model,
    pub picker: Picker,
    top: FileId,
    /// Operations done.
    pub steps: usize,
    /// Operations refused by both.
    pub refused: usize,
    /// An operation that finds no space is left out of the comparison.
    pub may_be_full: bool,
}

impl Sim {
    /// Begins with what there is below `top`.
    pub fn new(fs: &Filesystem, top: FileId, seed: u64, weights: Weights) -> Result<Sim, String> {
        let model = Model::read(fs, top, CLOCK)?;
        let sim =
            Sim { model, picker: Picker::new(seed, weights), top, steps: 0, refused: 0, may_be_full: false };
        sim.compare(fs)?;
        Ok(sim)
    }

    /// One operation, on both.
    pub fn step(&mut self, fs: &Filesystem) -> Result<(), String> {
        let op = self.picker.pick(&self.model);
        self.run(fs, &op)
            .and_then(|()| self.check_size(fs, &op))
            .map_err(|e| format!("step {}, {op:?}: {e}", self.steps))
    }

    /// What was written to is seen at once, wherever the data are.
    fn check_size(&self, fs: &Filesystem, op: &Op) -> Result<(), String> {
        let Op::Write { ino, .. } = op else { return Ok(()) };
        let node = self.model.node(*ino);
        if node.kind != Kind::File {
            return Ok(());
        }
        let found = fs.stat(node.id).map_err(|e| e.to_string())?.size;
        let expected = node.content.size();
        if found == expected {
            Ok(())
        } else {
            Err(format!("it has {expected} bytes, and seems to have {found}"))
        }
    }

    /// The given operation, on both.
    pub fn run(&mut self, fs: &Filesystem, op: &Op) -> Result<(), String> {
        self.steps += 1;
        let found = op.library(&self.model, fs);
        let expected = op.model(&mut self.model);
        match (expected, found) {
            (Ok(Some(ino)), Ok(Some(id))) => {
                self.model.node_mut(ino).id = id;
                if let Op::Snapshot { .. } = op {
                    self.model.adopt(ino, id.tree);
                }
                Ok(())
            }
            (Ok(None), Ok(None)) => Ok(()),
            (Err(a), Err(b)) if a == b => {
                self.refused += 1;
                Ok(())
            }
            (expected, found) => {
                let why = fs.engine().abort_reason().unwrap_or_default();
                Err(format!("the model says {expected:?}, the library {found:?} {why}"))
            }
        }
    }

    /// The whole tree, through the library.
    pub fn compare(&self, fs: &Filesystem) -> Result<(), String> {
        self.compare_with(&facts::walk_from(fs, self.top)?)
    }

    /// The whole tree, as told by somebody: `found` is on the right.
    pub fn compare_with(&self, found: &[Fact]) -> Result<(), String> {
        compare(&ownerless(self.model.facts()), &ownerless(found.to_vec()), &Compare::default())
    }
}

/// Facts without the owner of the stand-ins for subvolumes: nobody keeps it, and the kernel tells that of the directory
/// above.
pub fn ownerless(mut facts: Vec<Fact>) -> Vec<Fact> {
    facts.iter_mut().filter(|f| f.stub()).for_each(|f| (f.uid, f.gid) = (0, 0));
    facts
}
