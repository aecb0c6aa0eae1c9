//! Sizes of write caches: forecasts and changes.

use std::rc::Rc;

use dolmen_causes::in_one_line;
use dolmen_future_pool::pooled;
use dolmen_pool::keys;
use dolmen_units::{BLOCK_BYTES, Bytes};

use crate::cache::cache_size::{CacheResize, ROWS_FOR_WRITES_MIN, USEFUL_PER_NAMED, WriteCacheResize};
use crate::cache::drain::Drain;
use crate::cache::segments::CacheIndex;
use crate::format::error::{CacheLimit, SpaceError};
use crate::format::spec::{SpaceSpec, cache_spec, largest};
use crate::layout::slab_units;
use crate::policy::forecast::cache_rows;
use crate::policy::handles::{Caches, Changes};
use crate::policy::retiring::Retiring;
use crate::relocation::allocator::Allocator;
use crate::relocation::exchange::Exchanges;
use crate::resources::locks::Range;
use crate::resources::progress::Progress;
use crate::row_io::flusher::Flusher;
use crate::table::drain_settings::{FILL, RATE, WriteCacheDrain};
use crate::table::row::Row;
use crate::table::space::{Cache, SpaceRows};

impl Caches<'_> {
    /// What another size of a write cache would come to, and whether it may have it.
    ///
    /// # Errors
    /// [`SpaceError::NoWriteCache`] or [`SpaceError::CacheSize`], which names the limit.
    pub fn plan_write_cache(self, redundancy: u8, size: Bytes) -> Result<WriteCacheResize, SpaceError> {
        let cache = self.spaces.cache_for(redundancy)?;
        let space = cache.space();
        let (row, copies) = (space.row_bytes(), space.spec().resiliency.copies());
        let refused = |limit| SpaceError::CacheSize { found: size, limit };
        let least = (u64::from(copies) + ROWS_FOR_WRITES_MIN) * row;
        let before = space.size();
        let rows = size.0.div_ceil(row);
        let after = Bytes(rows.saturating_mul(row));
        if size.0 == 0 || after.0 < least {
            return Err(refused(CacheLimit::Least(Bytes(least))));
        }
        let most = Bytes(largest(self.spaces.data_bytes(), copies).0 / row * row);
        if after > before && after > most {
            return Err(refused(CacheLimit::OfPool(most)));
        }
        let usual = cache_spec(redundancy, self.spaces.data_bytes()).size;
        let named = CacheIndex::of(&cache).versions_max() * USEFUL_PER_NAMED * BLOCK_BYTES;
        let useful =
            usual.max(Bytes(named.next_multiple_of(row) + CacheIndex::of(&cache).kept() * BLOCK_BYTES));
        if after > before && after > useful {
            return Err(refused(CacheLimit::OfLog(useful)));
        }
        let more = after.saturating_sub(before).0 / row;
        let claimed = cache_rows(self.spaces.pool(), &space.spec(), more);
        if claimed < more {
            return Err(refused(CacheLimit::Room(before + Bytes(claimed * row))));
        }
        let units = slab_units(space.spec().interleave, 0)(Bytes(row)) * u64::from(copies);
        Ok(WriteCacheResize { redundancy, before, after, of_row: (units, row) })
    }

    /// Gives a write cache another size, in whole rows, while clients go on. It grows at once; before it shrinks, what lies in
    /// the rows that go is put in place. When that is cut short it has the one size or the other. Held and stopped between rows.
    ///
    /// # Errors
    /// As [`plan_write_cache`](Self::plan_write_cache); or what stands in the way, and the cache keeps its size.
    #[pooled]
    pub async fn resize_write_cache(
        self,
        redundancy: u8,
        size: Bytes,
        progress: &Progress,
    ) -> Result<WriteCacheResize, SpaceError> {
        let cache = self.spaces.cache_for(redundancy)?;
        let _exclusive = cache.size_mutex.take().await;
        CacheResize::of(&cache).check_stays()?;
        let change = self.plan_write_cache(redundancy, size)?;
        progress.total.set(change.after.0.abs_diff(change.before.0) / cache.space().row_bytes());
        if change.after > change.before {
            self.grow_cache(&cache, change.after, progress).await?;
        } else if change.after < change.before {
            self.shrink_cache(&cache, change.after, progress).await?;
        }
        Ok(change)
    }

    /// Rows are filled when all of them are claimed and the size is durable: cut short before, all of them are given back.
    #[pooled]
    pub(crate) async fn grow_cache(
        self,
        cache: &Rc<Cache>,
        size: Bytes,
        progress: &Progress,
    ) -> Result<(), SpaceError> {
        let space = cache.space();
        let _exclusive = space.spec_mutex.take().await;
        let before = space.size();
        // What an earlier change could not give back may hold old content, and a row of the cache begins with none.
        Changes::of(self.spaces).free_after(space, before).await?;
        let grown = async {
            let mut rows = Vec::new();
            for index in before.0 / space.row_bytes()..size.0 / space.row_bytes() {
                CacheResize::of(cache).may_resize_on(progress).await?;
                Flusher::of(&self.spaces.shared).gate().await?;
                rows.push(Allocator::of(space).claim_beyond(index).await?);
                progress.done.set(rows.len() as u64);
            }
            Changes::of(self.spaces).put_spec(space, SpaceSpec { size, ..space.spec() }).await?;
            Ok(rows)
        };
        match grown.await {
            Ok(rows) => {
                CacheResize::of(cache).take_in(rows);
                Ok(())
            }
            Err(error) => {
                // Where that fails, the next opening does it.
                let _ = Changes::of(self.spaces).free_after(space, before).await;
                Err(error)
            }
        }
    }

    /// Rows are given back when none of them holds anything and the size is durable: cut short behind that, the rest of them are
    /// at the next opening.
    #[pooled]
    pub(crate) async fn shrink_cache(
        self,
        cache: &Rc<Cache>,
        size: Bytes,
        progress: &Progress,
    ) -> Result<(), SpaceError> {
        let space = Rc::clone(cache.space());
        self.spaces.pool().log().check_writable()?;
        let mut declared_lost = CacheResize::of(cache).retire_from(size.0 / space.row_bytes());
        Retiring::of(cache).empty_retiring(progress).await?;
        let _exclusive = space.spec_mutex.take().await;
        Changes::of(self.spaces).put_spec(&space, SpaceSpec { size, ..space.spec() }).await?;
        declared_lost.is_done = true;
        for row in CacheResize::of(cache).let_go() {
            if let Err(error) = free_whole(&space, &row).await {
                // The cache is as small as it should be; the next opening, or change of the size, frees them.
                tracing::warn!(pool = %self.spaces.shared.pool.name(), error = %in_one_line(&error), "rows of the write cache cannot be given back now");
                break;
            }
        }
        Ok(())
    }

    /// Sets from how much on a write cache is emptied, and how fast.
    ///
    /// # Errors
    /// [`SpaceError::NoWriteCache`] or [`SpaceError::CacheDrain`], which names the limit; and what the pool says.
    #[pooled]
    pub async fn set_write_cache_drain(
        self,
        redundancy: u8,
        drain: WriteCacheDrain,
    ) -> Result<(), SpaceError> {
        self.plan_write_cache_drain(redundancy, drain)?;
        let cache = self.spaces.cache_for(redundancy)?;
        let _exclusive = cache.size_mutex.take().await;
        CacheResize::of(&cache).check_stays()?;
        let id = cache.space().id();
        let mut change = self.spaces.pool().change(dolmen_pool::Purpose::Release).await;
        change.put(keys::setting(id, FILL), u64::from(drain.fill).to_le_bytes().to_vec());
        match drain.rate {
            Some(rate) => change.put(keys::setting(id, RATE), rate.0.to_le_bytes().to_vec()),
            None => change.delete(keys::setting(id, RATE)),
        }
        change.commit().await?;
        cache.drain.set(drain);
        // What it pauses for may be over.
        cache.hurry.notify_all();
        if CacheIndex::of(&cache).is_congested() {
            Drain::of(&cache).empty_soon();
        }
        Ok(())
    }

    /// Whether a write cache can be emptied like that.
    ///
    /// # Errors
    /// As [`set_write_cache_drain`](Self::set_write_cache_drain).
    pub fn plan_write_cache_drain(self, redundancy: u8, drain: WriteCacheDrain) -> Result<(), SpaceError> {
        drain.check()?;
        self.spaces.cache_for(redundancy).map(drop)
    }
}

pub(crate) async fn free_whole(space: &SpaceRows, row: &Rc<Row>) -> Result<(), SpaceError> {
    let _guard = row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await;
    if row.freed.get() { Ok(()) } else { Exchanges::of(space).free_row(row).await }
}
