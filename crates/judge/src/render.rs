//! Facts as text: one line each, the same for the same fact, for listings that are kept beside golden images.
//!
//! `kind mode uid:gid rdev nlink ino size mtime ctime btime content path [-> target] [xattr=value]...`

use std::fmt::{self, Display, Write};

use xxhash_rust::xxh3::xxh3_128;

use crate::facts::{Fact, Kind, Time};

/// Values longer than this are rendered as their length and hash.
const WHOLE_BYTES: usize = 64;

/// The listing of a tree.
pub fn render(facts: &[Fact]) -> String {
    facts.iter().map(|fact| format!("{fact}\n")).collect()
}

/// Compares a kept listing with facts; the first lines that differ.
pub fn compare_listing(expected: &str, facts: &[Fact]) -> Result<(), String> {
    let actual = render(facts);
    if actual == expected {
        return Ok(());
    }
    let (expected, actual): (Vec<_>, Vec<_>) = (expected.lines().collect(), actual.lines().collect());
    let mut text = format!("{} lines expected, {} found\n", expected.len(), actual.len());
    let missing = expected.iter().filter(|line| !actual.contains(line)).take(10);
    missing.for_each(|line| text += &format!("- {line}\n"));
    let added = actual.iter().filter(|line| !expected.contains(line)).take(10);
    added.for_each(|line| text += &format!("+ {line}\n"));
    Err(text)
}

impl Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.rdev;
        write!(f, "{} {:04o} {}:{} {major},{minor}", letter(self.kind), self.mode, self.uid, self.gid)?;
        write!(f, " {} {} {}", self.nlink, self.ino, self.size)?;
        write!(f, " {} {} ", self.mtime, self.ctime)?;
        match self.btime {
            Some(time) => write!(f, "{time}")?,
            None => f.write_char('-')?,
        }
        match self.content {
            Some(hash) => write!(f, " {hash:032x}")?,
            None => f.write_str(" -")?,
        }
        write!(f, " /{}", escape(&self.path))?;
        if let Some(target) = &self.target {
            write!(f, " -> {}", value(target))?;
        }
        self.xattrs.iter().try_for_each(|(name, v)| write!(f, " {}={}", escape(name), value(v)))
    }
}

impl Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.sec, self.nsec)
    }
}

fn letter(kind: Kind) -> char {
    match kind {
        Kind::File => 'f',
        Kind::Dir => 'd',
        Kind::Symlink => 'l',
        Kind::Char => 'c',
        Kind::Block => 'b',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
    }
}

fn value(bytes: &[u8]) -> String {
    if bytes.len() <= WHOLE_BYTES {
        return format!("\"{}\"", escape(bytes));
    }
    format!("({} bytes, {:032x})", bytes.len(), xxh3_128(bytes))
}

/// Printable ASCII as it is, except blanks, quotes and backslashes; all else as `\xNN`.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &b in bytes {
        if b.is_ascii_graphic() && b != b'\\' && b != b'"' {
            text.push(char::from(b));
        } else {
            write!(text, "\\x{b:02x}").expect("a String takes everything");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_the_whole_fact() {
        let mut fact = Fact::new("a b", Kind::Symlink);
        fact.target = Some(b"x\n".to_vec());
        fact.xattrs.insert(b"user.a".to_vec(), b"1".to_vec());
        fact.mtime = Time { sec: -1, nsec: 5 };
        let line = r#"l 0000 0:0 0,0 1 0 0 -1.000000005 0.000000000 - - /a\x20b -> "x\x0a" user.a="1""#;
        assert_eq!(fact.to_string(), line);
        assert!(compare_listing(&format!("{line}\n"), &[fact.clone()]).is_ok());
        assert!(compare_listing("", &[fact]).is_err());
    }
}
