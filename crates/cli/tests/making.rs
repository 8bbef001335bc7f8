//! What `mkfs`, `untar`, `cp` into an image and `subvolume` make, judged by `btrfs check` and the kernel.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use buttery_judge::guard::run;
use buttery_judge::{Compare, KernelMount, Need, TempDir, check, compare, need, walk};

const UUID: &str = "01234567-89ab-4cde-8f01-23456789abcd";

fn buttery() -> Command {
    Command::new(env!("CARGO_BIN_EXE_buttery"))
}

/// Runs the program; its failure is a panic with what it said.
fn ok<S: AsRef<OsStr>>(args: &[S]) -> String {
    run(buttery().args(args)).expect("buttery")
}

/// Runs the program, which must fail, and answers what it said.
fn fails<S: AsRef<OsStr>>(args: &[S]) -> String {
    let output = buttery().args(args).stdin(Stdio::null()).output().expect("buttery");
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// `btrfs check` has nothing to say, the kernel mounts it and works in it, and says nothing either.
fn judge(image: &Path) {
    check::btrfs_check_data(image).unwrap_or_else(|e| panic!("{}: {e}", image.display()));
    let mount = KernelMount::one(image, "").expect("a kernel mount");
    fs::write(mount.path().join("by-the-kernel"), vec![7; 300_000]).expect("a file");
    check::kernel_scrub(mount.path()).expect("a scrub");
    mount.unmount_without_complaints().expect("unmounted");
    check::btrfs_check(image).unwrap_or_else(|e| panic!("{}: {e}", image.display()));
}

#[test]
fn mkfs_options_are_what_the_kernel_expects() {
    let Some(()) = need(&[Need::KernelBtrfs]) else { return };
    let dir = TempDir::new("mkfs").expect("a folder");
    for (number, options) in [
        "",
        "-n 4k --csum xxhash -O ^block-group-tree -L a-label",
        "-n 64k --csum sha256 -m single",
        "-n 32k --csum blake2 -d dup",
        "-b 200M -K",
    ]
    .into_iter()
    .enumerate()
    {
        let image = dir.join(format!("{number}.img"));
        let mut args = vec!["mkfs", "-q", "--create", "512M"];
        args.extend(options.split_whitespace());
        args.push(image.to_str().expect("a name"));
        ok(&args);
        let meta = fs::metadata(&image).expect("the image");
        assert!(
            meta.blocks() * 512 < 4 << 20,
            "{options}: the image is not sparse: {} blocks",
            meta.blocks()
        );
        judge(&image);
    }
}

#[test]
fn mkfs_refuses_what_it_must() {
    let dir = TempDir::new("mkfs").expect("a folder");
    let image = dir.join("x.img");
    let path = image.to_str().expect("a name");
    ok(&["mkfs", "-q", "--create", "256M", path]);
    assert!(fails(&["mkfs", path]).contains("appears to contain btrfs; use -f"));
    ok(&["mkfs", "-q", "-f", path]);
    for (args, text) in [
        (&["mkfs", "-f", "-b", "20M"][..], "are too few"),
        (&["mkfs", "-f", "-s", "16k"], "sector size 16384 is not supported"),
        (&["mkfs", "-f", "-n", "5000"], "is not a power of two"),
        (&["mkfs", "-f", "-O", "zoned"], "feature zoned is not supported"),
        (&["mkfs", "-f", "-O", "^no-holes"], "cannot be turned off"),
        (&["mkfs", "-f", "-b", "1T"], "fewer than"),
    ] {
        let said = fails(&[args, &[path]].concat());
        assert!(said.contains(text), "{args:?}: {said}");
    }
    assert!(fails(&["mkfs", "-f", "/dev/null"]).contains("neither a file nor a block device"));
}

/// A tree as a root file system has them: device nodes, hard links, set-id bits, capabilities, holes, odd names.
fn root_tree(dir: &Path) -> PathBuf {
    let top = dir.join("rootfs");
    for sub in ["bin", "dev", "etc/deep/er", "var/empty", "tmp"] {
        fs::create_dir_all(top.join(sub)).expect("a folder");
    }
    let modes = [("bin/su", 0o4755), ("bin/wall", 0o2755), ("etc/shadow", 0o640), ("tmp", 0o1777)];
    fs::write(top.join("bin/su"), vec![1; 70_000]).expect("a file");
    fs::write(top.join("bin/wall"), b"small").expect("a file");
    fs::write(top.join("etc/shadow"), b"root:*:\n").expect("a file");
    fs::write(top.join("etc/empty"), b"").expect("a file");
    let text: Vec<u8> = (0..2_000_000u32).flat_map(|i| (i / 3).to_le_bytes()).collect();
    fs::write(top.join("bin/large"), text).expect("a file");
    fs::hard_link(top.join("bin/su"), top.join("bin/su-again")).expect("a link");
    symlink("../bin/su", top.join("etc/deep/er/link")).expect("a link");
    symlink("x".repeat(3000), top.join("etc/long-link")).expect("a link");
    fs::write(top.join("etc").join("n".repeat(255)), b"a long name").expect("a file");
    let holes = fs::File::create(top.join("var/holes")).expect("a file");
    std::os::unix::fs::FileExt::write_all_at(&holes, b"end", 40_000_000).expect("a file");
    for (kind, name, major, minor) in
        [("c", "null", "1", "3"), ("b", "sda", "8", "0"), ("c", "big", "240", "70000")]
    {
        run(Command::new("mknod").arg(top.join("dev").join(name)).args([kind, major, minor])).expect("mknod");
    }
    run(Command::new("mkfifo").arg(top.join("dev/fifo"))).expect("mkfifo");
    let owner = |path: &str, uid, gid| {
        std::os::unix::fs::lchown(top.join(path), Some(uid), Some(gid)).expect("an owner");
    };
    owner("etc/shadow", 0, 42);
    owner("etc/deep", 1000, 1000);
    owner("etc/deep/er/link", 1001, 1002);
    for (path, mode) in modes {
        fs::set_permissions(top.join(path), fs::Permissions::from_mode(mode)).expect("a mode");
    }
    xattr::set(top.join("etc/shadow"), "user.note", b"value").expect("an attribute");
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    xattr::set(top.join("bin/wall"), "security.capability", &capability).expect("a capability");
    top
}

/// The program as a user without any privilege runs it, from a place that such a user can reach.
fn as_nobody(dir: &Path) -> Command {
    let copy = dir.join("buttery");
    if !copy.exists() {
        fs::copy(env!("CARGO_BIN_EXE_buttery"), &copy).expect("a copy");
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(copy);
    command
}

#[test]
fn untar_as_nobody_keeps_everything() {
    let Some(()) = need(&[Need::KernelBtrfs, Need::Program("setpriv"), Need::Program("tar")]) else { return };
    let dir = TempDir::new("untar").expect("a folder");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("a mode");
    let tree = root_tree(dir.path());
    let archive = dir.join("rootfs.tar");
    let mut tar = Command::new("tar");
    tar.args(["--xattrs", "--xattrs-include=*", "--numeric-owner", "--sparse", "--format=pax", "-cf"]);
    run(tar.arg(&archive).arg("-C").arg(&tree).arg(".")).expect("tar");
    let image = dir.join("root.img");
    run(as_nobody(dir.path()).args(["mkfs", "-q", "--create", "512M"]).arg(&image)).expect("mkfs");
    let input = fs::File::open(&archive).expect("the archive");
    let output = as_nobody(dir.path()).arg("untar").arg(&image).stdin(input).output().expect("untar");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check::btrfs_check_data(&image).expect("check");
    let mount = KernelMount::one(&image, "ro").expect("a kernel mount");
    let (want, got) = (walk(&tree).expect("the tree"), walk(mount.path()).expect("the image"));
    compare(&want, &got, &Compare::copied()).unwrap_or_else(|e| panic!("{e}"));
    drop(mount);
    judge(&image);
}

#[test]
fn cp_in_and_out_again() {
    let Some(()) = need(&[Need::KernelBtrfs]) else { return };
    let dir = TempDir::new("cp").expect("a folder");
    let tree = root_tree(dir.path());
    let image = dir.join("root.img");
    ok(&["mkfs".as_ref(), "-q".as_ref(), "--create".as_ref(), "512M".as_ref(), image.as_os_str()]);
    let inside = format!("{}:/copy", image.display());
    ok(&["cp".as_ref(), "-a".as_ref(), tree.as_os_str(), inside.as_ref()]);
    let mount = KernelMount::one(&image, "ro").expect("a kernel mount");
    let want = walk(&tree).expect("the tree");
    let got = walk(&mount.path().join("copy")).expect("the image");
    compare(&want, &got, &Compare::copied()).unwrap_or_else(|e| panic!("{e}"));
    drop(mount);
    ok(&["cp".as_ref(), "-a".as_ref(), inside.as_ref(), dir.join("out").as_os_str()]);
    let got = walk(&dir.join("out")).expect("the copy");
    compare(&want, &got, &Compare::copied()).unwrap_or_else(|e| panic!("{e}"));
    judge(&image);
}

#[test]
fn compressed_on_the_way_in() {
    let Some(()) = need(&[Need::KernelBtrfs]) else { return };
    let dir = TempDir::new("compressed").expect("a folder");
    let tree = dir.join("tree");
    fs::create_dir(&tree).expect("a folder");
    let text: String = (0..300_000).map(|n| format!("line {n}\n")).collect();
    fs::write(tree.join("text"), &text).expect("a file");
    let used = |image: &Path| {
        let fs = buttery::Filesystem::open(&[image], &buttery::Options::default()).expect("the image");
        fs.engine().usage().expect("usage").groups.iter().map(|g| g.used).sum::<u64>()
    };
    for how in ["compress=zlib:9", "compress=lzo", "compress-force=zstd:15"] {
        let image = dir.join("image");
        let _ = fs::remove_file(&image);
        ok(&["mkfs".as_ref(), "-q".as_ref(), "--create".as_ref(), "512M".as_ref(), image.as_os_str()]);
        let inside = format!("{}:/tree", image.display());
        ok(&["cp".as_ref(), "-a".as_ref(), "-o".as_ref(), how.as_ref(), tree.as_os_str(), inside.as_ref()]);
        assert!(used(&image) < text.len() as u64 * 6 / 10, "{how}: {} bytes", used(&image));
        let mount = KernelMount::one(&image, "ro").expect("a kernel mount");
        assert!(fs::read(mount.path().join("tree/text")).expect("a file") == text.as_bytes(), "{how}");
        drop(mount);
        judge(&image);
    }
}

#[test]
fn the_same_image_twice() {
    let dir = TempDir::new("twice").expect("a folder");
    let tree = dir.join("tree");
    fs::create_dir_all(tree.join("sub")).expect("a folder");
    for n in 0..50 {
        fs::write(tree.join(format!("sub/{n}")), vec![n; n as usize * 1000]).expect("a file");
    }
    let archive = dir.join("tree.tar");
    run(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&tree).arg(".")).expect("tar");
    let images = [dir.join("a.img"), dir.join("b.img")];
    for image in &images {
        let epoch =
            |command: &mut Command| run(command.env("SOURCE_DATE_EPOCH", "1700000000")).expect("buttery");
        epoch(buttery().args(["mkfs", "-q", "--create", "256M", "-U", UUID]).arg(image));
        let sub = format!("{}:/sub", image.display());
        epoch(buttery().args(["subvolume", "create"]).arg(sub));
        let input = fs::File::open(&archive).expect("the archive");
        let mut untar = buttery();
        let status =
            untar.arg("untar").arg(image).stdin(input).env("SOURCE_DATE_EPOCH", "1700000000").status();
        assert!(status.expect("untar").success());
    }
    let [a, b] = images.map(|i| fs::read(i).expect("an image"));
    assert!(a == b, "they differ first at {:?}", a.iter().zip(&b).position(|(x, y)| x != y));
}

#[test]
fn subvolumes_are_the_kernels_too() {
    let Some(()) = need(&[Need::KernelBtrfs, Need::Program("btrfs")]) else { return };
    let dir = TempDir::new("subvolume").expect("a folder");
    let image = dir.join("x.img");
    let path = image.to_str().expect("a name");
    ok(&["mkfs", "-q", "--create", "256M", path]);
    ok(&["subvolume", "create", &format!("{path}:/@")]);
    ok(&["subvolume", "create", &format!("{path}:/@/nested")]);
    assert!(fails(&["subvolume", "create", &format!("{path}:/@")]).contains("exists"));
    ok(&["subvolume", "set-default", &format!("{path}:/@")]);
    let ours = ok(&["subvolume", "get-default", path]);
    let mount = KernelMount::one(&image, "").expect("a kernel mount");
    assert!(mount.path().join("nested").is_dir(), "the default subvolume is mounted");
    let theirs = run(Command::new("btrfs").args(["subvolume", "get-default"]).arg(mount.path()));
    // the mount may have committed since
    let without_gen = |line: &str| {
        line.split(' ')
            .enumerate()
            .filter(|(n, _)| *n != 3)
            .map(|(_, w)| w.trim().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(without_gen(&ours), without_gen(&theirs.expect("btrfs")));
    let list = run(Command::new("btrfs").args(["subvolume", "list"]).arg(mount.path())).expect("btrfs");
    assert!(list.contains("ID 256") && list.contains("ID 257"), "{list}");
    drop(mount);
    judge(&image);
}
