//! Destage of segments that leave a write cache.

use std::time::Duration;

use dolmen_block_io::sleep;
use dolmen_block_io::sync::either;
use dolmen_future_pool::pooled;

use crate::cache::cache_size::CacheResize;
use crate::cache::promise::Reservations;
use crate::format::error::SpaceError;
use crate::policy::destage_rounds::DestageRounds;
use crate::resources::progress::Progress;
use crate::table::space::Cache;
use std::rc::Rc;

/// Destage of segments that leave a write cache.
#[derive(Clone, Copy)]
pub(crate) struct Retiring<'a> {
    cache: &'a Rc<Cache>,
}

impl<'a> Retiring<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Rc<Cache>) -> Self {
        Self { cache }
    }
}

impl Retiring<'_> {
    /// Empties the rows that are to go.
    ///
    /// # Errors
    /// What stands in the way.
    #[pooled]
    pub(crate) async fn empty_retiring(self, progress: &Progress) -> Result<(), SpaceError> {
        let (mut before, mut in_vain) = (u64::MAX, 0);
        loop {
            CacheResize::of(self.cache).may_resize_on(progress).await?;
            let notify = self.cache.notify.wait();
            CacheResize::of(self.cache).check_stays()?;
            CacheResize::of(self.cache).close_retiring();
            progress.done.set(CacheResize::of(self.cache).empty_retiring_count());
            if CacheResize::of(self.cache).can_go() {
                return Ok(());
            }
            let left = CacheResize::of(self.cache).left_to_do();
            in_vain = if left < before { 0 } else { in_vain + 1 };
            before = left;
            let done = if in_vain > TRIES_IN_VAIN_MAX { Ok(false) } else { self.round_for_room().await };
            match done {
                Ok(true) => {}
                Ok(false) if in_vain <= TRIES_IN_VAIN_MAX => {
                    // What clients have reserved may be put in place once it is written: they notify. A deletion whose commit is
                    // under way holds rows as well, and notifies nothing: another look follows soon.
                    let asked = either(notify, progress.asked_otherwise());
                    if Reservations::of(self.cache).waits_for_them() {
                        asked.await;
                    } else {
                        let clock = &self.cache.shared().pool.seams().clock;
                        either(asked, sleep(clock.as_ref(), PAUSE_IN_VAIN)).await;
                    }
                }
                Ok(false) => return Err(SpaceError::CacheFull { name: self.cache.space().name() }),
                Err(error) => return Err(error),
            }
        }
    }

    /// Puts some stripes in place; where the rows that stay lack room, as for somebody who waits for it.
    async fn round_for_room(self) -> Result<bool, SpaceError> {
        let waits = u64::from(CacheResize::of(self.cache).room_missing() > 0);
        self.cache.waiting.set(self.cache.waiting.get() + waits);
        let done = DestageRounds::of(self.cache).round().await;
        self.cache.waiting.set(self.cache.waiting.get() - waits);
        done
    }
}

/// Tries to empty rows that come to nothing one after another before it is said that they cannot be emptied now.
pub(crate) const TRIES_IN_VAIN_MAX: u32 = 8;

/// How long to wait after such a try for what holds the rows, where nothing tells its end.
pub(crate) const PAUSE_IN_VAIN: Duration = Duration::from_millis(50);
