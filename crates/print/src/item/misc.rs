//! What is kept across a mount or an operation: balance, replacement, device statistics; UUIDs; the headers of the
//! old free space cache.

use crate::block::Context;
use crate::fail::{Printed, fixed};
use crate::name::{CSUM_CHANGE, KeyText, ObjectIdText};
use crate::text::{csum_name, until_nul};
use buttery_disk::key::DiskKey;
use buttery_disk::zerocopy::little_endian::{U32, U64};
use buttery_disk::zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};
use buttery_disk::{Key, objectid};
use std::io::Write;

/// What one kind of chunks is balanced by.
#[repr(C)]
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[zerocopy(crate = "buttery_disk::zerocopy")]
struct BalanceArgs {
    profiles: U64,
    usage: [U32; 2],
    devid: U64,
    pstart: U64,
    pend: U64,
    vstart: U64,
    vend: U64,
    target: U64,
    flags: U64,
    limit: [U32; 2],
    stripes: [U32; 2],
    unused: [U64; 6],
}

const _: () = assert!(size_of::<BalanceArgs>() == 136);

/// The header of a block group's old-style free space cache.
pub fn free_space_header(out: &mut dyn Write, data: &[u8]) -> Printed {
    let (location, rest) = fixed::<DiskKey>(data, "location")?;
    let ([generation, entries, bitmaps], _) = fixed::<[U64; 3]>(rest, "free space header")?;
    writeln!(out, "\t\tlocation key ({})", KeyText((*location).into()))?;
    Ok(writeln!(out, "\t\tcache generation {generation} entries {entries} bitmaps {bitmaps}")?)
}

/// A TEMPORARY_ITEM: a balance or a change of the checksum type.
pub fn temporary(out: &mut dyn Write, key: Key, data: &[u8]) -> Printed {
    let id = ObjectIdText { id: key.objectid, kind: key.kind };
    writeln!(out, "\t\ttemporary item objectid {id} offset {}", key.offset)?;
    match key.objectid {
        objectid::BALANCE => balance(out, data),
        CSUM_CHANGE => {
            match csum_name(key.offset) {
                Some(name) => writeln!(out, "\t\ttarget csum type {name} ({})", key.offset)?,
                None => writeln!(out, "\t\tunknown csum type {}", key.offset)?,
            }
            Ok(())
        }
        _ => Ok(writeln!(out, "\t\tunknown temporary item objectid {}", key.objectid)?),
    }
}

fn balance(out: &mut dyn Write, data: &[u8]) -> Printed {
    let (flags, mut rest) = fixed::<U64>(data, "balance item")?;
    writeln!(out, "\t\tbalance status flags {flags}")?;
    for kind in ["DATA", "METADATA", "SYSTEM"] {
        let (a, after) = fixed::<BalanceArgs>(rest, "balance item")?;
        rest = after;
        let ([usage_min, usage_max], [limit_min, limit_max]) = (a.usage, a.limit);
        writeln!(out, "\t\t{kind}")?;
        write!(out, "\t\tprofiles {} devid {} ", a.profiles, a.devid)?;
        writeln!(out, "target {} flags {}", a.target, a.flags)?;
        write!(out, "\t\tusage_min {usage_min} usage_max {usage_max} ")?;
        writeln!(out, "pstart {} pend {}", a.pstart, a.pend)?;
        write!(out, "\t\tvstart {} vend {} ", a.vstart, a.vend)?;
        writeln!(out, "limit_min {limit_min} limit_max {limit_max}")?;
        writeln!(out, "\t\tstripes_min {} stripes_max {}", a.stripes[0], a.stripes[1])?;
    }
    Ok(())
}

/// A PERSISTENT_ITEM: the statistics of a device.
pub fn persistent(out: &mut dyn Write, key: Key, data: &[u8]) -> Printed {
    let id = ObjectIdText { id: key.objectid, kind: key.kind };
    writeln!(out, "\t\tpersistent item objectid {id} offset {}", key.offset)?;
    if key.objectid != objectid::DEV_STATS {
        return Ok(writeln!(out, "\t\tunknown persistent item objectid {}", key.objectid)?);
    }
    writeln!(out, "\t\tdevice stats")?;
    let ([write, read, flush, corruption, generation], rest) = fixed::<[U64; 5]>(data, "device stats")?;
    write!(out, "\t\twrite_errs {write} read_errs {read} flush_errs {flush} ")?;
    writeln!(out, "corruption_errs {corruption} generation {generation}")?;
    if !rest.is_empty() {
        write!(out, "\t\tunknown stats item bytes {}", rest.len())?;
    }
    for (i, value) in rest.chunks_exact(8).enumerate() {
        let (value, _) = fixed::<U64>(value, "value")?;
        writeln!(out, "\t\tunknown item {} offset {} value {value}", i + 5, (i + 5) * 8)?;
    }
    Ok(())
}

/// A DEV_REPLACE. The second date is that of the beginning too: so does btrfs-progs.
pub fn dev_replace(out: &mut dyn Write, data: &[u8], ctx: &Context) -> Printed {
    let (fields, _) = fixed::<[U64; 9]>(data, "device replace item")?;
    let [devid, left, right, mode, state, started, _, write_errors, read_errors] = fields;
    let mode = match mode.get() {
        0 => "ALWAYS".to_string(),
        1 => "AVOID".to_string(),
        other => format!("unknown({other})"),
    };
    let states = ["NEVER_STARTED", "STARTED", "FINISHED", "CANCELED", "SUSPENDED"];
    let state = match usize::try_from(state.get()).ok().and_then(|i| states.get(i)) {
        Some(name) => name.to_string(),
        None => format!("unknown({state})"),
    };
    writeln!(
        out,
        "\t\tsrc devid {} cursor left {left} cursor right {right} mode {mode}",
        devid.get() as i64
    )?;
    write!(out, "\t\tstate {state} write errors {write_errors} ")?;
    writeln!(out, "uncorrectable read errors {read_errors}")?;
    let date = ctx.zone.date(started.get() as i64);
    writeln!(out, "\t\tstart time {started} ({date})")?;
    Ok(writeln!(out, "\t\tstop time {started} ({date})")?)
}

/// A UUID_KEY_SUBVOL or UUID_KEY_RECEIVED_SUBVOL: the subvolumes with this UUID.
pub fn uuid(out: &mut dyn Write, data: &[u8]) -> Printed {
    if !data.len().is_multiple_of(8) {
        return Ok(writeln!(out, "btrfs: uuid item with illegal size {}!", data.len())?);
    }
    for id in data.chunks_exact(8) {
        let (id, _) = fixed::<U64>(id, "subvolume id")?;
        writeln!(out, "\t\tsubvol_id {id}")?;
    }
    Ok(())
}

/// A STRING_ITEM, printed byte for byte, up to a NUL.
pub fn string(out: &mut dyn Write, data: &[u8]) -> Printed {
    write!(out, "\t\titem data ")?;
    out.write_all(until_nul(data))?;
    Ok(writeln!(out)?)
}
