//! How long things take, counted so that any two looks can be compared (docs/design/0017).
//!
//! A [`Histogram`] is what is written to: fixed buckets, each a sixteenth of a power of two wide, in microseconds. Nothing of it
//! is ever taken back, so whoever looks twice knows what came in between, and disturbs no other. A [`Distribution`] is what was
//! seen: it can be subtracted, added and asked for percentiles, and needs to know of the buckets no more than their bounds.
//!
//! Invariant: a percentile is never less than the true one, and at most a sixteenth and a microsecond more.
//!
//! Invariant: noting takes no memory, no lock and no loop.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Buckets of a power of two.
const PARTS: u64 = 16;
const PARTS_SHIFT: u32 = PARTS.trailing_zeros();
/// Powers of two that have buckets: up to 2^32 microseconds, more than an hour. What takes longer is counted in the last one.
const POWERS: u32 = 32;
/// Buckets of a histogram.
#[allow(clippy::cast_possible_truncation)] // a few hundred
pub const BUCKETS: usize = (PARTS as usize) * (POWERS - PARTS_SHIFT + 1) as usize;

const _: () = assert!(PARTS.is_power_of_two(), "buckets are found by shifting");

/// The bucket of so many microseconds.
fn bucket_of(us: u64) -> usize {
    let power = u64::BITS - us.leading_zeros();
    let shift = power.saturating_sub(PARTS_SHIFT + 1);
    let index = u64::from(shift) * PARTS + (us >> shift);
    usize::try_from(index).unwrap_or(usize::MAX).min(BUCKETS - 1)
}

/// The longest that falls into a bucket, in microseconds.
fn bound_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * PARTS {
        return bucket;
    }
    let shift = bucket / PARTS - 1;
    ((bucket % PARTS + PARTS + 1) << shift) - 1
}

/// Whole microseconds, rounded up.
fn us_of(took: Duration) -> u64 {
    u64::try_from(took.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// How long things took, since it was made.
pub struct Histogram {
    buckets: Box<[Cell<u64>]>,
    total_ns: Cell<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![Cell::new(0); BUCKETS].into(), total_ns: Cell::new(0) }
    }
}

impl Histogram {
    /// Counts something that took so long.
    pub fn note(&self, took: Duration) {
        if let Some(bucket) = self.buckets.get(bucket_of(us_of(took))) {
            bucket.set(bucket.get() + 1);
        }
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.total_ns.set(self.total_ns.get().saturating_add(ns));
    }

    /// What was counted so far.
    #[must_use]
    pub fn look(&self) -> Distribution {
        let counts = self.buckets.iter().enumerate().map(|(bucket, count)| (bound_of(bucket), count.get()));
        Distribution::new(counts, self.total_ns.get() / 1000)
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Histogram({:?})", self.look())
    }
}

/// How many things took how long.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Distribution {
    /// How many took longer than the bound before and no longer than this one, in microseconds. None of them is zero.
    counts: BTreeMap<u64, u64>,
    total_us: u64,
}

impl Distribution {
    /// So many up to each bound, and how long all of them took together; in microseconds.
    #[must_use]
    pub fn new(counts: impl IntoIterator<Item = (u64, u64)>, total_us: u64) -> Self {
        Self { counts: counts.into_iter().filter(|(_, count)| *count > 0).collect(), total_us }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Bounds, in microseconds, and how many there are up to each of them and above the one before.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().map(|(bound, count)| (*bound, *count))
    }

    /// How long all of them took together, in microseconds.
    #[must_use]
    pub fn total_us(&self) -> u64 {
        self.total_us
    }

    /// What came after an earlier look at the same histogram; all of it where that was of another one, since nothing of a
    /// histogram is ever taken back.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let of = |bound: &u64| self.counts.get(bound).copied().unwrap_or(0);
        let is_earlier = earlier.counts.iter().all(|(bound, count)| of(bound) >= *count);
        if !is_earlier || earlier.total_us > self.total_us {
            return self.clone();
        }
        let before = |bound: u64| earlier.counts.get(&bound).copied().unwrap_or(0);
        let counts = self.counts().map(|(bound, count)| (bound, count - before(bound)));
        Self::new(counts, self.total_us - earlier.total_us)
    }

    /// Both together.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut counts = self.counts.clone();
        for (bound, count) in other.counts() {
            let sum = counts.entry(bound).or_default();
            *sum = sum.saturating_add(count);
        }
        Self { counts, total_us: self.total_us.saturating_add(other.total_us) }
    }

    /// How long one took on average, in microseconds; nothing of none.
    #[must_use]
    pub fn average_us(&self) -> Option<u64> {
        self.total_us.checked_div(self.count())
    }

    /// The time that so many thousandths of them did not exceed, in microseconds: of `n` sorted from the shortest on, the one at
    /// place ⌈n · `thousandths` ÷ 1000⌉. Nothing of none.
    #[must_use]
    pub fn percentile_us(&self, thousandths: u32) -> Option<u64> {
        let wanted = u128::from(self.count()) * u128::from(thousandths.min(1000));
        let place = u64::try_from(wanted.div_ceil(1000)).unwrap_or(u64::MAX).max(1);
        let mut seen = 0_u64;
        for (bound, count) in self.counts() {
            seen = seen.saturating_add(count);
            if seen >= place {
                return Some(bound);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn noted(times: &[u64]) -> Histogram {
        let histogram = Histogram::default();
        times.iter().for_each(|ns| histogram.note(Duration::from_nanos(*ns)));
        histogram
    }

    /// Buckets follow each other without a gap, each bound is in its bucket and the next microsecond is not.
    #[test]
    fn every_time_has_one_bucket_and_every_bucket_a_bound() {
        for bucket in 0..BUCKETS - 1 {
            let bound = bound_of(bucket);
            assert_eq!((bucket_of(bound), bucket_of(bound + 1)), (bucket, bucket + 1), "{bound} µs");
        }
        assert_eq!(bound_of(BUCKETS - 1), u64::from(u32::MAX));
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    fn times() -> impl Strategy<Value = Vec<u64>> {
        // Of all magnitudes, from nanoseconds to about an hour.
        proptest::collection::vec((0_u32..42).prop_flat_map(|power| 0..1_u64 << power), 1..300)
    }

    proptest! {
        /// Against the times themselves, sorted: never less, and at most a sixteenth and a microsecond more.
        #[test]
        fn a_percentile_is_the_true_one_or_a_sixteenth_more(times in times(), thousandths in 1_u32..=1000) {
            let seen = noted(&times).look();
            let mut sorted = times.clone();
            sorted.sort_unstable();
            let place = (sorted.len() * thousandths as usize).div_ceil(1000);
            let (truth_ns, reported_us) = (sorted[place - 1], seen.percentile_us(thousandths).unwrap());
            prop_assert!(reported_us * 1000 >= truth_ns, "{reported_us} µs for {truth_ns} ns");
            prop_assert!(reported_us * 1000 <= truth_ns + truth_ns / 16 + 1000, "{reported_us} µs for {truth_ns} ns");
            prop_assert_eq!(seen.count(), times.len() as u64);
            prop_assert_eq!(seen.total_us(), times.iter().sum::<u64>() / 1000);
        }

        /// Two looks tell what came in between, whatever came before; and both together are all.
        #[test]
        fn the_difference_of_two_looks_is_what_came_in_between(before in times(), after in times()) {
            let histogram = noted(&before);
            let first = histogram.look();
            after.iter().for_each(|ns| histogram.note(Duration::from_nanos(*ns)));
            let (all, alone) = (histogram.look(), noted(&after).look());
            let between = all.since(&first);
            prop_assert_eq!(between.counts().collect::<Vec<_>>(), alone.counts().collect::<Vec<_>>());
            prop_assert!(between.total_us().abs_diff(alone.total_us()) <= 1);
            prop_assert_eq!(first.and(&between), all);
        }

        /// A daemon that was started again has begun to count again: all that it says came since.
        #[test]
        fn a_restarted_measurement_counts_whole(before in times(), after in times()) {
            let (first, again) = (noted(&before).look(), noted(&after).look());
            let between = again.since(&first);
            prop_assert!(between.count() <= again.count());
            if first.count() > again.count() {
                prop_assert_eq!(between, again);
            }
        }
    }

    #[test]
    fn nothing_has_no_percentile_and_no_average() {
        let none = Distribution::default();
        assert_eq!((none.percentile_us(500), none.average_us(), none.count()), (None, None, 0));
    }

    #[test]
    fn averages_are_of_the_times_themselves_and_not_of_buckets() {
        let seen = noted(&[1_000_000, 2_000_000, 6_000_000]).look();
        assert_eq!(seen.average_us(), Some(3000));
    }
}
