//! Roots of trees and the links between subvolumes.

use super::inode::time;
use crate::block::Context;
use crate::fail::{Fail, Printed, bytes, fixed};
use crate::name::KeyText;
use crate::text::{Uuid, until_nul};
use buttery_disk::root::{RootItem, RootRef, flags};
use buttery_disk::zerocopy::FromBytes;
use std::io::Write;

/// A ROOT_ITEM. One that an old kernel wrote ends after its first generation number; the rest is then not printed.
pub fn root(out: &mut dyn Write, data: &[u8], ctx: &Context) -> Printed {
    let mut whole = [0u8; size_of::<RootItem>()];
    let len = data.len().min(whole.len());
    whole[..len].copy_from_slice(&data[..len]);
    let r = RootItem::read_from_bytes(&whole).map_err(|_| Fail::Short("root item"))?;
    write!(out, "\t\tgeneration {} root_dirid {} bytenr {} ", r.generation, r.root_dirid, r.bytenr)?;
    writeln!(out, "byte_limit {} bytes_used {}", r.byte_limit, r.bytes_used)?;
    let bits = r.flags.get();
    let names = if bits & flags::RDONLY != 0 { "RDONLY" } else { "none" };
    writeln!(out, "\t\tlast_snapshot {} flags 0x{bits:x}({names}) refs {}", r.last_snapshot, r.refs)?;
    writeln!(out, "\t\tdrop_progress key ({}) drop_level {}", KeyText(r.drop_progress.into()), r.drop_level)?;
    writeln!(out, "\t\tlevel {} generation_v2 {}", r.level, r.generation_v2)?;
    if r.generation_v2 != r.generation {
        return Ok(());
    }
    writeln!(out, "\t\tuuid {}", Uuid(&r.uuid))?;
    writeln!(out, "\t\tparent_uuid {}", Uuid(&r.parent_uuid))?;
    writeln!(out, "\t\treceived_uuid {}", Uuid(&r.received_uuid))?;
    write!(out, "\t\tctransid {} otransid {} ", r.ctransid, r.otransid)?;
    writeln!(out, "stransid {} rtransid {}", r.stransid, r.rtransid)?;
    time(out, "ctime", &r.ctime, ctx)?;
    time(out, "otime", &r.otime, ctx)?;
    time(out, "stime", &r.stime, ctx)?;
    time(out, "rtime", &r.rtime, ctx)
}

/// A ROOT_REF or ROOT_BACKREF. The name is printed byte for byte.
pub fn root_ref(out: &mut dyn Write, data: &[u8], what: &str) -> Printed {
    let (r, rest) = fixed::<RootRef>(data, "root reference")?;
    let (name, _) = bytes(rest, r.name_len.get().into(), "name")?;
    write!(out, "\t\troot {what} key dirid {} sequence {} name ", r.dirid, r.sequence)?;
    out.write_all(until_nul(name))?;
    Ok(writeln!(out)?)
}
