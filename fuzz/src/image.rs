//! A whole image: a sound one that the kernel made, with a few of its blocks changed and their checksums made right;
//! opened, walked, and everything in it read.
//!
//! The input is a list of changes: the image, the way to open it, then for each change the block, the kind of change
//! and its operands. So the fuzzer begins deep inside, where a mutation means something.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::{Arc, LazyLock};

use buttery::{FileId, Filesystem, Kind, Options};
use buttery_codec::CsumType;
use buttery_device::{Device, MemDevice};
use buttery_disk::node::{HEADER_LEN, ITEM_LEN, KEY_PTR_LEN};
use buttery_disk::superblock::{OFFSETS, SIZE};
use buttery_disk::{Node, objectid};

use super::blocks::{self, Block};
use super::golden;

/// How many changes are made at most.
const CHANGES_MAX: usize = 12;
/// How much of an image is looked at: all of most, a part of the largest.
const PATHS_MAX: usize = 300;
const READS_MAX: usize = 1000;
const FILE_READS_MAX: usize = 20;

/// How far an input came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub opened: bool,
    pub paths: usize,
    pub failures: usize,
}

/// A sound image in memory.
struct Base {
    devices: Vec<(u64, Arc<MemDevice>)>,
    csum: CsumType,
    nodesize: usize,
    /// The blocks of the trees that reading needs, and where each of their copies is.
    blocks: Vec<(Block, Vec<(u64, u64)>)>,
}

static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| (0..golden::NAMES.len()).map(base).collect());

/// Unpacks the images, which takes longer than any input may.
pub fn prepare() {
    LazyLock::force(&BASES);
}

fn base(n: usize) -> Base {
    let devices = golden::unpack(n);
    let fs = Filesystem::open_devices(golden::shared(&devices), &Options::default()).expect("a sound image");
    let volume = fs.engine().volume();
    let needed = |owner: u64| {
        objectid::is_subvolume(owner)
            || matches!(owner, objectid::ROOT_TREE | objectid::CHUNK_TREE | objectid::CSUM_TREE)
    };
    let found = blocks::all(&fs).into_iter().filter(|b| needed(b.owner));
    let blocks = found.map(|b| (b, blocks::places(&fs, b.bytenr))).collect();
    let id = |device: &MemDevice| {
        buttery_volume::read_super(device, 0).expect("a superblock").dev_item.devid.get()
    };
    Base {
        csum: volume.csum(),
        nodesize: volume.context().nodesize as usize,
        blocks,
        devices: devices.into_iter().map(|d| (id(&d), d)).collect(),
    }
}

/// A device with some blocks replaced.
struct Changed {
    name: String,
    below: Arc<MemDevice>,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl Device for Changed {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.below.read_at(offset, buf)?;
        let end = offset + buf.len() as u64;
        for (&at, bytes) in self.blocks.range(..end) {
            let (from, to) = (at.max(offset), (at + bytes.len() as u64).min(end));
            if from < to {
                let source = &bytes[(from - at) as usize..(to - at) as usize];
                buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[IoSlice<'_>]) -> io::Result<()> {
        panic!("reading writes nothing")
    }

    fn flush(&self) -> io::Result<()> {
        panic!("reading writes nothing")
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        panic!("reading writes nothing")
    }
}

/// The input, taken from the front; zeros when it is used up.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((&first, rest)) => {
                self.0 = rest;
                first
            }
            None => 0,
        }
    }

    fn short(&mut self) -> usize {
        usize::from(self.byte()) | usize::from(self.byte()) << 8
    }

    fn long(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// A number as an attacker would choose it.
    fn number(&mut self) -> u64 {
        const ODD: [u64; 16] = [
            0,
            1,
            2,
            255,
            256,
            257,
            4095,
            4096,
            65536,
            1 << 31,
            1 << 32,
            1 << 40,
            1 << 62,
            1 << 63,
            u64::MAX - 4095,
            u64::MAX,
        ];
        match self.byte() {
            choice @ 0..128 => ODD[usize::from(choice & 15)],
            128..192 => u64::from(self.byte()),
            192..224 => self.short() as u64 * 4096,
            _ => self.long(),
        }
    }
}

/// Takes a list of changes; tells how far it came.
pub fn image(data: &[u8]) -> Outcome {
    let mut input = Input(data);
    let base = &BASES[usize::from(input.byte()) % BASES.len()];
    let how = input.byte();
    let mut devices: Vec<(u64, Changed)> = base
        .devices
        .iter()
        .map(|(id, d)| {
            (*id, Changed { name: format!("device {id}"), below: d.clone(), blocks: BTreeMap::new() })
        })
        .collect();
    for _ in 0..CHANGES_MAX {
        if input.0.is_empty() {
            break;
        }
        change(base, &mut devices, &mut input);
    }
    let devices = devices.into_iter().map(|(_, d)| Arc::new(d) as Arc<dyn Device>).collect();
    let mut options = Options { cache_bytes: 1 << 20, degraded: how & 1 != 0, ..Options::default() };
    options.rescue.ignore_data_csums = how & 2 != 0;
    options.rescue.use_backup_root = how & 4 != 0;
    options.rescue.ignore_bad_roots = how & 8 != 0;
    options.subvolid = (how & 16 != 0).then_some(5);
    match Filesystem::open_devices(devices, &options) {
        Ok(fs) => look_at_everything(&fs),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            Outcome::default()
        }
    }
}

/// Makes one change to one block, in all its copies, and its checksum right.
fn change(base: &Base, devices: &mut [(u64, Changed)], input: &mut Input<'_>) {
    let which = input.short();
    let (size, places) = match which % 32 {
        0 => (SIZE, base.devices.iter().map(|(id, _)| (*id, OFFSETS[0])).collect()),
        _ => (base.nodesize, base.blocks[which % base.blocks.len()].1.clone()),
    };
    let kind = input.byte();
    let operands = input.0;
    for (devid, at) in places {
        input.0 = operands; // the same for each copy
        let Some((_, device)) = devices.iter_mut().find(|(id, _)| *id == devid) else { continue };
        let mut bytes = device.blocks.remove(&at).unwrap_or_else(|| {
            let mut bytes = vec![0; size];
            device.below.read_at(at, &mut bytes).expect("inside the device");
            bytes
        });
        alter(base, &mut bytes, kind, input);
        let sum = base.csum.sum(&bytes[32..]);
        bytes[..32].copy_from_slice(&sum);
        device.blocks.insert(at, bytes);
    }
}

fn alter(base: &Base, bytes: &mut [u8], kind: u8, input: &mut Input<'_>) {
    let tree_block = bytes.len() == base.nodesize && bytes[64..72] != *b"_BHRfS_M";
    let used = || {
        let node = Node::new(bytes);
        let width = if node.level() == 0 { ITEM_LEN } else { KEY_PTR_LEN };
        (node.nritems().clamp(1, (bytes.len() - HEADER_LEN) / width), node.level())
    };
    let width = [1, 2, 4, 8][usize::from(kind >> 4 & 3)];
    let at = match kind & 15 {
        // anywhere
        0..4 => input.short(),
        // the header's bytenr, flags, generation, owner, count, level
        4 if tree_block => [48, 56, 80, 88, 96, 100][usize::from(input.byte()) % 6],
        // a key, an item's place and size, a child's address and generation
        5..9 if tree_block => {
            let (n, level) = used();
            let slot = input.short() % n;
            match level {
                0 => HEADER_LEN + slot * ITEM_LEN + [0, 8, 9, 17, 21][usize::from(input.byte()) % 5],
                _ => HEADER_LEN + slot * KEY_PTR_LEN + [0, 8, 9, 17, 25][usize::from(input.byte()) % 5],
            }
        }
        // an item's data
        9..15 if tree_block => match item_data(bytes, input) {
            Some(at) => at,
            None => return point_elsewhere(base, bytes, input),
        },
        15 if tree_block => return point_elsewhere(base, bytes, input),
        _ => 32 + input.short() % (bytes.len() - 32),
    };
    let value = input.number().to_le_bytes();
    let at = at % bytes.len();
    let end = (at + width).min(bytes.len());
    bytes[at..end].copy_from_slice(&value[..end - at]);
}

/// A place in the data of one of a leaf's items.
fn item_data(bytes: &[u8], input: &mut Input<'_>) -> Option<usize> {
    let node = Node::new(bytes);
    let n = node.nritems().min((bytes.len() - HEADER_LEN) / ITEM_LEN);
    if node.level() != 0 || n == 0 {
        return None;
    }
    let item = node.item(input.short() % n);
    let within = input.short() % (item.size.get() as usize).max(1);
    Some(HEADER_LEN + item.offset.get() as usize + within)
}

/// Makes a child pointer lead to another block of the image.
fn point_elsewhere(base: &Base, bytes: &mut [u8], input: &mut Input<'_>) {
    let node = Node::new(bytes);
    let n = node.nritems().min((bytes.len() - HEADER_LEN) / KEY_PTR_LEN);
    if node.level() == 0 || n == 0 {
        return;
    }
    let at = HEADER_LEN + input.short() % n * KEY_PTR_LEN + 17;
    let (target, _) = base.blocks[input.short() % base.blocks.len()];
    bytes[at..at + 8].copy_from_slice(&target.bytenr.to_le_bytes());
    bytes[at + 8..at + 16].copy_from_slice(&target.generation.to_le_bytes());
}

/// Walks and reads within bounds. Failures are counted, and say something.
fn look_at_everything(fs: &Filesystem) -> Outcome {
    let mut seen = Outcome { opened: true, ..Outcome::default() };
    let mut reads = READS_MAX;
    let mut todo = vec![fs.root()];
    for subvolume in fs.subvolumes().into_iter().flatten() {
        todo.push(FileId::top_of(subvolume.id));
    }
    let mut entered = std::collections::HashSet::new();
    while let Some(id) = todo.pop() {
        seen.paths += 1;
        if seen.paths > PATHS_MAX {
            break;
        }
        if let Err(error) = look_at(fs, id, &mut reads, &mut entered, &mut todo) {
            assert!(!error.to_string().is_empty());
            seen.failures += 1;
        }
    }
    seen
}

fn look_at(
    fs: &Filesystem,
    id: FileId,
    reads: &mut usize,
    entered: &mut std::collections::HashSet<FileId>,
    todo: &mut Vec<FileId>,
) -> buttery::Result<()> {
    let stat = fs.stat(id)?;
    for (name, _) in fs.xattrs(id)? {
        fs.xattr(id, &name)?;
    }
    match stat.kind() {
        Kind::Directory => {
            let _ = fs.parent(id);
            if entered.insert(id) {
                for entry in fs.entries(id)?.into_iter().take(PATHS_MAX) {
                    let _ = fs.lookup(id, &entry.name);
                    todo.push(fs.follow(id, &entry.name, entry.target)?);
                }
            }
        }
        Kind::File => read(fs, id, stat.size, reads)?,
        Kind::Symlink => {
            let target = fs.read_link(id)?;
            let _ = fs.resolve(fs.root(), &target);
        }
        _ => {}
    }
    Ok(())
}

/// Reads where there are data, and a little of each end.
fn read(fs: &Filesystem, id: FileId, size: u64, reads: &mut usize) -> buttery::Result<()> {
    let mut buf = vec![0; 30_000];
    let (mut at, mut left) = (0, FILE_READS_MAX);
    while at < size && left > 0 && *reads > 0 {
        (left, *reads) = (left - 1, *reads - 1);
        let data = match fs.seek(id, at, true) {
            Ok(data) => data,
            Err(buttery::Error::NotFound) => break,
            Err(error) => return Err(error),
        };
        assert!(data >= at);
        let hole = fs.seek(id, data, false)?;
        assert!(hole > data, "data at {data}, and a hole at {hole}");
        let n = fs.read(id, data, &mut buf)?;
        assert!(n > 0 && n as u64 <= size - data);
        at = (data + n as u64).max(hole.min(data + (1 << 17)));
    }
    for offset in [0, size.saturating_sub(1000), size / 2 + 1] {
        let n = fs.read(id, offset, &mut buf[..3000])?;
        assert!(n as u64 <= size.saturating_sub(offset));
    }
    Ok(())
}
