//! What is measured: layouts, kinds of I/O, sizes, depths and flushes, and which of their combinations say something.

use clap::ValueEnum;
use dolmen_space::Resiliency;
use dolmen_units::{BLOCK_BYTES, Bytes};
use serde::Serialize;

/// Client bytes of the range that is overwritten and read.
pub(crate) const BASE_BYTES: u64 = 128 << 20;
/// Client bytes of the range that is written for the first time, per round.
pub(crate) const FRESH_BYTES: u64 = 128 << 20;
/// Blocks that a round of rewrites may write: fewer than the engine lets rest unflushed, because after a flush of its
/// own the same writes would be overwrites.
const REWRITE_BLOCKS_MAX: u64 = 16 * 1024;
/// Places of the window that is rewritten, at most.
const REWRITE_PLACES_MAX: u64 = 256;
/// I/Os of a round of rewrites, at most: at depth 1 each takes a batch of the log, which must not fill to the half.
const REWRITE_OPERATIONS_MAX: u64 = 1200;
/// Distance of cold reads: what one page of a table describes, so that none finds its page in memory.
const COLD_STEP_BYTES: u64 = 504 * BLOCK_BYTES;

/// How a space keeps its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Layout {
    /// One copy
    Simple,
    /// Two copies
    Mirror2,
    /// Three copies
    Mirror3,
}

impl Layout {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Mirror2 => "mirror2",
            Self::Mirror3 => "mirror3",
        }
    }

    pub(crate) fn copies(self) -> usize {
        match self {
            Self::Simple => 1,
            Self::Mirror2 => 2,
            Self::Mirror3 => 3,
        }
    }

    pub(crate) fn resiliency(self) -> Resiliency {
        match self {
            Self::Simple => Resiliency::Simple,
            Self::Mirror2 => Resiliency::Mirror { copies: 2 },
            Self::Mirror3 => Resiliency::Mirror { copies: 3 },
        }
    }
}

/// What the client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Writes of what was never written, in order
    Fresh,
    /// Writes of what was written since the last flush
    Rewrite,
    /// Random writes over flushed content
    Overwrite,
    /// Random reads, tables in memory
    Warm,
    /// Reads after the pool was opened again, each of another page of the tables
    Cold,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Rewrite => "rewrite",
            Self::Overwrite => "overwrite",
            Self::Warm => "warm read",
            Self::Cold => "cold read",
        }
    }

    pub(crate) fn is_write(self) -> bool {
        matches!(self, Self::Fresh | Self::Rewrite | Self::Overwrite)
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Case {
    pub(crate) layout: Layout,
    pub(crate) kind: Kind,
    pub(crate) size_bytes: u64,
    pub(crate) depth: u64,
    /// A flush follows each write whose number is a multiple of this; `None` for no flush.
    pub(crate) flush_every: Option<u64>,
}

/// How the I/Os of a round are spread over a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Round {
    /// Length of the range.
    pub(crate) range_bytes: u64,
    /// I/Os of a round, at most; `None` for as many as there is time for.
    pub(crate) operations_max: Option<u64>,
    /// I/Os before anything is counted.
    pub(crate) warmup: u64,
}

impl Case {
    pub(crate) fn round(&self) -> Round {
        let blocks = self.size_bytes / BLOCK_BYTES;
        let warmup = self.depth * 4;
        match self.kind {
            Kind::Fresh => {
                let operations_max = Some(FRESH_BYTES / self.size_bytes);
                Round { range_bytes: FRESH_BYTES, operations_max, warmup: self.depth * 2 }
            }
            Kind::Rewrite => {
                let places = REWRITE_PLACES_MAX.min(REWRITE_BLOCKS_MAX / 4 / blocks);
                let left = REWRITE_BLOCKS_MAX / blocks - places;
                Round {
                    range_bytes: places * self.size_bytes,
                    operations_max: Some(left.min(REWRITE_OPERATIONS_MAX)),
                    // What can be written is little, so that less of it is spent on warming up.
                    warmup: self.depth.min(left / 4),
                }
            }
            Kind::Overwrite | Kind::Warm => Round { range_bytes: BASE_BYTES, operations_max: None, warmup },
            Kind::Cold => {
                let operations_max = Some(BASE_BYTES / COLD_STEP_BYTES);
                Round { range_bytes: BASE_BYTES, operations_max, warmup: 0 }
            }
        }
    }

    /// Where the I/O with this number goes.
    pub(crate) fn place(&self, number: u64) -> u64 {
        let round = self.round();
        let places = round.range_bytes / self.size_bytes;
        match self.kind {
            Kind::Fresh | Kind::Rewrite => number % places * self.size_bytes,
            Kind::Overwrite | Kind::Warm => scatter(number) % places * self.size_bytes,
            Kind::Cold => {
                let at = number * COLD_STEP_BYTES;
                at.min(round.range_bytes - self.size_bytes) / BLOCK_BYTES * BLOCK_BYTES
            }
        }
    }

    /// Whether a flush follows the write with this number.
    pub(crate) fn flushes_after(&self, number: u64) -> bool {
        self.flush_every.is_some_and(|every| (number + 1).is_multiple_of(every))
    }
}

/// A number that looks random and is the same each time (the finaliser of SplitMix64).
pub(crate) fn scatter(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What to combine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) layouts: Vec<Layout>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) sizes: Vec<Bytes>,
    pub(crate) depths: Vec<u64>,
}

impl Choice {
    /// Every case of one layout, in the order of the table.
    pub(crate) fn cases(&self, layout: Layout) -> Vec<Case> {
        let mut cases = Vec::new();
        for &kind in &self.kinds {
            for size in &self.sizes {
                for &depth in &self.depths {
                    let case = |flush_every| Case { layout, kind, size_bytes: size.0, depth, flush_every };
                    cases.extend(flushes(kind).iter().map(|every| case(*every)));
                }
            }
        }
        cases
    }
}

/// A rewrite behind a flush is an overwrite by definition, so rewrites have no variant with flushes.
fn flushes(kind: Kind) -> &'static [Option<u64>] {
    match kind {
        Kind::Fresh | Kind::Overwrite => &[None, Some(32), Some(1)],
        Kind::Rewrite | Kind::Warm | Kind::Cold => &[None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Case> {
        let choice = Choice {
            layouts: vec![Layout::Simple],
            kinds: vec![Kind::Fresh, Kind::Rewrite, Kind::Overwrite, Kind::Warm, Kind::Cold],
            sizes: vec![Bytes::kib(4), Bytes::kib(64), Bytes::mib(1)],
            depths: vec![1, 32],
        };
        choice.cases(Layout::Simple)
    }

    #[test]
    fn every_case_stays_in_its_range_and_has_something_to_count() {
        for case in all() {
            let round = case.round();
            let count = round.operations_max.unwrap_or(1000);
            assert!(round.warmup < count, "{case:?}");
            for number in 0..count + 1 {
                let at = case.place(number);
                assert!(
                    at.is_multiple_of(BLOCK_BYTES) && at + case.size_bytes <= round.range_bytes,
                    "{case:?} {number}"
                );
            }
        }
    }

    #[test]
    fn fresh_writes_never_meet_and_cold_reads_never_share_a_page() {
        for case in all().into_iter().filter(|case| matches!(case.kind, Kind::Fresh | Kind::Cold)) {
            let count = case.round().operations_max.unwrap();
            let step = if case.kind == Kind::Cold { COLD_STEP_BYTES } else { case.size_bytes };
            let mut places: Vec<u64> = (0..count).map(|number| case.place(number) / step).collect();
            places.dedup();
            assert_eq!(places.len() as u64, count, "{case:?}");
        }
    }

    #[test]
    fn a_flush_follows_each_write_or_each_thirty_second_or_none() {
        let count = |flush_every| {
            let case =
                Case { layout: Layout::Simple, kind: Kind::Fresh, size_bytes: 4096, depth: 1, flush_every };
            (0..64).filter(|number| case.flushes_after(*number)).count()
        };
        assert_eq!([count(None), count(Some(32)), count(Some(1))], [0, 2, 64]);
    }
}
