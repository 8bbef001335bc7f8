//! Finding and damaging the blocks of an image, and cutting them out of a dump.

use buttery_codec::CsumType;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A block as a dump shows it.
pub struct Block {
    pub bytenr: u64,
    pub level: u8,
    pub children: Vec<u64>,
}

fn open(image: &Path) -> File {
    File::options().read(true).write(true).open(image).expect("the image opens")
}

/// Turns one bit over.
pub fn flip(image: &Path, at: u64) {
    let (file, mut byte) = (open(image), [0]);
    file.read_exact_at(&mut byte, at).expect("a byte is there");
    file.write_all_at(&[byte[0] ^ 1], at).expect("it can be written");
}

/// Where the copies of a block are, told by the file system's id and the address in their headers.
pub fn copies(image: &Path, bytenr: u64) -> Vec<u64> {
    let file = open(image);
    let mut id = [0; 16];
    file.read_exact_at(&mut id, 65536 + 32).expect("a superblock");
    let len = file.metadata().expect("a size").len();
    let is_copy = |at: &u64| {
        let mut header = [0; 64];
        file.read_exact_at(&mut header, *at).expect("a block is there");
        header[32..48] == id && header[48..56] == bytenr.to_le_bytes()
    };
    (0..len / 4096).map(|n| n * 4096).filter(is_copy).collect()
}

/// Changes every copy of a block of 4 KiB and gives it the crc32c that fits.
pub fn rewrite(image: &Path, bytenr: u64, change: impl Fn(&mut [u8])) {
    let file = open(image);
    for at in copies(image, bytenr) {
        let mut block = [0; 4096];
        file.read_exact_at(&mut block, at).expect("the block is there");
        change(&mut block);
        let sum = CsumType::Crc32c.sum(&block[32..]);
        block[..32].copy_from_slice(&sum);
        file.write_all_at(&block, at).expect("it can be written");
    }
}

/// The block that begins with this line.
fn begins(line: &str) -> Option<(u64, u8)> {
    let mut words = line.split(' ');
    let (kind, bytenr, what) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    match (kind, what) {
        ("leaf", "items") => Some((bytenr, 0)),
        ("node", "level") => Some((bytenr, words.next()?.parse().ok()?)),
        _ => None,
    }
}

/// Whether a line belongs to the block above it.
fn goes_on(line: &str) -> bool {
    let starts = ["\t", "leaf ", "node ", "fs uuid ", "chunk uuid "];
    starts.iter().any(|start| line.starts_with(start)) && begins(line).is_none()
}

/// The blocks in a dump.
pub fn blocks_of(dump: &[u8]) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for line in String::from_utf8_lossy(dump).lines() {
        if let Some((bytenr, level)) = begins(line) {
            blocks.push(Block { bytenr, level, children: Vec::new() });
        } else if let Some(last) = blocks.last_mut().filter(|last| last.level > 0)
            && let Some((_, rest)) = line.rsplit_once(") block ")
        {
            last.children.extend(rest.split(' ').next().and_then(|n| n.parse::<u64>().ok()));
        }
    }
    blocks
}

/// A dump without these blocks.
pub fn without(dump: &[u8], lost: &[u64]) -> Vec<u8> {
    let text = String::from_utf8_lossy(dump);
    let mut out = String::new();
    let mut keep = true;
    for line in text.split_inclusive('\n') {
        let plain = line.trim_end_matches('\n');
        if !goes_on(plain) {
            keep = begins(plain).is_none_or(|(bytenr, _)| !lost.contains(&bytenr));
        }
        if keep {
            out.push_str(line);
        }
    }
    out.into_bytes()
}
