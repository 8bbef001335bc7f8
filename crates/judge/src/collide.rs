//! Names that collide: different names with one hash.
//!
//! Btrfs keys a directory entry and an xattr by the CRC-32C register over its name, started at 0xFFFFFFFE and not
//! inverted at the end. Four bytes can bring the register from any value to any other, so a collision is computed,
//! not searched for.

const START: u32 = 0xFFFF_FFFE;
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// The hash under which Btrfs files a name.
pub fn name_hash(name: &[u8]) -> u32 {
    let table = table();
    register(&table, START, name)
}

/// `count` different names that begin with `prefix` and whose hash is `hash`. They are printable.
pub fn colliding_names(prefix: &[u8], hash: u32, count: usize) -> Vec<Vec<u8>> {
    let table = table();
    let candidates = (0u32..).map(|n| {
        let mut name = [prefix, format!("{n:x}.").as_bytes()].concat();
        name.extend(bridge(&table, register(&table, START, &name), hash));
        name
    });
    let fine = |name: &Vec<u8>| name[name.len() - 4..].iter().all(|b| b.is_ascii_graphic() && *b != b'/');
    candidates.filter(fine).take(count).collect()
}

/// The four bytes that take the register from `from` to `to`.
fn bridge(table: &[u32; 256], from: u32, to: u32) -> [u8; 4] {
    // Backwards: the top byte of a register tells which table entry went into it last.
    let mut entries = [0u8; 4];
    let mut state = to;
    for entry in entries.iter_mut().rev() {
        let index = (0..=255u8).find(|&i| table[usize::from(i)] >> 24 == state >> 24);
        *entry = index.expect("the top bytes of the table are a permutation");
        state = ((state ^ table[usize::from(*entry)]) << 8) | u32::from(*entry);
    }
    // Forwards: the byte that makes the register pick that entry.
    let mut state = from;
    entries.map(|entry| {
        let byte = (state as u8) ^ entry;
        state = table[usize::from(entry)] ^ (state >> 8);
        byte
    })
}

fn register(table: &[u32; 256], start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |state, b| table[usize::from(state as u8 ^ b)] ^ (state >> 8))
}

fn table() -> [u32; 256] {
    std::array::from_fn(|i| {
        (0..8).fold(i as u32, |v, _| if v & 1 == 1 { (v >> 1) ^ POLYNOMIAL } else { v >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_hash_of_a_known_name() {
        // The register over "default" is the key offset of that entry in every root tree directory.
        assert_eq!(name_hash(b"default"), 2378154706);
    }

    #[test]
    fn names_collide_and_differ() {
        let names = colliding_names(b"user.x", 0x1234_5678, 20);
        assert!(names.iter().all(|n| name_hash(n) == 0x1234_5678 && n.starts_with(b"user.x")));
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 20);
    }
}
