//! `buttery inspect dump-tree`: the blocks of trees, each read with every check. A block that is no good is told on
//! standard error and left out with all that is below it, the rest is printed, and the exit status is 1.

use super::blocks::{Blocks, Start};
use super::{open_device, options};
use anyhow::Result;
use buttery_disk::check::Expect;
use buttery_disk::root::RootItem;
use buttery_disk::superblock::Superblock;
use buttery_disk::{Key, Node, item, objectid};
use buttery_print::heading::{self, Selection, TreeIdError, parse_tree_id, tree_name};
use buttery_print::{Context, Options as PrintOptions, tree_block};
use buttery_volume::{OpenOptions, Volume};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
#[command(args_override_self = true)]
pub struct Args {
    /// Print the extent and device trees only
    #[arg(short, long, group = "which")]
    extents: bool,
    /// Print the root, chunk and device trees only
    #[arg(short, long, group = "which")]
    device: bool,
    /// Print where the trees' roots are only
    #[arg(short, long, conflicts_with_all = ["extents", "device", "uuid", "tree", "block"])]
    roots: bool,
    /// The same, and the backup roots
    #[arg(short = 'R', long, group = "which")]
    backups: bool,
    /// Print the UUID tree only
    #[arg(short, long, group = "which")]
    uuid: bool,
    /// Print this tree only: a number or a name
    #[arg(short, long, group = "which", value_name = "TREE", value_parser = tree_id)]
    tree: Option<u64>,
    /// Print this block only; may be given more than once
    #[arg(short, long, group = "which", value_name = "BLOCK")]
    block: Vec<u64>,
    /// With -b: print all blocks below, too
    #[arg(long, requires = "block")]
    follow: bool,
    /// Print each level of a tree before the one below it (the default)
    #[arg(long, overrides_with = "dfs")]
    bfs: bool,
    /// Print each block before those below it, child by child
    #[arg(long, overrides_with = "bfs")]
    dfs: bool,
    /// Do not print names of files, nor names and values of attributes
    #[arg(long)]
    hide_names: bool,
    /// Print the checksums of blocks
    #[arg(long)]
    csum_headers: bool,
    /// Print the checksums of data
    #[arg(long)]
    csum_items: bool,
    /// Accepted; only the devices that are named are ever read
    #[arg(long)]
    noscan: bool,
    /// Which copy of the superblock to use: 0, 1 or 2
    #[arg(long = "super", value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..3))]
    super_copy: u8,
    /// rescue=usebackuproot, offset=, sizelimit=
    #[arg(short = 'o', long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// The devices of the file system
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

fn tree_id(text: &str) -> Result<u64, TreeIdError> {
    parse_tree_id(text)
}

/// A tree, and the key of its ROOT_ITEM if it has one.
struct Tree {
    id: u64,
    key: Option<Key>,
    start: Start,
}

struct Dump<'a> {
    volume: &'a Volume,
    selection: Selection,
    depth_first: bool,
    ctx: Context,
    out: BufWriter<StdoutLock<'static>>,
    failed: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let options = options(args.super_copy, &args.options)?;
    let devices = args.devices.iter().map(|path| open_device(path, &options)).collect::<Result<Vec<_>>>()?;
    let volume = Volume::open(
        devices,
        OpenOptions {
            super_copy: options.super_copy,
            degraded: options.degraded,
            writable: false,
            use_backup_root: options.rescue.use_backup_root,
        },
    )?;
    for devid in volume.missing() {
        eprintln!("buttery: device {devid} is missing");
    }
    let shown = PrintOptions {
        hide_names: args.hide_names,
        csum_headers: args.csum_headers,
        csum_items: args.csum_items,
    };
    let mut dump = Dump {
        volume: &volume,
        selection: args.selection(),
        depth_first: args.dfs,
        ctx: Context::new(volume.superblock(), shown),
        out: BufWriter::new(io::stdout().lock()),
        failed: false,
    };
    writeln!(dump.out, "buttery v{}", env!("CARGO_PKG_VERSION"))?;
    match args.block.is_empty() {
        true => dump.trees(options.rescue.use_backup_root)?,
        false => dump.blocks(args)?,
    }
    dump.out.flush()?;
    Ok(if dump.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Args {
    fn selection(&self) -> Selection {
        match self.tree {
            Some(id) => Selection::Tree(id),
            None if self.extents => Selection::Extents,
            None if self.device => Selection::Devices,
            None if self.backups => Selection::Backups,
            None if self.roots => Selection::Roots,
            None if self.uuid => Selection::Uuids,
            None => Selection::All,
        }
    }
}

impl Dump<'_> {
    /// Tells of an error, in its place between the blocks.
    fn fail(&mut self, what: impl Display) -> Result<()> {
        self.failed = true;
        self.out.flush()?;
        eprintln!("buttery: {what}");
        Ok(())
    }

    /// Prints the blocks of `-b`.
    fn blocks(&mut self, args: &Args) -> Result<()> {
        let mut wanted = BTreeSet::new();
        for &bytenr in &args.block {
            if !wanted.insert(bytenr) {
                eprintln!("buttery: tree block {bytenr} is named twice");
            }
        }
        for bytenr in wanted {
            let block = match self.volume.read_block(&Expect { bytenr, ..Expect::default() }) {
                Ok(block) => block,
                Err(error) => {
                    self.fail(error)?;
                    continue;
                }
            };
            if args.follow {
                let level = Some(Node::new(&block).level());
                let root = Expect { bytenr, level, ..Expect::default() };
                self.below(&Start { root, freed: None }, &format!("below block {bytenr}"))?;
            } else {
                tree_block(&mut self.out, &block, &self.ctx)?;
            }
        }
        Ok(())
    }

    /// Prints the trees of the selection and what goes with them.
    fn trees(&mut self, use_backup_root: bool) -> Result<()> {
        let sb = self.volume.superblock();
        let (root_tree, log) = (self.root_tree(use_backup_root), log_tree(sb));
        match self.selection {
            Selection::Tree(objectid::TREE_LOG) if log.is_none() => self.fail("there is no log root tree")?,
            Selection::Tree(objectid::BLOCK_GROUP_TREE) if !has_block_groups(sb) => {
                self.fail("there is no block group tree")?
            }
            _ => {}
        }
        for tree in [Some(&root_tree), Some(&chunk_tree(sb)), log.as_ref()].into_iter().flatten() {
            if self.selection.shows(tree.id, false) {
                self.tree(tree)?;
            }
        }
        self.trees_of(&root_tree, true)?;
        if let Some(log) = log.filter(|_| self.selection.shows_logs()) {
            self.trees_of(&log, false)?;
        }
        if self.selection == Selection::Backups {
            heading::backup_roots(&mut self.out, sb)?;
        }
        if self.selection.has_totals() {
            heading::totals(&mut self.out, sb)?;
        }
        Ok(())
    }

    /// The root tree of the superblock; with `rescue=usebackuproot` the newest that can be read.
    fn root_tree(&self, use_backup_root: bool) -> Tree {
        let sb = self.volume.superblock();
        let main = top(objectid::ROOT_TREE, sb.root.get(), sb.root_level, Some(sb.generation.get()));
        if !use_backup_root || self.volume.read_block(&main.start.root).is_ok() {
            return main;
        }
        let mut backups: Vec<_> = sb.super_roots.iter().filter(|b| b.tree_root.get() != 0).collect();
        backups.sort_by_key(|b| std::cmp::Reverse(b.tree_root_gen.get()));
        let roots = backups.into_iter().map(|b| {
            top(objectid::ROOT_TREE, b.tree_root.get(), b.tree_root_level, Some(b.tree_root_gen.get()))
        });
        for tree in roots {
            if self.volume.read_block(&tree.start.root).is_ok() {
                let root = tree.start.root;
                let generation = root.generation.unwrap_or(0);
                eprintln!("buttery: the root tree is a backup, {} of generation {generation}", root.bytenr);
                return tree;
            }
        }
        main
    }

    /// Prints the trees whose ROOT_ITEMs stand in this one.
    fn trees_of(&mut self, tree: &Tree, is_root_tree: bool) -> Result<()> {
        // what is wrong with the tree was told when it was printed
        let printed = self.selection.shows(tree.id, false) && !self.selection.is_short();
        for leaf in Blocks::new(self.volume, tree.start, Some(0)) {
            let leaf = match leaf {
                Ok(leaf) => leaf,
                Err(_) if printed => continue,
                Err(bad) => {
                    self.fail(format!("tree {}: {}", tree_name(tree.id), bad.why))?;
                    continue;
                }
            };
            let node = Node::new(&leaf);
            for slot in 0..node.nritems() {
                let key = node.key(slot);
                if key.kind != item::ROOT_ITEM {
                    continue;
                }
                let Some(mut found) = tree_of_item(key, node.data(slot)) else {
                    self.fail(format!("tree {}: {key}: the root item is cut off", tree_name(tree.id)))?;
                    continue;
                };
                let block_groups = objectid::BLOCK_GROUP_TREE;
                if is_root_tree && found.id == block_groups && self.selection == Selection::Tree(block_groups)
                {
                    found.key = None;
                    self.tree(&found)?;
                } else if !is_root_tree || self.selection.shows(found.id, true) {
                    self.tree(&found)?;
                }
            }
        }
        Ok(())
    }

    /// Prints one tree, or its line.
    fn tree(&mut self, tree: &Tree) -> Result<()> {
        let root = tree.start.root;
        if self.selection.is_short() {
            let level = root.level.unwrap_or(0);
            return Ok(heading::root_line(&mut self.out, tree.id, tree.key, root.bytenr, level)?);
        }
        heading::heading(&mut self.out, self.selection, tree.id, tree.key)?;
        let name = match tree.key {
            Some(key) if key.offset != 0 => format!("tree {} ({key})", tree_name(tree.id)),
            _ => format!("tree {}", tree_name(tree.id)),
        };
        self.below(&tree.start, &name)
    }

    /// Prints a block and all below it, in the order that was asked for.
    fn below(&mut self, start: &Start, name: &str) -> Result<()> {
        let top = start.root.level.unwrap_or(0);
        let passes: Vec<Option<u8>> = match (self.selection.leaves_only(), self.depth_first) {
            (true, _) => vec![Some(0)],
            (false, true) => vec![None],
            (false, false) => (0..=top).rev().map(Some).collect(),
        };
        let only_pass = passes.len() == 1;
        for level in passes {
            for block in Blocks::new(self.volume, *start, level) {
                match block {
                    Ok(block) => tree_block(&mut self.out, &block, &self.ctx)?,
                    // each pass meets it again
                    Err(bad) if only_pass || bad.level == level => {
                        self.fail(format!("{name}: {}", bad.why))?
                    }
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }
}

/// A tree without a ROOT_ITEM.
fn top(id: u64, bytenr: u64, level: u8, generation: Option<u64>) -> Tree {
    let root = Expect { bytenr, level: Some(level), generation, first_key: None, owner: Some(id) };
    Tree { id, key: None, start: Start { root, freed: None } }
}

fn chunk_tree(sb: &Superblock) -> Tree {
    let generation = Some(sb.chunk_root_generation.get());
    top(objectid::CHUNK_TREE, sb.chunk_root.get(), sb.chunk_root_level, generation)
}

/// The log root tree, written after the commit whose superblock this is.
fn log_tree(sb: &Superblock) -> Option<Tree> {
    let generation = sb.generation.get().checked_add(1);
    let bytenr = sb.log_root.get();
    (bytenr != 0).then(|| top(objectid::TREE_LOG, bytenr, sb.log_root_level, generation))
}

fn has_block_groups(sb: &Superblock) -> bool {
    sb.has_compat_ro(buttery_disk::superblock::compat_ro::BLOCK_GROUP_TREE)
}

/// The tree of a ROOT_ITEM; `None` if the item is cut off.
fn tree_of_item(key: Key, data: &[u8]) -> Option<Tree> {
    let root = RootItem::parse(data)?;
    let id = key.objectid;
    // snapshots share blocks, and a relocation tree shares those of the tree that it moves
    let shared = objectid::is_subvolume(id) || matches!(id, objectid::DATA_RELOC_TREE | objectid::TREE_RELOC);
    let expect = Expect {
        bytenr: root.bytenr.get(),
        level: Some(root.level),
        generation: Some(root.generation.get()),
        first_key: None,
        owner: (!shared).then_some(id),
    };
    let freed = (root.refs.get() == 0).then(|| Key::from(root.drop_progress));
    Some(Tree { id, key: Some(key), start: Start { root: expect, freed } })
}
