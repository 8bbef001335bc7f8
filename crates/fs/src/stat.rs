//! What is known of a file besides its contents.

use crate::FileId;
use buttery_disk::inode::{InodeItem, Timespec, mode};

/// A file's type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// A time: seconds and nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds, negative before 1970.
    pub sec: i64,
    /// Nanoseconds on top of them, below 1,000,000,000.
    pub nsec: u32,
}

/// The attributes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Which file it is.
    pub id: FileId,
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    /// How many names it has; 1 for a directory.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Major and minor number of a device node.
    pub rdev: (u32, u32),
    /// The size in bytes.
    pub size: u64,
    /// Bytes of space that its data take.
    pub nbytes: u64,
    /// Of the last access that was noted; reads are not.
    pub atime: Time,
    /// Of the last change of its contents.
    pub mtime: Time,
    /// Of the last change of anything.
    pub ctime: Time,
    /// When it was made.
    pub otime: Time,
    /// The inode's flags ([`buttery_disk::inode::flags`]).
    pub flags: u64,
    /// The transaction that made the inode.
    pub generation: u64,
}

impl Kind {
    /// The type that `st_mode` states.
    pub fn of_mode(bits: u32) -> Kind {
        match bits & mode::FMT {
            mode::DIR => Kind::Directory,
            mode::LNK => Kind::Symlink,
            mode::CHR => Kind::CharDevice,
            mode::BLK => Kind::BlockDevice,
            mode::FIFO => Kind::Fifo,
            mode::SOCK => Kind::Socket,
            _ => Kind::File,
        }
    }
}

impl From<Timespec> for Time {
    fn from(t: Timespec) -> Time {
        Time { sec: t.sec.get(), nsec: t.nsec.get() }
    }
}

impl From<Time> for Timespec {
    fn from(t: Time) -> Timespec {
        Timespec::new(t.sec, t.nsec)
    }
}

impl Stat {
    pub(crate) fn new(id: FileId, item: &InodeItem) -> Stat {
        let rdev = item.rdev.get();
        Stat {
            id,
            mode: item.mode.get(),
            nlink: item.nlink.get(),
            uid: item.uid.get(),
            gid: item.gid.get(),
            rdev: ((rdev >> 20) as u32 & 0xfff, rdev as u32 & 0xfffff),
            size: item.size.get(),
            nbytes: item.nbytes.get(),
            atime: item.atime.into(),
            mtime: item.mtime.into(),
            ctime: item.ctime.into(),
            otime: item.otime.into(),
            flags: item.flags.get(),
            generation: item.generation.get(),
        }
    }

    /// The empty directory that stands for a nested subvolume in a snapshot of its parent. It belongs to whom the
    /// directory around it belongs to.
    pub(crate) fn empty_dir(id: FileId, around: &Stat) -> Stat {
        let item = InodeItem { mode: (mode::DIR | 0o755).into(), nlink: 1.into(), ..InodeItem::default() };
        Stat { uid: around.uid, gid: around.gid, atime: around.atime, ..Stat::new(id, &item) }
    }

    /// Attributes of nothing: zeros.
    pub fn nothing() -> Stat {
        let id = FileId { tree: buttery_disk::TreeId(0), ino: 0 };
        Stat::new(id, &InodeItem::default())
    }

    /// The type.
    pub fn kind(&self) -> Kind {
        Kind::of_mode(self.mode)
    }
}
