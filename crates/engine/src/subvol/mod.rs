//! Subvolumes: what there are, and how they hang together.

pub mod delete;
pub mod drop;
pub mod edit;
pub mod snapshot;

use crate::dir::Target;
use crate::{Engine, Error, Result, dir};
use buttery_disk::root::{RootItem, RootRef};
use buttery_disk::{Key, TreeId, item, objectid};

/// A subvolume as the tree of roots has it.
#[derive(Clone)]
pub struct Subvolume {
    pub id: TreeId,
    pub item: RootItem,
    /// The subvolume that holds its name, the directory there, and the name; `None` for the top level.
    pub parent: Option<Link>,
}

/// Where a subvolume is linked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub tree: TreeId,
    pub dir: u64,
    pub name: Vec<u8>,
}

/// The subvolume that a mount without `subvol=` shows.
pub fn default_subvolume(engine: &Engine) -> Result<TreeId> {
    match dir::lookup(engine, engine.root_tree(), objectid::ROOT_TREE_DIR, b"default") {
        Ok((Target::Subvolume(id), _)) => Ok(id),
        Ok((Target::Inode(_), _)) => Err(Error::Corrupt("the default subvolume is an inode".into())),
        Err(Error::NotFound) => Ok(TreeId(objectid::FS_TREE)),
        Err(error) => Err(error),
    }
}

/// Every subvolume, by id.
pub fn list(engine: &Engine) -> Result<Vec<Subvolume>> {
    let view = engine.root_tree().read(engine.store());
    let mut cursor = view.seek(Key::new(objectid::FS_TREE, item::ROOT_ITEM, 0))?;
    let mut out: Vec<Subvolume> = Vec::new();
    while let Some((key, data)) = cursor.item() {
        if key.objectid > objectid::LAST_FREE {
            break;
        }
        if objectid::is_subvolume(key.objectid) {
            match key.kind {
                item::ROOT_ITEM => {
                    if let Some(item) = RootItem::parse(data) {
                        out.push(Subvolume { id: TreeId(key.objectid), item, parent: None });
                    }
                }
                item::ROOT_BACKREF => {
                    if let (Some((fixed, name)), Some(last)) = (RootRef::parse(data), out.last_mut())
                        && last.id.0 == key.objectid
                    {
                        let tree = TreeId(key.offset);
                        last.parent = Some(Link { tree, dir: fixed.dirid.get(), name: name.to_vec() });
                    }
                }
                _ => {}
            }
        }
        cursor.advance()?;
    }
    Ok(out)
}

/// A subvolume, as it is now; `NotFound` if there is none, or it is being dropped.
pub fn of(engine: &Engine, id: TreeId) -> Result<Subvolume> {
    if !objectid::is_subvolume(id.0) {
        return Err(Error::NotFound);
    }
    Ok(Subvolume { id, item: engine.tree(id)?.item(), parent: link_of(engine, id)? })
}

/// The subvolumes whose names lie in this one, and the directory of each.
pub fn children(engine: &Engine, id: TreeId, from: TreeId) -> Result<Vec<(TreeId, u64)>> {
    let view = engine.root_tree().read(engine.store());
    let mut cursor = view.seek(Key::new(id.0, item::ROOT_REF, from.0))?;
    let mut out = Vec::new();
    while let Some((key, data)) = cursor.item() {
        if (key.objectid, key.kind) != (id.0, item::ROOT_REF) {
            break;
        }
        let (fixed, _) = RootRef::parse(data)
            .ok_or_else(|| Error::corrupt(TreeId(objectid::ROOT_TREE), key, "cut off"))?;
        out.push((TreeId(key.offset), fixed.dirid.get()));
        cursor.advance()?;
    }
    Ok(out)
}

/// Where a subvolume is linked; `None` for the top level, and for one that is being deleted.
pub fn link_of(engine: &Engine, id: TreeId) -> Result<Option<Link>> {
    let view = engine.root_tree().read(engine.store());
    let cursor = view.seek(Key::new(id.0, item::ROOT_BACKREF, 0))?;
    let Some((key, data)) = cursor.item() else { return Ok(None) };
    if (key.objectid, key.kind) != (id.0, item::ROOT_BACKREF) {
        return Ok(None);
    }
    let (fixed, name) =
        RootRef::parse(data).ok_or_else(|| Error::corrupt(TreeId(objectid::ROOT_TREE), key, "cut off"))?;
    Ok(Some(Link { tree: TreeId(key.offset), dir: fixed.dirid.get(), name: name.to_vec() }))
}

/// Whether a name in a directory of `parent` is that of subvolume `child`: a ROOT_REF says so. In a snapshot of the parent
/// there is none, and the name shows an empty directory; also if the subvolume itself was moved into the snapshot, to
/// another name.
pub fn is_linked_from(engine: &Engine, parent: TreeId, dir: u64, name: &[u8], child: TreeId) -> Result<bool> {
    Ok(index_from(engine, parent, dir, name, child)?.is_some())
}

/// The index of such a name.
pub(crate) fn index_from(
    engine: &Engine,
    parent: TreeId,
    dir: u64,
    name: &[u8],
    child: TreeId,
) -> Result<Option<u64>> {
    let view = engine.root_tree().read(engine.store());
    let found = view.get(Key::new(parent.0, item::ROOT_REF, child.0))?;
    let link = found.as_ref().and_then(|found| RootRef::parse(found.data()));
    let link = link.filter(|(fixed, known)| fixed.dirid.get() == dir && *known == name);
    Ok(link.map(|(fixed, _)| fixed.sequence.get()))
}
