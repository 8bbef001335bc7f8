//! Btrfs in user space: a library that reads and writes the Linux kernel's on-disk format, on image files and block
//! devices, without the kernel's driver and without root.
//!
//! [`Filesystem`] is an open file system. A file is named by a [`FileId`], subvolume and inode together, which
//! [`Filesystem::lookup`] and [`Filesystem::resolve`] give; everything else takes one.
//!
//! ```no_run
//! # fn main() -> buttery::Result<()> {
//! let fs = buttery::Filesystem::open(&["disk.img".as_ref()], &buttery::Options::default())?;
//! let file = fs.resolve(fs.root(), b"/etc/hostname")?;
//! let mut text = vec![0; fs.stat(file)?.size as usize];
//! fs.read(file, 0, &mut text)?;
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod acl;
mod allocate;
mod compression;
mod delalloc;
mod dropping;
mod flags;
mod guard;
mod locks;
mod names;
mod options;
mod path;
mod ranges;
mod read;
mod rename;
mod stat;
mod statfs;
mod subvolumes;
pub mod uuid;
mod write;
mod write_open;

pub use allocate::Fallocate;
pub use buttery_disk::{TreeId, dir::file_type};
pub use buttery_engine::count;
pub use buttery_engine::dir::DirEntry;
pub use buttery_engine::space::Media;
pub use buttery_engine::subvol::{Link, Subvolume};
pub use buttery_engine::{CsumSubmit, Mechanisms, NocowCheck, ReadLookup, Replace};
pub use buttery_engine::{DeviceStats, Engine, Error, Rescue, Result};
pub use dropping::Left;
pub use flags::attr;
pub use names::NewNode;
pub use options::{Options, OptionsError, parse_size};
pub use rename::RenameMode;
pub use stat::{Kind, Stat, Time};
pub use statfs::StatFs;
pub use write::{CAPABILITY, SetAttr, XattrMode};

use buttery_device::{Access, Device, FileDevice, Window};
use buttery_disk::{Key, item, objectid};
use buttery_engine::{OpenOptions, subvol};
use std::path::Path;
use std::sync::Arc;

/// A file, directory or anything else that has an inode: its subvolume and its number there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct FileId {
    /// The subvolume.
    pub tree: TreeId,
    /// The inode's number in it.
    pub ino: u64,
}

impl FileId {
    /// The top directory of a subvolume.
    pub fn top_of(tree: TreeId) -> FileId {
        FileId { tree, ino: objectid::FIRST_FREE }
    }

    /// The empty directory that stands for a nested subvolume in a snapshot of its parent, inside of `dir`.
    pub fn empty_dir_in(dir: FileId) -> FileId {
        FileId { tree: dir.tree, ino: EMPTY_DIR | dir.ino }
    }

    /// Whether this is the empty directory that stands for nested subvolumes in a snapshot of their parent. All of
    /// them in one directory are the same file.
    pub fn is_empty_dir(self) -> bool {
        self.ino & EMPTY_DIR != 0
    }

    /// The directory around, if this is an empty directory that stands for subvolumes.
    pub fn around_empty_dir(self) -> Option<FileId> {
        self.is_empty_dir().then_some(FileId { tree: self.tree, ino: self.ino & !EMPTY_DIR })
    }

    /// The inode number that is shown to users: all empty directories that stand for subvolumes have the same.
    pub fn shown_ino(self) -> u64 {
        if self.is_empty_dir() { objectid::EMPTY_SUBVOL_DIR } else { self.ino }
    }
}

/// Marks directories that are in no tree; the rest of the number is that of the directory around. No inode has a
/// number as high.
const EMPTY_DIR: u64 = 1 << 63;

/// An open file system. All of its methods may be called from many threads at once.
pub struct Filesystem {
    engine: Arc<Engine>,
    root: FileId,
    /// Present on a file system that is open for writing.
    write: Option<write_open::WriteState>,
}

impl Filesystem {
    /// Opens the file system that these files or block devices make up, for reading. No byte of them is written.
    pub fn open(paths: &[&Path], options: &Options) -> Result<Filesystem> {
        let devices = open_devices(paths, Access::ReadOnly, options)?;
        Self::open_devices(devices, options)
    }

    /// Opens the file system that these devices make up, for reading.
    pub fn open_devices(devices: Vec<Arc<dyn Device>>, options: &Options) -> Result<Filesystem> {
        let engine = Engine::open(devices, engine_options(options))?;
        Self::with_engine(Arc::new(engine), options)
    }

    fn with_engine(engine: Arc<Engine>, options: &Options) -> Result<Filesystem> {
        let mut fs = Filesystem { engine, root: FileId::top_of(TreeId(objectid::FS_TREE)), write: None };
        fs.root = fs.find_root(options)?;
        Ok(fs)
    }

    /// The directory that is the root, as a mount with these options would show it.
    fn find_root(&self, options: &Options) -> Result<FileId> {
        if let Some(path) = &options.subvol {
            return self.resolve(self.root, path);
        }
        let id = match options.subvolid {
            Some(id) => TreeId(id),
            None => subvol::default_subvolume(&self.engine)?,
        };
        let tree = self.engine.tree(id)?;
        // one that was deleted, and is yet to be cleaned up, is gone for all but the cleaner
        let alive = tree.item().refs.get() > 0;
        if !alive {
            return Err(Error::NotFound);
        }
        let top = FileId::top_of(id);
        match self.stat(top) {
            Err(Error::NotFound) => {
                let key = Key::new(top.ino, item::INODE_ITEM, 0);
                Err(Error::corrupt(id, key, "the subvolume's top directory is not there"))
            }
            _ => Ok(top), // another error is that of whoever reads it
        }
    }

    /// The root directory.
    pub fn root(&self) -> FileId {
        self.root
    }

    /// The engine below.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Every subvolume, by id; not those that were deleted and are yet to be cleaned up.
    pub fn subvolumes(&self) -> Result<Vec<Subvolume>> {
        let mut list = subvol::list(&self.engine)?;
        list.retain(|subvolume| subvolume.item.refs.get() > 0);
        Ok(list)
    }
}

pub(crate) fn engine_options(options: &Options) -> OpenOptions {
    OpenOptions {
        rescue: options.rescue,
        cache_bytes: options.cache_bytes,
        discard: options.discard,
        media: options.media,
        mechanisms: options.mechanisms,
        max_inline: options.max_inline,
        volume: buttery_volume::OpenOptions {
            super_copy: options.super_copy,
            degraded: options.degraded,
            writable: false,
            use_backup_root: options.rescue.use_backup_root,
        },
    }
}

pub(crate) fn open_devices(
    paths: &[&Path],
    access: Access,
    options: &Options,
) -> Result<Vec<Arc<dyn Device>>> {
    let window = Window { offset: options.offset, size_limit: options.size_limit };
    paths
        .iter()
        .map(|path| {
            let device = FileDevice::open(path, access, window).map_err(|source| {
                Error::from(buttery_volume::Error::Device {
                    device: path.display().to_string(),
                    op: "open",
                    offset: 0,
                    len: 0,
                    source,
                })
            })?;
            Ok(Arc::new(device) as Arc<dyn Device>)
        })
        .collect()
}
