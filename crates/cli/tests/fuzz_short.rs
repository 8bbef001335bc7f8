//! The fuzzer's functions, without the fuzzer: over the kept corpus, and over a fixed list of mutations of golden
//! images whose checksums are made right. A failure names the input that brings it about.

#[path = "../../../fuzz/src/lib.rs"]
mod fuzz;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use buttery_device::Device;
use buttery_judge::workload::rng::Rng;

/// How many mutations each target is given.
const MUTATIONS: u64 = 4000;

/// Runs a target; a panic is reported with the input.
fn run<R>(what: &str, target: impl Fn(&[u8]) -> R, input: &[u8]) -> R {
    catch_unwind(AssertUnwindSafe(|| target(input))).unwrap_or_else(|_| {
        let hex: String = input.iter().take(400).map(|b| format!("{b:02x}")).collect();
        panic!("{what}: {} bytes: {hex}", input.len())
    })
}

fn corpus<R>(name: &str, target: impl Fn(&[u8]) -> R) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let files: Vec<_> =
        std::fs::read_dir(folder).expect("the corpus").map(|e| e.expect("a file").path()).collect();
    assert!(files.len() > 5, "{name}: {} inputs", files.len());
    for file in files {
        run(&file.display().to_string(), &target, &std::fs::read(&file).expect("an input"));
    }
}

/// Changes a few bytes, most of them to odd values.
fn mutate(rng: &mut Rng, bytes: &mut [u8], from: usize) {
    for _ in 0..1 + rng.below(6) {
        let at = from + rng.below((bytes.len() - from) as u64) as usize;
        let value = match rng.below(4) {
            0 => rng.next(),
            1 => [0, 1, 255, 4096, 65536, 1 << 63, u64::MAX, u64::MAX - 4095][rng.below(8) as usize],
            2 => u64::from(bytes[at]) ^ 1 << rng.below(8),
            _ => u64::from(bytes[at]).wrapping_add(rng.below(3)).wrapping_sub(1),
        };
        let width = [1, 1, 2, 4, 8][rng.below(5) as usize];
        let end = (at + width).min(bytes.len());
        bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
    }
}

#[test]
fn superblocks() {
    corpus("superblock", fuzz::superblock);
    let supers: Vec<Vec<u8>> =
        [0, 6, 7].iter().map(|&n| fuzz::golden::superblock(&fuzz::golden::unpack(n)[0])).collect();
    for n in 0..MUTATIONS {
        let mut rng = Rng::new(n);
        let mut bytes = supers[n as usize % supers.len()].clone();
        // Where anything is: the fields, and then the chunk array and the backup roots.
        let part = if rng.one_in(2) { 48..320 } else { 811..3600 };
        mutate(&mut rng, &mut bytes[part], 0);
        run(&format!("superblock, seed {n}"), fuzz::superblock, &bytes);
    }
}

#[test]
fn tree_blocks() {
    corpus("tree_block", fuzz::tree_block);
    for (image, choice) in [(2, 0), (0, 1), (7, 1), (6, 5)] {
        let devices = fuzz::golden::unpack(image);
        let fs = buttery::Filesystem::open_devices(fuzz::golden::shared(&devices), &Default::default())
            .expect("the image");
        let read = |bytenr| {
            let expect = buttery_disk::check::Expect { bytenr, ..Default::default() };
            fs.engine().volume().read_block(&expect).expect("a block")
        };
        let blocks: Vec<Vec<u8>> = fuzz::blocks::all(&fs).into_iter().map(|b| read(b.bytenr)).collect();
        for n in 0..MUTATIONS {
            let mut rng = Rng::new(n);
            let mut input = vec![choice];
            input.extend(rng.pick(&blocks).expect("blocks"));
            mutate(&mut rng, &mut input, 1 + 48);
            run(&format!("tree block of image {image}, seed {n}"), fuzz::tree_block, &input);
        }
    }
}

#[test]
fn images() {
    fuzz::prepare();
    corpus("image", fuzz::image);
    let (mut opened, mut unhurt, mut failures) = (0, 0, 0);
    for n in 0..MUTATIONS {
        let mut rng = Rng::new(n);
        let len = 4 + rng.below(60) as usize;
        let mut input: Vec<u8> = std::iter::repeat_with(|| rng.next() as u8).take(len).collect();
        input[0] = (n % fuzz::golden::NAMES.len() as u64) as u8;
        let outcome = run(&format!("image, seed {n}"), fuzz::image, &input);
        opened += u64::from(outcome.opened);
        unhurt += u64::from(outcome.opened && outcome.failures == 0);
        failures += outcome.failures;
    }
    // Otherwise the changes are too coarse to reach anything behind the opening.
    assert!(
        opened > MUTATIONS / 4 && unhurt < opened && failures > 100,
        "{opened} opened, {unhurt} unhurt, {failures} failures"
    );
}

#[test]
fn sound_images_are_read_without_a_failure() {
    for (n, name) in fuzz::golden::NAMES.iter().enumerate() {
        let outcome = fuzz::image(&[n as u8, 0]);
        assert!(outcome.opened && outcome.failures == 0 && outcome.paths > 5, "{name}: {outcome:?}");
        let devices = fuzz::golden::unpack(n);
        assert!(devices.iter().all(|d: &Arc<_>| d.len_bytes() > 0));
    }
}
