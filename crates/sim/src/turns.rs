//! What the kernel does with an image when it is its turn.

use crate::Model;
use buttery_judge::workload::rng::Rng;
use buttery_judge::workload::{Data, Fill, Op};
use buttery_judge::{Fact, KernelMount, Kind};
use std::path::{Path, PathBuf};

/// What is done on a mount of the kernel's, which must not complain meanwhile.
pub fn mounted<T>(
    files: &[PathBuf],
    options: &str,
    work: impl FnOnce(&Path) -> Result<T, String>,
) -> Result<T, String> {
    let text = |e: std::io::Error| e.to_string();
    let mount = KernelMount::new(files, options).map_err(text)?;
    let result = work(mount.path())?;
    mount.unmount_without_complaints().map_err(text)?;
    Ok(result)
}

/// What the kernel does then: it changes files that there are, takes snapshots, deletes some, and begins new things.
pub fn kernel_ops(model: &Model, seed: u64, round: usize) -> Vec<Op> {
    let mut rng = Rng::new(seed);
    let facts = model.facts();
    let frozen: Vec<Vec<u8>> = model.frozen_paths();
    let below = |path: &[u8]| frozen.iter().any(|f| path.starts_with(f));
    let files: Vec<&Fact> = facts.iter().filter(|f| f.kind == Kind::File && !below(&f.path)).collect();
    let subvolumes: Vec<&Fact> =
        facts.iter().filter(|f| f.kind == Kind::Dir && f.ino == 256 && !f.path.is_empty()).collect();
    let mut ops = vec![Op::Mkdir { path: format!("kernel{round}").into_bytes(), mode: 0o755 }];
    for n in 0..150 {
        let Some(file) = rng.pick(&files) else { break };
        let (path, size) = (file.path.clone(), file.size.min(1 << 20));
        let data = Data::new(Fill::Text, seed + n, rng.below(70_000) as usize);
        ops.push(match rng.below(5) {
            0 => Op::Truncate { path, size: rng.below(size + 1) },
            1 => Op::Unlink { path },
            // some files of the model reach to the end of what a file can have
            2 if file.size < 1 << 40 => Op::Append { path, data },
            _ => Op::Write { path, offset: rng.below(size + 1), data },
        });
    }
    if let Some(from) = rng.pick(&subvolumes) {
        let to = format!("kernel{round}/snapshot").into_bytes();
        ops.push(Op::Snapshot { from: from.path.clone(), to, read_only: false });
    }
    let holds = |s: &Fact| subvolumes.iter().any(|t| t.path.starts_with(&[&s.path[..], b"/"].concat()));
    let bare: Vec<&Fact> = subvolumes.iter().filter(|s| !holds(s) && !below(&s.path)).copied().collect();
    ops.extend(rng.pick(&bare).map(|s| Op::DeleteSubvolume { path: s.path.clone() }));
    ops
}
