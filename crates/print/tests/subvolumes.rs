//! Lists of subvolumes, compared with those of `btrfs subvolume list`; and dates in another time zone.

mod support;

use buttery_disk::inode::inode_refs;
use buttery_disk::key::item;
use buttery_disk::root::{RootItem, RootRef, flags};
use buttery_print::Zone;
use buttery_print::subvolume::{Bound, ListOptions, SubvolumeInfo, compare, list, parse_sort};
use std::collections::BTreeMap;
use support::image::Image;
use support::{Mounted, assert_same, mkfs, must, with_oracle};

/// A subvolume as read from an image.
struct Found {
    info: SubvolumeInfo,
    read_only: bool,
}

/// The path of a directory inside its subvolume, with a slash at its end; empty for the subvolume's root.
fn directory(image: &Image, tree: u64, mut inode: u64) -> Vec<u8> {
    let roots = image.roots_in(image.sb.root.get());
    let root = roots.iter().find(|root| root.id.0 == tree).expect("the tree's root");
    let items = image.items(root.bytenr);
    let mut path = Vec::new();
    while inode != 256 {
        let (key, data) = items
            .iter()
            .find(|(key, _)| key.objectid == inode && key.kind == item::INODE_REF)
            .expect("a name");
        let (_, name) = inode_refs(data).next().expect("a name");
        path = [name, b"/", &path].concat();
        inode = key.offset;
    }
    path
}

/// Arguments of the program, the same for us, and which subvolumes they list.
type Case = (&'static [&'static str], ListOptions, fn(&Found) -> bool);

/// Every subvolume of an image with a place, in the order of ids.
fn found(path: &std::path::Path) -> Vec<Found> {
    let image = Image::open(path);
    let items = image.items(image.sb.root.get());
    let mut paths = BTreeMap::from([(5, Vec::new())]);
    let mut all = Vec::new();
    for (key, data) in items.iter().filter(|(key, _)| key.kind == item::ROOT_ITEM && key.objectid >= 256) {
        let root = RootItem::parse(data).expect("a root item");
        let backref = items.iter().find(|(k, _)| k.objectid == key.objectid && k.kind == item::ROOT_BACKREF);
        let Some((parent, backref)) = backref.map(|(key, data)| (key.offset, data)) else { continue };
        let (place, name) = RootRef::parse(backref).expect("a root reference");
        let mut path: Vec<u8> = paths.get(&parent).cloned().expect("parents come first here");
        path.extend(directory(&image, parent, place.dirid.get()));
        path.extend(name);
        paths.insert(key.objectid, [&path[..], b"/"].concat());
        let info = SubvolumeInfo {
            id: key.objectid,
            generation: root.generation.get(),
            created_generation: root.otransid.get(),
            parent,
            uuid: root.uuid,
            parent_uuid: root.parent_uuid,
            received_uuid: root.received_uuid,
            created: root.otime.sec.get(),
            path,
        };
        all.push(Found { info, read_only: root.flags.get() & flags::RDONLY != 0 });
    }
    all
}

const SCRIPT: &str = "
mkdir -p d/e
btrfs subvolume create s1; sync; btrfs subvolume create d/e/s2; btrfs subvolume create d/e/s2/deep
btrfs subvolume snapshot s1 'snap shot'; sync; btrfs subvolume snapshot -r . ro; echo x > s1/x; sync
";

#[test]
fn lists_in_every_form() {
    with_oracle("lists", true, |dir| {
        let image = dir.join("a.img");
        mkfs(std::slice::from_ref(&image), 200, &[])?;
        let mounted = Mounted::new(std::slice::from_ref(&image), "noatime")?;
        mounted.script(SCRIPT)?;
        let all = found(&image);
        let full = ListOptions {
            parent: true,
            created_generation: true,
            uuid: true,
            parent_uuid: true,
            received_uuid: true,
            ..Default::default()
        };
        let plain = ListOptions::default();
        let snapshots = ListOptions { created_generation: true, created: true, ..plain };
        let any: fn(&Found) -> bool = |_| true;
        let snap: fn(&Found) -> bool = |f| f.info.parent_uuid != [0; 16];
        let with_all = |table| ListOptions { created: true, table, ..full };
        let cases: [Case; 10] = [
            (&[], plain, any),
            (&["-t"], ListOptions { table: true, ..plain }, any),
            (&["-p", "-c", "-g", "-u", "-q", "-R"], full, any),
            (&["-p", "-c", "-g", "-u", "-q", "-R", "-t"], ListOptions { table: true, ..full }, any),
            (&["-s"], snapshots, snap),
            (&["-s", "-p", "-u", "-q", "-R", "-c"], with_all(false), snap),
            (&["-s", "-p", "-u", "-q", "-R", "-c", "-t"], with_all(true), snap),
            (&["-r"], plain, |f| f.read_only),
            (&["-o"], plain, |f| f.info.parent == 5),
            (&["-a"], ListOptions { absolute_from: Some(5), ..plain }, any),
        ];
        let mount_point = mounted.dir.to_str().expect("a plain path");
        let check = |args: &[&str], infos: &[SubvolumeInfo], options: &ListOptions| {
            let mut ours = Vec::new();
            list(&mut ours, infos, options, &Zone::utc()).expect("memory can be written");
            let args = [&["subvolume", "list"], args, &[mount_point]].concat();
            assert_same(&format!("{args:?}"), &ours, &must("btrfs", &args)?);
            Ok(())
        };
        for (args, options, filter) in cases {
            let infos: Vec<_> = all.iter().filter(|f| filter(f)).map(|f| f.info.clone()).collect();
            check(args, &infos, &options)?;
        }
        for order in ["path", "-path", "gen", "-gen", "ogen,-path", "-rootid", "+gen,-ogen"] {
            let keys = parse_sort(order).expect("a sort order");
            let mut infos: Vec<_> = all.iter().map(|f| f.info.clone()).collect();
            infos.sort_by(|a, b| compare(a, b, &keys));
            check(&[&format!("--sort={order}")], &infos, &plain)?;
        }
        let middle = all[1].info.generation;
        for bound in [format!("+{middle}"), format!("-{middle}"), middle.to_string()] {
            let admits = Bound::parse(&bound).expect("a bound");
            let infos: Vec<_> =
                all.iter().map(|f| f.info.clone()).filter(|info| admits.admits(info.generation)).collect();
            check(&["-G", &bound], &infos, &plain)?;
        }
        Ok(())
    });
}

#[test]
fn dates_in_the_zone_of_the_environment() {
    with_oracle("zone", false, |dir| {
        let image = dir.join("a.img");
        mkfs(std::slice::from_ref(&image), 200, &[])?;
        let read = Image::open(&image);
        for zone in ["CET-1CEST,M3.5.0,M10.5.0/3", "XYZ+3:30", "nonsense", ""] {
            let args = ["inspect-internal", "dump-tree", "-b", &read.sb.root.get().to_string()];
            let output = std::process::Command::new("btrfs").args(args).arg(&image).env("TZ", zone).output();
            let theirs = output.expect("btrfs runs").stdout;
            let ctx = buttery_print::Context {
                zone: Zone::named(zone),
                ..buttery_print::Context::new(&read.sb, Default::default())
            };
            let mut ours = b"btrfs-progs v6.14\n".to_vec();
            buttery_print::tree_block(&mut ours, &read.block(read.sb.root.get()), &ctx).expect("memory");
            assert_same(&format!("TZ={zone}"), &ours, &theirs);
        }
        Ok(())
    });
}
