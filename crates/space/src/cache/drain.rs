//! From how much on a write cache is emptied, and how fast (docs/design/0004, *Filling and draining*).
//!
//! Invariant: whoever waits for room is not kept waiting by either.

use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::Instant;

use crate::cache::segments::CacheIndex;
use crate::table::space::Cache;

const SECOND_NS: u128 = 1_000_000_000;

/// Start and pauses of the destage of a write cache.
#[derive(Clone, Copy)]
pub(crate) struct Drain<'a> {
    cache: &'a Rc<Cache>,
}

impl<'a> Drain<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Rc<Cache>) -> Self {
        Self { cache }
    }
}

impl Drain<'_> {
    /// Until when what was put in place since a moment is enough, at the rate that is set; `None` when there is no need to wait.
    pub(crate) fn pause_after(self, began: Instant, bytes: u64) -> Option<Instant> {
        let rate = self
            .cache
            .drain
            .get()
            .rate
            .filter(|_| !CacheIndex::of(self.cache).has_waiting() && !self.cache.is_deleting.get())?;
        let takes = u128::from(bytes) * SECOND_NS / u128::from(rate.0.max(1));
        let until = began + Duration::from_nanos(u64::try_from(takes).unwrap_or(u64::MAX));
        (until > CacheIndex::of(self.cache).now()).then_some(until)
    }

    /// Empties the cache in a task of its own, unless one is at it: that one's pause ends if somebody waits for room.
    pub(crate) fn empty_soon(self) {
        if self.cache.is_running.replace(true) {
            if CacheIndex::of(self.cache).has_waiting() {
                self.cache.hurry.notify_all();
            }
            return;
        }
        let this = Rc::downgrade(self.cache);
        self.cache.shared().pool.seams().spawner.spawn("destage", self.cache.shared().upper.destage(this));
    }
}
