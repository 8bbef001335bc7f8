//! The free ranges of one block group, by address and by length.

use std::collections::{BTreeMap, BTreeSet};

/// Disjoint ranges that do not touch each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeRanges {
    by_start: BTreeMap<u64, u64>,
    by_len: BTreeSet<(u64, u64)>,
}

impl FreeRanges {
    /// Adds a range, joining it with those that it touches. What of it is there already stays.
    pub fn add(&mut self, start: u64, len: u64) {
        let (mut start, mut end) = (start, start + len);
        while let Some((&s, &l)) = self.by_start.range(..=end).next_back() {
            if s + l < start {
                break;
            }
            start = start.min(s);
            end = end.max(s + l);
            self.forget(s, l);
        }
        if end > start {
            self.by_start.insert(start, end - start);
            self.by_len.insert((end - start, start));
        }
    }

    fn forget(&mut self, start: u64, len: u64) {
        self.by_start.remove(&start);
        self.by_len.remove(&(len, start));
    }

    /// Takes a range out; what of it is not there does not matter.
    pub fn remove(&mut self, start: u64, len: u64) {
        let end = start + len;
        while let Some((&s, &l)) = self.by_start.range(..end).next_back() {
            if s + l <= start {
                break;
            }
            self.forget(s, l);
            if s < start {
                self.by_start.insert(s, start - s);
                self.by_len.insert((start - s, s));
            }
            if s + l > end {
                self.by_start.insert(end, s + l - end);
                self.by_len.insert((s + l - end, end));
            }
        }
    }

    /// Takes `len` bytes aligned to `len`: at `hint`, else the first place in a range of at least `area` bytes from there
    /// on, or before; else the first place at all.
    pub fn take_block(&mut self, len: u64, hint: u64, area: u64) -> Option<u64> {
        let fits = |(&s, &l): (&u64, &u64)| {
            let at = s.next_multiple_of(len);
            (at + len <= s + l).then_some(at)
        };
        let wide = |range: &(&u64, &u64)| *range.1 >= area;
        let before = self.by_start.range(..hint).next_back().and_then(|(&s, &l)| {
            let at = hint.max(s).next_multiple_of(len);
            (at + len <= s + l).then_some(at)
        });
        let at = before
            .or_else(|| self.by_start.range(hint..).filter(wide).find_map(fits))
            .or_else(|| self.by_start.range(..hint).filter(wide).find_map(fits))
            .or_else(|| self.by_start.range(hint..).find_map(fits))
            .or_else(|| self.by_start.range(..hint).find_map(fits))?;
        self.remove(at, len);
        Some(at)
    }

    /// Takes up to `len` bytes: all of them from the smallest range that holds as many, else the largest range there
    /// is, if that is at least `min`.
    pub fn take(&mut self, len: u64, min: u64) -> Option<(u64, u64)> {
        let &(have, start) = self.by_len.range((len, 0)..).next().or_else(|| self.by_len.last())?;
        if have < min {
            return None;
        }
        let got = have.min(len);
        self.remove(start, got);
        Some((start, got))
    }

    /// Takes a range, if all of it is there.
    pub fn take_at(&mut self, start: u64, len: u64) -> bool {
        let found = self.by_start.range(..=start).next_back();
        let is_free = found.is_some_and(|(&s, &l)| s + l >= start + len);
        if is_free {
            self.remove(start, len);
        }
        is_free
    }

    /// Takes `len` bytes from the smallest range that has as many and is at least `area` long. Answers where, and where
    /// that range ends.
    pub fn take_of_area(&mut self, len: u64, area: u64) -> Option<(u64, u64)> {
        let &(have, start) = self.by_len.range((len.max(area), 0)..).next()?;
        self.remove(start, len);
        Some((start, start + have))
    }

    /// The largest range's length.
    pub fn largest(&self) -> u64 {
        self.by_len.last().map_or(0, |(len, _)| *len)
    }

    /// All ranges, by address.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.by_start.iter().map(|(&s, &l)| (s, l))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_changes_match_a_bitmap() {
        const N: usize = 512;
        let (mut ranges, mut bits) = (FreeRanges::default(), [false; N]);
        let mut rng = 7u64;
        let mut next = |n: u64| {
            rng = rng.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (rng >> 33) % n
        };
        for _ in 0..20_000 {
            let start = next(N as u64);
            let len = next(N as u64 - start).min(40) + 1;
            let area = start as usize..(start + len).min(N as u64) as usize;
            let len = area.len() as u64;
            match next(4) {
                0 | 1 => {
                    ranges.add(start, len);
                    bits[area].fill(true);
                }
                2 => {
                    ranges.remove(start, len);
                    bits[area].fill(false);
                }
                _ => {
                    if let Some((at, got)) = ranges.take(len, 1) {
                        let taken = &mut bits[at as usize..(at + got) as usize];
                        assert!(taken.iter().all(|&b| b));
                        taken.fill(false);
                    }
                    if let Some((at, end)) = ranges.take_of_area(2, 8) {
                        let area = &mut bits[at as usize..end as usize];
                        assert!(area.len() >= 8 && area.iter().all(|&b| b));
                        area[..2].fill(false);
                    }
                    let is_free = bits.get(area.clone()).is_some_and(|b| b.iter().all(|&b| b));
                    assert_eq!(ranges.take_at(start, len), is_free);
                    if is_free {
                        bits[area].fill(false);
                    }
                    if let Some(at) = ranges.take_block(4, start, next(3) * 8) {
                        assert_eq!(at % 4, 0);
                        let taken = &mut bits[at as usize..at as usize + 4];
                        assert!(taken.iter().all(|&b| b));
                        taken.fill(false);
                    }
                }
            }
            let mut model = Vec::new();
            for (i, &b) in bits.iter().enumerate() {
                match model.last_mut() {
                    Some((s, l)) if b && *s + *l == i as u64 => *l += 1,
                    _ if b => model.push((i as u64, 1u64)),
                    _ => {}
                }
            }
            assert_eq!(ranges.iter().collect::<Vec<_>>(), model);
            assert_eq!(ranges.by_len.len(), ranges.by_start.len());
        }
    }
}
