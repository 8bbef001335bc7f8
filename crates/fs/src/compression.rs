//! How a file's data are compressed: mount options, the property `btrfs.compression`, the flags of `chattr`.

use crate::{Error, FileId, Filesystem, Kind, Result, Stat};
use buttery_codec::{Compression, Method};
use buttery_disk::inode::flags;
use buttery_engine::dir::xattr;
use buttery_engine::file::write::{Compress, How};
use buttery_engine::tree::Tree;

/// The attribute that is the property.
pub(crate) const PROPERTY: &[u8] = b"btrfs.compression";
/// What `chattr +c` means where no mount option says anything else.
const DEFAULT: Method = Method { algorithm: Compression::Zlib, level: 3 };

/// What a value of the property means for an inode's flags.
pub(crate) struct Property {
    /// The flags out of COMPRESS and NOCOMPRESS.
    pub flags: u64,
    /// No attribute is kept.
    pub removes: bool,
}

impl Property {
    /// What a value says; `Invalid` for one that the property cannot have.
    pub fn parse(value: &[u8]) -> Result<Property> {
        let flags = match value {
            b"" => return Ok(Property { flags: 0, removes: true }),
            b"no" | b"none" => flags::NOCOMPRESS,
            _ if method(value).is_some() => flags::COMPRESS,
            _ => return Err(Error::Invalid),
        };
        Ok(Property { flags, removes: false })
    }
}

fn method(value: &[u8]) -> Option<Method> {
    std::str::from_utf8(value).ok().and_then(Method::parse)
}

/// The name by which the property knows an algorithm.
fn name(algorithm: Compression) -> &'static [u8] {
    match algorithm {
        Compression::Zlib => b"zlib",
        Compression::Lzo => b"lzo",
        Compression::Zstd => b"zstd",
    }
}

impl Filesystem {
    /// How a file is written now.
    pub(crate) fn how(&self, tree: &Tree, stat: &Stat) -> Result<How> {
        Ok(How { compress: self.compress_of(tree, stat)?, ..How::from(self.now()) })
    }

    fn compress_of(&self, tree: &Tree, stat: &Stat) -> Result<Option<Compress>> {
        let mounted = self.write_state()?.compress;
        let plain = |method| Compress { method, force: false };
        Ok(match stat.flags {
            // what has no checksum is never compressed
            bits if bits & (flags::NODATACOW | flags::NODATASUM) != 0 => None,
            _ if mounted.is_some_and(|m| m.force) => mounted,
            bits if bits & flags::NOCOMPRESS != 0 => None,
            bits if bits & flags::COMPRESS != 0 => {
                match xattr::get(&self.engine, tree, stat.id.ino, PROPERTY) {
                    Ok(value) => method(&value).or(Some(DEFAULT)).map(plain),
                    Err(Error::NoAttribute) => mounted.or(Some(plain(DEFAULT))),
                    Err(error) => return Err(error),
                }
            }
            _ => mounted,
        })
    }

    /// The value of the property that `chattr +c` gives.
    pub(crate) fn default_property(&self) -> Result<&'static [u8]> {
        Ok(name(self.write_state()?.compress.map_or(DEFAULT.algorithm, |c| c.method.algorithm)))
    }

    /// Whether the property may be set on a file.
    pub(crate) fn check_property(&self, stat: &Stat) -> Result<()> {
        match stat.kind() {
            Kind::File if stat.flags & (flags::NODATACOW | flags::NODATASUM) != 0 => Err(Error::Invalid),
            Kind::File | Kind::Directory => Ok(()),
            _ => Err(Error::Invalid),
        }
    }

    /// The property that a new file takes over from its directory: the algorithm, without a level, as the kernel does.
    pub(crate) fn inherited_property(&self, tree: &Tree, dir: FileId) -> Result<Option<Vec<u8>>> {
        match xattr::get(&self.engine, tree, dir.ino, PROPERTY) {
            Ok(value) => Ok(method(&value).map(|m| name(m.algorithm).to_vec())),
            Err(Error::NoAttribute) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
