//! An ordinary user makes, fills, mounts and unmounts an image, with no more help than fusermount3 gives.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use buttery_judge::{Kind, Need, TempDir, image, need};
use rustix::fs::{Gid, Mode, Uid};
use support::mount::{Mount, judged};

const NOBODY: u32 = 65534;

/// Gives the mount namespace that it runs in a /dev/fuse for everybody, as most systems have it, and waits to be
/// killed.
const HOLDER: &str = "mknod -m 666 fuse c 10 229; mount --bind fuse /dev/fuse; echo ready; exec sleep 600";

/// A folder that the user `nobody` owns, with the program beside it, and a mount namespace of their own.
struct Home {
    dir: TempDir,
    program: PathBuf,
    /// The process that keeps the namespace.
    holder: Child,
}

/// Needs root, who alone can become somebody else.
fn home(label: &str) -> Option<Home> {
    let programs = ["setpriv", "unshare", "nsenter", "fusermount3", "tar", "setfacl"].map(Need::Program);
    need(&[&[Need::Fuse, Need::KernelBtrfs][..], &programs].concat())?;
    let dir = TempDir::new(label).expect("a folder");
    rustix::fs::chmod(dir.path(), Mode::from(0o755)).expect("chmod");
    let program = dir.join("buttery");
    std::fs::copy(env!("CARGO_BIN_EXE_buttery"), &program).expect("the program");
    rustix::fs::chmod(&program, Mode::from(0o755)).expect("chmod");
    let own = dir.join("own");
    std::fs::create_dir(&own).expect("a folder");
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    rustix::fs::chown(&own, Some(uid), Some(gid)).expect("chown");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", HOLDER]).current_dir(dir.path());
    let mut holder = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("unshare");
    let mut line = String::new();
    let said = holder.stdout.take().expect("a pipe");
    BufReader::new(said).read_line(&mut line).expect("a line");
    let home = Home { dir, program, holder };
    assert_eq!(line, "ready\n", "no namespace");
    Some(home)
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.mounted() {
            // the server, which is in the namespace too, ends with its mount
            let _ = self.enter().args(["umount", "-l"]).arg(self.at("mnt")).status();
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl Home {
    fn at(&self, name: &str) -> PathBuf {
        self.dir.join("own").join(name)
    }

    /// Whether the user has something mounted.
    fn mounted(&self) -> bool {
        let table = std::fs::read_to_string(format!("/proc/{}/mounts", self.holder.id())).unwrap_or_default();
        table.contains(&format!(" {} fuse.buttery ", self.at("mnt").display()))
    }

    /// Runs what follows in the namespace.
    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id()));
        // entered anew: a folder from outside would show what is below its mounts
        command.args(["env", &format!("--chdir={}", self.at("").display())]).stdin(Stdio::null());
        command
    }

    /// A command that runs as `nobody` in their own folder.
    fn command(&self, program: &Path) -> Command {
        let mut command = self.enter();
        command.args(["setpriv", &format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}")]);
        command.args(["--clear-groups", "--"]).arg(program);
        command
    }

    fn buttery(&self, words: &[&str]) {
        let out = self.command(&self.program).args(words).output().expect("setpriv");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && said.is_empty(), "buttery {words:?}: {}: {said}", out.status);
    }

    fn sh(&self, script: &str) -> String {
        let out = self.command("sh".as_ref()).args(["-ec", script]).output().expect("setpriv");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{script}: {}: {said}", out.status);
        String::from_utf8_lossy(&out.stdout).into_owned()
    }
}

#[test]
fn an_ordinary_user_mounts_writes_and_unmounts() {
    let Some(home) = home("nobody") else { return };
    home.buttery(&["mkfs", "--quiet", "--create", "512M", "image"]);
    std::fs::create_dir(home.at("mnt")).expect("a folder");
    rustix::fs::chown(home.at("mnt"), Some(Uid::from_raw(NOBODY)), None).expect("chown");
    home.buttery(&["mount", "image", "mnt"]);
    assert!(home.mounted());
    let listing = home.sh("cd mnt; echo text > file; ln file link; ln -s file symlink; mkdir -p a/b/c; \
         head -c 3000000 /dev/urandom > a/noise; cp a/noise a/b/copy; mkfifo fifo; chmod 640 file; \
         touch -d @1000000000 a/b; mv a/noise a/b/c/moved; stat -c '%n %i %h' file link; cat symlink");
    assert!(listing.ends_with("text\n"), "{listing}");
    home.sh("cmp mnt/a/b/copy mnt/a/b/c/moved");
    // the kernel does not check permissions here, so it does not know that a list changes the mode
    let modes = home.sh("cd mnt; stat -c %a file; setfacl -m u:1:rwx file; stat -c %a file; setfacl -b file; \
         stat -c %a file; setfacl -m d:g:7:r a; umask 077; mkdir a/new; stat -c %a a/new; getfacl -c a/new | grep default:mask");
    assert_eq!(modes, "640\n670\n640\n755\ndefault:mask::r-x\n");
    home.buttery(&["sync", "mnt"]);
    home.buttery(&["umount", "mnt"]);
    assert!(!home.mounted());
    // what root sees through the program is what the user left, and what the kernel sees
    let mount = Mount::new(&home.at("image"), "ro");
    let seen = support::mount::facts(mount.path());
    assert!(seen.iter().skip(1).all(|f| (f.uid, f.gid) == (NOBODY, NOBODY)), "files of the user");
    assert_eq!(seen.len(), 11, "the root, four folders, six files");
    mount.umount();
    judged(&home.at("image"), &seen);
}

#[test]
fn an_ordinary_user_has_snapshots() {
    let Some(home) = home("snapshots") else { return };
    home.buttery(&["mkfs", "--quiet", "--create", "512M", "image"]);
    home.sh("mkdir mnt");
    home.buttery(&["mount", "image", "mnt"]);
    home.buttery(&["subvolume", "create", "mnt/home"]);
    home.sh("echo before > mnt/home/file");
    home.buttery(&["subvolume", "snapshot", "-r", "mnt/home", "mnt/kept"]);
    home.buttery(&["subvolume", "snapshot", "mnt/home", "mnt/other"]);
    home.sh("echo after > mnt/home/file; echo other > mnt/other/file");
    assert_eq!(home.sh("cat mnt/home/file mnt/kept/file mnt/other/file"), "after\nbefore\nother\n");
    home.sh("! echo x 2>/dev/null > mnt/kept/file; test $(stat -c %u mnt/kept) = 65534");
    home.buttery(&["property", "set", "mnt/kept", "ro", "false"]);
    home.buttery(&["subvolume", "delete", "-C", "mnt/home", "mnt/other"]);
    assert_eq!(home.sh("ls mnt; cat mnt/kept/file"), "kept\nbefore\n");
    home.buttery(&["umount", "mnt"]);
    let mount = Mount::new(&home.at("image"), "ro");
    let seen = support::mount::facts(mount.path());
    assert_eq!(seen.len(), 3);
    mount.umount();
    judged(&home.at("image"), &seen);
}

#[test]
fn an_ordinary_user_is_told_why_a_mount_is_refused() {
    let Some(home) = home("refused") else { return };
    home.buttery(&["mkfs", "--quiet", "--create", "512M", "image"]);
    let refused = |words: &[&str], text: &str| {
        let out = home.command(&home.program).args(words).output().expect("setpriv");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && said.contains(text), "buttery {words:?}: {said}");
    };
    // a mount point that is not theirs
    let foreign = TempDir::new("foreign").expect("a folder");
    refused(&["mount", "image", foreign.path().to_str().expect("text")], "write access");
    refused(&["mount", "image", "missing"], "missing: No such file or directory");
    std::fs::set_permissions(home.at("image"), std::os::unix::fs::PermissionsExt::from_mode(0o000))
        .expect("chmod");
    home.sh("mkdir -p mnt");
    refused(&["mount", "image", "mnt"], "Permission denied");
}

#[test]
fn an_ordinary_user_unpacks_a_root_file_system() {
    let Some(home) = home("untar") else { return };
    // an archive with owners and device nodes, which only root could unpack on a mount
    let source = TempDir::new("source").expect("a folder");
    let script = "mkdir -p dev etc home/user; mknod -m 666 dev/null c 1 3; mknod dev/disk b 8 1; \
        echo root > etc/passwd; chmod 600 etc/passwd; echo x > home/user/x; chown -R 1000:1000 home/user; \
        ln -s /etc/passwd link; mkfifo etc/fifo; tar --format=pax -cf archive dev etc home link";
    let status = Command::new("sh").args(["-ec", script]).current_dir(source.path()).status().expect("sh");
    assert!(status.success());
    let archive = std::fs::read(source.join("archive")).expect("the archive");

    home.buttery(&["mkfs", "--quiet", "--create", "512M", "image"]);
    let mut command = home.command(&home.program);
    let mut child = command.args(["untar", "image"]).stdin(Stdio::piped()).spawn().expect("setpriv");
    child.stdin.take().expect("a pipe").write_all(&archive).expect("a write");
    assert!(child.wait().expect("an end").success());

    home.sh("mkdir mnt");
    home.buttery(&["mount", "image", "mnt"]);
    let seen = home.sh("stat -c '%n %u %t,%T %F' mnt/dev/null mnt/dev/disk mnt/home/user/x");
    let lines: Vec<&str> = seen.lines().collect();
    assert_eq!(lines[0], "mnt/dev/null 0 1,3 character special file");
    assert_eq!(lines[1], "mnt/dev/disk 0 8,1 block special file");
    assert_eq!(lines[2], "mnt/home/user/x 1000 0,0 regular file");
    home.sh("echo more > mnt/home/user/more");
    home.buttery(&["umount", "mnt"]);

    let facts = image::kernel_facts(&[home.at("image")]).expect("the kernel");
    let find = |path: &[u8]| facts.iter().find(|f| f.path == path).expect("a file");
    assert_eq!((find(b"dev/null").kind, find(b"dev/null").rdev), (Kind::Char, (1, 3)));
    assert_eq!((find(b"etc/passwd").mode, find(b"etc/passwd").uid), (0o600, 0));
    let mount = Mount::new(&home.at("image"), "ro");
    assert_eq!(mount.join("dev/disk").metadata().expect("stat").rdev(), rustix::fs::makedev(8, 1));
    let seen = support::mount::facts(mount.path());
    mount.umount();
    judged(&home.at("image"), &seen);
}
