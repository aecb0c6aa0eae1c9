//! Rounds of the destage of a write cache.

use std::rc::Rc;
use std::rc::Weak;

use dolmen_block_io::Instant;
use dolmen_block_io::within;
use dolmen_causes::in_one_line;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;

use crate::cache::destage::ROUND_BLOCKS;
use crate::cache::drain::Drain;
use crate::cache::fill::SegmentFill;
use crate::cache::promise::Reservations;
use crate::cache::recycle::Recycling;
use crate::cache::segments::{CacheIndex, Filling};
use crate::format::error::SpaceError;
use crate::policy::copies::CacheCopies;
use crate::relocation::destage_stripes::Destage;
use crate::resolution::replay::CacheReplay;
use crate::row_io::flusher::Flusher;
use crate::table::space::Cache;

/// Rounds of the destage of a write cache.
#[derive(Clone, Copy)]
pub(crate) struct DestageRounds<'a> {
    cache: &'a Rc<Cache>,
}

impl<'a> DestageRounds<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Rc<Cache>) -> Self {
        Self { cache }
    }
}

impl DestageRounds<'_> {
    /// Puts in place until nothing has to be; or until enough was for now, and until when it was.
    #[pooled]
    pub(crate) async fn empty(self) -> Option<Instant> {
        loop {
            let has_promised = Reservations::of(self.cache).has_promised();
            let (began, before) = (CacheIndex::of(self.cache).now(), self.cache.destaged.total());
            self.cache.tries.set(self.cache.tries.get() + 1);
            let stuck = match self.round().await {
                Ok(true) => None,
                Ok(false) => Some(SpaceError::CacheFull { name: self.cache.space().name() }),
                Err(error) => Some(error),
            };
            let is_stuck = stuck.is_some();
            if is_stuck && has_promised {
                if Reservations::of(self.cache).waits_for_them() {
                    break;
                }
                // What they have written meanwhile may be put in place.
                continue;
            }
            if let Some(error) = &stuck {
                tracing::warn!(pool = %self.cache.shared().pool.name(), error = %in_one_line(error), "the write cache cannot be emptied now");
            }
            *self.cache.stuck.borrow_mut() = stuck.map(|error| (self.cache.tries.get(), error));
            self.cache.notify.notify_all();
            // Whoever waits looks first whether it has room now, and asks again if not.
            if is_stuck || !CacheIndex::of(self.cache).is_congested() {
                break;
            }
            let pause = Drain::of(self.cache).pause_after(began, self.cache.destaged.total() - before);
            if pause.is_some() {
                return pause;
            }
        }
        self.cache.is_running.set(false);
        None
    }

    /// Puts everything in place that can be.
    ///
    /// # Errors
    /// What stands in the way.
    pub(crate) async fn empty_all(self) -> Result<(), SpaceError> {
        if !mutation!(CopiesBeforeFlush) {
            Flusher::of(self.cache.shared()).force_flush().await?;
        }
        SegmentFill::of(self.cache).close(Filling::Writes);
        while self.round().await? {
            SegmentFill::of(self.cache).close(Filling::Writes);
        }
        Ok(())
    }

    /// Puts some stripes in place, or gets rows of the cache ready to be filled again; whether anything came of it.
    #[pooled]
    pub(crate) async fn round(self) -> Result<bool, SpaceError> {
        let wants_copies = self.cache.waits_for_copies.take() || !self.cache.unfinished.borrow().is_empty();
        let has_brought = wants_copies && CacheCopies::of(self.cache).bring_rows(usize::MAX).await?;
        // Before the turn, which the checkpoint takes that makes room.
        let _log_room = Flusher::of(self.cache.shared()).room_for(ROUND_BLOCKS).await?;
        let _exclusive = self.cache.mutex.take().await;
        self.cache.backing_full.borrow_mut().clear();
        self.cache.lacks_room.borrow_mut().take();
        let mut has_done = Recycling::of(self.cache).recycle().await? || has_brought;
        if !self.cache.unfinished.borrow().is_empty() {
            has_done |= Recycling::of(self.cache).make_ready().await?;
        }
        // Stripes that wait, for disks or for room, keep nothing else back.
        let waits = match CacheReplay::of(self.cache).finish_stripes().await {
            Ok(done) => {
                has_done |= done;
                None
            }
            Err(error) if error.may_pass() => Some(error),
            Err(error) => return Err(error),
        };
        has_done |= self.destage_some(has_done).await?;
        // The next round brings them.
        has_done |= self.cache.waits_for_copies.get();
        if !has_done && CacheIndex::of(self.cache).has_recyclable() {
            // What was abandoned is not covered yet, then its discard.
            Flusher::of(self.cache.shared()).force_flush().await?;
            has_done = Recycling::of(self.cache).recycle().await?;
            Flusher::of(self.cache.shared()).force_flush().await?;
            has_done |= Recycling::of(self.cache).recycle().await?;
        }
        match waits.or(self.cache.lacks_room.take()) {
            Some(error) if !has_done => Err(error),
            _ => Ok(has_done),
        }
    }

    /// Puts stripes in place: of the oldest row of the cache of which any can be; else of the row that is being filled with parity,
    /// and of that of writes, if room is wanted; else of those that were only discarded. What is in one row may wait for disks, and the rest not. Whether any was.
    #[pooled]
    async fn destage_some(self, has_freed: bool) -> Result<bool, SpaceError> {
        for _ in 0..CacheIndex::of(self.cache).full_count() {
            let Some(oldest) = CacheIndex::of(self.cache).oldest() else { break };
            if Destage::of(self.cache)
                .destage_blocks(CacheIndex::of(self.cache).blocks_in(oldest), Some(oldest))
                .await?
            {
                return Ok(true);
            }
            CacheIndex::of(self.cache).pass_over(oldest);
        }
        // It may have been closed before, with what clients wrote in it.
        let of_parity = CacheIndex::of(self.cache)
            .open_for(Filling::Parity)
            .get()
            .map(|at| CacheIndex::of(self.cache).blocks_in(at));
        if Destage::of(self.cache).destage_blocks(of_parity.unwrap_or_default(), None).await? {
            return Ok(true);
        }
        let wants_open = !has_freed
            && (CacheIndex::of(self.cache).has_waiting()
                || CacheIndex::of(self.cache).is_congested_by_open());
        if wants_open
            && SegmentFill::of(self.cache).close(Filling::Writes)
            && Destage::of(self.cache).destage_blocks(CacheIndex::of(self.cache).newest(), None).await?
        {
            return Ok(true);
        }
        Destage::of(self.cache).destage_blocks(CacheIndex::of(self.cache).discarded(), None).await
    }
}

/// Empties a cache, with pauses in which nothing of its pool is held.
pub(crate) async fn empty_at_its_rate(cache: Weak<Cache>) {
    while let Some(this) = cache.upgrade() {
        let Some(until) = DestageRounds::of(&this).empty().await else { return };
        let (clock, hurry) = (Rc::clone(&this.shared().pool.seams().clock), Rc::clone(&this.hurry));
        let hurried = hurry.wait();
        drop(this);
        within(clock.as_ref(), until, hurried).await;
    }
}
