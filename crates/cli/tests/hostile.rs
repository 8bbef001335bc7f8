//! Every image of btrfs-progs' fuzz, fsck and misc tests: listed or refused with a reason, copied out as far as it can
//! be, never a crash, a hang or a write. Where the kernel lists one without an error, ours lists the same.

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use buttery_judge::{Fact, KernelMount, Loop, Need, TempDir, need, oracle, walk};
use support::facts;
use support::hostile::{Image, Table, images};
use support::program::{Limits, Run, buttery_with, inside};
use support::untouched::{print, untouched};

const LIMITS: Limits = Limits { time: Duration::from_secs(20), address_space_bytes: 2 << 30 };

fn needs() -> Option<()> {
    need(&[Need::Corpus(oracle::PROGS_IMAGES), Need::Program("btrfs-image"), Need::Program("xz")])
}

#[test]
fn every_image_is_listed_or_refused_with_a_reason() {
    let Some(()) = needs() else { return };
    let (images, failed) = images();
    assert!(images.len() > 100, "{} images; not unpacked: {failed:?}", images.len());
    let (mut table, mut faults) = (Table::new("images of btrfs-progs' tests"), Vec::new());
    failed.iter().for_each(|_| table.count("could not be restored by btrfs-image"));
    for image in images {
        if let Err(fault) = one(image, &mut table) {
            faults.push(format!("{}: {fault}", image.name));
        }
    }
    table.print();
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

fn one(image: &Image, table: &mut Table) -> Result<(), String> {
    let before = print(&image.file);
    let listed = buttery_with(&["ls".as_ref(), "-R".as_ref(), "-l".as_ref(), image.file.as_os_str()], LIMITS);
    listed.sane()?;
    table.count(match (listed.status.success(), listed.stdout.is_empty()) {
        (true, _) => "ls: listed",
        (false, false) => "ls: listed in part",
        (false, true) => "ls: refused",
    });
    named(&listed, &image.file)?;

    let out = TempDir::new("hostile").map_err(|e| e.to_string())?;
    let spec = inside(&image.file, "/");
    let copied = buttery_with(
        &["cp".as_ref(), "-a".as_ref(), "--keep-going".as_ref(), spec.as_os_str(), out.path().as_os_str()],
        LIMITS,
    );
    copied.sane()?;
    table.count(match (copied.status.success(), copied.stderr.contains("could not be copied")) {
        (true, _) => "cp: all copied",
        (false, true) => "cp: copied in part",
        (false, false) => "cp: refused",
    });
    named(&copied, &image.file)?;
    if std::env::var_os("BUTTERY_HOSTILE_SHOW").is_some() {
        eprintln!("{}\n  ls: {}\n  cp: {}", image.name, first(&listed), first(&copied));
    }
    if print(&image.file) != before {
        return Err("the image was written to".into());
    }
    Ok(())
}

fn first(run: &Run) -> String {
    let more = run.stderr.lines().count().saturating_sub(1);
    format!("{:?} {} (and {more} lines)", run.status.code(), run.stderr.lines().next().unwrap_or("-"))
}

/// A refusal names the image, and a place in it or the rule that it breaks.
fn named(run: &Run, image: &Path) -> Result<(), String> {
    let refused =
        !run.status.success() && run.stdout.is_empty() && !run.stderr.contains("could not be copied");
    if !refused {
        return Ok(());
    }
    let place = ["superblock at ", "block ", "chunk ", "device ", "address ", "item ", "not supported: "];
    let text = run.stderr.replace(&image.display().to_string(), "IMAGE");
    match text.contains("IMAGE") && place.iter().any(|p| text.contains(p)) {
        true => Ok(()),
        false => Err(format!("no place is named in: {}", run.stderr)),
    }
}

#[test]
fn what_the_kernel_lists_is_listed_alike() {
    let Some(()) = needs() else { return };
    let Some(()) = need(&[Need::KernelBtrfs]) else { return };
    let (mut table, mut faults) = (Table::new("the same images, mounted by the kernel"), Vec::new());
    for image in &images().0 {
        let Some(theirs) = kernel_view(&image.file, &mut table) else { continue };
        let files: [PathBuf; 1] = [image.file.clone()];
        match untouched(&files, || our_view(&files)) {
            Ok(ours) if ours == theirs => table.count("listed alike"),
            Ok(ours) => {
                table.count("listed differently");
                faults.push(format!("{}: {}", image.name, differences(&theirs, &ours)));
            }
            Err(error) => {
                table.count("refused here");
                faults.push(format!("{}: {error}", image.name));
            }
        }
    }
    table.print();
    assert!(table.of("listed alike") > 40);
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

/// What both sides are asked about a path; contents are not among it, since most images are of metadata only.
type View = Vec<(Vec<u8>, String)>;

fn view(fact: &Fact) -> (Vec<u8>, String) {
    let text = format!(
        "{:?} {:o} {}:{} size {} ino {} nlink {} mtime {}",
        fact.kind, fact.mode, fact.uid, fact.gid, fact.size, fact.ino, fact.nlink, fact.mtime
    );
    (fact.path.clone(), text)
}

/// Everything the kernel lists, if it mounts the image and lists it without an error.
fn kernel_view(file: &Path, table: &mut Table) -> Option<View> {
    let device = Loop::attach_read_only(file).expect("a loop device");
    let Ok(mount) = KernelMount::of_loops(vec![device], "ro,rescue=nologreplay") else {
        table.count("not mounted");
        return None;
    };
    let mut found = Vec::new();
    let mut todo = vec![Vec::new()];
    while let Some(path) = todo.pop() {
        let full = walk::join(mount.path(), &path);
        let listed = walk::stat(&full, path).and_then(|fact| {
            if fact.kind == buttery_judge::Kind::Dir {
                for name in walk::names(&full)? {
                    todo.push(walk::child(&fact.path, &name));
                }
            }
            Ok(fact)
        });
        match listed {
            Ok(fact) if found.len() < 100_000 => found.push(view(&fact)),
            _ => {
                table.count("mounted, but not listed without an error");
                return None;
            }
        }
    }
    found.sort();
    Some(found)
}

fn our_view(files: &[PathBuf]) -> Result<View, String> {
    let fs = facts::open(files, "")?;
    facts::paths_by_name(&fs)?.into_iter().map(|(path, id)| Ok(view(&facts::stat(&fs, id, path)?))).collect()
}

fn differences(theirs: &View, ours: &View) -> String {
    let mut text = String::new();
    let lost = theirs.iter().filter(|t| !ours.contains(t)).take(5);
    lost.for_each(|(p, t)| text += &format!("\n    kernel: {:?} {t}", String::from_utf8_lossy(p)));
    let added = ours.iter().filter(|o| !theirs.contains(o)).take(5);
    added.for_each(|(p, t)| text += &format!("\n    ours:   {:?} {t}", String::from_utf8_lossy(p)));
    text
}
