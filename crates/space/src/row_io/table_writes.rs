//! Writes of table pages to the slabs of their rows.

use std::rc::Rc;

use dolmen_block_io::DeviceError;
use dolmen_block_io::Durability;
use dolmen_block_io::sync::join_all;
use dolmen_buffer::Buffer;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::ExcludeReason;
use dolmen_units::DiskSlot;

use crate::format::error::SpaceError;
use crate::format::raw::PAGE_BYTES;
use crate::row_io::header::HeaderStore;
use crate::table::pages::{GivenPage, TABLE_WRITES_MAX, TableStore, slot_of};
use crate::table::row::Row;
use crate::table::row_store::RowStore;

/// Writes of table pages to the slabs of their rows.
#[derive(Clone, Copy)]
pub(crate) struct TableWrites<'a> {
    store: &'a RowStore,
}

impl<'a> TableWrites<'a> {
    /// Returns the service for the rows of a pool.
    pub(crate) fn of(store: &'a RowStore) -> Self {
        Self { store }
    }
}

impl TableWrites<'_> {
    /// Starts writing a page to its slot on every slab that has the table and whose disk is here.
    fn start_writes(
        self,
        row: &Row,
        (column, index): (usize, usize),
        generation: u64,
        buffer: Buffer,
    ) -> Vec<(DiskSlot, impl Future<Output = Result<(), DeviceError>> + use<>)> {
        let frozen = buffer.freeze();
        let mut writes = Vec::new();
        row.for_each_table(column, |slab, place| {
            let Some(disk) = slab.present(&self.store.pool) else { return };
            for piece in slab.pieces(row.page_at(place, index, generation), frozen.len()) {
                let part = frozen.slice(piece.offset..piece.offset + piece.length);
                writes.push((disk.slot(), disk.write(piece.at, part, Durability::Cached)));
            }
        });
        writes
    }

    /// Waits for writes that were started. A disk that failed one of them leaves.
    async fn finish_writes(
        self,
        writes: &mut Vec<(DiskSlot, impl Future<Output = Result<(), DeviceError>>)>,
    ) -> Result<(), SpaceError> {
        let mut failed = Vec::new();
        for (slot, write) in writes.drain(..) {
            if write.await.is_err() {
                failed.push(slot);
            }
        }
        for slot in failed {
            self.store.pool.exclude(slot, ExcludeReason::MissedWrite).await?;
        }
        Ok(())
    }

    /// Writes the tables of rows beside each other.
    pub(crate) async fn write_tables(self, rows: &[Rc<Row>]) -> Result<TablesWritten, SpaceError> {
        let mut written = TablesWritten::default();
        for together in rows.chunks(TABLE_ROWS) {
            let _exclusive = self.store.table_mutex.take().await;
            let here = together.iter().filter(|row| !row.freed.get());
            for of_row in join_all(here.map(|row| self.write_row_tables(row))).await {
                written.extend(of_row?);
            }
        }
        Ok(written)
    }

    /// Writes the pages of a row that wait for it; of a row without tables on its disks the slabs' headers too.
    #[pooled]
    async fn write_row_tables(self, row: &Rc<Row>) -> Result<TablesWritten, SpaceError> {
        // Taken in one go: rows that each hold a part and wait for more would wait for each other.
        let _frames = self.store.frames.take(frames_of_tables(row)).await;
        let mut written = TablesWritten::default();
        if !row.is_formatted() {
            HeaderStore::of(self.store).write_headers(row, |_| true).await?;
        }
        let mut writes = Vec::new();
        for (column, index, page) in row.pages() {
            let kept_back = !TableStore::of(self.store).is_table_in_reach(row, column)
                || self.store.is_withheld(row, column, index);
            if kept_back {
                page.keep_back();
                written.kept_back.push((Rc::clone(row), column));
                continue;
            }
            // One that has become dirty since says what no flush has covered.
            if !page.is_awaiting_seal() {
                continue;
            }
            if writes.len() > TABLE_WRITES_MAX {
                self.finish_writes(&mut writes).await?;
            }
            // While a page is being sealed, changes leave a snapshot: both slots of an unpaired one get the same.
            let times = if page.is_unpaired() { 2 } else { 1 };
            for time in 1..=times {
                let mut buffer = self.store.pool.seams().metadata.take(PAGE_BYTES).await;
                let generation =
                    page.seal(TableStore::of(self.store).page_name(row, column, index), &mut buffer);
                row.seals.set(row.seals.get() + 1);
                if time == times && !mutation!(SealNotNoted) {
                    page.sealed();
                }
                self.store.count(|counters| counters.page_writes += 1);
                writes.extend(self.start_writes(row, (column, index), slot_of(&page, generation), buffer));
            }
            if page.is_dirty() {
                self.store.note_dirty(row);
            }
            written.given.push(GivenPage { row: Rc::clone(row), column, index, page });
        }
        self.finish_writes(&mut writes).await?;
        let is_left = row.pages().iter().any(|(_, _, page)| page.is_awaiting_seal());
        assert!(!is_left, "a write-back takes all pages of a row that wait for it, or keeps them back");
        Ok(written)
    }
}

/// Frames that the tables of a row hold at once while they are written, at most.
pub(crate) fn frames_of_tables(row: &Row) -> u64 {
    let pages: usize = (0..row.shape.columns()).map(|column| row.map(column).pages()).sum();
    2 * pages.min(TABLE_WRITES_MAX / 2 + 1) as u64
}

/// Rows whose tables are written under one turn. They lie on other disks, and whoever else wants the turn waits for them.
pub(crate) const TABLE_ROWS: usize = 64;

impl TablesWritten {
    fn extend(&mut self, other: Self) {
        let Self { given, kept_back } = other;
        self.given.extend(given);
        self.kept_back.extend(kept_back);
    }
}

/// What became of the tables of rows in a write-back.
#[derive(Default)]
pub(crate) struct TablesWritten {
    pub(crate) given: Vec<GivenPage>,
    /// Columns with pages that stay in memory.
    pub(crate) kept_back: Vec<(Rc<Row>, usize)>,
}
