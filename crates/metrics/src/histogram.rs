//! Latency histograms with fixed buckets, folded from the fine ones of the documents.
//!
//! A document lists only buckets that hold something, each a sixteenth of a power of two wide. A fine bucket counts below a bound here
//! when its longest request does, so a request is never counted as faster than it was, and as slower by a sixteenth at most.

use dolmen_api::IoFigures;

/// Upper bounds of the buckets in microseconds, shortest first; one without a bound follows them.
pub const BOUNDS_US: [u64; 18] = [
    20, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000, 30_000_000,
];

/// A histogram with the fixed buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Folded {
    /// Requests up to each bound, those up to lower bounds included.
    up_to: [u64; BOUNDS_US.len()],
    count: u64,
    total_us: u64,
}

impl Folded {
    pub(crate) fn of(io: &IoFigures) -> Self {
        let count_up_to = |bound: u64| {
            let within = io.latency.iter().filter(|bucket| bucket.up_to_us <= bound);
            within.fold(0u64, |sum, bucket| sum.saturating_add(bucket.count))
        };
        Self { up_to: BOUNDS_US.map(count_up_to), count: count_up_to(u64::MAX), total_us: io.total_us }
    }

    /// Bounds in microseconds, with the requests up to each.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        BOUNDS_US.into_iter().zip(self.up_to)
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn total_us(&self) -> u64 {
        self.total_us
    }
}

#[cfg(test)]
mod tests {
    use dolmen_api::LatencyBucket;

    use super::*;

    #[test]
    fn a_fine_bucket_counts_from_the_first_bound_that_holds_all_of_it() {
        let bucket = |up_to_us, count| LatencyBucket { up_to_us, count };
        let latency = vec![bucket(20, 1), bucket(21, 2), bucket(1023, 4), bucket(40_000_000, 8)];
        let io = IoFigures { count: 15, bytes: 0, total_us: 7, latency };
        let folded = Folded::of(&io);
        let up_to = |us| folded.buckets().find(|(bound, _)| *bound == us).map(|(_, count)| count);
        assert_eq!([20, 50, 1_000, 2_500, 30_000_000].map(up_to), [1, 3, 3, 7, 7].map(Some));
        assert_eq!(folded.count(), 15);
    }

    #[test]
    fn bounds_grow() {
        assert!(BOUNDS_US.is_sorted_by(|a, b| a < b));
    }
}
