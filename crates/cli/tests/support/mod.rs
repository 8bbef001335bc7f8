//! What the judges of reading share: facts from the library, the program run with limits, images damaged on purpose.
//!
//! Start at [`facts::walk`] (an image as the judge's facts) and [`program::Run`] (the program, watched).
#![allow(dead_code)] // each test program uses a part

pub mod damage;
pub mod facts;
pub mod hostile;
pub mod mount;
pub mod program;
pub mod untouched;
