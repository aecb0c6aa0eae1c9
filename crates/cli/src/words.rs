//! Figures and states in the words of tables.

use dolmen_api::{DiskState, Health, PoolState, Provisioning, ResiliencyKind};

use crate::paint::Tone;
use crate::table::Cell;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_per_cent_is_all_of_it() {
        assert_eq!(percent(999, 1000), "99 %");
        assert_eq!(percent(u64::MAX, u64::MAX), "100 %");
        assert_eq!(percent(1, 0), "");
    }
}
