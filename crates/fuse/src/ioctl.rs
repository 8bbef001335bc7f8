//! The ioctls that a mount answers, with the numbers and structures of the kernel's.

use crate::errno;
use crate::server::Server;
use buttery::{Error, FileId, Filesystem, Result};
use buttery_device::call::Call;
use fuser::{Errno, INodeNo, ReplyIoctl, Request};

/// BTRFS_SYNC.
const SYNC: u32 = 0x9408;
const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
const FSGETXATTR: u32 = 0x801c_581f;
const FSSETXATTR: u32 = 0x401c_5820;

/// The flags of `struct fsxattr`, and those of GETFLAGS that they are.
const XFLAGS: [(u32, u32); 5] = [(0x8, 0x10), (0x10, 0x20), (0x20, 0x8), (0x40, 0x80), (0x80, 0x40)];
/// Bytes of `struct fsxattr`: flags, extent size, extents, project, extent size of copies, padding.
const FSXATTR_LEN: usize = 28;

impl Server {
    pub(crate) fn answer_ioctl(
        &self,
        req: &Request,
        node: INodeNo,
        cmd: u32,
        in_data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        if cmd == SYNC {
            return self.syncer.commit_all(
                self.held_back(),
                Box::new(move |result| match result {
                    Ok(()) => reply.ioctl(0, &[]),
                    Err(error) => reply.error(error),
                }),
            );
        }
        let (id, fs) = match self.file(node).and_then(|id| Ok((id, self.fs()?))) {
            Ok(found) => found,
            Err(error) => return reply.error(errno::reply(&error)),
        };
        if let Some(call) = Call::of(cmd) {
            return self.of_subvolumes(req, id, call, in_data, reply);
        }
        match answer(fs, id, cmd, in_data) {
            Ok(Some(mut data)) => {
                // the number says eight bytes, the kernel itself asks for four
                data.truncate(out_size as usize);
                reply.ioctl(0, &data);
            }
            Ok(None) => reply.error(Errno::ENOTTY),
            Err(error) => reply.error(errno::reply(&error)),
        }
    }
}

/// Does what an ioctl asks for. Answers the data to give back, or nothing for one that is not known.
pub fn answer(fs: &Filesystem, id: FileId, cmd: u32, data: &[u8]) -> Result<Option<Vec<u8>>> {
    Ok(Some(match cmd {
        GETFLAGS => {
            let flags = fs.attr_flags(id)?;
            [flags.to_ne_bytes(), [0; 4]].concat()
        }
        SETFLAGS => {
            fs.set_attr_flags(id, word(data, 0)?)?;
            Vec::new()
        }
        FSGETXATTR => {
            let flags = fs.attr_flags(id)?;
            let shown = XFLAGS.iter().filter(|(_, attr)| flags & attr != 0).fold(0, |bits, (x, _)| bits | x);
            let mut out = vec![0; FSXATTR_LEN];
            out[..4].copy_from_slice(&u32::to_ne_bytes(shown));
            out
        }
        FSSETXATTR => {
            let wanted = word(data, 0)?;
            let known = XFLAGS.iter().fold(0, |bits, (x, _)| bits | x);
            if wanted & !known != 0
                || (4..FSXATTR_LEN).step_by(4).any(|at| word(data, at).is_ok_and(|w| w != 0))
            {
                return Err(Error::Unsupported("project numbers and extent sizes".into()));
            }
            let changed = XFLAGS.iter().fold(0, |bits, (_, attr)| bits | attr);
            let set = XFLAGS.iter().filter(|(x, _)| wanted & x != 0).fold(0, |bits, (_, attr)| bits | attr);
            fs.set_attr_flags(id, fs.attr_flags(id)? & !changed | set)?;
            Vec::new()
        }
        _ => return Ok(None),
    }))
}

fn word(data: &[u8], at: usize) -> Result<u32> {
    let bytes = data.get(at..at + 4).and_then(|b| b.try_into().ok()).ok_or(Error::Invalid)?;
    Ok(u32::from_ne_bytes(bytes))
}
