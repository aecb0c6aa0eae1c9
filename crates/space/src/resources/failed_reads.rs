//! Reads of clients that every copy failed, with errors of the medium: what people see until they can be read.
//!
//! Such an error may pass, so it is no loss that the pool records. A range is dropped once a client has read or written all of it,
//! or a scrub all of its row.
//!
//! Invariant: ranges do not overlap, and there are [`RANGES_MAX`] at most.

use std::cell::{Cell, RefCell};

use dolmen_block_io::DeviceError;
use dolmen_units::Bytes;

use crate::format::error::{SpaceError, UnreadableReason};

/// Ranges that are kept. What fails beyond them is counted with the last.
const RANGES_MAX: usize = 64;

/// A range that a client could not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedRead {
    /// First byte.
    pub at: u64,
    /// Length.
    pub length: Bytes,
    /// Cause.
    pub why: UnreadableReason,
}

impl FailedRead {
    fn end(&self) -> u64 {
        self.at.saturating_add(self.length.0)
    }

    fn overlaps(&self, at: u64, length: u64) -> bool {
        self.at < at.saturating_add(length) && at < self.end()
    }
}

/// Ranges of one space that clients could not read.
#[derive(Debug, Default)]
pub(crate) struct FailedReads {
    ranges: RefCell<Vec<FailedRead>>,
    /// Whether there are any, which each request asks.
    is_any: Cell<bool>,
}

impl FailedReads {
    /// Notes an error that a client gets.
    pub(crate) fn note(&self, error: &SpaceError) {
        let SpaceError::Unreadable { at, length, why, .. } = error else { return };
        if !matches!(why, UnreadableReason::Device(DeviceError::Medium { .. })) {
            return;
        }
        let mut ranges = self.ranges.borrow_mut();
        if ranges.len() < RANGES_MAX && !ranges.iter().any(|one| one.overlaps(*at, length.0)) {
            ranges.push(FailedRead { at: *at, length: *length, why: *why });
            ranges.sort_unstable_by_key(|one| one.at);
        }
        self.is_any.set(true);
    }

    /// Returns the ranges, in order of their places.
    pub(crate) fn ranges(&self) -> Vec<FailedRead> {
        self.ranges.borrow().clone()
    }

    /// Drops what a client has read or written.
    pub(crate) fn succeeded(&self, at: u64, length: u64) {
        if self.is_any.get() {
            let mut ranges = self.ranges.borrow_mut();
            ranges.retain(|one| !(at <= one.at && one.end() <= at.saturating_add(length)));
            self.is_any.set(!ranges.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(at: u64, why: UnreadableReason) -> SpaceError {
        SpaceError::Unreadable { name: "data".parse().unwrap(), at, length: Bytes(4096), why }
    }

    #[test]
    fn a_range_stays_until_all_of_it_was_read_or_written() {
        // Scenario: errors of the medium at two places, twice each, and errors that others report. Expected: two ranges; a request
        // that covers one drops it, and one that touches it does not.
        let reads = FailedReads::default();
        let medium = UnreadableReason::Device(DeviceError::Medium { errno: 5 });
        for at in [8192, 0, 8192, 0] {
            reads.note(&error(at, medium));
        }
        for why in [
            UnreadableReason::Absent,
            UnreadableReason::Damaged,
            UnreadableReason::Device(DeviceError::TimedOut),
        ] {
            reads.note(&error(20480, why));
        }
        let places = || reads.ranges.borrow().iter().map(|one| one.at).collect::<Vec<_>>();
        assert_eq!(places(), [0, 8192]);
        reads.succeeded(512, 8192);
        assert_eq!(places(), [0, 8192]);
        reads.succeeded(0, 4096);
        assert_eq!(places(), [8192]);
        reads.succeeded(4096, 65536);
        assert!(places().is_empty() && !reads.is_any.get());
        (0..1000).for_each(|block| reads.note(&error(block * 4096, medium)));
        assert_eq!(places().len(), RANGES_MAX);
    }
}
