//! Attributes and times as the protocol's library takes them.

use buttery::{Kind, Stat, Time};
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
    }
}

/// The type that a directory entry states.
pub fn entry_type(kind: u8) -> FileType {
    use buttery::file_type as t;
    match kind {
        t::DIR => FileType::Directory,
        t::CHR => FileType::CharDevice,
        t::BLK => FileType::BlockDevice,
        t::FIFO => FileType::NamedPipe,
        t::SOCK => FileType::Socket,
        t::SYMLINK => FileType::Symlink,
        _ => FileType::RegularFile,
    }
}

pub fn system_time(time: Time) -> SystemTime {
    let whole = Duration::from_secs(time.sec.unsigned_abs());
    let base = if time.sec >= 0 { UNIX_EPOCH.checked_add(whole) } else { UNIX_EPOCH.checked_sub(whole) };
    base.unwrap_or(UNIX_EPOCH) + Duration::from_nanos(time.nsec.min(999_999_999).into())
}

/// A time of a request. Of one before 1970 the protocol's library subtracts the nanoseconds, which it should add.
pub fn time(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Time { sec: since.as_secs() as i64, nsec: since.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            Time { sec: -(before.as_secs() as i64), nsec: before.subsec_nanos() }
        }
    }
}

pub fn time_or_now(given: TimeOrNow) -> Time {
    match given {
        TimeOrNow::SpecificTime(t) => time(t),
        TimeOrNow::Now => {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Time { sec: since.as_secs() as i64, nsec: since.subsec_nanos() }
        }
    }
}

/// A device number as the protocol has it, and back.
pub fn rdev((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

pub fn split_rdev(rdev: u32) -> (u32, u32) {
    ((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & 0xfff00))
}

pub fn file_attr(ino: u64, stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: stat.size,
        blocks: stat.nbytes.div_ceil(512),
        atime: system_time(stat.atime),
        mtime: system_time(stat.mtime),
        ctime: system_time(stat.ctime),
        crtime: system_time(stat.otime),
        kind: file_type(stat.kind()),
        perm: (stat.mode & 0o7777) as u16,
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        rdev: rdev(stat.rdev),
        blksize: 4096,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_devices_come_back() {
        let before = |sec, nsec| UNIX_EPOCH - Duration::new(sec, nsec);
        for (t, theirs) in
            [((-1, 999_999_999), before(1, 999_999_999)), ((-2, 0), before(2, 0)), ((-9, 7), before(9, 7))]
        {
            let t = Time { sec: t.0, nsec: t.1 };
            assert_eq!(time(theirs), t);
            assert_eq!(system_time(t), before(-t.sec as u64, 0) + Duration::from_nanos(t.nsec.into()));
        }
        for t in [(0, 0), (1, 5), (1 << 34, 999_999_999)] {
            let t = Time { sec: t.0, nsec: t.1 };
            assert_eq!(time(system_time(t)), t);
        }
        for d in [(1, 3), (259, 70_000), (4095, 0xfffff)] {
            assert_eq!(split_rdev(rdev(d)), d);
        }
    }
}
