//! See `buttery_fuzz::image`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    buttery_fuzz::image(data);
});
