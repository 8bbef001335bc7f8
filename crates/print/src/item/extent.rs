//! Extents of files, their checksums, and extents of the device space with their back references.

use crate::block::Context;
use crate::fail::{Fail, Printed, fixed};
use crate::name::{KeyText, tree};
use crate::text::Hex;
use buttery_disk::extent::{
    BackRef, ExtentDataRef, ExtentItem, FILE_EXTENT_INLINE_START, FileExtentHead, FileExtentItem,
    TreeBlockInfo, compression, file_extent, flags, inline_refs,
};
use buttery_disk::zerocopy::little_endian::{U32, U64};
use buttery_disk::{Key, item};
use std::io::Write;

fn compression_name(kind: u8) -> String {
    match kind {
        compression::NONE => "none".to_string(),
        compression::ZLIB => "zlib".to_string(),
        compression::LZO => "lzo".to_string(),
        compression::ZSTD => "zstd".to_string(),
        _ => format!("UNKNOWN.{kind}"),
    }
}

/// An EXTENT_DATA.
pub fn file_extent(out: &mut dyn Write, data: &[u8]) -> Printed {
    let (head, _) = fixed::<FileExtentHead>(data, "file extent")?;
    let kind = match head.kind {
        file_extent::INLINE => "inline",
        file_extent::REG => "regular",
        file_extent::PREALLOC => "prealloc",
        _ => "unknown",
    };
    writeln!(out, "\t\tgeneration {} type {} ({kind})", head.generation, head.kind)?;
    let compression = format!("{} ({})", head.compression, compression_name(head.compression));
    if head.kind == file_extent::INLINE {
        let (size, ram) = (data.len() - FILE_EXTENT_INLINE_START, head.ram_bytes);
        writeln!(out, "\t\tinline extent data size {size} ram_bytes {ram} compression {compression}")?;
        return Ok(());
    }
    let (e, _) = fixed::<FileExtentItem>(data, "file extent")?;
    if head.kind == file_extent::PREALLOC {
        writeln!(out, "\t\tprealloc data disk byte {} nr {}", e.disk_bytenr, e.disk_num_bytes)?;
        writeln!(out, "\t\tprealloc data offset {} nr {}", e.offset, e.num_bytes)?;
        return Ok(());
    }
    writeln!(out, "\t\textent data disk byte {} nr {}", e.disk_bytenr, e.disk_num_bytes)?;
    writeln!(out, "\t\textent data offset {} nr {} ram {}", e.offset, e.num_bytes, e.ram_bytes)?;
    writeln!(out, "\t\textent compression {compression}")?;
    Ok(())
}

/// An EXTENT_CSUM: the checksums of consecutive sectors.
pub fn csums(out: &mut dyn Write, key: Key, data: &[u8], ctx: &Context) -> Printed {
    let (size, sector) = (ctx.csum_size.max(1), u64::from(ctx.sectorsize));
    let length = sector.wrapping_mul((data.len() / size) as u64);
    let start = key.offset;
    writeln!(out, "\t\trange start {start} end {} length {length}", start.wrapping_add(length))?;
    if !ctx.options.csum_items {
        return Ok(());
    }
    let per_line = match size {
        ..=4 => 4,
        5..=8 => 2,
        _ => 1,
    };
    let mut at = start;
    let sums: Vec<&[u8]> = data.chunks_exact(size).collect();
    for row in sums.chunks(per_line) {
        for (i, sum) in row.iter().enumerate() {
            let before = if i == 0 { "\t\t" } else { " " };
            write!(out, "{before}[{at}] {}", Hex(sum))?;
            at = at.wrapping_add(sector);
        }
        writeln!(out)?;
    }
    Ok(())
}

fn extent_flags(bits: u64) -> String {
    let mut text = String::new();
    if bits & flags::DATA != 0 {
        text.push_str("DATA");
    }
    if bits & flags::TREE_BLOCK != 0 {
        text.push_str(if text.is_empty() { "TREE_BLOCK" } else { "|TREE_BLOCK" });
    }
    if bits & flags::FULL_BACKREF != 0 {
        text.push_str("|FULL_BACKREF");
    }
    text
}

/// An EXTENT_ITEM or METADATA_ITEM.
pub fn extent(out: &mut dyn Write, key: Key, data: &[u8]) -> Printed {
    let (e, mut rest) = fixed::<ExtentItem>(data, "extent item")?;
    let flags = e.flags.get();
    writeln!(out, "\t\trefs {} gen {} flags {}", e.refs, e.generation, extent_flags(flags))?;
    if key.kind == item::METADATA_ITEM {
        writeln!(out, "\t\ttree block skinny level {}", key.offset as i32)?;
    } else if flags & self::flags::TREE_BLOCK != 0 {
        let (info, after) = fixed::<TreeBlockInfo>(rest, "tree block info")?;
        writeln!(out, "\t\ttree block key ({}) level {}", KeyText(info.key.into()), info.level)?;
        rest = after;
    }
    let mut at = data.len() - rest.len();
    for found in inline_refs(data, at) {
        inline_ref(out, found.backref, found.count)?;
        at = found.at + found.backref.inline_len();
    }
    match data.get(at) {
        None => Ok(()),
        Some(kind) => Err(Fail::Bad(format!("inline reference of type {kind} is unknown or cut off"))),
    }
}

fn inline_ref(out: &mut dyn Write, backref: BackRef, count: u32) -> Printed {
    let (kind, value) = (backref.kind(), backref.sort_value());
    match backref {
        BackRef::TreeBlock { root } => {
            writeln!(out, "\t\t({kind} 0x{value:x}) tree block backref root {}", tree(root))?;
        }
        BackRef::SharedBlock { parent } => {
            writeln!(out, "\t\t({kind} 0x{value:x}) shared block backref parent {parent}")?;
        }
        BackRef::Data { root, objectid, offset } => {
            write!(out, "\t\t({kind} 0x{value:x}) extent data backref root {} ", tree(root))?;
            writeln!(out, "objectid {objectid} offset {offset} count {count}")?;
        }
        BackRef::SharedData { parent } => {
            writeln!(out, "\t\t({kind} 0x{value:x}) shared data backref parent {parent} count {count}")?;
        }
        // one tab and a stray letter: that is how btrfs-progs prints it
        BackRef::Owner { root } => writeln!(out, "\t({kind} 0x{value:x}) textent owner root {root}")?,
    }
    Ok(())
}

/// An EXTENT_DATA_REF.
pub fn data_ref(out: &mut dyn Write, data: &[u8]) -> Printed {
    let (r, _) = fixed::<ExtentDataRef>(data, "data reference")?;
    write!(out, "\t\textent data backref root {} ", tree(r.root.get()))?;
    Ok(writeln!(out, "objectid {} offset {} count {}", r.objectid, r.offset, r.count)?)
}

/// A SHARED_DATA_REF.
pub fn shared_data_ref(out: &mut dyn Write, data: &[u8]) -> Printed {
    let (count, _) = fixed::<U32>(data, "count")?;
    Ok(writeln!(out, "\t\tshared data backref count {count}")?)
}

/// An EXTENT_OWNER_REF.
pub fn owner_ref(out: &mut dyn Write, data: &[u8]) -> Printed {
    let (root, _) = fixed::<U64>(data, "root")?;
    Ok(writeln!(out, "\t\textent owner root {root}")?)
}
