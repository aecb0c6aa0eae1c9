//! How full a pool was, and when it is going to be full.

use std::cell::{Cell, RefCell};

use serde::{Deserialize, Serialize};

pub(crate) const HOUR_S: u64 = 3600;

pub(crate) const DAY_S: u64 = 24 * HOUR_S;

/// How long a look at a pool is kept, and how long a pace is reckoned from at most.
pub(crate) const WEEK_S: u64 = 7 * DAY_S;

/// Looks of less than this together say nothing of a pace.
pub(crate) const SPAN_MIN_S: u64 = DAY_S;

/// One each hour of a week, and some.
pub(crate) const LOOKS_MAX: usize = 200;

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

/// The highest threshold that is reached.
pub(crate) fn reached(thresholds: &[u8], used: u64, left: u64) -> Option<u8> {
    let percent = percent_used(used, left);
    thresholds.iter().copied().filter(|at| u128::from(*at) <= percent).max()
}

pub(crate) fn percent_used(used: u64, left: u64) -> u128 {
    u128::from(used) * 100 / u128::from((used + left).max(1))
}
