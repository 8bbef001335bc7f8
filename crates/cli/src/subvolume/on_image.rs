//! Subvolumes of an unmounted image.

use super::goes_to;
use crate::inspect::list_subvolumes;
use crate::source::{self, SourceArgs};
use anyhow::{Context, Result, bail};
use buttery::{Error, FileId, Filesystem, NewNode, TreeId};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// The directory above, and the name.
fn split_name(path: &[u8]) -> (&[u8], &[u8]) {
    let trimmed = path.strip_suffix(b"/").unwrap_or(path);
    let at = trimmed.iter().rposition(|&b| b == b'/').map_or(0, |i| i + 1);
    (&trimmed[..at], &trimmed[at..])
}

/// The subvolume whose top is at a path.
pub fn subvolume_at(fs: &Filesystem, path: &[u8]) -> Result<TreeId> {
    let found = source::resolve(fs, path, true)?;
    if found != FileId::top_of(found.tree) {
        bail!("{}: not a subvolume", shown(path));
    }
    Ok(found.tree)
}

fn close(fs: Filesystem, image: &Path) -> Result<()> {
    fs.close().with_context(|| image.display().to_string())
}

pub fn create(source: &SourceArgs, target: &OsString, parents: bool) -> Result<()> {
    let (image, path) = source::split(target);
    let (above, name) = split_name(&path);
    let fs = source.open_writable(&image)?;
    let dir = if parents { make_dirs(&fs, above)? } else { source::resolve(&fs, above, true)? };
    fs.create_subvolume(dir, name, 0, 0).with_context(|| shown(&path))?;
    close(fs, &image)
}

fn make_dirs(fs: &Filesystem, path: &[u8]) -> Result<FileId> {
    let mut at = fs.root();
    for name in path.split(|&b| b == b'/').filter(|name| !name.is_empty()) {
        at = match fs.resolve(at, name) {
            Err(Error::NotFound) => fs.create(at, name, NewNode::directory(0o755)),
            found => found,
        }
        .with_context(|| shown(path))?;
    }
    Ok(at)
}

pub fn snapshot(source: &SourceArgs, of: &OsString, target: &OsString, read_only: bool) -> Result<()> {
    let ((image, from), (other, to)) = (source::split(of), source::split(target));
    if image != other {
        bail!("both must lie in one image: {} and {}", image.display(), other.display());
    }
    let fs = source.open_writable(&image)?;
    let tree = subvolume_at(&fs, &from)?;
    let is_dir = fs.resolve(fs.root(), &to).is_ok();
    let (to, from) = (Path::new(OsStr::from_bytes(&to)), Path::new(OsStr::from_bytes(&from)));
    let path = goes_to(to, is_dir, from);
    let (above, name) = split_name(path.as_os_str().as_bytes());
    let dir = source::resolve(&fs, above, true)?;
    fs.snapshot(tree, dir, name, read_only).with_context(|| path.display().to_string())?;
    close(fs, &image)
}

/// Deletes one, and drops its tree: nobody would come afterwards to do it.
pub fn delete(source: &SourceArgs, target: &OsString, id: Option<u64>) -> Result<()> {
    let (image, path) = source::split(target);
    let fs = source.open_writable(&image)?;
    match id {
        Some(id) => {
            let named = || format!("subvolume {id}");
            let link = fs.subvolume_info(TreeId(id)).with_context(named)?.parent;
            let link = link.with_context(|| format!("subvolume {id} has no name"))?;
            fs.delete_subvolume(FileId { tree: link.tree, ino: link.dir }, &link.name).with_context(named)?;
        }
        None => {
            let (above, name) = split_name(&path);
            let dir = source::resolve(&fs, above, true)?;
            fs.delete_subvolume(dir, name).map_err(explain).with_context(|| shown(&path))?;
        }
    }
    fs.sync().with_context(|| image.display().to_string())?;
    fs.drop_all_deleted().with_context(|| image.display().to_string())?;
    close(fs, &image)
}

fn explain(error: Error) -> anyhow::Error {
    match error {
        Error::Invalid => anyhow::anyhow!("not a subvolume"),
        Error::NotPermitted => anyhow::anyhow!("it is mounted by default, or not to be changed"),
        Error::NotEmpty => anyhow::anyhow!("there are other subvolumes in it"),
        other => other.into(),
    }
}

pub fn set_default(source: &SourceArgs, place: &OsString, id: Option<u64>) -> Result<()> {
    let (image, path) = source::split(place);
    let fs = source.open_writable(&image)?;
    let id = match id {
        Some(id) => TreeId(id),
        None => subvolume_at(&fs, &path)?,
    };
    fs.set_default_subvolume(id).with_context(|| format!("subvolume {}", id.0))?;
    close(fs, &image)
}

/// The default one, as `btrfs subvolume get-default` shows it.
pub fn default_line(source: &SourceArgs, image: &Path) -> Result<String> {
    let fs = source.open(image)?;
    let id = fs.default_subvolume()?;
    let of = fs.subvolume_info(id)?;
    let Some(link) = &of.parent else { return Ok(format!("ID {} (FS_TREE)", id.0)) };
    let path = list_subvolumes::path(&fs, &fs.subvolumes()?, &of)?;
    let (generation, above) = (of.item.generation.get(), link.tree.0);
    Ok(format!("ID {} gen {generation} top level {above} path {}", id.0, shown(&path)))
}
