//! A tree block: checked, and if the checker passes it, every item read in every way that there is.

use buttery_codec::{Compression, decompress};
use buttery_disk::check::{Context, Expect, check_block};
use buttery_disk::chunk::{BlockGroupItem, DevExtent, DevItem, FreeSpaceInfo};
use buttery_disk::extent::{FILE_EXTENT_INLINE_START, inline_refs, inline_refs_start};
use buttery_disk::root::{RootItem, RootRef};
use buttery_disk::zerocopy::FromBytes;
use buttery_disk::{Key, Node, dir, inode, item};
use buttery_print::Zone;
use buttery_volume::Chunk;

/// The fsid that every block has.
const FSID: [u8; 16] = [7; 16];

/// Takes one byte for the node and checksum size and then the bytes of a block, cut or filled up to that size.
pub fn tree_block(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    let nodesize = [4096, 16384, 65536, 4096][usize::from(choice & 3)];
    let csum_size = [4, 8, 32, 32][usize::from(choice >> 2 & 3)];
    let mut bytes = rest[..rest.len().min(nodesize)].to_vec();
    bytes.resize(nodesize, 0);
    bytes[32..48].copy_from_slice(&FSID);
    let ctx = Context {
        nodesize: nodesize as u32,
        sectorsize: 4096,
        csum_size: csum_size as u32,
        generation: 1 << 40,
        incompat: u64::MAX,
        fsid: FSID,
    };
    let print = buttery_print::Context {
        sectorsize: 4096,
        csum_size,
        simple_quota: choice & 128 != 0,
        zone: Zone::utc(),
        options: buttery_print::Options { hide_names: false, csum_headers: true, csum_items: true },
    };
    buttery_print::tree_block(&mut std::io::sink(), &bytes, &print).expect("a sink takes everything");

    let header = Node::new(&bytes).header();
    let expect = Expect { bytenr: header.bytenr.get(), ..Expect::default() };
    if check_block(&bytes, &ctx, &expect).is_ok() {
        read(Node::new(&bytes));
    }
}

/// Reads everything in a block that was passed.
fn read(node: Node<'_>) {
    let n = node.nritems();
    if node.level() > 0 {
        assert!((1..n).all(|slot| node.key(slot - 1) < node.key(slot)));
        assert!((0..n).all(|slot| node.ptr(slot).blockptr.get() != 0));
        assert_eq!(node.child_slot(&Key::MIN), 0);
        assert_eq!(node.child_slot(&Key::MAX), n - 1);
        return;
    }
    assert_eq!(node.leaf_free() + node.leaf_used(), buttery_disk::node::leaf_data_size(node.bytes().len()));
    for slot in 0..n {
        let (key, data) = (node.key(slot), node.data(slot));
        assert_eq!(node.search(&key), Ok(slot));
        read_item(key, data);
    }
}

fn read_item(key: Key, data: &[u8]) {
    let _ = key.to_string();
    match key.kind {
        item::DIR_ITEM | item::DIR_INDEX | item::XATTR_ITEM => {
            let total: usize = dir::entries(data).map(|e| e.len_bytes()).sum();
            assert_eq!(total, data.len(), "a passed item has no malformed entry");
        }
        item::INODE_REF => assert!(inode::inode_refs(data).count() > 0),
        item::INODE_EXTREF => assert!(inode::inode_extrefs(data).count() > 0),
        item::EXTENT_DATA => file_extent(data),
        item::EXTENT_ITEM | item::METADATA_ITEM => {
            let flags = u64::from_le_bytes(data[16..24].try_into().expect("a passed extent item"));
            inline_refs(data, inline_refs_start(key.kind, flags)).for_each(|r| drop(format!("{r:?}")));
        }
        item::ROOT_ITEM => drop(RootItem::parse(data).expect("a passed root item").bytenr.get()),
        item::ROOT_REF | item::ROOT_BACKREF => drop(RootRef::parse(data).map(|(_, name)| name.to_vec())),
        item::CHUNK_ITEM => super::sb::lay_out(Chunk::parse(key.offset, data).expect("a passed chunk")),
        item::DEV_ITEM => assert!(DevItem::read_from_bytes(data).is_ok()),
        item::DEV_EXTENT => assert!(DevExtent::read_from_bytes(data).is_ok()),
        item::BLOCK_GROUP_ITEM => assert!(BlockGroupItem::read_from_bytes(data).is_ok()),
        item::FREE_SPACE_INFO => assert!(FreeSpaceInfo::read_from_bytes(data).is_ok()),
        _ => {}
    }
}

/// Decodes what an inline extent holds, as if it were compressed.
fn file_extent(data: &[u8]) {
    let mut plain = [0; 5000];
    if let Some(algorithm) = Compression::from_disk(data[16]) {
        let _ = decompress(algorithm, &data[FILE_EXTENT_INLINE_START..], &mut plain);
    }
}
