//! What a mount serves; `requests` has a method for each request.
//!
//! Whoever mounts is the image's only owner, so the kernel may keep what it was told: entries, also those that are not
//! there, attributes and pages are valid until they are changed through the mount.

use crate::attr::{file_attr, split_rdev};
use crate::caching::{Capable, Handles};
use crate::dropper::Dropper;
use crate::lend::Lent;
use crate::nodes::Nodes;
use crate::syncer::Syncer;
use crate::{CONTROL_PID, CONTROL_STATS, CONTROL_SYNC, MountOptions, caching, errno};
use buttery::{
    CAPABILITY, DeviceStats, DirEntry, Error, FileId, Filesystem, Kind, NewNode, Result, SetAttr, Stat,
    XattrMode,
};
use fuser::{
    Errno, FileAttr, FileHandle, FopenFlags, Generation, INodeNo, Notifier, ReplyEntry, ReplyXattr, Request,
};
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// How long the kernel may keep what it was told.
pub(crate) const LONG: Duration = Duration::from_secs(3600);
const NEVER: Duration = Duration::ZERO;
/// Directory entries that are looked at at a time.
pub(crate) const BATCH: usize = 256;
/// What a mount serves.
pub struct Server {
    pub(crate) fs: Option<Arc<Filesystem>>,
    pub(crate) nodes: Nodes,
    pub(crate) syncer: Syncer,
    pub(crate) dropper: Dropper,
    /// The mount's device.
    pub(crate) place: Option<String>,
    pub(crate) closed: Arc<Mutex<Option<Result<()>>>>,
    /// The kernel obeys access control lists.
    pub(crate) acls: bool,
    /// The kernel holds buffered writes back.
    pub(crate) writeback: bool,
    /// Pages that are written over past the cache are dropped from it.
    pub(crate) may_go_past: bool,
    /// What is open.
    pub(crate) handles: Arc<Handles>,
    /// Whose extents may be shared.
    pub(crate) lent: Lent,
    /// Who may have capabilities to lose.
    pub(crate) capable: Capable,
    /// How to tell the kernel to forget what it was told.
    notifier: Arc<OnceLock<Notifier>>,
}

impl Server {
    /// A server for a file system; what closing it in the end comes to is left in `closed`. Where the kernel checks
    /// permissions it checks access control lists with them.
    pub fn new(
        fs: Filesystem,
        options: &MountOptions,
        closed: Arc<Mutex<Option<Result<()>>>>,
    ) -> Result<Server> {
        let (acls, writeback) = (options.default_permissions, options.writeback_cache && !options.read_only);
        let nodes = Nodes::new(fs.root());
        let fs = Arc::new(fs);
        let notifier = Arc::default();
        let syncer = Syncer::start(&fs, &notifier);
        let dropper = Dropper::start(&fs, &notifier);
        let handles = Arc::default();
        Ok(Server {
            fs: Some(fs),
            nodes,
            syncer,
            dropper,
            place: None,
            closed,
            acls,
            writeback,
            may_go_past: true,
            handles,
            lent: Lent::default(),
            capable: Capable::default(),
            notifier,
        })
    }

    /// Files of which the kernel may hold writes back.
    pub(crate) fn held_back(&self) -> Vec<INodeNo> {
        if self.writeback { self.handles.written() } else { Vec::new() }
    }

    /// The file system, for as long as it is served.
    pub fn shared(&self) -> Weak<Filesystem> {
        self.fs.as_ref().map_or_else(Weak::new, Arc::downgrade)
    }

    /// What is open.
    pub fn handles(&self) -> Arc<Handles> {
        self.handles.clone()
    }

    /// Where the session's notifier is to be put.
    pub fn notifier(&self) -> Arc<OnceLock<Notifier>> {
        self.notifier.clone()
    }

    /// A new handle of a file, and how it is cached.
    pub(crate) fn handle(&self, id: FileId, node: INodeNo, flags: i32) -> Result<(FileHandle, FopenFlags)> {
        self.handles.open(self.fs()?, (id, node), flags, self.writeback || !self.may_go_past)
    }

    /// The same of a file that was there before, and may have capabilities.
    pub(crate) fn opened(&self, id: FileId, node: INodeNo, flags: i32) -> Result<(FileHandle, FopenFlags)> {
        let fs = self.fs()?;
        let (handle, cached) = self.handle(id, node, flags)?;
        let past = cached.contains(FopenFlags::FOPEN_DIRECT_IO);
        if past && caching::writes(flags) && fs.xattr(id, CAPABILITY).is_ok() {
            self.capable.note(node);
        }
        Ok((handle, cached))
    }

    pub(crate) fn fs(&self) -> Result<&Filesystem> {
        self.fs.as_deref().ok_or(Error::Aborted)
    }

    pub(crate) fn file(&self, node: INodeNo) -> Result<FileId> {
        self.nodes.file(node).ok_or(Error::NotFound)
    }

    pub(crate) fn attr(&self, stat: &Stat) -> FileAttr {
        file_attr(self.nodes.ino(stat.id), stat)
    }

    /// How long the attributes hold: a write may take privileges away without the kernel's knowing.
    pub(crate) fn ttl(stat: &Stat) -> Duration {
        if stat.kind() == Kind::File && stat.mode & 0o6000 != 0 { NEVER } else { LONG }
    }

    /// The attributes of a file that the kernel will hold from now on.
    pub(crate) fn entry(&self, id: FileId) -> Result<(Duration, FileAttr)> {
        let fs = self.fs()?;
        let stat = fs.stat(id)?;
        fs.hold(id, 1);
        Ok((Self::ttl(&stat), FileAttr { ino: self.nodes.node(id), ..self.attr(&stat) }))
    }

    pub(crate) fn reply_entry(&self, reply: ReplyEntry, id: Result<FileId>) {
        match id.and_then(|id| self.entry(id)) {
            Ok((ttl, attr)) => reply.entry_with_ttls(&ttl, &LONG, &attr, Generation(0)),
            Err(error) => reply.error(errno::reply(&error)),
        }
    }

    pub(crate) fn set(
        &self,
        node: INodeNo,
        size: Option<u64>,
        set: SetAttr,
        privileged: bool,
    ) -> Result<Stat> {
        let (fs, id) = (self.fs()?, self.file(node)?);
        let mut set = set;
        if let Some(size) = size {
            fs.truncate(id, size)?;
            if privileged {
                fs.drop_capabilities(id)?;
            } else {
                fs.kill_privileges(id)?;
            }
        }
        if (set.uid.is_some() || set.gid.is_some()) && set.mode.is_none() {
            let stat = fs.stat(id)?;
            if stat.kind() != Kind::Directory {
                fs.kill_privileges(id)?;
                set.mode = None;
            }
        }
        if set != SetAttr::default() {
            match fs.set_attr(id, &set) {
                // times of writes that were held back until the file was made immutable: the writes count, times stay
                Err(Error::NotPermitted) if self.writeback && set == set.only_of_writes() => {}
                other => other?,
            }
        }
        fs.stat(id)
    }

    pub(crate) fn create_node(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
    ) -> Result<FileId> {
        let rdev = split_rdev(rdev);
        let new = NewNode { mode, uid: req.uid(), gid: req.gid(), rdev, umask: Some(umask) };
        self.fs()?.create(self.file(parent)?, name.as_bytes(), new)
    }

    pub(crate) fn set_xattr(
        &self,
        req: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        how: XattrMode,
    ) -> Result<()> {
        let (fs, id) = (self.fs()?, self.file(node)?);
        if name == CONTROL_STATS && node == INodeNo::ROOT {
            let ours = req.uid() == 0 || req.uid() == rustix::process::geteuid().as_raw();
            return if ours { fs.engine().reset_device_stats() } else { Err(Error::NotPermitted) };
        }
        let name = name.as_bytes();
        let is_acl = name == b"system.posix_acl_access";
        if is_acl {
            // as chmod(2) does. The kernel does not say of which other groups the caller is.
            let stat = fs.stat(id)?;
            if stat.mode & 0o2000 != 0 && req.uid() != 0 && req.gid() != stat.gid {
                let mode = Some(stat.mode & !0o2000);
                fs.set_attr(id, &SetAttr { mode, ..SetAttr::default() })?;
            }
        }
        fs.set_xattr(id, name, value, how)?;
        if name == CAPABILITY {
            self.capable.note(node);
        }
        if is_acl
            && !self.acls
            && let Some(notifier) = self.notifier.get()
        {
            // the mode changed with it, of which the kernel does not know; only attributes are forgotten
            let _ = notifier.inval_inode(node, -1, 0);
        }
        Ok(())
    }

    /// Entries of a directory from an offset on: `.` and `..` are 0 and 1, the others their index.
    pub(crate) fn entries(&self, dir: FileId, offset: u64) -> Result<Vec<(u64, Vec<u8>, Listed)>> {
        let fs = self.fs()?;
        let mut out = Vec::new();
        if offset == 0 {
            out.push((1, b".".to_vec(), Listed::File(dir)));
        }
        if offset <= 1 {
            let above = if dir == fs.root() { dir } else { fs.parent(dir)? };
            out.push((2, b"..".to_vec(), Listed::File(above)));
        }
        fs.read_dir(dir, offset.max(2), &mut |entry| {
            out.push((entry.index + 1, entry.name.clone(), Listed::Entry(entry)));
            Ok(out.len() < BATCH)
        })?;
        Ok(out)
    }

    pub(crate) fn control(&self, name: &str, size: u32, reply: ReplyXattr) {
        let answer = |reply: ReplyXattr, text: &str| match size {
            0 => reply.size(text.len() as u32),
            n if (n as usize) < text.len() => reply.error(Errno::ERANGE),
            _ => reply.data(text.as_bytes()),
        };
        match name {
            CONTROL_PID => answer(reply, &std::process::id().to_string()),
            CONTROL_STATS => match self.fs().and_then(|fs| fs.engine().device_stats()) {
                Ok(list) => answer(reply, &stats_text(&list)),
                Err(error) => reply.error(errno::reply(&error)),
            },
            // asked for its size first: the commit comes with the second call
            CONTROL_SYNC if size == 0 => reply.size(2),
            _ => self.syncer.commit_all(
                self.held_back(),
                Box::new(move |result| match result {
                    Ok(()) => reply.data(b"ok"),
                    Err(error) => reply.error(error),
                }),
            ),
        }
    }
}

/// A line for each device: its counters, then its name.
fn stats_text(list: &[DeviceStats]) -> String {
    let line = |stats: &DeviceStats| {
        let counts: Vec<String> = stats.counts.iter().map(u64::to_string).collect();
        format!("{} {}\n", counts.join(" "), stats.name)
    };
    list.iter().map(line).collect()
}

/// What an entry of a listing is.
pub(crate) enum Listed {
    File(FileId),
    Entry(DirEntry),
}
