//! The ioctls of Btrfs that concern subvolumes and labels: their numbers, and the structures that they pass. Ours answer
//! them on a mount, and ask them of a mount, whoever serves it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// An ioctl. Its structure is as long as the number says, and has no pointers in it but for those of quotas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Call {
    /// BTRFS_IOC_SNAP_CREATE
    SnapCreate = 0x5000_9401,
    /// BTRFS_IOC_SUBVOL_CREATE
    SubvolCreate = 0x5000_940e,
    /// BTRFS_IOC_SNAP_DESTROY
    SnapDestroy = 0x5000_940f,
    /// BTRFS_IOC_INO_LOOKUP
    InoLookup = 0xd000_9412,
    /// BTRFS_IOC_DEFAULT_SUBVOL
    DefaultSubvol = 0x4008_9413,
    /// BTRFS_IOC_SNAP_CREATE_V2
    SnapCreateV2 = 0x5000_9417,
    /// BTRFS_IOC_SUBVOL_CREATE_V2
    SubvolCreateV2 = 0x5000_9418,
    /// BTRFS_IOC_SUBVOL_GETFLAGS
    SubvolGetflags = 0x8008_9419,
    /// BTRFS_IOC_SUBVOL_SETFLAGS
    SubvolSetflags = 0x4008_941a,
    /// BTRFS_IOC_GET_FSLABEL
    GetLabel = 0x8100_9431,
    /// BTRFS_IOC_SET_FSLABEL
    SetLabel = 0x4100_9432,
    /// BTRFS_IOC_GET_SUBVOL_INFO
    SubvolInfo = 0x81f8_943c,
    /// BTRFS_IOC_GET_SUBVOL_ROOTREF
    SubvolRootref = 0xd000_943d,
    /// BTRFS_IOC_INO_LOOKUP_USER
    InoLookupUser = 0xd000_943e,
    /// BTRFS_IOC_SNAP_DESTROY_V2
    SnapDestroyV2 = 0x5000_943f,
}

const ALL: [Call; 15] = [
    Call::SnapCreate,
    Call::SubvolCreate,
    Call::SnapDestroy,
    Call::InoLookup,
    Call::DefaultSubvol,
    Call::SnapCreateV2,
    Call::SubvolCreateV2,
    Call::SubvolGetflags,
    Call::SubvolSetflags,
    Call::GetLabel,
    Call::SetLabel,
    Call::SubvolInfo,
    Call::SubvolRootref,
    Call::InoLookupUser,
    Call::SnapDestroyV2,
];

/// Flags of `struct btrfs_ioctl_vol_args_v2`, and of SUBVOL_GETFLAGS.
pub mod flags {
    /// The snapshot, or subvolume, is read-only.
    pub const RDONLY: u64 = 1 << 1;
    /// The subvolume is given by its id.
    pub const SPEC_BY_ID: u64 = 1 << 4;
}

/// Bytes of `struct btrfs_ioctl_vol_args`, of its second form, and of most others.
const ARGS_LEN: usize = 4096;
/// Where the name stands in the first form, behind the descriptor.
const NAME_AT: usize = 8;
/// And in the second.
const NAME_V2_AT: usize = 56;
/// The longest name in the first form, in the second; a NUL follows.
const NAME_MAX: usize = 255;

impl Call {
    /// The one with this number.
    pub fn of(number: u32) -> Option<Call> {
        ALL.into_iter().find(|call| *call as u32 == number)
    }

    /// Bytes of its structure.
    pub const fn bytes(self) -> usize {
        (self as u32 >> 16 & 0x3fff) as usize
    }

    /// Asks for it. `data` is the structure, which is changed by the answer if the ioctl has any.
    pub fn ask(self, file: &File, data: &mut [u8]) -> io::Result<()> {
        if data.len() < self.bytes() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the kernel reads and writes as many bytes as the number says, and so many are there; the flag for which it
        // would follow a pointer is no part of what this module makes.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), self as u32 as _, data.as_mut_ptr()) };
        // some answer a number beyond zero, which means nothing
        if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// What is to be made, or deleted: both forms of the structure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolArgs {
    /// The descriptor of a snapshot's source.
    pub fd: i64,
    pub flags: u64,
    pub name: Vec<u8>,
    /// With [`flags::SPEC_BY_ID`], in the place of the name.
    pub id: u64,
}

impl VolArgs {
    /// The structure in its second form. `None` if the name is too long.
    pub fn to_v2(&self) -> Option<Vec<u8>> {
        let mut out = vec![0; ARGS_LEN];
        out[..8].copy_from_slice(&self.fd.to_ne_bytes());
        out[16..24].copy_from_slice(&self.flags.to_ne_bytes());
        if self.flags & flags::SPEC_BY_ID != 0 {
            out[NAME_V2_AT..NAME_V2_AT + 8].copy_from_slice(&self.id.to_ne_bytes());
        } else if self.name.len() <= NAME_MAX {
            out[NAME_V2_AT..NAME_V2_AT + self.name.len()].copy_from_slice(&self.name);
        } else {
            return None;
        }
        Some(out)
    }

    /// Reads the structure of one of the calls that have it; `None` if it is cut off, or the name has no end.
    pub fn parse(call: Call, data: &[u8]) -> Option<VolArgs> {
        let number = |at: usize| Some(u64::from_ne_bytes(data.get(at..at + 8)?.try_into().ok()?));
        let fd = number(0)? as i64;
        let (flags, name_at) = match call {
            Call::SnapCreateV2 | Call::SubvolCreateV2 | Call::SnapDestroyV2 => (number(16)?, NAME_V2_AT),
            _ => (0, NAME_AT),
        };
        if flags & flags::SPEC_BY_ID != 0 {
            return Some(VolArgs { fd, flags, name: Vec::new(), id: number(NAME_V2_AT)? });
        }
        let field = data.get(name_at..ARGS_LEN)?;
        let end = field.iter().position(|&b| b == 0)?;
        Some(VolArgs { fd, flags, name: field[..end].to_vec(), id: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_say_how_long_structures_are() {
        for call in ALL {
            assert_eq!(Call::of(call as u32), Some(call));
            assert!([8, 256, 504, ARGS_LEN].contains(&call.bytes()), "{call:?}");
        }
        assert_eq!(Call::of(0), None);
    }

    #[test]
    fn arguments_are_read_as_they_were_written() {
        let args = VolArgs { fd: 7, flags: flags::RDONLY, name: b"a name".to_vec(), id: 0 };
        let bytes = args.to_v2().expect("short enough");
        assert_eq!(VolArgs::parse(Call::SnapCreateV2, &bytes), Some(args));
        let by_id = VolArgs { flags: flags::SPEC_BY_ID, id: 300, ..VolArgs::default() };
        let bytes = by_id.to_v2().expect("no name");
        assert_eq!(VolArgs::parse(Call::SnapDestroyV2, &bytes), Some(by_id));
        assert_eq!(VolArgs { name: vec![b'x'; 256], ..VolArgs::default() }.to_v2(), None);
        assert_eq!(VolArgs::parse(Call::SubvolCreate, &[b'x'; ARGS_LEN]), None);
        assert_eq!(VolArgs::parse(Call::SubvolCreate, &bytes[..100]), None);
    }
}
