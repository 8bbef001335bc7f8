//! Inodes, their names, directory entries and extended attributes.

use crate::block::Context;
use crate::fail::{Printed, bytes, fixed};
use crate::name::KeyText;
use crate::text::{Escaped, bit_names};
use buttery_disk::dir::{DirItem, file_type};
use buttery_disk::inode::{InodeExtref, InodeItem, InodeRef, Timespec, flags};
use buttery_disk::zerocopy::little_endian::U64;
use std::io::Write;

/// Names of inode flags.
const FLAGS: [(u64, &str); 13] = [
    (flags::NODATASUM, "NODATASUM"),
    (flags::NODATACOW, "NODATACOW"),
    (flags::READONLY, "READONLY"),
    (flags::NOCOMPRESS, "NOCOMPRESS"),
    (flags::PREALLOC, "PREALLOC"),
    (flags::SYNC, "SYNC"),
    (flags::IMMUTABLE, "IMMUTABLE"),
    (flags::APPEND, "APPEND"),
    (flags::NODUMP, "NODUMP"),
    (flags::NOATIME, "NOATIME"),
    (flags::DIRSYNC, "DIRSYNC"),
    (flags::COMPRESS, "COMPRESS"),
    (flags::ROOT_ITEM_INIT, "ROOT_ITEM_INIT"),
];

fn flag_names(flags: u64) -> String {
    let (names, unknown) = bit_names(flags, &FLAGS);
    let mut names: Vec<String> = names.into_iter().map(str::to_string).collect();
    if unknown != 0 {
        names.push(format!("UNKNOWN: 0x{unknown:x}"));
    }
    if names.is_empty() { "none".to_string() } else { names.join("|") }
}

/// Prints a time after its name.
pub fn time(out: &mut dyn Write, name: &str, time: &Timespec, ctx: &Context) -> Printed {
    let (sec, nsec) = (time.sec.get(), time.nsec.get());
    Ok(writeln!(out, "\t\t{name} {}.{nsec} ({})", sec as u64, ctx.zone.date(sec))?)
}

/// How much of a name or value is printed; longer values are common, and btrfs-progs prints no more of them.
const SHOWN: usize = 255;

/// The beginning of a name or value, or what stands for it when names are to be hidden.
fn shown(name: &[u8], ctx: &Context) -> String {
    match ctx.options.hide_names {
        true => "HIDDEN".to_string(),
        false => Escaped(&name[..name.len().min(SHOWN)]).to_string(),
    }
}

/// An INODE_ITEM.
pub fn inode(out: &mut dyn Write, data: &[u8], ctx: &Context) -> Printed {
    let (i, _) = fixed::<InodeItem>(data, "inode item")?;
    let (generation, transid, size) = (i.generation.get(), i.transid.get(), i.size.get());
    writeln!(out, "\t\tgeneration {generation} transid {transid} size {size} nbytes {}", i.nbytes)?;
    write!(out, "\t\tblock group {} mode {:o} links {} ", i.block_group, i.mode.get(), i.nlink)?;
    writeln!(out, "uid {} gid {} rdev {}", i.uid, i.gid, i.rdev)?;
    let flags = i.flags.get();
    writeln!(out, "\t\tsequence {} flags 0x{flags:x}({})", i.sequence, flag_names(flags))?;
    time(out, "atime", &i.atime, ctx)?;
    time(out, "ctime", &i.ctime, ctx)?;
    time(out, "mtime", &i.mtime, ctx)?;
    time(out, "otime", &i.otime, ctx)
}

/// An INODE_REF: names in one directory.
pub fn refs(out: &mut dyn Write, mut data: &[u8], ctx: &Context) -> Printed {
    while !data.is_empty() {
        let (head, rest) = fixed::<InodeRef>(data, "inode reference")?;
        let (name, rest) = bytes(rest, head.name_len.get().into(), "name")?;
        writeln!(out, "\t\tindex {} namelen {} name: {}", head.index, head.name_len, shown(name, ctx))?;
        data = rest;
    }
    Ok(())
}

/// An INODE_EXTREF: names in directories.
pub fn extrefs(out: &mut dyn Write, mut data: &[u8], ctx: &Context) -> Printed {
    while !data.is_empty() {
        let (head, rest) = fixed::<InodeExtref>(data, "inode reference")?;
        let (name, rest) = bytes(rest, head.name_len.get().into(), "name")?;
        write!(out, "\t\tindex {} parent {} ", head.index, head.parent)?;
        writeln!(out, "namelen {} name: {}", head.name_len, shown(name, ctx))?;
        data = rest;
    }
    Ok(())
}

fn file_type_name(kind: u8) -> String {
    let kind = kind & !file_type::ENCRYPTED;
    let name = match kind {
        file_type::REG => "FILE",
        file_type::DIR => "DIR",
        file_type::CHR => "CHRDEV",
        file_type::BLK => "BLKDEV",
        file_type::FIFO => "FIFO",
        file_type::SOCK => "SOCK",
        file_type::SYMLINK => "SYMLINK",
        file_type::XATTR => "XATTR",
        _ => return format!("DIR_ITEM.{kind}"),
    };
    name.to_string()
}

/// A DIR_ITEM, DIR_INDEX or XATTR_ITEM.
pub fn entries(out: &mut dyn Write, mut data: &[u8], ctx: &Context) -> Printed {
    while !data.is_empty() {
        let (head, rest) = fixed::<DirItem>(data, "directory entry")?;
        let location = KeyText(head.location.into());
        writeln!(out, "\t\tlocation key ({location}) type {}", file_type_name(head.kind))?;
        let (name_len, data_len) = (head.name_len.get(), head.data_len.get());
        let (name, rest) = bytes(rest, name_len.into(), "name")?;
        let (value, rest) = bytes(rest, data_len.into(), "value")?;
        writeln!(out, "\t\ttransid {} data_len {data_len} name_len {name_len}", head.transid)?;
        writeln!(out, "\t\tname: {}", shown(name, ctx))?;
        if !value.is_empty() {
            writeln!(out, "\t\tdata {}", shown(value, ctx))?;
        }
        data = rest;
    }
    Ok(())
}

/// A DIR_LOG_ITEM or DIR_LOG_INDEX: up to where the log is complete.
pub fn dir_log(out: &mut dyn Write, data: &[u8]) -> Printed {
    let (end, _) = fixed::<U64>(data, "end")?;
    Ok(writeln!(out, "\t\tdir log end {end}")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_file_types_by_name() {
        assert_eq!(flag_names(0), "none");
        assert_eq!(flag_names(0x1003), "NODATASUM|NODATACOW|UNKNOWN: 0x1000");
        assert_eq!(file_type_name(0x82), "DIR");
        assert_eq!(file_type_name(0), "DIR_ITEM.0");
    }
}
