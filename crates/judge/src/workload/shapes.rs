//! The corners of the format, one function each: operations that bring them about below one directory.
//!
//! Each takes the directory to create, so that several fit on one file system and a golden image can hold just one.

use super::{Data, Fallocate, Fill, Name, Node, Op};
use crate::collide;
use crate::facts::Time;

/// All of them, for a file system with this node size.
pub fn all(nodesize: usize) -> Vec<Op> {
    let mut ops = Vec::new();
    ops.extend(sizes(b"sizes"));
    ops.extend(holes(b"holes"));
    ops.extend(preallocated(b"prealloc"));
    ops.extend(many_links(b"links", nodesize));
    ops.extend(colliding_names(b"collide"));
    ops.extend(long_names(b"names"));
    ops.extend(symlinks(b"symlinks", nodesize));
    ops.extend(special_files(b"special"));
    ops.extend(attributes(b"attributes"));
    ops.extend(xattrs(b"xattrs", nodesize));
    ops.extend(clones(b"clones"));
    ops.extend(compressed(b"compressed", 100_000));
    ops.extend(nocow(b"nocow"));
    ops.extend(subvolumes(b"subvolumes"));
    ops
}

fn at(dir: &[u8], name: impl AsRef<[u8]>) -> Name {
    [dir, b"/", name.as_ref()].concat()
}

fn mkdir(dir: &[u8]) -> Op {
    Op::Mkdir { path: dir.to_vec(), mode: 0o755 }
}

fn create(path: &[u8]) -> Op {
    Op::Create { path: path.to_vec(), mode: 0o644 }
}

fn write(path: &[u8], offset: u64, data: Data) -> Op {
    Op::Write { path: path.to_vec(), offset, data }
}

fn file(path: &[u8], data: Data) -> [Op; 2] {
    [create(path), write(path, 0, data)]
}

/// A little of everything ordinary, in few bytes.
pub fn small(dir: &[u8]) -> Vec<Op> {
    let path = |name: &str| at(dir, name);
    let mut ops = vec![mkdir(dir), create(&path("empty")), mkdir(&path("sub"))];
    ops.extend(file(&path("inline"), Data::new(Fill::Text, 1, 700)));
    ops.extend(file(&path("noise"), Data::new(Fill::Random, 2, 10_000)));
    ops.extend(file(&path("sub/text"), Data::new(Fill::Text, 3, 200_000)));
    ops.push(write(&path("empty"), 70_000, Data::new(Fill::Text, 4, 5000)));
    ops.push(Op::Link { from: path("inline"), to: path("sub/linked") });
    ops.push(Op::Symlink { path: path("symlink"), target: b"sub/text".to_vec() });
    ops.push(Op::Mknod { path: path("fifo"), node: Node::Fifo, mode: 0o644 });
    ops.push(Op::Chown { path: path("noise"), uid: 1000, gid: 100 });
    ops.push(Op::SetXattr { path: path("noise"), name: b"user.note".to_vec(), value: b"noise".to_vec() });
    ops.push(Op::Utimens {
        path: path("noise"),
        atime: Time::default(),
        mtime: Time { sec: 1_000_000_000, nsec: 7 },
    });
    ops
}

/// Enough small files for a tree of several levels.
pub fn many_files(dir: &[u8], count: usize) -> Vec<Op> {
    let files = (0..count)
        .flat_map(|n| file(&at(dir, format!("file-{n:05}")), Data::new(Fill::Text, n as u64 % 7, n % 300)));
    std::iter::once(mkdir(dir)).chain(files).collect()
}

/// Empty, inline, just over inline, around blocks, and a few megabytes.
pub fn sizes(dir: &[u8]) -> Vec<Op> {
    let mut ops = vec![mkdir(dir)];
    ops.push(create(&at(dir, "empty")));
    for (n, len) in
        [1, 100, 2047, 2048, 2049, 4095, 4096, 4097, 65536, 131073, 3_000_001].into_iter().enumerate()
    {
        ops.extend(file(&at(dir, format!("random-{len}")), Data::new(Fill::Random, n as u64, len)));
        ops.extend(file(&at(dir, format!("text-{len}")), Data::new(Fill::Text, n as u64, len)));
    }
    ops
}

/// Holes at the front, between, at the tail; punched; an inline file that grew; truncated and extended again.
pub fn holes(dir: &[u8]) -> Vec<Op> {
    let data = |seed, len| Data::new(Fill::Text, seed, len);
    let mut ops = vec![mkdir(dir)];
    for name in ["front", "between", "tail", "all", "punched", "inline-grown", "regrown", "far"] {
        ops.push(create(&at(dir, name)));
    }
    ops.push(write(&at(dir, "front"), 1 << 20, data(1, 5000)));
    ops.extend([0, 100_000, 300_000, 301_000].map(|o| write(&at(dir, "between"), o, data(o, 4096))));
    ops.extend([write(&at(dir, "tail"), 0, data(3, 9000)), truncate(dir, "tail", 1 << 20)]);
    ops.push(truncate(dir, "all", 123_456));
    ops.push(write(&at(dir, "punched"), 0, data(4, 300_000)));
    ops.extend([Op::Sync, punch(dir, "punched", 10_000, 100_000), punch(dir, "punched", 200_000, 1)]);
    ops.extend([write(&at(dir, "inline-grown"), 0, data(5, 1000)), Op::Sync]);
    ops.push(truncate(dir, "inline-grown", 50_000));
    ops.extend([write(&at(dir, "regrown"), 0, data(6, 50_000)), Op::Sync]);
    ops.extend([truncate(dir, "regrown", 10_001), truncate(dir, "regrown", 60_000)]);
    ops.push(write(&at(dir, "far"), 1 << 40, data(7, 10)));
    ops
}

fn truncate(dir: &[u8], name: &str, size: u64) -> Op {
    Op::Truncate { path: at(dir, name), size }
}

fn punch(dir: &[u8], name: &str, offset: u64, len: u64) -> Op {
    Op::Fallocate { path: at(dir, name), offset, len, how: Fallocate::PunchHole }
}

/// Preallocated extents: unwritten, partly written, beyond the end, zeroed.
pub fn preallocated(dir: &[u8]) -> Vec<Op> {
    let allocate = |name: &str, offset, len, how| Op::Fallocate { path: at(dir, name), offset, len, how };
    let mut ops = vec![mkdir(dir)];
    for name in ["unwritten", "written", "beyond", "zeroed"] {
        ops.push(create(&at(dir, name)));
    }
    ops.push(allocate("unwritten", 0, 100_000, Fallocate::Allocate));
    ops.extend([allocate("written", 0, 1 << 20, Fallocate::Allocate), Op::Sync]);
    ops.push(write(&at(dir, "written"), 100_000, Data::new(Fill::Text, 1, 70_000)));
    ops.push(write(&at(dir, "written"), 500_000, Data::new(Fill::Text, 2, 4096)));
    ops.push(write(&at(dir, "beyond"), 0, Data::new(Fill::Text, 3, 5000)));
    ops.push(allocate("beyond", 0, 1 << 19, Fallocate::KeepSize));
    ops.extend([write(&at(dir, "zeroed"), 0, Data::new(Fill::Text, 4, 200_000)), Op::Sync]);
    ops.push(allocate("zeroed", 8192, 100_000, Fallocate::ZeroRange));
    ops
}

/// More links to one file in one directory than an INODE_REF item holds, so that INODE_EXTREFs are made.
pub fn many_links(dir: &[u8], nodesize: usize) -> Vec<Op> {
    let length = (nodesize / 240).clamp(40, 250);
    let first = at(dir, "first");
    let mut ops = vec![mkdir(dir)];
    ops.extend(file(&first, Data::new(Fill::Text, 1, 3000)));
    for n in 0..320 {
        let name = format!("{n:04}{}", "l".repeat(length - 4));
        ops.push(Op::Link { from: first.clone(), to: at(dir, name) });
    }
    // Some go again, from the INODE_REF and from the INODE_EXTREFs.
    ops.extend([3, 310].map(|n| Op::Unlink { path: at(dir, format!("{n:04}{}", "l".repeat(length - 4))) }));
    ops
}

/// Directory entries that share one DIR_ITEM, INODE_EXTREFs apart.
pub fn colliding_names(dir: &[u8]) -> Vec<Op> {
    let mut ops = vec![mkdir(dir)];
    let names = collide::colliding_names(b"name", 0x00C0_FFEE, 9);
    for (n, name) in names.iter().enumerate() {
        match n % 3 {
            0 => ops.extend(file(&at(dir, name), Data::new(Fill::Text, n as u64, 20 + n))),
            1 => ops.push(mkdir(&at(dir, name))),
            _ => ops.push(Op::Symlink { path: at(dir, name), target: name.clone() }),
        }
    }
    ops.push(Op::Unlink { path: at(dir, &names[3]) });
    ops.push(Op::Rename { from: at(dir, &names[0]), to: at(dir, &names[6]) });
    ops
}

/// Names of the greatest length, of one byte, and of bytes that are no text.
pub fn long_names(dir: &[u8]) -> Vec<Op> {
    let mut ops = vec![mkdir(dir)];
    for c in b"abcdefghijklmnopqrst" {
        ops.push(create(&at(dir, vec![*c; 255])));
        ops.push(create(&at(dir, [*c])));
    }
    let strange: Vec<u8> = (1..=255u8).filter(|b| *b != b'/').collect();
    ops.push(create(&at(dir, strange)));
    let mut deep = dir.to_vec();
    for _ in 0..12 {
        deep = at(&deep, [b'd'; 100]);
        ops.push(mkdir(&deep));
    }
    ops.extend(file(&at(&deep, "bottom"), Data::new(Fill::Text, 1, 10)));
    ops
}

/// Short targets, the longest that fit, targets that are no text.
pub fn symlinks(dir: &[u8], nodesize: usize) -> Vec<Op> {
    let longest = 4095.min(nodesize - 101 - 25 - 21 - 1);
    let mut ops = vec![mkdir(dir)];
    for len in [1, 60, 255, 2000, longest] {
        ops.push(Op::Symlink { path: at(dir, format!("to-{len}")), target: vec![b'x'; len] });
    }
    ops.push(Op::Symlink { path: at(dir, "strange"), target: b"\xff\x01\n/../ ".to_vec() });
    ops
}

pub fn special_files(dir: &[u8]) -> Vec<Op> {
    let node = |name: &str, node, mode| Op::Mknod { path: at(dir, name), node, mode };
    vec![
        mkdir(dir),
        node("null", Node::Char(1, 3), 0o666),
        node("big-char", Node::Char(4095, 1_048_575), 0o600),
        node("disk", Node::Block(8, 17), 0o660),
        node("big-block", Node::Block(259, 300_000), 0o600),
        node("fifo", Node::Fifo, 0o644),
        node("socket", Node::Socket, 0o755),
    ]
}

/// Modes with set-id and sticky bits, large owners, times before 1970 and after 2106.
pub fn attributes(dir: &[u8]) -> Vec<Op> {
    let mut ops = vec![mkdir(dir)];
    for mode in [0, 0o7777, 0o4755, 0o2750, 0o1777] {
        let path = at(dir, format!("mode-{mode:o}"));
        ops.extend([create(&path), Op::Chmod { path, mode }]);
    }
    for (uid, gid) in [(1, 2), (1000, 1000), (4_294_967_294, 65_536)] {
        let path = at(dir, format!("owner-{uid}-{gid}"));
        ops.extend([create(&path), Op::Chown { path, uid, gid }]);
    }
    let times = [(0, 0), (-1, 999_999_999), (-2_000_000_000, 1), (1 << 33, 123_456_789), (1_700_000_000, 5)];
    for (sec, nsec) in times {
        let path = at(dir, format!("time-{sec}"));
        ops.extend([
            create(&path),
            Op::Utimens { path, atime: Time { sec: 1, nsec: 2 }, mtime: Time { sec, nsec } },
        ]);
    }
    ops
}

/// Every namespace, ACLs, capabilities, empty and big values, colliding names.
pub fn xattrs(dir: &[u8], nodesize: usize) -> Vec<Op> {
    let (plain, sub) = (at(dir, "file"), at(dir, "dir"));
    let mut ops =
        vec![mkdir(dir), create(&plain), mkdir(&sub), create(&at(dir, "big")), create(&at(dir, "collide"))];
    ops.push(Op::Symlink { path: at(dir, "link"), target: b"file".to_vec() });
    let set = |path: &Name, name: &[u8], value: Vec<u8>| Op::SetXattr {
        path: path.clone(),
        name: name.to_vec(),
        value,
    };
    ops.push(set(&plain, b"user.empty", vec![]));
    ops.push(set(&plain, b"user.text", b"some text".to_vec()));
    ops.push(set(&plain, &[&b"user."[..], &[b'n'; 250]].concat(), b"long name".to_vec()));
    ops.push(set(&plain, b"trusted.t", vec![0, 1, 255]));
    ops.push(set(&plain, b"security.other", b"label".to_vec()));
    ops.push(set(&plain, b"security.capability", capability()));
    ops.push(set(&plain, b"system.posix_acl_access", acl(1000)));
    ops.push(set(&sub, b"system.posix_acl_default", acl(4_000_000_000)));
    ops.push(create(&at(&sub, "inherits")));
    ops.push(set(&at(dir, "link"), b"trusted.on-a-symlink", b"1".to_vec()));
    let biggest = (nodesize - 101 - 25 - 30).min(65536) - 100;
    ops.push(set(&at(dir, "big"), b"user.big", Data::new(Fill::Text, 1, biggest).bytes()));
    for (n, name) in collide::colliding_names(b"user.c", 0xBEEF, 5).iter().enumerate() {
        ops.push(set(&at(dir, "collide"), name, vec![b'v'; n * 10]));
    }
    let gone = collide::colliding_names(b"user.c", 0xBEEF, 2).remove(1);
    ops.push(Op::RemoveXattr { path: at(dir, "collide"), name: gone });
    ops
}

/// A version 2 capability: cap_net_raw, permitted and effective.
pub fn capability() -> Vec<u8> {
    [0x0200_0001u32, 1 << 13, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// An ACL in the kernel's form: the owner, one named user, the group, the mask, others.
pub fn acl(named_user: u32) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries = [(1, 6, NOBODY), (2, 4, named_user), (4, 4, NOBODY), (16, 6, NOBODY), (32, 0, NOBODY)];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(u16::to_le_bytes(tag));
        value.extend(u16::to_le_bytes(permissions));
        value.extend(id.to_le_bytes());
    }
    value
}

/// Shared extents: a whole file, a range in the middle, within one file, then partly overwritten.
pub fn clones(dir: &[u8]) -> Vec<Op> {
    let source = at(dir, "source");
    let clone = |to: &str, from_offset, to_offset, len| Op::Clone {
        from: source.clone(),
        from_offset,
        to: at(dir, to),
        to_offset,
        len,
    };
    let mut ops = vec![mkdir(dir)];
    ops.extend(file(&source, Data::new(Fill::Text, 1, 400_000)));
    ops.extend(["whole", "middle", "changed"].map(|name| create(&at(dir, name))));
    ops.extend([Op::Sync, clone("whole", 0, 0, 400_000), clone("middle", 65536, 8192, 131_072)]);
    ops.extend([clone("changed", 0, 0, 400_000), clone("source", 0, 524_288, 65536), Op::Sync]);
    ops.push(write(&at(dir, "changed"), 100_000, Data::new(Fill::Text, 2, 50_000)));
    ops
}

/// Files for each algorithm: much text, little text (inline), one block, and text and noise in turns of `turn` bytes.
pub fn compressed(dir: &[u8], turn: usize) -> Vec<Op> {
    let mut ops = vec![mkdir(dir)];
    for method in ["zlib", "lzo", "zstd"] {
        for (name, len) in [("long", 150_000), ("inline", 1800), ("block", 4096)] {
            let path = at(dir, format!("{method}-{name}"));
            ops.push(create(&path));
            ops.push(property(&path, method));
            ops.push(write(&path, 0, Data::new(Fill::Text, 1, len)));
        }
        let path = at(dir, format!("{method}-mixed"));
        ops.extend([create(&path), property(&path, method)]);
        for n in 0..8 {
            let fill = if n % 2 == 0 { Fill::Text } else { Fill::Random };
            ops.push(write(&path, n * turn as u64, Data::new(fill, n, turn)));
        }
        ops.extend([Op::Sync, write(&path, turn as u64 / 3, Data::new(Fill::Text, 9, turn / 2))]);
    }
    ops
}

fn property(path: &[u8], method: &str) -> Op {
    Op::SetXattr { path: path.to_vec(), name: b"btrfs.compression".to_vec(), value: method.into() }
}

pub fn nocow(dir: &[u8]) -> Vec<Op> {
    let path = at(dir, "file");
    let inherited = at(dir, "dir/file");
    let mut ops = vec![mkdir(dir), create(&path), Op::SetNocow { path: path.clone() }];
    ops.extend([write(&path, 0, Data::new(Fill::Text, 1, 300_000)), Op::Sync]);
    ops.push(write(&path, 100_000, Data::new(Fill::Text, 2, 100_000)));
    ops.extend([mkdir(&at(dir, "dir")), Op::SetNocow { path: at(dir, "dir") }]);
    ops.extend(file(&inherited, Data::new(Fill::Text, 3, 30_000)));
    ops
}

/// Nested subvolumes, snapshots of both kinds, a snapshot of a snapshot, and deleted ones.
pub fn subvolumes(dir: &[u8]) -> Vec<Op> {
    let path = |name: &str| at(dir, name);
    let snapshot =
        |from: &str, to: &str, read_only| Op::Snapshot { from: path(from), to: path(to), read_only };
    let mut ops = vec![mkdir(dir), Op::CreateSubvolume { path: path("outer") }];
    ops.extend(file(&path("outer/one"), Data::new(Fill::Text, 1, 50_000)));
    ops.push(Op::CreateSubvolume { path: path("outer/inner") });
    ops.extend(file(&path("outer/inner/two"), Data::new(Fill::Text, 2, 500)));
    ops.push(snapshot("outer", "writable", false));
    ops.push(snapshot("outer", "frozen", true));
    ops.push(write(&path("outer/one"), 10_000, Data::new(Fill::Text, 3, 10_000)));
    ops.push(write(&path("writable/one"), 30_000, Data::new(Fill::Text, 4, 30_000)));
    ops.extend(file(&path("writable/new"), Data::new(Fill::Text, 5, 100)));
    ops.push(snapshot("writable", "again", false));
    ops.push(snapshot("again", "outer/within", true));
    ops.push(snapshot("outer", "gone", false));
    ops.extend([Op::Unlink { path: path("again/one") }, Op::Sync]);
    ops.push(Op::DeleteSubvolume { path: path("gone") });
    ops.push(Op::Rename { from: path("outer/inner"), to: path("moved") });
    ops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capability_and_acl_have_the_kernels_size() {
        assert_eq!(capability().len(), 20);
        assert_eq!(acl(5).len(), 4 + 5 * 8);
    }
}
