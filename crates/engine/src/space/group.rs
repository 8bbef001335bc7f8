//! One block group.

use super::FreeRanges;
use crate::{Error, Result};
use buttery_disk::chunk::bg;
use parking_lot::Mutex;

/// What space is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    Data,
    Metadata,
    System,
}

/// What a file system lies on, which shapes where space is given out (`ssd`, `nossd`, `ssd_spread`). The sizes are the
/// kernel's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Media {
    /// It does not matter how far apart blocks lie; tree blocks are written in larger areas.
    Ssd,
    /// What is written together should lie together.
    NoSsd,
    /// Data, too, are given out of larger free areas only, as long as there are any.
    SsdSpread,
}

/// Bytes of a larger free area.
const AREA: u64 = 2 << 20;

impl Media {
    /// The free area in which tree blocks are begun, if there is one.
    fn metadata_area(self) -> u64 {
        if self == Media::NoSsd { 64 << 10 } else { AREA }
    }
}

/// A block group: a chunk's range of logical addresses and what is used in it.
pub(crate) struct Group {
    pub start: u64,
    pub len: u64,
    /// Type and profile bits.
    pub flags: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Bytes of extents that have references.
    used: u64,
    /// Bytes given out that have none yet.
    allocated: u64,
    /// Bytes freed but not yet to be given out.
    pinned: u64,
    /// Bytes under copies of the superblock.
    excluded: u64,
    /// `None` until read.
    free: Option<FreeRanges>,
    /// The item on disk says something else.
    dirty: bool,
    /// Nothing is given out any more.
    closed: bool,
    /// Where to look for the next tree block.
    hint: u64,
    /// What is left of the free range from which data were given out last, where they are spread.
    area: (u64, u64),
}

impl Group {
    pub fn new(start: u64, len: u64, flags: u64, used: u64) -> Group {
        Group { start, len, flags, state: Mutex::new(State { used, ..State::default() }) }
    }

    /// A group that was made just now: all free but for `excluded` ranges, its item not written.
    pub fn new_empty(start: u64, len: u64, flags: u64, excluded: &[(u64, u64)]) -> Group {
        let group = Group::new(start, len, flags, 0);
        let mut free = FreeRanges::default();
        free.add(start, len);
        group.set_free(free, excluded);
        group
    }

    pub fn end(&self) -> u64 {
        self.start + self.len
    }

    /// What the group is for; a mixed one counts as metadata.
    pub fn class(&self) -> Class {
        match self.flags & bg::TYPE_MASK {
            bg::SYSTEM => Class::System,
            bg::DATA => Class::Data,
            _ => Class::Metadata,
        }
    }

    /// Whether a class is served from it.
    pub fn serves(&self, class: Class) -> bool {
        match class {
            Class::System => self.flags & bg::SYSTEM != 0,
            Class::Metadata => self.flags & bg::METADATA != 0,
            Class::Data => self.flags & bg::DATA != 0,
        }
    }

    pub fn is_loaded(&self) -> bool {
        self.state.lock().free.is_some()
    }

    /// Takes over what was read of its free space, without the excluded ranges.
    pub fn set_free(&self, mut free: FreeRanges, excluded: &[(u64, u64)]) {
        let mut state = self.state.lock();
        if state.free.is_some() {
            return;
        }
        state.excluded = 0;
        for &(start, len) in excluded {
            free.remove(start, len);
            state.excluded += len;
        }
        state.free = Some(free);
    }

    pub fn used(&self) -> u64 {
        self.state.lock().used
    }

    /// Bytes that could be given out.
    pub fn available(&self) -> u64 {
        let state = self.state.lock();
        if state.closed {
            return 0;
        }
        self.len.saturating_sub(state.used + state.allocated + state.pinned + state.excluded)
    }

    /// The largest range that could be given out; 0 while not loaded.
    pub fn largest(&self) -> u64 {
        let state = self.state.lock();
        if state.closed { 0 } else { state.free.as_ref().map_or(0, FreeRanges::largest) }
    }

    /// Gives nothing out any more, if it is empty. Answers whether it is.
    pub fn close_if_empty(&self) -> bool {
        let mut state = self.state.lock();
        let empty = state.used + state.allocated + state.pinned == 0;
        state.closed |= empty;
        empty
    }

    /// Undoes [`close_if_empty`](Self::close_if_empty).
    pub fn reopen(&self) {
        self.state.lock().closed = false;
    }

    /// Takes a tree block, behind the one that was taken last if there is room.
    pub fn take_block(&self, len: u64, media: Media) -> Option<u64> {
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        let hint = state.hint;
        let bytenr = state.free.as_mut()?.take_block(len, hint, media.metadata_area())?;
        state.hint = bytenr + len;
        state.used += len;
        state.dirty = true;
        Some(bytenr)
    }

    /// Takes up to `want` bytes for data, at least `min`.
    pub fn take_data(&self, want: u64, min: u64, media: Media) -> Option<(u64, u64)> {
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        let (at, end) = state.area;
        let free = state.free.as_mut()?;
        let (start, got) = if media != Media::SsdSpread {
            free.take(want, min)?
        } else if at + want <= end && free.take_at(at, want) {
            state.area.0 += want;
            (at, want)
        } else if let Some((start, end)) = free.take_of_area(want, AREA) {
            state.area = (start + want, end);
            (start, want)
        } else {
            free.take(want, min)?
        };
        state.allocated += got;
        Some((start, got))
    }

    pub fn use_data(&self, len: u64) {
        let mut state = self.state.lock();
        state.allocated = state.allocated.saturating_sub(len);
        state.used += len;
        state.dirty = true;
    }

    pub fn release_data(&self, start: u64, len: u64) {
        let mut state = self.state.lock();
        state.allocated = state.allocated.saturating_sub(len);
        if let Some(free) = &mut state.free {
            free.add(start, len);
        }
    }

    pub fn pin(&self, len: u64) -> Result<()> {
        let mut state = self.state.lock();
        state.used = state.used.checked_sub(len).ok_or_else(|| {
            Error::Corrupt(format!("block group {}: more is freed than is used", self.start).into())
        })?;
        state.pinned += len;
        state.dirty = true;
        Ok(())
    }

    pub fn unpin(&self, start: u64, len: u64) {
        let mut state = self.state.lock();
        state.pinned = state.pinned.saturating_sub(len);
        if let Some(free) = &mut state.free {
            free.add(start, len);
        }
    }

    /// The bytes used, if the item on disk must be written; it counts as written then.
    pub fn take_dirty(&self) -> Option<u64> {
        let mut state = self.state.lock();
        std::mem::take(&mut state.dirty).then_some(state.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group with holes of 64 KiB, 1 MiB and 8 MiB, in this order.
    fn group() -> Group {
        let group = Group::new(0, 64 << 20, bg::DATA, 0);
        let mut free = FreeRanges::default();
        free.add(1 << 20, 64 << 10);
        free.add(4 << 20, 1 << 20);
        free.add(16 << 20, 8 << 20);
        group.set_free(free, &[]);
        group
    }

    #[test]
    fn what_it_lies_on_shapes_where_space_is_given_out() {
        const LEN: u64 = 32 << 10;
        let data = |media| {
            let group = group();
            let take = || group.take_data(LEN, LEN, media).map(|(at, _)| at);
            [take(), take(), take()]
        };
        // the smallest hole first, or one large area after the other
        let tight = [Some(1 << 20), Some((1 << 20) + LEN), Some(4 << 20)];
        assert_eq!((data(Media::Ssd), data(Media::NoSsd)), (tight, tight));
        assert_eq!(data(Media::SsdSpread), [0, 1, 2].map(|n| Some((16 << 20) + n * LEN)));
        let block = |media| group().take_block(LEN, media);
        assert_eq!(block(Media::NoSsd), Some(1 << 20));
        assert_eq!((block(Media::Ssd), block(Media::SsdSpread)), (Some(16 << 20), Some(16 << 20)));
    }

    #[test]
    fn what_is_left_is_given_out_however_small() {
        for media in [Media::Ssd, Media::NoSsd, Media::SsdSpread] {
            let (data, blocks) = (group(), group());
            let mut sum = 0;
            while let Some((_, len)) = data.take_data(300 << 10, 4096, media) {
                sum += len;
            }
            assert_eq!(sum, (64 << 10) + (9 << 20), "{media:?}");
            let count = std::iter::from_fn(|| blocks.take_block(16 << 10, media)).count();
            assert_eq!(count, (4 + 9 * 64), "{media:?}");
        }
    }
}
