//! Uuids: random ones, and ones that follow from what is known.

use std::io::{self, Read};

/// A random uuid.
pub fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(stamp(bytes))
}

/// A uuid that follows from `seed` and `number`: the same for the same, different for different ones.
pub fn derived(seed: &[u8], number: u64) -> [u8; 16] {
    let mut out = [0; 16];
    for (half, salt) in [(0, 0x9E37_79B9_7F4A_7C15u64), (8, 0xC2B2_AE3D_27D4_EB4F)] {
        let mut state = salt ^ number;
        for &byte in seed {
            state = (state ^ byte as u64).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23) ^ salt;
        }
        out[half..half + 8].copy_from_slice(&state.wrapping_mul(salt).to_le_bytes());
    }
    stamp(out)
}

/// Version 4, the common variant.
fn stamp(mut bytes: [u8; 16]) -> [u8; 16] {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

/// Reads a uuid as everyone writes it.
pub fn parse(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|&c| c != '-').collect();
    if digits.len() != 32 || !digits.is_ascii() {
        return None;
    }
    let mut out = [0; 16];
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_ones_repeat_and_differ() {
        assert_eq!(derived(b"a", 1), derived(b"a", 1));
        assert_ne!(derived(b"a", 1), derived(b"a", 2));
        assert_ne!(derived(b"a", 1), derived(b"b", 1));
        assert_eq!(parse("00010203-0405-0607-0809-0a0b0c0d0e0f").unwrap()[15], 15);
        assert_eq!(parse("xyz"), None);
    }
}
