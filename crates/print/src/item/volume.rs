//! Devices, chunks, block groups and free space.

use crate::fail::{Fail, Printed, fixed};
use crate::name::BlockGroupFlags;
use crate::text::Uuid;
use buttery_disk::chunk::{BlockGroupItem, ChunkItem, DevExtent, DevItem, FreeSpaceInfo, Stripe};
use buttery_disk::zerocopy::little_endian::U64;
use std::io::Write;

/// A BLOCK_GROUP_ITEM.
pub fn block_group(out: &mut dyn Write, data: &[u8]) -> Printed {
    let (g, _) = fixed::<BlockGroupItem>(data, "block group item")?;
    let flags = BlockGroupFlags(g.flags.get());
    Ok(writeln!(out, "\t\tblock group used {} chunk_objectid {} flags {flags}", g.used, g.chunk_objectid)?)
}

/// A FREE_SPACE_INFO.
pub fn free_space_info(out: &mut dyn Write, data: &[u8]) -> Printed {
    let (info, _) = fixed::<FreeSpaceInfo>(data, "free space info")?;
    Ok(writeln!(out, "\t\tfree space info extent count {} flags {}", info.extent_count, info.flags)?)
}

/// A DEV_EXTENT.
pub fn dev_extent(out: &mut dyn Write, data: &[u8]) -> Printed {
    let (e, _) = fixed::<DevExtent>(data, "device extent")?;
    writeln!(out, "\t\tdev extent chunk_tree {}", e.chunk_tree)?;
    write!(out, "\t\tchunk_objectid {} chunk_offset {} ", e.chunk_objectid, e.chunk_offset)?;
    writeln!(out, "length {}", e.length)?;
    Ok(writeln!(out, "\t\tchunk_tree_uuid {}", Uuid(&e.chunk_tree_uuid))?)
}

/// A DEV_ITEM.
pub fn device(out: &mut dyn Write, data: &[u8]) -> Printed {
    let (d, _) = fixed::<DevItem>(data, "device item")?;
    writeln!(out, "\t\tdevid {} total_bytes {} bytes_used {}", d.devid, d.total_bytes, d.bytes_used)?;
    write!(out, "\t\tio_align {} io_width {} ", d.io_align, d.io_width)?;
    writeln!(out, "sector_size {} type {}", d.sector_size, d.kind)?;
    write!(out, "\t\tgeneration {} start_offset {} ", d.generation, d.start_offset)?;
    writeln!(out, "dev_group {}", d.dev_group)?;
    writeln!(out, "\t\tseek_speed {} bandwidth {}", d.seek_speed, d.bandwidth)?;
    writeln!(out, "\t\tuuid {}", Uuid(&d.uuid))?;
    Ok(writeln!(out, "\t\tfsid {}", Uuid(&d.fsid))?)
}

/// A CHUNK_ITEM, of the chunk tree or of the superblock's array.
pub fn chunk(out: &mut dyn Write, data: &[u8]) -> Printed {
    let (c, mut rest) = fixed::<ChunkItem>(data, "chunk item")?;
    let stripes = c.num_stripes.get();
    if stripes == 0 {
        return Ok(writeln!(out, "invalid num_stripes: 0")?);
    }
    write!(out, "\t\tlength {} owner {} stripe_len {} ", c.length, c.owner, c.stripe_len)?;
    writeln!(out, "type {}", BlockGroupFlags(c.kind.get()))?;
    writeln!(out, "\t\tio_align {} io_width {} sector_size {}", c.io_align, c.io_width, c.sector_size)?;
    writeln!(out, "\t\tnum_stripes {stripes} sub_stripes {}", c.sub_stripes)?;
    for i in 0..stripes {
        let (stripe, after) = fixed::<Stripe>(rest, "stripes")?;
        writeln!(out, "\t\t\tstripe {i} devid {} offset {}", stripe.devid, stripe.offset)?;
        writeln!(out, "\t\t\tdev_uuid {}", Uuid(&stripe.dev_uuid))?;
        rest = after;
    }
    Ok(())
}

/// A RAID_STRIPE: pairs of a device and an address on it.
pub fn raid_stripes(out: &mut dyn Write, data: &[u8]) -> Printed {
    for (i, pair) in data.chunks_exact(16).enumerate() {
        let (devid, rest) = fixed::<U64>(pair, "device")?;
        let (physical, _) = fixed::<U64>(rest, "address")?;
        writeln!(out, "\t\t\tstripe {i} devid {devid} physical {physical}")?;
    }
    match data.len() % 16 {
        0 => Ok(()),
        extra => Err(Fail::Bad(format!("{extra} bytes after the last stripe"))),
    }
}
