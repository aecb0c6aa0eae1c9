//! Reads and writes of blocks of segments.

use std::rc::Rc;

use dolmen_buffer::Shared as Bytes_;
use dolmen_future_pool::pooled;

use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::record::Place;
use crate::layout::BLOCK;
use crate::resources::locks::Range;
use crate::row_io::absence::RowRecords;
use crate::row_io::copies::RowCopies;
use crate::row_io::parts::RecordExtra;
use crate::row_io::write_executor::WriteExecutor;
use crate::table::gathering::Wrote;
use crate::table::pages::TableStore;
use crate::table::row::Row;
use crate::table::space::Cache;

/// Reads and writes of blocks of segments.
#[derive(Clone, Copy)]
pub(crate) struct SegmentIo<'a> {
    cache: &'a Rc<Cache>,
}

impl<'a> SegmentIo<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Rc<Cache>) -> Self {
        Self { cache }
    }
}

impl SegmentIo<'_> {
    /// Writes to a row of the cache.
    #[pooled]
    pub(crate) async fn write(
        self,
        (at, first): (usize, u32),
        data: &Bytes_,
        extra: RecordExtra<'_>,
    ) -> Result<Wrote, SpaceError> {
        let count = u32::try_from(data.len() / BLOCK).unwrap_or(0);
        let row = self.decided(self.cache.row_at(at), first)?;
        let _guard = row.locks.lock(Range { first, count }).await;
        self.check_decided(&row, first)?;
        RowRecords::of(self.cache.shared()).commit_absences(&row).await?;
        WriteExecutor::of(&self.cache.space).write_blocks(&row, first, data, extra).await
    }

    /// A row of the cache. What the log says of it is not decided here: that ends in a checkpoint, and whoever calls may hold
    /// what a checkpoint waits for.
    fn decided(self, row: Option<Rc<Row>>, block: u32) -> Result<Rc<Row>, SpaceError> {
        let row = row.ok_or_else(|| SpaceError::Deleted { name: self.cache.space.name() })?;
        self.check_decided(&row, block)?;
        Ok(row)
    }

    /// Returns the row of the cache in which a place is, if nothing that the log says of it is in doubt.
    pub(crate) fn decided_row(self, place: Place) -> Result<Rc<Row>, SpaceError> {
        self.decided(self.cache.row_of(place), place.block)
    }

    fn check_decided(self, row: &Row, block: u32) -> Result<(), SpaceError> {
        if row.freed.get() || self.cache.shared().is_deferred(row) {
            return Err(TableStore::of(self.cache.shared()).unreadable(
                row,
                0,
                block as usize,
                UnreadableReason::Absent,
            ));
        }
        Ok(())
    }

    /// Reads a block of the cache, verified by what the table of its row says of it.
    #[pooled]
    pub(crate) async fn read(self, place: Place, into: &mut [u8]) -> Result<(), SpaceError> {
        let row = self.decided_row(place)?;
        let _guard = row.locks.lock(Range { first: place.block, count: 1 }).await;
        self.check_decided(&row, place.block)?;
        RowCopies::of(&self.cache.space).read_one_copy(&row, place.block, into).await
    }
}
