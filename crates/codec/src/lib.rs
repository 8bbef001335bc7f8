//! Checksums and compression. Bytes in, bytes out.
//!
//! Start at [`Csum`] for what a checksum is, [`decompress`] for what the data of a compressed extent become.

#![forbid(unsafe_code)]

mod compress;
mod csum;
mod decompress;
mod lzo;

pub use compress::{COMPRESS_MAX, Method, compress, looks_compressible};
pub use csum::{Csum, CsumType};
pub use decompress::{Compression, DecompressError, decompress};
