//! Replacing a few neighbouring items by others under one descent, where one leaf holds them all and has the room.

use super::edit::Editor;
use super::path::Need;
use crate::error::Result;
use buttery_disk::node::{ITEM_LEN, leaf_data_size};
use buttery_disk::{Key, Node, edit};
use smallvec::SmallVec;
use std::ops::Range;

/// Which items of a leaf go, and what comes in their place.
pub(crate) struct Splice<const LEN: usize> {
    pub slots: Range<usize>,
    pub items: SmallVec<[(Key, [u8; LEN]); 3]>,
}

impl Editor<'_, '_> {
    /// Descends to a key; `plan` is given the leaf, the slot at which the key is or would be, and the first key of the
    /// next leaf. What it answers is done, if the leaf has room for it or gets it by what goes. Answers whether it was.
    pub(crate) fn splice<const LEN: usize>(
        &mut self,
        key: Key,
        plan: impl FnOnce(Node<'_>, usize, Option<Key>) -> Result<Option<Splice<LEN>>>,
    ) -> Result<bool> {
        let (path, _) = self.descend(&key, Need::Nothing)?;
        let block = self.store.dirty(path.leaf())?;
        let node = block.node();
        let Some(Splice { slots, items }) = plan(node, path.slot(), path.next)? else { return Ok(false) };
        let going: usize = slots.clone().map(|slot| node.data(slot).len() + ITEM_LEN).sum();
        if items.is_empty() || node.leaf_free() + going < items.len() * (LEN + ITEM_LEN) {
            return Ok(false);
        }
        let same_size = slots.clone().all(|slot| node.data(slot).len() == LEN);
        // the leaf is edited in place only while nobody else has it
        drop(block);
        let used = self.store.edit(path.leaf(), |bytes| {
            let kept = if same_size { slots.len().min(items.len()) } else { 0 };
            for (slot, (key, data)) in slots.clone().zip(&items[..kept]) {
                edit::set_item_key(bytes, slot, *key);
                edit::data_mut(bytes, slot).copy_from_slice(data);
            }
            edit::delete_items(bytes, slots.start + kept..slots.end);
            for (n, (key, data)) in items[kept..].iter().enumerate() {
                edit::insert_item(bytes, slots.start + kept + n, *key, data);
            }
            Node::new(bytes).leaf_used()
        })?;
        if slots.start == 0 {
            self.fix_low_keys(&path, 0)?;
        }
        if !slots.is_empty() && used < leaf_data_size(self.store.nodesize()) / 3 {
            self.join_leaf(&path, used)?;
        }
        Ok(true)
    }
}
