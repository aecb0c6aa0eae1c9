//! What a space may have of its pool's disks, and what it is to get (docs/design/0017): as its record keeps it.

use dolmen_units::{Bytes, Name};

use crate::format::error::SpaceError;
use crate::format::limit_fault::{LimitFault, LimitKind};

/// The unit in which bytes in a second are kept.
const RATE_UNIT: Bytes = Bytes::kib(1);
/// The most of either that can be said.
const MAX: u64 = u32::MAX as u64;

/// Requests in a second, and bytes of them; a limit that is not there is `None`. Reads, writes and discards count, flushes do not;
/// discards have no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Requests in a second that it gets at most.
    pub iops_max: Option<u64>,
    /// Requests in a second that others leave to it.
    pub iops_min: Option<u64>,
    /// Bytes in a second that it gets at most, in whole KiB.
    pub rate_max: Option<Bytes>,
    /// Bytes in a second that others leave to it, in whole KiB.
    pub rate_min: Option<Bytes>,
}

impl Limits {
    /// Whether there is none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether others leave something to the space.
    #[must_use]
    pub fn has_min(&self) -> bool {
        self.iops_min.is_some() || self.rate_min.is_some()
    }

    /// Checks them, for a space of this name.
    ///
    /// # Errors
    /// [`SpaceError::Limit`]: the first that makes no sense.
    pub fn check(&self, name: &Name) -> Result<(), SpaceError> {
        let bytes = |rate: Option<Bytes>| rate.map(|rate| rate.0);
        let of_requests =
            check(self.iops_min, self.iops_max, 1).map_err(|fault| (LimitKind::Requests, fault));
        let of_bytes = check(bytes(self.rate_min), bytes(self.rate_max), RATE_UNIT.0);
        let of_bytes = of_bytes.map_err(|fault| (LimitKind::Bytes, fault));
        let all = of_requests.and(of_bytes);
        all.map_err(|(limit, fault)| SpaceError::Limit { name: name.clone(), limit, fault })
    }

    /// As the record has them; zero where there is none.
    pub(crate) fn raw(&self) -> [u32; 4] {
        let count = |limit: Option<u64>| limit.map_or(0, |limit| u32::try_from(limit).unwrap_or(u32::MAX));
        let kib = |rate: Option<Bytes>| count(rate.map(|rate| rate.0 / RATE_UNIT.0));
        [count(self.iops_max), count(self.iops_min), kib(self.rate_max), kib(self.rate_min)]
    }

    /// From what the record has.
    pub(crate) fn from_raw([iops_max, iops_min, rate_max, rate_min]: [u32; 4]) -> Self {
        let count = |raw: u32| (raw > 0).then_some(u64::from(raw));
        let rate = |raw: u32| count(raw).map(|kib| Bytes(kib * RATE_UNIT.0));
        Self {
            iops_max: count(iops_max),
            iops_min: count(iops_min),
            rate_max: rate(rate_max),
            rate_min: rate(rate_min),
        }
    }
}

fn check(min: Option<u64>, max: Option<u64>, unit: u64) -> Result<(), LimitFault> {
    for found in min.into_iter().chain(max) {
        if found == 0 {
            return Err(LimitFault::Zero);
        }
        if !found.is_multiple_of(unit) {
            return Err(LimitFault::Unaligned { found });
        }
        if found / unit > MAX {
            return Err(LimitFault::TooMuch { found, most: MAX * unit });
        }
    }
    match (min, max) {
        (Some(min), Some(max)) if min > max => Err(LimitFault::Crossed { min, max }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(iops: [u64; 2], rate: [u64; 2]) -> Limits {
        let some = |limit: u64| (limit != u64::MAX).then_some(limit);
        let ([iops_min, iops_max], [rate_min, rate_max]) = (iops.map(some), rate.map(some));
        Limits { iops_max, iops_min, rate_max: rate_max.map(Bytes), rate_min: rate_min.map(Bytes) }
    }

    #[test]
    fn limits_are_kept_as_they_were_set() {
        let most = MAX << 10;
        for set in [
            Limits::default(),
            limits([1, 2], [1024, 2048]),
            limits([MAX, MAX], [most, most]),
            limits([5, u64::MAX], [u64::MAX, 4096]),
        ] {
            set.check(&"x".parse().unwrap()).unwrap();
            assert_eq!(Limits::from_raw(set.raw()), set);
        }
    }

    #[test]
    fn limits_that_make_no_sense_are_refused_by_name() {
        const NONE: u64 = u64::MAX;
        for (set, reported) in [
            (limits([0, NONE], [NONE, NONE]), "I/Os in a second of space x is 1 at least"),
            (limits([NONE, 0], [NONE, NONE]), "I/Os in a second of space x is 1 at least"),
            (limits([NONE, NONE], [NONE, 0]), "bytes in a second of space x is 1 at least"),
            (limits([3, 2], [NONE, NONE]), "has its minimum, 3, above its maximum, 2"),
            (limits([1, 2], [4096, 2048]), "has its minimum, 4096, above its maximum, 2048"),
            (limits([NONE, NONE], [NONE, 1500]), "is in whole KiB, not 1500 bytes"),
            (limits([NONE, MAX + 1], [NONE, NONE]), "is 4294967295 at most, not 4294967296"),
        ] {
            let error = set.check(&"x".parse().unwrap()).unwrap_err().to_string();
            assert!(error.contains(reported), "{error}");
        }
    }
}
