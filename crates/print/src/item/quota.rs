//! Quota groups.

use crate::block::Context;
use crate::fail::{Printed, fixed};
use crate::text::bit_names;
use buttery_disk::zerocopy::little_endian::U64;
use std::io::Write;

/// Bits of a QGROUP_STATUS.
const ON: u64 = 1 << 0;
const SCANNING: u64 = 1 << 1;
const INCONSISTENT: u64 = 1 << 2;
const SIMPLE_MODE: u64 = 1 << 3;

fn status_flags(flags: u64) -> String {
    let known = [(SIMPLE_MODE, "SIMPLE_MODE"), (SCANNING, "SCANNING"), (INCONSISTENT, "INCONSISTENT")];
    let (names, unknown) = bit_names(flags & !ON, &known);
    let mut text = String::from(if flags & ON != 0 { "ON" } else { "OFF" });
    for name in names {
        text.push('|');
        text.push_str(name);
    }
    if unknown != 0 {
        text.push_str(&format!("|UNKNOWN(0x{unknown:x})"));
    }
    text
}

/// A QGROUP_STATUS.
pub fn status(out: &mut dyn Write, data: &[u8], ctx: &Context) -> Printed {
    let ([version, generation, flags, scan], rest) = fixed::<[U64; 4]>(data, "qgroup status")?;
    let flags = status_flags(flags.get());
    write!(out, "\t\tversion {version} generation {generation} flags {flags} scan {scan}")?;
    if ctx.simple_quota {
        match fixed::<U64>(rest, "enable generation") {
            Ok((enabled, _)) => write!(out, " enable_gen {enabled}")?,
            Err(short) => {
                writeln!(out)?;
                return Err(short);
            }
        }
    }
    Ok(writeln!(out)?)
}

/// A QGROUP_INFO.
pub fn info(out: &mut dyn Write, data: &[u8]) -> Printed {
    let ([generation, rfer, rfer_cmpr, excl, excl_cmpr], _) = fixed::<[U64; 5]>(data, "qgroup info")?;
    writeln!(out, "\t\tgeneration {generation}")?;
    writeln!(out, "\t\treferenced {rfer} referenced_compressed {rfer_cmpr}")?;
    Ok(writeln!(out, "\t\texclusive {excl} exclusive_compressed {excl_cmpr}")?)
}

/// A QGROUP_LIMIT.
pub fn limit(out: &mut dyn Write, data: &[u8]) -> Printed {
    let ([flags, max_rfer, max_excl, rsv_rfer, rsv_excl], _) = fixed::<[U64; 5]>(data, "qgroup limit")?;
    writeln!(out, "\t\tflags {:x}", flags.get())?;
    // without a limit the field holds -1, which is how it is shown
    let [max_rfer, max_excl, rsv_rfer, rsv_excl] =
        [max_rfer, max_excl, rsv_rfer, rsv_excl].map(|v| v.get() as i64);
    writeln!(out, "\t\tmax_referenced {max_rfer} max_exclusive {max_excl}")?;
    Ok(writeln!(out, "\t\trsv_referenced {rsv_rfer} rsv_exclusive {rsv_excl}")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_flags_begin_with_on_or_off() {
        assert_eq!(status_flags(0), "OFF");
        assert_eq!(status_flags(0b11111), "ON|SIMPLE_MODE|SCANNING|INCONSISTENT|UNKNOWN(0x10)");
    }
}
