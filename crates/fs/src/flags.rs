//! The flags of an inode by which `chattr` and `lsattr` know them.

use crate::{Error, FileId, Filesystem, Kind, Result, Stat};
use buttery_disk::inode::flags;

/// Flags of FS_IOC_GETFLAGS and FS_IOC_SETFLAGS.
pub mod attr {
    /// `c`: compressed.
    pub const COMPRESS: u32 = 0x4;
    /// `S`: written synchronously.
    pub const SYNC: u32 = 0x8;
    /// `i`: nothing of it changes.
    pub const IMMUTABLE: u32 = 0x10;
    /// `a`: it only grows.
    pub const APPEND: u32 = 0x20;
    /// `d`: left out of dumps.
    pub const NODUMP: u32 = 0x40;
    /// `A`: no times of access.
    pub const NOATIME: u32 = 0x80;
    /// `m`: never compressed.
    pub const NOCOMPRESS: u32 = 0x400;
    /// `D`: a directory whose changes are synchronous.
    pub const DIRSYNC: u32 = 0x1_0000;
    /// `V`: under verity.
    pub const VERITY: u32 = 0x10_0000;
    /// `C`: not copied on write.
    pub const NOCOW: u32 = 0x80_0000;
}

/// Flags that are the same on both sides.
const PLAIN: [(u32, u64); 6] = [
    (attr::SYNC, flags::SYNC),
    (attr::IMMUTABLE, flags::IMMUTABLE),
    (attr::APPEND, flags::APPEND),
    (attr::NODUMP, flags::NODUMP),
    (attr::NOATIME, flags::NOATIME),
    (attr::DIRSYNC, flags::DIRSYNC),
];

impl Filesystem {
    /// The flags of a file, as FS_IOC_GETFLAGS tells them.
    pub fn attr_flags(&self, id: FileId) -> Result<u32> {
        let of = self.stat(id)?.flags;
        let other = [
            (attr::NOCOW, flags::NODATACOW),
            (attr::NOCOMPRESS, flags::NOCOMPRESS),
            (attr::COMPRESS, flags::COMPRESS),
            (attr::VERITY, flags::RO_VERITY),
        ];
        let all = PLAIN.iter().chain(&other);
        // what is told not to be compressed is not told to be
        let shown =
            all.filter(|(a, f)| of & f != 0 && !(*a == attr::COMPRESS && of & flags::NOCOMPRESS != 0));
        Ok(shown.fold(0, |bits, (a, _)| bits | a))
    }

    /// Sets the flags of a file, by the rules of FS_IOC_SETFLAGS: copying on write can be given up only by a file
    /// without contents, and with it go checksums; a file that has contents keeps how they are written.
    pub fn set_attr_flags(&self, id: FileId, wanted: u32) -> Result<()> {
        let has = |bit: u32| wanted & bit != 0;
        let known = PLAIN.iter().fold(attr::NOCOW | attr::NOCOMPRESS | attr::COMPRESS, |all, (a, _)| all | a);
        if wanted & !known != 0 {
            return Err(Error::Unsupported(format!("inode flags {:#x}", wanted & !known).into()));
        }
        if has(attr::COMPRESS) && (has(attr::NOCOMPRESS) || has(attr::NOCOW)) {
            return Err(Error::Invalid);
        }
        let stat = self.stat(id)?;
        self.set_compress_flags(&stat, has(attr::COMPRESS), has(attr::NOCOMPRESS))?;
        let (mut mask, mut value) = (0, 0);
        for (a, f) in PLAIN {
            mask |= f;
            value |= if has(a) { f } else { 0 };
        }
        self.set_flags_by(id, |stat| {
            let nocow = match stat.kind() {
                Kind::File if stat.size > 0 => 0,
                Kind::File => flags::NODATACOW | flags::NODATASUM,
                _ => flags::NODATACOW,
            };
            (mask | nocow, value | if has(attr::NOCOW) { nocow } else { 0 })
        })
    }

    /// The flags for compression come and go with the property.
    fn set_compress_flags(&self, stat: &Stat, yes: bool, no: bool) -> Result<()> {
        let wanted = match (yes, no) {
            (true, _) => flags::COMPRESS,
            (_, true) => flags::NOCOMPRESS,
            _ => 0,
        };
        if stat.flags & (flags::COMPRESS | flags::NOCOMPRESS) == wanted {
            return Ok(());
        }
        if yes {
            self.check_property(stat)?;
        }
        let tree = self.tree_to_change(stat.id)?;
        let _data = self.lock_inode(stat.id)?;
        let value = if yes { Some(self.default_property()?) } else { None };
        self.change_property(&tree, stat, value, wanted)
    }
}
