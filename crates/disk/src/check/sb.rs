//! The rules of the superblock, its system chunk array, and chunks.

use super::{Context, Violation, ensure};
use crate::chunk::{ChunkItem, Stripe, bg};
use crate::key::{DiskKey, Key, item, objectid};
use crate::node::MAX_LEVEL;
use crate::superblock::{MAGIC, MAGIC_UNFINISHED, SYS_CHUNK_ARRAY_SIZE, Superblock, incompat};
use zerocopy::FromBytes;

/// The only stripe length there is.
pub const STRIPE_LEN: u64 = 64 << 10;

/// Bytes of a checksum of each type; `None` for a type that the format does not have.
pub fn csum_size(csum_type: u16) -> Option<u32> {
    [4, 8, 32, 32].get(csum_type as usize).copied()
}

/// Checks the superblock that was read at `offset` of a device, save its checksum.
pub fn check_superblock(sb: &Superblock, offset: u64) -> Result<(), Violation> {
    let magic = sb.magic.get();
    ensure!(magic != MAGIC_UNFINISHED, "magic: the making of this file system was not finished");
    ensure!(
        magic == MAGIC,
        "magic must be _BHRfS_M, found {:?}",
        String::from_utf8_lossy(&magic.to_le_bytes())
    );
    ensure!(sb.bytenr.get() == offset, "bytenr must be {offset}, found {}", sb.bytenr.get());
    let unknown = sb.incompat_flags.get() & !incompat::READABLE;
    ensure!(unknown == 0, "incompat features not supported: {}", incompat::names(unknown));
    let (sector, node) = (sb.sectorsize.get(), sb.nodesize.get());
    ensure!(
        sector.is_power_of_two() && (4096..=65536).contains(&sector),
        "sectorsize {sector} is not a power of two from 4096 to 65536"
    );
    ensure!(sector == 4096, "sectorsize {sector} is not supported, only 4096 is");
    ensure!(
        node.is_power_of_two() && node >= sector && node <= 65536,
        "nodesize {node} is not a power of two from the sector size to 65536"
    );
    for (name, level) in
        [("root", sb.root_level), ("chunk root", sb.chunk_root_level), ("log root", sb.log_root_level)]
    {
        ensure!(level < MAX_LEVEL, "{name} level {level} is too high");
    }
    for (name, bytenr) in
        [("root", sb.root.get()), ("chunk root", sb.chunk_root.get()), ("log root", sb.log_root.get())]
    {
        ensure!(bytenr % sector as u64 == 0, "{name} {bytenr} must be aligned to the sector size");
    }
    let size = sb.sys_chunk_array_size.get();
    ensure!(size as usize <= SYS_CHUNK_ARRAY_SIZE, "system chunk array of {size} bytes is too large");
    ensure!(
        size as usize >= size_of::<DiskKey>() + size_of::<ChunkItem>() + size_of::<Stripe>(),
        "system chunk array of {size} bytes is too small"
    );
    ensure!(csum_size(sb.csum_type.get()).is_some(), "checksum type {} is not supported", sb.csum_type.get());
    ensure!(sb.num_devices.get() != 0, "the number of devices is 0");
    ensure!(
        sb.generation.get() >= sb.chunk_root_generation.get(),
        "chunk root generation {} is above the superblock's {}",
        sb.chunk_root_generation.get(),
        sb.generation.get()
    );
    Ok(())
}

/// The chunks of the system chunk array, each checked.
pub fn sys_chunks(sb: &Superblock, ctx: &Context) -> Result<Vec<(Key, Vec<u8>)>, Violation> {
    let mut out = Vec::new();
    let mut rest = sb.sys_chunks();
    while !rest.is_empty() {
        let Ok((key, after)) = DiskKey::read_from_prefix(rest) else {
            return Err(Violation::new("system chunk array: a key is cut off"));
        };
        let key = Key::from(key);
        ensure!(key.kind == item::CHUNK_ITEM, "system chunk array: {key} is no chunk");
        let Ok((chunk, _)) = ChunkItem::ref_from_prefix(after) else {
            return Err(Violation::new("system chunk array: a chunk is cut off"));
        };
        let stripes = chunk.num_stripes.get() as usize;
        ensure!(stripes > 0, "system chunk array: a chunk has no stripe");
        let len = size_of::<ChunkItem>() + stripes * size_of::<Stripe>();
        ensure!(len <= after.len(), "system chunk array: a chunk of {stripes} stripes is cut off");
        ensure!(chunk.kind.get() & bg::SYSTEM != 0, "system chunk array: {key} is not a system chunk");
        check_chunk(key, &after[..len], ctx)?;
        out.push((key, after[..len].to_vec()));
        rest = &after[len..];
    }
    Ok(out)
}

/// Checks a CHUNK_ITEM.
pub fn check_chunk(key: Key, data: &[u8], ctx: &Context) -> Result<(), Violation> {
    let Ok((chunk, stripes)) = ChunkItem::ref_from_prefix(data) else {
        return Err(Violation::new(format!("a chunk item of {} bytes is cut off", data.len())));
    };
    let (n, kind, length) = (chunk.num_stripes.get(), chunk.kind.get(), chunk.length.get());
    ensure!(n > 0, "a chunk must have a stripe");
    ensure!(
        stripes.len() == n as usize * size_of::<Stripe>(),
        "a chunk of {n} stripes has {} bytes",
        data.len()
    );
    ensure!(key.objectid == objectid::FIRST_CHUNK_TREE, "a chunk has objectid 256, found {}", key.objectid);
    let sector = ctx.sectorsize as u64;
    ensure!(key.offset.is_multiple_of(sector), "a chunk's address {} must be aligned", key.offset);
    ensure!(chunk.sector_size.get() == ctx.sectorsize, "a chunk has sector size {}", chunk.sector_size.get());
    ensure!(length != 0 && length % sector == 0, "a chunk's length {length} must be aligned");
    ensure!(key.offset.checked_add(length).is_some(), "a chunk ends beyond the largest address");
    ensure!(chunk.stripe_len.get() == STRIPE_LEN, "a chunk has stripe length {}", chunk.stripe_len.get());
    ensure!(kind & !(bg::TYPE_MASK | bg::PROFILE_MASK) == 0, "a chunk has unknown type bits: {kind:#x}");
    ensure!((kind & bg::PROFILE_MASK).count_ones() <= 1, "a chunk has several profiles: {kind:#x}");
    let types = kind & bg::TYPE_MASK;
    ensure!(types != 0, "a chunk has no type");
    ensure!(types & bg::SYSTEM == 0 || types == bg::SYSTEM, "a system chunk has other types too: {types:#x}");
    let mixed = ctx.incompat & incompat::MIXED_GROUPS != 0;
    ensure!(mixed || types.count_ones() == 1, "a mixed chunk, but the mixed_groups feature is off");
    check_stripe_count(kind, n, chunk.sub_stripes.get())?;
    let per_stripe = length / data_stripes(kind, n, chunk.sub_stripes.get()) as u64;
    for part in stripes.chunks_exact(size_of::<Stripe>()) {
        if let Ok(stripe) = Stripe::ref_from_bytes(part) {
            let end = stripe.offset.get().checked_add(per_stripe);
            ensure!(end.is_some(), "a stripe ends beyond the largest address");
        }
    }
    Ok(())
}

fn check_stripe_count(kind: u64, n: u16, sub: u16) -> Result<(), Violation> {
    let right = match kind & bg::PROFILE_MASK {
        0 => n == 1,
        bg::DUP | bg::RAID1 => n == 2,
        bg::RAID1C3 => n == 3,
        bg::RAID1C4 => n == 4,
        bg::RAID10 => sub == 2 && n >= 2 && n.is_multiple_of(2),
        bg::RAID5 => n >= 2,
        bg::RAID6 => n >= 3,
        _ => true,
    };
    ensure!(right, "a {} chunk has {n} stripes and {sub} sub-stripes", bg::profile_name(kind));
    Ok(())
}

/// How many stripes hold different data.
pub fn data_stripes(kind: u64, n: u16, sub: u16) -> u16 {
    match kind & bg::PROFILE_MASK {
        bg::RAID0 => n.max(1),
        bg::RAID10 => (n / sub.max(1)).max(1),
        bg::RAID5 => n.saturating_sub(1).max(1),
        bg::RAID6 => n.saturating_sub(2).max(1),
        _ => 1,
    }
}
