//! See `buttery_fuzz::superblock`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    buttery_fuzz::superblock(data);
});
