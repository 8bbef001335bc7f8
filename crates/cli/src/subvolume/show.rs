//! `buttery subvolume show`, as `btrfs subvolume show` has it.

use super::{on_image, on_mount};
use crate::inspect::list_subvolumes;
use crate::source::{self, SourceArgs};
use anyhow::{Context, Result};
use buttery::Subvolume;
use buttery_disk::{objectid, root};
use buttery_print::{Uuid, Zone};
use std::ffi::OsString;
use std::path::Path;

/// What is shown.
struct Shown {
    path: Vec<u8>,
    info: on_mount::Info,
    snapshots: Vec<Vec<u8>>,
}

fn info(of: &Subvolume) -> on_mount::Info {
    let (item, link) = (&of.item, of.parent.as_ref());
    on_mount::Info {
        id: of.id,
        name: link.map(|link| link.name.clone()).unwrap_or_default(),
        parent: link.map_or(0, |link| link.tree.0),
        generation: item.generation.get(),
        flags: item.flags.get(),
        uuid: item.uuid,
        parent_uuid: item.parent_uuid,
        received_uuid: item.received_uuid,
        transids: [item.ctransid, item.otransid, item.stransid, item.rtransid].map(|id| id.get()),
        times: [item.ctime, item.otime, item.stime, item.rtime].map(|time| time.sec.get()),
    }
}

pub fn of_image(source: &SourceArgs, what: &OsString) -> Result<()> {
    let (image, path) = source::split(what);
    let fs = source.open(&image)?;
    let id = on_image::subvolume_at(&fs, &path)?;
    let of = fs.subvolume_info(id)?;
    let all = fs.subvolumes().with_context(|| image.display().to_string())?;
    let is_snapshot = |s: &&Subvolume| s.item.parent_uuid == of.item.uuid && of.item.uuid != [0; 16];
    let snapshots: Result<_> =
        all.iter().filter(is_snapshot).map(|s| list_subvolumes::path(&fs, &all, s)).collect();
    print(&Shown { path: list_subvolumes::path(&fs, &all, &of)?, info: info(&of), snapshots: snapshots? });
    Ok(())
}

pub fn of_mount(path: &Path) -> Result<()> {
    on_mount::check_top(path)?;
    let dir = std::fs::File::open(path).with_context(|| path.display().to_string())?;
    let info = on_mount::info(&dir).with_context(|| path.display().to_string())?;
    // of a mount only what lies below is known
    let below = on_mount::below(path)?;
    let snapshots = below.into_iter().filter(|(of, _)| of.parent_uuid == info.uuid && info.uuid != [0; 16]);
    print(&Shown { path: info.name.clone(), snapshots: snapshots.map(|(_, path)| path).collect(), info });
    Ok(())
}

fn print(shown: &Shown) {
    let (info, zone) = (&shown.info, Zone::local());
    let is_top = info.id.0 == objectid::FS_TREE;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let uuid = |uuid: &[u8; 16]| if *uuid == [0; 16] { "-".to_string() } else { Uuid(uuid).to_string() };
    let time = |seconds: i64| if seconds == 0 { "-".to_string() } else { zone.date(seconds).to_string() };
    println!("{}", if is_top { "/".into() } else { text(&shown.path) });
    let name = if is_top { "<FS_TREE>".into() } else { text(&info.name) };
    let read_only = info.flags & root::flags::RDONLY != 0;
    let lines = [
        ("Name:", name),
        ("UUID:", uuid(&info.uuid)),
        ("Parent UUID:", uuid(&info.parent_uuid)),
        ("Received UUID:", uuid(&info.received_uuid)),
        ("Creation time:", time(info.times[1])),
        ("Subvolume ID:", info.id.0.to_string()),
        ("Generation:", info.generation.to_string()),
        ("Gen at creation:", info.transids[1].to_string()),
        ("Parent ID:", info.parent.to_string()),
        ("Top level ID:", info.parent.to_string()),
        ("Flags:", if read_only { "readonly".into() } else { "-".into() }),
        ("Send transid:", info.transids[2].to_string()),
        ("Send time:", time(info.times[2].max(info.times[1]))),
        ("Receive transid:", info.transids[3].to_string()),
        ("Receive time:", time(info.times[3])),
    ];
    for (field, value) in lines {
        println!("\t{field:<20}\t{value}");
    }
    println!("\tSnapshot(s):");
    for path in &shown.snapshots {
        println!("\t\t\t\t{}", text(path));
    }
}
