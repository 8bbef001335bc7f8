//! The locks of inodes' data.

use crate::FileId;
use parking_lot::{RwLock, RwLockWriteGuard};

/// How many locks the inodes share.
const INODE_LOCKS: usize = 1024;

/// Who changes an inode's data is alone, but for those who write over what is there, and readers: they share its lock,
/// and lock ranges.
pub(crate) struct InodeLocks(Vec<RwLock<()>>);

impl InodeLocks {
    pub fn new() -> InodeLocks {
        InodeLocks((0..INODE_LOCKS).map(|_| RwLock::new(())).collect())
    }

    /// The lock of an inode's data.
    pub fn of(&self, id: FileId) -> &RwLock<()> {
        &self.0[Self::index(id)]
    }

    /// Which of so many locks an inode has.
    fn index(id: FileId) -> usize {
        hash(id) as usize % INODE_LOCKS
    }

    /// Both inodes' locks for writing, always in the same order; they may be one.
    pub fn two(&self, a: FileId, b: FileId) -> (RwLockWriteGuard<'_, ()>, Option<RwLockWriteGuard<'_, ()>>) {
        let (a, b) = (Self::index(a), Self::index(b));
        let first = self.0[a.min(b)].write();
        (first, (a != b).then(|| self.0[a.max(b)].write()))
    }
}

/// 32 bits that tell files apart, most of the time.
pub(crate) fn hash(id: FileId) -> u32 {
    let mixed = (id.ino ^ id.tree.0.wrapping_mul(0x9E37_79B9)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) as u32
}
