//! Superblocks with odd contents, printed by both programs.

mod support;

use buttery_disk::dir::raw_crc32c;
use buttery_disk::superblock::{MAGIC, SIZE, Superblock};
use buttery_print::{CsumState, SuperOptions, superblock};
use std::os::unix::fs::FileExt;
use std::path::Path;
use support::{assert_same, mkfs, run, with_oracle};

/// A change of a superblock: an offset and the bytes that go there.
type Edit = (usize, Vec<u8>);

fn edits() -> Vec<Edit> {
    let mut edits: Vec<Edit> = Vec::new();
    for bit in 0..64 {
        edits.push((56, (1u64 << bit).to_le_bytes().into()));
        edits.push((180, (1u64 << bit).to_le_bytes().into()));
        edits.push((188, (1u64 << bit).to_le_bytes().into()));
    }
    for at in [56, 172, 180, 188, 555, 563, 571, 587] {
        edits.push((at, vec![255; 8]));
        edits.push((at, vec![0; 8]));
    }
    edits.push((32, vec![7; 16]));
    edits.push((64, b"_BHRf\n_\xff".to_vec()));
    edits.push((64, 0u64.to_le_bytes().into()));
    for kind in [1u16, 2, 3, 4, 65535] {
        edits.push((196, kind.to_le_bytes().into()));
    }
    edits.push((198, vec![8, 9, 255]));
    edits.push((201, vec![255; 98]));
    edits.push((299, b"a\n\tb\\\"\x01\xff\xc3\xa9\0zz".to_vec()));
    edits.push((299, vec![b'a'; 256]));
    for size in [0u32, 1, 17, 20, 64, 65, 97, 128, 130, 2048, 2049, 3000, u32::MAX] {
        edits.push((160, size.to_le_bytes().into()));
    }
    edits.push((811 + 8, vec![229]));
    for stripes in [0u16, 1, 3, 200] {
        edits.push((811 + 17 + 44, stripes.to_le_bytes().into()));
    }
    edits.push((2859, (0..168).collect()));
    edits
}

/// What `dump-super -f` prints, its errors too, and what this crate prints.
fn both(
    path: &Path,
    bytes: &[u8],
    csum: CsumState,
    force: bool,
) -> Result<(Vec<u8>, Vec<u8>), support::Skip> {
    let file = std::fs::File::options().write(true).open(path).expect("the image opens");
    file.write_all_at(bytes, 65536).expect("the image can be written");
    let name = path.to_str().expect("a plain path");
    let mut args = vec!["inspect-internal", "dump-super", "-f"];
    args.extend(force.then_some("-F"));
    args.push(name);
    let output = run("btrfs", &args)?;
    let sb = Superblock::parse(bytes).expect("4096 bytes");
    let mut ours = Vec::new();
    let shown = superblock(&mut ours, &sb, name, 65536, csum, SuperOptions { full: true, force });
    let shown = shown.expect("memory can be written");
    assert_eq!(shown, output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // both programs' errors go last, so that their places do not matter
    let is_error = |line: &&[u8]| line.starts_with(b"ERROR: ");
    let lines = |text: &[u8]| text.split_inclusive(|&b| b == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (errors, rest): (Vec<_>, Vec<_>) = lines(&ours).into_iter().partition(|line| is_error(&&line[..]));
    let ours = [rest.concat(), errors.concat()].concat();
    let told = if output.status.success() { output.stderr } else { Vec::new() };
    Ok((ours, [output.stdout, told].concat()))
}

#[test]
fn odd_superblocks() {
    with_oracle("supers", false, |dir| {
        let image = dir.join("a.img");
        mkfs(std::slice::from_ref(&image), 200, &["-L", "label"])?;
        let mut good = [0; SIZE];
        let file = std::fs::File::open(&image).expect("the image opens");
        file.read_exact_at(&mut good, 65536).expect("a superblock can be read");
        for (at, change) in edits() {
            let mut bytes = good;
            bytes[at..at + change.len()].copy_from_slice(&change);
            let csum = !raw_crc32c(!0, &bytes[32..]);
            bytes[..4].copy_from_slice(&csum.to_le_bytes());
            let known = bytes[196..198] == [0, 0];
            let state = if known { CsumState::Match } else { CsumState::Mismatch };
            let magic = bytes[64..72] == MAGIC.to_le_bytes();
            for force in [false, true] {
                let (ours, theirs) = both(&image, &bytes, state, force)?;
                assert_same(&format!("{} at {at}, {magic}", change.escape_ascii()), &ours, &theirs);
            }
        }
        let mut bytes = good;
        bytes[0] ^= 1;
        let (ours, theirs) = both(&image, &bytes, CsumState::Mismatch, false)?;
        assert_same("a wrong checksum", &ours, &theirs);
        Ok(())
    });
}
