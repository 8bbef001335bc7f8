//! Rounds at the limit (`BUTTERY_SIM_ROUNDS=5` makes twenty of them): random writes, preallocation and clones until there is no space for any of them.
//!
//! Files that have their space are written over in place then, without being told that there is none: files marked NOCOW,
//! and preallocated space. Once all is deleted and committed, every byte of space is back.

use buttery::{Error, Fallocate, FileId, Filesystem, NewNode, Options, XattrMode};
use buttery_device::Device;
use buttery_disk::chunk::bg;
use buttery_disk::inode::flags;
use buttery_judge::check::btrfs_check_data;
use buttery_judge::workload::rng::Rng;
use buttery_judge::workload::{Data, Fill};
use buttery_judge::{Need, TempDir, need};
use buttery_mkfs::{MkfsOptions, Profile};
use buttery_sim::{facts, image};
use std::sync::Arc;

const BLOCK: u64 = 4096;
const ROUNDS: u64 = 4;
/// How long each file is that is written in place.
const OWN: u64 = 2 << 20;
/// Random writes into each of them when the file system is full.
const OVERWRITES: u64 = 150;
/// Metadata that may be used after a round beside what was before the first: there may be other block groups by then, and
/// so other items for them. Of data not a byte may be.
const TOLERANCE_NODES: u64 = 4;

/// Times change at every write here, so that a write in place has to change the inode.
fn open(device: &Arc<dyn Device>) -> Filesystem {
    let options = Options { clock: None, ..image::quiet() };
    Filesystem::open_devices_writable(vec![device.clone()], &options).unwrap_or_else(|e| panic!("open: {e}"))
}

fn random(rng: &mut Rng, len: u64) -> Vec<u8> {
    Data::new(Fill::Random, rng.next(), len as usize).bytes()
}

/// `true` if it was done, `false` if there was no space. Anything else ends the test.
fn done(what: &str, fs: &Filesystem, result: Result<(), Error>) -> bool {
    match result {
        Ok(()) => true,
        Err(Error::NoSpace) => false,
        Err(e) => panic!("{what}: {e:?} ({:?})", fs.engine().abort_reason()),
    }
}

/// Bytes used by data, metadata and system.
fn used(fs: &Filesystem) -> [u64; 3] {
    let groups = fs.engine().usage().expect("groups").groups;
    [bg::DATA, bg::METADATA, bg::SYSTEM]
        .map(|class| groups.iter().filter(|g| g.flags & class != 0).map(|g| g.used).sum())
}

/// Of the metadata groups, so much is used: in percent.
fn metadata_percent(fs: &Filesystem) -> u64 {
    let groups = fs.engine().usage().expect("groups").groups;
    let len: u64 = groups.iter().filter(|g| g.flags & bg::METADATA != 0).map(|g| g.len).sum();
    used(fs)[1] * 100 / len
}

/// A file whose space is taken before the file system is full, and what it holds.
struct Own {
    name: &'static str,
    id: FileId,
    bytes: Vec<u8>,
    nocow: bool,
}

struct Round<'a> {
    fs: &'a Filesystem,
    rng: Rng,
    dir: FileId,
    own: Vec<Own>,
    /// Files that fill the file system.
    files: Vec<FileId>,
    /// No write was refused yet.
    room: bool,
}

#[derive(Clone, Copy)]
enum How {
    Write,
    Allocate,
    Clone,
}

const ALL: [How; 3] = [How::Write, How::Allocate, How::Clone];
/// The operations with which a round begins.
const LARGE: u64 = 1 << 20;

impl Round<'_> {
    fn begin(fs: &Filesystem, seed: u64) -> Round<'_> {
        let dir = fs.create(fs.root(), b"round", NewNode::directory(0o755)).expect("a directory");
        let mut round =
            Round { fs, rng: Rng::new(seed), dir, own: Vec::new(), files: Vec::new(), room: true };
        // name, NOCOW, preallocated only
        for (name, nocow, space) in [
            ("nocow-0", true, false),
            ("nocow-1", true, false),
            ("nocow-2", true, true),
            ("space", false, true),
        ] {
            round.begin_own(name, nocow, space);
        }
        round.files = (0..8).map(|n| round.create(&format!("file-{n}"))).collect();
        round
    }

    /// Takes what space there is for metadata, which clones alone would do in no time that a test has.
    fn take_metadata(&self) {
        for n in 0.. {
            let name = format!("attribute-{n}");
            let made = self.fs.create(self.dir, name.as_bytes(), NewNode::file(0o644));
            let made = made.and_then(|id| self.fs.set_xattr(id, b"user.x", &[1; 3900], XattrMode::Any));
            if !done("an attribute", self.fs, made) {
                return;
            }
        }
    }

    fn create(&self, name: &str) -> FileId {
        self.fs.create(self.dir, name.as_bytes(), NewNode::file(0o644)).expect("a file")
    }

    fn begin_own(&mut self, name: &'static str, nocow: bool, space: bool) {
        let id = self.create(name);
        if nocow {
            let bits = flags::NODATACOW | flags::NODATASUM;
            self.fs.set_flags(id, bits, bits).expect("flags");
        }
        let mut bytes = vec![0; OWN as usize];
        if space {
            self.fs.fallocate(id, Fallocate::Allocate, 0, OWN, false).expect("space");
        } else {
            bytes = random(&mut self.rng, OWN);
            // in pieces, so that there is more than one extent
            for (n, piece) in bytes.chunks(OWN as usize / 4).enumerate() {
                self.fs.write(id, n as u64 * OWN / 4, piece).expect("a write");
            }
        }
        self.own.push(Own { name, id, bytes, nocow });
    }

    /// One operation of about `most` bytes. `false` if there was no space.
    fn step(&mut self, how: How, most: u64) -> bool {
        let fs = self.fs;
        let id = *self.rng.pick(&self.files).expect("files");
        let size = fs.stat(id).expect("stat").size;
        let len = most - if most > BLOCK { self.rng.below(most / 2) } else { 0 };
        let ok = match how {
            How::Write => {
                // some of it over what is there, but in the end that would go block by block, with a commit for each
                let from = if self.room && self.rng.one_in(4) { self.rng.below(size + 1) } else { size };
                let ok = done("write", fs, fs.write(id, from, &random(&mut self.rng, len)));
                self.room &= ok;
                ok
            }
            How::Allocate => done("fallocate", fs, fs.fallocate(id, Fallocate::Allocate, size, len, false)),
            // the rest of the space for metadata is not theirs yet
            How::Clone if most == LARGE && metadata_percent(fs) > 60 => false,
            How::Clone => self.clone_some(id, size.next_multiple_of(BLOCK), most * 16),
        };
        if self.rng.one_in(400) {
            done("sync", fs, fs.sync());
        }
        ok
    }

    /// Shares some of a file with the end of another.
    fn clone_some(&mut self, to: FileId, at: u64, most: u64) -> bool {
        let from = *self.rng.pick(&self.files).expect("files");
        let size = self.fs.stat(from).expect("stat").size / BLOCK * BLOCK;
        let offset = self.rng.below(size / BLOCK + 1) * BLOCK;
        let len = most.min(size - offset);
        len == 0 || done("clone", self.fs, self.fs.clone_range(from, offset, to, at, len))
    }

    /// Until none of the three finds space any more, be it for as little as a block.
    fn fill(&mut self) {
        self.fill_with(LARGE);
        self.take_metadata();
        self.fill_with(128 << 10);
        self.fill_with(BLOCK);
        while ALL.into_iter().any(|how| self.step(how, BLOCK)) {}
    }

    /// Each until it was refused a few times in a row: every refusal costs a commit.
    fn fill_with(&mut self, most: u64) {
        let mut left = ALL.map(|how| (how, 0)).to_vec();
        while !left.is_empty() {
            let at = self.rng.below(left.len() as u64) as usize;
            let ok = self.step(left[at].0, most);
            left[at].1 = if ok { 0 } else { left[at].1 + 1 };
            if left[at].1 == 4 {
                left.remove(at);
            }
        }
    }

    /// Writes into what has its space. None of it may be refused.
    fn write_over(&mut self) {
        let fs = self.fs;
        for own in &mut self.own {
            for (at, len) in ranges(&mut self.rng, own.nocow) {
                let data = random(&mut self.rng, len);
                fs.write(own.id, at, &data)
                    .unwrap_or_else(|e| panic!("{}: {len} bytes at {at} when full: {e}", own.name));
                own.bytes[at as usize..][..len as usize].copy_from_slice(&data);
                if self.rng.one_in(50) {
                    fs.sync().unwrap_or_else(|e| panic!("a commit when full: {e}"));
                }
            }
        }
    }
}

fn compare(fs: &Filesystem, all: &[Own]) {
    let mut found = vec![0; OWN as usize];
    for own in all {
        assert_eq!(fs.read(own.id, 0, &mut found).expect("a read"), found.len(), "{}", own.name);
        assert!(found == own.bytes, "{} holds something else", own.name);
    }
}

/// Where to write: anywhere and again in a file that is written in place; in preallocated space each block once, as it is
/// copied on write from then on.
fn ranges(rng: &mut Rng, nocow: bool) -> Vec<(u64, u64)> {
    if nocow {
        let mut range = || {
            let at = rng.below(OWN);
            (at, 1 + rng.below((OWN - at).min(64 << 10)))
        };
        return (0..OVERWRITES).map(|_| range()).collect();
    }
    let (mut parts, mut at) = (Vec::new(), 0);
    while at < OWN {
        let len = (1 + rng.below(8)) * BLOCK;
        parts.push((at, len.min(OWN - at)));
        at += len;
    }
    for n in (1..parts.len()).rev() {
        parts.swap(n, rng.below(n as u64 + 1) as usize);
    }
    parts
}

/// Removes everything, in no order. None of it may fail.
fn empty(fs: &Filesystem, rng: &mut Rng) {
    let dir = fs.lookup(fs.root(), b"round").expect("the directory");
    let mut names: Vec<_> = fs.entries(dir).expect("a list").into_iter().map(|e| e.name).collect();
    while !names.is_empty() {
        let name = names.swap_remove(rng.below(names.len() as u64) as usize);
        if rng.one_in(4) {
            let id = fs.lookup(dir, &name).expect("a file");
            fs.truncate(id, 0).unwrap_or_else(|e| panic!("truncate to nothing: {e}"));
        }
        fs.unlink(dir, &name).unwrap_or_else(|e| panic!("unlink: {e} ({:?})", fs.engine().abort_reason()));
    }
    fs.rmdir(fs.root(), b"round").expect("an empty directory");
}

fn judge(device: &Arc<dyn Device>, when: &str) {
    let Some(()) = need(&[Need::Program("btrfs")]) else { return };
    let dir = TempDir::new("full-rounds").expect("a folder");
    image::dump(&**device, &dir.join("image"));
    btrfs_check_data(&dir.join("image")).unwrap_or_else(|e| panic!("{when}: {e}"));
}

fn rounds(len: u64, options: &MkfsOptions) {
    let device = image::in_memory(len, options);
    let mut fs = open(&device);
    fs.sync().expect("a commit");
    let (before, available) = (used(&fs), fs.statfs().expect("sizes").available);
    let factor = std::env::var("BUTTERY_SIM_ROUNDS").ok();
    let factor: u64 = factor.map_or(1, |text| text.parse().expect("a number"));
    for n in 0..ROUNDS * factor {
        let when = format!("{:?} data, round {n}", options.data);
        let mut round = Round::begin(&fs, n);
        round.fill();
        let full = fs.statfs().expect("sizes").available;
        assert!(full < available / 50, "{when}: {full} of {available} bytes are available");
        round.write_over();
        compare(&fs, &round.own);
        let Round { own, mut rng, .. } = round;
        // now and then what is full is judged and opened anew
        if n % 3 == 0 {
            fs.close().unwrap_or_else(|e| panic!("{when}: close: {e}"));
            judge(&device, &format!("{when}, full"));
            fs = open(&device);
            compare(&fs, &own);
        }
        empty(&fs, &mut rng);
        fs.sync().unwrap_or_else(|e| panic!("{when}: a commit: {e}"));
        let after = used(&fs);
        let more = after[1].abs_diff(before[1]) / u64::from(options.nodesize);
        let same = after[0] == before[0] && after[2] == before[2] && more <= TOLERANCE_NODES;
        assert!(same, "{when}: data, metadata and system used were {before:?}, and are {after:?}");
    }
    assert_eq!(facts::walk(&fs).expect("a walk").len(), 1);
    fs.close().expect("close");
    judge(&device, "after the last round");
}

#[test]
fn single_data() {
    rounds(256 << 20, &MkfsOptions { nodesize: 16384, ..image::spread(0) });
}

#[test]
fn dup_data() {
    rounds(256 << 20, &MkfsOptions { nodesize: 4096, data: Profile::Dup, ..image::spread(1) });
}
