//! LZO1X, encoded: one look at each place, as LZO1X-1 does.
//!
//! A stream is a sequence of instructions. Those that are made here:
//!
//! ```text
//! 17+n, n literals                   at the very beginning, n from 1 to 238
//! n-3, n literals                    n from 4 to 18
//! 0, (0)*, rest, n literals          n above 18: 18 + 255 for each further zero + rest (1 to 255)
//! LLLDDDSS DDDDDDDD                  L+1 bytes (3 to 8) from D+1 back, up to 2 KiB
//! 001LLLLL (more) DDDDDDSS DDDDDDDD  L+2 bytes from D+1 back, up to 16 KiB
//! 0001HLLL (more) DDDDDDSS DDDDDDDD  L+2 bytes from 16 KiB + H·16 KiB + D back, up to 48 KiB
//! 17, 0, 0                           the end
//! ```
//!
//! `SS` are up to three literals that follow. An `L` of 0 means that the length goes on as with literals.

/// The most that is encoded at once: places are kept in 16 bits.
const INPUT_MAX: usize = 1 << 16;
const TABLE_BITS: u32 = 12;
/// The shortest match that is looked for.
const MATCH_MIN: usize = 4;
/// How far back a match may lie, and up to where in two and three bytes.
const NEAR: usize = 2 << 10;
const MIDDLE: usize = 16 << 10;
const FAR: usize = (48 << 10) - 1;
/// After so many places without a match every second one is looked at, and so on.
const SKIP_SHIFT: usize = 5;

/// Appends the stream of `data`, of at most 64 KiB.
pub(crate) fn encode(data: &[u8], out: &mut Vec<u8>) {
    debug_assert!(data.len() <= INPUT_MAX);
    let begin = out.len();
    let mut table = [0u16; 1 << TABLE_BITS];
    let (mut at, mut literals) = (1, 0);
    while let Some(word) = word_at(data, at) {
        let slot = &mut table[(word.wrapping_mul(0x9E37_79B1) >> (32 - TABLE_BITS)) as usize];
        let from = usize::from(std::mem::replace(slot, at as u16));
        if from >= at || at - from > FAR || word_at(data, from) != Some(word) {
            at += 1 + ((at - literals) >> SKIP_SHIFT);
            continue;
        }
        put_literals(out, begin, &data[literals..at]);
        let len = MATCH_MIN + common(&data[from + MATCH_MIN..], &data[at + MATCH_MIN..]);
        put_match(out, at - from, len);
        at += len;
        literals = at;
    }
    put_literals(out, begin, &data[literals..]);
    out.extend([17, 0, 0]);
}

fn word_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

/// How many bytes two slices begin with in common.
fn common(a: &[u8], b: &[u8]) -> usize {
    let mut len = 0;
    while let (Some(x), Some(y)) = (a[len..].first_chunk(), b[len..].first_chunk()) {
        let differ = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differ != 0 {
            return len + differ.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len + a[len..].iter().zip(&b[len..]).take_while(|(x, y)| x == y).count()
}

fn put_literals(out: &mut Vec<u8>, begin: usize, literals: &[u8]) {
    match literals.len() {
        0 => return,
        n @ 1..=238 if out.len() == begin => out.push(17 + n as u8),
        // in the match before
        n @ 1..=3 => {
            let place = out.len() - 2;
            out[place] |= n as u8;
        }
        n @ 4..=18 => out.push(n as u8 - 3),
        n => {
            out.push(0);
            put_length(out, n - 18);
        }
    }
    out.extend_from_slice(literals);
}

fn put_match(out: &mut Vec<u8>, back: usize, len: usize) {
    if len <= 8 && back <= NEAR {
        let back = back - 1;
        out.push(((len - 1) << 5 | (back & 7) << 2) as u8);
        out.push((back >> 3) as u8);
        return;
    }
    // the instruction, the longest match that fits into it, and the distance from its base
    let (code, most, back) = match back <= MIDDLE {
        true => (0x20, 33, back - 1),
        false => (0x10 | ((back - MIDDLE) >> 11 & 8) as u8, 9, back - MIDDLE),
    };
    if len <= most {
        out.push(code | (len - 2) as u8);
    } else {
        out.push(code);
        put_length(out, len - most);
    }
    out.extend((((back << 2) & 0xffff) as u16).to_le_bytes());
}

/// A length above what its instruction holds.
fn put_length(out: &mut Vec<u8>, mut rest: usize) {
    while rest > 255 {
        out.push(0);
        rest -= 255;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(data: &[u8]) -> usize {
        let mut packed = Vec::new();
        encode(data, &mut packed);
        let mut plain = vec![0; data.len()];
        let len = lzokay::decompress::decompress(&packed, &mut plain).expect("a stream that decodes");
        assert_eq!(len, data.len());
        assert!(plain == data, "{} bytes", data.len());
        packed.len()
    }

    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) as usize % end
        }
    }

    #[test]
    fn known_streams() {
        let mut out = Vec::new();
        encode(b"", &mut out);
        assert_eq!(out, [17, 0, 0]);
        out.clear();
        // one literal, then eight bytes from one back, then four more: a run is one long match
        encode(&[7; 13], &mut out);
        assert_eq!(out, [18, 7, 0x20 | 10, 0, 0, 17, 0, 0]);
    }

    #[test]
    fn every_length_of_runs_and_literals() {
        let mut numbers = Numbers(1);
        for len in 0..700 {
            let noise: Vec<u8> = (0..len).map(|_| numbers.below(256) as u8).collect();
            round_trip(&noise);
            round_trip(&vec![3; len]);
            round_trip(&[&noise[..], &vec![0; len], &noise, &[1, 2, 3]].concat());
        }
    }

    #[test]
    fn matches_at_all_distances() {
        let mut numbers = Numbers(2);
        for back in [1, 7, 8, 2047, 2048, 2049, 16383, 16384, 16385, 32768, 40000, 49150, 49151, 49152, 60000]
        {
            for len in [4, 8, 9, 10, 33, 34, 288, 289, 2000] {
                let mut data: Vec<u8> = (0..back + 40).map(|_| numbers.below(256) as u8).collect();
                for _ in 0..len {
                    data.push(data[data.len() - back]);
                }
                data.extend([1, 2, 3, 4, 5]);
                data.truncate(INPUT_MAX);
                round_trip(&data);
            }
        }
    }

    #[test]
    fn random_pieces() {
        let mut numbers = Numbers(3);
        for _ in 0..2000 {
            let mut data = Vec::new();
            let most = 1 + numbers.below(5000);
            while data.len() < most {
                let len = 1 + numbers.below(60);
                match numbers.below(3) {
                    0 => data.extend((0..len).map(|_| numbers.below(256) as u8)),
                    1 if !data.is_empty() => {
                        let back = 1 + numbers.below(data.len());
                        for _ in 0..len {
                            data.push(data[data.len() - back]);
                        }
                    }
                    _ => data.extend(std::iter::repeat_n(numbers.below(4) as u8, len)),
                }
            }
            round_trip(&data);
        }
        let text: Vec<u8> =
            (0..4096).map(|i| b"the quick brown fox jumps over it "[(i * i / 77) % 34]).collect();
        assert!(round_trip(&text) < text.len() * 3 / 4);
    }
}
