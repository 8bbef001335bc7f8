//! The least file system that can be opened: three chunks, every tree a single leaf.
//!
//! ```text
//! device: 0 .. 1 MiB kept free | 13 MiB data 8 MiB | 21 MiB system 8 MiB (twice if dup) | metadata (twice if dup) | ...
//! ```

use crate::{Error, MkfsOptions, Profile, uuid_for};
use buttery::Time;
use buttery_device::Device;
use buttery_disk::check::sb::STRIPE_LEN;
use buttery_disk::chunk::{BlockGroupItem, ChunkItem, DevExtent, DevItem, FreeSpaceInfo, Stripe, bg};
use buttery_disk::extent::{BackRef, ExtentItem, flags as extent_flags};
use buttery_disk::inode::{InodeItem, InodeRef, flags as inode_flags, mode};
use buttery_disk::key::DiskKey;
use buttery_disk::node::flags::{MIXED_BACKREF_REV, WRITTEN};
use buttery_disk::root::RootItem;
use buttery_disk::superblock::{MAGIC, OFFSETS, SIZE, Superblock, compat_ro, incompat};
use buttery_disk::zerocopy::IntoBytes;
use buttery_disk::{Key, edit, item, objectid};
use std::io::{self, IoSlice};

const DATA_START: u64 = 13 << 20;
const SMALL_CHUNK: u64 = 8 << 20;
const GENERATION: u64 = 1;

/// One of the three chunks.
#[derive(Clone, Debug)]
struct Chunk {
    kind: u64,
    logical: u64,
    len: u64,
    stripes: Vec<u64>,
}

/// Everything that is decided before the first byte is written.
pub struct Plan {
    pub fsid: [u8; 16],
    pub size: u64,
    pub now: Time,
    /// The uuid of the top-level subvolume.
    pub top_uuid: [u8; 16],
    chunk_uuid: [u8; 16],
    dev_uuid: [u8; 16],
    data: Chunk,
    system: Chunk,
    metadata: Chunk,
    nodesize: u64,
}

/// The trees of the first layout, in the order of their blocks in the metadata chunk; the chunk tree has its own.
fn trees(options: &MkfsOptions) -> Vec<u64> {
    let mut all = vec![
        objectid::ROOT_TREE,
        objectid::EXTENT_TREE,
        objectid::DEV_TREE,
        objectid::FS_TREE,
        objectid::CSUM_TREE,
        objectid::FREE_SPACE_TREE,
    ];
    if options.block_group_tree {
        all.push(objectid::BLOCK_GROUP_TREE);
    }
    all
}

impl Plan {
    pub fn new(device_len: u64, options: &MkfsOptions) -> Result<Plan, Error> {
        let sector = options.sectorsize as u64;
        let size = options.byte_count.unwrap_or(device_len) / sector * sector;
        if size > device_len {
            return Err(Error::Invalid(format!("the device has {device_len} bytes, fewer than {size}")));
        }
        let copies = |profile| if profile == Profile::Dup { 2 } else { 1 };
        let flag = |profile| if profile == Profile::Dup { bg::DUP } else { 0 };
        let (meta_copies, data_copies) = (copies(options.metadata), copies(options.data));
        let most = if size > 50 << 30 { 1 << 30 } else { 256 << 20 };
        let meta_len = (size / 10 / STRIPE_LEN * STRIPE_LEN).clamp(32 << 20, most);
        let (mut at, mut logical) = (DATA_START, DATA_START);
        let mut chunk = |kind: u64, len: u64, copies: u64| {
            let stripes = (0..copies).map(|i| at + i * len).collect();
            let chunk = Chunk { kind, logical, len, stripes };
            at += copies * len;
            logical += len;
            chunk
        };
        let data = chunk(bg::DATA | flag(options.data), SMALL_CHUNK, data_copies);
        let system = chunk(bg::SYSTEM | flag(options.metadata), SMALL_CHUNK, meta_copies);
        let metadata = chunk(bg::METADATA | flag(options.metadata), meta_len, meta_copies);
        if at > size {
            return Err(Error::Invalid(format!(
                "{size} bytes are too few: with these profiles a file system has at least {at}"
            )));
        }
        let now = options.time.unwrap_or_else(|| {
            let since =
                std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            Time { sec: since.as_secs() as i64, nsec: since.subsec_nanos() }
        });
        let fsid = match options.uuid {
            Some(uuid) => uuid,
            None => uuid_for(options, 0)?,
        };
        Ok(Plan {
            fsid,
            size,
            now,
            top_uuid: uuid_for(options, 1)?,
            chunk_uuid: uuid_for(options, 2)?,
            dev_uuid: uuid_for(options, 3)?,
            data,
            system,
            metadata,
            nodesize: options.nodesize as u64,
        })
    }

    /// Bytes of the system, metadata and data chunks.
    pub fn chunk_sizes(&self) -> [u64; 3] {
        [self.system.len, self.metadata.len, self.data.len]
    }

    fn chunks(&self) -> [&Chunk; 3] {
        [&self.data, &self.system, &self.metadata]
    }

    fn bytenr(&self, index: usize) -> u64 {
        self.metadata.logical + index as u64 * self.nodesize
    }

    fn used(&self, chunk: &Chunk, options: &MkfsOptions) -> u64 {
        match chunk.kind & bg::TYPE_MASK {
            bg::SYSTEM => self.nodesize,
            bg::METADATA => trees(options).len() as u64 * self.nodesize,
            _ => 0,
        }
    }

    fn device_used(&self) -> u64 {
        self.chunks().iter().map(|c| c.len * c.stripes.len() as u64).sum()
    }

    fn dev_item(&self, options: &MkfsOptions) -> DevItem {
        DevItem {
            devid: 1.into(),
            total_bytes: self.size.into(),
            bytes_used: self.device_used().into(),
            io_align: options.sectorsize.into(),
            io_width: options.sectorsize.into(),
            sector_size: options.sectorsize.into(),
            kind: 0.into(),
            generation: 0.into(),
            start_offset: 0.into(),
            dev_group: 0.into(),
            seek_speed: 0,
            bandwidth: 0,
            uuid: self.dev_uuid,
            fsid: self.fsid,
        }
    }

    fn chunk_item(&self, chunk: &Chunk, options: &MkfsOptions) -> Vec<u8> {
        let fixed = ChunkItem {
            length: chunk.len.into(),
            owner: objectid::EXTENT_TREE.into(),
            stripe_len: STRIPE_LEN.into(),
            kind: chunk.kind.into(),
            io_align: (STRIPE_LEN as u32).into(),
            io_width: (STRIPE_LEN as u32).into(),
            sector_size: options.sectorsize.into(),
            num_stripes: (chunk.stripes.len() as u16).into(),
            sub_stripes: 1.into(),
        };
        let mut out = fixed.as_bytes().to_vec();
        for &offset in &chunk.stripes {
            let stripe = Stripe { devid: 1.into(), offset: offset.into(), dev_uuid: self.dev_uuid };
            out.extend_from_slice(stripe.as_bytes());
        }
        out
    }
}

type Items = Vec<(Key, Vec<u8>)>;

fn chunk_key(chunk: &Chunk) -> Key {
    Key::new(objectid::FIRST_CHUNK_TREE, item::CHUNK_ITEM, chunk.logical)
}

fn chunk_tree(plan: &Plan, options: &MkfsOptions) -> Items {
    let key = Key::new(objectid::DEV_ITEMS, item::DEV_ITEM, 1);
    let mut items = vec![(key, plan.dev_item(options).as_bytes().to_vec())];
    items.extend(plan.chunks().map(|c| (chunk_key(c), plan.chunk_item(c, options))));
    items
}

fn dev_tree(plan: &Plan) -> Items {
    let mut items = Items::new();
    for chunk in plan.chunks() {
        for &physical in &chunk.stripes {
            let extent = DevExtent {
                chunk_tree: objectid::CHUNK_TREE.into(),
                chunk_objectid: objectid::FIRST_CHUNK_TREE.into(),
                chunk_offset: chunk.logical.into(),
                length: chunk.len.into(),
                chunk_tree_uuid: plan.chunk_uuid,
            };
            items.push((Key::new(1, item::DEV_EXTENT, physical), extent.as_bytes().to_vec()));
        }
    }
    items
}

fn group_items(plan: &Plan, options: &MkfsOptions) -> Items {
    let item = |chunk: &Chunk| {
        let group = BlockGroupItem {
            used: plan.used(chunk, options).into(),
            chunk_objectid: objectid::FIRST_CHUNK_TREE.into(),
            flags: chunk.kind.into(),
        };
        (Key::new(chunk.logical, item::BLOCK_GROUP_ITEM, chunk.len), group.as_bytes().to_vec())
    };
    plan.chunks().map(item).to_vec()
}

fn extent_tree(plan: &Plan, options: &MkfsOptions) -> Items {
    let mut blocks: Vec<(u64, u64)> = vec![(plan.system.logical, objectid::CHUNK_TREE)];
    blocks.extend(trees(options).into_iter().enumerate().map(|(i, tree)| (plan.bytenr(i), tree)));
    let mut items: Items = blocks
        .into_iter()
        .map(|(bytenr, root)| {
            let fixed = ExtentItem {
                refs: 1.into(),
                generation: GENERATION.into(),
                flags: extent_flags::TREE_BLOCK.into(),
            };
            let data = [fixed.as_bytes(), &BackRef::TreeBlock { root }.inline_bytes(1)].concat();
            (Key::new(bytenr, item::METADATA_ITEM, 0), data)
        })
        .collect();
    if !options.block_group_tree {
        items.extend(group_items(plan, options));
    }
    items.sort_by_key(|(key, _)| *key);
    items
}

fn free_space_tree(plan: &Plan, options: &MkfsOptions) -> Items {
    let mut items = Items::new();
    for chunk in plan.chunks() {
        let used = plan.used(chunk, options);
        let info = FreeSpaceInfo { extent_count: 1.into(), flags: 0.into() };
        items.push((Key::new(chunk.logical, item::FREE_SPACE_INFO, chunk.len), info.as_bytes().to_vec()));
        let key = Key::new(chunk.logical + used, item::FREE_SPACE_EXTENT, chunk.len - used);
        items.push((key, Vec::new()));
    }
    items
}

fn fs_tree(plan: &Plan) -> Items {
    let now = plan.now.into();
    let inode = InodeItem {
        generation: GENERATION.into(),
        transid: GENERATION.into(),
        nbytes: plan.nodesize.into(),
        nlink: 1.into(),
        mode: (mode::DIR | 0o755).into(),
        atime: now,
        ctime: now,
        mtime: now,
        otime: now,
        ..InodeItem::default()
    };
    let dots = InodeRef { index: 0.into(), name_len: 2.into() };
    let top = objectid::FIRST_FREE;
    vec![
        (Key::new(top, item::INODE_ITEM, 0), inode.as_bytes().to_vec()),
        (Key::new(top, item::INODE_REF, top), [dots.as_bytes(), b".."].concat()),
    ]
}

fn root_tree(plan: &Plan, options: &MkfsOptions) -> Items {
    let mut items: Items = trees(options)
        .into_iter()
        .enumerate()
        .filter(|(_, tree)| *tree != objectid::ROOT_TREE)
        .map(|(i, tree)| {
            let root = first_root_item(plan, tree, plan.bytenr(i));
            (Key::new(tree, item::ROOT_ITEM, 0), root.as_bytes().to_vec())
        })
        .collect();
    items.sort_by_key(|(key, _)| *key);
    items
}

fn first_root_item(plan: &Plan, tree: u64, bytenr: u64) -> RootItem {
    let mut root = RootItem::zeroed();
    root.inode = InodeItem {
        generation: 1.into(),
        size: 3.into(),
        nbytes: plan.nodesize.into(),
        nlink: 1.into(),
        mode: (mode::DIR | 0o755).into(),
        ..InodeItem::default()
    };
    root.generation = GENERATION.into();
    root.generation_v2 = GENERATION.into();
    root.bytenr = bytenr.into();
    root.bytes_used = plan.nodesize.into();
    root.refs = 1.into();
    if tree == objectid::FS_TREE {
        root.inode.flags = inode_flags::ROOT_ITEM_INIT.into();
        root.root_dirid = objectid::FIRST_FREE.into();
        root.uuid = plan.top_uuid;
        root.ctime = plan.now.into();
        root.otime = plan.now.into();
    }
    root
}

fn block(plan: &Plan, options: &MkfsOptions, bytenr: u64, owner: u64, items: &Items) -> Vec<u8> {
    let mut bytes = vec![0; plan.nodesize as usize];
    edit::init(&mut bytes, 0);
    let header = edit::header_mut(&mut bytes);
    header.bytenr = bytenr.into();
    header.fsid = plan.fsid;
    header.chunk_tree_uuid = plan.chunk_uuid;
    header.generation = GENERATION.into();
    header.owner = owner.into();
    header.flags = (MIXED_BACKREF_REV | WRITTEN).into();
    for (slot, (key, data)) in items.iter().enumerate() {
        edit::insert_item(&mut bytes, slot, *key, data);
    }
    let sum = options.csum.sum(&bytes[32..]);
    bytes[..32].copy_from_slice(&sum);
    bytes
}

fn superblock(plan: &Plan, options: &MkfsOptions) -> Superblock {
    let mut sb = Superblock::zeroed();
    sb.fsid = plan.fsid;
    sb.flags = WRITTEN.into();
    sb.magic = MAGIC.into();
    sb.generation = GENERATION.into();
    sb.root = plan.bytenr(0).into();
    sb.chunk_root = plan.system.logical.into();
    sb.chunk_root_generation = GENERATION.into();
    sb.total_bytes = plan.size.into();
    sb.bytes_used = plan.chunks().iter().map(|c| plan.used(c, options)).sum::<u64>().into();
    sb.root_dir_objectid = objectid::ROOT_TREE_DIR.into();
    sb.num_devices = 1.into();
    sb.sectorsize = options.sectorsize.into();
    sb.nodesize = options.nodesize.into();
    sb.leafsize = options.nodesize.into();
    sb.stripesize = options.sectorsize.into();
    sb.incompat_flags = (incompat::MIXED_BACKREF
        | incompat::BIG_METADATA
        | incompat::EXTENDED_IREF
        | incompat::SKINNY_METADATA
        | incompat::NO_HOLES)
        .into();
    let groups = if options.block_group_tree { compat_ro::BLOCK_GROUP_TREE } else { 0 };
    sb.compat_ro_flags = (compat_ro::FREE_SPACE_TREE | compat_ro::FREE_SPACE_TREE_VALID | groups).into();
    sb.csum_type = options.csum.to_disk().into();
    sb.dev_item = plan.dev_item(options);
    sb.label[..options.label.len()].copy_from_slice(&options.label);
    // the UUID tree is made with the next commit, and is whole from then on
    sb.uuid_tree_generation = GENERATION.into();
    let key = DiskKey::from(chunk_key(&plan.system));
    let entry = [key.as_bytes(), &plan.chunk_item(&plan.system, options)].concat();
    sb.sys_chunk_array[..entry.len()].copy_from_slice(&entry);
    sb.sys_chunk_array_size = (entry.len() as u32).into();
    sb
}

/// Writes blocks, then superblocks.
pub fn write(device: &dyn Device, plan: &Plan, options: &MkfsOptions) -> io::Result<()> {
    let put = |chunk: &Chunk, bytenr: u64, bytes: &[u8]| {
        chunk.stripes.iter().try_for_each(|&stripe| {
            device.write_at(stripe + (bytenr - chunk.logical), &[IoSlice::new(bytes)])
        })
    };
    let chunk_items = chunk_tree(plan, options);
    let bytes = block(plan, options, plan.system.logical, objectid::CHUNK_TREE, &chunk_items);
    put(&plan.system, plan.system.logical, &bytes)?;
    for (i, tree) in trees(options).into_iter().enumerate() {
        let items = match tree {
            objectid::ROOT_TREE => root_tree(plan, options),
            objectid::EXTENT_TREE => extent_tree(plan, options),
            objectid::DEV_TREE => dev_tree(plan),
            objectid::FS_TREE => fs_tree(plan),
            objectid::FREE_SPACE_TREE => free_space_tree(plan, options),
            objectid::BLOCK_GROUP_TREE => group_items(plan, options),
            _ => Items::new(),
        };
        put(&plan.metadata, plan.bytenr(i), &block(plan, options, plan.bytenr(i), tree, &items))?;
    }
    device.flush()?;
    let sb = superblock(plan, options);
    for offset in OFFSETS.into_iter().filter(|o| o + SIZE as u64 <= plan.size) {
        let mut copy = sb.clone();
        copy.bytenr = offset.into();
        copy.csum = options.csum.sum(&copy.as_bytes()[32..]);
        device.write_at(offset, &[IoSlice::new(copy.as_bytes())])?;
    }
    Ok(())
}
