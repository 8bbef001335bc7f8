//! Paths: names joined by slashes, and symbolic links within the file system.

use crate::{Error, FileId, Filesystem, Kind, Result};

/// As many symbolic links as the kernel follows in one path.
const LINKS_MAX: usize = 40;

impl Filesystem {
    /// The file at a path, seen from `base` (or from the root if the path begins with a slash), through symbolic links.
    pub fn resolve(&self, base: FileId, path: &[u8]) -> Result<FileId> {
        self.resolve_path(base, path, true)
    }

    /// As [`resolve`](Self::resolve), but a symbolic link at the path's end is the result and not followed.
    pub fn resolve_no_follow(&self, base: FileId, path: &[u8]) -> Result<FileId> {
        self.resolve_path(base, path, false)
    }

    fn resolve_path(&self, base: FileId, path: &[u8], follow: bool) -> Result<FileId> {
        let mut at = if path.starts_with(b"/") { self.root } else { base };
        let mut names: Vec<Vec<u8>> = components(path);
        let mut links = 0;
        while let Some(name) = names.pop() {
            if name == b".." {
                at = if at == self.root { at } else { self.parent(at)? };
                continue;
            }
            if self.stat(at)?.kind() != Kind::Directory {
                return Err(Error::NotDirectory);
            }
            let next = self.lookup(at, &name)?;
            if (follow || !names.is_empty()) && self.stat(next)?.kind() == Kind::Symlink {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Error::Loop);
                }
                let target = self.read_link(next)?;
                if target.starts_with(b"/") {
                    at = self.root;
                }
                names.extend(components(&target));
                continue;
            }
            at = next;
        }
        Ok(at)
    }
}

/// The names of a path, last first, without empty ones and dots.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|&b| b == b'/').filter(|n| !n.is_empty() && *n != b".");
    let mut out: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
    out.reverse();
    out
}
