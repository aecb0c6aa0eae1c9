//! Discarding and zeroing: blocks go back to "never written", and rows in which nothing is left go back to the pool.

use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{IoKind, sleep};
use dolmen_buffer::Scratch;
use dolmen_future_pool::pooled;
use dolmen_journal::Wait;
use dolmen_mutation::mutation;
use dolmen_pool::PoolError;
use dolmen_units::{BLOCK_BYTES, Bytes};
use smallvec::SmallVec;

use crate::cache::space::Space;
use crate::facade::write::blocks_of;
use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::ids::is_hidden;
use crate::format::record::{BlockState, Stamp, push_extent};
use crate::layout::Overwrites;
use crate::resources::locks::Range;
use crate::row_io::parts::{Pages, find};
use crate::table::mapping::Content;
use crate::table::page::place_in_page;
use crate::table::row::Row;

/// An extent of a space and whether anything is there, for block status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes.
    pub length: Bytes,
    /// Whether some of it holds data.
    pub is_data: bool,
}

/// Blocks for which a discard has room in the log kept, at most: what follows each other is said in one piece.
const DISCARDED_TOGETHER: u32 = 256;
/// Bytes that are discarded in one go where a write cache has to remember each block of them.
const DISCARD_BYTES_MAX: u64 = 1 << 20;

impl Space {
    /// Forgets whole blocks of a range; parts of blocks at its ends stay as they are. Forgotten blocks read as zeros.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn discard(&self, at: u64, length: u64) -> Result<(), SpaceError> {
        self.check_range(at, length)?;
        let request = self.asked(IoKind::Discard, length).await;
        let discarded = self.discard_range(at, length).await;
        request.ended(discarded)
    }

    /// Forgets whole blocks of a range, for whoever has checked it and is no client.
    #[pooled]
    pub(crate) async fn discard_range(&self, at: u64, length: u64) -> Result<(), SpaceError> {
        let start = at.next_multiple_of(BLOCK_BYTES);
        let end = (at + length) / BLOCK_BYTES * BLOCK_BYTES;
        let mut from = start;
        while from < end {
            let index = from / self.row_bytes();
            let to = end.min((index + 1) * self.row_bytes());
            match self.shared.gate().await {
                // Rows that go give the map room, for which a part of the log is kept. Nothing else may use that up.
                Err(SpaceError::Pool(PoolError::MetadataFull { .. }))
                    if self.is_thin() && to - from == self.row_bytes() => {}
                gated => gated?,
            }
            let to = if self.has_cache() { to.min(from + DISCARD_BYTES_MAX) } else { to };
            self.discard_in_row(index, from % self.row_bytes(), to - index * self.row_bytes()).await?;
            from = to;
        }
        Ok(())
    }

    /// Makes a range read as zeros: whole blocks are forgotten, parts of blocks are written.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn write_zeroes(&self, at: u64, length: u64) -> Result<(), SpaceError> {
        self.check_range(at, length)?;
        let request = self.asked(IoKind::Discard, length).await;
        let zeroed = self.zero_range(at, length).await;
        request.ended(zeroed)
    }

    /// Makes a range read as zeros. The caller has checked it.
    pub(crate) async fn zero_range(&self, at: u64, length: u64) -> Result<(), SpaceError> {
        let end = at + length;
        let (head_end, tail_start) =
            (end.min(at.next_multiple_of(BLOCK_BYTES)), end / BLOCK_BYTES * BLOCK_BYTES);
        for (from, to) in [(at, head_end), (tail_start.max(head_end), end)] {
            if from < to {
                let size = usize::try_from(to - from).unwrap_or(0);
                let mut zeros = self.shared.pool.seams().metadata.take(size).await;
                zeros.fill(0);
                self.store(from, &zeros.freeze()).await?;
            }
        }
        self.discard_range(at, length).await
    }

    #[pooled]
    async fn discard_in_row(&self, index: u64, start: u64, end: u64) -> Result<(), SpaceError> {
        let range = blocks_of(start, end);
        let row = loop {
            let Some(row) = self.row(index).await? else { return Ok(()) };
            if row.moves.wait_while_held().await {
                continue;
            }
            let cache = self.cache_of(&row);
            let room = match cache.as_ref().filter(|_| is_discarded_in_cache(&row, range)) {
                Some(cache) => Some(cache.reserve_discards(range.count.into()).await?),
                None => None,
            };
            // Not before there is room in the cache: what makes room there needs room in the log.
            let _log_room = match self.shared.room_for(range.count.min(DISCARDED_TOGETHER)).await {
                Err(SpaceError::Pool(PoolError::MetadataFull { .. }))
                    if self.is_thin() && range.count == row.shape.row_blocks() =>
                {
                    None
                }
                room => Some(room?),
            };
            self.decide_cached(&row, range).await?;
            if mutation!(DiscardOfFreedRow) {
                // As one does that waits for room.
                sleep(self.shared.pool.seams().clock.as_ref(), Duration::from_millis(50)).await;
            }
            let _guard = row.locks.lock(range).await;
            let lacks_room = room.is_none() && is_discarded_in_cache(&row, range);
            if self.shared.is_deferred(&row) || lacks_room || row.moves.is_held() {
                continue;
            }
            // Another may have taken its place, which has the blocks now.
            if row.freed.get() && !mutation!(DiscardOfFreedRow) {
                continue;
            }
            row.moves.touch(range);
            if row.freed.get() || self.discard_blocks(&row, range).await? == 0 {
                return Ok(());
            }
            break Rc::clone(&row);
        };
        // Conversion shadows stay until they are promoted.
        if self.is_thin() && !is_hidden(self.id()) { self.free_if_known_unused(&row).await } else { Ok(()) }
    }

    /// Frees a row in which nothing is left. One of which nobody can tell that now stays, and what was discarded of it is.
    #[pooled]
    pub(crate) async fn free_if_known_unused(&self, row: &Rc<Row>) -> Result<(), SpaceError> {
        let freed = async {
            let mut row = Rc::clone(row);
            loop {
                self.decide_cached(&row, Range { first: 0, count: row.shape.row_blocks() }).await?;
                if self.free_if_unused(&row).await? {
                    return Ok(());
                }
                // It was moved, and nobody else asks whether anything is left in the one that has its place now.
                let Some(other) = self.row(row.index).await? else { return Ok(()) };
                row = other;
            }
        };
        match freed.await {
            Err(SpaceError::Unreadable { .. }) => Ok(()),
            freed => freed,
        }
    }

    /// Forgets blocks of a row that hold something; how many there were. The caller holds their lock.
    #[pooled]
    async fn discard_blocks(&self, row: &Rc<Row>, range: Range) -> Result<usize, SpaceError> {
        if is_discarded_in_cache(row, range) {
            return self.discard_cached(row, range).await;
        }
        let mut found: SmallVec<[(usize, Range); 8]> = SmallVec::new();
        // They stay in memory as long as they are held here.
        let mut pages = Pages::new();
        for block in range.first..range.first + range.count {
            let spot = row.shape.locate(block);
            let (index, entry) = place_in_page(spot.block);
            let page = self.shared.page(row, spot.column, index).await?;
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
        self.shared.commit_absences(row).await?;
        // From here on nothing comes between until the record is given to the log.
        if let Some((column, run)) = found.iter().find(|(column, _)| !self.shared.is_in_reach(row, *column)) {
            return Err(self.shared.unreadable(row, *column, run.first as usize, UnreadableReason::Absent));
        }
        let held = self.shared.tickets.begin();
        let stamp = self.shared.stamp();
        self.record_state(row, &found, (BlockState::Never, Wait::Written), stamp).await?;
        // Nobody waits from here on: a write-back that begins meanwhile would have to be known.
        let now = self.shared.now(&held);
        let mut count = 0;
        for (column, run) in &found {
            for block in run.first..run.first + run.count {
                if let Some((page, entry)) = find(&pages, *column, block) {
                    page.set(entry, BlockState::Never, stamp, now);
                    count += 1;
                }
            }
            self.shared.note_unflushed(held.ticket(), row, *column, *run);
        }
        self.shared.note_dirty(row);
        if self.shared.stamp() != stamp || self.shared.is_deferred(row) {
            // The only copy may have left since, and a flush have left in doubt what it knew of these blocks, in which this
            // was not: said behind that, it is the newest. So it is where the row has another copy by now.
            self.record_state(row, &found, (BlockState::Never, Wait::Written), self.shared.stamp()).await?;
            self.shared.leave_what_is_away(row, found.iter().copied()).await?;
        }
        Ok(count)
    }

    /// Forgets blocks of a row in the write cache; what lies in place follows later, and parity with it.
    #[pooled]
    async fn discard_cached(&self, row: &Rc<Row>, range: Range) -> Result<usize, SpaceError> {
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
        if let Some(cache) = self.cache_of(row).filter(|_| count > 0) {
            cache.discard(row, &found).await?;
        }
        Ok(count)
    }

    /// Forgets all blocks of a row of the write cache; how many held something.
    pub(crate) async fn discard_row(&self, row: &Rc<Row>) -> Result<usize, SpaceError> {
        let range = Range { first: 0, count: row.shape.row_blocks() };
        let _guard = row.locks.lock(range).await;
        self.discard_blocks(row, range).await
    }

    /// Records that blocks have a state without a checksum: that they hold nothing, or are lost. The caller holds their lock and a ticket.
    #[pooled]
    pub(crate) async fn record_state(
        &self,
        row: &Rc<Row>,
        runs: &[(usize, Range)],
        (state, wait): (BlockState, Wait),
        stamp: Stamp,
    ) -> Result<(), SpaceError> {
        // A record has room for some thousand extents; a row that is in more pieces takes several.
        for pieces in runs.chunks(1000) {
            let mut body = Scratch::new();
            for (column, run) in pieces {
                let page = self.shared.page(row, *column, place_in_page(run.first).0).await?;
                let extent = self.shared.extent(row, *column, *run, stamp);
                push_extent(&mut body, extent, &[state], page.durable_generation());
            }
            self.shared.record(&body, wait).await?;
        }
        Ok(())
    }

    /// Frees a row in which nothing is left; whether it was looked at, because it is there still.
    #[pooled]
    pub(crate) async fn free_if_unused(&self, row: &Rc<Row>) -> Result<bool, SpaceError> {
        let _guard = row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await;
        if row.freed.get() {
            return Ok(false);
        }
        if self.is_unused(row).await? {
            self.release(row).await?;
        }
        Ok(true)
    }

    /// Whether no block of a row holds anything.
    #[pooled]
    pub(crate) async fn is_unused(&self, row: &Rc<Row>) -> Result<bool, SpaceError> {
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
                if self.shared.page(row, column, index).await?.used_count() > 0 {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// What is where in a range, coarsened to rows that were never claimed and blocks that hold data; at most
    /// `extents_max` extents, fewer bytes than asked for if need be.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn block_status(
        &self,
        at: u64,
        length: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, SpaceError> {
        self.check_range(at, length)?;
        let mut extents: Vec<Extent> = Vec::new();
        let end = at + length;
        let mut from = at;
        while from < end {
            let index = from / self.row_bytes();
            let row_end = end.min((index + 1) * self.row_bytes());
            let (to, is_data) = match self.row(index).await? {
                None => (row_end, false),
                Some(row) => {
                    let block = from % self.row_bytes() / BLOCK_BYTES;
                    let state = self.is_decided_data(&row, block).await?;
                    ((from / BLOCK_BYTES + 1).saturating_mul(BLOCK_BYTES).min(row_end), state)
                }
            };
            let full = extents.len() == extents_max;
            match extents.last_mut().filter(|last| last.is_data == is_data) {
                Some(last) => last.length = last.length + Bytes(to - from),
                None if full => return Ok(extents),
                None => extents.push(Extent { length: Bytes(to - from), is_data }),
            }
            from = to;
        }
        Ok(extents)
    }

    /// Whether a block holds something, once what the log says of it was decided. Called without any lock.
    async fn is_decided_data(&self, row: &Rc<Row>, block: u64) -> Result<bool, SpaceError> {
        self.decide_cached(row, Range { first: u32::try_from(block).unwrap_or(0), count: 1 }).await?;
        self.is_data(row, block).await
    }

    #[pooled]
    async fn is_data(&self, row: &Rc<Row>, block: u64) -> Result<bool, SpaceError> {
        let block = u32::try_from(block).unwrap_or(0);
        if let Some(content) = self.cached(row, block).await? {
            return Ok(content != Content::Discarded);
        }
        let spot = row.shape.locate(block);
        let (_, state) = self.main_location(row, (spot.column, spot.block)).await?;
        Ok(state != BlockState::Never)
    }

    /// The end of the last block that holds anything at or behind byte `from`; `None` when there is none.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn used_end(&self, from: u64) -> Result<Option<u64>, SpaceError> {
        let mut rows = Vec::new();
        self.for_each_record(|index, _| rows.push(index)).await?;
        for index in rows.into_iter().rev().take_while(|index| (index + 1) * self.row_bytes() > from) {
            let Some(row) = self.row(index).await? else { continue };
            for block in (0..u64::from(row.shape.row_blocks())).rev() {
                let end = index * self.row_bytes() + (block + 1) * BLOCK_BYTES;
                if end <= from {
                    break;
                }
                if self.is_decided_data(&row, block).await? {
                    return Ok(Some(end));
                }
            }
        }
        Ok(None)
    }
}

/// Whether a discard of blocks of a row is one more version of them in the write cache: always where parity changes with it,
/// else where they have versions there, which would come to light.
fn is_discarded_in_cache(row: &Row, range: Range) -> bool {
    row.shape.overwrites() == Overwrites::Cached || row.mappings.has_any_of(range)
}
