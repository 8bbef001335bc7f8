//! The golden images in `tests/golden`: small file systems that the kernel wrote, one for each feature of the format,
//! each with a listing of what is in it. They need no judge to be here, so they are tested everywhere.
//!
//! `NAME.0.img.zst`, `NAME.1.img.zst`, ... are the devices. `NAME.txt` lists the top-level subvolume with all below
//! it; `NAME.default.txt` is there where the default subvolume is another, and lists that. `tests/golden/make` makes
//! them anew.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use crate::guard::TempDir;
use crate::sparse;

/// A golden image, unpacked.
#[derive(Debug)]
pub struct Golden {
    pub dir: TempDir,
    /// The devices. Of a seed and its sprout, the sprout is first.
    pub files: Vec<PathBuf>,
    pub listing: String,
    pub default_listing: Option<String>,
}

/// Where the golden images are kept.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")
}

/// The names of all golden images, sorted.
pub fn names() -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder())? {
        let file = entry?.file_name().to_string_lossy().into_owned();
        names.extend(file.strip_suffix(".0.img.zst").map(String::from));
    }
    names.sort();
    Ok(names)
}

/// Unpacks an image into a temporary folder.
pub fn open(name: &str) -> io::Result<Golden> {
    let from = folder();
    let dir = TempDir::new("golden")?;
    let mut files = Vec::new();
    loop {
        let packed = from.join(format!("{name}.{}.img.zst", files.len()));
        if !packed.exists() {
            break;
        }
        let file = dir.join(format!("{}.img", files.len()));
        unpack(&packed, &file)?;
        files.push(file);
    }
    let default_listing = match std::fs::read_to_string(from.join(format!("{name}.default.txt"))) {
        Ok(text) => Some(text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(e),
    };
    Ok(Golden {
        dir,
        files,
        listing: std::fs::read_to_string(from.join(format!("{name}.txt")))?,
        default_listing,
    })
}

/// Unpacks a zstd file into a sparse one.
pub fn unpack(packed: &Path, file: &Path) -> io::Result<()> {
    let input = BufReader::new(File::open(packed)?);
    sparse::write(&mut zstd::Decoder::with_buffer(input)?, file)
}
