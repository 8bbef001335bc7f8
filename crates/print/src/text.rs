//! Small pieces of text: names with their odd bytes escaped, UUIDs, checksums, sets of flags.

use std::fmt;

/// A UUID in its usual form, lower case.
#[derive(Clone, Copy)]
pub struct Uuid<'a>(pub &'a [u8; 16]);

impl fmt::Display for Uuid<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// A name or an attribute's value: C escapes, octal for what has none, a backslash before a space.
pub struct Escaped<'a>(pub &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0 {
            match byte {
                b'\n' => f.write_str("\\n")?,
                b'\r' => f.write_str("\\r")?,
                b'\t' => f.write_str("\\t")?,
                7 => f.write_str("\\a")?,
                8 => f.write_str("\\b")?,
                11 => f.write_str("\\v")?,
                12 => f.write_str("\\f")?,
                27 => f.write_str("\\e")?,
                b' ' => f.write_str("\\ ")?,
                b'\\' => f.write_str("\\\\")?,
                0x21..=0x7e => write!(f, "{}", byte as char)?,
                _ => write!(f, "\\{byte:03o}")?,
            }
        }
        Ok(())
    }
}

/// Text with a dot for each byte that is not printable ASCII.
pub struct Dotted<'a>(pub &'a [u8]);

impl fmt::Display for Dotted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0 {
            let c = if matches!(byte, 0x20..=0x7e) { byte as char } else { '.' };
            write!(f, "{c}")?;
        }
        Ok(())
    }
}

/// Bytes as one hexadecimal number, first byte first.
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What stands before the first NUL byte.
pub fn until_nul(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len())]
}

/// The names of the set bits, and the bits that have no name.
pub fn bit_names<'a>(flags: u64, names: &[(u64, &'a str)]) -> (Vec<&'a str>, u64) {
    let set = names.iter().filter(|(bit, _)| flags & bit != 0).map(|&(_, name)| name).collect();
    let known = names.iter().fold(0, |all, (bit, _)| all | bit);
    (set, flags & !known)
}

/// The name of a checksum type.
pub fn csum_name(kind: u64) -> Option<&'static str> {
    Some(match kind {
        0 => "crc32c",
        1 => "xxhash64",
        2 => "sha256",
        3 => "blake2b",
        _ => return None,
    })
}

/// How many bytes a checksum of this type takes; the whole field for an unknown type.
pub fn csum_size(kind: u16) -> usize {
    match kind {
        0 => 4,
        1 => 8,
        _ => 32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_in_c_with_spaces_too() {
        assert_eq!(Escaped(b"a b\\\n\r\t\x07\x08\x0b\x0c\x1b").to_string(), r"a\ b\\\n\r\t\a\b\v\f\e");
        assert_eq!(Escaped(b"\0\x01\x7f\xc3\xa9\"'~").to_string(), r#"\000\001\177\303\251"'~"#);
    }

    #[test]
    fn uuids_and_hex() {
        let uuid: [u8; 16] = std::array::from_fn(|i| i as u8 * 0x11);
        assert_eq!(Uuid(&uuid).to_string(), "00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(Hex(&[0, 0x1f, 0xa0]).to_string(), "0x001fa0");
        assert_eq!(Dotted(b"a\0\xe9 ~").to_string(), "a.. ~");
    }

    #[test]
    fn bits_without_a_name_are_left_over() {
        assert_eq!(bit_names(0b1011, &[(1, "A"), (2, "B"), (4, "C")]), (vec!["A", "B"], 8));
    }
}
