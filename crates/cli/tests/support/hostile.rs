//! The public images of btrfs-progs' tests, most of them broken on purpose, unpacked once and kept.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

use buttery_judge::{corpus, oracle};

/// The test suites whose images are used.
const SUITES: [&str; 3] = ["fuzz-tests", "fsck-tests", "misc-tests"];

/// One unpacked image. Some are terabytes long, nearly all of it hole.
#[derive(Clone, Debug)]
pub struct Image {
    /// Its path in btrfs-progs' tests.
    pub name: String,
    pub file: PathBuf,
}

/// Every image that could be unpacked, and the names of those that could not.
pub fn images() -> &'static (Vec<Image>, Vec<String>) {
    static IMAGES: LazyLock<(Vec<Image>, Vec<String>)> = LazyLock::new(|| {
        let packed_below = oracle::corpus(oracle::PROGS_IMAGES).expect("the images are here");
        let kept = oracle::oracle_dir().join("btrfs-progs-unpacked");
        std::fs::create_dir_all(&kept).expect("a folder beside the images");
        let (mut found, mut failed) = (Vec::new(), Vec::new());
        for packed in corpus::progs_images() {
            let name = packed.strip_prefix(&packed_below).expect("below").display().to_string();
            if !SUITES.iter().any(|suite| name.starts_with(suite)) {
                continue;
            }
            match unpacked(&kept, &name, &packed) {
                Ok(file) => found.push(Image { name, file }),
                Err(error) => failed.push(format!("{name}: {error}")),
            }
        }
        (found, failed)
    });
    &IMAGES
}

/// The unpacked image, made at its first use. What cannot be unpacked is not tried again.
fn unpacked(kept: &Path, name: &str, packed: &Path) -> Result<PathBuf, String> {
    let flat = name.replace('/', "_");
    let (file, failed) = (kept.join(format!("{flat}.raw")), kept.join(format!("{flat}.failed")));
    if file.exists() {
        return Ok(file);
    }
    if let Ok(why) = std::fs::read_to_string(&failed) {
        return Err(why);
    }
    let work = kept.join(format!("{flat}.{}", std::process::id()));
    let done = corpus::unpack(packed, &work);
    if let Err(error) = done {
        let _ = std::fs::remove_file(&work);
        std::fs::write(&failed, error.to_string()).expect("a note");
        return Err(error.to_string());
    }
    std::fs::rename(&work, &file).expect("a name");
    Ok(file)
}

/// Counts of outcomes, printed as a table at the end of a test.
#[derive(Default)]
pub struct Table {
    title: &'static str,
    counts: BTreeMap<&'static str, usize>,
}

static PRINTING: Mutex<()> = Mutex::new(());

impl Table {
    pub fn new(title: &'static str) -> Table {
        Table { title, counts: BTreeMap::new() }
    }

    pub fn count(&mut self, outcome: &'static str) {
        *self.counts.entry(outcome).or_default() += 1;
    }

    pub fn of(&self, outcome: &str) -> usize {
        self.counts.get(outcome).copied().unwrap_or(0)
    }

    /// Past the test harness, which swallows what a passing test prints.
    pub fn print(&self) {
        use std::io::Write;
        let _lock = PRINTING.lock();
        let mut out = std::io::stderr();
        let _ = writeln!(out, "{}:", self.title);
        for (outcome, count) in &self.counts {
            let _ = writeln!(out, "  {count:5}  {outcome}");
        }
    }
}
