//! The ioctls of subvolumes, with the numbers and structures of the kernel's driver. FUSE passes them on for any
//! directory, and checks no permission: that is done here.

use crate::errno;
use crate::nodes::Nodes;
use crate::process;
use crate::server::Server;
use buttery::{Error, FileId, Filesystem, Kind, Result, Subvolume, TreeId};
use buttery_device::call::{Call, VolArgs, flags};
use buttery_disk::inode::Timespec;
use buttery_disk::{objectid, root};
use fuser::{INodeNo, ReplyIoctl, Request};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Where the caller may find that a name came or went.
pub(crate) type Changed = (FileId, Vec<u8>);

/// Who asks, and of which mount.
pub(crate) struct Caller<'a> {
    pub fs: &'a Filesystem,
    pub nodes: &'a Nodes,
    /// The mount's device.
    pub place: Option<&'a str>,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
}

/// What there is to give back: the structure, and the name that came or went.
pub(crate) type Answer = (Vec<u8>, Option<Changed>);

impl Server {
    /// Answers one of these ioctls.
    pub(crate) fn of_subvolumes(
        &self,
        req: &Request,
        id: FileId,
        call: Call,
        data: &[u8],
        reply: ReplyIoctl,
    ) {
        match Caller::new(self, req).and_then(|caller| caller.answer(id, call, data)) {
            Ok((out, None)) => reply.ioctl(0, &out),
            Ok((out, Some((dir, name)))) => {
                let done = Box::new(move || reply.ioctl(0, &out));
                self.dropper.tell(self.nodes.node(dir), OsString::from_vec(name), done);
            }
            Err(error) => reply.error(errno::reply(&error)),
        }
    }
}

impl<'a> Caller<'a> {
    pub fn new(server: &'a Server, req: &Request) -> Result<Caller<'a>> {
        let (nodes, place) = (&server.nodes, server.place.as_deref());
        Ok(Caller { fs: server.fs()?, nodes, place, uid: req.uid(), gid: req.gid(), pid: req.pid() })
    }

    /// Does what is asked for of an open file.
    pub fn answer(&self, id: FileId, call: Call, data: &[u8]) -> Result<Answer> {
        let nothing = |()| (Vec::new(), None);
        match call {
            Call::SubvolCreate | Call::SubvolCreateV2 => {
                let args = args(call, data, 0)?;
                self.may_write(id)?;
                self.fs.create_subvolume(id, &args.name, self.uid, self.gid)?;
                Ok((Vec::new(), Some((id, args.name))))
            }
            Call::SnapCreate | Call::SnapCreateV2 => self.snapshot(id, args(call, data, flags::RDONLY)?),
            Call::SnapDestroy | Call::SnapDestroyV2 => self.destroy(id, args(call, data, flags::SPEC_BY_ID)?),
            Call::DefaultSubvol => {
                self.must_be_owner()?;
                // zero is the top level
                let wanted = Some(number(data, 0)?).filter(|id| *id != 0).unwrap_or(objectid::FS_TREE);
                self.fs.set_default_subvolume(TreeId(wanted)).map(nothing)
            }
            Call::SubvolGetflags => {
                let read_only = self.subvolume(id)?.item.flags.get() & root::flags::RDONLY != 0;
                let bits = if read_only { flags::RDONLY } else { 0 };
                Ok((bits.to_ne_bytes().to_vec(), None))
            }
            Call::SubvolSetflags => {
                self.subvolume(id)?;
                self.must_have(id)?;
                match number(data, 0)? {
                    bits if bits & !flags::RDONLY == 0 => {
                        self.fs.set_read_only(id.tree, bits != 0).map(nothing)
                    }
                    _ => Err(Error::Unsupported("this flag of a subvolume".into())),
                }
            }
            Call::GetLabel => {
                let mut out = self.fs.label();
                out.resize(Call::GetLabel.bytes(), 0);
                Ok((out, None))
            }
            Call::SetLabel => {
                self.must_be_owner()?;
                let end = data.iter().position(|&b| b == 0).ok_or(Error::Invalid)?;
                self.fs.set_label(&data[..end]).map(nothing)
            }
            Call::SubvolInfo => Ok((info(&self.fs.subvolume_info(id.tree)?), None)),
            Call::SubvolRootref => Ok((self.rootrefs(id, TreeId(number(data, 0)?))?, None)),
            Call::InoLookup => Ok((self.ino_lookup(id, data)?, None)),
            Call::InoLookupUser => Ok((self.ino_lookup_user(id, data)?, None)),
        }
    }

    fn snapshot(&self, dir: FileId, args: VolArgs) -> Result<Answer> {
        self.may_write(dir)?;
        let number = process::node_of(self.pid, args.fd, self.place)?;
        let source = self.nodes.file(INodeNo(number)).ok_or(Error::NotFound)?;
        self.subvolume(source)?;
        self.must_have(source)?;
        self.fs.snapshot(source.tree, dir, &args.name, args.flags & flags::RDONLY != 0)?;
        Ok((Vec::new(), Some((dir, args.name))))
    }

    fn destroy(&self, dir: FileId, args: VolArgs) -> Result<Answer> {
        // the kernel's driver lets others only on request, which is not known here
        self.must_be_owner()?;
        let (dir, name) = match args.flags & flags::SPEC_BY_ID {
            0 => (dir, args.name),
            _ => {
                let parent = self.fs.subvolume_info(TreeId(args.id))?.parent.ok_or(Error::NotPermitted)?;
                (FileId { tree: parent.tree, ino: parent.dir }, parent.name)
            }
        };
        self.fs.delete_subvolume(dir, &name)?;
        Ok((Vec::new(), Some((dir, name))))
    }

    /// The subvolume whose top directory this is.
    fn subvolume(&self, id: FileId) -> Result<Subvolume> {
        if id != FileId::top_of(id.tree) {
            return Err(Error::Invalid);
        }
        self.fs.subvolume_info(id.tree)
    }

    fn is_owner(&self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }

    /// Only who mounted the file system, or root.
    fn must_be_owner(&self) -> Result<()> {
        if self.is_owner() { Ok(()) } else { Err(Error::NotPermitted) }
    }

    /// Only who has the file.
    fn must_have(&self, id: FileId) -> Result<()> {
        if self.is_owner() || self.fs.stat(id)?.uid == self.uid { Ok(()) } else { Err(Error::NotPermitted) }
    }

    /// Whether names may be made in a directory. Of the caller's groups the kernel tells one.
    fn may_write(&self, dir: FileId) -> Result<()> {
        let stat = self.fs.stat(dir)?;
        if stat.kind() != Kind::Directory {
            return Err(Error::NotDirectory);
        }
        let shift = match () {
            _ if stat.uid == self.uid => 6,
            _ if stat.gid == self.gid => 3,
            _ => 0,
        };
        if self.is_owner() || stat.mode >> shift & 3 == 3 { Ok(()) } else { Err(Error::NotPermitted) }
    }

    /// `struct btrfs_ioctl_get_subvol_rootref_args`.
    fn rootrefs(&self, id: FileId, from: TreeId) -> Result<Vec<u8>> {
        const MOST: usize = 255;
        let all = self.fs.subvolumes_in(id.tree, from)?;
        let next = all.get(MOST).map_or(from, |(id, _)| *id);
        let mut out = next.0.to_ne_bytes().to_vec();
        for (child, dir) in all.iter().take(MOST) {
            out.extend(child.0.to_ne_bytes());
            out.extend(dir.to_ne_bytes());
        }
        out.resize(8 + 16 * MOST, 0);
        out.push(all.len().min(MOST) as u8);
        out.resize(Call::SubvolRootref.bytes(), 0);
        Ok(out)
    }

    /// `struct btrfs_ioctl_ino_lookup_args`: the path of a directory in a subvolume, with a slash behind it.
    fn ino_lookup(&self, id: FileId, data: &[u8]) -> Result<Vec<u8>> {
        let (tree, dir) = (number(data, 0)?, number(data, 8)?);
        let tree = if tree == 0 { id.tree } else { TreeId(tree) };
        if tree != id.tree || dir != FileId::top_of(tree).ino {
            self.must_be_owner()?;
        }
        let mut out = [tree.0.to_ne_bytes(), dir.to_ne_bytes()].concat();
        put_text(&mut out, &self.dir_path(FileId { tree, ino: dir })?, Call::InoLookup.bytes())?;
        Ok(out)
    }

    /// `struct btrfs_ioctl_ino_lookup_user_args`: name and directory of a subvolume below the one that is asked.
    fn ino_lookup_user(&self, id: FileId, data: &[u8]) -> Result<Vec<u8>> {
        let (dir, child) = (number(data, 0)?, TreeId(number(data, 8)?));
        let link = self.fs.subvolume_info(child)?.parent.ok_or(Error::NotFound)?;
        if (link.tree, link.dir) != (id.tree, dir) {
            return Err(Error::NotFound);
        }
        let mut out = data[..16].to_vec();
        put_text(&mut out, &link.name, 16 + 256)?;
        put_text(&mut out, &self.dir_path(FileId { tree: id.tree, ino: dir })?, Call::InoLookupUser.bytes())?;
        Ok(out)
    }

    fn dir_path(&self, dir: FileId) -> Result<Vec<u8>> {
        let mut path = self.fs.path_in_subvolume(dir)?;
        if !path.is_empty() {
            path.push(b'/');
        }
        Ok(path)
    }
}

/// The arguments of one of the calls that make or delete; no flags but these.
fn args(call: Call, data: &[u8], known: u64) -> Result<VolArgs> {
    let args = VolArgs::parse(call, data).ok_or(Error::Invalid)?;
    match args.flags & !known {
        0 => Ok(args),
        other => Err(Error::Unsupported(format!("flags {other:#x} of a subvolume's creation").into())),
    }
}

fn number(data: &[u8], at: usize) -> Result<u64> {
    let bytes = data.get(at..at + 8).and_then(|b| b.try_into().ok()).ok_or(Error::Invalid)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Appends a text with a NUL, and fills up with such.
fn put_text(out: &mut Vec<u8>, text: &[u8], until: usize) -> Result<()> {
    out.extend(text);
    if out.len() >= until {
        return Err(Error::NameTooLong);
    }
    out.resize(until, 0);
    Ok(())
}

/// `struct btrfs_ioctl_get_subvol_info_args`.
fn info(of: &Subvolume) -> Vec<u8> {
    let (item, link) = (&of.item, of.parent.as_ref());
    let mut out = of.id.0.to_ne_bytes().to_vec();
    let name = link.map_or(&[][..], |link| &link.name);
    out.extend(name.iter().take(255));
    out.resize(8 + 256, 0);
    let place = [link.map_or(0, |link| link.tree.0), link.map_or(0, |link| link.dir)];
    for number in [place[0], place[1], item.generation.get(), item.flags.get()] {
        out.extend(number.to_ne_bytes());
    }
    out.extend([item.uuid, item.parent_uuid, item.received_uuid].concat());
    for id in [item.ctransid, item.otransid, item.stransid, item.rtransid] {
        out.extend(id.get().to_ne_bytes());
    }
    for time in [item.ctime, item.otime, item.stime, item.rtime] {
        put_time(&mut out, &time);
    }
    out.resize(Call::SubvolInfo.bytes(), 0);
    out
}

fn put_time(out: &mut Vec<u8>, time: &Timespec) {
    out.extend(time.sec.get().to_ne_bytes());
    out.extend(time.nsec.get().to_ne_bytes());
    out.extend([0; 4]);
}
