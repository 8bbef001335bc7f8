//! How fast data are compressed and decompressed, and how far.

use buttery_codec::{COMPRESS_MAX, Method, compress, decompress};
use std::time::{Duration, Instant};

const NAMES: [&str; 7] = ["lzo", "zlib:1", "zlib", "zlib:9", "zstd:1", "zstd", "zstd:15"];
const AT_LEAST: Duration = Duration::from_millis(300);

/// Prints a line for each method: for text as programs write it, in units of 128 KiB.
pub fn run() {
    let data = text();
    println!("{:10} {:>14} {:>14} {:>8}", "method", "compress MB/s", "decode MB/s", "of 100");
    for name in NAMES {
        let Some(method) = Method::parse(name) else { continue };
        let Some(packed) = compress(method, &data, usize::MAX) else { continue };
        let mut plain = vec![0; data.len()];
        let to = speed(&mut || {
            std::hint::black_box(compress(method, &data, usize::MAX));
        });
        let from = speed(&mut || {
            let _ = std::hint::black_box(decompress(method.algorithm, &packed, &mut plain));
        });
        println!(
            "{name:10} {to:>14.0} {from:>14.0} {:>8.1}",
            packed.len() as f64 * 100.0 / data.len() as f64
        );
    }
}

fn speed(once: &mut dyn FnMut()) -> f64 {
    let (began, mut count) = (Instant::now(), 0);
    while began.elapsed() < AT_LEAST {
        once();
        count += 1;
    }
    COMPRESS_MAX as f64 * f64::from(count) / 1e6 / began.elapsed().as_secs_f64()
}

/// This program's own source, over and over with small changes.
fn text() -> Vec<u8> {
    let source = concat!(include_str!("job.rs"), include_str!("mechanisms.rs"), include_str!("report.rs"));
    let mut out = Vec::new();
    let mut n = 0;
    while out.len() < COMPRESS_MAX {
        for line in source.lines() {
            out.extend(format!("{n:05} {line}\n").bytes());
            n += 7;
        }
    }
    out.truncate(COMPRESS_MAX);
    out
}
