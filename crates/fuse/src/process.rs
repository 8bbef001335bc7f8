//! What a descriptor of the calling process is. The kernel passes an ioctl's structure on as it is, with the number of the
//! caller's descriptor in it.

use buttery::{Error, Result};
use std::fs;
use std::path::Path;

/// The inode number behind a descriptor of a process, if it was opened on the mount whose device `place` is. The caller of another user is
/// not looked into: `NotPermitted`.
pub(crate) fn node_of(pid: u32, fd: i64, place: Option<&str>) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Error::Invalid,
        _ => Error::NotPermitted,
    })?;
    let field =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let (Some(mount), Some(ino)) = (field("mnt_id:"), field("ino:")) else {
        return Err(Error::Unsupported("a kernel that does not tell descriptors' inodes".into()));
    };
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).map_err(|_| Error::NotPermitted)?;
    if place.is_some() && device_of(&mounts, |line| line.id == mount) == place {
        Ok(ino)
    } else {
        Err(Error::CrossDevice)
    }
}

/// What a line of `mountinfo` says.
struct Line<'a> {
    id: u64,
    /// Major and minor number.
    device: &'a str,
    /// With some bytes as octal numbers.
    dir: &'a str,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Line<'a>> {
        let mut words = line.split(' ');
        let id = words.next()?.parse().ok()?;
        let device = words.nth(1)?;
        Some(Line { id, device, dir: words.nth(1)? })
    }
}

/// The device of the last mount of which this is true.
fn device_of<'a>(mounts: &'a str, which: impl Fn(&Line<'a>) -> bool) -> Option<&'a str> {
    mounts.lines().filter_map(Line::parse).filter(|line| which(line)).last().map(|line| line.device)
}

/// The device of what this process has just mounted on a directory, as `mountinfo` has it.
pub(crate) fn device_at(dir: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let escaped: String = dir.to_str()?.chars().map(escape).collect();
    device_of(&mounts, |line| line.dir == escaped).map(str::to_string)
}

fn escape(c: char) -> String {
    match c {
        ' ' | '\t' | '\n' | '\\' => format!("\\{:03o}", c as u32),
        _ => c.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_place_and_by_number() {
        let mounts = "25 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
            90 25 0:44 / /mnt/a\\040b rw shared:2 - fuse.buttery x rw\n\
            91 25 0:45 / /mnt/a\\040b rw shared:2 - fuse.buttery y rw\n";
        assert_eq!(device_of(mounts, |line| line.id == 90), Some("0:44"));
        let escaped: String = "/mnt/a b".chars().map(escape).collect();
        assert_eq!(device_of(mounts, |line| line.dir == escaped), Some("0:45"));
        assert_eq!(device_of(mounts, |line| line.id == 7), None);
    }

    #[test]
    fn what_is_no_file_of_the_mount_is_refused() {
        let own = std::process::id();
        assert!(matches!(node_of(own, 1 << 20, Some("0:44")), Err(Error::Invalid)));
        assert!(node_of(own, 0, Some("no device")).is_err());
        assert!(node_of(own, 0, None).is_err());
    }
}
