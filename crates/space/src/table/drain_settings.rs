//! When and how fast a write cache is emptied: settings in the map of the pool.

use dolmen_pool::{Pool, keys};
use dolmen_units::{Bytes, SpaceId};

use crate::format::error::{DrainLimit, SpaceError};

/// Percents of a cache from which on it can be emptied: below that hardly anything would be written over in it, above it writes
/// would wait.
pub(crate) const FILL_RANGE: (u8, u8) = (5, 90);

pub(crate) const FILL_USUAL: u8 = 25;

/// The slowest that a cache can be emptied, in bytes a second.
pub(crate) const RATE_MIN: Bytes = Bytes::mib(1);

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

pub(crate) fn is_fill(percent: u8) -> bool {
    (FILL_RANGE.0..=FILL_RANGE.1).contains(&percent)
}

/// The keys of all settings of a cache.
pub(crate) fn settings_of(cache: SpaceId) -> [dolmen_store::Key; 2] {
    [keys::setting(cache, FILL), keys::setting(cache, RATE)]
}

pub(crate) async fn number(pool: &Pool, cache: SpaceId, which: u64) -> Result<Option<u64>, SpaceError> {
    let value = pool.map().get(&keys::setting(cache, which)).await?;
    Ok(value.and_then(|value| value.try_into().ok()).map(u64::from_le_bytes))
}
