//! See `buttery_fuzz::image`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: buttery_fuzz::prepare(), |data: &[u8]| {
    buttery_fuzz::image(data);
});
