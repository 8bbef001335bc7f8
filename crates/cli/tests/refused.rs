//! What is not understood in full is not written to: refused, by name, and not a byte of it changed.

mod support;

use std::path::Path;

use buttery_judge::golden;
use support::program::buttery;
use support::untouched::print;

/// An attempt to write must fail and name what is missing; reading goes on.
fn refuses(name: &str, what: &str) {
    let image = golden::open(name).expect("a golden image");
    let before: Vec<_> = image.files.iter().map(|f| print(f)).collect();
    let target = format!("{}:/new", image.files[0].display());
    buttery(&["subvolume", "create", &target]).fails(&[what]);
    assert!(
        before.iter().eq(image.files.iter().map(|f| print(f)).collect::<Vec<_>>().iter()),
        "something was written"
    );
    let mut args = vec!["ls".to_string(), image.files[0].display().to_string()];
    for other in &image.files[1..] {
        args.extend(["-d".into(), other.display().to_string()]);
    }
    buttery(&args).ok();
    assert!(
        before.iter().eq(image.files.iter().map(|f| print(f)).collect::<Vec<_>>().iter()),
        "something was written"
    );
}

#[test]
fn features_that_writing_needs() {
    refuses("holes", "without NO_HOLES");
    refuses("no-skinny-metadata", "without skinny metadata");
    refuses("no-space-cache", "without a free-space tree");
    refuses("space-cache-v1", "without a free-space tree");
}

#[test]
fn features_that_writing_does_not_keep() {
    refuses("squota", "with simple quotas");
}

#[test]
fn devices_that_are_missing() {
    for name in ["raid1", "raid0", "raid10"] {
        let image = golden::open(name).expect("a golden image");
        let first = print(&image.files[0]);
        let target = format!("{}:/new", image.files[0].display());
        buttery(&["subvolume", "create", &target]).fails(&["device", "missing", "degraded"]);
        if name == "raid0" {
            buttery(&["subvolume", "create", "-o", "degraded", &target])
                .fails(&["no current copy", "only reading is possible"]);
        }
        assert!(first == print(&image.files[0]), "something was written");
    }
}

#[test]
fn parity_is_not_made() {
    let dir = buttery_judge::TempDir::new("parity").expect("a folder");
    let names: Vec<String> = (0..4).map(|n| dir.join(format!("{n}")).display().to_string()).collect();
    for profile in ["raid5", "raid6"] {
        let mut words = vec!["mkfs", "--create", "200m", "-d", profile];
        words.extend(names.iter().map(String::as_str));
        buttery(&words).fails(&[profile, "not supported"]);
        assert!(!Path::new(&names[0]).exists());
    }
}

#[test]
fn a_log_that_waits() {
    let image = golden::open("log").expect("a golden image");
    let before: Vec<_> = image.files.iter().map(|f| print(f)).collect();
    let target = format!("{}:/new", image.files[0].display());
    buttery(&["subvolume", "create", &target]).fails(&["log was not replayed"]);
    assert!(
        before.iter().eq(image.files.iter().map(|f| print(f)).collect::<Vec<_>>().iter()),
        "something was written"
    );
}

#[test]
fn what_somebody_else_has() {
    let image = golden::open("empty").expect("a golden image");
    let file = &image.files[0];
    let holder = hold(file);
    let target = format!("{}:/new", file.display());
    buttery(&["subvolume", "create", &target]).fails(&["another program has it open for writing"]);
    drop(holder);
    buttery(&["subvolume", "create", &target]).ok();
}

/// Somebody who has the image, as another program of ours would: through the library.
fn hold(file: &Path) -> buttery::Filesystem {
    buttery::Filesystem::open_writable(&[file], &buttery::Options::default()).expect("the image")
}
