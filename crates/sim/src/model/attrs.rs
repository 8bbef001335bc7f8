//! Data and attributes in the model.

use super::{Fail, Ino, Model};
use buttery::{Fallocate, SetAttr, XattrMode};
use buttery_disk::dir::name_hash;
use buttery_disk::inode::flags;
use buttery_judge::{Kind, Time};

type Done<T = ()> = Result<T, Fail>;

/// The largest file.
const SIZE_MAX: u64 = i64::MAX as u64 & !4095;
/// Bytes of an attribute besides its name and value.
const ENTRY: usize = size_of::<buttery_disk::dir::DirItem>();

impl Model {
    fn check_data(&self, ino: Ino) -> Done {
        self.check_frozen(ino)?;
        match self.node(ino) {
            node if node.kind == Kind::Dir => Err("IsDirectory"),
            node if node.kind != Kind::File => Err("Invalid"),
            node if node.flags & flags::IMMUTABLE != 0 => Err("NotPermitted"),
            _ => Ok(()),
        }
    }

    pub fn write(&mut self, ino: Ino, offset: u64, data: &[u8]) -> Done {
        self.check_data(ino)?;
        let node = self.node(ino);
        if node.flags & flags::APPEND != 0 && offset != node.content.size() {
            return Err("NotPermitted");
        }
        if data.is_empty() {
            return Ok(());
        }
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > SIZE_MAX) {
            return Err("FileTooBig");
        }
        self.node_mut(ino).content.write(offset, data);
        self.changed(ino);
        Ok(())
    }

    fn changed(&mut self, ino: Ino) {
        let now = self.now;
        let node = self.node_mut(ino);
        (node.mtime, node.ctime) = (now, now);
    }

    pub fn append(&mut self, ino: Ino, data: &[u8]) -> Done {
        self.check_data(ino)?;
        let offset = self.node(ino).content.size();
        self.write(ino, offset, data)
    }

    pub fn truncate(&mut self, ino: Ino, size: u64) -> Done {
        self.check_data(ino)?;
        self.check_mutable(ino)?;
        if size > SIZE_MAX {
            return Err("FileTooBig");
        }
        self.node_mut(ino).content.truncate(size);
        self.changed(ino);
        Ok(())
    }

    pub fn fallocate(&mut self, ino: Ino, what: Fallocate, offset: u64, len: u64, keep_size: bool) -> Done {
        self.check_data(ino)?;
        if what != Fallocate::Allocate {
            self.check_mutable(ino)?;
        }
        if len == 0 {
            return Err("Invalid");
        }
        let end = offset.checked_add(len).filter(|&end| end <= SIZE_MAX).ok_or("FileTooBig")?;
        let content = &mut self.node_mut(ino).content;
        if what != Fallocate::Allocate {
            content.zero(offset, end);
        }
        if what != Fallocate::PunchHole && !keep_size && end > content.size() {
            content.truncate(end);
        }
        self.changed(ino);
        Ok(())
    }

    pub fn clone_range(&mut self, from: Ino, offset: u64, to: Ino, to_offset: u64, len: u64) -> Done {
        const SECTOR: u64 = 4096;
        self.check_data(to)?;
        self.check_mutable(to)?;
        let (source, target) = (self.node(from), self.node(to));
        if source.kind != Kind::File || (source.flags ^ target.flags) & flags::NODATASUM != 0 {
            return Err("Invalid");
        }
        let size = source.content.size();
        let end = if len == 0 { size } else { offset.checked_add(len).ok_or("Invalid")? };
        if end > size || end < offset {
            return Err("Invalid");
        }
        let to_end = to_offset.checked_add(end - offset).filter(|&e| e <= SIZE_MAX).ok_or("FileTooBig")?;
        let at_the_end = end == size && to_end >= target.content.size();
        let overlap = from == to && to_offset < end.next_multiple_of(SECTOR) && offset < to_end;
        if offset % SECTOR + to_offset % SECTOR > 0 || end % SECTOR > 0 && !at_the_end || overlap {
            return Err("Invalid");
        }
        if end > offset {
            let blocks = source.content.part(offset, end);
            self.node_mut(to).content.paste(to_offset, to_end, &blocks);
            self.changed(to);
        }
        Ok(())
    }

    pub fn set_attr(&mut self, ino: Ino, set: &SetAttr) -> Done {
        self.check_frozen(ino)?;
        self.check_mutable(ino)?;
        let now = self.now;
        let node = self.node_mut(ino);
        let time = |t: buttery::Time| Time { sec: t.sec, nsec: t.nsec };
        node.mode = set.mode.map_or(node.mode, |bits| bits & 0o7777);
        if set.mode.is_some()
            && let Some(list) = node.xattrs.get_mut(&b"system.posix_acl_access"[..])
        {
            follow_mode(list, node.mode);
        }
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
        node.mtime = set.mtime.map_or(node.mtime, time);
        node.btime = set.otime.map_or(node.btime, time);
        node.ctime = set.ctime.map_or(now, time);
        Ok(())
    }

    pub fn set_flags(&mut self, ino: Ino, mask: u64, value: u64) -> Done {
        self.check_frozen(ino)?;
        let now = self.now;
        let node = self.node_mut(ino);
        node.flags = node.flags & !mask | value & mask;
        node.ctime = now;
        Ok(())
    }

    pub fn set_xattr(&mut self, ino: Ino, name: &[u8], value: &[u8], how: XattrMode) -> Done {
        self.check_frozen(ino)?;
        self.check_mutable(ino)?;
        let (max, now) = (self.item_max(), self.now);
        let node = self.node_mut(ino);
        match (how, node.xattrs.get(name)) {
            (XattrMode::Any, Some(old)) if old == value => return Ok(()),
            (XattrMode::Create, Some(_)) => return Err("Exists"),
            (XattrMode::Replace, None) => return Err("NoAttribute"),
            _ => {}
        }
        if name.is_empty() || name.len() > 255 {
            return Err("Range");
        }
        let hash = name_hash(name);
        let beside = node.xattrs.iter().filter(|(n, _)| *n != name && name_hash(n) == hash);
        let bytes: usize = beside.map(|(n, v)| ENTRY + n.len() + v.len()).sum();
        if bytes + ENTRY + name.len() + value.len() > max {
            return Err("NoSpace");
        }
        node.xattrs.insert(name.to_vec(), value.to_vec());
        node.ctime = now;
        Ok(())
    }

    pub fn remove_xattr(&mut self, ino: Ino, name: &[u8]) -> Done {
        self.check_frozen(ino)?;
        self.check_mutable(ino)?;
        let now = self.now;
        let node = self.node_mut(ino);
        node.xattrs.remove(name).ok_or("NoAttribute")?;
        if name == super::names::PROPERTY {
            node.flags &= !(flags::COMPRESS | flags::NOCOMPRESS);
        }
        node.ctime = now;
        Ok(())
    }
}

/// An access control list after chmod(2): entries of eight bytes behind the version, permissions in the third.
fn follow_mode(list: &mut [u8], mode: u32) {
    const MASK: u8 = 0x10;
    let entries = &mut list[4..];
    let masked = entries.chunks(8).any(|e| e[0] == MASK);
    for entry in entries.chunks_mut(8) {
        match entry[0] {
            0x01 => entry[2] = (mode >> 6) as u8 & 7,
            0x04 if !masked => entry[2] = (mode >> 3) as u8 & 7,
            MASK => entry[2] = (mode >> 3) as u8 & 7,
            0x20 => entry[2] = mode as u8 & 7,
            _ => {}
        }
    }
}
