//! What hostile bytes are fed to, at three depths: a superblock, a tree block, a whole image.
//!
//! Each function takes any bytes at all and must return: no panic, no endless loop, no memory without bound. The
//! fuzzer's targets call them, and so does an ordinary test over the kept corpus and a fixed list of mutations
//! (`crates/cli/tests/fuzz_short.rs`, which includes this file). Checksums are made right before anything is read,
//! since nobody gets past them by chance.
//!
//! `cargo fuzz run image` in this folder goes on from the corpus; `fuzz/run` runs all three for a while.

mod block;
pub mod blocks;
pub mod golden;
mod image;
mod sb;

pub use block::tree_block;
pub use image::{image, prepare};
pub use sb::superblock;
