//! Superblocks, as `dump-super` prints them.
//!
//! [`superblock`] prints one copy with its two lines of heading and the blank line after it, so that several copies,
//! or those of several devices, are printed one after another with nothing between. `dump-super` without options
//! prints the copy at 64 KiB, with `-s N` copy N, with `--bytenr N` what stands there; with `-a` every copy that lies
//! inside the device, in the order of [`OFFSETS`](buttery_disk::superblock::OFFSETS). A copy that lies beyond the
//! end of the device is passed over without a word.
//!
//! A copy without the magic number is printed only when forced (`-F`). Otherwise its heading is printed alone,
//! [`superblock`] returns `false`, and the program says on its standard error
//! `ERROR: bad magic on superblock on DEVICE at BYTENR (use --force to dump it anyway)`, goes on to nothing else
//! and ends with status 1.

use crate::fail::report;
use crate::item;
use crate::name::KeyText;
use crate::text::{Dotted, Hex, Uuid, bit_names, csum_name, csum_size, until_nul};
use buttery_disk::chunk::{ChunkItem, DevItem, Stripe};
use buttery_disk::key::DiskKey;
use buttery_disk::superblock::{
    MAGIC, RootBackup, SYS_CHUNK_ARRAY_SIZE, Superblock, compat_ro, flags, incompat,
};
use buttery_disk::zerocopy::FromBytes;
use buttery_disk::{Key, item as kind};
use std::io::{self, Write};

/// Whether a superblock's checksum is that of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CsumState {
    Match,
    Mismatch,
}

/// What may be chosen about the printing of a superblock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SuperOptions {
    /// The system chunk array and the backup roots too (`-f`).
    pub full: bool,
    /// Whatever stands there, even without the magic number (`-F`).
    pub force: bool,
}

/// The bits of `flags`, in the order in which they are printed.
const SUPER_FLAGS: [(u64, &str); 10] = [
    (flags::WRITTEN, "WRITTEN"),
    (flags::RELOC, "RELOC"),
    (flags::CHANGING_FSID, "CHANGING_FSID"),
    (flags::CHANGING_FSID_V2, "CHANGING_FSID_V2"),
    (flags::SEEDING, "SEEDING"),
    (flags::METADUMP, "METADUMP"),
    (flags::METADUMP_V2, "METADUMP_V2"),
    (flags::CHANGING_BG_TREE, "CHANGING_BG_TREE"),
    (flags::CHANGING_DATA_CSUM, "CHANGING_DATA_CSUM"),
    (flags::CHANGING_META_CSUM, "CHANGING_META_CSUM"),
];

/// Prints one copy; `bytenr` is where it was read from. Returns whether more than its heading was printed.
pub fn superblock(
    out: &mut dyn Write,
    sb: &Superblock,
    device: &str,
    bytenr: u64,
    csum: CsumState,
    options: SuperOptions,
) -> io::Result<bool> {
    writeln!(out, "superblock: bytenr={bytenr}, device={device}")?;
    writeln!(out, "---------------------------------------------------------")?;
    if !options.force && sb.magic.get() != MAGIC {
        return Ok(false);
    }
    identity(out, sb, csum)?;
    trees(out, sb)?;
    features(out, sb)?;
    own_device(out, sb)?;
    if options.full {
        system_chunks(out, sb)?;
        backups(out, sb)?;
    }
    writeln!(out)?;
    Ok(true)
}

fn matches(same: bool) -> &'static str {
    if same { "[match]" } else { "[DON'T MATCH]" }
}

fn identity(out: &mut dyn Write, sb: &Superblock, csum: CsumState) -> io::Result<()> {
    let kind = sb.csum_type.get();
    let name = csum_name(kind.into());
    let size = csum_size(kind);
    let state = match name {
        Some(_) => matches(csum == CsumState::Match),
        None => "[UNKNOWN CSUM TYPE OR SIZE]",
    };
    writeln!(out, "csum_type\t\t{kind} ({})", name.unwrap_or("INVALID"))?;
    writeln!(out, "csum_size\t\t{size}")?;
    writeln!(out, "csum\t\t\t{} {state}", Hex(&sb.csum[..size.min(sb.csum.len())]))?;
    writeln!(out, "bytenr\t\t\t{}", sb.bytenr)?;
    writeln!(out, "flags\t\t\t0x{:x}", sb.flags.get())?;
    bits(out, sb.flags.get(), &SUPER_FLAGS)?;
    let magic = sb.magic.get();
    writeln!(out, "magic\t\t\t{} {}", Dotted(&magic.to_le_bytes()), matches(magic == MAGIC))?;
    writeln!(out, "fsid\t\t\t{}", Uuid(&sb.fsid))?;
    writeln!(out, "metadata_uuid\t\t{}", Uuid(&sb.metadata_uuid))?;
    writeln!(out, "label\t\t\t{}", Dotted(until_nul(&sb.label)))
}

fn trees(out: &mut dyn Write, sb: &Superblock) -> io::Result<()> {
    writeln!(out, "generation\t\t{}", sb.generation)?;
    writeln!(out, "root\t\t\t{}", sb.root)?;
    writeln!(out, "sys_array_size\t\t{}", sb.sys_chunk_array_size)?;
    writeln!(out, "chunk_root_generation\t{}", sb.chunk_root_generation)?;
    writeln!(out, "root_level\t\t{}", sb.root_level)?;
    writeln!(out, "chunk_root\t\t{}", sb.chunk_root)?;
    writeln!(out, "chunk_root_level\t{}", sb.chunk_root_level)?;
    writeln!(out, "log_root\t\t{}", sb.log_root)?;
    writeln!(out, "log_root_transid (deprecated)\t{}", sb.unused_log_root_transid)?;
    writeln!(out, "log_root_level\t\t{}", sb.log_root_level)?;
    writeln!(out, "total_bytes\t\t{}", sb.total_bytes)?;
    writeln!(out, "bytes_used\t\t{}", sb.bytes_used)?;
    writeln!(out, "sectorsize\t\t{}", sb.sectorsize)?;
    writeln!(out, "nodesize\t\t{}", sb.nodesize)?;
    writeln!(out, "leafsize (deprecated)\t{}", sb.leafsize)?;
    writeln!(out, "stripesize\t\t{}", sb.stripesize)?;
    writeln!(out, "root_dir\t\t{}", sb.root_dir_objectid)?;
    writeln!(out, "num_devices\t\t{}", sb.num_devices)
}

/// The bits of a set of flags, one a line between brackets; nothing for the empty set.
fn bits(out: &mut dyn Write, flags: u64, names: &[(u64, &str)]) -> io::Result<()> {
    let (names, unknown) = bit_names(flags, names);
    let mut lines: Vec<String> = names.into_iter().map(str::to_string).collect();
    if unknown != 0 {
        lines.push(format!("unknown flag: 0x{unknown:x}"));
    }
    match lines.is_empty() {
        true => Ok(()),
        false => writeln!(out, "\t\t\t( {} )", lines.join(" |\n\t\t\t  ")),
    }
}

fn features(out: &mut dyn Write, sb: &Superblock) -> io::Result<()> {
    // btrfs-progs has no name for VERITY nor, yet, for what came after its release
    let ro: Vec<_> = compat_ro::NAMES.into_iter().filter(|(bit, _)| *bit != compat_ro::VERITY).collect();
    let inc: Vec<_> = incompat::NAMES.into_iter().filter(|(bit, _)| *bit != incompat::REMAP_TREE).collect();
    let (compat, compat_ro, incompat) = (sb.compat_flags, sb.compat_ro_flags, sb.incompat_flags);
    writeln!(out, "compat_flags\t\t0x{:x}", compat.get())?;
    writeln!(out, "compat_ro_flags\t\t0x{:x}", compat_ro.get())?;
    bits(out, compat_ro.get(), &ro)?;
    writeln!(out, "incompat_flags\t\t0x{:x}", incompat.get())?;
    bits(out, incompat.get(), &inc)?;
    writeln!(out, "cache_generation\t{}", sb.cache_generation)?;
    writeln!(out, "uuid_tree_generation\t{}", sb.uuid_tree_generation)
}

fn own_device(out: &mut dyn Write, sb: &Superblock) -> io::Result<()> {
    let DevItem { devid, total_bytes, bytes_used, io_align, io_width, sector_size, .. } = sb.dev_item;
    let device = &sb.dev_item;
    writeln!(out, "dev_item.uuid\t\t{}", Uuid(&device.uuid))?;
    writeln!(out, "dev_item.fsid\t\t{} {}", Uuid(&device.fsid), matches(device.fsid == sb.block_fsid()))?;
    writeln!(out, "dev_item.type\t\t{}", device.kind)?;
    writeln!(out, "dev_item.total_bytes\t{total_bytes}")?;
    writeln!(out, "dev_item.bytes_used\t{bytes_used}")?;
    writeln!(out, "dev_item.io_align\t{io_align}")?;
    writeln!(out, "dev_item.io_width\t{io_width}")?;
    writeln!(out, "dev_item.sector_size\t{sector_size}")?;
    writeln!(out, "dev_item.devid\t\t{devid}")?;
    writeln!(out, "dev_item.dev_group\t{}", device.dev_group)?;
    writeln!(out, "dev_item.seek_speed\t{}", device.seek_speed)?;
    writeln!(out, "dev_item.bandwidth\t{}", device.bandwidth)?;
    writeln!(out, "dev_item.generation\t{}", device.generation)
}

/// The chunks of the array. What is wrong with it is told in place; btrfs-progs does so on standard error.
fn system_chunks(out: &mut dyn Write, sb: &Superblock) -> io::Result<()> {
    writeln!(out, "sys_chunk_array[{SYS_CHUNK_ARRAY_SIZE}]:")?;
    let size = sb.sys_chunk_array_size.get() as usize;
    if size > SYS_CHUNK_ARRAY_SIZE {
        return writeln!(out, "ERROR: sys_array_size {size} shouldn't exceed {SYS_CHUNK_ARRAY_SIZE} bytes");
    }
    let array = sb.sys_chunks();
    let (mut at, mut slot) = (0, 0);
    while at < array.len() {
        let Ok((key, data)) = DiskKey::ref_from_prefix(&array[at..]) else {
            return too_short(out, size_of::<DiskKey>(), at);
        };
        let key = Key::from(*key);
        at += size_of::<DiskKey>();
        writeln!(out, "\titem {slot} key ({})", KeyText(key))?;
        if key.kind != kind::CHUNK_ITEM {
            let kind = key.kind;
            return writeln!(out, "ERROR: unexpected item type {kind} in sys_array at offset {at}");
        }
        // room for a chunk with one stripe comes first: no chunk has fewer
        let least = size_of::<ChunkItem>() + size_of::<Stripe>();
        let Ok((chunk, stripes)) = ChunkItem::ref_from_prefix(data) else {
            return too_short(out, least, at);
        };
        if stripes.len() < size_of::<Stripe>() {
            return too_short(out, least, at);
        }
        let count = usize::from(chunk.num_stripes.get());
        let len = size_of::<ChunkItem>() + count * size_of::<Stripe>();
        if count == 0 {
            return writeln!(out, "ERROR: invalid number of stripes 0 in sys_array at offset {at}");
        }
        let Some(data) = data.get(..len) else {
            return too_short(out, len, at);
        };
        let printed = item::chunk(out, data);
        report(out, "\t\t", printed, len)?;
        at += len;
        slot += 1;
    }
    Ok(())
}

fn too_short(out: &mut dyn Write, needed: usize, at: usize) -> io::Result<()> {
    writeln!(out, "ERROR: sys_array too short to read {needed} bytes at offset {at}")
}

fn backups(out: &mut dyn Write, sb: &Superblock) -> io::Result<()> {
    writeln!(out, "backup_roots[{}]:", sb.super_roots.len())?;
    for (slot, backup) in sb.super_roots.iter().enumerate() {
        writeln!(out, "\tbackup {slot}:")?;
        one_backup(out, backup, sb.has_incompat(incompat::EXTENT_TREE_V2))?;
        writeln!(out)?;
    }
    Ok(())
}

fn one_backup(out: &mut dyn Write, b: &RootBackup, extent_tree_v2: bool) -> io::Result<()> {
    let third = if extent_tree_v2 { "backup_block_group_root:\t" } else { "backup_extent_root:\t" };
    let roots = [
        ("backup_tree_root:\t", b.tree_root, b.tree_root_gen, b.tree_root_level),
        ("backup_chunk_root:\t", b.chunk_root, b.chunk_root_gen, b.chunk_root_level),
        (third, b.extent_root, b.extent_root_gen, b.extent_root_level),
        ("backup_fs_root:\t\t", b.fs_root, b.fs_root_gen, b.fs_root_level),
        ("backup_dev_root:\t", b.dev_root, b.dev_root_gen, b.dev_root_level),
        ("csum_root:\t", b.csum_root, b.csum_root_gen, b.csum_root_level),
    ];
    for (name, root, generation, level) in roots {
        writeln!(out, "\t\t{name}{root}\tgen: {generation}\tlevel: {level}")?;
    }
    writeln!(out, "\t\tbackup_total_bytes:\t{}", b.total_bytes)?;
    writeln!(out, "\t\tbackup_bytes_used:\t{}", b.bytes_used)?;
    writeln!(out, "\t\tbackup_num_devices:\t{}", b.num_devices)
}
