//! What becomes of deleted subvolumes: their trees are dropped, one after the other, when nobody uses them any more.

use crate::{Error, Filesystem, Result};
use buttery_disk::TreeId;
use buttery_engine::subvol::delete;
use buttery_engine::subvol::drop::Dropping;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::Duration;

/// Deleted subvolumes whose trees are there still.
#[derive(Default)]
pub(crate) struct Dead {
    waiting: Mutex<VecDeque<TreeId>>,
    /// The one whose turn it is. Who has the lock works on it.
    current: Mutex<Option<Dropping>>,
}

impl Dead {
    pub fn add(&self, id: TreeId) {
        self.waiting.lock().push_back(id);
    }
}

/// How it stands with the deleted subvolumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// None is left.
    Nothing,
    /// Some of their files are used still.
    Used,
    /// There is more to be done.
    More,
}

impl Filesystem {
    /// The subvolumes that were deleted before.
    pub(crate) fn find_dead(&self) -> Result<()> {
        let dead = &self.write_state()?.dead;
        delete::dead(&self.engine)?.into_iter().for_each(|id| dead.add(id));
        Ok(())
    }

    /// Drops a small part of what deleted subvolumes take up, of those that were deleted at any time and by anybody. The
    /// space is back with the next commit. A program that stays calls this in the background until nothing is left; one
    /// that does not leaves the rest to who opens the file system next.
    ///
    /// A tree with blocks that cannot be read stays as it is, with an error each time the file system is opened.
    pub fn drop_deleted(&self) -> Result<Left> {
        let dead = &self.write_state()?.dead;
        let mut current = dead.current.lock();
        if current.is_none() {
            *current = self.next_dead()?;
        }
        let Some(dropping) = &mut *current else {
            let empty = dead.waiting.lock().is_empty();
            return Ok(if empty { Left::Nothing } else { Left::Used });
        };
        match dropping.step(&self.engine) {
            Ok(false) => {}
            Ok(true) => *current = None,
            // nothing was done; there may be space later
            Err(Error::NoSpace) => return Ok(Left::Used),
            Err(error) => {
                *current = None;
                return Err(error);
            }
        }
        drop(current);
        self.after_operation()?;
        Ok(Left::More)
    }

    /// Drops all that it can, for who does not stay. What is used, or finds no space, is waited for a little.
    pub fn drop_all_deleted(&self) -> Result<Left> {
        const WAIT: Duration = Duration::from_millis(10);
        let mut waits = 100;
        loop {
            match self.drop_deleted()? {
                Left::More => {}
                Left::Used if waits > 0 => {
                    waits -= 1;
                    self.sync()?; // what was dropped before is free then
                    std::thread::sleep(WAIT);
                }
                left => return Ok(left),
            }
        }
    }

    /// Whether deleted subvolumes wait to be dropped.
    pub fn has_deleted(&self) -> bool {
        self.write.as_ref().is_some_and(|state| !state.dead.waiting.lock().is_empty())
    }

    /// The next that nobody uses.
    fn next_dead(&self) -> Result<Option<Dropping>> {
        let state = self.write_state()?;
        let waiting: Vec<TreeId> = state.dead.waiting.lock().iter().copied().collect();
        for id in waiting {
            let used = id == self.root.tree || state.held.lock().keys().any(|file| file.tree == id);
            let begun = if used { Ok(None) } else { Dropping::begin(&self.engine, id) };
            if !matches!(begun, Ok(None) | Err(Error::NoSpace)) {
                state.dead.waiting.lock().retain(|other| *other != id);
            }
            match begun {
                Ok(None) | Err(Error::NotFound | Error::NoSpace) => {}
                Ok(Some(dropping)) => {
                    state.gathered.settle_subvolume(id)?; // which forgets what nobody has
                    return Ok(Some(dropping));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}
