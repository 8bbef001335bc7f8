//! What the kernel complained of while a test had a loop device.
//!
//! A loop device's name goes from one test to the next within milliseconds, so what the log says of it counts only
//! from when it was attached and while it still is.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Messages at this level and below are warnings or worse.
const LEVEL_WARNING: u32 = 4;

/// Warnings that say nothing about the file system's soundness.
const HARMLESS: &[&str] =
    &["space cache v1", "v1 space cache", "excessive commit interval", "device stats zeroed"];

/// Trouble in the kernel itself, whichever device it came from.
const OOPSES: &[&str] = &["BUG:", "WARNING: CPU:", "kernel BUG at", "Oops:", "assertion failed"];

/// A place in the kernel's log.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    sequence: u64,
}

impl Mark {
    pub(crate) fn now() -> io::Result<Mark> {
        Ok(Mark { sequence: records()?.last().map_or(0, |r| r.sequence + 1) })
    }

    /// The warnings and errors about a device (`/dev/loop3`) since the mark, and any of the kernel's own faults.
    pub(crate) fn complaints_of(&self, device: &Path) -> io::Result<Vec<String>> {
        let name = device.file_name().unwrap_or_default().to_string_lossy();
        let news = records()?.into_iter().filter(|r| r.sequence >= self.sequence);
        Ok(news.filter(|r| is_complaint(r, &name)).map(|r| r.text).collect())
    }
}

struct Record {
    level: u32,
    sequence: u64,
    text: String,
}

fn is_complaint(record: &Record, name: &str) -> bool {
    if OOPSES.iter().any(|word| record.text.contains(word)) {
        return true;
    }
    record.level <= LEVEL_WARNING
        && mentions(&record.text, name)
        && !HARMLESS.iter().any(|word| record.text.contains(word))
}

/// Whether `name` stands in `text` as a word: loop1 is not in "loop12".
fn mentions(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let after = text[at + name.len()..].chars().next();
        !after.is_some_and(|c| c.is_ascii_alphanumeric())
    })
}

fn records() -> io::Result<Vec<Record>> {
    let nonblock = i32::try_from(OFlags::NONBLOCK.bits()).expect("a small flag");
    let mut log = OpenOptions::new().read(true).custom_flags(nonblock).open("/dev/kmsg")?;
    let mut found = Vec::new();
    let mut buffer = vec![0; 8192];
    loop {
        match log.read(&mut buffer) {
            Ok(0) => return Ok(found),
            Ok(n) => found.extend(parse(&String::from_utf8_lossy(&buffer[..n]))),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(found),
            // The record was overwritten before we came to it; the next read goes on behind it.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
            Err(e) => return Err(e),
        }
    }
}

/// `priority,sequence,time,flags;text` and then lines that start with a blank.
fn parse(record: &str) -> Option<Record> {
    let (head, text) = record.split_once(';')?;
    let mut fields = head.split(',');
    let priority: u32 = fields.next()?.parse().ok()?;
    let sequence = fields.next()?.parse().ok()?;
    Some(Record { level: priority & 7, sequence, text: text.lines().next()?.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complains(level: u32, text: &str) -> bool {
        is_complaint(&Record { level, sequence: 1, text: text.into() }, "loop1")
    }

    #[test]
    fn only_complaints_about_the_device_count() {
        assert!(complains(3, "BTRFS error (device loop1): parent transid verify failed"));
        assert!(complains(4, "BTRFS warning (device loop1 state M): checksum verify failed"));
        assert!(!complains(4, "BTRFS warning (device loop12): checksum verify failed"));
        assert!(!complains(6, "BTRFS info (device loop1): first mount of filesystem x"));
        assert!(!complains(4, "BTRFS warning (device loop1): space cache v1 is being deprecated"));
        assert!(complains(4, "WARNING: CPU: 1 PID: 7 at fs/btrfs/x.c:1"));
    }

    #[test]
    fn a_record_is_parsed() {
        let r = parse("4,1234,99,-;BTRFS warning (device loop1): x\n SUBSYSTEM=block\n").unwrap();
        assert_eq!((r.level, r.sequence, r.text.as_str()), (4, 1234, "BTRFS warning (device loop1): x"));
    }
}
