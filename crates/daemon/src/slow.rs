//! Disks that take much longer than the others of their pool (docs/design/0021).
//!
//! Every ten seconds it is looked at what each disk was asked in the minute before, and how long it took. A disk that is slow stays
//! so until as much is known of it as it took to call it slow, and that is well: it is asked little meanwhile.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use dolmen_block_io::{Instant, READ_HEDGE_DELAY};
use dolmen_pool::{Ailment, Disk};
use dolmen_units::DiskId;
use serde::{Deserialize, Serialize};

use crate::engine::OpenPool;

/// How often it is looked, and how far back.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const LOOKS: usize = 7;
/// Of fewer requests nothing is said, unless a few took so long together: a disk that is slow is asked little.
const REQUESTS_MIN: u64 = 20;
const FEW_REQUESTS_MIN: u64 = 3;
const FEW_REQUESTS_US: u64 = 250_000;
/// A disk that takes so many times as long as the others is slow; one that takes less than so many times as long is well again.
const SLOW_TIMES: u64 = 8;
const WELL_TIMES: u64 = 3;
/// What takes no longer than this is slow nowhere.
const SLOW_US_MIN: u64 = 2_000;

/// How slow a disk was, when it was so last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Slow {
    /// How long requests of it took on average, in microseconds.
    pub(crate) took_us: u64,
    /// How long those of the others did.
    pub(crate) others_us: u64,
}

impl Slow {
    /// How many times as long as the others.
    pub(crate) fn times(self) -> u64 {
        self.took_us / self.others_us
    }
}

/// Requests of one kind.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    count: u64,
    us: u64,
}

impl Sum {
    fn since(self, before: Self) -> Self {
        Self { count: self.count.saturating_sub(before.count), us: self.us.saturating_sub(before.us) }
    }

    /// How long one took on average, where there were enough of them.
    fn mean_us(self) -> Option<u64> {
        let are_enough =
            self.count >= REQUESTS_MIN || (self.count >= FEW_REQUESTS_MIN && self.us >= FEW_REQUESTS_US);
        are_enough.then(|| self.us / self.count)
    }
}

/// What a disk was asked since it came.
#[derive(Debug, Clone, Copy)]
struct Asked {
    since: Instant,
    /// Reads; writes and flushes.
    sums: [Sum; 2],
}

/// What was seen of a disk lately.
#[derive(Debug, Clone, Copy)]
struct Lately {
    disk: DiskId,
    is_rotational: bool,
    /// How long reads took, and writes, where there were enough of them.
    means_us: [Option<u64>; 2],
}

struct Look {
    at: Instant,
    disks: BTreeMap<DiskId, Asked>,
}

/// How fast the disks of a pool are beside each other.
#[derive(Default)]
pub(crate) struct DiskLatencies {
    looks: RefCell<VecDeque<Look>>,
    slow: RefCell<BTreeMap<DiskId, Slow>>,
}

impl DiskLatencies {
    /// How slow a disk is, if it is.
    pub(crate) fn slow(&self, disk: DiskId) -> Option<Slow> {
        self.slow.borrow().get(&disk).copied()
    }

    /// Notes what was known before.
    pub(crate) fn note(&self, disk: DiskId, slow: Slow) {
        self.slow.borrow_mut().insert(disk, slow);
    }

    /// Forgets it: somebody has seen it. What goes on is seen again.
    pub(crate) fn forget(&self) {
        self.looks.borrow_mut().clear();
        self.slow.borrow_mut().clear();
    }

    /// Looks at the disks of a pool, if it is time to.
    fn look(&self, disks: &[std::rc::Rc<Disk>], now: Instant) {
        let mut looks = self.looks.borrow_mut();
        if looks.back().is_some_and(|last| now.since(last.at) < LOOK_EVERY) {
            return;
        }
        let here = disks.iter().filter_map(|disk| Some((disk.id(), asked(disk)?)));
        let newest = Look { at: now, disks: here.collect() };
        if let Some(oldest) = looks.front() {
            let lately: Vec<Lately> = disks.iter().filter_map(|disk| lately(disk, oldest, &newest)).collect();
            classify(&mut self.slow.borrow_mut(), &lately);
        }
        looks.push_back(newest);
        if looks.len() > LOOKS {
            looks.pop_front();
        }
    }
}

/// What a disk was asked. A read that did not come in time took that time, as far as anybody knows.
fn asked(disk: &Disk) -> Option<Asked> {
    let seen = disk.device()?.meter()?.look();
    let late = disk.counters().timed_out_reads;
    let timed_out_us = late.saturating_mul(u64::try_from(READ_HEDGE_DELAY.as_micros()).unwrap_or(u64::MAX));
    let reads = Sum {
        count: seen.reads.latency.count().saturating_add(late),
        us: seen.reads.latency.total_us().saturating_add(timed_out_us),
    };
    let writes = Sum {
        count: seen.writes.latency.count().saturating_add(seen.flushes.latency.count()),
        us: seen.writes.latency.total_us().saturating_add(seen.flushes.latency.total_us()),
    };
    Some(Asked { since: seen.since, sums: [reads, writes] })
}

/// What was seen of a disk between two looks; nothing of one that came or went meanwhile.
fn lately(disk: &Disk, oldest: &Look, newest: &Look) -> Option<Lately> {
    let (before, now) = (oldest.disks.get(&disk.id())?, newest.disks.get(&disk.id())?);
    let is_rotational = disk.geometry()?.rotational;
    let mean = |kind: usize| now.sums.get(kind)?.since(*before.sums.get(kind)?).mean_us();
    (before.since == now.since).then(|| Lately {
        disk: disk.id(),
        is_rotational,
        means_us: [mean(0), mean(1)],
    })
}

/// Says of each disk whether it is slow beside the others of its sort.
fn classify(slow: &mut BTreeMap<DiskId, Slow>, lately: &[Lately]) {
    for one in lately {
        let found = (0..2).filter_map(|kind| {
            let took_us = one.means_us.get(kind).copied().flatten()?;
            let is_peer =
                |other: &&Lately| other.disk != one.disk && other.is_rotational == one.is_rotational;
            let peers = lately.iter().filter(is_peer);
            let others_us = median(peers.filter_map(|other| *other.means_us.get(kind)?).collect())?;
            Some(Slow { took_us, others_us: others_us.max(1) })
        });
        let Some(worst) = found.max_by_key(|one| one.times()) else { continue };
        let times = worst.times();
        if times >= SLOW_TIMES && worst.took_us >= SLOW_US_MIN {
            slow.insert(one.disk, worst);
        } else if times < WELL_TIMES || worst.took_us < SLOW_US_MIN {
            slow.remove(&one.disk);
        }
    }
}

fn median(mut all: Vec<u64>) -> Option<u64> {
    all.sort_unstable();
    all.get(all.len().checked_sub(1)? / 2).copied()
}

impl OpenPool {
    /// Looks how fast disks are, and has those that are slow or failing asked, and given new slabs, only where nobody else is.
    pub(crate) fn tend_slow_disks(&self, now: Instant) {
        let disks = self.spaces.pool().disks();
        self.latencies.look(&disks, now);
        for disk in &disks {
            let slow = self.latencies.slow(disk.id()).map(|_| Ailment::Slow);
            let failing = self.is_failing(disk).then_some(Ailment::Failing);
            disk.set_ailment(failing.or(slow));
        }
    }

    /// How well a disk is that is here, from 0 to 100 (docs/design/0021).
    pub(crate) fn score(&self, disk: &Disk) -> u8 {
        let slow = self.latencies.slow(disk.id()).map_or(0, Slow::times);
        let stated = score(self.smarts.unseen_defects(disk.id()), 0, self.smarts.is_failing(disk.id()));
        // Each takes from the same hundred.
        score(self.errors_of(disk), slow, self.backing_state_of(disk).is_some()).saturating_sub(100 - stated)
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
    use super::*;

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
