//! One tree block: header, then a leaf's items or a node's pointers.

use crate::item;
use crate::name::{KeyText, tree};
use crate::text::{Hex, Uuid, bit_names, csum_size};
use crate::time::Zone;
use buttery_disk::Key;
use buttery_disk::node::{Header, ITEM_LEN, Item, KEY_PTR_LEN, KeyPtr, flags};
use buttery_disk::superblock::{Superblock, incompat};
use buttery_disk::zerocopy::FromBytes;
use std::io::{self, Write};

/// What may be chosen about the printing of blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// `HIDDEN` in place of names of files and of attributes and their values. As in btrfs-progs this leaves the
    /// names in ROOT_REF and ROOT_BACKREF items, those of subvolumes, in the open.
    pub hide_names: bool,
    /// The block's checksum in its second line.
    pub csum_headers: bool,
    /// The checksums that checksum items hold.
    pub csum_items: bool,
}

/// What printing a block must know of its file system.
#[derive(Clone, Debug)]
pub struct Context {
    /// Bytes that one checksum of data covers.
    pub sectorsize: u32,
    /// Bytes of a checksum: 4, 8 or 32.
    pub csum_size: usize,
    /// Whether the file system keeps simple quotas, whose status says since when.
    pub simple_quota: bool,
    /// The zone of dates.
    pub zone: Zone,
    pub options: Options,
}

impl Context {
    /// The context of blocks of the file system with this superblock, with dates in local time.
    pub fn new(sb: &Superblock, options: Options) -> Context {
        let csum_size = csum_size(sb.csum_type.get());
        let simple_quota = sb.has_incompat(incompat::SIMPLE_QUOTA);
        Context { sectorsize: sb.sectorsize.get(), csum_size, simple_quota, zone: Zone::local(), options }
    }
}

/// Prints a block of a tree; its length is the node size.
pub fn tree_block(out: &mut dyn Write, block: &[u8], ctx: &Context) -> io::Result<()> {
    let Ok((header, body)) = Header::ref_from_prefix(block) else {
        return writeln!(out, "ERROR: tree block of {} bytes is shorter than its header", block.len());
    };
    let nritems = header.nritems.get();
    let (bytenr, owner) = (header.bytenr.get(), tree(header.owner.get()));
    let rest = format!("generation {} owner {owner}", header.generation.get());
    if header.level == 0 {
        writeln!(out, "leaf {bytenr} items {nritems} free space {} {rest}", leaf_free(body, nritems))?;
    } else {
        let free = (body.len() / KEY_PTR_LEN) as i64 - i64::from(nritems);
        writeln!(out, "node {bytenr} level {} items {nritems} free space {free} {rest}", header.level)?;
    }
    second_line(out, header, ctx)?;
    writeln!(out, "fs uuid {}\nchunk uuid {}", Uuid(&header.fsid), Uuid(&header.chunk_tree_uuid))?;
    match header.level {
        0 => items(out, body, nritems, ctx),
        _ => pointers(out, body, nritems),
    }
}

/// The line of flags and, if wanted, the checksum.
fn second_line(out: &mut dyn Write, header: &Header, ctx: &Context) -> io::Result<()> {
    let kind = if header.level == 0 { "leaf" } else { "node" };
    let (flags, revision) = (header.flags.get() & !(0xff << 56), header.flags.get() >> 56);
    let (names, _) = bit_names(flags, &[(flags::WRITTEN, "WRITTEN"), (flags::RELOC, "RELOC")]);
    let bytenr = header.bytenr.get();
    write!(out, "{kind} {bytenr} flags 0x{flags:x}({}) backref revision {revision}", names.join("|"))?;
    if ctx.options.csum_headers {
        write!(out, " csum {}", Hex(&header.csum[..ctx.csum_size.min(header.csum.len())]))?;
    }
    writeln!(out)
}

/// The descriptor in this slot, if it lies in the leaf.
fn descriptor(body: &[u8], slot: usize) -> Option<&Item> {
    let at = slot.checked_mul(ITEM_LEN)?;
    Some(Item::ref_from_prefix(body.get(at..)?).ok()?.0)
}

/// Free bytes of a leaf; negative in a leaf that is damaged.
fn leaf_free(body: &[u8], nritems: u32) -> i64 {
    let start = match nritems {
        0 => body.len() as i64,
        n => descriptor(body, n as usize - 1).map_or(0, |item| i64::from(item.offset.get())),
    };
    start - i64::from(nritems) * ITEM_LEN as i64
}

/// Prints the items of a leaf.
fn items(out: &mut dyn Write, body: &[u8], nritems: u32, ctx: &Context) -> io::Result<()> {
    for slot in 0..nritems as usize {
        let Some(item) = descriptor(body, slot) else {
            return writeln!(out, "\tERROR: no room for item {slot} and those after it");
        };
        let (key, offset, size) = (Key::from(item.key), item.offset.get(), item.size.get());
        writeln!(out, "\titem {slot} key ({}) itemoff {offset} itemsize {size}", KeyText(key))?;
        let data = body.get(offset as usize..).and_then(|rest| rest.get(..size as usize));
        match data {
            Some(data) => item::print(out, key, data, ctx)?,
            None => writeln!(out, "\t\tERROR: item data lie outside the leaf")?,
        }
    }
    Ok(())
}

/// Prints the pointers of a node.
fn pointers(out: &mut dyn Write, body: &[u8], nritems: u32) -> io::Result<()> {
    for slot in 0..nritems as usize {
        let at = slot.saturating_mul(KEY_PTR_LEN).min(body.len());
        let Ok((ptr, _)) = KeyPtr::ref_from_prefix(&body[at..]) else {
            return writeln!(out, "\tERROR: no room for pointer {slot} and those after it");
        };
        let (key, block, gen_) = (KeyText(ptr.key.into()), ptr.blockptr.get(), ptr.generation.get());
        writeln!(out, "\tkey ({key}) block {block} gen {gen_}")?;
    }
    Ok(())
}
