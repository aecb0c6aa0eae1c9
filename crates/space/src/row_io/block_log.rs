//! Records of blocks in the log, first and again.

use std::rc::Rc;

use dolmen_buffer::Scratch;
use dolmen_journal::Wait;
use dolmen_pool::PoolError;
use dolmen_units::BLOCK_BYTES;
use dolmen_units::Lsn;

use crate::format::error::SpaceError;
use crate::format::raw::STATE_VALID;
use crate::format::record::{BlockExtent, Stamp, push_extent};
use crate::layout::Covered;
use crate::resources::locks::Range;
use crate::resources::tickets::Ticket;
use crate::table::page::place_in_page;
use crate::table::pages::TableStore;
use crate::table::row::Row;
use crate::table::row_store::RowStore;

/// Records of blocks in the log, first and again.
#[derive(Clone, Copy)]
pub(crate) struct BlockLog<'a> {
    store: &'a RowStore,
}

impl<'a> BlockLog<'a> {
    /// Returns the service for the rows of a pool.
    pub(crate) fn of(store: &'a RowStore) -> Self {
        Self { store }
    }
}

impl BlockLog<'_> {
    /// Appends a record of blocks to the log.
    pub(crate) async fn record(self, body: &[u8], wait: Wait) -> Result<Lsn, PoolError> {
        let lsn = self.store.pool.log().append_blocks(body, wait).await?;
        self.store.recorded.set(self.store.recorded.get().max(lsn.next()));
        Ok(lsn)
    }

    /// Records what was said before, so that the log can be trimmed behind that.
    pub(crate) async fn record_relogged(self, body: &[u8]) -> Result<Lsn, PoolError> {
        // Heads of batches, and what is left at their ends.
        let bytes = (body.len() as u64 * 17 / 16).next_multiple_of(BLOCK_BYTES);
        self.store.relogged.set(self.store.relogged.get() + bytes);
        self.record(body, Wait::Written).await
    }

    /// Adds what the table in memory says of a block to a record, under the stamp of now.
    pub(crate) async fn restate(
        self,
        row: &Rc<Row>,
        (column, block): (usize, u32),
        covered: Covered,
        ticket: Ticket,
        body: &mut Scratch,
    ) -> Result<(), SpaceError> {
        let (index, entry) = place_in_page(block);
        let stamp = self.store.stamp();
        let page = TableStore::of(self.store).page(row, column, index).await?;
        let state = page.state(entry);
        page.restamp(entry, stamp, ticket, self.store.frozen.get());
        let mut extent = self.extent(row, column, Range { first: block, count: 1 }, stamp);
        extent.covered = covered == Covered::Before;
        push_extent(body, extent, &[state], page.durable_generation());
        Ok(())
    }

    /// Records what the table in memory says of blocks, under the stamp of now, in one record: of a stripe with parity a crash
    /// leaves all of it or nothing. The caller holds their locks.
    pub(crate) async fn record_again(
        self,
        row: &Rc<Row>,
        places: impl Iterator<Item = (usize, u32)>,
        covered: Covered,
        ticket: Ticket,
    ) -> Result<(), SpaceError> {
        let mut body = Scratch::new();
        for place in places {
            self.restate(row, place, covered, ticket, &mut body).await?;
        }
        if body.is_empty() {
            return Ok(());
        }
        self.store.note_dirty(row);
        self.record(&body, Wait::Written).await?;
        Ok(())
    }

    /// As [`record_again`](Self::record_again), for blocks of a column of which a flush has covered some.
    pub(crate) async fn record_blocks_again(
        self,
        row: &Rc<Row>,
        (column, blocks): (usize, &[u32]),
        covered: impl Fn(u32) -> Covered,
        ticket: Ticket,
    ) -> Result<(), SpaceError> {
        let mut body = Scratch::new();
        for block in blocks {
            self.restate(row, (column, *block), covered(*block), ticket, &mut body).await?;
        }
        self.store.note_dirty(row);
        self.record(&body, Wait::Written).await?;
        Ok(())
    }

    /// The head of a record for a range of a column; the state is filled in later.
    pub(crate) fn extent(self, row: &Row, column: usize, range: Range, stamp: Stamp) -> BlockExtent {
        BlockExtent {
            row: row.id,
            column: u8::try_from(column).unwrap_or(0),
            first: range.first,
            count: range.count,
            stamp,
            state: STATE_VALID,
            intent: false,
            in_doubt: false,
            supersedes: false,
            covered: false,
            generation: 0,
        }
    }
}
