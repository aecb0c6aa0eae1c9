//! Resolution of in-doubt versions of a write cache.

use std::collections::BTreeSet;

use dolmen_future_pool::pooled;
use dolmen_units::SpaceId;

use crate::cache::segments::CacheIndex;
use crate::cache::write_cache::CacheWrites;
use crate::format::error::SpaceError;
use crate::resolution::decided_rows::DecidedRows;
use crate::resources::locks::Range;
use crate::table::mapping::Versions;
use crate::table::row::Row;
use crate::table::space::Cache;
use std::rc::Rc;

/// Resolution of in-doubt versions of a write cache.
#[derive(Clone, Copy)]
pub(crate) struct CacheDoubt<'a> {
    cache: &'a Rc<Cache>,
}

impl<'a> CacheDoubt<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Rc<Cache>) -> Self {
        Self { cache }
    }
}

impl CacheDoubt<'_> {
    /// Decides what the log says of cache rows in which blocks of a row lie, now that their disks may be here. Called without
    /// any lock.
    ///
    /// # Errors
    /// [`SpaceError::Unreadable`] while they are not.
    pub(crate) async fn decide(self, row: &Row, range: Range) -> Result<(), SpaceError> {
        if self.cache.shared().has_decided_all() {
            return Ok(());
        }
        for block in row.mappings.in_range(range.first..range.first + range.count) {
            self.decide_versions(&row.mappings.versions(block)).await?;
        }
        Ok(())
    }

    /// Decides the versions of a block that are asked what it holds: an older one only where all that are newer came to nothing.
    async fn decide_versions(self, versions: &Versions) -> Result<(), SpaceError> {
        for version in versions.iter().rev() {
            let cache = CacheIndex::of(self.cache);
            let place = version.content.place().filter(|place| cache.is_out_of_reach(*place));
            if let Some(row) = place.and_then(|place| self.cache.row_of(place)) {
                DecidedRows::of(&self.cache.space).row(row.index).await?;
            }
            if !CacheWrites::of(self.cache).is_void(version).await? {
                break;
            }
        }
        Ok(())
    }

    /// Decides what is cached of a space and waits for that, as far as its disks are here. Called without any lock.
    ///
    /// # Errors
    /// [`SpaceError`], but not for want of disks.
    #[pooled]
    pub(crate) async fn decide_all_of(self, space: SpaceId) -> Result<(), SpaceError> {
        let in_doubt = CacheWrites::of(self.cache).in_doubt_of(space);
        let versions = in_doubt
            .iter()
            .flat_map(|(row, blocks)| blocks.iter().flat_map(|block| row.mappings.versions(*block)));
        let places = versions.filter_map(|version| version.content.place());
        // Each row of the cache once: all that it waits for is read to decide it.
        let cache = CacheIndex::of(self.cache);
        let away = places.filter(|place| cache.is_out_of_reach(*place));
        let indices: BTreeSet<u64> =
            away.filter_map(|place| self.cache.row_of(place)).map(|row| row.index).collect();
        for index in indices {
            match DecidedRows::of(&self.cache.space).row(index).await {
                Ok(_) | Err(SpaceError::Unreadable { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        for (row, blocks) in in_doubt {
            for block in blocks {
                let range = Range { first: block, count: 1 };
                let _guard = row.locks.lock(range).await;
                if !row.freed.get() {
                    CacheWrites::of(self.cache).resolve_in_doubt(&row, block).await?;
                }
            }
        }
        Ok(())
    }
}
