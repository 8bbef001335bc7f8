//! Opening: superblocks, system chunks, then the chunk tree.

use crate::chunk_map::{Chunk, ChunkMap};
use crate::devices::{Member, leader, open_member};
use crate::walk::walk_tree;
use crate::{Error, Volume, history, uuid_text};
use buttery_codec::CsumType;
use buttery_device::Device;
use buttery_disk::check::{Context, Expect, sb};
use buttery_disk::chunk::{DevItem, bg};
use buttery_disk::superblock::Superblock;
use buttery_disk::zerocopy::FromBytes;
use buttery_disk::{Key, item, objectid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How to open a volume.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Which copy of the superblock to read: 0, 1 or 2.
    pub super_copy: usize,
    /// Devices may be missing, as long as what is asked for lies on another.
    pub degraded: bool,
    /// Blocks may be written, mirrors repaired. The devices must be open for writing.
    pub writable: bool,
    /// Where the chunk tree cannot be read, try those of the backup roots.
    pub use_backup_root: bool,
}

impl Volume {
    /// Opens the file system that these devices make up.
    pub fn open(devices: Vec<Arc<dyn Device>>, options: OpenOptions) -> Result<Volume, Error> {
        let members = devices
            .into_iter()
            .map(|device| open_member(device, options.super_copy))
            .collect::<Result<Vec<_>, _>>()?;
        let mut volume = Volume::assemble(&members, leader(&members)?, options)?;
        if options.writable {
            volume.check_copies()?;
        }
        if members.len() > 1 {
            history::check(&volume, &members)?;
        }
        // before this, a copy that seems bad may be the other half of a split brain: it is not mended
        volume.writable = options.writable;
        Ok(volume)
    }

    /// Puts the devices together, for reading; `lead` is the one whose superblock speaks for them.
    pub(crate) fn assemble(members: &[Member], lead: usize, options: OpenOptions) -> Result<Volume, Error> {
        let main = members[lead].sb.clone();
        let mut volume = Volume::bare(&main)?;
        volume.adopt(members)?;
        for (key, data) in sb::sys_chunks(&main, &volume.ctx)
            .map_err(|v| super_error(&members[lead], options.super_copy, v.to_string()))?
        {
            volume.add_chunk(key, &data)?;
        }
        let items = volume.read_chunk_tree(options.use_backup_root)?;
        volume.check_devices(members, &items, options)?;
        volume.items = items;
        volume.find_stale(members, &main);
        Ok(volume)
    }

    fn bare(main: &Superblock) -> Result<Volume, Error> {
        let csum = CsumType::from_disk(main.csum_type.get())
            .ok_or_else(|| Error::Unsupported(format!("checksum type {}", main.csum_type.get())))?;
        let ctx = Context {
            nodesize: main.nodesize.get(),
            sectorsize: main.sectorsize.get(),
            csum_size: csum.size() as u32,
            generation: main.generation.get(),
            incompat: main.incompat_flags.get(),
            fsid: main.block_fsid(),
        };
        Ok(Volume {
            devices: BTreeMap::new(),
            faults: BTreeMap::new(),
            chunks: ChunkMap::default(),
            sb: main.clone(),
            ctx,
            generation: main.generation.get().into(),
            csum,
            fsids: vec![main.block_fsid()],
            writable: false,
            items: Vec::new(),
            missing: Vec::new(),
        })
    }

    fn adopt(&mut self, members: &[Member]) -> Result<(), Error> {
        for member in members {
            let fsid = member.sb.block_fsid();
            if !self.fsids.contains(&fsid) {
                self.fsids.push(fsid);
            }
            let devid = member.sb.dev_item.devid.get();
            self.faults.entry(devid).or_default();
            if let Some(other) = self.devices.insert(devid, member.device.clone()) {
                return Err(Error::Inconsistent(format!(
                    "{} and {} both say that they are device {devid}",
                    other.name(),
                    member.device.name()
                )));
            }
        }
        Ok(())
    }

    fn add_chunk(&self, key: Key, data: &[u8]) -> Result<(), Error> {
        let chunk = Chunk::parse(key.offset, data)
            .ok_or_else(|| Error::Inconsistent(format!("chunk {}: the item is cut off", key.offset)))?;
        if chunk.kind & (bg::RAID5 | bg::RAID6) != 0 {
            let text = format!("chunk {} has profile {}", key.offset, bg::profile_name(chunk.kind));
            return Err(Error::Unsupported(text));
        }
        let logical = chunk.logical;
        self.chunks.insert(chunk).map_err(|other| {
            Error::Inconsistent(format!("chunk {logical} overlaps chunk {} (+{})", other.logical, other.len))
        })
    }

    /// Reads all chunks into the map; returns the device items.
    fn read_chunk_tree(&mut self, backups: bool) -> Result<Vec<DevItem>, Error> {
        let sb = &self.sb;
        let mut roots = vec![(sb.chunk_root.get(), sb.chunk_root_level, sb.chunk_root_generation.get())];
        if backups {
            let mut old: Vec<_> = sb.super_roots.to_vec();
            old.sort_by_key(|r| std::cmp::Reverse(r.tree_root_gen.get()));
            roots
                .extend(old.iter().map(|r| (r.chunk_root.get(), r.chunk_root_level, r.chunk_root_gen.get())));
        }
        let mut first = None;
        for (bytenr, level, generation) in roots {
            match self.chunk_items(bytenr, level, generation) {
                Ok(devices) => return Ok(devices),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or_else(|| Error::Inconsistent("there is no chunk tree".into())))
    }

    fn chunk_items(&self, bytenr: u64, level: u8, generation: u64) -> Result<Vec<DevItem>, Error> {
        let root = Expect {
            bytenr,
            level: Some(level),
            generation: Some(generation),
            first_key: None,
            owner: Some(objectid::CHUNK_TREE),
        };
        let (mut devices, mut chunks) = (Vec::new(), Vec::new());
        walk_tree(self, root, Key::MIN, &mut |key, data| {
            match key.kind {
                item::CHUNK_ITEM => chunks.push((key, data.to_vec())),
                item::DEV_ITEM => devices.extend(DevItem::read_from_bytes(data)),
                _ => {}
            }
            Ok(true)
        })?;
        for (key, data) in chunks {
            self.add_chunk(key, &data)?;
        }
        Ok(devices)
    }

    /// A device whose superblock is older than the others' missed what was written since.
    fn find_stale(&self, members: &[Member], main: &Superblock) {
        for member in members.iter().filter(|m| !m.is_seed()) {
            if member.sb.generation.get() < main.generation.get() {
                self.set_stale(member.sb.dev_item.devid.get());
            }
        }
    }

    /// What is written to must have a copy of everything.
    pub(crate) fn check_copies(&self) -> Result<(), Error> {
        let missing = |devid| !self.devices.contains_key(&devid);
        let Some(logical) = self.chunk_lost_without(&missing) else { return Ok(()) };
        let which: Vec<String> = self.missing.iter().chain(&self.stale()).map(u64::to_string).collect();
        Err(Error::Inconsistent(format!(
            "chunk {logical} has no current copy without device {}: only reading is possible",
            which.join(" and ")
        )))
    }

    /// Every device that the chunk tree has must be there and be what it says.
    fn check_devices(
        &mut self,
        members: &[Member],
        items: &[DevItem],
        options: OpenOptions,
    ) -> Result<(), Error> {
        let is_listed = |m: &Member| items.iter().any(|item| item.devid == m.sb.dev_item.devid);
        if let Some(other) = members.iter().find(|m| !m.is_seed() && !is_listed(m)) {
            return Err(Error::Inconsistent(format!(
                "{} says that it is device {}, which the file system does not have any more",
                other.device.name(),
                other.sb.dev_item.devid
            )));
        }
        for item in items {
            let devid = item.devid.get();
            let Some(member) = members.iter().find(|m| m.sb.dev_item.devid.get() == devid) else {
                if !options.degraded {
                    return Err(Error::Missing { devid, uuid: uuid_text(&item.uuid) });
                }
                self.missing.push(devid);
                continue;
            };
            if member.sb.dev_item.uuid != item.uuid {
                return Err(Error::Inconsistent(format!(
                    "{} says that it is device {devid} ({}), but that device is {}",
                    member.device.name(),
                    uuid_text(&member.sb.dev_item.uuid),
                    uuid_text(&item.uuid)
                )));
            }
            if options.writable && member.device.len_bytes() < item.total_bytes.get() {
                return Err(Error::Inconsistent(format!(
                    "{} has {} bytes, but device {devid} has {}: it was cut off",
                    member.device.name(),
                    member.device.len_bytes(),
                    item.total_bytes.get()
                )));
            }
        }
        Ok(())
    }
}

fn super_error(member: &Member, copy: usize, rule: String) -> Error {
    let offset = buttery_disk::superblock::OFFSETS[copy];
    Error::Super { device: member.device.name().to_owned(), offset, rule, advice: String::new() }
}
