//! fio writes through a mount in every way that the data path knows, and reads all of it back by checksums of its own; then
//! the image is judged. The long form (`BUTTERY_SIM_ROUNDS=8`) writes as many times as much.

mod support;

use std::path::Path;
use std::process::Command;

use buttery_judge::oracle::program;
use buttery_judge::{Need, TempDir, need};
use support::mount::{Mount, can_mount_and_judge};

/// A job: its name and what it does.
const JOBS: [(&str, &str); 9] = [
    ("s0", "--rw=randwrite --bsrange=4k-64k --direct=1 --numjobs=2 --size=16m"),
    ("nocow", "--rw=randwrite --bsrange=4k-64k --direct=1 --numjobs=2 --size=16m --directory=nocow"),
    ("s1-seq", "--rw=write --bs=8k --numjobs=4 --size=8m --fallocate=none"),
    ("s1-rnd", "--rw=randwrite --bs=8k --numjobs=4 --size=8m"),
    ("s2", "--rw=write --bs=1m --numjobs=2 --size=32m"),
    ("append", "--rw=write --bs=512 --numjobs=2 --size=4m --end_fsync=1"),
    ("ragged", "--rw=write --bs=520 --numjobs=2 --size=4m --fallocate=none"),
    ("mixed", "--rw=randrw --bs=4k --numjobs=2 --size=8m"),
    ("both-ways", "--rw=rw --bs=3k --numjobs=2 --size=4m --fallocate=none"),
];

fn fio(top: &Path, job: &str, what: &str, rounds: u32) {
    let mut command = Command::new(program("fio").expect("fio"));
    command.current_dir(top).arg(format!("--name={job}")).args(what.split(' '));
    command.args(["--ioengine=psync", "--verify=crc32c", "--verify_fatal=1", "--do_verify=1"]);
    command.args(["--group_reporting", &format!("--loops={rounds}")]);
    let out = command.output().expect("fio");
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("err= 0"), "{job}: {}\n{said}", out.status);
}

fn verify(options: &str) {
    let Some(()) = can_mount_and_judge() else { return };
    let Some(()) = need(&[Need::Program("fio"), Need::Program("chattr")]) else { return };
    let rounds: u32 = std::env::var("BUTTERY_SIM_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let dir = TempDir::new("verify").expect("a folder");
    let made = Mount::create(&dir, "2G");
    let image = made.image.clone();
    made.umount();
    let mount = Mount::new(&image, options);
    let nocow = mount.join("nocow");
    std::fs::create_dir(&nocow).expect("a folder");
    assert!(Command::new("chattr").arg("+C").arg(&nocow).status().expect("chattr").success());
    for (job, what) in JOBS {
        fio(mount.path(), job, what, rounds);
    }
    mount.judge();
}

#[test]
fn every_job_reads_back_what_it_wrote() {
    verify("");
}

#[test]
fn compressed_too() {
    verify("compress=zstd");
}
