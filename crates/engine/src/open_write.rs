//! Opening for writing: only what is understood in full is written to.

use crate::file::{Alone, Inodes};
use crate::open::OpenOptions;
use crate::space::{self, Class, Media, Space};
use crate::txn::{DelayedRefs, Transactions};
use crate::{Engine, Error, Result, Writer};
use buttery_device::Device;
use buttery_disk::chunk::bg;
use buttery_disk::superblock::{Superblock, compat_ro, flags, incompat};
use buttery_disk::{Key, Node, TreeId, item, objectid};
use std::sync::Arc;

impl Engine {
    /// Opens the file system that these devices make up, for writing. What is not understood is refused by name.
    pub fn open_writable(devices: Vec<Arc<dyn Device>>, mut options: OpenOptions) -> Result<Engine> {
        options.volume.writable = true;
        let mut engine = Engine::open(devices, options)?;
        let by_device = if engine.volume().is_rotational() { Media::NoSsd } else { Media::Ssd };
        engine.check_features()?;
        engine.check_no_operation_under_way()?;
        let chunk_tree_uuid = {
            let root = engine.chunk_tree.root();
            let expect = buttery_disk::check::Expect {
                bytenr: root.bytenr,
                level: Some(root.level),
                generation: Some(root.generation),
                first_key: None,
                owner: Some(objectid::CHUNK_TREE),
            };
            let block = engine.store.read(&expect)?;
            Node::new(block.node().bytes()).header().chunk_tree_uuid
        };
        let groups = space::load(&engine)?;
        let sb = engine.superblock().clone();
        let devices = engine.volume().device_items().iter().map(|item| (item.devid.get(), *item)).collect();
        engine.writer = Some(Writer {
            space: Space::new(groups, chunk_tree_uuid, options.media.unwrap_or(by_device)),
            refs: DelayedRefs::default(),
            alone: Alone::default(),
            inodes: Inodes::new(),
            txn: Transactions::new(sb.generation.get()),
            sharing: parking_lot::Mutex::default(),
            sb: parking_lot::Mutex::new(sb),
            devices: parking_lot::Mutex::new(devices),
        });
        for id in [objectid::EXTENT_TREE, objectid::DEV_TREE, objectid::CSUM_TREE, objectid::FREE_SPACE_TREE]
        {
            engine.tree(TreeId(id))?;
        }
        if !engine.superblock().has_compat_ro(compat_ro::FREE_SPACE_TREE_VALID) {
            space::rebuild(&engine)?;
        }
        for class in [Class::System, Class::Metadata] {
            space::load_free(&engine, class)?;
        }
        engine.take_over_stats()?;
        let trees = engine.trees.get_mut();
        let _ = engine.core.set(std::array::from_fn(|id| trees.get(&(id as u64)).cloned()));
        Ok(engine)
    }

    fn check_features(&self) -> Result<()> {
        let sb = self.superblock();
        let refuse = |what: &str| Err(Error::unsupported(format!("writing to a file system {what}")));
        if sb.log_root.get() != 0 {
            return refuse("whose fsync log was not replayed: mount it once with the kernel, or read-only");
        }
        let unknown = sb.compat_ro_flags.get() & !compat_ro::WRITABLE;
        if unknown != 0 {
            return refuse(&format!("with compat_ro features {}", compat_ro::names(unknown)));
        }
        if sb.has_incompat(incompat::SIMPLE_QUOTA) {
            return refuse("with simple quotas");
        }
        for (bit, name) in [(incompat::SKINNY_METADATA, "skinny metadata"), (incompat::NO_HOLES, "NO_HOLES")]
        {
            if !sb.has_incompat(bit) {
                return refuse(&format!("without {name}"));
            }
        }
        if !sb.has_compat_ro(compat_ro::FREE_SPACE_TREE) {
            return refuse("without a free-space tree");
        }
        let fsid = self.volume().context().fsid;
        if self.volume().device_items().iter().any(|item| item.fsid != fsid) {
            return refuse("that stands on a seed");
        }
        self.check_flags(sb)?;
        for chunk in self.volume().chunks().all() {
            if chunk.kind & (bg::RAID5 | bg::RAID6) != 0 {
                return refuse(&format!("with profile {}", bg::profile_name(chunk.kind)));
            }
        }
        Ok(())
    }

    fn check_flags(&self, sb: &Superblock) -> Result<()> {
        for (bit, name) in [
            (flags::SEEDING, "that is a seed"),
            (flags::CHANGING_FSID, "whose fsid is being changed"),
            (flags::CHANGING_FSID_V2, "whose fsid is being changed"),
            (flags::METADUMP, "that is a metadata dump"),
            (flags::METADUMP_V2, "that is a metadata dump"),
            (flags::CHANGING_BG_TREE, "that is being converted to a block group tree"),
            (flags::CHANGING_DATA_CSUM, "whose checksums are being changed"),
            (flags::CHANGING_META_CSUM, "whose checksums are being changed"),
            (flags::ERROR, "marked with errors"),
        ] {
            if sb.flags.get() & bit != 0 {
                return Err(Error::unsupported(format!("writing to a file system {name}")));
            }
        }
        Ok(())
    }

    /// A balance, relocation or device replacement that was interrupted is the kernel's to end.
    fn check_no_operation_under_way(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::unsupported(format!("writing to a file system {what}")));
        let view = self.root_tree.read(&self.store);
        if view.get(Key::new(objectid::BALANCE, item::TEMPORARY_ITEM, 0))?.is_some() {
            return refuse("with an unfinished balance");
        }
        let reloc = view.seek(Key::new(objectid::TREE_RELOC, item::ROOT_ITEM, 0))?;
        if reloc.key().is_some_and(|k| k.objectid == objectid::TREE_RELOC && k.kind == item::ROOT_ITEM) {
            return refuse("with an unfinished relocation");
        }
        let dev_tree = self.tree(TreeId(objectid::DEV_TREE))?;
        let replace = dev_tree.read(&self.store).get(Key::new(0, item::DEV_REPLACE, 0))?;
        // replace_state is the fourth field: started (1) or suspended (4)
        let state = replace.and_then(|f| Some(u64::from_le_bytes(f.data().get(24..32)?.try_into().ok()?)));
        match state {
            Some(1 | 4) => refuse("with an unfinished device replacement"),
            _ => Ok(()),
        }
    }
}
