//! The clocks: the one of the wall, which people and the system set, and the one since the system was started, which only grows.

use rustix::time::{ClockId, clock_gettime};

/// What both clocks show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Seconds since 1970.
    pub wall_s: u64,
    /// Seconds since the system was started, those of its sleep included.
    pub boot_s: u64,
}

/// Returns what the clocks show.
pub(crate) fn now() -> Moment {
    let of = |clock| u64::try_from(clock_gettime(clock).tv_sec).unwrap_or(0);
    Moment { wall_s: of(ClockId::Realtime), boot_s: of(ClockId::Boottime) }
}

/// Returns milliseconds since the system was started.
pub(crate) fn boot_ms() -> u64 {
    let found = clock_gettime(ClockId::Boottime);
    let (seconds, nanoseconds) = (u64::try_from(found.tv_sec), u64::try_from(found.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1000).saturating_add(nanoseconds.unwrap_or(0) / 1_000_000)
}
