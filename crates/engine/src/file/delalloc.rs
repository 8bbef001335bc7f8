//! Delayed allocation: what is written in small pieces, each behind the last, is gathered in memory and goes to the
//! device in large ones.
//!
//! Space for all of it, data and items, is reserved when it is accepted: what a file system has accepted it can write. No
//! item tells of it yet, so its owner settles it before anybody looks at the file in any other way.

use super::in_place::{self, Place};
use super::put::Put;
use super::write::{self, Compress, How, ITEMS, SIZE_MAX};
use super::{inode, read};
use crate::bio::Wait;
use crate::space::reserve::Room;
use crate::tree::Tree;
use crate::{Engine, Error, Result};
use buttery_codec::COMPRESS_MAX;
use buttery_disk::inode::{InodeItem, Timespec};
use std::collections::VecDeque;

/// Bytes that are gathered before they are written.
const GATHER_MAX: usize = 1 << 20;
/// Bytes for which space is reserved at least, where it is plenty.
const AHEAD_MIN: u64 = 64 << 10;

/// A part of the file that is written in one piece.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Where it ends in the file.
    end: u64,
    /// It goes to space that was reserved for it, not to where it is.
    copied: bool,
}

/// A range of a file whose data are in memory, and newer than what the items say. While there is one, its owner keeps
/// everybody off the inode who does not go through it.
#[derive(Debug)]
pub struct Delalloc {
    /// Where it begins in the file, a multiple of the sector size, not beyond the size that the inode item states.
    start: u64,
    data: Vec<u8>,
    /// The pieces for which space is reserved, one behind the other.
    pieces: VecDeque<Piece>,
    room: Room,
    now: Timespec,
    /// What the inode item stated when it was last looked at.
    ctime: Timespec,
    /// How the data are compressed, if they are.
    compress: Option<Compress>,
}

impl Delalloc {
    /// Begins with `data` at `offset` of a file whose inode is `item`. `None` where it has to be written at once: the
    /// file is a small one, there is a gap before it, or space is not at hand.
    #[allow(clippy::too_many_arguments)] // all that a write is
    pub fn begin(
        engine: &Engine,
        tree: &Tree,
        ino: u64,
        item: &InodeItem,
        offset: u64,
        data: &[u8],
        now: Timespec,
        compress: Option<Compress>,
    ) -> Result<Option<Delalloc>> {
        let size = item.size.get();
        let end = offset.saturating_add(data.len() as u64);
        let is_small = end.max(size) <= engine.max_inline();
        if engine.writer()?.space.is_mixed() || offset > size || is_small {
            return Ok(None);
        }
        if write::has_inline(engine, tree, ino)? {
            return Ok(None);
        }
        let head = offset % sector(engine);
        let start = offset - head;
        let mut range = Delalloc {
            start,
            data: vec![0; head as usize],
            pieces: VecDeque::new(),
            room: Room::default(),
            now,
            ctime: item.ctime,
            compress,
        };
        read::read(engine, tree, ino, start, &mut range.data)?;
        match range.extend(engine, tree, ino, data, now) {
            Ok(true) => Ok(Some(range)),
            refused => {
                range.release(engine)?;
                refused.map(|_| None)
            }
        }
    }

    /// Takes `data` behind what is there. Answers `false` if it has to be settled and they be written at once.
    pub fn extend(
        &mut self,
        engine: &Engine,
        tree: &Tree,
        ino: u64,
        data: &[u8],
        now: Timespec,
    ) -> Result<bool> {
        if engine.writer()?.txn.is_aborted() {
            return Err(Error::Aborted);
        }
        // before they are taken: if this fails they are not
        if self.data.len() >= GATHER_MAX && !self.flush(engine, tree, ino)? {
            return Ok(false);
        }
        let end = self.end().checked_add(data.len() as u64).filter(|&end| end <= SIZE_MAX);
        let Some(end) = end else { return Ok(false) };
        if !self.grant(engine, tree, ino, end.next_multiple_of(sector(engine)))? {
            return Ok(false);
        }
        let len = self.data.len() + data.len();
        if len > self.data.capacity() {
            let most = len.max((2 * len).min(GATHER_MAX + AHEAD_MIN as usize));
            self.data.reserve_exact(most - self.data.len());
        }
        self.data.extend_from_slice(data);
        self.now = now;
        Ok(true)
    }

    /// Where it begins in the file.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Where it ends in the file.
    pub fn end(&self) -> u64 {
        self.start + self.data.len() as u64
    }

    /// When it was last written to.
    pub fn now(&self) -> Timespec {
        self.now
    }

    /// The change time of the inode item as it was, unless somebody else has changed it since.
    pub fn ctime(&self) -> Timespec {
        self.ctime
    }

    /// Writes all of it. If that fails, what could not be written is there still, and so is its space.
    pub fn settle(&mut self, engine: &Engine, tree: &Tree, ino: u64) -> Result<()> {
        let end = self.end();
        if self.data.is_empty() {
            return Ok(());
        }
        // the rest of the last sector: what the file has there, or zeros behind its end
        let mut rest = vec![0; (end.next_multiple_of(sector(engine)) - end) as usize];
        read::read(engine, tree, ino, end, &mut rest)?;
        self.data.extend_from_slice(&rest);
        let result = self.put(engine, tree, ino, self.data.len(), end);
        // without the rest
        self.data.truncate(end.saturating_sub(self.start) as usize);
        result
    }

    /// Gives the space back that was not needed.
    pub fn release(self, engine: &Engine) -> Result<()> {
        self.room.give_back(engine)
    }

    /// Writes all whole sectors. Answers `false` if it could not go on after that, and was settled.
    fn flush(&mut self, engine: &Engine, tree: &Tree, ino: u64) -> Result<bool> {
        // what stays may need a transaction of its own
        if !self.room.keep_metadata(engine, self.piece_items(engine))? {
            self.settle(engine, tree, ino)?;
            return Ok(false);
        }
        let unit = if self.compress.is_some() { COMPRESS_MAX } else { sector(engine) as usize };
        let whole = self.data.len() - self.data.len() % unit;
        self.put(engine, tree, ino, whole, self.start + whole as u64)?;
        Ok(true)
    }

    /// Writes so much of it, whole sectors; the file then ends at `end`. What was written is not there any more, even if
    /// the rest could not be.
    fn put(&mut self, engine: &Engine, tree: &Tree, ino: u64, len: usize, end: u64) -> Result<()> {
        let item = inode::read(engine, tree, ino)?;
        let how = How { now: Some(self.now), compress: self.compress, wait: Wait::No };
        let (room, done) = (std::mem::take(&mut self.room), self.start);
        let gathered = Some(self.ctime);
        let mut put = Put { room, done, gathered, ..Put::new(engine, tree, ino, &item, how) };
        let result = put.sectors(self.start, &self.data[..len], end);
        let done = put.done;
        self.room = put.room;
        if done > self.start {
            self.data.drain(..(done - self.start) as usize);
            // not beyond the size that the item states now
            self.start = done.min(end / sector(engine) * sector(engine));
            // if the item says anything else, somebody changed it
            self.ctime = self.now;
        }
        while self.pieces.pop_front_if(|piece| piece.end <= done).is_some() {}
        self.room.trim_data(engine, self.copied_from(done))?;
        self.room.trim_metadata(engine, self.pieces.len() as u64 * self.piece_items(engine))?;
        result
    }

    /// Bytes from `at` in the file on that go to space that is reserved for them.
    fn copied_from(&self, at: u64) -> u64 {
        let starts = std::iter::once(at).chain(self.pieces.iter().map(|piece| piece.end));
        let copied = self.pieces.iter().zip(starts).filter(|(piece, _)| piece.copied);
        copied.map(|(piece, start)| piece.end.saturating_sub(start)).sum()
    }

    /// Items that change when a piece is written. One that is compressed may be written in two.
    fn piece_items(&self, engine: &Engine) -> u64 {
        let ctx = engine.volume().context();
        let sums = GATHER_MAX as u64 * 2 / ctx.sectorsize as u64 * ctx.csum_size as u64;
        (2 + ITEMS + sums / 2048) * if self.compress.is_some() { 2 } else { 1 }
    }

    /// Reserves space up to `until` in the file. Answers `false` if it is not at hand.
    fn grant(&mut self, engine: &Engine, tree: &Tree, ino: u64, until: u64) -> Result<bool> {
        let mut granted = self.pieces.back().map_or(self.start, |last| last.end);
        if until <= granted {
            return Ok(true);
        }
        let (item, items) = (inode::read(engine, tree, ino)?, self.piece_items(engine));
        let ahead = (self.data.len() as u64).next_multiple_of(sector(engine));
        let ahead = ahead.clamp(AHEAD_MIN, GATHER_MAX as u64);
        while granted < until {
            let most = if self.compress.is_some() { COMPRESS_MAX } else { GATHER_MAX } as u64;
            let need = until - granted;
            let place = match in_place::is_possible(&item) {
                true => in_place::find(engine, tree, ino, granted, need.max(most), &item)?,
                false => Place::Copy(most),
            };
            let (len, copied, goes_on) = match place {
                Place::There { len, .. } => (len, false, false),
                Place::Copy(most) => {
                    let kept = self.room.keep_data(engine, need.min(most), need.max(ahead).min(most))?;
                    let Some((len, goes_on)) = kept else { return Ok(false) };
                    (len, true, goes_on)
                }
            };
            granted += len;
            match self.pieces.back_mut() {
                Some(last) if last.copied && goes_on && self.compress.is_none() => last.end = granted,
                _ if self.room.keep_metadata(engine, items)? => {
                    self.pieces.push_back(Piece { end: granted, copied });
                }
                _ => {
                    if copied {
                        self.room.drop_last(engine, len)?;
                    }
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

fn sector(engine: &Engine) -> u64 {
    engine.volume().context().sectorsize as u64
}
