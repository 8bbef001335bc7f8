//! Transactions: handles that join one, and the commit that ends it.
//!
//! [`Engine::start`] reserves space and joins the running transaction; what a [`Trans`] changes is on the device after
//! the commit, all of it or nothing. A handle that fails after it changed something ends writing for good: half of an
//! operation must never be committed.

mod commit;
mod delayed;

pub(crate) use delayed::{DelayedRefs, ExtentKind, Head};

use crate::space::Space;
use crate::store::Store;
use crate::subvol::snapshot::Pending;
use crate::{Engine, Error, Result, Writer};
use buttery_disk::TreeId;
use buttery_disk::extent::BackRef;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a handle may use up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// An ordinary operation: it leaves the global reserve alone.
    Change,
    /// An operation whose space for data was taken before: it may use half of the global reserve.
    Fill,
    /// An operation that gives space back: it may use the global reserve, so that a full file system can be emptied.
    Free,
}

/// The state of the running transaction.
pub(crate) struct Transactions {
    state: Mutex<State>,
    changed: Condvar,
    /// One commit at a time.
    commit: Mutex<()>,
    aborted: AtomicBool,
    /// Why writing ended.
    reason: Mutex<Option<String>>,
    /// Something changed since the last commit.
    modified: AtomicBool,
    /// How often data were written in place, with no item telling of it, and how many of these are flushed.
    written: AtomicU64,
    flushed: AtomicU64,
    /// The last transaction that is on the device.
    committed: AtomicU64,
    /// Snapshots that the next commit takes.
    pub pending: Mutex<Vec<Arc<Pending>>>,
}

struct State {
    /// The running transaction's id.
    id: u64,
    handles: usize,
    /// A commit waits for the handles to end, and lets nobody join.
    closed: bool,
}

impl Transactions {
    pub fn new(committed: u64) -> Transactions {
        Transactions {
            state: Mutex::new(State { id: committed + 1, handles: 0, closed: false }),
            changed: Condvar::new(),
            commit: Mutex::new(()),
            aborted: false.into(),
            reason: Mutex::new(None),
            modified: false.into(),
            written: 0.into(),
            flushed: 0.into(),
            committed: committed.into(),
            pending: Mutex::default(),
        }
    }

    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// Ends writing for good; the first reason is kept.
    pub fn abort(&self, reason: &Error) {
        let mut first = self.reason.lock();
        if first.is_none() {
            tracing::error!("writing ends: {reason}");
            *first = Some(reason.to_string());
        }
        self.aborted.store(true, Ordering::Release);
    }

    pub fn reason(&self) -> Option<String> {
        self.reason.lock().clone()
    }

    /// Data were written to the device of which no item tells.
    pub fn wrote_in_place(&self) {
        self.written.fetch_add(1, Ordering::AcqRel);
    }

    /// How far a flush that begins now reaches.
    fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// What was written up to then is flushed.
    fn flushed(&self, written: u64) {
        self.flushed.fetch_max(written, Ordering::AcqRel);
    }

    fn is_unflushed(&self) -> bool {
        self.flushed.load(Ordering::Acquire) < self.written()
    }

    fn join(&self) -> Result<u64> {
        let mut state = self.state.lock();
        while state.closed {
            self.changed.wait(&mut state);
        }
        if self.is_aborted() {
            return Err(Error::Aborted);
        }
        state.handles += 1;
        Ok(state.id)
    }

    fn leave(&self) {
        let mut state = self.state.lock();
        state.handles -= 1;
        if state.handles == 0 {
            self.changed.notify_all();
        }
    }
}

/// A handle of the running transaction. No data I/O, flush or callback into the user's code while one is held.
pub struct Trans<'t> {
    engine: &'t Engine,
    writer: &'t Writer,
    id: u64,
    /// Bytes of metadata space that this handle may still use.
    reserved: u64,
    modified: bool,
    ended: bool,
    /// The commit's own handle, which is not counted.
    of_commit: bool,
}

impl Engine {
    /// Reserves space for changing about `items` items and joins the running transaction. May commit, or allocate a
    /// chunk, to find the space; so no lock and no other handle may be held.
    pub fn start(&self, items: u64, purpose: Purpose) -> Result<Trans<'_>> {
        let writer = self.writer()?;
        if writer.txn.is_aborted() {
            return Err(Error::Aborted);
        }
        let reserved = crate::space::reserve::metadata(self, items, purpose)?;
        self.join(reserved)
    }

    /// As [`start`](Self::start), but with the space that is there: no commit, no new chunk, `NoSpace` instead.
    pub(crate) fn start_at_hand(&self, items: u64, purpose: Purpose) -> Result<Trans<'_>> {
        let reserved = crate::space::reserve::metadata_at_hand(self, items, purpose)?;
        self.join(reserved)
    }

    /// Joins the running transaction with so many bytes that were reserved.
    pub(crate) fn join(&self, reserved: u64) -> Result<Trans<'_>> {
        let writer = self.writer()?;
        match writer.txn.join() {
            Ok(id) => Ok(Trans {
                engine: self,
                writer,
                id,
                reserved,
                modified: false,
                ended: false,
                of_commit: false,
            }),
            Err(error) => {
                writer.space.unreserve(reserved);
                Err(error)
            }
        }
    }

    /// A handle without a reservation, for making a chunk: that must work when there is nothing left to reserve.
    pub(crate) fn start_unreserved(&self) -> Result<Trans<'_>> {
        let writer = self.writer()?;
        let id = writer.txn.join()?;
        Ok(Trans { engine: self, writer, id, reserved: 0, modified: false, ended: false, of_commit: false })
    }

    /// Runs an operation in a transaction. If it fails after it changed something, writing ends for good.
    pub fn change<R>(
        &self,
        items: u64,
        purpose: Purpose,
        operation: impl FnOnce(&mut Trans<'_>) -> Result<R>,
    ) -> Result<R> {
        let mut trans = self.start(items, purpose)?;
        let result = operation(&mut trans);
        trans.end(result)
    }

    /// Why writing ended, if it did.
    pub fn abort_reason(&self) -> Option<String> {
        self.writer.as_ref().and_then(|w| w.txn.reason())
    }

    /// The id of the last transaction that is on the device.
    pub fn last_committed(&self) -> u64 {
        match &self.writer {
            Some(writer) => writer.txn.committed.load(Ordering::Acquire),
            None => self.superblock().generation.get(),
        }
    }
}

impl<'t> Trans<'t> {
    /// The transaction's id, which becomes the generation of what it writes.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn engine(&self) -> &'t Engine {
        self.engine
    }

    pub(crate) fn writer(&self) -> &'t Writer {
        self.writer
    }

    pub(crate) fn store(&self) -> &'t Store {
        &self.engine.store
    }

    pub(crate) fn space(&self) -> &'t Space {
        &self.writer.space
    }

    pub(crate) fn chunk_tree_uuid(&self) -> [u8; 16] {
        self.writer.space.chunk_tree_uuid()
    }

    pub(crate) fn mark_modified(&mut self) {
        self.modified = true;
        self.writer.txn.modified.store(true, Ordering::Release);
    }

    /// Ends the handle with the operation's result.
    pub fn end<R>(mut self, result: Result<R>) -> Result<R> {
        if let Err(error) = &result
            && self.modified
        {
            self.writer.txn.abort(error);
        }
        self.leave();
        result
    }

    fn leave(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.writer.space.unreserve(self.reserved);
            self.reserved = 0;
            if !self.of_commit {
                self.writer.txn.leave();
            }
        }
    }

    /// A block for a tree, with its first reference.
    pub(crate) fn alloc_block(&mut self, tree: TreeId, level: u8) -> Result<u64> {
        let len = self.store().nodesize() as u64;
        let bytenr = self.writer.space.alloc_block(tree, len)?;
        let use_up = self.reserved.min(len);
        self.reserved -= use_up;
        self.writer.space.unreserve(use_up);
        let backref = BackRef::TreeBlock { root: tree.0 };
        self.writer.refs.add_new(bytenr, len, ExtentKind::Tree { level }, backref);
        Ok(bytenr)
    }

    pub(crate) fn drop_block_ref(&mut self, tree: TreeId, bytenr: u64, level: u8) -> Result<()> {
        let len = self.store().nodesize() as u64;
        self.add_ref(bytenr, len, ExtentKind::Tree { level }, BackRef::TreeBlock { root: tree.0 }, -1)
    }

    pub(crate) fn add_ref(
        &mut self,
        bytenr: u64,
        len: u64,
        kind: ExtentKind,
        backref: BackRef,
        count: i64,
    ) -> Result<()> {
        if kind == ExtentKind::Data && count > 0 {
            self.writer.alone.add_ref(bytenr, backref);
        }
        self.writer.refs.add(bytenr, len, kind, backref, count);
        Ok(())
    }

    /// The first reference of a data extent that was allocated for this transaction.
    pub(crate) fn add_new_data_ref(&mut self, bytenr: u64, len: u64, backref: BackRef) -> Result<()> {
        self.writer.alone.forget(bytenr);
        self.writer.space.use_data(bytenr, len)?;
        self.writer.refs.add_new(bytenr, len, ExtentKind::Data, backref);
        Ok(())
    }

    pub(crate) fn set_full_backref(&mut self, bytenr: u64, level: u8) {
        self.writer.refs.set_full_backref(bytenr, self.store().nodesize() as u64, level);
    }
}

impl Drop for Trans<'_> {
    fn drop(&mut self) {
        if !self.ended && self.modified && !self.of_commit {
            // dropped by a panic in the middle of an operation
            self.writer.txn.abort(&Error::Aborted);
        }
        self.leave();
    }
}
