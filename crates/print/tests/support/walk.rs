//! Whole dumps in both programs' hands.

use super::image::{Image, Root};
use super::{Skip, assert_same, must};
use buttery_disk::node::Node;
use buttery_disk::objectid;
use buttery_disk::superblock::{OFFSETS, SIZE, Superblock};
use buttery_print::heading::{self, Selection};
use buttery_print::{Context, CsumState, Options, SuperOptions, Zone, superblock, tree_block};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// One run of `dump-tree`.
pub struct Dump<'a> {
    pub args: &'a [&'a str],
    pub selection: Selection,
    pub options: Options,
    pub depth_first: bool,
}

const PLAIN: Options = Options { hide_names: false, csum_headers: false, csum_items: false };

/// The runs that every image goes through.
pub fn dumps() -> Vec<Dump<'static>> {
    let dump = |args, selection| Dump { args, selection, options: PLAIN, depth_first: false };
    let show = |args, options| Dump { args, selection: Selection::All, options, depth_first: false };
    vec![
        dump(&[], Selection::All),
        dump(&["-e"], Selection::Extents),
        dump(&["-d"], Selection::Devices),
        dump(&["-r"], Selection::Roots),
        dump(&["-R"], Selection::Backups),
        dump(&["-u"], Selection::Uuids),
        dump(&["-t", "fs"], Selection::Tree(5)),
        dump(&["-t", "root"], Selection::Tree(1)),
        dump(&["-t", "3"], Selection::Tree(3)),
        dump(&["-t", "257"], Selection::Tree(257)),
        dump(&["-t", "99999"], Selection::Tree(99999)),
        show(&["--hide-names"], Options { hide_names: true, ..PLAIN }),
        show(&["--csum-headers", "--csum-items"], Options { csum_headers: true, csum_items: true, ..PLAIN }),
        Dump { args: &["--dfs"], selection: Selection::All, options: PLAIN, depth_first: true },
    ]
}

/// A context that prints dates in UTC.
pub fn context(image: &Image, options: Options) -> Context {
    Context { zone: Zone::utc(), ..Context::new(&image.sb, options) }
}

/// A tree's heading and blocks.
fn tree(out: &mut Vec<u8>, image: &Image, root: &Root, dump: &Dump) -> std::io::Result<()> {
    if dump.selection.is_short() {
        return heading::root_line(out, root.id.0, root.key, root.bytenr, root.level);
    }
    heading::heading(out, dump.selection, root.id.0, root.key)?;
    let ctx = context(image, dump.options);
    let blocks = image.blocks(root.bytenr, dump.depth_first);
    let shown = |block: &&Vec<u8>| !dump.selection.leaves_only() || Node::new(block).level() == 0;
    blocks.iter().filter(shown).try_for_each(|block| tree_block(out, block, &ctx))
}

/// A whole dump by this crate.
pub fn ours(image: &Image, dump: &Dump) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    let selection = dump.selection;
    writeln!(out, "btrfs-progs v6.14")?;
    let top = [Some(image.root_root()), Some(image.chunk_root()), image.log_root()];
    for root in top.into_iter().flatten().filter(|root| selection.shows(root.id.0, false)) {
        tree(&mut out, image, &root, dump)?;
    }
    for mut root in image.roots_in(image.sb.root.get()) {
        if selection == Selection::Tree(objectid::BLOCK_GROUP_TREE) && root.id.0 == objectid::BLOCK_GROUP_TREE
        {
            root.key = None;
            tree(&mut out, image, &root, dump)?;
        } else if selection.shows(root.id.0, true) {
            tree(&mut out, image, &root, dump)?;
        }
    }
    if let Some(log) = image.log_root().filter(|_| selection.shows_logs()) {
        for root in image.roots_in(log.bytenr) {
            tree(&mut out, image, &root, dump)?;
        }
    }
    if selection == Selection::Backups {
        heading::backup_roots(&mut out, &image.sb)?;
    }
    if selection.has_totals() {
        heading::totals(&mut out, &image.sb)?;
    }
    Ok(out)
}

/// What the real program prints for an image of these devices.
pub fn theirs(images: &[&Path], args: &[&str]) -> Result<Vec<u8>, Skip> {
    let mut all = vec!["inspect-internal", "dump-tree"];
    all.extend(args);
    all.push("--noscan");
    all.extend(images.iter().map(|image| image.to_str().expect("a plain path")));
    must("btrfs", &all)
}

/// Compares the dumps of an image in every way, superblocks too. The dump of everything must hold these words, or
/// the image lacks what it was made for.
pub fn compare(what: &str, images: &[&Path], words: &[&str]) -> Result<(), Skip> {
    let image = Image::open(images[0]);
    for dump in dumps() {
        let ours = ours(&image, &dump).expect("memory can be written");
        assert_same(&format!("{what}, dump-tree {:?}", dump.args), &ours, &theirs(images, dump.args)?);
        if dump.args.is_empty() {
            let text = String::from_utf8_lossy(&ours);
            words.iter().for_each(|word| assert!(text.contains(word), "{what} has no {word}"));
        }
    }
    compare_blocks(what, images, &image)?;
    for path in images {
        compare_superblocks(what, path)?;
    }
    Ok(())
}

/// Compares `-b`, and `--follow` in both orders, on the roots of two trees.
fn compare_blocks(what: &str, images: &[&Path], image: &Image) -> Result<(), Skip> {
    let fs = image.roots_in(image.sb.root.get()).into_iter().find(|root| root.id.0 == 5).expect("an FS tree");
    let mut wanted = [fs.bytenr, image.sb.chunk_root.get()];
    let (a, b) = (wanted[0].to_string(), wanted[1].to_string());
    wanted.sort();
    let ctx = context(image, PLAIN);
    for (args, follow, depth_first) in
        [(&[][..], false, false), (&["--follow"][..], true, false), (&["--follow", "--dfs"][..], true, true)]
    {
        let mut out = b"btrfs-progs v6.14\n".to_vec();
        for bytenr in wanted {
            let blocks = image.blocks(bytenr, depth_first);
            for block in blocks.iter().take(if follow { usize::MAX } else { 1 }) {
                tree_block(&mut out, block, &ctx).expect("memory can be written");
            }
        }
        let args = [&["-b", &a, "-b", &b], args].concat();
        assert_same(&format!("{what}, dump-tree {args:?}"), &out, &theirs(images, &args)?);
    }
    Ok(())
}

/// Compares `dump-super`, with all there is and with as little as there is.
pub fn compare_superblocks(what: &str, path: &Path) -> Result<(), Skip> {
    let name = path.to_str().expect("a plain path");
    let file = std::fs::File::open(path).expect("the image opens");
    let size = file.metadata().expect("the image has a size").len();
    for (args, full, copies) in [(&["-f", "-a"][..], true, 3), (&[][..], false, 1), (&["-f"][..], true, 1)] {
        let mut out = Vec::new();
        for offset in OFFSETS.into_iter().take(copies).filter(|offset| offset + SIZE as u64 <= size) {
            let mut bytes = [0; SIZE];
            file.read_exact_at(&mut bytes, offset).expect("a superblock can be read");
            let sb = Superblock::parse(&bytes).expect("4096 bytes");
            let options = SuperOptions { full, force: false };
            superblock(&mut out, &sb, name, offset, CsumState::Match, options)
                .expect("memory can be written");
        }
        let args = [&["inspect-internal", "dump-super"], args, &[name]].concat();
        assert_same(&format!("{what}, {args:?}"), &out, &must("btrfs", &args)?);
    }
    Ok(())
}
