//! Which references a tree block holds: of a leaf those of its files' data, of a node those of its children.

use crate::Result;
use crate::txn::{ExtentKind, Trans};
use buttery_disk::extent::{BackRef, FileExtentItem, file_extent};
use buttery_disk::zerocopy::FromBytes;
use buttery_disk::{Node, item};

/// In whose name references are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RefBy {
    /// A tree: normal references.
    Root(u64),
    /// A block, by its address: full ones.
    Parent(u64),
}

/// Adds (`count` 1) or drops (−1) each reference that a block holds.
pub(crate) fn add(trans: &mut Trans<'_>, node: Node<'_>, by: RefBy, count: i64) -> Result<()> {
    if node.level() > 0 {
        let nodesize = node.bytes().len() as u64;
        for slot in 0..node.nritems() {
            let backref = match by {
                RefBy::Root(root) => BackRef::TreeBlock { root },
                RefBy::Parent(parent) => BackRef::SharedBlock { parent },
            };
            let kind = ExtentKind::Tree { level: node.level() - 1 };
            trans.add_ref(node.ptr(slot).blockptr.get(), nodesize, kind, backref, count)?;
        }
        return Ok(());
    }
    for slot in 0..node.nritems() {
        let key = node.key(slot);
        if key.kind != item::EXTENT_DATA {
            continue;
        }
        let Ok(extent) = FileExtentItem::read_from_bytes(node.data(slot)) else { continue };
        if extent.kind == file_extent::INLINE || extent.disk_bytenr.get() == 0 {
            continue;
        }
        let backref = match by {
            RefBy::Root(root) => data_ref(root, key.objectid, key.offset, extent.offset.get()),
            RefBy::Parent(parent) => BackRef::SharedData { parent },
        };
        let (bytenr, len) = (extent.disk_bytenr.get(), extent.disk_num_bytes.get());
        trans.add_ref(bytenr, len, ExtentKind::Data, backref, count)?;
    }
    Ok(())
}

/// The reference that a file extent holds. The file offset at which the whole extent would begin may be negative;
/// the format lets it wrap.
pub(crate) fn data_ref(root: u64, objectid: u64, file_offset: u64, extent_offset: u64) -> BackRef {
    BackRef::Data { root, objectid, offset: file_offset.wrapping_sub(extent_offset) }
}
