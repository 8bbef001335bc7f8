//! Several devices through the program: made, filled, mounted, one left out, one back.

mod support;

use std::path::PathBuf;

use buttery_judge::check::btrfs_check_devices;
use buttery_judge::{Need, TempDir, need};
use support::mount::{can_mount, is_mount};
use support::program::{args, buttery};

const TEXT: &[u8] = b"what is there twice\n";

fn names(dir: &TempDir, n: usize) -> Vec<PathBuf> {
    (0..n).map(|n| dir.join(format!("{n}.img"))).collect()
}

#[test]
fn raid1_from_mkfs_to_a_mount() {
    if can_mount().is_none() || need(&[Need::Program("btrfs")]).is_none() {
        return;
    }
    let dir = TempDir::new("several").expect("a folder");
    let (images, source, point) = (names(&dir, 2), dir.join("text"), dir.join("point"));
    std::fs::create_dir(&point).expect("a directory");
    std::fs::write(&source, TEXT).expect("a file");
    let words = |command: &[&str], more: &[PathBuf]| {
        let mut line: Vec<std::ffi::OsString> = command.iter().map(Into::into).collect();
        line.extend(more.iter().map(Into::into));
        line
    };
    // metadata of several devices are raid1 if nothing is said
    let said = buttery(&words(&["mkfs", "--create", "300m", "-d", "raid1"], &images)).ok();
    assert!(String::from_utf8_lossy(&said.stdout).contains("raid1, raid1"));
    let to = PathBuf::from(format!("{}:/in", images[0].display()));
    let device = images[1].display().to_string();
    buttery(&words(&["cp", "-d", &device], &[source.clone(), to.clone()])).ok();
    // a mount of both writes to both
    buttery(&words(&["mount"], &[images[0].clone(), images[1].clone(), point.clone()])).ok();
    assert_eq!(std::fs::read(point.join("in")).expect("a file"), TEXT);
    std::fs::write(point.join("out"), TEXT).expect("a write");
    buttery(&words(&["umount"], std::slice::from_ref(&point))).ok();
    assert!(!is_mount(&point));
    btrfs_check_devices(&images, true).expect("btrfs check");
    for image in &images {
        let one = format!("{}:/out", image.display());
        let seen = buttery(&["cat", "-o", "degraded", &one]).ok();
        assert_eq!(seen.stdout, TEXT);
    }
    // without one, and with it again
    let first = images[0].display().to_string();
    buttery(&["subvolume", "create", "-o", "degraded", &format!("{first}:/alone")]).ok();
    let mut line = args(&["ls"], &images);
    line.push(images[0].clone().into());
    assert!(String::from_utf8_lossy(&buttery(&line).ok().stdout).contains("alone"));
}
