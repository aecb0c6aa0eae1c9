//! Discarding and zeroing: blocks go back to "never written", and rows in which nothing is left go back to the pool.

use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{IoKind, sleep};
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::PoolError;
use dolmen_units::{BLOCK_BYTES, Bytes};

use crate::cache::block_discard::{BlockDiscard, is_discarded_in_cache};
use crate::cache::promise::Reservations;
use crate::format::error::SpaceError;
use crate::format::ids::is_hidden;
use crate::relocation::unused_rows::UnusedRows;
use crate::resolution::decided_rows::DecidedRows;
use crate::resolution::space_doubt::SpaceDoubt;
use crate::resources::locks::{Range, blocks_of};
use crate::row_io::flusher::Flusher;
use crate::space_io::request::Requests;
use crate::table::row::Row;
use crate::table::space::SpaceRows;

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

/// Discards and zeroes of a space, and the status of its blocks.
#[derive(Clone, Copy)]
pub(crate) struct Discards<'a> {
    space: &'a SpaceRows,
}

impl<'a> Discards<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl Discards<'_> {
    /// Forgets whole blocks of a range; parts of blocks at its ends stay as they are. Forgotten blocks read as zeros.
    #[pooled]
    pub(crate) async fn discard(self, at: u64, length: u64) -> Result<(), SpaceError> {
        self.space.check_range(at, length)?;
        let request = Requests::of(self.space).asked(IoKind::Discard, length).await;
        let discarded = self.discard_range(at, length).await;
        request.ended(discarded)
    }

    /// Forgets whole blocks of a range, for whoever has checked it and is no client.
    #[pooled]
    pub(crate) async fn discard_range(self, at: u64, length: u64) -> Result<(), SpaceError> {
        let start = at.next_multiple_of(BLOCK_BYTES);
        let end = (at + length) / BLOCK_BYTES * BLOCK_BYTES;
        let mut from = start;
        while from < end {
            let index = from / self.space.row_bytes();
            let to = end.min((index + 1) * self.space.row_bytes());
            match Flusher::of(&self.space.shared).gate().await {
                // Rows that go give the map room, for which a part of the log is kept. Nothing else may use that up.
                Err(SpaceError::Pool(PoolError::MetadataFull { .. }))
                    if self.space.is_thin() && to - from == self.space.row_bytes() => {}
                gated => gated?,
            }
            let to = if self.space.has_cache() { to.min(from + DISCARD_BYTES_MAX) } else { to };
            self.discard_in_row(index, from % self.space.row_bytes(), to - index * self.space.row_bytes())
                .await?;
            from = to;
        }
        Ok(())
    }

    #[pooled]
    async fn discard_in_row(self, index: u64, start: u64, end: u64) -> Result<(), SpaceError> {
        let range = blocks_of(start, end);
        let row = loop {
            let Some(row) = DecidedRows::of(self.space).row(index).await? else { return Ok(()) };
            if row.moves.wait_while_held().await {
                continue;
            }
            let cache = self.space.cache_of(&row);
            let room = match cache.as_ref().filter(|_| is_discarded_in_cache(&row, range)) {
                Some(cache) => Some(Reservations::of(cache).reserve_discards(range.count.into()).await?),
                None => None,
            };
            // Not before there is room in the cache: what makes room there needs room in the log.
            let _log_room =
                match Flusher::of(&self.space.shared).room_for(range.count.min(DISCARDED_TOGETHER)).await {
                    Err(SpaceError::Pool(PoolError::MetadataFull { .. }))
                        if self.space.is_thin() && range.count == row.shape.row_blocks() =>
                    {
                        None
                    }
                    room => Some(room?),
                };
            SpaceDoubt::of(self.space).decide_cached(&row, range).await?;
            if mutation!(DiscardOfFreedRow) {
                // As one does that waits for room.
                sleep(self.space.shared.pool.seams().clock.as_ref(), Duration::from_millis(50)).await;
            }
            let _guard = row.locks.lock(range).await;
            let lacks_room = room.is_none() && is_discarded_in_cache(&row, range);
            if self.space.shared.is_deferred(&row) || lacks_room || row.moves.is_held() {
                continue;
            }
            // Another may have taken its place, which has the blocks now.
            if row.freed.get() && !mutation!(DiscardOfFreedRow) {
                continue;
            }
            row.moves.touch(range);
            if row.freed.get() || BlockDiscard::of(self.space).discard_blocks(&row, range).await? == 0 {
                return Ok(());
            }
            break Rc::clone(&row);
        };
        // Conversion shadows stay until they are promoted.
        if self.space.is_thin() && !is_hidden(self.space.id()) {
            UnusedRows::of(self.space).free_if_known_unused(&row).await
        } else {
            Ok(())
        }
    }

    /// What is where in a range, coarsened to rows that were never claimed and blocks that hold data; at most
    /// `extents_max` extents, fewer bytes than asked for if need be.
    #[pooled]
    pub(crate) async fn block_status(
        self,
        at: u64,
        length: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, SpaceError> {
        self.space.check_range(at, length)?;
        let mut extents: Vec<Extent> = Vec::new();
        let end = at + length;
        let mut from = at;
        while from < end {
            let index = from / self.space.row_bytes();
            let row_end = end.min((index + 1) * self.space.row_bytes());
            let (to, is_data) = match DecidedRows::of(self.space).row(index).await? {
                None => (row_end, false),
                Some(row) => {
                    let block = from % self.space.row_bytes() / BLOCK_BYTES;
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
    async fn is_decided_data(self, row: &Rc<Row>, block: u64) -> Result<bool, SpaceError> {
        SpaceDoubt::of(self.space)
            .decide_cached(row, Range { first: u32::try_from(block).unwrap_or(0), count: 1 })
            .await?;
        BlockDiscard::of(self.space).is_data(row, block).await
    }

    /// The end of the last block that holds anything at or behind byte `from`; `None` when there is none.
    #[pooled]
    pub(crate) async fn used_end(self, from: u64) -> Result<Option<u64>, SpaceError> {
        let mut rows = Vec::new();
        self.space.for_each_record(|index, _| rows.push(index)).await?;
        for index in rows.into_iter().rev().take_while(|index| (index + 1) * self.space.row_bytes() > from) {
            let Some(row) = DecidedRows::of(self.space).row(index).await? else { continue };
            for block in (0..u64::from(row.shape.row_blocks())).rev() {
                let end = index * self.space.row_bytes() + (block + 1) * BLOCK_BYTES;
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
