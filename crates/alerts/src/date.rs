//! Dates of seconds since 1970, in UTC.

const DAY_S: u64 = 86_400;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
/// The last second of the year 9999: mail has four digits of a year.
const LAST_S: u64 = 253_402_300_799;

/// A date and the time of its day.
struct Date {
    year: u64,
    /// From 1 on.
    month: u64,
    day: u64,
    second_of_day: u64,
    weekday: u64,
}

/// Splits seconds since 1970 by the Gregorian calendar: in eras of 400 years that begin on the first of March.
fn date(at_s: u64) -> Date {
    let at_s = at_s.min(LAST_S);
    let days = at_s / DAY_S;
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    Date { year, month, day, second_of_day: at_s % DAY_S, weekday: days % 7 }
}

fn name(names: &'static [&'static str], index: u64) -> &'static str {
    usize::try_from(index).ok().and_then(|index| names.get(index)).copied().unwrap_or_default()
}

/// Returns a time as texts have it: `2026-11-30 13:28 UTC`.
pub(crate) fn text(at_s: u64) -> String {
    let date = date(at_s);
    let (hour, minute) = (date.second_of_day / 3600, date.second_of_day / 60 % 60);
    format!("{:04}-{:02}-{:02} {hour:02}:{minute:02} UTC", date.year, date.month, date.day)
}

/// Returns a time as RFC 5322 has it: `Mon, 30 Nov 2026 13:28:54 +0000`.
pub(crate) fn of_mail(at_s: u64) -> String {
    let date = date(at_s);
    let (hour, minute, second) =
        (date.second_of_day / 3600, date.second_of_day / 60 % 60, date.second_of_day % 60);
    let (weekday, month) = (name(&WEEKDAYS, date.weekday), name(&MONTHS, date.month - 1));
    format!("{weekday}, {:02} {month} {:04} {hour:02}:{minute:02}:{second:02} +0000", date.day, date.year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        for (at_s, expected) in [
            (0, "Thu, 01 Jan 1970 00:00:00 +0000"),
            (951_782_399, "Mon, 28 Feb 2000 23:59:59 +0000"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 +0000"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 +0000"),
            (1_796_045_334, "Mon, 30 Nov 2026 13:28:54 +0000"),
            (u64::MAX, "Fri, 31 Dec 9999 23:59:59 +0000"),
        ] {
            assert_eq!(of_mail(at_s), expected);
        }
        assert_eq!(text(1_796_045_334), "2026-11-30 13:28 UTC");
    }
}
