//! Modes and times as people read them.

use buttery::{Kind, Stat, Time};

/// `drwxr-xr-x` and the like.
pub fn mode(stat: &Stat) -> String {
    let kind = match stat.kind() {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
    };
    let mut out = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = stat.mode >> shift;
        out.push(if bits & 4 != 0 { 'r' } else { '-' });
        out.push(if bits & 2 != 0 { 'w' } else { '-' });
        out.push(match (stat.mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    out
}

/// `2026-01-31 12:00:00.123456789` in UTC.
pub fn time(t: Time) -> String {
    format!("{}.{:09}", time_secs(t.sec), t.nsec)
}

/// `2026-01-31 12:00:00` in UTC.
pub fn time_secs(sec: i64) -> String {
    let (days, rest) = (sec.div_euclid(86_400), sec.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Days since 1970 to a date of the Gregorian calendar. Counted in years that begin in March, so that the leap day is
/// a year's last.
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days as i128 + 719_468;
    let (era, day_of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i128::from(month <= 2);
    (year as i64, month as i64, day as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(time_secs(0), "1970-01-01 00:00:00");
        assert_eq!(time_secs(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(time_secs(-1), "1969-12-31 23:59:59");
        assert_eq!(time_secs(4_102_444_799), "2099-12-31 23:59:59");
        time_secs(i64::MIN);
        time_secs(i64::MAX);
    }
}
