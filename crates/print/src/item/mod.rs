//! Items of leaves: from the key's type to the function that prints the data.

mod extent;
mod inode;
mod misc;
mod quota;
mod root;
mod volume;

use crate::block::Context;
use crate::fail::{Printed, report};
use crate::name::{CSUM_ITEM, EXTENT_REF_V0};
use buttery_disk::{Key, item, objectid};
use std::io::{self, Write};

pub use volume::chunk;

/// Prints what an item holds, below the line with its key. Types that are not known print nothing.
pub fn print(out: &mut dyn Write, key: Key, data: &[u8], ctx: &Context) -> io::Result<()> {
    let printed = dispatch(out, key, data, ctx);
    report(out, "\t\t", printed, data.len())
}

fn dispatch(out: &mut dyn Write, key: Key, data: &[u8], ctx: &Context) -> Printed {
    match key.kind {
        0 if key.objectid == objectid::FREE_SPACE => misc::free_space_header(out, data),
        item::INODE_ITEM => inode::inode(out, data, ctx),
        item::INODE_REF => inode::refs(out, data, ctx),
        item::INODE_EXTREF => inode::extrefs(out, data, ctx),
        item::XATTR_ITEM | item::DIR_ITEM | item::DIR_INDEX => inode::entries(out, data, ctx),
        item::DIR_LOG_ITEM | item::DIR_LOG_INDEX => inode::dir_log(out, data),
        item::ORPHAN_ITEM => line(out, "orphan item"),
        item::EXTENT_DATA => extent::file_extent(out, data),
        item::EXTENT_CSUM => extent::csums(out, key, data, ctx),
        item::ROOT_ITEM => root::root(out, data, ctx),
        item::ROOT_REF => root::root_ref(out, data, "ref"),
        item::ROOT_BACKREF => root::root_ref(out, data, "backref"),
        item::EXTENT_ITEM | item::METADATA_ITEM => extent::extent(out, key, data),
        item::TREE_BLOCK_REF => line(out, "tree block backref"),
        item::SHARED_BLOCK_REF => line(out, "shared block backref"),
        item::EXTENT_DATA_REF => extent::data_ref(out, data),
        item::SHARED_DATA_REF => extent::shared_data_ref(out, data),
        item::EXTENT_OWNER_REF => extent::owner_ref(out, data),
        EXTENT_REF_V0 => line(out, "extent ref v0 (deprecated)"),
        CSUM_ITEM => line(out, "csum item"),
        item::BLOCK_GROUP_ITEM => volume::block_group(out, data),
        item::FREE_SPACE_INFO => volume::free_space_info(out, data),
        item::FREE_SPACE_EXTENT => line(out, "free space extent"),
        item::FREE_SPACE_BITMAP => line(out, "free space bitmap"),
        item::DEV_EXTENT => volume::dev_extent(out, data),
        item::DEV_ITEM => volume::device(out, data),
        item::CHUNK_ITEM => volume::chunk(out, data),
        item::RAID_STRIPE => volume::raid_stripes(out, data),
        item::QGROUP_STATUS => quota::status(out, data, ctx),
        item::QGROUP_INFO => quota::info(out, data),
        item::QGROUP_LIMIT => quota::limit(out, data),
        item::TEMPORARY_ITEM => misc::temporary(out, key, data),
        item::PERSISTENT_ITEM => misc::persistent(out, key, data),
        item::DEV_REPLACE => misc::dev_replace(out, data, ctx),
        item::UUID_SUBVOL | item::UUID_RECEIVED_SUBVOL => misc::uuid(out, data),
        item::STRING_ITEM => misc::string(out, data),
        _ => Ok(()),
    }
}

/// Prints an item that says no more than its key.
fn line(out: &mut dyn Write, text: &str) -> Printed {
    Ok(writeln!(out, "\t\t{text}")?)
}
