//! A method for each request.

use crate::attr::{entry_type, file_attr, time, time_or_now};
use crate::lend::{CONTROL_DEDUPE, CONTROL_LEND};
use crate::server::{BATCH, LONG, Listed, Server};
use crate::{CONTROL_PID, CONTROL_STATS, CONTROL_SYNC, errno};
use buttery::{Error, Fallocate, RenameMode, SetAttr, Stat, XattrMode};
use buttery_disk::inode::mode;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, Generation, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Bytes of one request.
const MAX_WRITE: u32 = 1 << 20;
/// Bytes that one call may copy: the answer has 32 bits, and a multiple of the sector size is wanted.
const COPY_MAX: u64 = 1 << 31;

thread_local! {
    /// What a thread reads into: kept, since fresh memory would have to be cleared for each request.
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Answers the request with an error, or goes on with the value.
macro_rules! ok {
    ($reply:expr, $result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => return $reply.error(errno::reply(&error)),
        }
    };
}

impl fuser::Filesystem for Server {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        for wanted in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DONT_MASK,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_EXPLICIT_INVAL_DATA,
            InitFlags::FUSE_HAS_IOCTL_DIR,
        ] {
            // an older kernel does without
            let _ = config.add_capabilities(wanted);
        }
        // it came with the kernel that drops pages which others write past the cache
        self.may_go_past = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok();
        if self.writeback {
            config
                .add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE)
                .map_err(|_| std::io::Error::from(std::io::ErrorKind::Unsupported))?;
        }
        if self.acls {
            let _ = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
        }
        let _ = config.set_max_write(MAX_WRITE);
        let _ = config.set_max_readahead(MAX_WRITE).or_else(|most| config.set_max_readahead(most));
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn destroy(&mut self) {
        self.syncer.stop();
        self.dropper.stop();
        let Some(mut fs) = self.fs.take() else { return };
        let result = loop {
            // a commit for a signal may be under way
            match Arc::try_unwrap(fs) {
                Ok(fs) => break fs.close(),
                Err(shared) => fs = shared,
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        *self.closed.lock() = Some(result);
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let dir = ok!(reply, self.file(parent));
        match self.fs().and_then(|fs| fs.lookup(dir, name.as_bytes())) {
            Err(Error::NotFound) => {
                // the kernel may remember that there is nothing
                let mut none = file_attr(0, &Stat::nothing());
                none.ino = INodeNo(0);
                reply.entry_with_ttls(&LONG, &LONG, &none, Generation(0));
            }
            found => self.reply_entry(reply, found),
        }
    }

    fn forget(&self, _req: &Request, node: INodeNo, times: u64) {
        if let (Ok(fs), Ok(id)) = (self.fs(), self.file(node))
            && let Err(error) = fs.release(id, times)
        {
            tracing::warn!("forgetting {}: {error}", id.ino);
        }
    }

    fn getattr(&self, _req: &Request, node: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let stat = ok!(reply, self.file(node).and_then(|id| self.fs()?.stat(id)));
        reply.attr(&Self::ttl(&stat), &self.attr(&stat));
    }

    fn setattr(
        &self,
        req: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttr {
            mode,
            uid,
            gid,
            atime: atime.map(time_or_now),
            mtime: mtime.map(time_or_now),
            ctime: ctime.map(time),
            otime: None,
        };
        let stat = ok!(reply, self.set(node, size, set, req.uid() == 0));
        reply.attr(&Self::ttl(&stat), &self.attr(&stat));
    }

    fn readlink(&self, _req: &Request, node: INodeNo, reply: ReplyData) {
        let target = ok!(reply, self.file(node).and_then(|id| self.fs()?.read_link(id)));
        reply.data(&target);
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.reply_entry(reply, self.create_node(req, parent, name, mode, umask, rdev));
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, bits: u32, umask: u32, reply: ReplyEntry) {
        self.reply_entry(reply, self.create_node(req, parent, name, mode::DIR | bits & 0o7777, umask, 0));
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        ok!(reply, self.file(parent).and_then(|dir| self.fs()?.unlink(dir, name.as_bytes())));
        reply.ok();
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        ok!(reply, self.file(parent).and_then(|dir| self.fs()?.rmdir(dir, name.as_bytes())));
        reply.ok();
        if self.fs().is_ok_and(buttery::Filesystem::has_deleted) {
            self.dropper.wake();
        }
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let made = self.file(parent).and_then(|dir| {
            let target = target.as_os_str().as_bytes();
            self.fs()?.symlink(dir, name.as_bytes(), target, req.uid(), req.gid())
        });
        self.reply_entry(reply, made);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = match flags.bits() {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return reply.error(Errno::EINVAL),
        };
        let (from, to) = (ok!(reply, self.file(parent)), ok!(reply, self.file(new_parent)));
        let fs = ok!(reply, self.fs());
        ok!(reply, fs.rename(from, name.as_bytes(), to, new_name.as_bytes(), mode));
        reply.ok();
    }

    fn link(&self, _req: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let linked = self.file(node).and_then(|id| {
            self.fs()?.link(id, self.file(parent)?, name.as_bytes())?;
            Ok(id)
        });
        self.reply_entry(reply, linked);
    }

    fn open(&self, _req: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.0 & libc::O_ACCMODE != libc::O_RDONLY {
            // the kernel knows neither of subvolumes nor of an inode's flags
            let append = flags.0 & libc::O_APPEND != 0;
            let id = ok!(reply, self.file(node));
            let fs = ok!(reply, self.fs());
            ok!(reply, fs.check_open_for_writing(id, append));
        }
        let (handle, cached) = ok!(reply, self.file(node).and_then(|id| self.opened(id, node, flags.0)));
        reply.opened(handle, cached);
    }

    fn read(
        &self,
        _req: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let id = ok!(reply, self.file(node));
        READ_BUFFER.with_borrow_mut(|buf| {
            let size = size as usize;
            if buf.len() < size {
                buf.resize(size, 0);
            }
            let n = ok!(reply, self.fs().and_then(|fs| fs.read(id, offset, &mut buf[..size])));
            reply.data(&buf[..n]);
        });
    }

    fn write(
        &self,
        _req: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.file(node).and_then(|id| {
            let fs = self.fs()?;
            if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                fs.kill_privileges(id)?;
            } else if self.capable.take(node) {
                fs.drop_capabilities(id)?;
            }
            if self.writeback && write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
                return fs.write_held_back(id, offset, data);
            }
            if flags.0 & (libc::O_DIRECT | libc::O_SYNC | libc::O_DSYNC) != 0 {
                fs.write_direct(id, offset, data)
            } else {
                fs.write(id, offset, data)
            }
        });
        ok!(reply, written);
        let len = data.len() as u32;
        // a write from the page cache has no handle of its own: the fsync that follows it commits
        let from_cache = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        if flags.0 & (libc::O_SYNC | libc::O_DSYNC) != 0 && !from_cache {
            return self.syncer.commit(Box::new(move |result| match result {
                Ok(()) => reply.written(len),
                Err(error) => reply.error(error),
            }));
        }
        reply.written(len);
    }

    fn release(
        &self,
        _req: &Request,
        node: INodeNo,
        handle: FileHandle,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.handles.close(node, handle, flags.0);
        reply.ok();
    }

    fn flush(&self, _req: &Request, _node: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // nothing is kept back until a close: the kernel need not ask again
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _req: &Request, _node: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        if ok!(reply, self.fs()).is_synced() {
            return reply.ok();
        }
        self.syncer.commit(Box::new(move |result| match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }));
    }

    fn fsyncdir(&self, req: &Request, node: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        self.fsync(req, node, fh, datasync, reply);
    }

    fn opendir(&self, _req: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // directories are read by offset alone: the kernel need not ask again
        reply.error(Errno::ENOSYS);
    }

    fn readdir(
        &self,
        _req: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let dir = ok!(reply, self.file(node));
        let fs = ok!(reply, self.fs());
        let mut at = offset;
        loop {
            let list = ok!(reply, self.entries(dir, at));
            let more = list.len() >= BATCH;
            for (next, name, listed) in list {
                let (ino, kind) = match listed {
                    Listed::File(id) => (self.nodes.ino(id), fuser::FileType::Directory),
                    Listed::Entry(entry) => {
                        let id = ok!(reply, fs.follow(dir, &entry.name, entry.target));
                        (self.nodes.ino(id), entry_type(entry.kind))
                    }
                };
                if reply.add(INodeNo(ino), next, kind, OsStr::from_bytes(&name)) {
                    return reply.ok();
                }
                at = next;
            }
            if !more {
                return reply.ok();
            }
        }
    }

    fn readdirplus(
        &self,
        _req: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let dir = ok!(reply, self.file(node));
        let fs = ok!(reply, self.fs());
        let mut at = offset;
        loop {
            let list = ok!(reply, self.entries(dir, at));
            let more = list.len() >= BATCH;
            for (next, name, listed) in list {
                let id = match &listed {
                    Listed::File(id) => *id,
                    Listed::Entry(entry) => ok!(reply, fs.follow(dir, &entry.name, entry.target)),
                };
                let counted = matches!(listed, Listed::Entry(_));
                at = next;
                let Ok(stat) = fs.stat(id) else { continue }; // removed, or unreadable: a lookup will tell
                if counted {
                    fs.hold(id, 1);
                }
                let attr = FileAttr { ino: self.nodes.node(id), ..self.attr(&stat) };
                let ttl = Self::ttl(&stat);
                let name = OsStr::from_bytes(&name);
                if reply.add(INodeNo(attr.ino.0), next, name, &ttl, &attr, Generation(0)) {
                    if counted {
                        let _ = fs.release(id, 1);
                    }
                    return reply.ok();
                }
            }
            if !more {
                return reply.ok();
            }
        }
    }

    fn statfs(&self, _req: &Request, _node: INodeNo, reply: ReplyStatfs) {
        let s = ok!(reply, self.fs().and_then(|fs| fs.statfs()));
        let block = u64::from(s.block_size);
        reply.statfs(
            s.total / block,
            s.free / block,
            s.available / block,
            0,
            0,
            s.block_size,
            255,
            s.block_size,
        );
    }

    fn setxattr(
        &self,
        req: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let how = match flags {
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => XattrMode::Any,
        };
        if name == CONTROL_DEDUPE {
            let (fs, id) = (ok!(reply, self.fs()), ok!(reply, self.file(node)));
            return self.lent.answer_dedupe(fs, id, value, reply);
        }
        ok!(reply, self.set_xattr(req, node, name, value, how));
        reply.ok();
    }

    fn getxattr(&self, _req: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if let Some(control) = [CONTROL_PID, CONTROL_SYNC, CONTROL_STATS].into_iter().find(|c| name == *c)
            && node == INodeNo::ROOT
        {
            return self.control(control, size, reply);
        }
        if name == CONTROL_LEND {
            return self.lent.answer_lend(ok!(reply, self.file(node)), size, reply);
        }
        let value = ok!(reply, self.file(node).and_then(|id| self.fs()?.xattr(id, name.as_bytes())));
        match size {
            0 => reply.size(value.len() as u32),
            n if (n as usize) < value.len() => reply.error(Errno::ERANGE),
            _ => reply.data(&value),
        }
    }

    fn listxattr(&self, _req: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let all = ok!(reply, self.file(node).and_then(|id| self.fs()?.xattrs(id)));
        let names: Vec<u8> = all.into_iter().flat_map(|(name, _)| [name, vec![0]].concat()).collect();
        match size {
            0 => reply.size(names.len() as u32),
            n if (n as usize) < names.len() => reply.error(Errno::ERANGE),
            _ => reply.data(&names),
        }
    }

    fn removexattr(&self, _req: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        ok!(reply, self.file(node).and_then(|id| self.fs()?.remove_xattr(id, name.as_bytes())));
        reply.ok();
    }

    fn access(&self, _req: &Request, _node: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        // permissions are the kernel's to check (default_permissions), or everything is the owner's
        reply.error(Errno::ENOSYS);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        bits: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let made = self.create_node(req, parent, name, mode::REG | bits & 0o7777, umask, 0);
        let made = made.and_then(|id| {
            let entry = self.entry(id)?;
            Ok((entry, self.handle(id, self.nodes.node(id), flags)?))
        });
        let ((ttl, attr), (handle, cached)) = ok!(reply, made);
        reply.created(&ttl, &attr, Generation(0), handle, cached);
    }

    fn ioctl(
        &self,
        req: &Request,
        node: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        self.answer_ioctl(req, node, cmd, in_data, out_size, reply);
    }

    fn fallocate(
        &self,
        _req: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        const KEEP_SIZE: i32 = libc::FALLOC_FL_KEEP_SIZE;
        let what = match mode & !KEEP_SIZE {
            0 => Fallocate::Allocate,
            libc::FALLOC_FL_PUNCH_HOLE if mode & KEEP_SIZE != 0 => Fallocate::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => Fallocate::ZeroRange,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        let keep_size = mode & KEEP_SIZE != 0;
        ok!(reply, self.file(node).and_then(|id| self.fs()?.fallocate(id, what, offset, length, keep_size)));
        reply.ok();
    }

    fn copy_file_range(
        &self,
        _req: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: u64,
        to: INodeNo,
        _to_fh: FileHandle,
        to_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let copied = self.file(node).and_then(|from| {
            self.fs()?.copy_range(from, offset, self.file(to)?, to_offset, length.min(COPY_MAX))
        });
        let copied = ok!(reply, copied);
        reply.written(copied as u32);
    }

    fn lseek(
        &self,
        _req: &Request,
        node: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        if self.writeback {
            // what the kernel holds back is not seen here: without an answer it takes all of a file for data
            return reply.error(Errno::ENOSYS);
        }
        let data = match whence {
            libc::SEEK_DATA => true,
            libc::SEEK_HOLE => false,
            _ => return reply.error(Errno::EINVAL),
        };
        let found = self.file(node).and_then(|id| {
            let offset = u64::try_from(offset).map_err(|_| Error::NotFound)?;
            self.fs()?.seek(id, offset, data)
        });
        match found {
            Ok(at) => reply.offset(at as i64),
            Err(Error::NotFound) => reply.error(Errno::ENXIO),
            Err(error) => reply.error(errno::reply(&error)),
        }
    }
}
