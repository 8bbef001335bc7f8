//! `reflink` and `dedupe`: files that share their extents take the space of one.

mod support;

use std::ffi::OsStr;
use std::path::Path;

use buttery::{Filesystem, Options};
use buttery_judge::workload::{Data, Fill};
use buttery_judge::{Fact, Need, TempDir, check, image, need};
use support::mount::{Mount, can_mount_and_judge};
use support::program::{Run, buttery, inside};

const SIZE: usize = 3_000_001;

fn used(image: &Path) -> u64 {
    let fs = Filesystem::open(&[image], &Options::default()).expect("the image");
    fs.engine().usage().expect("usage").groups.iter().map(|g| g.used).sum()
}

fn run(words: &[&OsStr]) -> Run {
    buttery(words)
}

fn cp(dir: &TempDir, image: &Path, name: &str, data: &[u8]) {
    let file = dir.join("source");
    std::fs::write(&file, data).expect("a file");
    run(&["cp".as_ref(), file.as_ref(), inside(image, name).as_os_str()]).quiet();
}

fn contents(image: &Path, name: &str) -> Vec<u8> {
    run(&["cat".as_ref(), inside(image, name).as_os_str()]).quiet().stdout
}

/// Sound, and the kernel sees these files.
fn judge(path: &Path, names: &[&str]) -> Vec<Fact> {
    check::btrfs_check_data(path).unwrap_or_else(|e| panic!("{e}"));
    let facts = image::kernel_facts(&[path.to_path_buf()]).expect("the kernel");
    let mut seen: Vec<&[u8]> = facts.iter().skip(1).map(|f| f.path.as_slice()).collect();
    seen.sort();
    assert_eq!(seen, names.iter().map(|n| n.as_bytes()).collect::<Vec<_>>());
    facts
}

#[test]
fn files_of_an_image_share_extents() {
    let Some(()) = can_mount_and_judge() else { return };
    let dir = TempDir::new("share").expect("a folder");
    let image = dir.join("image");
    run(&["mkfs".as_ref(), "-q".as_ref(), "--create".as_ref(), "512M".as_ref(), image.as_ref()]).quiet();
    let data = Data::new(Fill::Random, 1, SIZE).bytes();
    cp(&dir, &image, "/one", &data);
    let one = used(&image);
    let at = |name: &str| inside(&image, name);
    run(&["reflink".as_ref(), &at("/one"), &at("/two")]).quiet();
    assert!(used(&image) < one + (200 << 10), "a copy that shares takes space");
    assert_eq!(contents(&image, "/two"), data);
    // one that is there is replaced, and becomes shorter
    cp(&dir, &image, "/three", &vec![7; 2 * SIZE]);
    run(&["reflink".as_ref(), &at("/one"), &at("/three")]).quiet();
    assert_eq!(contents(&image, "/three"), data);
    cp(&dir, &image, "/small", b"in its item");
    run(&["reflink".as_ref(), &at("/small"), &at("/small2")]).quiet();
    assert_eq!(contents(&image, "/small2"), b"in its item");
    run(&["reflink".as_ref(), &at("/one"), &at("/one")]).fails(&["the same file"]);
    run(&["reflink".as_ref(), &at("/one"), dir.join("out").as_ref()]).fails(&["in one image"]);

    cp(&dir, &image, "/four", &data);
    let mut other = data.clone();
    other[SIZE - 1] ^= 1;
    cp(&dir, &image, "/five", &other);
    let before = used(&image);
    let modified = |name: &str| {
        let facts = image::kernel_facts(std::slice::from_ref(&image)).expect("the kernel");
        facts.into_iter().find(|f| f.path == name.as_bytes()).expect("a file").mtime
    };
    let mtime = modified("four");
    let said = run(&["dedupe".as_ref(), &at("/one"), &at("/four"), &at("/five"), &at("/small")]);
    let said = said.fails(&["/five: differs", "/small: differs"]);
    assert!(String::from_utf8_lossy(&said.stdout).contains("/four: 3000001 bytes are shared"));
    assert!(used(&image) + (2 << 20) < before, "nothing was won");
    assert_eq!((modified("four"), contents(&image, "/four")), (mtime, data));
    assert_eq!(contents(&image, "/five"), other);
    judge(&image, &["five", "four", "one", "small", "small2", "three", "two"]);
}

#[test]
fn files_of_a_mount_share_extents() {
    let Some(()) = can_mount_and_judge() else { return };
    let dir = TempDir::new("share-mount").expect("a folder");
    let mount = Mount::create(&dir, "512M");
    let image = mount.image.clone();
    let data = Data::new(Fill::Random, 1, SIZE).bytes();
    let at = |name: &str| mount.join(name);
    std::fs::write(at("one"), &data).expect("a file");
    std::fs::write(at("nocow"), b"").expect("a file");
    let status = std::process::Command::new("chattr").arg("+C").arg(at("nocow")).status().expect("chattr");
    assert!(status.success());
    std::fs::write(at("nocow"), &data).expect("a file");
    run(&["reflink".as_ref(), at("one").as_ref(), at("two").as_ref()]).quiet();
    run(&["reflink".as_ref(), at("nocow").as_ref(), at("three").as_ref()]).quiet();
    run(&["reflink".as_ref(), at("one").as_ref(), at("four").as_ref()]).quiet();
    run(&["reflink".as_ref(), at("nocow").as_ref(), at("four").as_ref()]).quiet();
    run(&["reflink".as_ref(), at("one").as_ref(), dir.join("out").as_ref()]).fails(&["not on a mount"]);
    run(&["reflink".as_ref(), at("one").as_ref(), at("one").as_ref()]).fails(&["the same file"]);
    // what is shared is copied when one of both changes
    for name in ["one", "nocow"] {
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::options().write(true).open(at(name)).expect("a file");
        file.write_all_at(&[9; 10_000], 1_000_000).expect("a write");
    }
    for name in ["two", "three", "four"] {
        assert!(std::fs::read(at(name)).expect("a copy") == data, "{name} changed");
    }
    mount.judge();
    assert!(used(&image) < 7 << 20, "{} bytes are used", used(&image));
}

#[test]
fn equal_files_of_a_mount_share_extents() {
    let Some(()) = can_mount_and_judge() else { return };
    for options in ["", "writeback_cache"] {
        let dir = TempDir::new("dedupe-mount").expect("a folder");
        let made = Mount::create(&dir, "512M");
        let image = made.image.clone();
        made.umount();
        let mount = Mount::new(&image, options);
        let data = Data::new(Fill::Random, 1, SIZE).bytes();
        let at = |name: &str| mount.join(name);
        let mut other = data.clone();
        other[SIZE - 1] ^= 1;
        for (name, bytes) in [("one", &data), ("two", &data), ("three", &data), ("differs", &other)] {
            std::fs::write(at(name), bytes).expect("a file");
        }
        std::fs::write(at("small"), b"small").expect("a file");
        let times = |name: &str| std::fs::metadata(at(name)).and_then(|m| m.modified()).expect("a time");
        let before = times("two");
        let words = ["one", "two", "one", "three", "differs", "small"].map(at);
        let said = run(&[&["dedupe".as_ref()][..], &words.each_ref().map(|w| w.as_os_str())].concat());
        let said = said.fails(&["differs: differs", "small: differs"]);
        let told = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(told.contains("two: 3000001 bytes are shared") && told.contains("three: 3000001"), "{told}");
        assert_eq!(times("two"), before);
        // it cannot be asked for without a ticket, and leaves no attribute
        let forged = xattr::set(at("two"), "user.buttery.dedupe", &[0; 40]).expect_err("no ticket");
        assert_eq!(forged.raw_os_error(), Some(rustix::io::Errno::PERM.raw_os_error()));
        assert_eq!(xattr::list(at("two")).expect("a list").count(), 0);
        let outside = dir.join("outside");
        std::fs::write(&outside, &data).expect("a file");
        run(&["dedupe".as_ref(), at("one").as_ref(), outside.as_ref()]).fails(&["not on the same mount"]);
        run(&["dedupe".as_ref(), outside.as_ref(), at("one").as_ref()]).fails(&["not on a mount"]);
        // what is shared is copied when one of both changes
        {
            use std::os::unix::fs::FileExt;
            let file = std::fs::File::options().write(true).open(at("one")).expect("a file");
            file.write_all_at(&[9; 10_000], 1_000_000).expect("a write");
        }
        for name in ["two", "three"] {
            assert!(std::fs::read(at(name)).expect("a file") == data, "{name} changed");
        }
        mount.umount();
        check::btrfs_check_data(&image).unwrap_or_else(|e| panic!("{e}"));
        assert!(used(&image) < 8 << 20, "{} bytes are used", used(&image));
    }
}

/// Who may not read one file gets no ticket for it, and who may not write the other cannot hand one in.
#[test]
fn deduplication_takes_both_permissions() {
    let Some(()) = can_mount_and_judge() else { return };
    let needed = ["setpriv", "getfattr", "setfattr"].map(Need::Program);
    let Some(()) = need(&needed) else { return };
    let dir = TempDir::new("dedupe-permissions").expect("a folder");
    let made = Mount::create(&dir, "512M");
    let image = made.image.clone();
    made.umount();
    let mount = Mount::new(&image, "allow_other");
    for (name, mode) in [("secret", 0o600), ("shown", 0o644), ("open", 0o666)] {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(mount.join(name), [1; 8192]).expect("a file");
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(mount.join(name), permissions).expect("permissions");
    }
    let nobody = |words: &[&str]| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args(words);
        let out = command.current_dir(mount.path()).output().expect("setpriv");
        (out.status.success(), String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned())
    };
    let lend = |name| nobody(&["getfattr", "--only-values", "-e", "hex", "-n", "user.buttery.lend", name]);
    let hand_in = |name| nobody(&["setfattr", "-n", "user.buttery.dedupe", "-v", "0x00", name]);
    let denied =
        |(done, said): (bool, String)| assert!(!done && said.contains("Permission denied"), "{said}");
    denied(lend("secret"));
    assert!(lend("shown").0);
    denied(hand_in("shown"));
    // here it is refused for what it says, no sooner
    let (done, said) = hand_in("open");
    assert!(!done && said.contains("Invalid argument"), "{said}");
    mount.umount();
}
