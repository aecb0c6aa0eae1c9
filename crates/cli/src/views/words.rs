//! Figures and states in the words of tables.

use dolmen_api::{DiskState, Health, PoolState, Provisioning, ResiliencyKind, SpaceLimits};
use dolmen_units::Bytes;
use rustix::time::{ClockId, clock_gettime};

use crate::terminal::paint::Tone;
use crate::terminal::table::Cell;

/// A share in per cent, rounded down so that 100 % means all; nothing where there is no whole.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return String::new();
    }
    format!("{} %", u128::from(part) * 100 / u128::from(whole))
}

/// A number with its noun.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}

/// Health as a word.
pub(crate) fn health(health: Health) -> &'static str {
    match health {
        Health::Healthy => "healthy",
        Health::Warning => "warning",
        Health::Unhealthy => "unhealthy",
    }
}

/// How health looks.
pub(crate) fn health_tone(health: Health) -> Tone {
    match health {
        Health::Healthy => Tone::Good,
        Health::Warning => Tone::Caution,
        Health::Unhealthy => Tone::Bad,
    }
}

/// Health in a table.
pub(crate) fn health_cell(of: Health) -> Cell {
    Cell::toned(health(of), health_tone(of))
}

/// The state of a pool in a table.
pub(crate) fn pool_state_cell(state: PoolState) -> Cell {
    match state {
        PoolState::Writable => "writable".into(),
        PoolState::ReadOnly => Cell::toned("read-only", Tone::Caution),
        PoolState::Stopped => Cell::toned("stopped", Tone::Bad),
        PoolState::Closed => Cell::toned("closed", Tone::Caution),
    }
}

/// The state of a disk in a table.
pub(crate) fn disk_state_cell(state: DiskState) -> Cell {
    match state {
        DiskState::Present => "present".into(),
        DiskState::Retired => Cell::toned("leaving", Tone::Caution),
        DiskState::Spare => "spare".into(),
        DiskState::Idle => "retired".into(),
        DiskState::Absent => Cell::toned("absent", Tone::Bad),
    }
}

/// A resiliency with its copies or parities.
pub(crate) fn resiliency(kind: ResiliencyKind, copies: u8, parity: u8) -> String {
    match kind {
        ResiliencyKind::Simple => "simple".to_owned(),
        ResiliencyKind::Span => "span".to_owned(),
        ResiliencyKind::Mirror => format!("mirror of {copies}"),
        ResiliencyKind::Parity if parity == 2 => "dual parity".to_owned(),
        ResiliencyKind::Parity => "parity".to_owned(),
    }
}

/// When room is claimed.
pub(crate) fn provisioning(when: Provisioning) -> &'static str {
    match when {
        Provisioning::Thin => "thin",
        Provisioning::Fixed => "fixed",
    }
}

/// What a space may have of its pool's disks, and what others leave to it.
pub(crate) fn limits_in_words(limits: &SpaceLimits) -> String {
    let side = |word: &str, iops: Option<u64>, bytes_per_s: Option<u64>| {
        let rate = bytes_per_s.map(|rate| format!("{}/s", Bytes(rate)));
        let parts: Vec<String> = iops.map(|iops| format!("{iops} I/O/s")).into_iter().chain(rate).collect();
        (!parts.is_empty()).then(|| format!("{word} {}", parts.join(" and ")))
    };
    let most = side("at most", limits.iops_max, limits.bytes_per_s_max);
    let least = side("at least", limits.iops_min, limits.bytes_per_s_min);
    most.into_iter().chain(least).collect::<Vec<_>>().join(", ")
}

/// Seconds since 1970 by the clock of the system.
pub(crate) fn seconds_now() -> u64 {
    u64::try_from(clock_gettime(ClockId::Realtime).tv_sec).unwrap_or(0)
}

/// A moment, given in seconds since 1970, by the clock of Greenwich, as the daemon's log has it.
pub(crate) fn date(at_s: u64) -> String {
    let (days, seconds) = (at_s / 86_400, at_s % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

/// The day of the calendar that comes so many days after the first of 1970 (Howard Hinnant, "chrono-compatible low-level date
/// algorithms", `civil_from_days`): years begin in March, so that the day that some lack is their last.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_per_cent_is_all_of_it() {
        assert_eq!(percent(999, 1000), "99 %");
        assert_eq!(percent(u64::MAX, u64::MAX), "100 %");
        assert_eq!(percent(1, 0), "");
    }

    #[test]
    fn an_instant_is_printed_as_a_date() {
        for (at_s, reported) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399, "2000-02-28 23:59:59Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (1_709_251_200, "2024-03-01 00:00:00Z"),
            (1_735_689_599, "2024-12-31 23:59:59Z"),
            (4_107_542_400, "2100-03-01 00:00:00Z"),
        ] {
            assert_eq!(date(at_s), reported);
        }
    }
}
