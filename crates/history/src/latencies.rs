//! Latency counts, coarse enough to be kept for years: buckets of a quarter of a power of two.

/// Buckets of a power of two, as a shift.
const PARTS_SHIFT: u32 = 2;
/// Number of buckets: up to 2^32 microseconds, as those of crate `latency`.
const BUCKETS: u8 = 124;

const _: () = assert!(BUCKETS as u32 == ((32 - PARTS_SHIFT - 1) << PARTS_SHIFT) + (2 << PARTS_SHIFT));

/// Number of requests by how long they took.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Latencies {
    /// Bucket and count, ascending; no count is zero.
    counts: Vec<(u8, u64)>,
}

fn bucket_of(us: u64) -> u8 {
    let power = u64::BITS - us.leading_zeros();
    let shift = power.saturating_sub(PARTS_SHIFT + 1);
    let bucket = (u64::from(shift) << PARTS_SHIFT) + (us >> shift);
    u8::try_from(bucket).unwrap_or(u8::MAX).min(BUCKETS - 1)
}

/// Returns the longest time of a bucket, in microseconds.
fn bound_of(bucket: u8) -> u64 {
    let bucket = u64::from(bucket);
    let parts = 1 << PARTS_SHIFT;
    if bucket < 2 * parts {
        return bucket;
    }
    let shift = bucket / parts - 1;
    ((bucket % parts + parts + 1) << shift) - 1
}

impl Latencies {
    /// Counts by the bounds of finer buckets, in microseconds.
    #[must_use]
    pub fn of(counts: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut all = Self::default();
        for (us, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            all.add_to(bucket_of(us), count);
        }
        all
    }

    /// Puts stored counts together again; `None` where they are not ascending, or of no bucket.
    pub(crate) fn of_stored(counts: Vec<(u8, u64)>) -> Option<Self> {
        let is_ascending = counts.windows(2).all(|pair| matches!(pair, [one, next] if one.0 < next.0));
        let is_sound = counts.iter().all(|(bucket, count)| *bucket < BUCKETS && *count > 0);
        (is_ascending && is_sound).then_some(Self { counts })
    }

    pub(crate) fn stored(&self) -> &[(u8, u64)] {
        &self.counts
    }

    fn add_to(&mut self, bucket: u8, count: u64) {
        match self.counts.binary_search_by_key(&bucket, |one| one.0) {
            Ok(at) => {
                if let Some(one) = self.counts.get_mut(at) {
                    one.1 = one.1.saturating_add(count);
                }
            }
            Err(at) => self.counts.insert(at, (bucket, count)),
        }
    }

    /// Adds those of another stretch of time.
    pub fn add(&mut self, other: &Self) {
        other.counts.iter().for_each(|(bucket, count)| self.add_to(*bucket, *count));
    }

    /// Number of requests.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// The time that so many thousandths of the requests did not exceed, in microseconds; at most a quarter and a microsecond more
    /// than the true one. Nothing of no requests.
    #[must_use]
    pub fn percentile_us(&self, thousandths: u32) -> Option<u64> {
        let wanted = u128::from(self.count()) * u128::from(thousandths.min(1000));
        let place = u64::try_from(wanted.div_ceil(1000)).unwrap_or(u64::MAX).max(1);
        let mut seen = 0_u64;
        for (bucket, count) in &self.counts {
            seen = seen.saturating_add(*count);
            if seen >= place {
                return Some(bound_of(*bucket));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Buckets follow each other without a gap: each bound is in its bucket, and the next microsecond is not.
    #[test]
    fn every_time_has_one_bucket_and_every_bucket_a_bound() {
        for bucket in 0..BUCKETS - 1 {
            let bound = bound_of(bucket);
            assert_eq!((bucket_of(bound), bucket_of(bound + 1)), (bucket, bucket + 1), "{bound} µs");
        }
        assert_eq!(bound_of(BUCKETS - 1), u64::from(u32::MAX));
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    proptest! {
        /// Two lots of times, folded: the percentile is that of all times together, or at most a quarter more.
        #[test]
        fn percentiles_of_folded_latencies_are_those_of_all_requests(
            one in proptest::collection::vec(0_u64..5_000_000, 0..200),
            other in proptest::collection::vec(0_u64..5_000_000, 1..200),
            thousandths in 1_u32..=1000,
        ) {
            let of = |times: &[u64]| Latencies::of(times.iter().map(|us| (*us, 1)));
            let mut folded = of(&one);
            folded.add(&of(&other));
            let mut all: Vec<u64> = one.into_iter().chain(other).collect();
            all.sort_unstable();
            let truth = all[(all.len() * thousandths as usize).div_ceil(1000) - 1];
            let found = folded.percentile_us(thousandths).unwrap();
            prop_assert!((truth..=truth + truth / 4 + 1).contains(&found), "{found} for {truth}");
            prop_assert_eq!(folded.count(), all.len() as u64);
        }
    }
}
