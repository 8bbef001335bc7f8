//! Small files live in their items, up to what `max_inline` says, and move out when they outgrow it.

use buttery::{FileId, Filesystem, NewNode};
use buttery_device::Device;
use buttery_engine::file::extents::{self, Body};
use buttery_sim::image;
use buttery_sim::watched::Watched;
use std::sync::Arc;

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Whether a file has data in its item, and whether it has any elsewhere.
fn places(fs: &Filesystem, id: FileId) -> (bool, bool) {
    let tree = fs.engine().tree(id.tree).expect("the tree");
    let view = tree.read(fs.engine().store());
    let mut found = (false, false);
    extents::for_each(&tree, &view, id.ino, 0, u64::MAX, &mut |extent| {
        found.0 |= matches!(extent.body, Body::Inline { .. });
        found.1 |= matches!(extent.body, Body::Regular(_));
        Ok(true)
    })
    .expect("extents");
    found
}

/// What is asked for, and what comes of it where nodes have 4 KiB and where they are larger.
const CASES: [(&str, usize, usize); 5] = [
    ("", 2048, 2048),
    ("max_inline=0", 0, 0),
    ("max_inline=100", 100, 100),
    ("max_inline=3k", 3072, 3072),
    ("max_inline=1m", 3949, 4095),
];

#[test]
fn files_live_in_their_items_up_to_the_limit() {
    for (options, in_small_nodes, in_large_nodes) in CASES {
        for (seed, limit) in [(0, in_small_nodes), (1, in_large_nodes)] {
            let device = Watched::of(256 << 20, &image::spread(seed));
            let mut with = image::quiet();
            with.parse(options).expect("options");
            let fs = device.open_with(&with);
            let mut made = Vec::new();
            for len in [1, 99, 100, 101, 2047, 2048, 2049, 3072, 3949, 3950, 4095, 4096, 5000] {
                let name = format!("file{len}");
                let id = fs.create(fs.root(), name.as_bytes(), NewNode::file(0o644)).expect("a file");
                // in two parts
                fs.write(id, 0, &bytes(len)[..len / 2]).expect("a write");
                fs.write(id, len as u64 / 2, &bytes(len)[len / 2..]).expect("a write");
                fs.sync().expect("a commit");
                assert_eq!(places(&fs, id), (len <= limit, len > limit), "{options}, {limit}: {len}");
                made.push((name, bytes(len)));
                // one that grows by a truncation, and by a write behind its end
                for (how, to) in [("cut", len as u64 + 1), ("gap", len as u64 + 300)] {
                    let name = format!("{how}{len}");
                    let id = fs.create(fs.root(), name.as_bytes(), NewNode::file(0o644)).expect("a file");
                    let mut all = bytes(len);
                    fs.write(id, 0, &all).expect("a write");
                    all.resize(to as usize, 0);
                    match how {
                        "cut" => fs.truncate(id, to).expect("a truncation"),
                        _ => {
                            fs.write(id, to, b"end").expect("a write");
                            all.extend(b"end");
                        }
                    }
                    made.push((name, all));
                }
            }
            fs.close().expect("close");
            // another limit finds them as they are
            let again: Arc<dyn Device> = device.clone();
            let fs = image::open(&again);
            for (name, all) in made.iter_mut().step_by(2) {
                let id = fs.lookup(fs.root(), name.as_bytes()).expect("the file");
                fs.write(id, 10, b"again").expect("a write");
                all.resize(all.len().max(15), 0);
                all[10..15].copy_from_slice(b"again");
            }
            fs.close().expect("close");
            device.check(|top| {
                for (name, all) in &made {
                    assert!(std::fs::read(top.join(name)).expect("the file") == *all, "{options}: {name}");
                }
            });
        }
    }
}
