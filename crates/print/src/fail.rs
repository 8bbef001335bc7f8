//! Why an item could not be printed: the output failed, or the item is malformed. The second is not the caller's
//! concern: it becomes a line of the output.

use buttery_disk::zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};
use std::io;

/// What stops the printing of one item.
pub enum Fail {
    /// The output cannot be written.
    Io(io::Error),
    /// The item ends before what it must hold; with what is missing.
    Short(&'static str),
    /// The item holds something that cannot be.
    Bad(String),
}

/// The outcome of printing one item.
pub type Printed = Result<(), Fail>;

impl From<io::Error> for Fail {
    fn from(e: io::Error) -> Fail {
        Fail::Io(e)
    }
}

/// The structure at the beginning of `data`, and what follows it.
pub fn fixed<'a, T>(data: &'a [u8], what: &'static str) -> Result<(&'a T, &'a [u8]), Fail>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    T::ref_from_prefix(data).map_err(|_| Fail::Short(what))
}

/// The first `len` bytes of `data`, and what follows them.
pub fn bytes<'a>(data: &'a [u8], len: usize, what: &'static str) -> Result<(&'a [u8], &'a [u8]), Fail> {
    data.split_at_checked(len).ok_or(Fail::Short(what))
}

/// Turns a malformed item into a line of text; only a failure to write is left.
pub fn report(out: &mut dyn io::Write, indent: &str, printed: Printed, len: usize) -> io::Result<()> {
    match printed {
        Ok(()) => Ok(()),
        Err(Fail::Io(e)) => Err(e),
        Err(Fail::Short(what)) => writeln!(out, "{indent}ERROR: item of {len} bytes ends inside its {what}"),
        Err(Fail::Bad(why)) => writeln!(out, "{indent}ERROR: {why}"),
    }
}
