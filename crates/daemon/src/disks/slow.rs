//! Disks that take much longer than the others of their pool (docs/design/0021).
//!
//! Every ten seconds it is looked at what each disk was asked in the minute before, and how long it took. A disk that is slow stays
//! so until as much is known of it as it took to call it slow, and that is well: it is asked little meanwhile.

use dolmen_block_io::Instant;
use dolmen_pool::{Ailment, Disk};

use crate::open_pool::OpenPool;
use crate::state::Slow;

/// How well a disk is that is here, from 0 to 100 (docs/design/0021).
pub(crate) fn score_of(pool: &OpenPool, disk: &Disk) -> u8 {
    let slow = pool.latencies.slow(disk.id()).map_or(0, Slow::times);
    let stated = score(pool.smarts.unseen_defects(disk.id()), 0, pool.smarts.is_failing(disk.id()));
    // Each takes from the same hundred.
    score(pool.errors_of(disk), slow, pool.backing_state_of(disk).is_some()).saturating_sub(100 - stated)
}

/// Looks how fast disks are, and has those that are slow or failing asked, and given new slabs, only where nobody else is.
pub(crate) fn tend_slow_disks(pool: &OpenPool, now: Instant) {
    let disks = pool.spaces.pool().disks();
    pool.latencies.look(&disks, now);
    for disk in &disks {
        let slow = pool.latencies.slow(disk.id()).map(|_| Ailment::Slow);
        let failing = pool.is_failing(disk).then_some(Ailment::Failing);
        disk.set_ailment(failing.or(slow));
    }
}

/// What is taken for an error and for each doubling of their number, for each doubling of the time that a disk takes, and for
/// what has become of what it lies on.
const PER_DOUBLING_OF_ERRORS: u64 = 6;
const PER_DOUBLING_OF_TIME: u64 = 6;
const FOR_BACKING_STATE: u64 = 60;

fn score(errors: u64, times_slower: u64, has_backing_state: bool) -> u8 {
    let doublings = |number: u64| u64::from(number.checked_ilog2().map_or(0, |doublings| doublings + 1));
    let taken = doublings(errors) * PER_DOUBLING_OF_ERRORS
        + doublings(times_slower) * PER_DOUBLING_OF_TIME
        + u64::from(has_backing_state) * FOR_BACKING_STATE;
    u8::try_from(100u64.saturating_sub(taken)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use dolmen_units::DiskId;
    use std::collections::BTreeMap;

    use super::*;
    use crate::state::{Lately, classify};

    fn of(number: u8, is_rotational: bool, means_us: [Option<u64>; 2]) -> Lately {
        Lately { disk: DiskId([number; 16]), is_rotational, means_us }
    }

    const NONE: [u8; 0] = [];

    fn classified(lately: &[Lately], before: &[u8]) -> Vec<u8> {
        let known = Slow { took_us: 1, others_us: 1 };
        let mut slow: BTreeMap<_, _> = before.iter().map(|number| (DiskId([*number; 16]), known)).collect();
        classify(&mut slow, lately);
        slow.keys().filter_map(|disk| disk.0.first().copied()).collect()
    }

    #[test]
    fn a_disk_is_slow_compared_with_others_of_its_kind() {
        let hard = |number, us| of(number, true, [Some(us), None]);
        assert_eq!(classified(&[hard(1, 8_000), hard(2, 400_000), hard(3, 9_000)], &[]), [2]);
        assert_eq!(classified(&[hard(1, 8_000), hard(2, 60_000)], &[]), NONE, "seven times is not slow");
        assert_eq!(
            classified(&[of(1, false, [Some(100), None]), hard(2, 8_000)], &[]),
            NONE,
            "of another sort"
        );
        assert_eq!(
            classified(&[of(1, false, [Some(20), None]), of(2, false, [Some(1_500), None])], &[]),
            NONE
        );
        assert_eq!(classified(&[hard(2, 400_000)], &[]), NONE, "alone it has nothing to be held against");
    }

    /// Writes tell as much as reads; where two are slow of three, the median is one of them, and nobody is called slow.
    #[test]
    fn writes_count_and_the_median_decides() {
        let both = |number, reads, writes| of(number, true, [Some(reads), Some(writes)]);
        assert_eq!(
            classified(&[both(1, 8_000, 9_000), both(2, 8_000, 90_000), both(3, 8_000, 9_000)], &[]),
            [2]
        );
        let two =
            [both(1, 8_000, 8_000), both(2, 400_000, 8_000), both(3, 400_000, 8_000), both(4, 8_000, 8_000)];
        assert_eq!(classified(&two, &[]), [2, 3]);
    }

    #[test]
    fn the_score_goes_down_with_each_doubling() {
        assert_eq!(score(0, 0, false), 100);
        assert_eq!([1, 2, 3, 4, 1000].map(|errors| score(errors, 0, false)), [94, 88, 88, 82, 40]);
        assert_eq!(score(0, 50, false), 64);
        assert_eq!(score(u64::MAX, 1 << 40, true), 0);
    }

    #[test]
    fn a_slow_disk_stays_so_until_it_is_known_to_be_well() {
        let other = of(1, true, [Some(8_000), None]);
        assert_eq!(classified(&[other, of(2, true, [None, None])], &[2]), [2], "nothing is known");
        assert_eq!(
            classified(&[other, of(2, true, [Some(40_000), None])], &[2]),
            [2],
            "five times is not well"
        );
        assert_eq!(classified(&[other, of(2, true, [Some(16_000), None])], &[2]), NONE);
    }
}
