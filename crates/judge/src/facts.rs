//! A `Fact` is everything that can be seen of one path of a file system; a sorted list of them is a whole tree.
//!
//! Two producers make such lists: [`crate::walk`] from a mounted directory, and whatever else reads an image. A
//! producer follows these rules, so that equal trees give equal lists:
//!
//! - `path` is relative to the root, without a leading slash; the root itself is the empty path. Sorted by `path`.
//! - `size` is st_size. `content` is the [`ContentHasher`]'s, for regular files only. `target` only for symlinks.
//! - Subvolumes are crossed: their root is a directory with inode 256. The empty directory that stands in a snapshot
//!   for a nested subvolume has inode 2 and, since the kernel invents its times, all times 0 (see [`Fact::stub`]).
//! - `xattrs` holds all that listxattr lists, POSIX ACLs and `btrfs.*` properties among them.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::Xxh3;

/// Seconds since 1970, and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    pub sec: i64,
    pub nsec: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    File,
    Dir,
    Symlink,
    Char,
    Block,
    Fifo,
    Socket,
}

/// What can be seen of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    pub path: Vec<u8>,
    pub kind: Kind,
    /// Permission bits with set-id and sticky bits, without the type: `mode & 0o7777`.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Major and minor number of a device node, otherwise zeros.
    pub rdev: (u32, u32),
    pub size: u64,
    pub nlink: u32,
    pub ino: u64,
    pub mtime: Time,
    pub ctime: Time,
    /// Birth time, where the file system tells it.
    pub btime: Option<Time>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub target: Option<Vec<u8>>,
    pub content: Option<u128>,
}

impl Fact {
    /// The inode number of the stand-in for a subvolume that is not in this snapshot.
    pub const STUB_INO: u64 = 2;

    /// A fact to start from: everything zero or absent.
    pub fn new(path: impl Into<Vec<u8>>, kind: Kind) -> Fact {
        Fact {
            path: path.into(),
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            rdev: (0, 0),
            size: 0,
            nlink: 1,
            ino: 0,
            mtime: Time::default(),
            ctime: Time::default(),
            btime: None,
            xattrs: BTreeMap::new(),
            target: None,
            content: None,
        }
    }

    /// Whether this is the empty directory that stands for a nested subvolume in a snapshot.
    pub fn stub(&self) -> bool {
        self.kind == Kind::Dir && self.ino == Fact::STUB_INO
    }
}

/// Hashes the data of a file so that holes, preallocation and written zeros are the same, in time proportional to
/// the data: blocks of 4 KiB that are all zero are left out.
#[derive(Default)]
pub struct ContentHasher {
    state: Xxh3,
    next_bytes: u64,
}

/// Data is given to [`ContentHasher::update`] in multiples of this, at multiples of this.
pub const CONTENT_BLOCK_BYTES: usize = 4096;

impl ContentHasher {
    pub fn new() -> ContentHasher {
        ContentHasher::default()
    }

    /// Takes data at `offset`. Offsets ascend and are multiples of 4096, and so is the length except at the end of
    /// the file. What is left out counts as zeros.
    pub fn update(&mut self, offset: u64, data: &[u8]) {
        assert!(offset >= self.next_bytes, "offsets ascend");
        assert!(offset.is_multiple_of(CONTENT_BLOCK_BYTES as u64), "offsets are whole blocks");
        self.next_bytes = offset + data.len() as u64;
        for (n, block) in data.chunks(CONTENT_BLOCK_BYTES).enumerate() {
            let end = block.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
            if end > 0 {
                let at = offset + (n * CONTENT_BLOCK_BYTES) as u64;
                self.state.update(&at.to_le_bytes());
                self.state.update(&(end as u64).to_le_bytes());
                self.state.update(&block[..end]);
            }
        }
    }

    pub fn finish(mut self, size: u64) -> u128 {
        self.state.update(&size.to_le_bytes());
        self.state.digest128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(parts: &[(u64, &[u8])], size: u64) -> u128 {
        let mut hasher = ContentHasher::new();
        parts.iter().for_each(|(at, data)| hasher.update(*at, data));
        hasher.finish(size)
    }

    #[test]
    fn zeros_and_holes_are_the_same() {
        let mut data = vec![0; 12288];
        data[9000] = 1;
        assert_eq!(hash(&[(0, &data)], 12288), hash(&[(8192, &data[8192..])], 12288));
        assert_eq!(hash(&[], 5), hash(&[(0, &[0; 5])], 5));
        assert_ne!(hash(&[], 5), hash(&[], 6));
    }

    #[test]
    fn each_byte_and_its_place_counts() {
        let one = vec![1; 4096];
        assert_ne!(hash(&[(0, &one)], 8192), hash(&[(4096, &one)], 8192));
        assert_ne!(hash(&[(0, b"ab")], 2), hash(&[(0, b"ac")], 2));
    }
}
