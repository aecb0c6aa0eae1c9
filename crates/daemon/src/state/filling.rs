//! How full a pool was, and when it is going to be full.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_units::SpaceId;
use serde::{Deserialize, Serialize};

pub(crate) const HOUR_S: u64 = 3600;

pub(crate) const DAY_S: u64 = 24 * HOUR_S;

/// How long a look at a pool is kept, and how long a pace is reckoned from at most.
pub(crate) const WEEK_S: u64 = 7 * DAY_S;

/// Looks of less than this together say nothing of a pace.
pub(crate) const SPAN_MIN_S: u64 = DAY_S;

/// One each hour of a week, and some.
pub(crate) const LOOKS_MAX: usize = 200;

/// Volumes of a pool whose looks go on record, at most: 600 KiB of text.
const RECORDED_VOLUMES_MAX: usize = 512;

/// Looks of a volume that go on record, at most.
const RECORDED_LOOKS_MAX: usize = 28;

/// Number of days before a pool is full from which on a warning is reported.
pub(crate) const DAYS_REPORTED: u64 = 14;

/// How much of a pool was used, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Look {
    pub(crate) at_s: u64,
    pub(crate) used: u64,
}

/// What is known of how a pool fills.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    pub(crate) looks: RefCell<Vec<Look>>,
    /// Percents of fullness at which the pool warns, ascending.
    pub(crate) thresholds: RefCell<Vec<u8>>,
    pub(crate) is_known: Cell<bool>,
}

impl Filling {
    /// Keeps one look an hour, of a week. A clock that went back forgets what is of the future.
    pub(crate) fn note(&self, now_s: u64, used: u64) {
        let mut looks = self.looks.borrow_mut();
        looks.retain(|look| look.at_s <= now_s && look.at_s + WEEK_S >= now_s);
        if looks.last().is_none_or(|last| last.at_s + HOUR_S <= now_s) {
            looks.push(Look { at_s: now_s, used });
        }
        let surplus = looks.len().saturating_sub(LOOKS_MAX);
        looks.drain(..surplus);
    }

    pub(crate) fn looks(&self) -> Vec<Look> {
        self.looks.borrow().clone()
    }

    pub(crate) fn recall(&self, looks: &[Look]) {
        let mut known = looks.to_vec();
        known.sort_by_key(|look| look.at_s);
        self.looks.replace(known);
    }

    /// Days until `left` bytes more are used at the pace of the last week; `None` where it does not grow, or too little is known.
    pub(crate) fn days_left(&self, now_s: u64, used: u64, left: u64) -> Option<u64> {
        let looks = self.looks.borrow();
        let first = looks.iter().find(|look| look.at_s <= now_s && look.at_s + WEEK_S >= now_s)?;
        let (span_s, grown) = (now_s - first.at_s, used.saturating_sub(first.used));
        if span_s < SPAN_MIN_S || grown == 0 {
            return None;
        }
        let seconds = u128::from(left) * u128::from(span_s) / u128::from(grown);
        u64::try_from(seconds / u128::from(DAY_S)).ok()
    }
}

/// What is known of how the volumes of a pool fill, by the space of each.
#[derive(Debug, Default)]
pub(crate) struct VolumeFillings {
    known: RefCell<BTreeMap<u64, Rc<Filling>>>,
}

impl VolumeFillings {
    /// Returns what is known of one.
    pub(crate) fn of(&self, space: SpaceId) -> Rc<Filling> {
        Rc::clone(self.known.borrow_mut().entry(space.0).or_default())
    }

    /// Returns what goes on record: as much as the file of a pool has room for.
    pub(crate) fn looks(&self) -> BTreeMap<u64, Vec<Look>> {
        let thinned = |looks: Vec<Look>| -> Vec<Look> {
            let step = looks.len().div_ceil(RECORDED_LOOKS_MAX).max(1);
            looks.into_iter().step_by(step).collect()
        };
        let known = self.known.borrow();
        let all = known.iter().map(|(space, filling)| (*space, thinned(filling.looks())));
        all.filter(|(_, looks)| !looks.is_empty()).take(RECORDED_VOLUMES_MAX).collect()
    }

    pub(crate) fn recall(&self, recorded: &BTreeMap<u64, Vec<Look>>) {
        recorded.iter().for_each(|(space, looks)| self.of(SpaceId(*space)).recall(looks));
    }
}

/// The highest threshold that is reached.
pub(crate) fn reached(thresholds: &[u8], used: u64, left: u64) -> Option<u8> {
    let percent = percent_used(used, left);
    thresholds.iter().copied().filter(|at| u128::from(*at) <= percent).max()
}

pub(crate) fn percent_used(used: u64, left: u64) -> u128 {
    u128::from(used) * 100 / u128::from((used + left).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: 600 volumes are looked at each hour of a week. The record keeps its bound, and the rate.
    #[test]
    fn what_goes_on_record_is_bounded_and_keeps_the_rate() {
        let (all, begin) = (VolumeFillings::default(), 1_700_000_000);
        for hour in 0..7 * 24 {
            (0..600).for_each(|space| all.of(SpaceId(space)).note(begin + hour * HOUR_S, hour << 30));
        }
        let recorded = all.looks();
        let text = serde_json::to_string(&recorded).unwrap();
        assert_eq!((recorded.len(), text.len() < 1 << 20), (RECORDED_VOLUMES_MAX, true));
        let again = VolumeFillings::default();
        again.recall(&recorded);
        let days =
            |one: &VolumeFillings| one.of(SpaceId(3)).days_left(begin + 7 * DAY_S, 168 << 30, 240 << 30);
        assert_eq!((days(&all), days(&again)), (Some(10), Some(10)));
    }
}
