//! Compares two lists of facts and says how they differ.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt::Debug;

use crate::facts::{Fact, Kind};
use crate::render::escape;

/// What counts. `Compare::default()` compares everything.
#[derive(Clone, Debug)]
pub struct Compare {
    pub ino: bool,
    pub mtime: bool,
    pub ctime: bool,
    pub btime: bool,
    pub dir_size: bool,
    pub dir_nlink: bool,
    /// Mode, owner, times and xattrs of the root itself.
    pub root: bool,
    pub xattrs: bool,
    /// Xattrs that are left out on both sides, by the start of their name.
    pub ignored_xattrs: Vec<Vec<u8>>,
}

impl Default for Compare {
    fn default() -> Compare {
        Compare {
            ino: true,
            mtime: true,
            ctime: true,
            btime: true,
            dir_size: true,
            dir_nlink: true,
            root: true,
            xattrs: true,
            ignored_xattrs: Vec::new(),
        }
    }
}

impl Compare {
    /// What must survive a copy from one file system to another: not inode numbers, ctime, btime nor the
    /// directories' own measures.
    pub fn copied() -> Compare {
        Compare {
            ino: false,
            ctime: false,
            btime: false,
            dir_size: false,
            dir_nlink: false,
            ..Compare::default()
        }
    }

    /// What two runs of the same operations have in common: all but the clock.
    pub fn timeless() -> Compare {
        Compare { mtime: false, ctime: false, btime: false, ..Compare::default() }
    }
}

/// How many differences are listed.
const LISTED: usize = 20;

/// `Ok` when the two trees are the same; otherwise the first differences, `a` left and `b` right. Both are sorted
/// by path.
pub fn compare(a: &[Fact], b: &[Fact], what: &Compare) -> Result<(), String> {
    let mut found = Vec::new();
    let (mut left, mut right) = (a.iter().peekable(), b.iter().peekable());
    loop {
        let order = match (left.peek(), right.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(l), Some(r)) => l.path.cmp(&r.path),
        };
        match order {
            Ordering::Less => found.extend(left.next().map(|l| format!("{}: only left", escape(&l.path)))),
            Ordering::Greater => {
                found.extend(right.next().map(|r| format!("{}: only right", escape(&r.path))))
            }
            Ordering::Equal => {
                if let (Some(l), Some(r)) = (left.next(), right.next()) {
                    differences(l, r, what, &mut found);
                }
            }
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    let more = found.len().saturating_sub(LISTED);
    let mut text = format!("{} differences between {} and {} facts:\n", found.len(), a.len(), b.len());
    found.iter().take(LISTED).for_each(|line| text += &format!("  {line}\n"));
    if more > 0 {
        text += &format!("  and {more} more\n");
    }
    Err(text)
}

fn differences(l: &Fact, r: &Fact, what: &Compare, found: &mut Vec<String>) {
    let path = if l.path.is_empty() { "(root)".to_string() } else { escape(&l.path) };
    let mut check = |on: bool, name: &str, left: &dyn Debug, right: &dyn Debug| {
        let (left, right) = (format!("{left:?}"), format!("{right:?}"));
        if on && left != right {
            found.push(format!("{path}: {name} {left} is not {right}"));
        }
    };
    let dir = l.kind == Kind::Dir;
    let meta = what.root || !l.path.is_empty();
    check(true, "kind", &l.kind, &r.kind);
    check(meta, "mode", &Octal(l.mode), &Octal(r.mode));
    check(meta, "owner", &(l.uid, l.gid), &(r.uid, r.gid));
    check(true, "rdev", &l.rdev, &r.rdev);
    check(!dir || what.dir_size, "size", &l.size, &r.size);
    check(!dir || what.dir_nlink, "nlink", &l.nlink, &r.nlink);
    check(what.ino, "ino", &l.ino, &r.ino);
    check(meta && what.mtime, "mtime", &l.mtime, &r.mtime);
    check(meta && what.ctime, "ctime", &l.ctime, &r.ctime);
    check(meta && what.btime, "btime", &l.btime, &r.btime);
    check(true, "target", &l.target.as_deref().map(escape), &r.target.as_deref().map(escape));
    check(true, "content", &l.content, &r.content);
    if meta && what.xattrs {
        xattr_differences(l, r, what, &path, found);
    }
}

fn xattr_differences(l: &Fact, r: &Fact, what: &Compare, path: &str, found: &mut Vec<String>) {
    let names: BTreeSet<&Vec<u8>> = l.xattrs.keys().chain(r.xattrs.keys()).collect();
    for name in names {
        let ignored = what.ignored_xattrs.iter().any(|start| name.starts_with(start));
        let (left, right) = (l.xattrs.get(name), r.xattrs.get(name));
        if !ignored && left != right {
            let show = |v: Option<&Vec<u8>>| v.map_or("absent".into(), |v| format!("\"{}\"", short(v)));
            found.push(format!("{path}: xattr {} {} is not {}", escape(name), show(left), show(right)));
        }
    }
}

fn short(value: &[u8]) -> String {
    if value.len() <= 40 {
        escape(value)
    } else {
        format!("{}… ({} bytes)", escape(&value[..40]), value.len())
    }
}

struct Octal(u32);

impl Debug for Octal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_differs() {
        let a = vec![Fact::new("a", Kind::File), Fact::new("b", Kind::Dir), Fact::new("c", Kind::Fifo)];
        let mut b = a.clone();
        assert_eq!(compare(&a, &b, &Compare::default()), Ok(()));
        b[0].mode = 0o644;
        b[1].size = 5;
        b[2].path = b"d".to_vec();
        let text = compare(&a, &b, &Compare::default()).unwrap_err();
        for part in ["a: mode 0000 is not 0644", "b: size 0 is not 5", "c: only left", "d: only right"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let text = compare(&a, &b, &Compare { dir_size: false, ..Compare::default() }).unwrap_err();
        assert!(!text.contains("b: size"));
    }

    #[test]
    fn xattrs_are_compared_one_by_one() {
        let mut a = Fact::new("a", Kind::File);
        a.xattrs.insert(b"user.x".to_vec(), b"1".to_vec());
        let mut b = a.clone();
        b.xattrs.insert(b"user.x".to_vec(), b"2".to_vec());
        let text = compare(&[a.clone()], &[b.clone()], &Compare::default()).unwrap_err();
        assert!(text.contains(r#"xattr user.x "1" is not "2""#), "{text}");
        let what = Compare { ignored_xattrs: vec![b"user.".to_vec()], ..Compare::default() };
        assert_eq!(compare(&[a], &[b], &what), Ok(()));
    }
}
