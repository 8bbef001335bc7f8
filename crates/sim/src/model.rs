//! The model: what a tree of files is, in the plainest way, with the answers that the library owes.
//!
//! It knows nothing of blocks, transactions or trees; of the format only how many names share an item. Start at
//! [`Model`]; what changes names is in [`names`], data and attributes in [`attrs`].

mod attrs;
mod names;
mod subvolumes;

use crate::content::Content;
use crate::facts;
use buttery::{FileId, Filesystem};
use buttery_disk::inode::flags;
use buttery_judge::{Fact, Kind, Time};
use std::collections::BTreeMap;

/// A node's number in the model.
pub type Ino = usize;

/// The name of an error's kind.
pub type Fail = &'static str;

/// Flags under which the kernel refuses changes.
const HELD: u64 = flags::IMMUTABLE | flags::APPEND;

/// Anything that has attributes.
#[derive(Clone, Debug)]
pub struct Node {
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: (u32, u32),
    pub nlink: u32,
    pub flags: u64,
    pub mtime: Time,
    pub ctime: Time,
    pub btime: Time,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The subvolume that it lies in, by its top directory; a top lies in its own.
    pub subvol: Ino,
    /// Of a directory, the one above; the root is its own.
    pub parent: Ino,
    pub entries: BTreeMap<Vec<u8>, Ino>,
    pub content: Content,
    pub target: Vec<u8>,
    /// Nothing may be done to it: the stand-in for a subvolume, whatever is in a read-only one.
    pub frozen: bool,
    /// The file that the library has for it.
    pub id: FileId,
}

/// A small file system.
#[derive(Clone, Debug)]
pub struct Model {
    pub nodes: BTreeMap<Ino, Node>,
    pub root: Ino,
    pub(crate) next: Ino,
    pub(crate) nodesize: usize,
    pub(crate) now: Time,
}

impl Model {
    /// The model of what there is below a directory.
    pub fn read(fs: &Filesystem, top: FileId, now: buttery::Time) -> Result<Model, String> {
        let now = Time { sec: now.sec, nsec: now.nsec };
        let nodesize = fs.engine().store().nodesize();
        let mut model = Model { nodes: BTreeMap::new(), root: 1, next: 1, nodesize, now };
        let (mut known, mut places) = (BTreeMap::new(), BTreeMap::<Vec<u8>, Ino>::new());
        for (path, id) in facts::paths_from(fs, top)? {
            let stub = id.is_empty_dir();
            let (dir, name) = match path.iter().rposition(|&b| b == b'/') {
                Some(at) => (&path[..at], &path[at + 1..]),
                None => (&path[..0], &path[..]),
            };
            let parent = places.get(dir).copied().unwrap_or(model.root);
            let ino = match known.get(&id) {
                Some(ino) if !stub => *ino,
                _ => model.read_node(fs, id, parent)?,
            };
            known.insert(id, ino);
            if !path.is_empty() {
                model.node_mut(parent).entries.insert(name.to_vec(), ino);
            }
            places.insert(path, ino);
        }
        Ok(model)
    }

    fn read_node(&mut self, fs: &Filesystem, id: FileId, parent: Ino) -> Result<Ino, String> {
        let text = |e: buttery::Error| e.to_string();
        let fact = facts::fact(fs, id, Vec::new())?;
        let ino = self.next;
        self.next += 1;
        let mut content = Content::default();
        if fact.kind == Kind::File {
            read_content(fs, id, fact.size, &mut content).map_err(text)?;
        }
        let stub = fact.stub();
        let own = ino == self.root || id.ino == FileId::top_of(id.tree).ino;
        let read_only = fs.engine().tree(id.tree).map_err(text)?.is_read_only();
        let node = Node {
            kind: fact.kind,
            mode: fact.mode,
            uid: fact.uid,
            gid: fact.gid,
            rdev: fact.rdev,
            nlink: fact.nlink,
            flags: fs.stat(id).map_err(text)?.flags,
            mtime: fact.mtime,
            ctime: fact.ctime,
            btime: fact.btime.unwrap_or_default(),
            xattrs: fact.xattrs,
            subvol: if own { ino } else { self.node(parent).subvol },
            parent,
            entries: BTreeMap::new(),
            content,
            target: fact.target.unwrap_or_default(),
            frozen: stub || read_only,
            id,
        };
        self.nodes.insert(ino, node);
        Ok(ino)
    }

    pub fn node(&self, ino: Ino) -> &Node {
        &self.nodes[&ino]
    }

    pub(crate) fn node_mut(&mut self, ino: Ino) -> &mut Node {
        self.nodes.get_mut(&ino).unwrap_or_else(|| panic!("node {ino}"))
    }

    /// Whether a node is the top of a subvolume.
    pub fn is_top(&self, ino: Ino) -> bool {
        self.node(ino).subvol == ino && ino != self.root
    }

    /// The paths of everything that nothing may be done to.
    pub fn frozen_paths(&self) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        self.visit(&mut |path, node| {
            if node.frozen || node.flags & HELD != 0 {
                out.push(path.to_vec());
            }
        });
        out
    }

    /// The facts that the library, or the kernel, has to tell.
    pub fn facts(&self) -> Vec<Fact> {
        let mut out = Vec::new();
        self.visit(&mut |path, node| out.push(node.fact(path.to_vec())));
        out.sort_by(|a, b| a.path.cmp(&b.path));
        out
    }

    fn visit(&self, each: &mut dyn FnMut(&[u8], &Node)) {
        let mut todo = vec![(Vec::new(), self.root)];
        while let Some((path, ino)) = todo.pop() {
            let node = self.node(ino);
            for (name, child) in &node.entries {
                let below =
                    if path.is_empty() { name.clone() } else { [&path, b"/".as_slice(), name].concat() };
                todo.push((below, *child));
            }
            each(&path, node);
        }
    }
}

impl Node {
    fn fact(&self, path: Vec<u8>) -> Fact {
        let size = match self.kind {
            Kind::File => self.content.size(),
            Kind::Dir => self.entries.keys().map(|n| 2 * n.len() as u64).sum(),
            Kind::Symlink => self.target.len() as u64,
            _ => 0,
        };
        let stub = self.id.is_empty_dir();
        Fact {
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size,
            nlink: self.nlink,
            ino: self.id.shown_ino(),
            mtime: self.mtime,
            ctime: self.ctime,
            btime: (!stub).then_some(self.btime),
            xattrs: self.xattrs.clone(),
            target: (self.kind == Kind::Symlink).then(|| self.target.clone()),
            content: (self.kind == Kind::File).then(|| self.content.hash()),
            ..Fact::new(path, self.kind)
        }
    }
}

fn read_content(fs: &Filesystem, id: FileId, size: u64, content: &mut Content) -> buttery::Result<()> {
    let mut at = 0;
    while at < size {
        at = match fs.seek(id, at, true) {
            Ok(data) => data,
            Err(buttery::Error::NotFound) => break,
            Err(e) => return Err(e),
        };
        let end = fs.seek(id, at, false)?;
        let mut bytes = vec![0; (end - at) as usize];
        fs.read(id, at, &mut bytes)?;
        content.write(at, &bytes);
        at = end;
    }
    content.truncate(size);
    Ok(())
}
