//! A crash at every flush, and with every kind of part of what was not flushed: the file system opens at the last
//! commit, whole.
//!
//! Sectors of 4 KiB reach the medium whole or not at all, in any order between two flushes.

use buttery::{FileId, Filesystem, Options};
use buttery_device::{Device, MemDevice};
use buttery_disk::superblock::OFFSETS;
use buttery_judge::check::btrfs_check_data;
use buttery_judge::workload::rng::Rng;
use buttery_judge::{Compare, Fact, Need, TempDir, compare, need};
use buttery_sim::crash::{Event, Overlay, Recorder, SECTOR};
use buttery_sim::sim::ownerless;
use buttery_sim::{Op, Sim, Weights, facts, image};
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;

/// What each commit promised: the facts by generation.
type Promised = BTreeMap<u64, Vec<Fact>>;

fn record(seed: u64, steps: usize) -> (MemDevice, Vec<Event>, Promised) {
    let device = image::in_memory(256 << 20, &image::spread(seed));
    let before = buttery_sim::crash::copy(&*device);
    let recorder = Arc::new(Recorder::copy_of(&*device));
    let shared: Arc<dyn Device> = recorder.clone();
    let fs = image::open(&shared);
    // what is written in place is not what the last commit held: no NOCOW files
    let flags = false;
    let weights =
        Weights { sync_one_in: 25, write_max: 60_000, size_max: 120_000, flags, ..Weights::default() };
    let mut sim = Sim::new(&fs, fs.root(), seed, weights).expect("a model");
    let mut promised = Promised::new();
    promised.insert(fs.engine().last_committed(), sim.model.facts());
    for _ in 0..steps {
        sim.step(&fs).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        promised.entry(fs.engine().last_committed()).or_insert_with(|| sim.model.facts());
    }
    sim.run(&fs, &Op::Sync).expect("a commit");
    promised.entry(fs.engine().last_committed()).or_insert_with(|| sim.model.facts());
    std::mem::forget(fs); // as a crash does: nothing is closed
    (before, recorder.take(), promised)
}

/// One sector of an unflushed write.
struct Piece<'a> {
    offset: u64,
    data: &'a [u8],
}

fn pieces(writes: &[Event]) -> Vec<Piece<'_>> {
    let mut out = Vec::new();
    for event in writes {
        let Event::Write { offset, data } = event else { continue };
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let take = (SECTOR - at as usize % SECTOR).min(data.len() - done);
            out.push(Piece { offset: at, data: &data[done..done + take] });
            done += take;
        }
    }
    out
}

fn generation(device: &dyn Device) -> u64 {
    let mut sb = vec![0; 4096];
    device.read_at(OFFSETS[0], &mut sb).expect("the superblock");
    u64::from_le_bytes(sb[0x48..0x50].try_into().expect("8 bytes"))
}

/// Opens a state and holds it against what its superblock's generation promised, which is the last or the one before.
fn judge(state: Arc<dyn Device>, committed: u64, promised: &Promised) -> Result<(), String> {
    let found = generation(&*state);
    if found != committed && promised.range(committed + 1..).next().map(|(g, _)| *g) != Some(found) {
        return Err(format!("generation {found}, after {committed} was committed"));
    }
    let fs = Filesystem::open_devices(vec![state], &Options::default()).map_err(|e| e.to_string())?;
    let seen = facts::walk_from(&fs, FileId::top_of(buttery::TreeId(5)))?;
    compare(&ownerless(promised[&found].clone()), &ownerless(seen), &Compare::default())
}

struct Explorer {
    rng: Rng,
    promised: Promised,
    disk: Arc<MemDevice>,
    states: usize,
    checked: usize,
    check_one_in: u64,
}

impl Explorer {
    /// The states that a crash can leave while `writes` are not flushed.
    fn explore(&mut self, writes: &[Event], subsets: usize) -> Result<(), String> {
        let committed = generation(&*self.disk);
        let all = pieces(writes);
        for n in 0..subsets + 2 {
            let keep = match n {
                0 => 0,
                1 => 100,
                _ => 5 + self.rng.below(91),
            };
            let prefix = n % 2 == 0;
            let end = all.len() * keep as usize / 100;
            let state = Arc::new(Overlay::new(&self.disk));
            for (i, piece) in all.iter().enumerate() {
                if if prefix { i < end } else { self.rng.below(100) < keep } {
                    state.write_at(piece.offset, &[IoSlice::new(piece.data)]).expect("memory");
                }
            }
            self.states += 1;
            let place = format!("{} of {} sectors, prefix: {prefix}, {n}", end, all.len());
            judge(state.clone(), committed, &self.promised).map_err(|e| format!("{place}: {e}"))?;
            if self.rng.one_in(self.check_one_in) {
                self.check(&*state).map_err(|e| format!("{place}: {e}"))?;
            }
        }
        Ok(())
    }

    fn check(&mut self, state: &dyn Device) -> Result<(), String> {
        let Some(()) = need(&[Need::Program("btrfs")]) else { return Ok(()) };
        self.checked += 1;
        let dir = TempDir::new("crash").expect("a folder");
        image::dump(state, &dir.join("image"));
        btrfs_check_data(&dir.join("image"))
    }

    fn apply(&self, writes: &[Event]) {
        for event in writes {
            if let Event::Write { offset, data } = event {
                self.disk.write_at(*offset, &[IoSlice::new(data)]).expect("memory");
            }
        }
    }
}

#[test]
fn every_flush_is_a_promise() {
    for seed in 0..3 {
        let (disk, events, promised) = record(seed, 400);
        assert!(promised.len() > 8, "seed {seed}: {} commits", promised.len());
        let mut explorer = Explorer {
            rng: Rng::new(seed),
            promised,
            disk: Arc::new(disk),
            states: 0,
            checked: 0,
            check_one_in: 25,
        };
        let epochs: Vec<&[Event]> = events.split(|e| matches!(e, Event::Flush)).collect();
        for (n, writes) in epochs.iter().enumerate() {
            explorer.explore(writes, 6).unwrap_or_else(|e| panic!("seed {seed}, flush {n}: {e}"));
            explorer.apply(writes);
        }
        let Explorer { states, checked, .. } = explorer;
        assert!(states > 100, "seed {seed}: {states} states, {checked} checked");
    }
}
