//! What is in doubt in a space, and its flush.

use dolmen_future_pool::pooled;

use crate::cache::cached_blocks::CachedBlocks;
use crate::cache::write_cache::CacheWrites;
use crate::format::error::SpaceError;
use crate::resolution::cache_doubt::CacheDoubt;
use crate::resolution::decided_rows::DecidedRows;
use crate::resolution::reach::Deferral;
use crate::resources::locks::Range;
use crate::row_io::flusher::Flusher;
use crate::table::row::Row;
use crate::table::space::SpaceRows;

/// What is in doubt in a space, and its flush.
#[derive(Clone, Copy)]
pub(crate) struct SpaceDoubt<'a> {
    space: &'a SpaceRows,
}

impl<'a> SpaceDoubt<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl SpaceDoubt<'_> {
    /// Whether acknowledged blocks are only on disks that left, so that no flush can succeed before those are back. Asking
    /// changes nothing, and no client misses an error by it.
    #[must_use]
    pub(crate) fn waits_for_disks(self) -> bool {
        let is_cached_away =
            self.space.caches().iter().any(|cache| CacheWrites::of(cache).has_in_doubt_of(self.space.id()));
        is_cached_away || !Deferral::of(&self.space.shared).rows_unflushed_away(self.space).is_empty()
    }

    /// Whether the next flush has to tell that acknowledged blocks are not there any more. Asking changes nothing.
    #[must_use]
    pub(crate) fn has_reverted(self) -> bool {
        self.space.lost_unflushed.get()
    }

    /// As [`flush`](Flusher::flush), within a request.
    #[pooled]
    pub(crate) async fn flush_all(self) -> Result<(), SpaceError> {
        let caches = self.space.caches();
        let is_cached_away =
            || caches.iter().any(|cache| CacheWrites::of(cache).has_in_doubt_of(self.space.id()));
        // A row that is decided while this flush is under way may come too late for it.
        let were_away =
            !Deferral::of(&self.space.shared).rows_unflushed_away(self.space).is_empty() || is_cached_away();
        Flusher::of(&self.space.shared).flush().await?;
        for cache in &caches {
            CacheDoubt::of(cache).decide_all_of(self.space.id()).await?;
        }
        for index in Deferral::of(&self.space.shared).rows_unflushed_away(self.space) {
            match DecidedRows::of(self.space).row(index).await {
                Ok(_) | Err(SpaceError::Unreadable { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if were_away {
            Flusher::of(&self.space.shared).force_flush().await?;
        }
        let away =
            !Deferral::of(&self.space.shared).rows_unflushed_away(self.space).is_empty() || is_cached_away();
        if away || self.space.lost_unflushed.take() {
            return Err(SpaceError::Unflushed { name: self.space.name() });
        }
        Ok(())
    }

    /// Decides what the log says of cache rows in which blocks lie. Called without any lock.
    pub(crate) async fn decide_cached(self, row: &Row, range: Range) -> Result<(), SpaceError> {
        if row.mappings.is_empty() {
            return Ok(());
        }
        match self.space.cache_of(row) {
            Some(cache) => CacheDoubt::of(&cache)
                .decide(row, range)
                .await
                .map_err(|error| CachedBlocks::of(self.space).of_ours(row, range.first, error)),
            None => Ok(()),
        }
    }
}
