//! Walking a directory tree of an image, deepest last, without recursion; a directory that a damaged image links into
//! itself is met once.

use buttery::{DirEntry, Error, FileId, Filesystem, Kind, Stat};
use std::collections::HashSet;

/// One thing met on a walk.
pub struct Visit {
    /// From the walk's beginning on, without a leading slash; empty for the beginning itself.
    pub path: Vec<u8>,
    pub stat: Stat,
}

/// Something that could not be read, and why.
pub struct Failure {
    pub path: Vec<u8>,
    pub error: Error,
}

/// Entries of a directory with their attributes, sorted by name.
pub fn sorted(fs: &Filesystem, dir: FileId) -> Result<Vec<DirEntry>, Error> {
    let mut entries = fs.entries(dir)?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// `dir/name`, or `name` in the beginning.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

/// Visits everything below `start`, itself included, directories before what is in them. `visit` may fail an item with
/// an error, which is handed to `failed` like all others; that stops the walk if it answers an error in turn.
pub fn walk<E>(
    fs: &Filesystem,
    start: FileId,
    visit: &mut dyn FnMut(&Visit) -> Result<(), Error>,
    failed: &mut dyn FnMut(Failure) -> Result<(), E>,
) -> Result<(), E> {
    let mut met = HashSet::new();
    let mut stack = vec![(Vec::new(), start)];
    while let Some((path, id)) = stack.pop() {
        let stat = match fs.stat(id) {
            Ok(stat) => stat,
            Err(error) => {
                failed(Failure { path, error })?;
                continue;
            }
        };
        let found = Visit { path, stat };
        if let Err(error) = visit(&found) {
            failed(Failure { path: found.path.clone(), error })?;
            continue;
        }
        if stat.kind() != Kind::Directory {
            continue;
        }
        if !id.is_empty_dir() && !met.insert(id) {
            let error = Error::Corrupt(format!("directory {} is linked twice", id.ino).into());
            failed(Failure { path: found.path, error })?;
            continue;
        }
        match sorted(fs, id) {
            Err(error) => failed(Failure { path: found.path, error })?,
            Ok(entries) => {
                for entry in entries.into_iter().rev() {
                    let below = join(&found.path, &entry.name);
                    match is_name(&entry.name).and_then(|()| fs.follow(id, &entry.name, entry.target)) {
                        Ok(next) => stack.push((below, next)),
                        Err(error) => failed(Failure { path: below, error })?,
                    }
                }
            }
        }
    }
    Ok(())
}

/// A hostile image must not lead out of the place that it is copied to.
fn is_name(name: &[u8]) -> Result<(), Error> {
    match name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
        true => Err(Error::Corrupt("this is not a name that a file can have".into())),
        false => Ok(()),
    }
}
