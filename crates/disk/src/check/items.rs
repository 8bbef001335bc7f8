//! The rules of single items: inodes, names, file extents, checksums, roots.

use super::{Context, Violation, ensure, extents, sb};
use crate::chunk::{BlockGroupItem, DevExtent, DevItem, FREE_SPACE_BITMAP_SIZE, FreeSpaceInfo, bg};
use crate::dir::{DirItem, NAME_MAX, file_type, name_hash};
use crate::extent::{FILE_EXTENT_INLINE_START, FileExtentItem, compression, file_extent};
use crate::inode::{InodeExtref, InodeItem, InodeRef, flags as inode_flags, mode};
use crate::key::{Key, item, objectid};
use crate::node::{MAX_LEVEL, Node, leaf_data_size};
use crate::root::{ROOT_ITEM_V0_LEN, RootItem, flags as root_flags};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Checks one item whose place in the leaf is sound. `prev` is the key before it in the leaf.
pub fn check_item(
    node: Node<'_>,
    slot: usize,
    key: Key,
    prev: Option<Key>,
    ctx: &Context,
) -> Result<(), Violation> {
    let data = node.data(slot);
    if matches!(
        key.kind,
        item::EXTENT_DATA
            | item::INODE_REF
            | item::INODE_EXTREF
            | item::DIR_ITEM
            | item::DIR_INDEX
            | item::XATTR_ITEM
    ) && objectid::is_subvolume(node.header().owner.get())
        && let Some(prev) = prev
    {
        ensure!(
            prev.objectid == key.objectid,
            "an item of inode {} must follow its INODE_ITEM",
            key.objectid
        );
    }
    match key.kind {
        item::INODE_ITEM => check_inode(key, data, ctx),
        item::INODE_REF => check_inode_ref(data),
        item::INODE_EXTREF => check_inode_extref(data),
        item::DIR_ITEM | item::DIR_INDEX | item::XATTR_ITEM => check_dir_item(node, key, data),
        item::EXTENT_DATA => check_file_extent(node, slot, key, data, prev, ctx),
        item::EXTENT_CSUM => check_csum(node, slot, key, data, prev, ctx),
        item::ROOT_ITEM => check_root(key, data, ctx),
        item::CHUNK_ITEM => sb::check_chunk(key, data, ctx),
        item::DEV_ITEM => check_dev(key, data),
        item::DEV_EXTENT => check_dev_extent(node, slot, key, data, prev, ctx),
        item::BLOCK_GROUP_ITEM => check_block_group(key, data),
        item::FREE_SPACE_INFO => sized::<FreeSpaceInfo>(data).map(|_| ()),
        item::FREE_SPACE_EXTENT => {
            ensure!(data.is_empty(), "a FREE_SPACE_EXTENT must have no data, found {} bytes", data.len());
            Ok(())
        }
        item::FREE_SPACE_BITMAP => {
            ensure!(
                data.len() <= FREE_SPACE_BITMAP_SIZE,
                "a bitmap has at most 256 bytes, found {}",
                data.len()
            );
            let bits = key.offset / ctx.sectorsize as u64;
            ensure!(
                bits.div_ceil(8) == data.len() as u64,
                "a bitmap must have a bit for each of {bits} sectors"
            );
            Ok(())
        }
        item::EXTENT_ITEM | item::METADATA_ITEM => extents::check_extent(key, data, prev, ctx),
        item::TREE_BLOCK_REF | item::SHARED_BLOCK_REF | item::SHARED_DATA_REF | item::EXTENT_DATA_REF => {
            extents::check_keyed_ref(key, data, ctx)
        }
        _ => Ok(()),
    }
}

/// The item as this structure; its size must be the structure's.
fn sized<T: FromBytes + KnownLayout + Immutable + Unaligned>(data: &[u8]) -> Result<&T, Violation> {
    T::ref_from_bytes(data)
        .map_err(|_| Violation::new(format!("item size must be {}, found {}", size_of::<T>(), data.len())))
}

fn check_inode(key: Key, data: &[u8], ctx: &Context) -> Result<(), Violation> {
    let inode = sized::<InodeItem>(data)?;
    let id = key.objectid;
    ensure!(
        (objectid::FIRST_FREE..=objectid::LAST_FREE).contains(&id)
            || id == objectid::ROOT_TREE_DIR
            || id == objectid::FREE_INO,
        "inode number {id} is out of range"
    );
    ensure!(key.offset == 0, "the key offset of an inode must be 0, found {}", key.offset);
    let limit = ctx.generation.saturating_add(1);
    // a log tree, and free space caches, may carry generations one ahead
    ensure!(inode.generation.get() <= limit, "inode generation {} is above {limit}", inode.generation.get());
    ensure!(inode.transid.get() <= limit, "inode transid {} is above {limit}", inode.transid.get());
    let bits = inode.mode.get();
    ensure!(bits & !(mode::FMT | 0o7777) == 0, "inode mode {bits:#o} has unknown bits");
    let kind = bits & mode::FMT;
    ensure!(
        kind.is_power_of_two() || matches!(kind, mode::LNK | mode::BLK | mode::SOCK),
        "inode mode {bits:#o} names no file type"
    );
    ensure!(
        kind != mode::DIR || inode.nlink.get() <= 1,
        "a directory has one link, found {}",
        inode.nlink.get()
    );
    let unknown = inode.flags.get() & u64::from(u32::MAX) & !inode_flags::MASK;
    ensure!(unknown == 0, "inode flags {unknown:#x} are unknown");
    Ok(())
}

fn check_inode_ref(mut data: &[u8]) -> Result<(), Violation> {
    ensure!(!data.is_empty(), "an INODE_REF must have an entry");
    while !data.is_empty() {
        let Ok((fixed, rest)) = InodeRef::ref_from_prefix(data) else {
            return Err(Violation::new("an INODE_REF entry is cut off"));
        };
        let len = fixed.name_len.get() as usize;
        ensure!(
            len > 0 && len <= NAME_MAX && len <= rest.len(),
            "an INODE_REF name of {len} bytes does not fit"
        );
        data = &rest[len..];
    }
    Ok(())
}

fn check_inode_extref(mut data: &[u8]) -> Result<(), Violation> {
    ensure!(!data.is_empty(), "an INODE_EXTREF must have an entry");
    while !data.is_empty() {
        let Ok((fixed, rest)) = InodeExtref::ref_from_prefix(data) else {
            return Err(Violation::new("an INODE_EXTREF entry is cut off"));
        };
        let len = fixed.name_len.get() as usize;
        ensure!(
            len > 0 && len <= NAME_MAX && len <= rest.len(),
            "an INODE_EXTREF name of {len} bytes does not fit"
        );
        data = &rest[len..];
    }
    Ok(())
}

fn check_dir_item(node: Node<'_>, key: Key, mut data: &[u8]) -> Result<(), Violation> {
    while !data.is_empty() {
        let Ok((fixed, rest)) = DirItem::ref_from_prefix(data) else {
            return Err(Violation::new("a directory entry is cut off"));
        };
        let location = Key::from(fixed.location);
        let (name_len, data_len) = (fixed.name_len.get() as usize, fixed.data_len.get() as usize);
        let xattr = key.kind == item::XATTR_ITEM;
        ensure!(
            matches!(location.kind, item::ROOT_ITEM | item::INODE_ITEM) || (xattr && location.kind == 0),
            "a directory entry must lead to an inode or a root, found {location}"
        );
        let kind = fixed.kind & !file_type::ENCRYPTED;
        ensure!(kind <= file_type::XATTR, "a directory entry has file type {kind}");
        ensure!(xattr == (kind == file_type::XATTR), "a directory entry of type {kind} is in the wrong item");
        ensure!(name_len > 0 && name_len <= NAME_MAX, "a name must have 1 to 255 bytes, found {name_len}");
        ensure!(xattr || data_len == 0, "only an xattr has data, found {data_len} bytes");
        let max = leaf_data_size(node.bytes().len());
        ensure!(name_len + data_len <= max, "name and data of {name_len}+{data_len} bytes exceed a leaf");
        ensure!(
            name_len + data_len <= rest.len(),
            "name and data of {name_len}+{data_len} bytes exceed the item"
        );
        if key.kind != item::DIR_INDEX {
            let hash = name_hash(&rest[..name_len]);
            ensure!(key.offset == hash, "the name's hash must be the key offset, found {hash}");
        }
        data = &rest[name_len + data_len..];
    }
    Ok(())
}

fn check_file_extent(
    node: Node<'_>,
    slot: usize,
    key: Key,
    data: &[u8],
    prev: Option<Key>,
    ctx: &Context,
) -> Result<(), Violation> {
    let sector = ctx.sectorsize as u64;
    ensure!(key.offset.is_multiple_of(sector), "the file offset must be aligned to the sector size");
    ensure!(
        data.len() >= FILE_EXTENT_INLINE_START,
        "a file extent has at least 21 bytes, found {}",
        data.len()
    );
    let (ram_bytes, compress, encryption, kind) =
        (u64::from_le_bytes(data[8..16].try_into().expect("8 bytes")), data[16], data[17], data[20]);
    ensure!(kind <= file_extent::PREALLOC, "a file extent has type {kind}");
    ensure!(compress <= compression::ZSTD, "a file extent has compression {compress}");
    ensure!(encryption == 0, "a file extent has encryption {encryption}");
    if kind == file_extent::INLINE {
        ensure!(key.offset == 0, "an inline extent must be at file offset 0");
        let len = (data.len() - FILE_EXTENT_INLINE_START) as u64;
        ensure!(
            compress != compression::NONE || len == ram_bytes,
            "an inline extent of {ram_bytes} bytes has {len} bytes of data"
        );
        return Ok(());
    }
    let extent = sized::<FileExtentItem>(data)?;
    for (name, value) in [
        ("ram_bytes", ram_bytes),
        ("disk_bytenr", extent.disk_bytenr.get()),
        ("disk_num_bytes", extent.disk_num_bytes.get()),
        ("offset", extent.offset.get()),
        ("num_bytes", extent.num_bytes.get()),
    ] {
        ensure!(value % sector == 0, "{name} {value} must be aligned to the sector size");
    }
    let end = key.offset.checked_add(extent.num_bytes.get());
    ensure!(end.is_some(), "the extent ends beyond the largest file");
    if let Some(prev) = prev
        && prev.objectid == key.objectid
        && prev.kind == item::EXTENT_DATA
        && let Ok(before) = FileExtentItem::ref_from_bytes(node.data(slot - 1))
        && before.kind != file_extent::INLINE
    {
        let before_end = prev.offset.saturating_add(before.num_bytes.get());
        ensure!(before_end <= key.offset, "the extent before it ends at {before_end}: they overlap");
    }
    Ok(())
}

fn check_csum(
    node: Node<'_>,
    slot: usize,
    key: Key,
    data: &[u8],
    prev: Option<Key>,
    ctx: &Context,
) -> Result<(), Violation> {
    ensure!(
        key.objectid == objectid::EXTENT_CSUM,
        "a checksum item has objectid -10, found {}",
        key.objectid
    );
    ensure!(key.offset.is_multiple_of(ctx.sectorsize as u64), "a checksum item's address must be aligned");
    ensure!(
        data.len().is_multiple_of(ctx.csum_size as usize),
        "{} bytes are not whole checksums",
        data.len()
    );
    if let Some(prev) = prev
        && prev.kind == item::EXTENT_CSUM
    {
        let sums = node.item(slot - 1).size.get() / ctx.csum_size;
        let end = prev.offset.saturating_add(sums as u64 * ctx.sectorsize as u64);
        ensure!(end <= key.offset, "the checksum item before it ends at {end}: they overlap");
    }
    Ok(())
}

fn check_root(key: Key, data: &[u8], ctx: &Context) -> Result<(), Violation> {
    ensure!(key.objectid != 0, "a root item must name a tree");
    ensure!(
        data.len() == size_of::<RootItem>() || data.len() == ROOT_ITEM_V0_LEN,
        "a root item has 439 or 239 bytes, found {}",
        data.len()
    );
    let Some(root) = RootItem::parse(data) else {
        return Err(Violation::new("a root item is cut off"));
    };
    let limit = ctx.generation.saturating_add(1);
    ensure!(root.generation.get() <= limit, "root generation {} is above {limit}", root.generation.get());
    ensure!(
        root.last_snapshot.get() <= limit,
        "root last_snapshot {} is above {limit}",
        root.last_snapshot.get()
    );
    ensure!(
        root.bytenr.get() % ctx.sectorsize as u64 == 0,
        "root bytenr {} must be aligned",
        root.bytenr.get()
    );
    ensure!(root.level < MAX_LEVEL, "root level {} is too high", root.level);
    ensure!(root.drop_level < MAX_LEVEL, "root drop_level {} is too high", root.drop_level);
    let unknown = root.flags.get() & !(root_flags::RDONLY | root_flags::DEAD);
    ensure!(unknown == 0, "root flags {unknown:#x} are unknown");
    Ok(())
}

fn check_dev(key: Key, data: &[u8]) -> Result<(), Violation> {
    let dev = sized::<DevItem>(data)?;
    ensure!(key.objectid == objectid::DEV_ITEMS, "a device item has objectid 1, found {}", key.objectid);
    ensure!(dev.devid.get() == key.offset, "device id {} must be the key offset", dev.devid.get());
    ensure!(
        dev.bytes_used.get() <= dev.total_bytes.get(),
        "a device of {} bytes has {} used",
        dev.total_bytes.get(),
        dev.bytes_used.get()
    );
    Ok(())
}

fn check_dev_extent(
    node: Node<'_>,
    slot: usize,
    key: Key,
    data: &[u8],
    prev: Option<Key>,
    ctx: &Context,
) -> Result<(), Violation> {
    let extent = sized::<DevExtent>(data)?;
    let sector = ctx.sectorsize as u64;
    ensure!(key.offset.is_multiple_of(sector), "a device extent's address must be aligned");
    ensure!(
        extent.length.get() != 0 && extent.length.get() % sector == 0,
        "a device extent's length must be aligned"
    );
    ensure!(extent.chunk_offset.get() % sector == 0, "a device extent's chunk must be aligned");
    if let Some(prev) = prev
        && prev.kind == item::DEV_EXTENT
        && prev.objectid == key.objectid
        && let Ok(before) = DevExtent::ref_from_bytes(node.data(slot - 1))
    {
        let end = prev.offset.saturating_add(before.length.get());
        ensure!(end <= key.offset, "the device extent before it ends at {end}: they overlap");
    }
    Ok(())
}

fn check_block_group(key: Key, data: &[u8]) -> Result<(), Violation> {
    ensure!(key.offset != 0, "a block group must have a length");
    let group = sized::<BlockGroupItem>(data)?;
    let (used, kind) = (group.used.get(), group.flags.get());
    ensure!(used <= key.offset, "a block group of {} bytes has {used} used", key.offset);
    ensure!((kind & bg::PROFILE_MASK).count_ones() <= 1, "a block group has several profiles: {kind:#x}");
    let types = kind & bg::TYPE_MASK;
    ensure!(
        matches!(types, bg::DATA | bg::METADATA | bg::SYSTEM) || types == bg::DATA | bg::METADATA,
        "a block group has types {types:#x}"
    );
    Ok(())
}
