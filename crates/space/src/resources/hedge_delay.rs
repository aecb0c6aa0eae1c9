//! Delay after which a read asks a second disk.

use std::time::Duration;

use dolmen_block_io::{DeviceError, READ_HEDGE_DELAY};

/// Whether an error says nothing about what is on the disk.
pub(crate) fn is_silence(error: DeviceError) -> bool {
    !matches!(error, DeviceError::Medium { .. })
}

/// How long disks are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HedgeDelay {
    /// As long as whoever can ask another waits.
    Short,
    /// As long as it takes.
    Long,
}

/// How long a read is waited for by those who can ask others, which take that long these days.
pub(crate) fn hedge_delay(others: Duration) -> Duration {
    READ_HEDGE_DELAY.max(others.saturating_mul(HEDGE_TIMES))
}

/// A read may take as many times as long as reads of its disk do these days, before somebody else is asked.
pub(crate) const HEDGE_TIMES: u32 = 4;

/// Of reads that take less it does not matter which is faster.
pub(crate) const FAST: Duration = Duration::from_micros(200);

/// By how many times it may be slower than all that its content can be computed from, which costs a read of each.
pub(crate) const SLOWER_THAN_COMPUTED: u32 = 8;

/// How long a second disk is waited for, by those who may have waited for a first one.
pub(crate) fn second_hedge_delay(others: Duration) -> Duration {
    hedge_delay(others) / 2
}

/// Whether a disk takes so many times as long as others that these are asked first.
pub(crate) fn is_much_slower(read_latency: Duration, others: Duration) -> bool {
    read_latency > others.max(FAST).saturating_mul(SLOWER_THAN_COMPUTED)
}
