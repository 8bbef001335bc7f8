//! File systems that are filled to the last byte and emptied again, several times.
//!
//! Whatever finds no space must say so and nothing else; deleting works on a full file system; all space comes back.

use buttery::{Error, FileId, Filesystem, NewNode, TreeId, XattrMode};
use buttery_codec::CsumType;
use buttery_device::{Device, MemDevice};
use buttery_disk::chunk::{BlockGroupItem, bg};
use buttery_disk::zerocopy::FromBytes;
use buttery_disk::{Key, item, objectid};
use buttery_judge::check::btrfs_check_data;
use buttery_judge::workload::rng::Rng;
use buttery_judge::{Need, TempDir, need};
use buttery_mkfs::{MkfsOptions, make};
use buttery_sim::{facts, image};
use std::io::{self, IoSlice};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    /// Few large files.
    Data,
    /// Names, small files and attributes.
    Metadata,
    /// Both, and overwriting.
    Mixed,
}

struct Filler<'a> {
    fs: &'a Filesystem,
    rng: Rng,
    dir: FileId,
    files: Vec<(Vec<u8>, FileId)>,
}

/// `true` if it was done, `false` if there was no space. Anything else ends the test.
fn done<T>(what: &str, fs: &Filesystem, result: Result<T, Error>) -> bool {
    match result {
        Ok(_) => true,
        Err(Error::NoSpace) => false,
        Err(e) => panic!("{what}: {e:?} ({:?})", fs.engine().abort_reason()),
    }
}

impl Filler<'_> {
    fn create(&mut self) -> Option<FileId> {
        let name = format!("file-{}", self.files.len()).into_bytes();
        match self.fs.create(self.dir, &name, NewNode::file(0o644)) {
            Ok(id) => {
                self.files.push((name, id));
                Some(id)
            }
            other => {
                done("create", self.fs, other);
                None
            }
        }
    }

    fn data(&mut self) -> bool {
        let Some(id) = self.create() else { return false };
        let bytes = vec![self.rng.next() as u8; 3 << 20];
        done("write", self.fs, self.fs.write(id, 0, &bytes))
    }

    fn metadata(&mut self) -> bool {
        let Some(id) = self.create() else { return false };
        let small = vec![1; self.rng.below(2000) as usize];
        let value = vec![2; self.rng.below(3000) as usize];
        done("small write", self.fs, self.fs.write(id, 0, &small))
            && done("xattr", self.fs, self.fs.set_xattr(id, b"user.x", &value, XattrMode::Any))
    }

    fn mixed(&mut self) -> bool {
        let some = self.rng.pick(&self.files).map(|(_, id)| *id);
        match (self.rng.below(4), some) {
            (0, Some(id)) => {
                let bytes = vec![3; self.rng.below(100_000) as usize];
                let at = self.rng.below(300_000);
                done("overwrite", self.fs, self.fs.write(id, at, &bytes))
            }
            (1, _) => self.metadata(),
            (2, Some(id)) => {
                let size = self.rng.below(200_000);
                done("truncate", self.fs, self.fs.truncate(id, size))
            }
            _ => {
                let Some(id) = self.create() else { return false };
                let bytes = vec![4; self.rng.below(400_000) as usize];
                done("write", self.fs, self.fs.write(id, 0, &bytes))
            }
        }
    }

    /// Until a dozen operations in a row found no space.
    fn fill(&mut self, how: Fill) {
        let mut refused = 0;
        while refused < 12 {
            let ok = match how {
                Fill::Data => self.data(),
                Fill::Metadata => self.metadata(),
                Fill::Mixed => self.mixed(),
            };
            refused = if ok { 0 } else { refused + 1 };
            if self.rng.one_in(300) {
                done("sync", self.fs, self.fs.sync());
            }
            assert!(self.files.len() < 300_000, "no end of space");
        }
    }

    /// Removes everything, in no order. None of it may fail.
    fn empty(&mut self) {
        while !self.files.is_empty() {
            let at = self.rng.below(self.files.len() as u64) as usize;
            let (name, id) = self.files.swap_remove(at);
            if self.rng.one_in(5) {
                self.fs.truncate(id, 0).unwrap_or_else(|e| {
                    panic!("truncate to nothing: {e}, nodes of {}", self.fs.engine().store().nodesize())
                });
            }
            self.fs.unlink(self.dir, &name).unwrap_or_else(|e| {
                panic!("unlink with {} left: {e} ({:?})", self.files.len(), self.fs.engine().abort_reason())
            });
        }
    }
}

fn judge(device: &Arc<dyn Device>, when: &str) {
    let Some(()) = need(&[Need::Program("btrfs")]) else { return };
    let dir = TempDir::new("full").expect("a folder");
    image::dump(&**device, &dir.join("image"));
    btrfs_check_data(&dir.join("image")).unwrap_or_else(|e| panic!("{when}: {e}"));
}

fn rounds(len: u64, options: &MkfsOptions, seed: u64, how: &[Fill]) {
    let device = image::in_memory(len, options);
    let mut fs = image::open(&device);
    let free = fs.statfs().expect("sizes").available;
    for (round, how) in how.iter().enumerate() {
        let when = format!("{len} bytes, nodes of {}, round {round}, {how:?}", options.nodesize);
        let dir = fs.create(fs.root(), b"dir", NewNode::directory(0o755)).expect("a directory");
        let rng = Rng::new(seed + round as u64);
        let mut filler = Filler { fs: &fs, rng, dir, files: Vec::new() };
        filler.fill(*how);
        let (files, full) = (filler.files.len(), fs.statfs().expect("sizes").available);
        if *how != Fill::Metadata {
            assert!(full < free / 10, "{when}: {full} of {free} bytes free when full with {files} files");
        }
        done("sync", &fs, fs.sync());
        judge(&device, &format!("{when}, full"));
        filler.empty();
        fs.rmdir(fs.root(), b"dir").expect("an empty directory");
        fs.close().unwrap_or_else(|e| panic!("{when}: close: {e}"));
        judge(&device, &format!("{when}, empty"));
        fs = image::open(&device);
        assert_eq!(facts::walk(&fs).expect("a walk").len(), 1, "{when}");
        let groups = groups(&fs);
        let used: u64 = groups.iter().map(|g| g.3).sum();
        assert!(used < 64 * options.nodesize as u64, "{when}: {used} bytes are still used: {groups:?}");
        for class in [bg::DATA, bg::METADATA] {
            let of_class: Vec<_> = groups.iter().filter(|g| g.2 & class != 0).collect();
            let empty = of_class.iter().filter(|g| g.3 == 0).count();
            assert!(empty <= 1, "{when}: empty groups are left: {groups:?}");
        }
    }
}

/// The block groups: address, length, type, bytes used.
fn groups(fs: &Filesystem) -> Vec<(u64, u64, u64, u64)> {
    let engine = fs.engine();
    let id = TreeId(objectid::BLOCK_GROUP_TREE);
    let tree = engine.tree(id).or_else(|_| engine.tree(TreeId(objectid::EXTENT_TREE))).expect("groups");
    let view = tree.read(engine.store());
    let mut cursor = view.seek(Key::MIN).expect("a cursor");
    let mut out = Vec::new();
    while let Some((key, data)) = cursor.item() {
        if let (item::BLOCK_GROUP_ITEM, Ok(group)) = (key.kind, BlockGroupItem::read_from_bytes(data)) {
            out.push((key.objectid, key.offset, group.flags.get(), group.used.get()));
        }
        cursor.advance().expect("the next item");
    }
    out
}

const ALL: [Fill; 5] = [Fill::Data, Fill::Metadata, Fill::Mixed, Fill::Metadata, Fill::Data];

fn options(nodesize: u32, seed: u64) -> MkfsOptions {
    MkfsOptions { nodesize, ..image::spread(seed) }
}

#[test]
fn nodes_of_4k() {
    rounds(128 << 20, &options(4096, 1), 1, &ALL);
}

#[test]
fn nodes_of_16k() {
    rounds(256 << 20, &options(16384, 2), 2, &ALL);
    rounds(128 << 20, &options(16384, 3), 3, &[Fill::Mixed; 5]);
}

#[test]
fn nodes_of_64k() {
    rounds(256 << 20, &options(65536, 4), 4, &ALL);
}

/// Large files with long checksums in small nodes: deleting one changes few extents, but many leaves of checksums.
#[test]
fn checksums_of_large_files() {
    let options = MkfsOptions { csum: CsumType::Sha256, ..options(4096, 5) };
    let device: Arc<dyn Device> = Arc::new(Hollow(MemDevice::new("hollow", 6 << 30)));
    make(&device, &options).expect("mkfs");
    let fs = image::open(&device);
    let mut filler = Filler { fs: &fs, rng: Rng::new(5), dir: fs.root(), files: Vec::new() };
    let bytes = vec![0; 64 << 20];
    while filler.create().is_some_and(|id| done("write", &fs, fs.write(id, 0, &bytes))) {}
    fs.sync().expect("a commit");
    let large = filler.files.clone();
    while filler
        .create()
        .is_some_and(|id| done("xattr", &fs, fs.set_xattr(id, b"user.x", &[1; 3900], XattrMode::Any)))
    {}
    filler.fill(Fill::Metadata);
    for (name, _) in &large {
        fs.unlink(fs.root(), name).unwrap_or_else(|e| panic!("unlink: {e}"));
    }
    fs.sync().unwrap_or_else(|e| panic!("commit: {e}"));
    fs.close().unwrap_or_else(|e| panic!("close: {e}"));
    judge(&device, "without the large files");
}

/// A device that keeps no zeros.
struct Hollow(MemDevice);

impl Device for Hollow {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        // a large buffer of zeros is a file's data, and nothing else is written where those go
        let hollow = bufs.iter().all(|b| b.len() >= 1 << 20 && b.iter().all(|&byte| byte == 0));
        if hollow { Ok(()) } else { self.0.write_at(offset, bufs) }
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Several threads fill and empty at once.
#[test]
fn four_threads() {
    for seed in 0..3 {
        let device = image::in_memory(192 << 20, &options([4096, 16384, 65536][seed as usize], seed));
        let fs = image::open(&device);
        for round in 0..3u64 {
            std::thread::scope(|scope| {
                for n in 0..4u64 {
                    let fs = &fs;
                    scope.spawn(move || {
                        let name = format!("dir-{n}").into_bytes();
                        let dir =
                            fs.create(fs.root(), &name, NewNode::directory(0o755)).expect("a directory");
                        let rng = Rng::new(seed * 100 + round * 10 + n);
                        let mut filler = Filler { fs, rng, dir, files: Vec::new() };
                        filler.fill([Fill::Mixed, Fill::Metadata, Fill::Mixed, Fill::Data][n as usize]);
                        filler.empty();
                        fs.rmdir(fs.root(), &name).unwrap_or_else(|e| panic!("rmdir: {e}"));
                    });
                }
            });
            fs.sync().expect("a commit");
            judge(&device, &format!("seed {seed}, round {round}"));
        }
        fs.close().unwrap_or_else(|e| panic!("close: {e}"));
        judge(&device, &format!("seed {seed}, closed"));
    }
}
