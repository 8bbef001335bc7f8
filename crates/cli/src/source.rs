//! Opening an image for the reading commands.

use anyhow::{Context, Result, bail};
use buttery::{FileId, Filesystem, Options};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What every reading command takes.
#[derive(clap::Args, Clone, Debug)]
pub struct SourceArgs {
    /// A further device of the file system
    #[arg(short = 'd', long = "device", value_name = "DEVICE")]
    pub devices: Vec<PathBuf>,
    /// Which copy of the superblock to use: 0, 1 or 2
    #[arg(long = "super", value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..3))]
    pub super_copy: u8,
    /// Options as for mount: rescue=, subvol=, subvolid=, degraded, offset=, sizelimit=
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
}

impl SourceArgs {
    /// The options, read-only.
    pub fn options(&self) -> Result<Options> {
        let mut options = Options { super_copy: self.super_copy as usize, ..Options::default() };
        for list in &self.options {
            options.parse(list)?;
        }
        options.read_only = true;
        Ok(options)
    }

    /// Opens an image for reading.
    pub fn open(&self, image: &Path) -> Result<Filesystem> {
        let paths: Vec<&Path> =
            std::iter::once(image).chain(self.devices.iter().map(PathBuf::as_path)).collect();
        let options = self.options()?;
        let fs = Filesystem::open(&paths, &options).map_err(|error| {
            let (name, text) = (image.display().to_string(), error.to_string());
            let said = text.starts_with(&name); // many errors begin with the device
            if said { anyhow::Error::new(error) } else { anyhow::Error::new(error).context(name) }
        })?;
        if fs.engine().has_log() && !options.rescue.no_log_replay {
            eprintln!(
                "buttery: {}: an fsync log waits to be replayed; this is the last commit before it",
                image.display()
            );
        }
        Ok(fs)
    }

    /// Opens an image for writing. SOURCE_DATE_EPOCH, if set, is the time of everything that is written.
    pub fn open_writable(&self, image: &Path) -> Result<Filesystem> {
        let paths: Vec<&Path> =
            std::iter::once(image).chain(self.devices.iter().map(PathBuf::as_path)).collect();
        let options = Options { read_only: false, clock: crate::mkfs::epoch()?, ..self.options()? };
        Filesystem::open_writable(&paths, &options).with_context(|| image.display().to_string())
    }
}

/// Splits IMAGE[:PATH]; the path begins with a slash and is `/` if it is not there. A file of that whole name is an
/// image, whatever colons it has.
pub fn split(spec: &OsStr) -> (PathBuf, Vec<u8>) {
    let bytes = spec.as_bytes();
    if !Path::new(spec).exists() {
        for at in (1..bytes.len()).filter(|&i| bytes[i] == b':') {
            let image = Path::new(OsStr::from_bytes(&bytes[..at]));
            if matches!(bytes.get(at + 1), None | Some(b'/')) && image.exists() {
                let path = if at + 1 < bytes.len() { bytes[at + 1..].to_vec() } else { b"/".to_vec() };
                return (image.to_owned(), path);
            }
        }
    }
    (PathBuf::from(spec), b"/".to_vec())
}

/// Whether an argument names something in an image.
pub fn is_in_image(spec: &OsStr) -> bool {
    !Path::new(spec).exists() && split(spec).0.as_os_str() != spec
}

/// The specs of a command, grouped so that an image is opened once; all must lie in the same image.
pub fn open_all(args: &SourceArgs, specs: &[OsString]) -> Result<(Filesystem, Vec<Vec<u8>>)> {
    let parts: Vec<_> = specs.iter().map(|s| split(s)).collect();
    let Some((image, _)) = parts.first() else { bail!("no image given") };
    if let Some((other, _)) = parts.iter().find(|(i, _)| i != image) {
        bail!("one image at a time: {} and {}", image.display(), other.display());
    }
    let fs = args.open(image)?;
    Ok((fs, parts.into_iter().map(|(_, path)| path).collect()))
}

/// The file at a path; the error names the path.
pub fn resolve(fs: &Filesystem, path: &[u8], follow: bool) -> Result<FileId> {
    let found = if follow { fs.resolve(fs.root(), path) } else { fs.resolve_no_follow(fs.root(), path) };
    found.with_context(|| String::from_utf8_lossy(path).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_and_path() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("a:b.img");
        std::fs::write(&image, "").unwrap();
        let spec = |tail: &str| split(OsStr::new(&format!("{}{tail}", image.display())));
        assert_eq!(spec(""), (image.clone(), b"/".to_vec()));
        assert_eq!(spec(":/etc/x:y"), (image.clone(), b"/etc/x:y".to_vec()));
        assert_eq!(spec(":"), (image.clone(), b"/".to_vec()));
    }
}
