//! The rules of extent items and their back references.

use super::{Context, Violation, ensure};
use crate::extent::{
    BackRef, ExtentDataRef, ExtentItem, flags, inline_ref_len, inline_refs, inline_refs_start,
};
use crate::key::{Key, item};
use crate::node::MAX_LEVEL;
use zerocopy::FromBytes;

pub(super) fn check_extent(key: Key, data: &[u8], prev: Option<Key>, ctx: &Context) -> Result<(), Violation> {
    let sector = ctx.sectorsize as u64;
    ensure!(key.objectid.is_multiple_of(sector), "an extent's address must be aligned");
    let Ok((extent, _)) = ExtentItem::ref_from_prefix(data) else {
        return Err(Violation::new(format!("an extent item has at least 24 bytes, found {}", data.len())));
    };
    let limit = ctx.generation.saturating_add(1);
    ensure!(
        extent.generation.get() <= limit,
        "extent generation {} is above {limit}",
        extent.generation.get()
    );
    let kind = extent.flags.get() & (flags::DATA | flags::TREE_BLOCK);
    ensure!(
        kind == flags::DATA || kind == flags::TREE_BLOCK,
        "an extent is data or a tree block, found {kind:#x}"
    );
    let length = check_extent_kind(key, kind, ctx)?;
    let start = inline_refs_start(key.kind, kind);
    ensure!(data.len() >= start, "a tree block's extent item is cut off at {} bytes", data.len());
    let total = check_inline_refs(data, start, kind, ctx)?;
    ensure!(total <= extent.refs.get(), "{} references are counted, {total} stand inline", extent.refs.get());
    let _ = length;
    if let Some(prev) = prev {
        let prev_len = match prev.kind {
            item::EXTENT_ITEM => prev.offset,
            item::METADATA_ITEM => ctx.nodesize as u64,
            _ => return Ok(()),
        };
        let end = prev.objectid.saturating_add(prev_len);
        ensure!(end <= key.objectid, "the extent before it ends at {end}: they overlap");
    }
    Ok(())
}

fn check_extent_kind(key: Key, kind: u64, ctx: &Context) -> Result<u64, Violation> {
    if key.kind == item::METADATA_ITEM {
        ensure!(kind == flags::TREE_BLOCK, "a METADATA_ITEM is for a tree block");
        ensure!(key.offset < MAX_LEVEL as u64, "a METADATA_ITEM has level {}", key.offset);
        return Ok(ctx.nodesize as u64);
    }
    if kind == flags::TREE_BLOCK {
        ensure!(key.offset == ctx.nodesize as u64, "a tree block is nodesize long, found {}", key.offset);
    } else {
        ensure!(
            key.offset != 0 && key.offset.is_multiple_of(ctx.sectorsize as u64),
            "a data extent's length must be aligned, found {}",
            key.offset
        );
    }
    Ok(key.offset)
}

fn check_inline_refs(data: &[u8], start: usize, kind: u64, ctx: &Context) -> Result<u64, Violation> {
    let sector = ctx.sectorsize as u64;
    let (mut at, mut total) = (start, 0u64);
    let mut last: Option<(u8, u64)> = None;
    for found in inline_refs(data, start) {
        let tree_block = kind == flags::TREE_BLOCK;
        let fits = match found.backref {
            BackRef::TreeBlock { .. } => tree_block,
            BackRef::SharedBlock { parent } => tree_block && parent % sector == 0,
            BackRef::Data { offset, .. } => !tree_block && offset % sector == 0,
            BackRef::SharedData { parent } => !tree_block && parent % sector == 0,
            BackRef::Owner { .. } => !tree_block,
        };
        ensure!(fits, "inline reference {:?} does not belong to such an extent", found.backref);
        let data_ref = matches!(found.backref, BackRef::Data { .. } | BackRef::SharedData { .. });
        ensure!(!data_ref || found.count > 0, "inline reference {:?} is counted 0 times", found.backref);
        let sort = (found.backref.kind(), found.backref.sort_value());
        if let Some(last) = last {
            ensure!(
                last.0 < sort.0 || (last.0 == sort.0 && last.1 >= sort.1),
                "inline references must sort by type ascending, then value descending"
            );
        }
        last = Some(sort);
        total += found.count as u64;
        at = found.at + inline_ref_len(found.backref.kind()).unwrap_or(0);
    }
    ensure!(at == data.len(), "inline reference at byte {at} is of unknown type or cut off");
    Ok(total)
}

pub(super) fn check_keyed_ref(key: Key, data: &[u8], ctx: &Context) -> Result<(), Violation> {
    let sector = ctx.sectorsize as u64;
    ensure!(key.objectid.is_multiple_of(sector), "an extent's address must be aligned");
    match key.kind {
        item::TREE_BLOCK_REF | item::SHARED_BLOCK_REF => {
            ensure!(data.is_empty(), "a {} has no data, found {} bytes", item::name(key.kind), data.len());
        }
        item::SHARED_DATA_REF => {
            ensure!(data.len() == 4, "a SHARED_DATA_REF has 4 bytes, found {}", data.len())
        }
        _ => {
            ensure!(
                !data.is_empty() && data.len().is_multiple_of(size_of::<ExtentDataRef>()),
                "{} bytes are not whole EXTENT_DATA_REFs",
                data.len()
            );
            for part in data.chunks_exact(size_of::<ExtentDataRef>()) {
                if let Ok(r) = ExtentDataRef::ref_from_bytes(part) {
                    ensure!(r.offset.get() % sector == 0, "a data reference's offset must be aligned");
                }
            }
        }
    }
    Ok(())
}
