//! That no byte of an image is written: its size, its time of change, the space it takes, and its data.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;

use buttery_judge::ContentHasher;

/// Everything about a file that a write would change. Holes are not read.
#[derive(Debug, PartialEq, Eq, Clone)]
pub struct Print {
    len: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
    blocks: u64,
    content: u128,
}

/// The print of one image file.
pub fn print(file: &Path) -> Print {
    let input = File::open(file).expect("an image");
    let meta = input.metadata().expect("an image");
    let mut hasher = ContentHasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while let Ok(data) = rustix::fs::seek(&input, SeekFrom::Data(at)) {
        at = data / 4096 * 4096;
        let hole = rustix::fs::seek(&input, SeekFrom::Hole(at)).expect("an end");
        while at < hole {
            let want = buffer.len().min((hole - at) as usize);
            input.read_exact_at(&mut buffer[..want], at).expect("data");
            hasher.update(at, &buffer[..want]);
            at += want as u64;
        }
        at = hole.next_multiple_of(4096);
    }
    Print {
        len: meta.len(),
        mtime: (meta.mtime(), meta.mtime_nsec()),
        ctime: (meta.ctime(), meta.ctime_nsec()),
        blocks: meta.blocks(),
        content: hasher.finish(meta.len()),
    }
}

/// Runs `what`, after which the images must be as before.
pub fn untouched<R>(files: &[PathBuf], what: impl FnOnce() -> R) -> R {
    let before: Vec<Print> = files.iter().map(|f| print(f)).collect();
    let result = what();
    let after: Vec<Print> = files.iter().map(|f| print(f)).collect();
    assert_eq!(before, after, "reading wrote to {files:?}");
    result
}
