//! A set of LSNs as ranges, because a damaged or forged list may name more of them than memory could hold singly.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use dolmen_units::Lsn;

/// Ranges that neither overlap nor touch, first to last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LsnRanges {
    ranges: BTreeMap<u64, u64>,
}

impl LsnRanges {
    /// Adds `first..=last`; an empty range adds nothing.
    pub(crate) fn insert(&mut self, first: Lsn, last: Lsn) {
        let (mut first, mut last) = (first.0, last.0);
        if first > last {
            return;
        }
        while let Some((start, end)) =
            self.ranges.range(..=last.saturating_add(1)).next_back().map(|(a, b)| (*a, *b))
        {
            if end.saturating_add(1) < first {
                break;
            }
            self.ranges.remove(&start);
            first = first.min(start);
            last = last.max(end);
        }
        self.ranges.insert(first, last);
    }

    pub(crate) fn contains(&self, lsn: Lsn) -> bool {
        self.ranges.range(..=lsn.0).next_back().is_some_and(|(_, last)| *last >= lsn.0)
    }

    /// The parts of `first..=last` that are not in the set, in order.
    pub(crate) fn missing_in(&self, first: Lsn, last: Lsn) -> Vec<RangeInclusive<Lsn>> {
        let mut missing = Vec::new();
        let mut from = first.0;
        for (start, end) in self.ranges.iter().map(|(start, end)| (*start, *end)) {
            if end < from {
                continue;
            }
            if start > last.0 {
                break;
            }
            if start > from {
                missing.push(Lsn(from)..=Lsn(start - 1));
            }
            match end.checked_add(1) {
                Some(next) => from = next,
                None => return missing,
            }
        }
        if from <= last.0 {
            missing.push(Lsn(from)..=last);
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        // Random ranges against a set of single numbers: the same members, and the same gaps.
        #[test]
        fn ranges_hold_what_a_set_holds(added in proptest::collection::vec((0u64..60, 0u64..9), 0..20), first in 0u64..60, length in 0u64..60) {
            let mut ranges = LsnRanges::default();
            let mut set = BTreeSet::new();
            for (first, length) in added {
                ranges.insert(Lsn(first), Lsn(first + length));
                set.extend(first..=first + length);
            }
            for lsn in 0..80 {
                prop_assert_eq!(ranges.contains(Lsn(lsn)), set.contains(&lsn));
            }
            let missing: Vec<u64> =
                ranges.missing_in(Lsn(first), Lsn(first + length)).into_iter().flat_map(|r| r.start().0..=r.end().0).collect();
            let expected: Vec<u64> = (first..=first + length).filter(|lsn| !set.contains(lsn)).collect();
            prop_assert_eq!(missing, expected);
        }
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let mut ranges = LsnRanges::default();
        ranges.insert(Lsn(3), Lsn(u64::MAX));
        ranges.insert(Lsn(u64::MAX), Lsn(u64::MAX));
        ranges.insert(Lsn(0), Lsn(0));
        assert_eq!(ranges.missing_in(Lsn(0), Lsn(u64::MAX)), vec![Lsn(1)..=Lsn(2)]);
        ranges.insert(Lsn(9), Lsn(5));
        assert!(!ranges.contains(Lsn(1)));
    }
}
