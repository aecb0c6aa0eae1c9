//! The checkpoint of the tables: pages that are dirty go to their disks, and what cannot go is logged again.

use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::{LocalFuture, PoolError, TableOwner};
use dolmen_units::{DiskSlot, Lsn};

use crate::format::error::SpaceError;
use crate::resolution::log_forward::{Homeless, LogForward};
use crate::resources::tickets::Ticket;
use crate::row_io::absence::RowRecords;
use crate::row_io::flusher::Flusher;
use crate::row_io::table_writes::TableWrites;
use crate::table::pages::{TABLE_WRITES_MAX, TableStore};
use crate::table::row::Row;
use crate::table::space::Shared;

/// Write-back of all tables before the log is cut.
#[derive(Clone, Copy)]
pub(crate) struct Checkpointer<'a> {
    shared: &'a Shared,
}

impl<'a> Checkpointer<'a> {
    /// Returns the service for what the spaces of a pool share.
    pub(crate) fn of(shared: &'a Shared) -> Self {
        Self { shared }
    }
}

impl Checkpointer<'_> {
    /// Writes back and flushes what is dirty, so that the log need not keep it.
    /// How many bytes of the log have to be kept nevertheless.
    #[pooled]
    pub(crate) async fn write_back_all(self, below: Lsn) -> Result<u64, SpaceError> {
        // Between its record and its end, nothing of what is put in place is relogged.
        let caches = self.shared.caches();
        let mut yields = Vec::with_capacity(caches.len());
        let mut in_order: Vec<_> = caches.iter().collect();
        in_order.sort_by_key(|cache| cache.space().id());
        for cache in in_order {
            yields.push(cache.mutex.take().await);
        }
        let _write_back = self.shared.write_back_mutex.take().await;
        // What somebody is just saying of blocks out of reach may stand below the cut, and is noted before its turn ends. What is
        // decided from now on stays in doubt for this write-back.
        drop(self.shared.defer_mutex.take().await);
        self.shared.write_backs.set(self.shared.write_backs.get() + 1);
        let in_doubt = self.shared.deferred.borrow().clone();
        let limit = self.shared.tickets.next();
        let limit = if mutation!(WriteBackAhead) { Ticket(limit.0 + 1) } else { limit };
        self.shared.frozen.set(Some(limit));
        let flushed =
            if mutation!(TableBeforeFlush) { Ok(()) } else { Flusher::of(self.shared).flush().await };
        if let Err(error) = flushed {
            self.shared.frozen.set(None);
            return Err(error);
        }
        let is_covered = self.shared.covered.get().0 >= limit || mutation!(TableBeforeFlush);
        assert!(is_covered, "a write-back takes from the pages what a flush has covered");
        let rows = std::mem::take(&mut *self.shared.dirty_rows.borrow_mut());
        rows.iter().for_each(|row| TableStore::of(self.shared).gather_pages(row));
        self.shared.frozen.set(None);
        let attachments = self.shared.pool.members().attachments();
        let written = TableWrites::of(self.shared).write_tables(&rows).await?;
        if !mutation!(TableNotFlushed) {
            self.shared.pool.flusher().flush_disks().await?;
        }
        // One that left and came back may have lost what it was given. What became of the pages is decided here, once, and
        // not by where the disks are when something is made of it: one that came back since does not have them.
        let mut stayed = self.shared.pool.members().attachments();
        stayed.retain(|slot, seating| attachments.get(slot) == Some(seating));
        let stayed: BTreeSet<DiskSlot> = stayed.into_keys().collect();
        let mut homeless = Homeless::default();
        for (row, column) in &written.kept_back {
            homeless.add(row, *column);
        }
        let mut is_held = Vec::with_capacity(written.given.len());
        for together in written.given.chunks(TABLE_WRITES_MAX) {
            let are_there =
                join_all(together.iter().map(|given| TableStore::of(self.shared).is_only_copy_there(given)))
                    .await;
            is_held.extend(together.iter().zip(are_there).map(|(given, is_there)| {
                is_there && TableStore::is_table_held_by(&given.row, given.column, &stayed)
            }));
        }
        for (given, _) in written.given.iter().zip(&is_held).filter(|(_, is_held)| !**is_held) {
            homeless.add(&given.row, given.column);
        }
        for (given, is_held) in written.given.iter().zip(is_held) {
            // Of a row none of whose tables are believed yet, those that are written count when all are. A recovery begins with
            // blank ones, and whatever the log says of their generations has to be of these.
            let is_believed = given.row.is_formatted() || !homeless.has(&given.row);
            if is_held && is_believed { given.page.note_durable() } else { given.page.note_unwritten() }
        }
        let unwritten = |row: &Rc<Row>| row.pages().iter().any(|(_, _, page)| page.is_dirty());
        rows.iter()
            .filter(|row| !row.freed.get() && unwritten(row))
            .for_each(|row| self.shared.note_dirty(row));
        // Whatever slab did not get the pages would be believed with what it has, once it is the only one.
        RowRecords::of(self.shared).commit_missed_pages(&rows, &stayed).await?;
        let unformatted: Vec<_> =
            rows.iter().filter(|row| !row.freed.get() && !row.is_formatted()).cloned().collect();
        RowRecords::of(self.shared).commit_formatted(&unformatted, |row| !homeless.has(row)).await?;
        // Tables are believed once a commit says that all of a row's are there; until then none are.
        homeless.take_all_of(|row| !row.is_formatted());
        // The next one has to look at them again, also where all of their pages are clean, and where this one ends half-way.
        homeless.rows().for_each(|row| self.shared.note_dirty(row));
        LogForward::of(self.shared).forward(&homeless, &in_doubt, &caches, below).await
    }
}

impl TableOwner for Shared {
    fn write_back(&self, below: Lsn) -> LocalFuture<'_, Result<u64, PoolError>> {
        Box::pin(async move {
            Checkpointer::of(self).write_back_all(below).await.map_err(|error| match error {
                SpaceError::Pool(error) => error,
                other => PoolError::Corrupt { name: self.pool_name().clone(), what: other.to_string() },
            })
        })
    }
}
