//! The engine's one error: a kind that callers act on, and for the rest a text that names where it happened.

use buttery_disk::{Key, TreeId};
use std::fmt;

/// What went wrong. The ordinary kinds carry nothing and allocate nothing.
#[derive(Debug)]
pub enum Error {
    /// No such name, inode, subvolume or item.
    NotFound,
    /// The name or item exists already.
    Exists,
    /// A directory was needed.
    NotDirectory,
    /// Anything but a directory was needed.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// No space left, for data or for metadata.
    NoSpace,
    /// The file system or the subvolume is read-only.
    ReadOnly,
    /// Names have at most 255 bytes.
    NameTooLong,
    /// No further link or name fits.
    TooManyLinks,
    /// An argument makes no sense here.
    Invalid,
    /// The inode is immutable or append-only, or the operation is never allowed on it.
    NotPermitted,
    /// It is in use.
    Busy,
    /// Links and renames do not cross subvolumes.
    CrossDevice,
    /// No such extended attribute.
    NoAttribute,
    /// The value is too large for where it should go.
    TooLarge,
    /// A name or a buffer is out of range.
    Range,
    /// The file would become larger than a file can be.
    FileTooBig,
    /// No entry with this name hash fits any more.
    Overflow,
    /// A loop of symbolic links, or a path that leads through too many.
    Loop,
    /// Something that is not supported yet.
    Unsupported(Box<str>),
    /// The file system contradicts its format.
    Corrupt(Box<str>),
    /// No good copy, or a device that failed.
    Io(Box<buttery_volume::Error>),
    /// An earlier failure ended writing for good.
    Aborted,
}

const _: () = assert!(size_of::<Error>() <= 24);

/// A result of the engine.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A contradiction in a tree, at a key.
    pub fn corrupt(tree: TreeId, key: Key, what: impl fmt::Display) -> Error {
        Error::Corrupt(format!("tree {tree}, item {key}: {what}").into())
    }

    /// Something that is not supported yet.
    pub fn unsupported(what: impl Into<Box<str>>) -> Error {
        Error::Unsupported(what.into())
    }
}

impl From<buttery_volume::Error> for Error {
    fn from(error: buttery_volume::Error) -> Error {
        match error {
            buttery_volume::Error::Unsupported(what) => Error::Unsupported(what.into()),
            other => Error::Io(Box::new(other)),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Error::NotFound => "no such file or directory",
            Error::Exists => "file exists",
            Error::NotDirectory => "not a directory",
            Error::IsDirectory => "is a directory",
            Error::NotEmpty => "directory not empty",
            Error::NoSpace => "no space left on the file system",
            Error::ReadOnly => "read-only file system or subvolume",
            Error::NameTooLong => "file name too long",
            Error::TooManyLinks => "too many links",
            Error::Invalid => "invalid argument",
            Error::Busy => "in use",
            Error::NotPermitted => "operation not permitted",
            Error::CrossDevice => "link across subvolumes",
            Error::NoAttribute => "no such attribute",
            Error::TooLarge => "value too large",
            Error::Range => "out of range",
            Error::FileTooBig => "file too large",
            Error::Overflow => "too many names with the same hash",
            Error::Loop => "too many levels of symbolic links",
            Error::Unsupported(what) => return write!(f, "not supported: {what}"),
            Error::Corrupt(what) => return f.write_str(what),
            Error::Io(error) => return error.fmt(f),
            Error::Aborted => "an earlier failure made the file system read-only",
        })
    }
}

// No source: the text of an I/O error is that of what caused it, and would be said twice.
impl std::error::Error for Error {}
