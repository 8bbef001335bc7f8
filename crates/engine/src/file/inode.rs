//! Inode items: reading, making, changing, removing.

use crate::tree::Tree;
use crate::txn::Trans;
use crate::{Engine, Error, Result};
use buttery_disk::inode::{InodeItem, Timespec};
use buttery_disk::zerocopy::{FromBytes, IntoBytes};
use buttery_disk::{Key, item, objectid};

/// The key of an inode's item.
pub fn key(ino: u64) -> Key {
    Key::new(ino, item::INODE_ITEM, 0)
}

/// Reads an inode item. `NotFound` if there is none.
pub fn read(engine: &Engine, tree: &Tree, ino: u64) -> Result<InodeItem> {
    let inodes = engine.writer.as_ref().map(|writer| &writer.inodes);
    if let Some(item) = inodes.and_then(|inodes| inodes.get(tree.id(), ino)) {
        return Ok(item);
    }
    let view = tree.read(engine.store());
    let found = view.get(key(ino))?.ok_or(Error::NotFound)?;
    let item = InodeItem::read_from_bytes(found.data())
        .map_err(|_| Error::corrupt(tree.id(), key(ino), "an inode item has 160 bytes"))?;
    if let Some(inodes) = inodes {
        inodes.fill(tree.id(), ino, item);
    }
    Ok(item)
}

/// What a new inode is to be.
#[derive(Clone, Copy, Debug)]
pub struct NewInode {
    /// Type and permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// The device of a device node, as the format keeps it.
    pub rdev: u64,
    /// The inode's flags.
    pub flags: u64,
    pub now: Timespec,
}

/// An inode number that was not used yet in this subvolume.
pub fn new_number(engine: &Engine, tree: &Tree) -> Result<u64> {
    tree.next_ino(|| {
        let view = tree.read(engine.store());
        let last = Key::new(objectid::LAST_FREE, u8::MAX, u64::MAX);
        let found = view.last_at_or_before(last, Key::new(objectid::FIRST_FREE, 0, 0))?;
        Ok(found.map_or(objectid::FIRST_FREE, |f| f.key().objectid) + 1)
    })
}

/// Inserts the item of a new inode without links.
pub fn insert(trans: &mut Trans<'_>, tree: &Tree, ino: u64, new: &NewInode) -> Result<()> {
    let item = InodeItem {
        generation: trans.id().into(),
        transid: trans.id().into(),
        mode: new.mode.into(),
        uid: new.uid.into(),
        gid: new.gid.into(),
        rdev: new.rdev.into(),
        flags: new.flags.into(),
        atime: new.now,
        ctime: new.now,
        mtime: new.now,
        otime: new.now,
        ..InodeItem::default()
    };
    let (inodes, transid) = (&trans.writer().inodes, trans.id());
    let mut editor = tree.write(trans);
    editor.insert(key(ino), item.as_bytes())?;
    inodes.insert(tree.id(), ino, item, transid);
    tree.touch(transid, new.now);
    Ok(())
}

/// Changes an inode item.
pub fn update<R>(
    trans: &mut Trans<'_>,
    tree: &Tree,
    ino: u64,
    change: impl FnOnce(&mut InodeItem) -> R,
) -> Result<R> {
    let (inodes, transid) = (&trans.writer().inodes, trans.id());
    let change = |item: &mut InodeItem| {
        item.transid = transid.into();
        item.sequence = item.sequence.get().wrapping_add(1).into();
        change(item)
    };
    trans.mark_modified();
    let change = match inodes.change(tree.id(), ino, transid, change) {
        Ok(done) => return Ok(done),
        Err(change) => change,
    };
    let mut editor = tree.write(trans);
    // somebody may have been first while we waited for the tree
    let change = match inodes.change(tree.id(), ino, transid, change) {
        Ok(done) => return Ok(done),
        Err(change) => change,
    };
    let changed = editor.modify(key(ino), |data| {
        let item = InodeItem::mut_from_bytes(data).ok()?;
        let done = change(item);
        Some((done, *item))
    })?;
    let (done, item) =
        changed.ok_or_else(|| Error::corrupt(tree.id(), key(ino), "an inode item has 160 bytes"))?;
    inodes.changed(tree.id(), ino, item, transid);
    tree.touch(transid, item.ctime);
    Ok(done)
}

/// The key of the item that names an inode without links, to be removed at the next chance.
pub fn orphan_key(ino: u64) -> Key {
    Key::new(objectid::ORPHAN, item::ORPHAN_ITEM, ino)
}

/// Notes that an inode has no link left.
pub fn add_orphan(trans: &mut Trans<'_>, tree: &Tree, ino: u64) -> Result<()> {
    match tree.write(trans).insert(orphan_key(ino), &[]) {
        Err(Error::Exists) => Ok(()),
        other => other,
    }
}

/// Takes that note back: the inode is gone, or has a link again.
pub fn remove_orphan(trans: &mut Trans<'_>, tree: &Tree, ino: u64) -> Result<()> {
    match tree.write(trans).remove(orphan_key(ino)) {
        Err(Error::NotFound) => Ok(()),
        other => other,
    }
}

/// The inodes without links of a subvolume.
pub fn orphans(engine: &Engine, tree: &Tree) -> Result<Vec<u64>> {
    let view = tree.read(engine.store());
    let mut cursor = view.seek(orphan_key(0))?;
    let mut out = Vec::new();
    while let Some(found) = cursor.key() {
        if (found.objectid, found.kind) != (objectid::ORPHAN, item::ORPHAN_ITEM) {
            break;
        }
        out.push(found.offset);
        cursor.advance()?;
    }
    Ok(out)
}

/// Removes what is left of an inode that has no link, after its extents are gone.
pub fn remove(trans: &mut Trans<'_>, tree: &Tree, ino: u64) -> Result<()> {
    let inodes = &trans.writer().inodes;
    let mut editor = tree.write(trans);
    inodes.remove(tree.id(), ino);
    while let Some(found) = editor.seek(key(ino))?.key().filter(|k| k.objectid == ino) {
        editor.remove_run(found, &mut |k, _| k.objectid == ino)?;
    }
    drop(editor);
    remove_orphan(trans, tree, ino)
}
