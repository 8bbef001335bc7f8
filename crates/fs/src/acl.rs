//! POSIX access control lists: what one says of the mode, and the mode of it.
//!
//! They are kept as the kernel keeps them, in two extended attributes whose value is that of `getxattr(2)`: a version
//! and entries of tag, permissions and id. Who may do what is the kernel's to decide; here is what must hold on disk:
//! a file's mode and its list say the same, and a directory's default list is what new files in it start from.

use crate::{Error, FileId, Filesystem, Result, Stat};
use buttery_disk::inode::mode;
use buttery_disk::{Key, item};
use buttery_engine::dir::xattr;
use buttery_engine::tree::Tree;

/// The list that governs access to a file.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The list that files made in a directory start from.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const ENTRY_LEN: usize = 8;
const PERMISSIONS: u16 = 0o7;
/// The id of entries that name nobody.
const NO_ID: u32 = u32::MAX;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// A valid list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl(Vec<Entry>);

/// Whether an attribute holds an access control list.
pub(crate) fn is_acl(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

impl Acl {
    /// The list that an attribute's value holds; none in one without entries, which is how a list is taken away.
    pub fn parse(value: &[u8]) -> Result<Option<Acl>> {
        let Some((version, entries)) = value.split_first_chunk() else { return Err(Error::Invalid) };
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Error::Unsupported("an access control list of another version than 2".into()));
        }
        let (entries, rest) = entries.as_chunks::<ENTRY_LEN>();
        if !rest.is_empty() {
            return Err(Error::Invalid);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let acl = Acl(entries.iter().map(Entry::parse).collect());
        if acl.is_valid() { Ok(Some(acl)) } else { Err(Error::Invalid) }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            out.extend(entry.tag.to_le_bytes());
            out.extend(entry.permissions.to_le_bytes());
            out.extend(entry.id.to_le_bytes());
        }
        out
    }

    /// Owner, named users, group, named groups, mask, others, in this order; a mask if anybody is named.
    fn is_valid(&self) -> bool {
        let tags: Vec<u16> = self.0.iter().map(|e| e.tag).collect();
        let count = |tag| tags.iter().filter(|&&t| t == tag).count();
        let named = count(USER) + count(GROUP) > 0;
        let masks = count(MASK);
        let known = [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER];
        tags.is_sorted()
            && tags.iter().all(|tag| known.contains(tag))
            && [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(|tag| count(tag) == 1)
            && (masks == 1 || masks == 0 && !named)
            && self.0.iter().all(|e| e.permissions & !PERMISSIONS == 0)
            && self.0.iter().all(|e| !e.is_named() || e.id != NO_ID)
    }

    fn has(&self, tag: u16) -> bool {
        self.0.iter().any(|e| e.tag == tag)
    }

    /// Whether the mode says all that the list says.
    fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    /// What holds the permissions that a mode shows for the group.
    fn group_class(&self) -> u16 {
        if self.has(MASK) { MASK } else { GROUP_OBJ }
    }

    /// The entries that a mode shows, and where in the mode.
    fn classes(&mut self) -> impl Iterator<Item = (&mut Entry, u32)> {
        let group = self.group_class();
        self.0.iter_mut().filter_map(move |e| {
            let shift = match e.tag {
                USER_OBJ => 6,
                tag if tag == group => 3,
                OTHER => 0,
                _ => return None,
            };
            Some((e, shift))
        })
    }

    /// The nine permission bits that go with the list.
    fn bits(&mut self) -> u32 {
        self.classes().fold(0, |bits, (entry, shift)| bits | u32::from(entry.permissions) << shift)
    }

    /// Makes the list say what the mode says, as chmod(2) does.
    fn follow_mode(&mut self, bits: u32) {
        for (entry, shift) in self.classes() {
            entry.permissions = (bits >> shift) as u16 & PERMISSIONS;
        }
    }

    /// Takes away what the mode does not allow, as for a new file.
    fn restrict(&mut self, bits: u32) {
        for (entry, shift) in self.classes() {
            entry.permissions &= (bits >> shift) as u16 & PERMISSIONS;
        }
    }
}

impl Entry {
    fn parse(bytes: &[u8; ENTRY_LEN]) -> Entry {
        let [t0, t1, p0, p1, id @ ..] = *bytes;
        let tag = u16::from_le_bytes([t0, t1]);
        let entry = Entry { tag, permissions: u16::from_le_bytes([p0, p1]), id: u32::from_le_bytes(id) };
        if entry.is_named() { entry } else { Entry { id: NO_ID, ..entry } }
    }

    fn is_named(&self) -> bool {
        matches!(self.tag, USER | GROUP)
    }
}

/// What setting a list comes to.
pub(crate) struct Change {
    /// The attribute's new value; none takes it away.
    pub value: Option<Vec<u8>>,
    /// The file's new mode.
    pub mode: u32,
}

/// What it means to set a list to `value`. A list for access that says no more than a mode is kept in the mode alone.
pub(crate) fn change(stat: &Stat, name: &[u8], value: &[u8]) -> Result<Change> {
    match stat.mode & mode::FMT {
        mode::LNK => return Err(Error::Unsupported("an access control list on a symbolic link".into())),
        mode::DIR => {}
        _ if name == DEFAULT => return Err(Error::NotPermitted),
        _ => {}
    }
    let Some(mut acl) = Acl::parse(value)? else { return Ok(Change { value: None, mode: stat.mode }) };
    if name == DEFAULT {
        return Ok(Change { value: Some(acl.to_bytes()), mode: stat.mode });
    }
    let mode = stat.mode & !0o777 | acl.bits();
    Ok(Change { value: (!acl.is_minimal()).then(|| acl.to_bytes()), mode })
}

/// What a new file takes over from its directory's default list.
#[derive(Default)]
pub(crate) struct Inherited {
    pub access: Option<Vec<u8>>,
    pub default: Option<Vec<u8>>,
}

impl Inherited {
    /// The attributes to set on the new file.
    pub fn attributes(&self) -> impl Iterator<Item = (&'static [u8], &[u8])> {
        let both = [(ACCESS, self.access.as_deref()), (DEFAULT, self.default.as_deref())];
        both.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }
}

impl Filesystem {
    fn acl(&self, tree: &Tree, ino: u64, name: &[u8]) -> Result<Option<Acl>> {
        let value = match xattr::get(&self.engine, tree, ino, name) {
            Err(Error::NoAttribute) => return Ok(None),
            value => value?,
        };
        Acl::parse(&value).map_err(|_| {
            let key = Key::new(ino, item::XATTR_ITEM, buttery_disk::dir::name_hash(name));
            Error::corrupt(tree.id(), key, "an access control list that is none")
        })
    }

    /// A file's list for access as it is after chmod(2); none where there is none.
    pub(crate) fn acl_after_chmod(&self, tree: &Tree, id: FileId, bits: u32) -> Result<Option<Vec<u8>>> {
        let Some(mut acl) = self.acl(tree, id.ino, ACCESS)? else { return Ok(None) };
        acl.follow_mode(bits);
        Ok(Some(acl.to_bytes()))
    }

    /// The mode and the lists of a file that is made in a directory by somebody with this umask: where there is a
    /// default list, it stands in for the umask.
    pub(crate) fn inherit_acl(
        &self,
        tree: &Tree,
        dir: u64,
        bits: u32,
        umask: u32,
    ) -> Result<(u32, Inherited)> {
        let Some(default) = self.acl(tree, dir, DEFAULT)? else {
            return Ok((bits & !(umask & 0o777), Inherited::default()));
        };
        let mut access = default.clone();
        access.restrict(bits);
        let bits = bits & !0o777 | access.bits();
        let directory = bits & mode::FMT == mode::DIR;
        let inherited = Inherited {
            access: (!access.is_minimal()).then(|| access.to_bytes()),
            default: directory.then(|| default.to_bytes()),
        };
        Ok((bits, inherited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        Acl(entries.iter().map(|&(tag, permissions, id)| Entry { tag, permissions, id }).collect()).to_bytes()
    }

    fn acl(entries: &[(u16, u16, u32)]) -> Acl {
        Acl::parse(&value(entries)).expect("valid").expect("entries")
    }

    const FULL: &[(u16, u16, u32)] = &[
        (USER_OBJ, 7, NO_ID),
        (USER, 6, 1000),
        (GROUP_OBJ, 5, NO_ID),
        (GROUP, 1, 7),
        (MASK, 4, NO_ID),
        (OTHER, 1, NO_ID),
    ];

    #[test]
    fn the_mask_is_what_a_mode_shows_for_the_group() {
        assert_eq!(acl(FULL).bits(), 0o741);
        assert_eq!(acl(&[(1, 6, 0), (4, 5, 0), (32, 4, 0)]).bits(), 0o654);
        let mut changed = acl(FULL);
        changed.follow_mode(0o4620);
        assert_eq!(changed.bits(), 0o620);
        assert_eq!(changed.0[2].permissions, 5, "the group's own entry stays");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let invalid = |value: &[u8]| matches!(Acl::parse(value), Err(Error::Invalid));
        assert!(invalid(b"") && invalid(b"\x02\0\0") && invalid(&value(FULL)[..11]));
        assert!(matches!(Acl::parse(&1u32.to_le_bytes()), Err(Error::Unsupported(_))));
        assert_eq!(Acl::parse(&2u32.to_le_bytes()).expect("valid"), None);
        for without in [0, 2, 4, 5] {
            let mut entries = FULL.to_vec();
            entries.remove(without);
            assert!(invalid(&value(&entries)), "without entry {without}");
        }
        for (at, entry) in [
            (0, (USER_OBJ, 8, NO_ID)),
            (1, (USER, 1, NO_ID)),
            (1, (64, 1, 1)),
            (3, (USER, 1, 1)),
            (4, (OTHER, 1, 0)),
        ] {
            let mut entries = FULL.to_vec();
            entries[at] = entry;
            assert!(invalid(&value(&entries)), "{entry:?} at {at}");
        }
    }
}
