//! Making chunks when space is needed, and removing empty ones.

use super::group::{Class, Group};
use super::place::{DeviceRoom, Placed, place};
use super::{free_space_tree as fst, load, reserve};
use crate::txn::{Purpose, Trans};
use crate::{Engine, Error, Result};
use buttery_disk::check::sb::STRIPE_LEN;
use buttery_disk::chunk::{BlockGroupItem, ChunkItem, DevExtent, DevItem, Stripe, bg};
use buttery_disk::key::DiskKey;
use buttery_disk::profile::Profile;
use buttery_disk::superblock::SYS_CHUNK_ARRAY_SIZE;
use buttery_disk::zerocopy::{FromBytes, IntoBytes};
use buttery_disk::{Key, TreeId, item, objectid};
use buttery_volume::Chunk;
use std::collections::BTreeMap;

/// Devices keep their first mebibyte to themselves.
const DEVICE_RESERVED: u64 = 1 << 20;

/// Makes a chunk for a class. Answers whether there was room for one.
pub(crate) fn allocate(engine: &Engine, class: Class) -> Result<bool> {
    let space = &engine.writer()?.space;
    let _one = space.allocating.lock();
    if class == Class::Data && !space.is_mixed() && !reserve::metadata_is_ample(engine)? {
        // what is left of the device must not all go to data while metadata is short
        make(engine, Class::Metadata)?;
    }
    make(engine, class)
}

fn make(engine: &Engine, class: Class) -> Result<bool> {
    let writer = engine.writer()?;
    let devices = device_count(engine)?;
    let flags = writer.space.new_chunk_flags(class, devices);
    let Some(placed) = find_place(engine, class, flags)? else { return Ok(false) };
    if writer.space.available(Class::System) < 8 * engine.store().nodesize() as u64 && class != Class::System
    {
        // the chunk tree needs blocks for what follows
        let system = writer.space.new_chunk_flags(Class::System, devices);
        if let Some(placed) = find_place(engine, Class::System, system)? {
            insert(engine, system, placed)?;
            return make(engine, class);
        }
        return Ok(false);
    }
    insert(engine, flags, placed)?;
    Ok(true)
}

/// How many devices can take new chunks.
fn device_count(engine: &Engine) -> Result<usize> {
    let devices = engine.writer()?.devices.lock();
    Ok(devices.keys().filter(|&&devid| engine.volume().is_current(devid)).count())
}

/// How large a chunk to make, and where its stripes go.
fn find_place(engine: &Engine, class: Class, flags: u64) -> Result<Option<Placed>> {
    let profile = Profile::of(flags)
        .ok_or_else(|| Error::Corrupt(format!("a chunk of several profiles: {flags:#x}").into()))?;
    Ok(place(&device_rooms(engine)?, class, profile))
}

/// What no chunk occupies of the devices that are there and missed nothing.
fn device_rooms(engine: &Engine) -> Result<Vec<DeviceRoom>> {
    let volume = engine.volume();
    let mut taken: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for chunk in volume.chunks().all() {
        let size = chunk.stripe_size();
        for &(devid, physical) in &chunk.stripes {
            taken.entry(devid).or_default().push((physical, size));
        }
    }
    let devices = engine.writer()?.devices.lock();
    let usable = devices.values().filter(|item| volume.is_current(item.devid.get()));
    let rooms = usable.map(|item| {
        let (devid, total) = (item.devid.get(), item.total_bytes.get());
        let mut taken = taken.remove(&devid).unwrap_or_default();
        taken.sort_unstable();
        let free = total.saturating_sub(item.bytes_used.get());
        DeviceRoom { devid, total, free, holes: holes(&taken, total) }
    });
    Ok(rooms.collect())
}

/// The parts of a device that are not taken, in whole stripes.
fn holes(taken: &[(u64, u64)], total: u64) -> Vec<(u64, u64)> {
    let (mut at, mut holes) = (DEVICE_RESERVED, Vec::new());
    let mut push = |from: u64, to: u64| {
        let from = from.next_multiple_of(STRIPE_LEN);
        if to > from && to - from >= STRIPE_LEN {
            holes.push((from, (to - from) / STRIPE_LEN * STRIPE_LEN));
        }
    };
    for &(start, len) in taken {
        push(at, start);
        at = at.max(start + len);
    }
    push(at, total);
    holes
}

fn insert(engine: &Engine, flags: u64, placed: Placed) -> Result<()> {
    let writer = engine.writer()?;
    let logical = engine.volume().chunks().all().last().map_or(1 << 20, |c| c.end());
    let sub_stripes = Profile::of(flags).map_or(1, Profile::sub_stripes);
    let chunk = Chunk { logical, len: placed.len, kind: flags, sub_stripes, stripes: placed.stripes };
    let in_array = size_of::<DiskKey>() + size_of::<ChunkItem>() + chunk.stripes.len() * size_of::<Stripe>();
    let array_len = writer.sb.lock().sys_chunk_array_size.get() as usize;
    if flags & bg::SYSTEM != 0 && array_len + in_array > SYS_CHUNK_ARRAY_SIZE {
        return Err(Error::NoSpace);
    }
    // without a reservation: the groups that there are hold enough for these few items, by the global reserve
    let mut trans = engine.start_unreserved()?;
    let excluded = load::super_stripes(&chunk);
    engine
        .volume()
        .chunks()
        .insert(chunk.clone())
        .map_err(|c| Error::Corrupt(format!("a new chunk would overlap {}", c.logical).into()))?;
    let result = insert_items(&mut trans, &chunk);
    if result.is_ok() {
        writer.space.add_group(Group::new_empty(logical, chunk.len, flags, &excluded));
    }
    trans.end(result)
}

fn insert_items(trans: &mut Trans<'_>, chunk: &Chunk) -> Result<()> {
    let engine = trans.engine();
    let size = chunk.stripe_size();
    let dev_tree = engine.tree(TreeId(objectid::DEV_TREE))?;
    let uuid = trans.chunk_tree_uuid();
    for &(devid, physical) in &chunk.stripes {
        let extent = DevExtent {
            chunk_tree: objectid::CHUNK_TREE.into(),
            chunk_objectid: objectid::FIRST_CHUNK_TREE.into(),
            chunk_offset: chunk.logical.into(),
            length: size.into(),
            chunk_tree_uuid: uuid,
        };
        dev_tree.write(trans).insert(Key::new(devid, item::DEV_EXTENT, physical), extent.as_bytes())?;
    }
    change_device_use(trans, chunk, size as i64)?;
    let data = chunk_item(engine, chunk)?;
    let key = Key::new(objectid::FIRST_CHUNK_TREE, item::CHUNK_ITEM, chunk.logical);
    engine.chunk_tree().write(trans).insert(key, &data)?;
    if chunk.kind & bg::SYSTEM != 0 {
        add_to_array(trans, key, &data)?;
    }
    let group = BlockGroupItem {
        used: 0.into(),
        chunk_objectid: objectid::FIRST_CHUNK_TREE.into(),
        flags: chunk.kind.into(),
    };
    let groups = engine.tree(load::group_tree(engine))?;
    groups
        .write(trans)
        .insert(Key::new(chunk.logical, item::BLOCK_GROUP_ITEM, chunk.len), group.as_bytes())?;
    fst::create(trans, chunk.logical, chunk.len)
}

fn chunk_item(engine: &Engine, chunk: &Chunk) -> Result<Vec<u8>> {
    let sector = engine.volume().context().sectorsize;
    let fixed = ChunkItem {
        length: chunk.len.into(),
        owner: objectid::EXTENT_TREE.into(),
        stripe_len: STRIPE_LEN.into(),
        kind: chunk.kind.into(),
        io_align: (STRIPE_LEN as u32).into(),
        io_width: (STRIPE_LEN as u32).into(),
        sector_size: sector.into(),
        num_stripes: (chunk.stripes.len() as u16).into(),
        sub_stripes: chunk.sub_stripes.into(),
    };
    let devices = engine.writer()?.devices.lock();
    let mut data = fixed.as_bytes().to_vec();
    for &(devid, physical) in &chunk.stripes {
        let device = devices.get(&devid).ok_or_else(|| no_item(devid))?;
        let stripe = Stripe { devid: devid.into(), offset: physical.into(), dev_uuid: device.uuid };
        data.extend_from_slice(stripe.as_bytes());
    }
    Ok(data)
}

fn no_item(devid: u64) -> Error {
    let key = Key::new(objectid::DEV_ITEMS, item::DEV_ITEM, devid);
    Error::corrupt(TreeId(objectid::CHUNK_TREE), key, "a chunk lies on a device that has no item")
}

/// The device items say how much of each device chunks occupy, in the chunk tree and in the superblocks. Each stripe of
/// the chunk changes its device's by so much.
fn change_device_use(trans: &mut Trans<'_>, chunk: &Chunk, by: i64) -> Result<()> {
    let engine = trans.engine();
    for &(devid, _) in &chunk.stripes {
        let key = Key::new(objectid::DEV_ITEMS, item::DEV_ITEM, devid);
        let changed = engine.chunk_tree().write(trans).modify(key, |data| {
            let item = DevItem::mut_from_bytes(data).ok()?;
            item.bytes_used = item.bytes_used.get().checked_add_signed(by)?.into();
            Some(*item)
        })?;
        let changed = changed
            .ok_or_else(|| Error::corrupt(TreeId(objectid::CHUNK_TREE), key, "bytes_used is wrong"))?;
        trans.writer().devices.lock().insert(devid, changed);
    }
    Ok(())
}

fn add_to_array(trans: &mut Trans<'_>, key: Key, data: &[u8]) -> Result<()> {
    let mut sb = trans.writer().sb.lock();
    let at = sb.sys_chunk_array_size.get() as usize;
    let entry = [DiskKey::from(key).as_bytes(), data].concat();
    if at + entry.len() > SYS_CHUNK_ARRAY_SIZE {
        return Err(Error::NoSpace);
    }
    sb.sys_chunk_array[at..at + entry.len()].copy_from_slice(&entry);
    sb.sys_chunk_array_size = ((at + entry.len()) as u32).into();
    Ok(())
}

/// Removes empty groups of data and metadata, one of each kept. Answers how many went.
pub(crate) fn remove_empty(engine: &Engine) -> Result<usize> {
    let space = &engine.writer()?.space;
    let _one = space.allocating.lock();
    let mut removed = 0;
    for class in [Class::Data, Class::Metadata] {
        let groups = space.groups(class);
        let mut left = groups.len();
        for group in groups.iter().filter(|g| g.flags & bg::TYPE_MASK != (bg::DATA | bg::METADATA)) {
            {
                // nobody reserves what is about to go
                let _reserving = space.reserving.lock();
                if left <= 1 || !group.close_if_empty() {
                    continue;
                }
                if class == Class::Metadata && !reserve::metadata_is_ample(engine)? {
                    group.reopen();
                    continue;
                }
            }
            // with what is at hand: looking for space could lead here again
            let result = engine.start_at_hand(8, Purpose::Free).and_then(|mut trans| {
                let result = remove_items(&mut trans, group);
                trans.end(result)
            });
            match result {
                Ok(()) => {
                    space.remove_group(group.start);
                    engine.volume().chunks().remove(group.start);
                    left -= 1;
                    removed += 1;
                }
                Err(Error::NoSpace) => group.reopen(),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(removed)
}

fn remove_items(trans: &mut Trans<'_>, group: &Group) -> Result<()> {
    let engine = trans.engine();
    let chunk = engine
        .volume()
        .chunks()
        .find(group.start)
        .ok_or_else(|| Error::Corrupt(format!("block group {} has no chunk", group.start).into()))?;
    fst::destroy(trans, group)?;
    let groups = engine.tree(load::group_tree(engine))?;
    groups.write(trans).remove(Key::new(group.start, item::BLOCK_GROUP_ITEM, group.len))?;
    let dev_tree = engine.tree(TreeId(objectid::DEV_TREE))?;
    for &(devid, physical) in &chunk.stripes {
        dev_tree.write(trans).remove(Key::new(devid, item::DEV_EXTENT, physical))?;
    }
    change_device_use(trans, &chunk, -(chunk.stripe_size() as i64))?;
    let key = Key::new(objectid::FIRST_CHUNK_TREE, item::CHUNK_ITEM, chunk.logical);
    engine.chunk_tree().write(trans).remove(key)
}
