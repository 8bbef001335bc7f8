//! Makes the first members of the corpus from golden images: `cargo run --example seeds`.

use std::fs;
use std::path::Path;

use buttery::{Filesystem, Options};
use buttery_disk::Node;
use buttery_fuzz::{blocks, golden};

fn main() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let keep = |target: &str, name: &str, bytes: &[u8]| {
        fs::create_dir_all(corpus.join(target)).expect("a folder");
        fs::write(corpus.join(target).join(name), bytes).expect("a file");
    };
    for (n, name) in golden::NAMES.iter().enumerate() {
        let devices = golden::unpack(n);
        // One superblock of each checksum and profile; zeros at the end are left out.
        let sb = golden::superblock(&devices[0]);
        let end = sb.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
        keep("superblock", name, &sb[..end]);
        keep("image", name, &[n as u8, 0]);
        if *name == "nodesize-4k" {
            let fs =
                Filesystem::open_devices(golden::shared(&devices), &Options::default()).expect("the image");
            let mut kept = std::collections::BTreeMap::<(u64, u8), usize>::new();
            for block in blocks::all(&fs) {
                let count = kept.entry((block.owner, block.level)).or_default();
                *count += 1;
                if *count % 9 == 1 && *count < 30 {
                    let expect = buttery_disk::check::Expect { bytenr: block.bytenr, ..Default::default() };
                    let bytes = fs.engine().volume().read_block(&expect).expect("a block");
                    assert_eq!(Node::new(&bytes).level(), block.level);
                    let name = format!("tree-{}-level-{}-{count}", block.owner, block.level);
                    keep("tree_block", &name, &[&[0], &bytes[..]].concat());
                }
            }
        }
    }
}
