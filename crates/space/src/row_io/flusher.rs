//! The flush, and the records of blocks in the log that it covers.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dolmen_buffer::Scratch;
use dolmen_future_pool::pooled;
use dolmen_journal::Wait;
use dolmen_mutation::mutation;
use dolmen_pool::LogRoom;
use dolmen_units::{BLOCK_BYTES, Bytes, RowId, SpaceId};

use crate::format::error::SpaceError;
use crate::format::record::{BLOCK_STATED_BYTES, BlockState, CHECKSUM_BYTES, RECORD_BYTES_MAX};
use crate::layout::{Covered, Unit};
use crate::resources::locks::{Range, joined};
use crate::resources::tickets::{FlushPoint, Ticket};
use crate::row_io::absence::RowRecords;
use crate::row_io::block_log::BlockLog;
use crate::table::pages::TableStore;
use crate::table::row::{BlocksOfRows, Row};
use crate::table::row_store::{RowStore, Unflushed};

/// Blocks that may be unflushed before the engine flushes by itself: what recovery has to verify, at most. On a small log
/// fewer, because after the loss of a disk all of them are recorded again, at up to [`BLOCK_STATED_BYTES`] each.
pub(crate) const UNFLUSHED_BLOCKS_MAX: u64 = 64 * 1024;

/// Bytes of the log that a block takes at most which is written beside others: its checksum, in the cache also that of its
/// mapping; and if a disk leaves meanwhile, an extent of its own.
pub(crate) const RECORDED_BYTES: u64 = 48;
const _: () = assert!(RECORDED_BYTES >= 2 * CHECKSUM_BYTES as u64 + BLOCK_STATED_BYTES);

/// The part of the log that recording all unflushed blocks again may take; twice that, where the states below them are said
/// as well.
pub(crate) const RESTAMP_SHARE: u64 = 16;

/// Rows that are recorded again at once: their metadata fits one change.
pub(crate) const RESTAMP_ROWS: usize = 128;

/// Blocks of a row, by column and block of the column, with the ticket of the last write.
pub(crate) type UnflushedBlocks = BTreeMap<(usize, u32), Ticket>;

/// Flushes, and the blocks that no flush has covered.
#[derive(Clone, Copy)]
pub(crate) struct Flusher<'a> {
    store: &'a RowStore,
}

impl<'a> Flusher<'a> {
    /// Returns the service for the rows of a pool.
    pub(crate) fn of(store: &'a RowStore) -> Self {
        Self { store }
    }
}

impl<'s> Flusher<'s> {
    /// Everything that was written and recorded until now.
    pub(crate) fn flush_point(self) -> FlushPoint {
        FlushPoint { ticket: self.store.tickets.next(), lsn: self.store.recorded.get() }
    }

    /// Whether a flush has covered everything of before a moment.
    pub(crate) fn has_covered(self, flush_point: FlushPoint) -> bool {
        let (ticket, lsn) = self.store.covered.get();
        ticket >= flush_point.ticket && lsn >= flush_point.lsn
    }

    /// Notes a write that no flush has covered.
    pub(crate) fn note_unflushed(self, ticket: Ticket, row: &Rc<Row>, column: usize, range: Range) {
        self.store.unflushed_blocks.set(self.store.unflushed_blocks.get() + u64::from(range.count));
        self.store.unflushed.borrow_mut().push_back(Unflushed { ticket, row: Rc::clone(row), column, range });
    }

    /// The blocks of a row that were written and that no flush has covered, by column.
    pub(crate) fn unflushed_of(self, row: &Row) -> BTreeSet<(usize, u32)> {
        let unflushed = self.store.unflushed.borrow();
        let of_row = unflushed.iter().filter(|entry| entry.row.id == row.id);
        of_row.flat_map(|entry| entry.blocks().map(|block| (entry.column, block))).collect()
    }

    /// Blocks of stripes of a row that hold nothing since a write that no flush has covered: of these stripes, the row beside it is
    /// the target.
    pub(crate) fn unflushed_sources(self, row: &Row, lines: &BTreeSet<u32>) -> BTreeSet<(usize, u32)> {
        let unflushed = self.store.unflushed.borrow();
        let of_row = unflushed.iter().filter(|entry| entry.row.id == row.id);
        of_row
            .flat_map(|entry| entry.blocks().map(|block| (entry.column, block)))
            .filter(|place| {
                lines.contains(&place.1) && row.state_in_memory(*place) == Some(BlockState::Never)
            })
            .collect()
    }

    /// Waits until a write may begin: the log has room, and not too much is unflushed. Called without any lock or ticket.
    pub(crate) async fn gate(self) -> Result<(), SpaceError> {
        self.store.pool.log().wait_for_room().await?;
        let (log, _) = self.store.pool.identity().metadata_bytes();
        let unflushed_max = UNFLUSHED_BLOCKS_MAX.min(log.0 / RESTAMP_SHARE / BLOCK_STATED_BYTES);
        if self.store.unflushed_blocks.get() > unflushed_max {
            self.flush().await?;
        }
        Ok(())
    }

    /// Keeps the room in the log that the record of so many blocks takes, and the mark of a flush behind it, as long as what is
    /// returned lives. Called as [`gate`](Self::gate).
    pub(crate) async fn room_for(self, blocks: u32) -> Result<LogRoom<'s>, SpaceError> {
        Ok(self.store.pool.log().reserve(Bytes(2 * BLOCK_BYTES + u64::from(blocks) * RECORDED_BYTES)).await?)
    }

    /// Makes every write that was acknowledged before this call durable.
    #[pooled]
    pub(crate) async fn flush(self) -> Result<(), SpaceError> {
        let mine = (self.store.tickets.next(), self.store.recorded.get());
        let _exclusive = self.store.flush_mutex.take().await;
        let covered = self.store.covered.get();
        let is_marked = covered.1 >= mine.1 || mutation!(ConcurrentRecordUnmarked);
        if covered.0 >= mine.0 && is_marked {
            self.store.count(|counters| counters.shared_flushes += 1);
            return Ok(());
        }
        loop {
            let limit = self.store.tickets.next();
            let interval = self.store.tickets.next_interval();
            let cut = self.store.pool.log().cut()?;
            if !mutation!(FlushWaitsForNone) {
                self.store.tickets.wait_below(limit).await;
            }
            self.store.pool.log().written_below(cut).await?;
            if mutation!(MarkBeforeFlush) {
                self.store.pool.log().mark_durable(cut).await?;
            }
            self.store.pool.flusher().flush_disks().await?;
            if self.restamp().await? {
                continue;
            }
            if !mutation!(MarkBeforeFlush) && (!self.store.recovering.get() || mutation!(RecoveryNotFinal)) {
                self.store.pool.log().mark_durable(cut).await?;
            }
            // In recovery nothing is marked; it ends with a flush of its own, whose ticket is a later one.
            self.forget_durable(if mutation!(SettleAhead) { self.store.tickets.next() } else { limit });
            self.store.covered.set((limit, cut));
            self.store.covered_interval.set(Some(interval));
            self.store.count(|counters| counters.flushes += 1);
            return Ok(());
        }
    }

    /// Forgets the writes that a flush has covered.
    pub(crate) fn forget_durable(self, limit: Ticket) {
        let have_ended = self.store.tickets.have_ended_below(limit) || mutation!(FlushWaitsForNone);
        assert!(have_ended, "a flush covers no write that is under way");
        let mut unflushed = self.store.unflushed.borrow_mut();
        unflushed.retain(|entry| entry.ticket >= limit || mutation!(SettleKeepsWrites));
        let all_are_later = unflushed.iter().all(|entry| entry.ticket >= limit);
        assert!(all_are_later, "after a flush no write that it covers counts as unflushed");
        let left = unflushed.iter().map(|entry| u64::from(entry.range.count)).sum();
        self.store.unflushed_blocks.set(left);
    }

    /// After a disk has left: blocks that no flush had covered on it may be missing there, so they are recorded again
    /// under the new epoch, and their rows say that the disk's slab is stale. Those that were only there stay in doubt.
    /// Returns whether the epoch is another one than the last time.
    #[pooled]
    pub(crate) async fn restamp(self) -> Result<bool, SpaceError> {
        let now = self.store.pool.epoch().number;
        if self.store.stamped.get() == now {
            return Ok(false);
        }
        let mut by_row: BTreeMap<(SpaceId, u64, RowId), (Rc<Row>, UnflushedBlocks)> = BTreeMap::new();
        let mut away = BlocksOfRows::new();
        // That a stripe is in its other slot needs no disk of this one.
        let is_source = |entry: &Unflushed| {
            let first = entry.row.state_in_memory((entry.column, entry.range.first));
            entry.row.partner().is_some() && first == Some(BlockState::Never)
        };
        let is_away = |entry: &&Unflushed| {
            !TableStore::of(self.store).is_decidable(&entry.row, entry.column) && !is_source(entry)
        };
        for entry in self.store.unflushed.borrow().iter().filter(is_away) {
            let (_, blocks) =
                away.entry(entry.key()).or_insert_with(|| (Rc::clone(&entry.row), BTreeSet::new()));
            blocks.extend(entry.blocks().map(|block| (entry.column, block)));
        }
        self.store.defer(away.clone()).await?;
        // Only now, because whoever finds them neither here nor there would take them for flushed.
        // Of one that came meanwhile, some blocks may have been left and others not.
        let is_away = |entry: &Unflushed| {
            away.get(&entry.key()).is_some_and(|(_, blocks)| {
                entry.blocks().all(|block| blocks.contains(&(entry.column, block)))
            })
        };
        self.store.unflushed.borrow_mut().retain(|entry| !is_away(entry));
        for entry in &*self.store.unflushed.borrow() {
            let (_, blocks) =
                by_row.entry(entry.key()).or_insert_with(|| (Rc::clone(&entry.row), BTreeMap::new()));
            blocks.extend(entry.blocks().map(|block| ((entry.column, block), entry.ticket)));
        }
        let rows: Vec<(Rc<Row>, UnflushedBlocks)> = by_row.into_values().collect();
        for group in rows.chunks(RESTAMP_ROWS) {
            self.restamp_rows(group).await?;
        }
        self.store.stamped.set(now);
        Ok(true)
    }

    /// One record for many blocks: each record by itself would take a batch of the log, which has no room for thousands.
    #[pooled]
    pub(crate) async fn restamp_rows(self, rows: &[(Rc<Row>, UnflushedBlocks)]) -> Result<(), SpaceError> {
        RowRecords::of(self.store).commit_absences_of(rows.iter().map(|(row, _)| row)).await?;
        let mut guards = Vec::new();
        let mut has_unlocked = false;
        let mut body = Scratch::new();
        for (row, blocks) in rows {
            // With parity these are stripes in flight, which nobody writes over before a flush has covered them; and who puts
            // others in place waits for this flush, with locks of the row.
            if row.shape.unit() == Unit::Block {
                // Stripes that failed may be tried again while this waits for locks: what is said of them then is the newest.
                if std::mem::take(&mut has_unlocked) && !body.is_empty() {
                    BlockLog::of(self.store).record(&body, Wait::Written).await?;
                    body.clear();
                    guards.clear();
                }
                let numbers = blocks.keys().map(|(column, block)| row.shape.row_block(*column, *block));
                let numbers: BTreeSet<u32> = numbers.collect();
                let guard = row.locks.lock_all(&joined(numbers.into_iter())).await;
                // The row in its place has the same locks, or locks of the same rank, and may be the next one here.
                if row.freed.get() && !mutation!(FreedRowStaysLocked) {
                    continue;
                }
                guards.push(guard);
            }
            if row.freed.get() {
                continue;
            }
            for (place, ticket) in blocks {
                // Of a write that failed; said already, and the next one may be on its way to the log.
                if row.shape.unit() == Unit::Stripe && row.state_in_memory(*place) == Some(BlockState::Never)
                {
                    continue;
                }
                BlockLog::of(self.store)
                    .restate(row, *place, Covered::ByTheNextFlush, *ticket, &mut body)
                    .await?;
                if body.len() > RECORD_BYTES_MAX {
                    BlockLog::of(self.store).record(&body, Wait::Written).await?;
                    body.clear();
                }
            }
            self.store.note_dirty(row);
            has_unlocked |= row.shape.unit() == Unit::Stripe;
            // What is in the body is still locked when it is appended: a write in between would be recorded before it.
            if body.is_empty() {
                guards.clear();
            }
        }
        if !body.is_empty() {
            BlockLog::of(self.store).record(&body, Wait::Written).await?;
        }
        Ok(())
    }

    /// Flushes although nobody may have written: recovery's decisions and heals.
    pub(crate) async fn force_flush(self) -> Result<(), SpaceError> {
        // A ticket that ends at once makes the flush believe that there is something to cover.
        drop(self.store.tickets.begin());
        self.flush().await
    }
}

impl<'s> Flusher<'s> {
    /// Blocks of the sources of flips whose targets are among these blocks, where no flush has covered the flips.
    pub(crate) fn sources_of(self, targets: &BlocksOfRows) -> BlocksOfRows {
        let mut sources = BlocksOfRows::new();
        if mutation!(SourceNotKept) {
            return sources;
        }
        for (row, blocks) in targets.values() {
            let Some(partner) = row.partner() else { continue };
            let lines: BTreeSet<u32> = blocks.iter().map(|(_, stripe)| *stripe).collect();
            let of_row = self.unflushed_sources(&partner, &lines);
            if !of_row.is_empty() {
                let key = (partner.space, partner.index, partner.id);
                sources.insert(key, (partner, of_row));
            }
        }
        sources
    }
}
