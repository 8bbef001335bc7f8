//! `buttery subvolume` and `buttery property`: the same words do the same in an unmounted image, on a mount of ours, and on
//! one of the kernel's.

mod support;

use buttery_judge::check::btrfs_check_data;
use buttery_judge::guard::run;
use buttery_judge::{KernelMount, Need, TempDir, need};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::mount::{Mount, can_mount};
use support::program::buttery;

/// Where the commands work.
enum Place {
    Image(PathBuf),
    Mount(Mount),
    Kernel(KernelMount),
}

impl Place {
    fn at(&self, path: &str) -> String {
        match self {
            Place::Image(image) => format!("{}:/{path}", image.display()),
            Place::Mount(mount) => mount.join(path).display().to_string(),
            Place::Kernel(mount) => mount.path().join(path).display().to_string(),
        }
    }

    /// An image's paths begin at the top level too, whichever subvolume is the default one.
    fn words<'w>(&self, words: &'w str) -> Vec<&'w str> {
        let mut words: Vec<&str> = words.split(' ').collect();
        if let Place::Image(_) = self {
            words.extend(["-o", "subvolid=5"]);
        }
        words
    }

    fn ok(&self, words: &str, paths: &[&str]) -> String {
        let paths: Vec<String> = paths.iter().map(|path| self.at(path)).collect();
        let all: Vec<&str> = self.words(words).into_iter().chain(paths.iter().map(String::as_str)).collect();
        let run = buttery(&all).ok();
        assert_eq!(run.stderr, "", "{all:?}");
        String::from_utf8(run.stdout).expect("text")
    }

    fn refused(&self, words: &str, paths: &[&str]) -> String {
        let paths: Vec<String> = paths.iter().map(|path| self.at(path)).collect();
        let all: Vec<&str> = self.words(words).into_iter().chain(paths.iter().map(String::as_str)).collect();
        let run = buttery(&all);
        assert!(!run.status.success(), "{all:?} was done");
        assert!(
            !run.stderr.is_empty() && run.stderr.contains(&paths[0]) || run.stderr.contains('/'),
            "{}",
            run.stderr
        );
        run.stderr
    }

    /// Sets a property, whose value comes last.
    fn set(&self, path: &str, name: &str, value: &str) {
        let at = self.at(path);
        let all: Vec<&str> = self.words("property set").into_iter().chain([&at, name, value]).collect();
        buttery(&all).ok();
    }

    fn put(&self, dir: &TempDir, path: &str, text: &str) {
        match self {
            Place::Image(_) => {
                let file = dir.join("text");
                std::fs::write(&file, text).expect("a file");
                buttery(&["cp", file.to_str().expect("a path"), &self.at(path)]).ok();
            }
            _ => std::fs::write(self.at(path), text).expect("a file"),
        }
    }

    fn text(&self, path: &str) -> Option<String> {
        match self {
            Place::Image(_) => {
                let run = buttery(&["cat", "-o", "subvolid=5", &self.at(path)]);
                run.status.success().then(|| String::from_utf8(run.stdout).expect("text"))
            }
            _ => std::fs::read_to_string(self.at(path)).ok(),
        }
    }

    /// Ids, the ids of the subvolumes around, and paths.
    fn list(&self, options: &str) -> Vec<String> {
        let place = match self {
            Place::Image(image) => image.display().to_string(),
            other => other.at(""),
        };
        let run = buttery(&["subvolume", "list", options, &place]).ok();
        let text = String::from_utf8(run.stdout).expect("text");
        let words = |line: &str| -> String {
            let words: Vec<&str> = line.split(' ').collect();
            let level = words.iter().position(|w| *w == "level").expect("a top level");
            [words[1], words[level + 1], words[words.len() - 1]].join(" ")
        };
        text.lines().map(words).collect()
    }

    fn field(&self, path: &str, name: &str) -> String {
        let text = self.ok("subvolume show", &[path]);
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {text}")).trim().to_string()
    }

    fn finish(self) {
        match self {
            Place::Image(_) => {}
            Place::Mount(mount) => mount.umount(),
            // which tells of what it refused
            Place::Kernel(mount) => mount.unmount().expect("unmount"),
        }
    }
}

fn work(place: &Place, dir: &TempDir) {
    place.ok("subvolume create", &["a", "b"]);
    place.ok("subvolume create -p", &["x/y/c"]);
    place.put(dir, "a/file", "first");
    // what is looked for before it is there
    assert_eq!(place.text("a1/file"), None);
    place.ok("subvolume snapshot", &["a", "a1"]);
    assert_eq!(place.text("a1/file").as_deref(), Some("first"));
    place.put(dir, "a/file", "second");
    place.ok("subvolume snapshot -r", &["a", "b"]);
    assert_eq!(place.text("a1/file").as_deref(), Some("first"));
    assert_eq!(place.text("b/a/file").as_deref(), Some("second"));
    place.ok("subvolume create", &["a/inner"]);
    assert_eq!(
        place.list("-p"),
        ["256 5 a", "257 5 b", "258 5 x/y/c", "259 5 a1", "260 257 b/a", "261 256 a/inner"]
    );
    assert_eq!(place.list("-r"), ["260 257 b/a"]);
    assert_eq!(place.list("-o"), ["256 5 a", "257 5 b", "258 5 x/y/c", "259 5 a1"]);
    assert_eq!(place.field("b/a", "Parent UUID:"), place.field("a", "UUID:"));
    assert_eq!(place.field("b/a", "Flags:"), "readonly");
    assert_eq!(place.field("a1", "Name:"), "a1");
    assert_eq!(place.field("a1", "Subvolume ID:"), "259");
    assert_eq!(place.field("x/y/c", "Parent UUID:"), "-");

    assert_eq!(place.ok("property get", &["b/a"]).lines().next(), Some("ro=true"));
    place.set("b/a", "ro", "false");
    place.put(dir, "b/a/file", "third");
    place.set("b/a", "ro", "true");
    assert_eq!(place.text("a/file").as_deref(), Some("second"));
    place.set("", "label", "a label");
    assert!(place.ok("property get", &[""]).contains("label=a label"));
    place.set("a/file", "compression", "zstd");
    assert!(place.ok("property get", &["a/file"]).contains("compression=zstd"));

    place.ok("subvolume set-default", &["x/y/c"]);
    assert!(!place.refused("subvolume delete", &["x/y/c"]).is_empty());
    place.refused("subvolume delete", &["a"]);
    place.refused("subvolume delete", &["x/y"]);
    place.refused("subvolume create", &["a"]);
    place.refused("subvolume snapshot", &["x/y", "d"]);
    place.refused("subvolume show", &["x/y"]);
    place.ok("subvolume delete -c", &["a/inner", "a", "a1"]);
    assert_eq!(place.text("a1/file"), None);
    assert_eq!(place.text("b/a/file").as_deref(), Some("third"));
    let at = if matches!(place, Place::Image(_)) { "" } else { "b" };
    let one = place.at(at);
    buttery(&["subvolume", "set-default", "5", one.trim_end_matches(":/")]).ok();
    buttery(&["subvolume", "delete", "-i", "258", one.trim_end_matches(":/")]).ok();
    assert_eq!(place.list("-u").len(), 2);
}

fn new_image(dir: &TempDir) -> PathBuf {
    let image = dir.join("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(300 << 20)).expect("an image");
    buttery(&["mkfs", &image.display().to_string()]).ok();
    image
}

/// The image is whole, and the kernel lists what is left.
fn judge(image: &Path) {
    btrfs_check_data(image).unwrap_or_else(|e| panic!("{e}"));
    let mount = KernelMount::one(image, "").expect("the kernel mounts it");
    let list = run(Command::new("btrfs").args(["subvolume", "list"]).arg(mount.path())).expect("a list");
    let paths: Vec<&str> = list.lines().filter_map(|line| line.split(" path ").nth(1)).collect();
    assert_eq!(paths, ["b", "b/a"]);
    let label = run(Command::new("btrfs").args(["filesystem", "label"]).arg(mount.path())).expect("a label");
    assert_eq!(label.trim(), "a label");
    mount.unmount_without_complaints().expect("a silent kernel");
}

#[test]
fn in_an_image() {
    let Some(()) = need(&[Need::KernelBtrfs, Need::Program("btrfs")]) else { return };
    let dir = TempDir::new("subvolume-image").expect("a folder");
    let image = new_image(&dir);
    work(&Place::Image(image.clone()), &dir);
    judge(&image);
    let spec = image.display().to_string();
    let default = buttery(&["subvolume", "get-default", &spec]).ok();
    assert_eq!(default.stdout, b"ID 5 (FS_TREE)\n");
    // what is new in a subvolume, beside the kernel's word for it
    let ours = buttery(&["subvolume", "find-new", &format!("{spec}:/b/a"), "1"]).ok();
    let mount = KernelMount::one(&image, "").expect("the kernel mounts it");
    let theirs =
        Command::new("btrfs").args(["subvolume", "find-new"]).arg(mount.path().join("b/a")).arg("1").output();
    let theirs = theirs.expect("find-new");
    mount.unmount().expect("unmount");
    assert_eq!(String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&theirs.stdout));
}

#[test]
fn on_a_mount() {
    let Some(()) = can_mount() else { return };
    let Some(()) = need(&[Need::KernelBtrfs, Need::Program("btrfs")]) else { return };
    for options in ["", "writeback_cache"] {
        let dir = TempDir::new("subvolume-mount").expect("a folder");
        let image = new_image(&dir);
        let place = Place::Mount(Mount::new(&image, options));
        work(&place, &dir);
        // a deleted one whose file is open stays until that is closed
        place.ok("subvolume create", &["open"]);
        let file = std::fs::File::create_new(place.at("open/file")).expect("a file");
        std::os::unix::fs::FileExt::write_all_at(&file, b"here", 0).expect("a write");
        place.ok("subvolume delete", &["open"]);
        assert!(std::fs::metadata(place.at("open")).is_err());
        std::os::unix::fs::FileExt::write_all_at(&file, b" still", 4).expect("a write");
        assert_eq!(file.metadata().expect("stat").size(), 10);
        drop(file);
        // an empty one goes like a directory
        place.ok("subvolume create", &["empty"]);
        std::fs::remove_dir(place.at("empty")).expect("rmdir");
        place.finish();
        judge(&image);
    }
}

#[test]
fn on_a_mount_of_the_kernels() {
    let Some(()) = need(&[Need::KernelBtrfs, Need::Program("btrfs")]) else { return };
    let dir = TempDir::new("subvolume-kernel").expect("a folder");
    let image = new_image(&dir);
    let place = Place::Kernel(KernelMount::one(&image, "").expect("the kernel mounts it"));
    work(&place, &dir);
    place.finish();
    judge(&image);
}
