//! From how much on a write cache is emptied, and how fast (docs/design/0004, *Filling and draining*).
//!
//! Invariant: whoever waits for room is not kept waiting by either.

use std::rc::{Rc, Weak};
use std::time::Duration;

use dolmen_block_io::{Instant, within};

use crate::cache::space::Cache;

const SECOND_NS: u128 = 1_000_000_000;

impl Cache {
    /// Until when what was put in place since a moment is enough, at the rate that is set; `None` when there is no need to wait.
    pub(crate) fn pause_after(&self, began: Instant, bytes: u64) -> Option<Instant> {
        let rate = self.drain.get().rate.filter(|_| !self.has_waiting() && !self.is_deleting.get())?;
        let takes = u128::from(bytes) * SECOND_NS / u128::from(rate.0.max(1));
        let until = began + Duration::from_nanos(u64::try_from(takes).unwrap_or(u64::MAX));
        (until > self.now()).then_some(until)
    }

    /// Empties the cache in a task of its own, unless one is at it: that one's pause ends if somebody waits for room.
    pub(crate) fn empty_soon(self: &Rc<Self>) {
        if self.is_running.replace(true) {
            if self.has_waiting() {
                self.hurry.notify_all();
            }
            return;
        }
        let this = Rc::downgrade(self);
        self.shared().pool.seams().spawner.spawn("destage", Box::pin(empty_at_its_rate(this)));
    }
}

/// Empties a cache, with pauses in which nothing of its pool is held.
async fn empty_at_its_rate(cache: Weak<Cache>) {
    while let Some(this) = cache.upgrade() {
        let Some(until) = this.empty().await else { return };
        let (clock, hurry) = (Rc::clone(&this.shared().pool.seams().clock), Rc::clone(&this.hurry));
        let hurried = hurry.wait();
        drop(this);
        within(clock.as_ref(), until, hurried).await;
    }
}
