//! Discards of blocks of one row.

use std::rc::Rc;

use dolmen_buffer::Scratch;
use dolmen_future_pool::pooled;
use dolmen_journal::Wait;
use smallvec::SmallVec;

use crate::cache::cached_blocks::CachedBlocks;
use crate::cache::write_cache::CacheWrites;
use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::record::{BlockState, Stamp, push_extent};
use crate::layout::Overwrites;
use crate::resources::locks::Range;
use crate::row_io::absence::RowRecords;
use crate::row_io::block_log::BlockLog;
use crate::row_io::copies::RowCopies;
use crate::row_io::flusher::Flusher;
use crate::row_io::parts::{Pages, find};
use crate::table::mapping::Content;
use crate::table::page::place_in_page;
use crate::table::pages::TableStore;
use crate::table::row::Row;
use crate::table::space::SpaceRows;

/// Discards of blocks of one row.
#[derive(Clone, Copy)]
pub(crate) struct BlockDiscard<'a> {
    space: &'a SpaceRows,
}

impl<'a> BlockDiscard<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl BlockDiscard<'_> {
    /// Forgets blocks of a row that hold something; how many there were. The caller holds their lock.
    #[pooled]
    pub(crate) async fn discard_blocks(self, row: &Rc<Row>, range: Range) -> Result<usize, SpaceError> {
        if is_discarded_in_cache(row, range) {
            return self.discard_cached(row, range).await;
        }
        let mut found: SmallVec<[(usize, Range); 8]> = SmallVec::new();
        // They stay in memory as long as they are held here.
        let mut pages = Pages::new();
        for block in range.first..range.first + range.count {
            let spot = row.shape.locate(block);
            let (index, entry) = place_in_page(spot.block);
            let page = TableStore::of(&self.space.shared).page(row, spot.column, index).await?;
            if page.state(entry) == BlockState::Never {
                continue;
            }
            let joins = |run: &Range| run.first + run.count == spot.block && entry != 0;
            match found.last_mut().filter(|(column, run)| *column == spot.column && joins(run)) {
                Some((_, run)) => run.count += 1,
                None => found.push((spot.column, Range { first: spot.block, count: 1 })),
            }
            if find(&pages, spot.column, spot.block).is_none() {
                pages.push((spot.column, index, page));
            }
        }
        if found.is_empty() {
            return Ok(0);
        }
        RowRecords::of(&self.space.shared).commit_absences(row).await?;
        // From here on nothing comes between until the record is given to the log.
        if let Some((column, run)) =
            found.iter().find(|(column, _)| !TableStore::of(&self.space.shared).is_in_reach(row, *column))
        {
            return Err(TableStore::of(&self.space.shared).unreadable(
                row,
                *column,
                run.first as usize,
                UnreadableReason::Absent,
            ));
        }
        let held = self.space.shared.tickets.begin();
        let stamp = self.space.shared.stamp();
        self.record_state(row, &found, (BlockState::Never, Wait::Written), stamp).await?;
        // Nobody waits from here on: a write-back that begins meanwhile would have to be known.
        let now = self.space.shared.now(&held);
        let mut count = 0;
        for (column, run) in &found {
            for block in run.first..run.first + run.count {
                if let Some((page, entry)) = find(&pages, *column, block) {
                    page.set(entry, BlockState::Never, stamp, now);
                    count += 1;
                }
            }
            Flusher::of(&self.space.shared).note_unflushed(held.ticket(), row, *column, *run);
        }
        self.space.shared.note_dirty(row);
        if self.space.shared.stamp() != stamp || self.space.shared.is_deferred(row) {
            // The only copy may have left since, and a flush have left in doubt what it knew of these blocks, in which this
            // was not: said behind that, it is the newest. So it is where the row has another copy by now.
            self.record_state(row, &found, (BlockState::Never, Wait::Written), self.space.shared.stamp())
                .await?;
            self.space.shared.upper.defer_absent(&self.space.shared, row, found.to_vec()).await?;
        }
        Ok(count)
    }

    /// Forgets blocks of a row in the write cache; what lies in place follows later, and parity with it.
    #[pooled]
    async fn discard_cached(self, row: &Rc<Row>, range: Range) -> Result<usize, SpaceError> {
        let mut found: Vec<Range> = Vec::new();
        for block in range.first..range.first + range.count {
            if !self.is_data(row, u64::from(block)).await? {
                continue;
            }
            match found.last_mut().filter(|run| run.first + run.count == block) {
                Some(run) => run.count += 1,
                None => found.push(Range { first: block, count: 1 }),
            }
        }
        let count = found.iter().map(|run| run.count as usize).sum();
        if let Some(cache) = self.space.cache_of(row).filter(|_| count > 0) {
            CacheWrites::of(&cache).discard(row, &found).await?;
        }
        Ok(count)
    }

    /// Forgets all blocks of a row of the write cache; how many held something.
    pub(crate) async fn discard_row(self, row: &Rc<Row>) -> Result<usize, SpaceError> {
        let range = Range { first: 0, count: row.shape.row_blocks() };
        let _guard = row.locks.lock(range).await;
        self.discard_blocks(row, range).await
    }

    /// Records that blocks have a state without a checksum: that they hold nothing, or are lost. The caller holds their lock and a ticket.
    #[pooled]
    pub(crate) async fn record_state(
        self,
        row: &Rc<Row>,
        runs: &[(usize, Range)],
        (state, wait): (BlockState, Wait),
        stamp: Stamp,
    ) -> Result<(), SpaceError> {
        // A record has room for some thousand extents; a row that is in more pieces takes several.
        for pieces in runs.chunks(1000) {
            let mut body = Scratch::new();
            for (column, run) in pieces {
                let page =
                    TableStore::of(&self.space.shared).page(row, *column, place_in_page(run.first).0).await?;
                let extent = BlockLog::of(&self.space.shared).extent(row, *column, *run, stamp);
                push_extent(&mut body, extent, &[state], page.durable_generation());
            }
            BlockLog::of(&self.space.shared).record(&body, wait).await?;
        }
        Ok(())
    }

    /// Whether no block of a row holds anything.
    #[pooled]
    pub(crate) async fn is_unused(self, row: &Rc<Row>) -> Result<bool, SpaceError> {
        if row.shape.overwrites() == Overwrites::Cached || !row.mappings.is_empty() {
            for block in 0..row.shape.row_blocks() {
                if self.is_data(row, u64::from(block)).await? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        for column in 0..row.shape.columns() {
            for index in 0..row.map(column).pages() {
                if TableStore::of(&self.space.shared).page(row, column, index).await?.used_count() > 0 {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    #[pooled]
    pub(crate) async fn is_data(self, row: &Rc<Row>, block: u64) -> Result<bool, SpaceError> {
        let block = u32::try_from(block).unwrap_or(0);
        if let Some(content) = CachedBlocks::of(self.space).cached(row, block).await? {
            return Ok(content != Content::Discarded);
        }
        let spot = row.shape.locate(block);
        let (_, state) = RowCopies::of(self.space).main_location(row, (spot.column, spot.block)).await?;
        Ok(state != BlockState::Never)
    }
}

/// Whether a discard of blocks of a row is one more version of them in the write cache: always where parity changes with it,
/// else where they have versions there, which would come to light.
pub(crate) fn is_discarded_in_cache(row: &Row, range: Range) -> bool {
    row.shape.overwrites() == Overwrites::Cached || row.mappings.has_any_of(range)
}
