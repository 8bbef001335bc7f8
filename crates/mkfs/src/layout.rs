//! The least file system that can be opened: three chunks, every tree a single leaf.
//!
//! ```text
//! device: 0 .. 1 MiB kept free | 13 MiB data 8 MiB | 21 MiB system 8 MiB (twice if dup) | metadata (twice if dup) | ...
//! ```
//!
//! With several devices, each chunk takes those that have the most room, as many as its profile asks for.

use crate::{Error, MkfsOptions, uuid_for};
use buttery::Time;
use buttery_device::Device;
use buttery_disk::check::sb::STRIPE_LEN;
use buttery_disk::chunk::{BlockGroupItem, ChunkItem, DevExtent, DevItem, FreeSpaceInfo, Stripe, bg};
use buttery_disk::extent::{BackRef, ExtentItem, flags as extent_flags};
use buttery_disk::inode::{InodeItem, InodeRef, flags as inode_flags, mode};
use buttery_disk::key::DiskKey;
use buttery_disk::node::flags::{MIXED_BACKREF_REV, WRITTEN};
use buttery_disk::node::{ITEM_LEN, leaf_data_size};
use buttery_disk::profile::Profile;
use buttery_disk::root::RootItem;
use buttery_disk::superblock::{MAGIC, OFFSETS, SIZE, Superblock, compat_ro, incompat};
use buttery_disk::zerocopy::IntoBytes;
use buttery_disk::{Key, edit, item, objectid};
use buttery_volume::Chunk;
use std::io::{self, IoSlice};
use std::sync::Arc;

const DATA_START: u64 = 13 << 20;
const SMALL_CHUNK: u64 = 8 << 20;
const GENERATION: u64 = 1;
/// So many stripes of a system chunk leave room for a second one in the superblock.
const SYSTEM_STRIPES_MAX: usize = 28;

/// One of the devices.
#[derive(Clone, Debug)]
struct Member {
    devid: u64,
    size: u64,
    uuid: [u8; 16],
    /// Where what is not taken begins.
    end: u64,
}

/// Everything that is decided before the first byte is written.
pub struct Plan {
    pub fsid: [u8; 16],
    /// Bytes of all devices.
    pub size: u64,
    pub now: Time,
    /// The uuid of the top-level subvolume.
    pub top_uuid: [u8; 16],
    chunk_uuid: [u8; 16],
    members: Vec<Member>,
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

/// The devices, as large as they are to be.
fn members(devices: &[Arc<dyn Device>], options: &MkfsOptions) -> Result<Vec<Member>, Error> {
    let sector = options.sectorsize as u64;
    let member = |(i, device): (usize, &Arc<dyn Device>)| {
        let len = device.len_bytes();
        let size = options.byte_count.unwrap_or(len) / sector * sector;
        if size > len {
            return Err(Error::Invalid(format!(
                "{}: the device has {len} bytes, fewer than {size}",
                device.name()
            )));
        }
        // the numbers after the first's are those of nothing else
        let uuid = uuid_for(options, if i == 0 { 3 } else { 100 + i as u64 })?;
        Ok(Member { devid: i as u64 + 1, size, uuid, end: DATA_START })
    };
    devices.iter().enumerate().map(member).collect()
}

/// Takes a place for a chunk from the devices.
fn place(
    members: &mut [Member],
    kind: u64,
    profile: Profile,
    logical: u64,
    len: u64,
) -> Result<Chunk, Error> {
    let shape = profile.shape();
    let most = if kind == bg::SYSTEM { SYSTEM_STRIPES_MAX } else { usize::MAX };
    let most = shape.devices_max.unwrap_or(usize::MAX).min(most).min(members.len());
    let count = most / shape.devices_step * shape.devices_step;
    if count < shape.devices_min {
        return Err(Error::Invalid(format!(
            "profile {} takes at least {} devices, there are {}",
            profile.name(),
            shape.devices_min,
            members.len()
        )));
    }
    let parts = (count * shape.stripes_per_device / shape.copies) as u64;
    let size = len.div_ceil(parts).next_multiple_of(STRIPE_LEN);
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(members[i].size.saturating_sub(members[i].end)));
    let mut stripes = Vec::new();
    for i in order.into_iter().take(count) {
        let member = &mut members[i];
        for _ in 0..shape.stripes_per_device {
            stripes.push((member.devid, member.end));
            member.end += size;
        }
    }
    Ok(Chunk {
        logical,
        len: size * parts,
        kind: kind | profile.bits(),
        sub_stripes: profile.sub_stripes(),
        stripes,
    })
}

impl Plan {
    pub fn new(devices: &[Arc<dyn Device>], options: &MkfsOptions) -> Result<Plan, Error> {
        let mut members = members(devices, options)?;
        let size = members.iter().map(|m| m.size).sum::<u64>();
        let most = if size > 50 << 30 { 1 << 30 } else { 256 << 20 };
        let meta_len = (size / 10 / STRIPE_LEN * STRIPE_LEN).clamp(32 << 20, most);
        let data = place(&mut members, bg::DATA, options.data, DATA_START, SMALL_CHUNK)?;
        let system = place(&mut members, bg::SYSTEM, options.metadata, data.end(), SMALL_CHUNK)?;
        let metadata = place(&mut members, bg::METADATA, options.metadata, system.end(), meta_len)?;
        if let Some(small) = members.iter().find(|m| m.end > m.size) {
            return Err(Error::Invalid(format!(
                "{} bytes are too few: with these profiles {} has at least {}",
                small.size,
                if members.len() == 1 { "a file system".into() } else { format!("device {}", small.devid) },
                small.end
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
        let plan = Plan {
            fsid,
            size,
            now,
            top_uuid: uuid_for(options, 1)?,
            chunk_uuid: uuid_for(options, 2)?,
            members,
            data,
            system,
            metadata,
            nodesize: options.nodesize as u64,
        };
        plan.check_leaves(options)?;
        Ok(plan)
    }

    /// Each tree is a single leaf; many devices may not fit into a small one.
    fn check_leaves(&self, options: &MkfsOptions) -> Result<(), Error> {
        for items in [chunk_tree(self, options), dev_tree(self)] {
            let bytes: usize = items.iter().map(|(_, data)| ITEM_LEN + data.len()).sum();
            if bytes > leaf_data_size(self.nodesize as usize) {
                let count = self.members.len();
                return Err(Error::Invalid(format!(
                    "{count} devices are too many for nodes of {} bytes",
                    self.nodesize
                )));
            }
        }
        Ok(())
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

    /// Bytes of a device that the chunks occupy.
    fn device_used(&self, devid: u64) -> u64 {
        let on = |chunk: &&Chunk| {
            chunk.stripes.iter().filter(|s| s.0 == devid).count() as u64 * chunk.stripe_size()
        };
        self.chunks().iter().map(on).sum()
    }

    fn dev_item(&self, member: &Member, options: &MkfsOptions) -> DevItem {
        DevItem {
            devid: member.devid.into(),
            total_bytes: member.size.into(),
            bytes_used: self.device_used(member.devid).into(),
            io_align: options.sectorsize.into(),
            io_width: options.sectorsize.into(),
            sector_size: options.sectorsize.into(),
            kind: 0.into(),
            generation: 0.into(),
            start_offset: 0.into(),
            dev_group: 0.into(),
            seek_speed: 0,
            bandwidth: 0,
            uuid: member.uuid,
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
            sub_stripes: chunk.sub_stripes.into(),
        };
        let mut out = fixed.as_bytes().to_vec();
        for &(devid, offset) in &chunk.stripes {
            let dev_uuid = self.members[devid as usize - 1].uuid;
            let stripe = Stripe { devid: devid.into(), offset: offset.into(), dev_uuid };
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
    let device = |member: &Member| {
        let key = Key::new(objectid::DEV_ITEMS, item::DEV_ITEM, member.devid);
        (key, plan.dev_item(member, options).as_bytes().to_vec())
    };
    let mut items: Items = plan.members.iter().map(device).collect();
    items.extend(plan.chunks().map(|c| (chunk_key(c), plan.chunk_item(c, options))));
    items
}

fn dev_tree(plan: &Plan) -> Items {
    let mut items = Items::new();
    for chunk in plan.chunks() {
        for &(devid, physical) in &chunk.stripes {
            let extent = DevExtent {
                chunk_tree: objectid::CHUNK_TREE.into(),
                chunk_objectid: objectid::FIRST_CHUNK_TREE.into(),
                chunk_offset: chunk.logical.into(),
                length: chunk.stripe_size().into(),
                chunk_tree_uuid: plan.chunk_uuid,
            };
            items.push((Key::new(devid, item::DEV_EXTENT, physical), extent.as_bytes().to_vec()));
        }
    }
    items.sort_by_key(|(key, _)| *key);
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

fn superblock(plan: &Plan, member: &Member, options: &MkfsOptions) -> Superblock {
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
    sb.num_devices = (plan.members.len() as u64).into();
    sb.sectorsize = options.sectorsize.into();
    sb.nodesize = options.nodesize.into();
    sb.leafsize = options.nodesize.into();
    sb.stripesize = options.sectorsize.into();
    sb.incompat_flags = (incompat::MIXED_BACKREF
        | incompat::BIG_METADATA
        | incompat::EXTENDED_IREF
        | incompat::SKINNY_METADATA
        | incompat::NO_HOLES
        | profile_features(options))
    .into();
    let groups = if options.block_group_tree { compat_ro::BLOCK_GROUP_TREE } else { 0 };
    sb.compat_ro_flags = (compat_ro::FREE_SPACE_TREE | compat_ro::FREE_SPACE_TREE_VALID | groups).into();
    sb.csum_type = options.csum.to_disk().into();
    sb.dev_item = plan.dev_item(member, options);
    sb.label[..options.label.len()].copy_from_slice(&options.label);
    // the UUID tree is made with the next commit, and is whole from then on
    sb.uuid_tree_generation = GENERATION.into();
    let key = DiskKey::from(chunk_key(&plan.system));
    let entry = [key.as_bytes(), &plan.chunk_item(&plan.system, options)].concat();
    sb.sys_chunk_array[..entry.len()].copy_from_slice(&entry);
    sb.sys_chunk_array_size = (entry.len() as u32).into();
    sb
}

/// The features that profiles bring with them.
fn profile_features(options: &MkfsOptions) -> u64 {
    match [options.data, options.metadata].iter().any(|p| matches!(p, Profile::Raid1c3 | Profile::Raid1c4)) {
        true => incompat::RAID1C34,
        false => 0,
    }
}

/// Writes blocks, then superblocks.
pub fn write(devices: &[Arc<dyn Device>], plan: &Plan, options: &MkfsOptions) -> io::Result<()> {
    let put = |chunk: &Chunk, bytenr: u64, bytes: &[u8]| {
        (0..chunk.copies()).try_for_each(|mirror| {
            // a block never reaches over the end of a stripe
            let place = chunk.place(bytenr, mirror);
            devices[place.devid as usize - 1].write_at(place.physical, &[IoSlice::new(bytes)])
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
    devices.iter().try_for_each(|device| device.flush())?;
    for (device, member) in devices.iter().zip(&plan.members) {
        let sb = superblock(plan, member, options);
        for offset in OFFSETS.into_iter().filter(|o| o + SIZE as u64 <= member.size) {
            let mut copy = sb.clone();
            copy.bytenr = offset.into();
            copy.csum = options.csum.sum(&copy.as_bytes()[32..]);
            device.write_at(offset, &[IoSlice::new(copy.as_bytes())])?;
        }
    }
    Ok(())
}
