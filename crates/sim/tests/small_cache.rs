//! A cache that holds a part of the trees only: blocks that were written since the file system was opened are read again
//! from the device, and trusted as those from before.

use buttery::{FileId, Filesystem, NewNode, Options, XattrMode};
use buttery_judge::check::btrfs_check_data;
use buttery_judge::{Need, TempDir, need};
use buttery_sim::image;

const COMMITS: u64 = 12;
const FILES: u64 = 400;

fn name(commit: u64, n: u64) -> Vec<u8> {
    format!("file-{commit}-{n}").into_bytes()
}

/// An attribute that says which file it is of, and makes the trees large.
fn value(commit: u64, n: u64) -> Vec<u8> {
    format!("{commit} {n} ").into_bytes().repeat(60)
}

fn look(fs: &Filesystem, commit: u64, when: &str) {
    for n in 0..FILES {
        let what = || format!("{when}: file {n} of commit {commit}");
        let id: FileId = fs.lookup(fs.root(), &name(commit, n)).unwrap_or_else(|e| panic!("{}: {e}", what()));
        let found = fs.xattr(id, b"user.x").unwrap_or_else(|e| panic!("{}: {e}", what()));
        assert!(found == value(commit, n), "{}", what());
    }
}

#[test]
fn what_was_written_since_the_opening_is_read_again() {
    for seed in 0..3 {
        let device = image::in_memory(512 << 20, &image::spread(seed));
        let options = Options { cache_bytes: 0, ..image::quiet() };
        let fs = Filesystem::open_devices_writable(vec![device.clone()], &options).expect("open");
        for commit in 0..COMMITS {
            for n in 0..FILES {
                let id = fs.create(fs.root(), &name(commit, n), NewNode::file(0o644)).expect("a file");
                fs.set_xattr(id, b"user.x", &value(commit, n), XattrMode::Any).expect("an attribute");
            }
            fs.sync().expect("a commit");
            for before in 0..=commit {
                look(&fs, before, &format!("seed {seed}, after commit {commit}"));
            }
        }
        // what was read again is changed again
        for commit in 0..COMMITS {
            for n in (0..FILES).step_by(2) {
                fs.unlink(fs.root(), &name(commit, n)).unwrap_or_else(|e| panic!("unlink: {e}"));
            }
        }
        fs.close().expect("close");
        if need(&[Need::Program("btrfs")]).is_some() {
            let dir = TempDir::new("small-cache").expect("a folder");
            image::dump(&*device, &dir.join("image"));
            btrfs_check_data(&dir.join("image")).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
    }
}
