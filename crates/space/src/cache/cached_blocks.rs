//! Versions of blocks of a space that its write caches hold.

use std::rc::Rc;

use crate::cache::segments::CacheIndex;
use crate::cache::write_cache::CacheWrites;
use crate::format::error::SpaceError;
use crate::layout::Overwrites;
use crate::table::mapping::Content;
use crate::table::pages::TableStore;
use crate::table::row::Row;
use crate::table::space::SpaceRows;

/// Versions of blocks of a space that its write caches hold.
#[derive(Clone, Copy)]
pub(crate) struct CachedBlocks<'a> {
    space: &'a SpaceRows,
}

impl<'a> CachedBlocks<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl CachedBlocks<'_> {
    /// Whether what lies in place of a block of copies counts for nothing: a flush has covered what the write cache has of it, and
    /// it may be half in place.
    pub(crate) fn is_superseded(self, row: &Row, row_block: u32) -> bool {
        if row.shape.overwrites() == Overwrites::Cached || row.mappings.is_empty() {
            return false;
        }
        let cache = self.space.cache_of(row);
        let versions = row.mappings.versions(row_block);
        cache.is_some_and(|cache| versions.iter().any(|version| CacheIndex::of(&cache).is_flushed(version)))
    }

    /// What a block holds, if that is in the write cache.
    pub(crate) async fn cached(self, row: &Rc<Row>, block: u32) -> Result<Option<Content>, SpaceError> {
        if row.mappings.is_empty() {
            return Ok(None);
        }
        match self.space.cache_of(row) {
            Some(cache) => CacheWrites::of(&cache)
                .content(row, block)
                .await
                .map_err(|error| self.of_ours(row, block, error)),
            None => Ok(None),
        }
    }

    /// What is said of a block of the write cache, said of the block of ours that lies there: nobody knows the cache's.
    pub(crate) fn of_ours(self, row: &Row, block: u32, error: SpaceError) -> SpaceError {
        let spot = row.shape.locate(block);
        match error {
            SpaceError::Unreadable { why, .. } => {
                TableStore::of(&self.space.shared).unreadable(row, spot.column, spot.block as usize, why)
            }
            other => other,
        }
    }
}
