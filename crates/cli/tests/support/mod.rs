//! What the judges of reading share: facts from the library, the program run with limits, images damaged on purpose.
//!
//! Start at [`facts::walk`] (an image as the judge's facts) and [`program::Run`] (the program, watched).
#![allow(dead_code, unused_imports)] // each test program uses a part

/// Finding tree blocks, which the fuzzer does too.
#[path = "../../../../fuzz/src/blocks.rs"]
pub mod blocks;
pub mod damage;
pub mod hostile;
pub mod mount;
pub mod program;
pub mod untouched;

pub use buttery_sim::facts;
