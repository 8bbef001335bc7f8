//! The mechanisms of the data path in both of their forms: the same comes out, with the work that each promises.

use buttery::count::{self, Counts};
use buttery::{FileId, Filesystem, Mechanisms, NewNode, Options, ReadLookup, Replace};
use buttery_device::Device;
use buttery_judge::check::btrfs_check_data;
use buttery_judge::workload::rng::Rng;
use buttery_judge::{Need, TempDir, need};
use buttery_mkfs::MkfsOptions;
use buttery_sim::image;
use std::sync::Arc;

const BLOCK: usize = 4096;

fn open(device: &Arc<dyn Device>, mechanisms: Mechanisms) -> Filesystem {
    let options = Options { mechanisms, ..image::quiet() };
    Filesystem::open_devices_writable(vec![device.clone()], &options).expect("open")
}

/// What an operation has done to trees.
fn counted(operation: impl FnOnce()) -> Counts {
    let before = count::of_this_thread();
    operation();
    count::of_this_thread().since(before)
}

fn file(fs: &Filesystem, name: &str) -> FileId {
    fs.create(fs.root(), name.as_bytes(), NewNode::file(0o644)).expect("a file")
}

#[test]
fn a_read_searches_the_checksum_tree_once() {
    let device = image::in_memory(256 << 20, &MkfsOptions::default());
    let data: Vec<u8> = (0..1 << 20).map(|i: u32| (i / 7) as u8).collect();
    let fs = open(&device, Mechanisms::default());
    let id = file(&fs, "file");
    fs.write(id, 0, &data).expect("a write");
    fs.close().expect("close");
    let mut descents = Vec::new();
    for read_lookup in [ReadLookup::Whole, ReadLookup::Sector] {
        let fs = open(&device, Mechanisms { read_lookup, ..Mechanisms::default() });
        for blocks in [1, 16, 256] {
            let mut buf = vec![0; blocks * BLOCK];
            let counts = counted(|| assert_eq!(fs.read(id, 0, &mut buf).expect("a read"), buf.len()));
            assert!(buf[..] == data[..buf.len()], "{read_lookup:?}, {blocks} blocks");
            descents.push(counts.descents);
        }
        fs.close().expect("close");
    }
    // the inode the first time; then the extents and the checksums
    let [first, b, c, slow_first, slow_b, slow_c] = descents[..] else { panic!("{descents:?}") };
    assert_eq!((b, c), (2, 2), "{descents:?}");
    assert_eq!((slow_b, slow_c), (1 + 16, 1 + 256), "{descents:?}");
    assert_eq!((first, slow_first), (3, 3), "{descents:?}");
}

#[test]
fn one_descent_replaces_an_extent() {
    let mut sums = Vec::new();
    for replace in [Replace::DropAndInsert, Replace::Fused] {
        let device = image::in_memory(256 << 20, &MkfsOptions::default());
        let fs = open(&device, Mechanisms { replace, ..Mechanisms::default() });
        let id = file(&fs, "file");
        let mut model = vec![1; 64 * BLOCK];
        fs.write(id, 0, &model).expect("a write");
        let mut rng = Rng::new(7);
        let mut descents = 0;
        for n in 0..200u64 {
            let len = (1 + rng.below(4)) as usize * BLOCK;
            let at = rng.below((model.len() - len) as u64 / BLOCK as u64 + 1) as usize * BLOCK;
            let data = vec![n as u8; len];
            descents += counted(|| fs.write(id, at as u64, &data).expect("a write")).descents;
            model[at..at + len].copy_from_slice(&data);
        }
        let mut seen = vec![0; model.len()];
        fs.read(id, 0, &mut seen).expect("a read");
        assert!(seen == model, "{replace:?}");
        sums.push(descents);
        fs.close().expect("close");
        if need(&[Need::Program("btrfs")]).is_some() {
            let dir = TempDir::new("replace").expect("a folder");
            image::dump(&*device, &dir.join("i"));
            btrfs_check_data(&dir.join("i")).unwrap_or_else(|e| panic!("{replace:?}: {e}"));
        }
    }
    let [apart, fused] = sums[..] else { panic!("{sums:?}") };
    assert!(fused + 200 <= apart, "{fused} descents, {apart} in two steps, for 200 writes");
}
