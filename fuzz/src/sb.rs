//! A superblock: parsed, checked, its system chunks laid out, printed.

use std::io::IoSlice;

use buttery_codec::CsumType;
use buttery_device::{Device, MemDevice};
use buttery_disk::check::{Context, sb};
use buttery_disk::superblock::{OFFSETS, SIZE, Superblock};
use buttery_print::{CsumState, SuperOptions};
use buttery_volume::Chunk;

/// Takes the bytes of a superblock; too few are filled up with zeros.
pub fn superblock(data: &[u8]) {
    let mut bytes = data[..data.len().min(SIZE)].to_vec();
    bytes.resize(SIZE, 0);
    let number = u16::from_le_bytes([bytes[196], bytes[197]]);
    let csum = CsumType::from_disk(number).unwrap_or(CsumType::Crc32c);
    let sum = csum.sum(&bytes[32..]);
    bytes[..32].copy_from_slice(&sum);

    let parsed = Superblock::parse(&bytes).expect("4096 bytes");
    let mut text = Vec::new();
    for options in [SuperOptions { full: true, force: true }, SuperOptions::default()] {
        buttery_print::superblock(&mut text, &parsed, "device", OFFSETS[0], CsumState::Match, options)
            .expect("a Vec takes everything");
    }
    let _ = (parsed.label().len(), parsed.block_fsid(), parsed.sys_chunks().len());

    let device = MemDevice::new("device", 1 << 20);
    device.write_at(OFFSETS[0], &[IoSlice::new(&bytes)]).expect("room");
    let Ok(read) = buttery_volume::read_super(&device, 0) else { return };
    sb::check_superblock(&read, OFFSETS[0]).expect("it was checked when it was read");
    let ctx = Context {
        nodesize: read.nodesize.get(),
        sectorsize: read.sectorsize.get(),
        csum_size: csum.size() as u32,
        generation: read.generation.get(),
        incompat: read.incompat_flags.get(),
        fsid: read.block_fsid(),
    };
    for (key, item) in sb::sys_chunks(&read, &ctx).into_iter().flatten() {
        lay_out(Chunk::parse(key.offset, &item).expect("a checked chunk"));
    }
    let engine =
        buttery::Filesystem::open_devices(vec![std::sync::Arc::new(device)], &buttery::Options::default());
    drop(engine.err().expect("there is no tree on this device"));
}

/// Where the first, the middle and the last byte of a chunk are.
pub fn lay_out(chunk: Chunk) {
    use buttery_disk::chunk::bg;
    if chunk.kind & (bg::RAID5 | bg::RAID6) != 0 {
        return; // refused
    }
    assert!(chunk.stripe_size() <= chunk.len);
    for at in [chunk.logical, chunk.logical + chunk.len / 2, chunk.end() - 1] {
        for mirror in 0..chunk.copies() {
            let place = chunk.place(at, mirror);
            assert!(place.len > 0 && place.len <= chunk.end() - at);
        }
    }
}
