//! How long the disks of a pool took lately, and which of them are slow.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use dolmen_block_io::{Instant, READ_HEDGE_DELAY};
use dolmen_pool::Disk;
use dolmen_units::DiskId;
use serde::{Deserialize, Serialize};

/// How often it is looked, and how far back.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(10);

pub(crate) const LOOKS: usize = 7;

/// Of fewer requests nothing is said, unless a few took so long together: a disk that is slow is asked little.
pub(crate) const REQUESTS_MIN: u64 = 20;

pub(crate) const FEW_REQUESTS_MIN: u64 = 3;

pub(crate) const FEW_REQUESTS_US: u64 = 250_000;

/// A disk that takes so many times as long as the others is slow; one that takes less than so many times as long is well again.
pub(crate) const SLOW_TIMES: u64 = 8;

pub(crate) const WELL_TIMES: u64 = 3;

/// What takes no longer than this is slow nowhere.
pub(crate) const SLOW_US_MIN: u64 = 2_000;

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
pub(crate) struct Sum {
    pub(crate) count: u64,
    pub(crate) us: u64,
}

impl Sum {
    pub(crate) fn since(self, before: Self) -> Self {
        Self { count: self.count.saturating_sub(before.count), us: self.us.saturating_sub(before.us) }
    }

    /// How long one took on average, where there were enough of them.
    pub(crate) fn mean_us(self) -> Option<u64> {
        let are_enough =
            self.count >= REQUESTS_MIN || (self.count >= FEW_REQUESTS_MIN && self.us >= FEW_REQUESTS_US);
        are_enough.then(|| self.us / self.count)
    }
}

/// What a disk was asked since it came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) since: Instant,
    /// Reads; writes and flushes.
    pub(crate) sums: [Sum; 2],
}

/// What was seen of a disk lately.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lately {
    pub(crate) disk: DiskId,
    pub(crate) is_rotational: bool,
    /// How long reads took, and writes, where there were enough of them.
    pub(crate) means_us: [Option<u64>; 2],
}

pub(crate) struct Look {
    pub(crate) at: Instant,
    pub(crate) disks: BTreeMap<DiskId, Asked>,
}

/// How fast the disks of a pool are beside each other.
#[derive(Default)]
pub(crate) struct DiskLatencies {
    pub(crate) looks: RefCell<VecDeque<Look>>,
    pub(crate) slow: RefCell<BTreeMap<DiskId, Slow>>,
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
    pub(crate) fn look(&self, disks: &[std::rc::Rc<Disk>], now: Instant) {
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
pub(crate) fn asked(disk: &Disk) -> Option<Asked> {
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
pub(crate) fn lately(disk: &Disk, oldest: &Look, newest: &Look) -> Option<Lately> {
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
pub(crate) fn classify(slow: &mut BTreeMap<DiskId, Slow>, lately: &[Lately]) {
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

pub(crate) fn median(mut all: Vec<u64>) -> Option<u64> {
    all.sort_unstable();
    all.get(all.len().checked_sub(1)? / 2).copied()
}
