//! From how much on a write cache is emptied, and how fast (docs/design/0004, *Filling and draining*).
//!
//! Invariant: whoever waits for room is not kept waiting by either.

use std::rc::{Rc, Weak};
use std::time::Duration;

use dolmen_block_io::{Instant, within};
use dolmen_pool::{Pool, keys};
use dolmen_units::{Bytes, SpaceId};

use crate::cache::write_cache::Cache;
use crate::format::error::{DrainLimit, SpaceError};

/// Percents of a cache from which on it can be emptied: below that hardly anything would be written over in it, above it writes
/// would wait.
const FILL_RANGE: (u8, u8) = (5, 90);
const FILL_USUAL: u8 = 25;
/// The slowest that a cache can be emptied, in bytes a second.
const RATE_MIN: Bytes = Bytes::mib(1);
const SECOND_NS: u128 = 1_000_000_000;

/// Numbers of the settings of a cache, in its keys of the map.
pub(crate) const FILL: u64 = 1;
pub(crate) const RATE: u64 = 2;

/// When a write cache is emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteCacheDrain {
    /// Percent of it that wait to be put in place before that begins, 5 to 90; where the log can name less than all of it, half
    /// of what it can name is enough.
    pub fill: u8,
    /// Bytes a second that are put in place at most, 1 MiB or more, while nobody waits for room; `None` for as many as the disks
    /// take.
    pub rate: Option<Bytes>,
}

impl Default for WriteCacheDrain {
    fn default() -> Self {
        Self { fill: FILL_USUAL, rate: None }
    }
}

impl WriteCacheDrain {
    /// As the map has it. What an unknown version wrote there is none of ours.
    pub(crate) async fn read(pool: &Pool, cache: SpaceId) -> Result<Self, SpaceError> {
        let mut drain = Self::default();
        let fill = number(pool, cache, FILL).await?.and_then(|fill| u8::try_from(fill).ok());
        drain.fill = fill.filter(|fill| is_fill(*fill)).unwrap_or(FILL_USUAL);
        drain.rate = number(pool, cache, RATE).await?.map(Bytes).filter(|rate| *rate >= RATE_MIN);
        Ok(drain)
    }

    pub(crate) fn check(self) -> Result<(), SpaceError> {
        if !is_fill(self.fill) {
            return Err(SpaceError::CacheDrain(DrainLimit::Fill(self.fill)));
        }
        match self.rate.filter(|rate| *rate < RATE_MIN) {
            Some(rate) => Err(SpaceError::CacheDrain(DrainLimit::Rate(rate))),
            None => Ok(()),
        }
    }
}

fn is_fill(percent: u8) -> bool {
    (FILL_RANGE.0..=FILL_RANGE.1).contains(&percent)
}

async fn number(pool: &Pool, cache: SpaceId, which: u64) -> Result<Option<u64>, SpaceError> {
    let value = pool.get(&keys::setting(cache, which)).await?;
    Ok(value.and_then(|value| value.try_into().ok()).map(u64::from_le_bytes))
}

/// The keys of all settings of a cache.
pub(crate) fn settings_of(cache: SpaceId) -> [dolmen_store::Key; 2] {
    [keys::setting(cache, FILL), keys::setting(cache, RATE)]
}

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
