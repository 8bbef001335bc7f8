//! Subvolumes on a mount, whoever serves it: by the ioctls that the kernel's driver has.

use super::goes_to;
use anyhow::{Context, Result, bail};
use buttery::TreeId;
use buttery_device::call::{Call, VolArgs, flags};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn open(dir: &Path) -> Result<File> {
    File::open(dir).with_context(|| dir.display().to_string())
}

fn explain(error: io::Error) -> anyhow::Error {
    match error.raw_os_error() {
        Some(25) => anyhow::anyhow!("not on a mount of Btrfs"), // ENOTTY
        _ => error.into(),
    }
}

/// The directory above, and the name.
fn parts(path: &Path) -> Result<(File, Vec<u8>)> {
    let name = path.file_name().with_context(|| format!("{}: it has no name", path.display()))?;
    let above = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok((open(above)?, name.as_bytes().to_vec()))
}

fn ask(call: Call, file: &File, args: &VolArgs, path: &Path) -> Result<()> {
    let shown = || path.display().to_string();
    let mut data = args.to_v2().context("its name is too long").with_context(shown)?;
    call.ask(file, &mut data).map_err(explain).with_context(shown)
}

pub fn create(path: &Path, parents: bool) -> Result<()> {
    if parents && let Some(above) = path.parent() {
        std::fs::create_dir_all(above).with_context(|| above.display().to_string())?;
    }
    let (dir, name) = parts(path)?;
    ask(Call::SubvolCreateV2, &dir, &VolArgs { name, ..VolArgs::default() }, path)
}

pub fn snapshot(of: &Path, target: &Path, read_only: bool) -> Result<()> {
    let path = goes_to(target, target.is_dir(), of);
    let source = open(of)?;
    let (dir, name) = parts(&path)?;
    // what the kernel holds back of files is to be in it
    rustix::fs::syncfs(&source).with_context(|| of.display().to_string())?;
    let flags = if read_only { flags::RDONLY } else { 0 };
    let args = VolArgs { fd: source.as_raw_fd().into(), flags, name, id: 0 };
    ask(Call::SnapCreateV2, &dir, &args, &path)
}

pub fn delete(path: &Path, id: Option<u64>, and_commit: bool) -> Result<()> {
    let (dir, args) = match id {
        Some(id) => (open(path)?, VolArgs { flags: flags::SPEC_BY_ID, id, ..VolArgs::default() }),
        None => {
            let (dir, name) = parts(path)?;
            (dir, VolArgs { name, ..VolArgs::default() })
        }
    };
    ask(Call::SnapDestroyV2, &dir, &args, path)?;
    if and_commit { commit_of(&dir, path) } else { Ok(()) }
}

/// Returns when what was deleted is gone for good.
pub fn commit(path: &Path) -> Result<()> {
    let dir = if path.is_dir() { open(path)? } else { parts(path)?.0 };
    commit_of(&dir, path)
}

fn commit_of(dir: &File, path: &Path) -> Result<()> {
    let synced = rustix::fs::syncfs(dir).map_err(io::Error::from).and_then(|()| dir.sync_all());
    synced.with_context(|| path.display().to_string())
}

pub fn set_default(path: &Path, id: Option<u64>) -> Result<()> {
    let (dir, shown) = (open(path)?, || path.display().to_string());
    let id = match id {
        Some(id) => id,
        None => info(&dir).with_context(shown)?.id.0,
    };
    let mut data = id.to_ne_bytes();
    Call::DefaultSubvol.ask(&dir, &mut data).map_err(explain).with_context(shown)
}

/// Whether it is read-only.
pub fn is_read_only(path: &Path) -> Result<bool> {
    let (dir, mut data) = (open(path)?, [0; 8]);
    let asked = Call::SubvolGetflags.ask(&dir, &mut data).map_err(explain);
    asked.with_context(|| path.display().to_string())?;
    Ok(u64::from_ne_bytes(data) & flags::RDONLY != 0)
}

pub fn set_read_only(path: &Path, yes: bool) -> Result<()> {
    let dir = open(path)?;
    rustix::fs::syncfs(&dir).with_context(|| path.display().to_string())?;
    let mut data = (if yes { flags::RDONLY } else { 0 }).to_ne_bytes();
    Call::SubvolSetflags.ask(&dir, &mut data).map_err(explain).with_context(|| path.display().to_string())
}

pub fn label(path: &Path) -> Result<Vec<u8>> {
    let (dir, mut data) = (open(path)?, vec![0; Call::GetLabel.bytes()]);
    Call::GetLabel.ask(&dir, &mut data).map_err(explain).with_context(|| path.display().to_string())?;
    data.truncate(data.iter().position(|&b| b == 0).unwrap_or(data.len()));
    Ok(data)
}

pub fn set_label(path: &Path, label: &[u8]) -> Result<()> {
    let mut data = label.to_vec();
    if label.len() >= Call::SetLabel.bytes() {
        bail!("a label has at most {} bytes", Call::SetLabel.bytes() - 1);
    }
    data.resize(Call::SetLabel.bytes(), 0);
    let dir = open(path)?;
    Call::SetLabel.ask(&dir, &mut data).map_err(explain).with_context(|| path.display().to_string())
}

/// What a mount tells of a subvolume.
#[derive(Clone, Debug)]
pub struct Info {
    pub id: TreeId,
    pub name: Vec<u8>,
    pub parent: u64,
    pub generation: u64,
    pub flags: u64,
    pub uuid: [u8; 16],
    pub parent_uuid: [u8; 16],
    pub received_uuid: [u8; 16],
    /// Transactions: of the last change, of its creation, of being sent, of being received.
    pub transids: [u64; 4],
    /// The same as times, in seconds since 1970.
    pub times: [i64; 4],
}

/// Asks for what is known of the subvolume in which a file lies.
pub fn info(file: &File) -> Result<Info> {
    let mut data = [0; Call::SubvolInfo.bytes()];
    Call::SubvolInfo.ask(file, &mut data).map_err(explain)?;
    let number = |at: usize| u64::from_ne_bytes(std::array::from_fn(|n| data[at + n]));
    let uuid = |at: usize| std::array::from_fn(|n| data[at + n]);
    let name = &data[8..8 + 256];
    Ok(Info {
        id: TreeId(number(0)),
        name: name[..name.iter().position(|&b| b == 0).unwrap_or(name.len())].to_vec(),
        parent: number(264),
        generation: number(280),
        flags: number(288),
        uuid: uuid(296),
        parent_uuid: uuid(312),
        received_uuid: uuid(328),
        transids: [344, 352, 360, 368].map(number),
        times: [376, 392, 408, 424].map(|at| number(at) as i64),
    })
}

/// A subvolume below another: which, and its path from there.
pub type Below = (Info, Vec<u8>);

/// All subvolumes below the one in which a directory lies, as deep as they go.
pub fn below(top: &Path) -> Result<Vec<Below>> {
    const DEPTH_MAX: usize = 4096;
    let mut out = Vec::new();
    let mut waiting = vec![(top.to_path_buf(), Vec::new())];
    while let Some((at, prefix)) = waiting.pop() {
        let dir = open(&at)?;
        for (child, inode) in children(&dir).with_context(|| at.display().to_string())? {
            let inner = name_of(&dir, child, inode).with_context(|| at.display().to_string())?;
            let path = [&prefix[..], &inner].concat();
            if path.len() > DEPTH_MAX * 16 {
                bail!("{}: its path is too long", at.display());
            }
            let full = at.join(std::ffi::OsStr::from_bytes(&inner));
            out.push((info(&open(&full)?)?, path.clone()));
            waiting.push((full, [&path[..], b"/"].concat()));
        }
    }
    Ok(out)
}

/// The subvolumes whose names lie in this one, and the directory that has each.
fn children(dir: &File) -> Result<Vec<(u64, u64)>> {
    let mut out = Vec::new();
    let mut from: u64 = 0;
    loop {
        let mut data = [0; Call::SubvolRootref.bytes()];
        data[..8].copy_from_slice(&from.to_ne_bytes());
        let more = match Call::SubvolRootref.ask(dir, &mut data) {
            Ok(()) => false,
            Err(error) if error.raw_os_error() == Some(75) => true, // EOVERFLOW: there are more
            Err(error) => return Err(explain(error)),
        };
        let number = |at: usize| u64::from_ne_bytes(std::array::from_fn(|n| data[at + n]));
        let count = usize::from(data[8 + 255 * 16]).min(255);
        out.extend((0..count).map(|n| (number(8 + 16 * n), number(16 + 16 * n))));
        match (more || count == 255, out.last()) {
            (true, Some(last)) if last.0 >= from && count > 0 => from = last.0 + 1,
            _ => return Ok(out),
        }
    }
}

/// The path of a subvolume from the top of the one around it.
fn name_of(dir: &File, child: u64, inode: u64) -> Result<Vec<u8>> {
    let mut data = [0; Call::InoLookupUser.bytes()];
    data[..8].copy_from_slice(&inode.to_ne_bytes());
    data[8..16].copy_from_slice(&child.to_ne_bytes());
    Call::InoLookupUser.ask(dir, &mut data).map_err(explain)?;
    let text = |field: &[u8]| field.split(|&b| b == 0).next().unwrap_or_default().to_vec();
    Ok([text(&data[272..]), text(&data[16..272])].concat())
}

/// A path must be that of a subvolume, and not of anything inside of one.
pub fn check_top(path: &Path) -> Result<()> {
    match Call::SubvolGetflags.ask(&open(path)?, &mut [0; 8]) {
        Err(error) if error.raw_os_error() == Some(22) => bail!("{}: not a subvolume", path.display()), // EINVAL
        asked => asked.map_err(explain).with_context(|| path.display().to_string()),
    }
}
