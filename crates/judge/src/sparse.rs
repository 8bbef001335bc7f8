//! Writes a file with holes where there are zeros: images are mostly zeros.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

const PIECE_BYTES: usize = 1 << 17;

/// Writes all of `input` to a new file.
pub fn write(input: &mut impl Read, file: &Path) -> io::Result<()> {
    let output = File::create(file)?;
    let (mut buffer, zeros) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
    let mut size = 0;
    loop {
        let length = fill(input, &mut buffer)?;
        if length == 0 {
            return output.set_len(size);
        }
        if buffer[..length] != zeros[..length] {
            output.write_all_at(&buffer[..length], size)?;
        }
        size += length as u64;
    }
}

fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match input.read(&mut buffer[length..])? {
            0 => break,
            n => length += n,
        }
    }
    Ok(length)
}
