//! What is written in small pieces, each behind the last, stays in memory for a while: it is seen at once, its space is
//! there, it comes to the device in large pieces, and nothing else about the file overtakes it.

use buttery::{Error, Fallocate, FileId, Filesystem, NewNode, Options, RenameMode, SetAttr, Time};
use buttery_device::Device;
use buttery_disk::inode::flags;
use buttery_engine::file::extents::{self, Body};
use buttery_sim::image;
use buttery_sim::watched::Watched;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn file(fs: &Filesystem, name: &str) -> FileId {
    fs.create(fs.root(), name.as_bytes(), NewNode::file(0o644)).expect("a file")
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed * 89 + at * 7 + at / 251) as u8).collect()
}

/// Writes `data` in pieces from `offset` on.
fn write(fs: &Filesystem, id: FileId, offset: u64, data: &[u8], piece: usize) {
    for (n, part) in data.chunks(piece).enumerate() {
        fs.write(id, offset + (n * piece) as u64, part).expect("a write");
    }
}

fn reads(fs: &Filesystem, id: FileId, expected: &[u8]) {
    assert_eq!(fs.stat(id).expect("a stat").size, expected.len() as u64);
    let mut found = vec![0; expected.len() + 10];
    assert_eq!(fs.read(id, 0, &mut found).expect("a read"), expected.len());
    assert!(found[..expected.len()] == *expected, "other bytes");
}

/// Begin, length and address of each extent of a file.
fn extents(fs: &Filesystem, id: FileId) -> Vec<(u64, u64, u64)> {
    let tree = fs.engine().tree(id.tree).expect("the tree");
    let view = tree.read(fs.engine().store());
    let mut out = Vec::new();
    extents::for_each(&tree, &view, id.ino, 0, u64::MAX, &mut |extent| {
        if let Body::Regular(item) | Body::Prealloc(item) = extent.body {
            out.push((extent.start, extent.len, item.disk_bytenr.get() + item.offset.get()));
        }
        Ok(true)
    })
    .expect("extents");
    out
}

#[test]
fn small_appends_are_few_writes_and_one_extent() {
    let device = Watched::new(1 << 30);
    let fs = device.open();
    let id = file(&fs, "log");
    let all = bytes(1, 8 << 20);
    // no piece ends where a sector does
    write(&fs, id, 0, &all, 500);
    let stat = fs.stat(id).expect("a stat");
    assert_eq!((stat.size, stat.nbytes), (all.len() as u64, all.len() as u64));
    assert!(!fs.is_synced());
    fs.sync().expect("a commit");
    assert!(fs.is_synced());
    let (writes, written) = device.take();
    assert!(writes <= 20, "{writes} writes");
    assert!(written <= all.len() as u64 + (64 << 10), "{written} bytes");
    let found = extents(&fs, id);
    // the first sectors were written before it was known that more would come
    assert!(found.len() <= 4, "{found:?}");
    reads(&fs, id, &all);
    fs.close().expect("close");
    device.check(|top| assert!(std::fs::read(top.join("log")).expect("the file") == all));
}

/// What is done to a file of which a part is in memory, and to the bytes that it should have.
type Deed = fn(&Filesystem, FileId, &mut Vec<u8>);

fn over(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    bytes.resize(bytes.len().max(at + new.len()), 0);
    bytes[at..at + new.len()].copy_from_slice(new);
}

const DEEDS: [(&str, Deed); 13] = [
    ("within", |fs, id, all| {
        // over what is on the device already, in pieces, and then over a part of these
        fs.sync().expect("a commit");
        write(fs, id, 100_001, &[4; 30_000], 3000);
        over(all, 100_001, &[4; 30_000]);
        fs.write(id, 110_592, &[3; 4096]).expect("a write");
        over(all, 110_592, &[3; 4096]);
    }),
    ("nothing", |_, _, _| ()),
    ("seek", |fs, id, all| assert_eq!(fs.seek(id, 0, false).expect("the end"), all.len() as u64)),
    ("read", |fs, id, all| {
        let mut part = [0; 700];
        assert_eq!(fs.read(id, 290_000, &mut part).expect("a read"), 700);
        assert!(part[..] == all[290_000..290_700]);
    }),
    ("over", |fs, id, all| {
        fs.write(id, 299_990, &[7; 20_000]).expect("a write");
        over(all, 299_990, &[7; 20_000]);
    }),
    ("before", |fs, id, all| {
        fs.write(id, 5, &[6; 20]).expect("a write");
        over(all, 5, &[6; 20]);
    }),
    ("gap", |fs, id, all| {
        fs.write(id, 600_000, &[8; 5000]).expect("a write");
        over(all, 600_000, &[8; 5000]);
    }),
    ("direct", |fs, id, all| {
        fs.write_direct(id, 290_816, &[5; 8192]).expect("a write");
        over(all, 290_816, &[5; 8192]);
    }),
    ("append", |fs, id, all| {
        assert_eq!(fs.append(id, b"the end").expect("a write"), all.len() as u64);
        all.extend(b"the end");
    }),
    ("shorter", |fs, id, all| {
        fs.truncate(id, 250_123).expect("a truncation");
        all.truncate(250_123);
    }),
    ("longer", |fs, id, all| {
        fs.truncate(id, 700_000).expect("a truncation");
        all.resize(700_000, 0);
    }),
    ("hole", |fs, id, all| {
        fs.fallocate(id, Fallocate::PunchHole, 240_001, 20_000, true).expect("a hole");
        over(all, 240_001, &[0; 20_000]);
    }),
    ("space", |fs, id, all| {
        fs.fallocate(id, Fallocate::Allocate, 280_000, 400_000, false).expect("space");
        all.resize(680_000, 0);
    }),
];

/// Everybody who looks sees what was written, wherever it is; and it goes on after that.
#[test]
fn nothing_else_overtakes_it() {
    let device = Watched::new(1 << 30);
    let fs = device.open();
    let mut made = Vec::new();
    for (n, (name, deed)) in DEEDS.iter().enumerate() {
        let id = file(&fs, name);
        let mut all = bytes(n, 300_000);
        write(&fs, id, 0, &all, 3000);
        deed(&fs, id, &mut all);
        assert_eq!(fs.stat(id).expect("a stat").size, all.len() as u64, "{name}");
        let more = bytes(n + 100, 50_000);
        write(&fs, id, all.len() as u64, &more, 3000);
        all.extend(more);
        made.push((*name, id, all));
    }
    for (name, id, all) in &made {
        eprintln!("{name}");
        reads(&fs, *id, all);
    }
    fs.close().expect("close");
    device.check(|top| {
        for (name, _, all) in &made {
            assert!(std::fs::read(top.join(name)).expect("the file") == *all, "{name}");
        }
    });
}

/// The same of what is not in the bytes: extents that are shared, times, and a file that goes.
#[test]
fn clones_times_and_removing_find_it() {
    let device = Watched::new(1 << 30);
    let fs = device.open();
    let all = bytes(2, 300_000);
    let [id, copy] = ["file", "copy"].map(|name| file(&fs, name));
    write(&fs, id, 0, &all, 3000);
    fs.clone_range(id, 0, copy, 0, 0).expect("a clone");
    reads(&fs, copy, &all);
    write(&fs, id, all.len() as u64, &[1; 50_000], 3000);
    reads(&fs, copy, &all);
    assert!(!fs.dedupe_range(id, 4096, copy, 8192, 4096).expect("other bytes"));
    write(&fs, copy, all.len() as u64, &[1; 50_000], 3000);
    assert!(fs.dedupe_range(id, 0, copy, 0, 350_000).expect("the same bytes"));

    let timed = file(&fs, "timed");
    write(&fs, timed, 0, &all, 3000);
    let then = Time { sec: 1_000_000, nsec: 5 };
    fs.set_attr(timed, &SetAttr { mtime: Some(then), ..SetAttr::default() }).expect("a time");
    assert_eq!(fs.stat(timed).expect("a stat").mtime, then);
    fs.sync().expect("a commit");
    assert_eq!(fs.stat(timed).expect("a stat").mtime, then);
    // in the middle of what is there, up to within a sector of it
    write(&fs, timed, 100_001, &[9; 70_007], 900);
    assert_ne!(fs.stat(timed).expect("a stat").mtime, then);
    let mut expected = all.clone();
    over(&mut expected, 100_001, &[9; 70_007]);
    reads(&fs, timed, &expected);

    let gone = file(&fs, "gone");
    write(&fs, gone, 0, &all, 3000);
    device.take();
    fs.unlink(fs.root(), b"gone").expect("an unlink");
    assert!(matches!(fs.stat(gone), Err(Error::NotFound)));
    fs.sync().expect("a commit");
    assert_eq!(device.take(), (0, 0), "what nobody can read any more is not written");
    fs.close().expect("close");
    device.check(|top| assert!(std::fs::read(top.join("timed")).expect("the file") == expected));
}

/// Writers who take turns write at once: pieces that each has settled for the other would be slower.
#[test]
fn writers_who_take_turns_are_not_gathered() {
    let device = Watched::new(1 << 30);
    let fs = device.open();
    let id = file(&fs, "file");
    let all = bytes(9, 4 << 20);
    // a pair of pieces comes the wrong way round, now and then
    let mut order: Vec<usize> = (0..512).collect();
    order.chunks_mut(8).for_each(|eight| eight.swap(2, 3));
    for n in order {
        fs.write(id, n as u64 * 8192, &all[n * 8192..(n + 1) * 8192]).expect("a write");
    }
    let (_, before) = device.take();
    assert!(before > 3 << 20, "{before} bytes");
    reads(&fs, id, &all);
    assert!(extents(&fs, id).len() < 256, "{:?}", extents(&fs, id));
    fs.close().expect("close");
    device.check(|_| ());
}

/// Preallocated space stays where it is, and is written to.
#[test]
fn preallocated_space_is_written_in_place() {
    let device = Watched::new(1 << 30);
    let fs = device.open();
    let id = file(&fs, "space");
    fs.fallocate(id, Fallocate::Allocate, 0, 4 << 20, false).expect("space");
    let before = extents(&fs, id);
    let data = bytes(4, 3 << 20);
    write(&fs, id, 0, &data, 512);
    assert_eq!(fs.stat(id).expect("a stat").nbytes, 4 << 20);
    fs.sync().expect("a commit");
    let (writes, written) = device.take();
    assert!(writes <= 12 && written <= (3 << 20) + (64 << 10), "{writes} writes of {written} bytes");
    let mut all = data;
    all.resize(4 << 20, 0);
    reads(&fs, id, &all);
    // all but the first sector, of which a part was written before
    let moved = |list: &[(u64, u64, u64)], at| {
        list.iter().find(|e| (e.0..e.0 + e.1).contains(&at)).map(|e| e.2 + at - e.0)
    };
    let after = extents(&fs, id);
    for at in [4096, 8192, 1 << 20, 2 << 20, (4 << 20) - 4096] {
        assert_eq!(moved(&after, at), moved(&before, at), "{at}: {before:?} {after:?}");
    }
    fs.close().expect("close");
    device.check(|top| assert!(std::fs::read(top.join("space")).expect("the file") == all));
}

/// A commit of which nobody told the data comes between: a rename does not overtake them.
#[test]
fn a_new_name_has_all_that_was_written_before() {
    let device = Watched::new(1 << 30);
    let fs = device.open();
    let all = bytes(5, 70_000);
    for (n, name) in ["renamed", "linked"].iter().enumerate() {
        let id = file(&fs, "new");
        write(&fs, id, 0, &all, 1000);
        match n {
            0 => fs
                .rename(fs.root(), b"new", fs.root(), name.as_bytes(), RenameMode::Replace)
                .expect("a rename"),
            _ => fs.link(id, fs.root(), name.as_bytes()).expect("a link"),
        }
    }
    fs.engine().commit().expect("a commit");
    std::mem::forget(fs); // as a crash does
    device.check(|top| {
        for name in ["renamed", "linked"] {
            assert!(std::fs::read(top.join(name)).expect("the file") == all, "{name}");
        }
    });
}

/// What was accepted can be written, be the file system as full as it may.
#[test]
fn what_was_accepted_has_its_space() {
    let device = Watched::new(128 << 20);
    let fs = device.open();
    let ids: Vec<_> = (0..24).map(|n| file(&fs, &format!("file{n}"))).collect();
    let piece = |n: usize, at: u64| bytes(n + at as usize, 900);
    let mut sizes = vec![0u64; ids.len()];
    let mut open: Vec<usize> = (0..ids.len()).collect();
    while !open.is_empty() {
        open.retain(|&n| match fs.write(ids[n], sizes[n], &piece(n, sizes[n])) {
            Ok(()) => {
                sizes[n] += 900;
                true
            }
            Err(Error::NoSpace) => false,
            Err(error) => panic!("file {n}: {error}"),
        });
    }
    assert!(sizes.iter().sum::<u64>() > 40 << 20, "{sizes:?}");
    let one = file(&fs, "one");
    assert!(matches!(fs.write(one, 0, &[1; 8 << 10]), Err(Error::NoSpace)));
    fs.sync().expect("all of it is written");
    let content = |n: usize| -> Vec<u8> { (0..sizes[n] / 900).flat_map(|k| piece(n, k * 900)).collect() };
    for (n, id) in ids.iter().enumerate() {
        reads(&fs, *id, &content(n));
    }
    fs.close().expect("close");
    device.check(|top| {
        for n in 0..ids.len() {
            assert!(std::fs::read(top.join(format!("file{n}"))).expect("a file") == content(n), "file {n}");
        }
    });
    // and all that was kept comes back
    let again: Arc<dyn Device> = device.clone();
    let fs = image::open(&again);
    for n in 0..ids.len() {
        fs.unlink(fs.root(), format!("file{n}").as_bytes()).expect("an unlink");
    }
    fs.sync().expect("a commit");
    let s = fs.statfs().expect("statfs");
    assert!(s.total - s.free < 4 << 20, "{s:?}");
    fs.close().expect("close");
}

/// Who needs the space gets what others keep for what they have not written yet.
#[test]
fn nobody_is_refused_what_others_only_keep() {
    let device = Watched::new(128 << 20);
    let fs = device.open();
    for n in 0..60 {
        let id = file(&fs, &format!("file{n}"));
        write(&fs, id, 0, &bytes(n, 9000), 1000);
    }
    let large = file(&fs, "large");
    let full = (0..128u64).find(|n| fs.write(large, n << 20, &[1; 1 << 20]).is_err()).expect("it is full");
    fs.sync().expect("a commit");
    let size = fs.stat(large).expect("a stat").size;
    assert!(size > 30 << 20 && size >= full << 20, "{size}");
    let again = fs.write(large, size, &[1; 256 << 10]);
    assert!(matches!(again, Err(Error::NoSpace)), "there was space: {again:?}");
    fs.close().expect("close");
    device.check(|_| ());
}

/// What is in memory is bounded, however many files are written to.
#[test]
fn many_files_do_not_stay_in_memory() {
    let device = Watched::new(1 << 30);
    let fs = device.open();
    let ids: Vec<_> = (0..400).map(|n| file(&fs, &format!("file{n}"))).collect();
    let all = bytes(6, 20_000);
    for id in &ids {
        write(&fs, *id, 0, &all, 4000);
    }
    let (_, written) = device.take();
    assert!(written >= 300 * 20_000, "{written} bytes");
    for id in &ids {
        reads(&fs, *id, &all);
    }
    fs.close().expect("close");
    device.check(|_| ());
}

/// While the device refuses it nothing is lost: whoever syncs or reads is told, and later it is written.
#[test]
fn what_cannot_be_written_stays() {
    let device = Watched::new(1 << 30);
    let fs = device.open();
    let id = file(&fs, "file");
    let mut all = bytes(7, 100_000);
    write(&fs, id, 0, &all, 1000);
    device.broken.store(true, Ordering::Relaxed);
    let more = bytes(8, 30_000);
    write(&fs, id, 100_000, &more, 1000);
    all.extend(more);
    for _ in 0..2 {
        assert!(fs.sync().is_err());
        assert!(!fs.is_synced());
        assert!(fs.read(id, 0, &mut [0; 200_000]).is_err());
        assert_eq!(fs.stat(id).expect("a stat").size, all.len() as u64);
    }
    // it does not become more without end
    let accepted = (0..5000).take_while(|n| fs.write(id, 130_000 + n * 1000, &[1; 1000]).is_ok()).count();
    assert!(accepted < 1500, "{accepted}");
    all.resize(130_000 + accepted * 1000, 1);
    device.broken.store(false, Ordering::Relaxed);
    fs.sync().expect("a commit");
    reads(&fs, id, &all);
    fs.engine().reset_device_stats().expect("no more errors");
    fs.close().expect("close");
    device.check(|top| assert!(std::fs::read(top.join("file")).expect("the file") == all));
}

/// Where writing has ended nothing more is accepted.
#[test]
fn nothing_is_accepted_after_writing_has_ended() {
    let device = Watched::new(1 << 30);
    let fs = device.open();
    let [begun, other] = ["begun", "other"].map(|name| file(&fs, name));
    write(&fs, begun, 0, &bytes(1, 20_000), 1000);
    write(&fs, other, 0, &bytes(1, 4000), 4000);
    device.dead.store(true, Ordering::Relaxed);
    assert!(fs.sync().is_err());
    assert!(fs.write(begun, 20_000, &[1; 1000]).is_err());
    assert!(fs.write(other, 4000, &[1; 1000]).is_err());
    assert!(fs.write(other, 5000, &[1; 1000]).is_err());
    assert!(fs.close().is_err());
}

/// What a file says of its times is never taken back: in place, where a write within the same tick is not said, and of a
/// file that lost its name meanwhile.
#[test]
fn times_do_not_go_back() {
    let device = Watched::new(1 << 30);
    let fs = device.open_with(&Options { commit_secs: 100_000, ..Options::default() });
    for round in 0..20u64 {
        let nocow = file(&fs, &format!("nocow{round}"));
        let bits = flags::NODATACOW | flags::NODATASUM;
        fs.set_flags(nocow, bits, bits).expect("flags");
        fs.write(nocow, 0, &[0; 200_000]).expect("a write");
        fs.sync().expect("a commit");
        fs.write(nocow, 0, &[1; 500]).expect("a write");
        let before = fs.stat(nocow).expect("a stat");
        std::thread::sleep(std::time::Duration::from_micros(300));
        write(&fs, nocow, 500, &[2; 5000], 500);
        let seen = fs.stat(nocow).expect("a stat");
        assert!(seen.mtime > before.mtime);
        fs.sync().expect("a commit");
        assert_eq!(fs.stat(nocow).expect("a stat").mtime, seen.mtime);

        let name = format!("file{round}");
        let held = file(&fs, &name);
        fs.hold(held, 1);
        write(&fs, held, 0, &[3; 20_000], 1000);
        fs.unlink(fs.root(), name.as_bytes()).expect("an unlink");
        let unlinked = fs.stat(held).expect("a stat");
        assert!(unlinked.ctime > unlinked.mtime);
        fs.sync().expect("a commit");
        assert_eq!(fs.stat(held).expect("a stat"), unlinked);
        fs.release(held, 1).expect("it goes");
    }
    fs.close().expect("close");
    device.check(|_| ());
}

/// Nor where only a part could be written: the file has lost its name after what was gathered, and says so throughout.
#[test]
fn times_do_not_go_back_when_a_part_is_written() {
    let device = Watched::new(1 << 30);
    let fs = device.open_with(&Options { commit_secs: 100_000, ..Options::default() });
    let id = file(&fs, "file");
    fs.hold(id, 1);
    // a sector that was begun, preallocated space, and what has none yet: three writes
    fs.fallocate(id, Fallocate::Allocate, 0, 64 << 10, false).expect("space");
    let all = bytes(1, 100_000);
    write(&fs, id, 0, &all, 1000);
    fs.unlink(fs.root(), b"file").expect("an unlink");
    let unlinked = fs.stat(id).expect("a stat");
    assert!(unlinked.ctime > unlinked.mtime);
    device.take();
    device.allowed.store(2, Ordering::Relaxed);
    assert!(fs.sync().is_err());
    assert_eq!(device.take().0, 2);
    let seen = fs.stat(id).expect("a stat");
    assert_eq!((seen.size, seen.ctime, seen.mtime), (unlinked.size, unlinked.ctime, unlinked.mtime));
    device.allowed.store(u64::MAX, Ordering::Relaxed);
    fs.sync().expect("a commit");
    assert_eq!(device.take().0, 1, "what was written is not written again");
    let seen = fs.stat(id).expect("a stat");
    assert_eq!((seen.size, seen.ctime, seen.mtime), (unlinked.size, unlinked.ctime, unlinked.mtime));
    reads(&fs, id, &all);
    fs.release(id, 1).expect("it goes");
    fs.engine().reset_device_stats().expect("no more errors");
    fs.close().expect("close");
    device.check(|_| ());
}

/// A truncation that fails leaves what it would have cut.
#[test]
fn what_a_failed_truncation_would_cut_stays() {
    let device = Watched::new(1 << 30);
    let fs = device.open();
    let id = file(&fs, "file");
    let mut all = bytes(3, 100_000);
    fs.write(id, 0, &all).expect("a write");
    let more = bytes(4, 200_000);
    write(&fs, id, 100_000, &more, 1000);
    all.extend(more);
    // the sector in which it would end has to be written anew
    device.broken.store(true, Ordering::Relaxed);
    assert!(fs.truncate(id, 50_001).is_err());
    device.broken.store(false, Ordering::Relaxed);
    reads(&fs, id, &all);
    fs.truncate(id, 50_001).expect("a truncation");
    reads(&fs, id, &all[..50_001]);
    fs.engine().reset_device_stats().expect("no more errors");
    fs.close().expect("close");
    device.check(|top| assert!(std::fs::read(top.join("file")).expect("the file") == all[..50_001]));
}

/// Nor is its space given to others, who could fill it before the device takes data again.
#[test]
fn what_cannot_be_written_keeps_its_space() {
    let filled = |len: usize| {
        let device = Watched::new(128 << 20);
        let fs = device.open();
        let [id, space] = ["file", "space"].map(|name| file(&fs, name));
        let fill = || {
            for size in [1 << 20, 64 << 10, 4 << 10] {
                let mut at = fs.stat(space).expect("a stat").size;
                while fs.fallocate(space, Fallocate::Allocate, at, size, false).is_ok() {
                    at += size;
                }
            }
            fs.stat(space).expect("a stat").size
        };
        // so that there is no new block group later
        fill();
        device.look(&fs);
        fs.truncate(space, 1 << 20).expect("a truncation");
        fs.engine().commit().expect("a commit");
        let all = bytes(7, len);
        write(&fs, id, 0, &all, 1000);
        device.broken.store(true, Ordering::Relaxed);
        assert_eq!((fs.sync().is_err(), fs.sync().is_err()), (len > 0, len > 0));
        let filled = fill();
        device.broken.store(false, Ordering::Relaxed);
        fs.sync().expect("all of it is written");
        reads(&fs, id, &all);
        fs.engine().reset_device_stats().expect("no more errors");
        fs.close().expect("close");
        device.check(|top| assert!(std::fs::read(top.join("file")).expect("the file") == all));
        filled
    };
    let (without, with) = (filled(0), filled(900_000));
    assert!(with + 900_000 <= without, "{with} bytes of {without} were free");
}

/// Compressed, what is gathered becomes smaller, though no piece of it alone would; and takes no more space meanwhile.
#[test]
fn pieces_are_compressed_together() {
    for how in ["zstd", "lzo", "zlib"] {
        let device = Watched::new(1 << 30);
        let mut options = image::quiet();
        options.parse(&format!("compress={how}")).expect("an option");
        let fs = device.open_with(&options);
        let before = fs.statfs().expect("statfs").free;
        let (text, noise) = (file(&fs, "text"), file(&fs, "noise"));
        let words: Vec<u8> =
            (0..6_000_000u32).map(|n| b"butter, milk and cream; "[n as usize % 24]).collect();
        let mut state = 1u64;
        let random: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(3_000_000)
        .collect();
        write(&fs, text, 0, &words, 4096);
        write(&fs, noise, 0, &random, 4000);
        fs.sync().expect("a commit");
        let (_, written) = device.take();
        assert!(written < 3_000_000 + 700_000, "{how}: {written} bytes");
        reads(&fs, text, &words);
        reads(&fs, noise, &random);
        let grown = before - fs.statfs().expect("statfs").free;
        assert!(grown < 3_000_000 + 700_000, "{how}: {grown} bytes");
        fs.close().expect("close");
        device.check(|top| {
            assert!(std::fs::read(top.join("text")).expect("the file") == words);
            assert!(std::fs::read(top.join("noise")).expect("the file") == random);
        });
    }
}
