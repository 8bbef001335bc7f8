//! Whether the devices have one history: a split brain is refused.
//!
//! Two halves of a mirrored file system, each mounted `degraded` without the other and written to, both look like the
//! newest state, or one like a state of the other's past. Taking the older for a stale copy of the newer would lose
//! what was written to it. Superblocks do not say which it is; the trees do: everything that the newer state still has
//! from the older one's time must be in the older state too ([`past`]), and what states of the same generation wrote
//! last must be the same bytes ([`lockstep`]).
//!
//! Only certain evidence counts: a device that missed writes, lost some or is damaged is no contradiction. Backup roots
//! are no evidence: the kernel may note roots of a transaction that is still under way. Where nothing is left from the
//! time after the halves parted, nothing is seen.

mod lockstep;
mod past;
mod trees;

use crate::devices::Member;
use crate::{Error, OpenOptions, Volume};
use std::collections::BTreeSet;

/// Refuses devices that were written to apart. `volume` is what all of them make up.
pub(crate) fn check(volume: &Volume, members: &[Member]) -> Result<(), Error> {
    let members: Vec<&Member> = members.iter().filter(|m| !m.is_seed()).collect();
    let newest = volume.superblock().generation.get();
    let of = |generation| {
        let is = |m: &&Member| m.sb.generation.get() == generation;
        members.iter().copied().filter(is).collect::<Vec<_>>()
    };
    for other in of(newest) {
        if let Some(what) = same_superblock(volume, other) {
            return Err(apart(volume, &[other], what));
        }
    }
    if let Some((devid, what)) = lockstep::find(volume) {
        let one: Vec<_> = members.iter().copied().filter(|m| m.sb.dev_item.devid.get() == devid).collect();
        return Err(apart(volume, &one, what));
    }
    let generations: BTreeSet<u64> = members.iter().map(|m| m.sb.generation.get()).collect();
    for generation in generations.into_iter().filter(|&generation| generation < newest) {
        let group = of(generation);
        let Some(older) = alone(&group) else { continue };
        if let Some(what) = past::contradiction(volume, &older) {
            return Err(apart(volume, &group, what));
        }
    }
    Ok(())
}

/// The superblocks of one generation are one, but for the fsync log, whose root may change in between.
fn same_superblock(volume: &Volume, other: &Member) -> Option<String> {
    let (a, b) = (volume.superblock(), &other.sb);
    let roots = [("root tree", a.root, b.root), ("chunk tree", a.chunk_root, b.chunk_root)];
    roots.into_iter().find(|(_, a, b)| a != b).map(|(name, a, b)| {
        format!(
            "both say that they are at generation {}, but one has the {name} at {a}, the other at {b}",
            other.sb.generation.get()
        )
    })
}

/// What some of the devices make up without the others. `None` if they have not everything between them: then nobody
/// can have written to them alone.
fn alone(group: &[&Member]) -> Option<Volume> {
    let members: Vec<Member> = group.iter().map(|&m| m.clone()).collect();
    let options = OpenOptions { degraded: true, ..OpenOptions::default() };
    let volume = Volume::assemble(&members, 0, options).ok()?;
    volume.check_copies().is_ok().then_some(volume)
}

fn apart(volume: &Volume, group: &[&Member], what: String) -> Error {
    let names: Vec<_> = group.iter().map(|m| m.device.name()).collect();
    let newer = volume.device_name(volume.superblock().dev_item.devid.get());
    Error::Inconsistent(format!(
        "{} and {newer} were written to apart (a split brain): {what}; open one without the other (-o degraded), and \
         wipe the other before it comes back",
        names.join(" and ")
    ))
}
