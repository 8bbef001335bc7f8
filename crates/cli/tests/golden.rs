//! The golden images, read without root and without the kernel: the library's facts are the kept listings, and the
//! program shows and copies out the same.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use buttery_judge::render::compare_listing;
use buttery_judge::{Fact, Kind, TempDir, golden, walk};
use support::program::{args, buttery, inside};
use support::untouched::untouched;
use support::{facts, program};

/// Profiles that are refused, by name.
const REFUSED: [&str; 2] = ["raid5", "raid6"];
/// The listing of this one was made after the log's replay.
const WITH_LOG: &str = "log";

fn readable() -> Vec<String> {
    let names = golden::names().expect("the golden images");
    assert!(names.len() > 30, "{names:?}");
    names.into_iter().filter(|n| !REFUSED.contains(&n.as_str())).collect()
}

#[test]
fn every_image_reads_as_its_listing_says() {
    for name in readable().iter().filter(|n| *n != WITH_LOG) {
        let image = golden::open(name).expect("a golden image");
        untouched(&image.files, || {
            let found = facts::of_image(&image.files, "subvolid=5").unwrap_or_else(|e| panic!("{name}: {e}"));
            compare_listing(&image.listing, &found).unwrap_or_else(|e| panic!("{name}: {e}"));
        });
    }
}

#[test]
fn the_default_subvolume_is_the_root_and_every_way_to_name_another_works() {
    let image = golden::open("default-subvolume").expect("a golden image");
    let listing = image.default_listing.as_deref().expect("a listing of the default");
    let default = facts::of_image(&image.files, "").expect("the default subvolume");
    compare_listing(listing, &default).unwrap_or_else(|e| panic!("{e}"));

    let fs = facts::open(&image.files, "").expect("the image");
    let id = fs.root().tree.0;
    assert_ne!(id, 5);
    for options in
        [format!("subvolid={id}"), "subvol=/subvolumes/writable".into(), "subvol=subvolumes/writable".into()]
    {
        let found = facts::of_image(&image.files, &options).unwrap_or_else(|e| panic!("{options}: {e}"));
        compare_listing(listing, &found).unwrap_or_else(|e| panic!("{options}: {e}"));
    }
    for options in ["subvolid=0", "subvolid=5", "subvol=/"] {
        let found = facts::of_image(&image.files, options).unwrap_or_else(|e| panic!("{options}: {e}"));
        compare_listing(&image.listing, &found).unwrap_or_else(|e| panic!("{options}: {e}"));
    }
    for options in ["subvolid=4000", "subvol=/nowhere"] {
        let file = image.files[0].as_os_str();
        buttery(&["ls".as_ref(), "-o".as_ref(), options.as_ref(), file])
            .fails(&["no such file or directory"]);
    }
}

#[test]
fn parity_profiles_are_refused_by_name() {
    for name in REFUSED {
        let image = golden::open(name).expect("a golden image");
        let mut line = args(&["ls"], &image.files);
        line.push(image.files[0].clone().into());
        buttery(&line).fails(&["not supported", name, &image.files[0].display().to_string()]);
    }
}

/// The paths on which the log of this image has something to say, see `make-golden`.
fn logged(path: &[u8]) -> bool {
    let names = ["small", "small/logged", "small/sub/text", "many", "many/linked", "many/renamed"];
    names.iter().any(|n| n.as_bytes() == path) || path.starts_with(b"many/file-0000")
}

#[test]
fn an_image_with_a_log_shows_the_last_commit_and_says_so() {
    let image = golden::open(WITH_LOG).expect("a golden image");
    untouched(&image.files, || {
        let found = facts::of_image(&image.files, "").expect("a walk");
        let has = |path: &str| found.iter().any(|f| f.path == path.as_bytes());
        assert!(has("many/file-00005") && has("many/file-00006"), "renamed and removed in the log only");
        assert!(!has("many/linked") && !has("many/renamed") && !has("small/logged"), "made in the log only");

        let lines: Vec<&str> = image.listing.lines().collect();
        for fact in found.iter().filter(|f| !logged(&f.path)) {
            assert!(lines.contains(&fact.to_string().as_str()), "{fact} is not in the listing");
        }
        assert!(lines.iter().any(|l| l.contains(" /small/logged ")), "the listing has what the log adds");

        let said = buttery(&["ls".as_ref(), "-R".as_ref(), image.files[0].as_os_str()]).ok().stderr;
        assert!(
            said.contains("an fsync log waits to be replayed; this is the last commit before it"),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    });
}

#[test]
fn the_program_lists_every_image() {
    for name in readable() {
        let image = golden::open(&name).expect("a golden image");
        let found = facts::of_image(&image.files, "").unwrap_or_else(|e| panic!("{name}: {e}"));
        let run = |words: &[&str]| {
            let mut line = args(words, &image.files);
            line.push(image.files[0].clone().into());
            let run = buttery(&line);
            if name == WITH_LOG { run.ok() } else { run.quiet() }
        };
        let listed = String::from_utf8_lossy(&run(&["ls", "-R"]).stdout).into_owned();
        let expected = String::from_utf8_lossy(&listing(&found)).into_owned();
        assert_eq!(listed, expected, "{name}");

        let long = run(&["ls", "-R", "-l"]).stdout;
        let lines = |text: &[u8]| text.iter().filter(|&&b| b == b'\n').count();
        let in_targets: usize = found.iter().filter_map(|f| f.target.as_deref()).map(lines).sum();
        assert_eq!(lines(&long), lines(expected.as_bytes()) + in_targets, "{name}");
    }
}

/// What `ls -R` prints.
fn listing(facts: &[Fact]) -> Vec<u8> {
    let mut children: BTreeMap<&[u8], Vec<&Fact>> = BTreeMap::new();
    for fact in facts.iter().filter(|f| !f.path.is_empty()) {
        children.entry(split(&fact.path).0).or_default().push(fact);
    }
    let mut text = Vec::new();
    let mut todo: Vec<&[u8]> = vec![b""];
    while let Some(dir) = todo.pop() {
        let head = if dir.is_empty() { b"/:\n".to_vec() } else { [b"\n/", dir, b":\n"].concat() };
        text.extend(head);
        let mut below = children.remove(dir).unwrap_or_default();
        below.sort_by_key(|f| split(&f.path).1);
        below.iter().for_each(|f| text.extend([split(&f.path).1, b"\n"].concat()));
        todo.extend(below.iter().rev().filter(|f| f.kind == Kind::Dir).map(|f| f.path.as_slice()));
    }
    text
}

/// The directory and the name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

#[test]
fn the_program_copies_out_what_is_in_every_image() {
    for name in readable() {
        let image = golden::open(&name).expect("a golden image");
        let found = facts::of_image(&image.files, "").unwrap_or_else(|e| panic!("{name}: {e}"));
        let dir = TempDir::new("out").expect("a folder");
        let target = dir.join("copy");
        // only root can make devices
        let refused = if rustix::process::geteuid().is_root() { 0 } else { count(&found, is_device) };
        let mut line = args(&["cp", "-r", "--keep-going"], &image.files);
        line.extend([inside(&image.files[0], "/"), target.clone().into()]);
        let run = buttery(&line);
        match refused {
            0 => drop(run.ok()),
            n => drop(run.fails(&[&format!("{n} could not be copied")])),
        }
        let copied = walk(&target).expect("what was copied");
        let essence = |facts: &[Fact]| -> Vec<(Vec<u8>, Kind, u64, Option<Vec<u8>>, Option<u128>)> {
            let kept = facts.iter().filter(|f| refused == 0 || !is_device(f));
            let size = |f: &Fact| if f.kind == Kind::Dir { 0 } else { f.size };
            kept.map(|f| (f.path.clone(), f.kind, size(f), f.target.clone(), f.content)).collect()
        };
        assert_eq!(essence(&found), essence(&copied), "{name}");
    }
}

fn is_device(fact: &Fact) -> bool {
    matches!(fact.kind, Kind::Char | Kind::Block)
}

fn count(facts: &[Fact], which: impl Fn(&Fact) -> bool) -> usize {
    facts.iter().filter(|f| which(f)).count()
}

#[test]
fn cat_and_stat_show_a_file() {
    let image = golden::open("csum-sha256").expect("a golden image");
    let fs = facts::open(&image.files, "").expect("the image");
    let found = facts::walk(&fs).expect("a walk");
    let file = &image.files[0];
    for fact in found.iter().filter(|f| f.kind == Kind::File) {
        let spec = inside(file, &format!("/{}", String::from_utf8_lossy(&fact.path)));
        let out = buttery(&["cat".as_ref(), spec.as_os_str()]).quiet().stdout;
        let mut hasher = buttery_judge::ContentHasher::new();
        hasher.update(0, &out);
        assert_eq!(Some(hasher.finish(out.len() as u64)), fact.content);
        let text =
            String::from_utf8(buttery(&["stat".as_ref(), spec.as_os_str()]).quiet().stdout).expect("text");
        for part in
            [format!("Size: {}", fact.size), format!("Inode: {}", fact.ino), format!("Uid: {}", fact.uid)]
        {
            assert!(text.contains(&part), "{part} is not in {text}");
        }
    }
    let missing = inside(file, "/not/there");
    for command in ["cat", "stat", "ls"] {
        buttery(&[command.as_ref(), missing.as_os_str()]).fails(&["/not/there", "no such file or directory"]);
    }
    let dir = inside(file, "/small");
    buttery(&["cat".as_ref(), dir.as_os_str()]).fails(&["/small", "is a directory"]);
}

#[test]
fn an_image_may_have_a_colon_in_its_name_and_be_read_only() {
    let image = golden::open("empty").expect("a golden image");
    let odd = image.dir.join("a:b.img");
    std::fs::rename(&image.files[0], &odd).expect("a name");
    let mut mode = std::fs::metadata(&odd).expect("the image").permissions();
    mode.set_readonly(true);
    std::fs::set_permissions(&odd, mode).expect("a mode");
    buttery(&["ls".as_ref(), odd.as_os_str()]).quiet();
    buttery(&["ls".as_ref(), inside(&odd, "/").as_os_str()]).quiet();
    let gone: PathBuf = Path::new("/no/such/image").into();
    let run = buttery(&["ls".as_ref(), gone.as_os_str()]);
    drop::<program::Run>(run.fails(&["/no/such/image", "No such file or directory"]));
}
