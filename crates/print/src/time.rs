//! Times as people read them, in the zone of the place (`TZ`, else `/etc/localtime`).

use std::fmt;
use tz::TimeZone;

/// The time zone that dates are printed in.
#[derive(Clone, Debug, Default)]
pub struct Zone(Option<TimeZone>);

impl Zone {
    /// Coordinated universal time.
    pub fn utc() -> Zone {
        Zone(None)
    }

    /// The zone that the environment variable `TZ` names, else the machine's; UTC where that is not to be found.
    pub fn local() -> Zone {
        match std::env::var("TZ") {
            Ok(name) => Zone::named(&name),
            Err(_) => Zone(TimeZone::local().ok()),
        }
    }

    /// A zone by what `TZ` may hold: a name such as `Europe/Berlin` or a rule such as `CET-1CEST,M3.5.0,M10.5.0/3`.
    pub fn named(tz: &str) -> Zone {
        Zone(TimeZone::from_posix_tz(tz).ok())
    }

    /// Seconds east of Greenwich at this moment.
    fn offset(&self, seconds: i64) -> i64 {
        let found = self.0.as_ref().and_then(|zone| zone.find_local_time_type(seconds).ok());
        found.map_or(0, |kind| kind.ut_offset().into())
    }

    /// A moment as `2026-11-30 16:20:32`.
    pub fn date(&self, seconds: i64) -> Date {
        Date { local: i128::from(seconds) + i128::from(self.offset(seconds)) }
    }
}

/// A moment to be printed.
pub struct Date {
    local: i128,
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.local.div_euclid(86400), self.local.rem_euclid(86400));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
    }
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
fn civil(days: i128) -> (i128, i128, i128) {
    // count from 0000-03-01, so that a leap day ends its year
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + i128::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utc(seconds: i64) -> String {
        Zone::utc().date(seconds).to_string()
    }

    #[test]
    fn dates_of_all_ages() {
        assert_eq!(utc(0), "1970-01-01 00:00:00");
        assert_eq!(utc(-1), "1969-12-31 23:59:59");
        assert_eq!(utc(1_709_164_800), "2024-02-29 00:00:00");
        assert_eq!(utc(1_700_000_000), "2023-11-14 22:13:20");
        assert_eq!(utc(-62_135_596_800), "1-01-01 00:00:00");
        assert_eq!(utc(253_402_300_800), "10000-01-01 00:00:00");
        assert_eq!(utc(1 << 40), "36812-02-20 00:36:16");
        // no panic at the ends of time
        assert!(!utc(i64::MAX).is_empty() && !utc(i64::MIN).is_empty());
    }

    #[test]
    fn a_rule_shifts_the_date() {
        let zone = Zone::named("CET-1CEST,M3.5.0,M10.5.0/3");
        assert_eq!(zone.date(1_700_000_000).to_string(), "2023-11-14 23:13:20");
        assert_eq!(zone.date(1_690_000_000).to_string(), "2023-07-22 06:26:40");
        assert_eq!(Zone::named("no such zone").date(0).to_string(), "1970-01-01 00:00:00");
    }
}
