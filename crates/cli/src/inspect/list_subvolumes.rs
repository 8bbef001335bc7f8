//! `buttery inspect list-subvolumes`: the subvolumes of an image, as `btrfs subvolume list` shows those of a mount of
//! its top-level subvolume.

use super::options;
use crate::subvolume::on_mount;
use anyhow::{Context, Result, bail};
use buttery::{Filesystem, Subvolume, TreeId};
use buttery_disk::objectid;
use buttery_disk::root::flags;
use buttery_engine::{dir, subvol};
use buttery_print::Zone;
use buttery_print::subvolume::{self, Bound, ListOptions, SortBy, SortKey, SubvolumeInfo, parse_sort};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// No path is longer, in bytes.
const PATH_LIMIT: usize = 64 << 10;

#[derive(clap::Args)]
#[command(args_override_self = true)]
pub struct Args {
    /// Print the parent's id
    #[arg(short = 'p')]
    parent: bool,
    /// Print the generation of the subvolume's creation
    #[arg(short = 'c')]
    created_generation: bool,
    /// Print the generation; it is always printed
    #[arg(short = 'g')]
    generation: bool,
    /// Print the UUID
    #[arg(short = 'u')]
    uuid: bool,
    /// Print the UUID of the subvolume that it is a snapshot of
    #[arg(short = 'q')]
    parent_uuid: bool,
    /// Print the UUID of the subvolume that it was received from
    #[arg(short = 'R')]
    received_uuid: bool,
    /// List snapshots only, with generation and time of their creation
    #[arg(short = 's')]
    snapshots: bool,
    /// List read-only subvolumes only
    #[arg(short = 'r')]
    read_only: bool,
    /// List deleted subvolumes that are not cleaned yet only
    #[arg(short = 'd')]
    deleted: bool,
    /// Mark the paths of subvolumes that lie in other subvolumes
    #[arg(short = 'a')]
    all: bool,
    /// List subvolumes that lie in the top-level subvolume itself only
    #[arg(short = 'o')]
    own: bool,
    /// Print a table
    #[arg(short = 't')]
    table: bool,
    /// List those of this generation: +N at least N, -N at most N, N exactly N
    #[arg(short = 'G', value_name = "[+|-]N", allow_hyphen_values = true, value_parser = bound)]
    with_generation: Option<Bound>,
    /// The same for the generation of the subvolume's creation, which is printed too
    #[arg(short = 'C', value_name = "[+|-]N", allow_hyphen_values = true, value_parser = bound)]
    with_created_generation: Option<Bound>,
    /// Sort by gen, ogen, rootid, path, each with + (upwards) or - (downwards) before it
    #[arg(long, value_name = "KEYS", allow_hyphen_values = true, value_parser = sort_keys)]
    sort: Option<SortKeys>,
    /// Which copy of the superblock to use: 0, 1 or 2
    #[arg(long = "super", value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..3))]
    super_copy: u8,
    /// rescue=usebackuproot, offset=, sizelimit= (-o is another option here)
    #[arg(long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// The devices of the file system
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

#[derive(Clone)]
struct SortKeys(Vec<SortBy>);

fn bound(text: &str) -> Result<Bound, &'static str> {
    Bound::parse(text).ok_or("not a number with + or - before it")
}

fn sort_keys(text: &str) -> Result<SortKeys, &'static str> {
    parse_sort(text).map(SortKeys).ok_or("the keys are gen, ogen, rootid and path, separated by commas")
}

/// A line of the list.
struct Line<'a> {
    info: SubvolumeInfo,
    subvolume: &'a Subvolume,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    if let [dir] = &args.devices[..]
        && dir.is_dir()
    {
        return of_mount(args, dir);
    }
    let mut options = options(args.super_copy, &args.options)?;
    options.subvolid = Some(objectid::FS_TREE);
    let paths: Vec<&Path> = args.devices.iter().map(PathBuf::as_path).collect();
    let fs = Filesystem::open(&paths, &options).with_context(|| paths[0].display().to_string())?;
    // the engine's list has deleted ones too
    let all = subvol::list(fs.engine()).with_context(|| paths[0].display().to_string())?;
    let mut lines: Vec<Line> = all.iter().filter(|s| s.id.0 != objectid::FS_TREE).map(line).collect();
    lines.retain(|line| {
        let read_only = line.subvolume.item.flags.get() & flags::RDONLY != 0;
        args.wants(&line.info, read_only, objectid::FS_TREE)
    });
    let keys = args.sort.as_ref().map_or(&[][..], |keys| &keys.0);
    let mut failed = false;
    let mut named = |line: &mut Line| match path(&fs, &all, line.subvolume) {
        Ok(path) => {
            line.info.path = path;
            true
        }
        Err(error) => {
            eprintln!("buttery: subvolume {}: {error:#}", line.info.id);
            failed = true;
            false
        }
    };
    // paths are not kept unless they are what is sorted by
    let early = keys.iter().any(|by| by.key == SortKey::Path);
    if early {
        lines.retain_mut(&mut named);
    }
    lines.sort_by(|a, b| subvolume::compare(&a.info, &b.info, keys));
    let (shown, zone) = (args.shown(), Zone::local());
    let mut out = BufWriter::new(std::io::stdout().lock());
    if shown.table {
        subvolume::table_heading(&mut out, &shown)?;
    }
    for mut line in lines {
        if early || named(&mut line) {
            subvolume::subvolume_line(&mut out, &line.info, &shown, &zone)?;
        }
    }
    out.flush()?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Args {
    /// Whether a subvolume is to be listed, seen from `top`.
    fn wants(&self, info: &SubvolumeInfo, read_only: bool, top: u64) -> bool {
        (info.parent == 0) == self.deleted
            && (!self.read_only || read_only)
            && (!self.snapshots || info.parent_uuid != [0; 16])
            && (!self.own || info.parent == top)
            && self.with_generation.is_none_or(|bound| bound.admits(info.generation))
            && self.with_created_generation.is_none_or(|bound| bound.admits(info.created_generation))
    }

    /// Which columns are printed.
    fn shown(&self) -> ListOptions {
        ListOptions {
            parent: self.parent,
            created_generation: self.created_generation
                || self.snapshots
                || self.with_created_generation.is_some(),
            created: self.snapshots,
            parent_uuid: self.parent_uuid,
            received_uuid: self.received_uuid,
            uuid: self.uuid,
            table: self.table,
            absolute_from: self.all.then_some(objectid::FS_TREE),
        }
    }
}

/// The subvolumes below a directory on a mount.
fn of_mount(args: &Args, dir: &Path) -> Result<ExitCode> {
    let top = on_mount::info(&std::fs::File::open(dir)?).with_context(|| dir.display().to_string())?.id.0;
    let mut infos = Vec::new();
    for (of, path) in on_mount::below(dir)? {
        let read_only = of.flags & flags::RDONLY != 0;
        let info = SubvolumeInfo {
            id: of.id.0,
            generation: of.generation,
            created_generation: of.transids[1],
            parent: of.parent,
            uuid: of.uuid,
            parent_uuid: of.parent_uuid,
            received_uuid: of.received_uuid,
            created: of.times[1],
            path,
        };
        infos.extend(args.wants(&info, read_only, top).then_some(info));
    }
    let keys = args.sort.as_ref().map_or(&[][..], |keys| &keys.0);
    infos.sort_by(|a, b| subvolume::compare(a, b, keys));
    let mut out = BufWriter::new(std::io::stdout().lock());
    subvolume::list(&mut out, &infos, &args.shown(), &Zone::local())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// What the list tells of a subvolume, but for its path.
fn line(subvolume: &Subvolume) -> Line<'_> {
    let item = &subvolume.item;
    let info = SubvolumeInfo {
        id: subvolume.id.0,
        generation: item.generation.get(),
        created_generation: item.otransid.get(),
        parent: subvolume.parent.as_ref().map_or(0, |link| link.tree.0),
        uuid: item.uuid,
        parent_uuid: item.parent_uuid,
        received_uuid: item.received_uuid,
        created: item.otime.sec.get(),
        path: Vec::new(),
    };
    Line { info, subvolume }
}

/// Where a subvolume stands, seen from the top-level one. `all` is sorted by id.
pub fn path(fs: &Filesystem, all: &[Subvolume], subvolume: &Subvolume) -> Result<Vec<u8>> {
    if subvolume.parent.is_none() {
        return Ok(b"DELETED".to_vec());
    }
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut len = 0;
    let mut add = |name: Vec<u8>| {
        len += name.len() + 1;
        names.push(name);
        // also where directories or subvolumes lie in one another in a circle
        if len > PATH_LIMIT { bail!("its path is longer than {PATH_LIMIT} bytes") } else { Ok(()) }
    };
    let mut at = subvolume;
    while at.id.0 != objectid::FS_TREE {
        let Some(link) = &at.parent else { bail!("subvolume {} above it is deleted", at.id.0) };
        add(link.name.clone())?;
        let mut inode = link.dir;
        let tree = fs.engine().tree(link.tree).with_context(|| above(link.tree))?;
        while inode != objectid::FIRST_FREE {
            let parent = dir::parent_of(fs.engine(), &tree, inode).with_context(|| above(link.tree))?;
            let Some((parent, name)) = parent else {
                bail!("directory {inode} of subvolume {}, above it, has no name", link.tree.0)
            };
            add(name)?;
            inode = parent;
        }
        let found = all.binary_search_by_key(&link.tree.0, |s| s.id.0);
        at = found.ok().map(|i| &all[i]).with_context(|| format!("{} is not there", above(link.tree)))?;
    }
    names.reverse();
    Ok(names.join(&b'/'))
}

fn above(tree: TreeId) -> String {
    format!("subvolume {} above it", tree.0)
}
