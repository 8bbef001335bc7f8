//! `buttery subvolume find-new`: extents of files that are newer than a generation, as `btrfs subvolume find-new` lists
//! them.

use super::on_image;
use crate::source::{self, SourceArgs};
use anyhow::{Context, Result};
use buttery::FileId;
use buttery_disk::extent::{FileExtentItem, file_extent};
use buttery_disk::zerocopy::FromBytes;
use buttery_disk::{Key, item};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{BufWriter, Write};

pub fn run(source: &SourceArgs, what: &OsString, since: u64) -> Result<()> {
    let (image, path) = source::split(what);
    let fs = source.open(&image)?;
    let id = on_image::subvolume_at(&fs, &path)?;
    let of = fs.subvolume_info(id)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut names: HashMap<u64, Vec<u8>> = HashMap::new();
    let mut at = Key::MIN;
    // a batch at a time: names are looked for in the same tree
    while let Some((found, next)) = batch(&fs, id, at, since).with_context(|| image.display().to_string())? {
        for (key, extent) in found {
            if !names.contains_key(&key.objectid) {
                names.clear();
                let name = fs.path_in_subvolume(FileId { tree: id, ino: key.objectid })?;
                names.insert(key.objectid, name);
            }
            line(&mut out, key, &extent, &names[&key.objectid])?;
        }
        at = next;
    }
    writeln!(out, "transid marker was {}", of.item.generation.get())?;
    out.flush()?;
    Ok(())
}

/// Extents that are newer, of the next items of the tree, and where to go on. `None` at the end.
#[allow(clippy::type_complexity)] // a list and a place
fn batch(
    fs: &buttery::Filesystem,
    id: buttery::TreeId,
    from: Key,
    since: u64,
) -> buttery::Result<Option<(Vec<(Key, FileExtentItem)>, Key)>> {
    const ITEMS: usize = 4096;
    let engine = fs.engine();
    let tree = engine.tree(id)?;
    let view = tree.read(engine.store());
    let mut cursor = view.seek(from)?;
    let mut found = Vec::new();
    for _ in 0..ITEMS {
        let Some((key, data)) = cursor.item() else {
            return Ok((!found.is_empty()).then_some((found, Key::MAX)));
        };
        if key.kind == item::EXTENT_DATA
            && let Ok((extent, _)) = FileExtentItem::read_from_prefix(&padded(data))
            && extent.generation.get() >= since
        {
            found.push((key, extent));
        }
        cursor.advance()?;
    }
    let next = cursor.key().unwrap_or(Key::MAX);
    Ok(Some((found, next)))
}

/// What an inline extent lacks are fields that it has no use for.
fn padded(data: &[u8]) -> Vec<u8> {
    let mut out = data[..data.len().min(size_of::<FileExtentItem>())].to_vec();
    if data.get(20) == Some(&file_extent::INLINE) {
        out.truncate(21);
    }
    out.resize(size_of::<FileExtentItem>(), 0);
    out
}

fn line(out: &mut dyn Write, key: Key, extent: &FileExtentItem, name: &[u8]) -> std::io::Result<()> {
    let inline = extent.kind == file_extent::INLINE;
    let (len, start, offset) = match inline {
        true => (extent.ram_bytes.get(), 0, 0),
        false => (extent.num_bytes.get(), extent.disk_bytenr.get(), extent.offset.get()),
    };
    let mut flags = Vec::new();
    if extent.compression != 0 {
        flags.push("COMPRESS");
    }
    match extent.kind {
        file_extent::PREALLOC => flags.push("PREALLOC"),
        file_extent::INLINE => flags.push("INLINE"),
        _ => {}
    }
    let flags = if flags.is_empty() { "NONE".to_string() } else { flags.join("|") };
    writeln!(
        out,
        "inode {} file offset {} len {len} disk start {start} offset {offset} gen {} flags {flags} {}",
        key.objectid,
        key.offset,
        extent.generation.get(),
        String::from_utf8_lossy(name)
    )
}
