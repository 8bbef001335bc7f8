//! What a snapshot holds up in the subvolume that it is taken of: data in memory, and writes in place. A write in place
//! finds where it may go, writes, and says so in the tree; a snapshot between these would see what came after it.

use crate::Result;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Two locks that those who write only try: while a snapshot has them, or waits for them, they do without.
#[derive(Default)]
pub(super) struct Gate {
    gathering: RwLock<()>,
    in_place: RwLock<()>,
}

/// While there is one, nothing of the subvolume is in memory only, and nobody writes in place.
pub struct Still<'a> {
    pub(crate) tree: &'a super::Tree,
    _gathering: RwLockWriteGuard<'a, ()>,
    _in_place: RwLockWriteGuard<'a, ()>,
}

impl super::Tree {
    /// To be held while data are taken into memory that no item tells of. `None` while a snapshot is being taken: they
    /// have to be written at once.
    pub fn gathering(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.gate.gathering.try_read()
    }

    /// To be held from looking where data may be written in place until the tree says that they are there. `None` while a
    /// snapshot is being taken: they have to go elsewhere.
    pub(crate) fn writing_in_place(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.gate.in_place.try_read()
    }

    /// Holds the subvolume still. `settle` writes what is in memory only, while nothing is added to it.
    pub fn hold_still(&self, settle: impl FnOnce() -> Result<()>) -> Result<Still<'_>> {
        let _gathering = self.gate.gathering.write();
        settle()?;
        Ok(Still { tree: self, _gathering, _in_place: self.gate.in_place.write() })
    }
}
