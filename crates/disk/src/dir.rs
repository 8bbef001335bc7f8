//! Names: directory entries, extended attributes, and the hashes that file them.

use crate::key::{DiskKey, Key};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The fixed part of a DIR_ITEM, DIR_INDEX or XATTR_ITEM entry; name, then data follow.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct DirItem {
    pub location: DiskKey,
    pub transid: U64,
    pub data_len: U16,
    pub name_len: U16,
    pub kind: u8,
}

const _: () = assert!(size_of::<DirItem>() == 30);

/// The longest name of a file.
pub const NAME_MAX: usize = 255;

/// File types in directory entries.
pub mod file_type {
    pub const UNKNOWN: u8 = 0;
    pub const REG: u8 = 1;
    pub const DIR: u8 = 2;
    pub const CHR: u8 = 3;
    pub const BLK: u8 = 4;
    pub const FIFO: u8 = 5;
    pub const SOCK: u8 = 6;
    pub const SYMLINK: u8 = 7;
    pub const XATTR: u8 = 8;
    /// Set beside the type for an encrypted name.
    pub const ENCRYPTED: u8 = 0x80;

    /// The entry type for a file of this `st_mode`.
    pub fn of_mode(mode: u32) -> u8 {
        use crate::inode::mode as m;
        match mode & m::FMT {
            m::REG => REG,
            m::DIR => DIR,
            m::CHR => CHR,
            m::BLK => BLK,
            m::FIFO => FIFO,
            m::SOCK => SOCK,
            m::LNK => SYMLINK,
            _ => UNKNOWN,
        }
    }
}

/// One decoded entry of a DIR_ITEM, DIR_INDEX or XATTR_ITEM.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub location: Key,
    pub transid: u64,
    pub kind: u8,
    pub name: &'a [u8],
    pub data: &'a [u8],
}

impl Entry<'_> {
    /// Bytes that this entry occupies in its item.
    pub fn len_bytes(&self) -> usize {
        size_of::<DirItem>() + self.name.len() + self.data.len()
    }

    /// The entry's bytes as they stand on disk.
    pub fn to_bytes(&self) -> Vec<u8> {
        let fixed = DirItem {
            location: self.location.into(),
            transid: self.transid.into(),
            data_len: (self.data.len() as u16).into(),
            name_len: (self.name.len() as u16).into(),
            kind: self.kind,
        };
        [fixed.as_bytes(), self.name, self.data].concat()
    }
}

/// The entries of an item. Ends early at a malformed entry.
pub fn entries(mut item: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    std::iter::from_fn(move || {
        let (fixed, rest) = DirItem::ref_from_prefix(item).ok()?;
        let name_len = fixed.name_len.get() as usize;
        let name = rest.get(..name_len)?;
        let data = rest.get(name_len..name_len + fixed.data_len.get() as usize)?;
        item = &rest[name_len + data.len()..];
        Some(Entry {
            location: fixed.location.into(),
            transid: fixed.transid.get(),
            kind: fixed.kind,
            name,
            data,
        })
    })
}

/// The format's raw CRC32C: any seed, no inversion at either end.
pub fn raw_crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// The key offset under which a name stands in its DIR_ITEM or XATTR_ITEM.
pub fn name_hash(name: &[u8]) -> u64 {
    raw_crc32c(!1, name) as u64
}

/// The key offset of an INODE_EXTREF: parent and name hashed together.
pub fn extref_hash(parent: u64, name: &[u8]) -> u64 {
    raw_crc32c(parent as u32, name) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_matches_a_directory_made_by_the_kernel() {
        // "default" in the root directory tree of any btrfs
        assert_eq!(name_hash(b"default"), 2378154706);
    }

    #[test]
    fn entries_round_trip_and_stop_at_damage() {
        let one = Entry { location: Key::new(257, 1, 0), transid: 9, kind: 1, name: b"name", data: b"" };
        let two = Entry { name: b"user.x", data: b"value", kind: 8, ..one };
        let bytes = [one.to_bytes(), two.to_bytes()].concat();
        let got: Vec<_> = entries(&bytes).map(|e| (e.name.to_vec(), e.data.to_vec())).collect();
        assert_eq!(got, [(b"name".to_vec(), b"".to_vec()), (b"user.x".to_vec(), b"value".to_vec())]);
        assert_eq!(entries(&bytes[..bytes.len() - 1]).count(), 1);
    }
}
