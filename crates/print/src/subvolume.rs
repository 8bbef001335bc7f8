//! Lists of subvolumes, as `btrfs subvolume list` prints them: lines, or with `-t` a table.
//!
//! Where the numbers stand on disk: generation, UUIDs and times in the ROOT_ITEM (`cgen` is its `otransid`), the
//! parent in the key of the ROOT_BACKREF. A subvolume that is deleted and not yet cleaned has no ROOT_BACKREF; it is
//! listed with `-d` alone, with parent 0 and the path `DELETED`. Which ones are listed is the caller's to choose:
//! `-r` those with the read-only flag, `-s` those with a parent UUID, `-o` those whose parent is the subvolume asked
//! about, `-G` and `-C` those that a [`Bound`] admits. The top-level subvolume itself is never listed. Without
//! `--sort` they stand in the order of their ids.

use crate::text::Uuid;
use crate::time::Zone;
use std::cmp::Ordering;
use std::io::{self, Write};

/// One subvolume.
#[derive(Clone, Debug, Default)]
pub struct SubvolumeInfo {
    pub id: u64,
    pub generation: u64,
    /// The generation in which it was created.
    pub created_generation: u64,
    /// The subvolume that contains it; 0 when it is deleted.
    pub parent: u64,
    pub uuid: [u8; 16],
    pub parent_uuid: [u8; 16],
    pub received_uuid: [u8; 16],
    /// When it was created, in seconds since 1970.
    pub created: i64,
    /// Where it stands, in bytes as on disk.
    pub path: Vec<u8>,
}

/// Which columns are printed beside id, generation, top level and path, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListOptions {
    /// `-p`: the parent's id.
    pub parent: bool,
    /// `-c`, and with `-s`: the generation of creation.
    pub created_generation: bool,
    /// With `-s`: the time of creation.
    pub created: bool,
    /// `-q`
    pub parent_uuid: bool,
    /// `-R`
    pub received_uuid: bool,
    /// `-u`
    pub uuid: bool,
    /// `-t`
    pub table: bool,
    /// `-a`: `<FS_TREE>/` before the paths of subvolumes whose parent is not this one, the one asked about.
    pub absolute_from: Option<u64>,
}

/// A column: its heading in a table, its name in a line, its value.
type Column = (&'static str, String);

fn uuid_or_dash(uuid: &[u8; 16]) -> String {
    if uuid == &[0; 16] { format!("{:<36}", "-") } else { Uuid(uuid).to_string() }
}

/// The columns before the path.
fn columns(info: &SubvolumeInfo, options: &ListOptions, zone: &Zone) -> Vec<Column> {
    let mut columns = vec![("ID", info.id.to_string()), ("gen", info.generation.to_string())];
    if options.created_generation {
        columns.push(("cgen", info.created_generation.to_string()));
    }
    if options.parent {
        columns.push(("parent", info.parent.to_string()));
    }
    columns.push(("top level", info.parent.to_string()));
    if options.created {
        columns.push(("otime", zone.date(info.created).to_string()));
    }
    if options.parent_uuid {
        columns.push(("parent_uuid", uuid_or_dash(&info.parent_uuid)));
    }
    if options.received_uuid {
        columns.push(("received_uuid", uuid_or_dash(&info.received_uuid)));
    }
    if options.uuid {
        columns.push(("uuid", uuid_or_dash(&info.uuid)));
    }
    columns
}

/// The two lines above a table.
pub fn table_heading(out: &mut dyn Write, options: &ListOptions) -> io::Result<()> {
    let columns = columns(&SubvolumeInfo::default(), options, &Zone::utc());
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).chain(["path"]).collect();
    for name in &names {
        write!(out, "{name}\t")?;
    }
    writeln!(out)?;
    for name in &names {
        write!(out, "{}\t", "-".repeat(name.len()))?;
    }
    writeln!(out)
}

/// Prints one subvolume, as a line or as a row of a table.
pub fn subvolume_line(
    out: &mut dyn Write,
    info: &SubvolumeInfo,
    options: &ListOptions,
    zone: &Zone,
) -> io::Result<()> {
    for (name, value) in columns(info, options, zone) {
        match (options.table, name) {
            (true, "top level") => write!(out, "{value}\t\t")?,
            (true, _) => write!(out, "{value}\t")?,
            (false, _) => write!(out, "{name} {value} ")?,
        }
    }
    if !options.table {
        write!(out, "path ")?;
    }
    if options.absolute_from.is_some_and(|from| from != info.parent) {
        write!(out, "<FS_TREE>/")?;
    }
    out.write_all(&info.path)?;
    writeln!(out)
}

/// Prints a whole list, with the heading if it is a table.
pub fn list(
    out: &mut dyn Write,
    infos: &[SubvolumeInfo],
    options: &ListOptions,
    zone: &Zone,
) -> io::Result<()> {
    if options.table {
        table_heading(out, options)?;
    }
    infos.iter().try_for_each(|info| subvolume_line(out, info, options, zone))
}

/// What a list is sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SortKey {
    Id,
    Generation,
    CreatedGeneration,
    Path,
}

/// One key of `--sort`, and whether it runs downwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SortBy {
    pub key: SortKey,
    pub descending: bool,
}

/// Reads the argument of `--sort`: `gen`, `ogen`, `rootid`, `path`, each with `+` or `-` before it, separated by
/// commas. `None` if it is not understood.
pub fn parse_sort(text: &str) -> Option<Vec<SortBy>> {
    text.split(',')
        .map(|part| {
            let (name, descending) = match part.strip_prefix('-') {
                Some(name) => (name, true),
                None => (part.strip_prefix('+').unwrap_or(part), false),
            };
            let key = match name {
                "rootid" => SortKey::Id,
                "gen" => SortKey::Generation,
                "ogen" => SortKey::CreatedGeneration,
                "path" => SortKey::Path,
                _ => return None,
            };
            Some(SortBy { key, descending })
        })
        .collect()
}

/// How two subvolumes stand to each other under these keys; the id decides between equals.
pub fn compare(a: &SubvolumeInfo, b: &SubvolumeInfo, keys: &[SortBy]) -> Ordering {
    for by in keys {
        let order = match by.key {
            SortKey::Id => a.id.cmp(&b.id),
            SortKey::Generation => a.generation.cmp(&b.generation),
            SortKey::CreatedGeneration => a.created_generation.cmp(&b.created_generation),
            SortKey::Path => a.path.cmp(&b.path),
        };
        let order = if by.descending { order.reverse() } else { order };
        if order.is_ne() {
            return order;
        }
    }
    a.id.cmp(&b.id)
}

/// What `-G` and `-C` admit: `+N` at least N, `-N` at most N, `N` exactly N.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    AtLeast(u64),
    AtMost(u64),
    Exactly(u64),
}

impl Bound {
    /// Reads the options' argument.
    pub fn parse(text: &str) -> Option<Bound> {
        let number =
            |digits: &str| digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?;
        match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(digits), _) => number(digits).map(Bound::AtLeast),
            (_, Some(digits)) => number(digits).map(Bound::AtMost),
            _ => number(text).map(Bound::Exactly),
        }
    }

    /// Whether a generation lies within it.
    pub fn admits(self, generation: u64) -> bool {
        match self {
            Bound::AtLeast(n) => generation >= n,
            Bound::AtMost(n) => generation <= n,
            Bound::Exactly(n) => generation == n,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(id: u64, parent: u64, path: &str) -> SubvolumeInfo {
        SubvolumeInfo {
            id,
            generation: 21,
            created_generation: 9,
            parent,
            path: path.into(),
            ..Default::default()
        }
    }

    fn text(infos: &[SubvolumeInfo], options: &ListOptions) -> String {
        let mut out = Vec::new();
        list(&mut out, infos, options, &Zone::utc()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines() {
        let one = [info(256, 5, "s 1")];
        assert_eq!(text(&one, &ListOptions::default()), "ID 256 gen 21 top level 5 path s 1\n");
        let all = ListOptions {
            parent: true,
            created_generation: true,
            created: true,
            uuid: true,
            absolute_from: Some(5),
            ..Default::default()
        };
        let dash = format!("-{}", " ".repeat(35));
        let want = format!(
            "ID 260 gen 21 cgen 9 parent 259 top level 259 otime 1970-01-01 00:00:00 uuid {dash} path <FS_TREE>/d/x\n"
        );
        assert_eq!(text(&[info(260, 259, "d/x")], &all), want);
    }

    #[test]
    fn tables() {
        let options = ListOptions { table: true, parent: true, ..Default::default() };
        let want =
            "ID\tgen\tparent\ttop level\tpath\t\n--\t---\t------\t---------\t----\t\n256\t21\t5\t5\t\ts1\n";
        assert_eq!(text(&[info(256, 5, "s1")], &options), want);
    }

    #[test]
    fn sorting_and_bounds() {
        let keys = parse_sort("-gen,path").unwrap();
        let (a, b) = (info(1, 5, "b"), info(2, 5, "a"));
        assert_eq!(compare(&a, &b, &keys), Ordering::Greater);
        assert_eq!(compare(&a, &b, &[]), Ordering::Less);
        assert_eq!(parse_sort("size"), None);
        assert!(Bound::parse("+13").unwrap().admits(13) && !Bound::parse("-12").unwrap().admits(13));
        assert_eq!(Bound::parse("x"), None);
    }
}
