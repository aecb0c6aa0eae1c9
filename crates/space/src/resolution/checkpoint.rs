//! The checkpoint of the tables: pages that are dirty go to their disks, and what cannot go is logged again.

use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::{LocalFuture, PoolError, TableOwner};
use dolmen_units::{DiskSlot, Lsn};

use crate::cache::space::Shared;
use crate::format::error::SpaceError;
use crate::resolution::log_forward::Homeless;
use crate::resources::tickets::Ticket;
use crate::table::pages::TABLE_WRITES_MAX;
use crate::table::row::Row;
use crate::table::row_store::RowStore;

impl Shared {
    /// Writes back and flushes what is dirty, so that the log need not keep it.
    /// How many bytes of the log have to be kept nevertheless.
    #[pooled]
    pub(crate) async fn write_back_all(&self, below: Lsn) -> Result<u64, SpaceError> {
        // Between its record and its end, nothing of what is put in place is relogged.
        let caches = self.caches();
        let mut yields = Vec::with_capacity(caches.len());
        let mut in_order: Vec<_> = caches.iter().collect();
        in_order.sort_by_key(|cache| cache.space().id());
        for cache in in_order {
            yields.push(cache.mutex.take().await);
        }
        let _write_back = self.write_back_mutex.take().await;
        // What somebody is just saying of blocks out of reach may stand below the cut, and is noted before its turn ends. What is
        // decided from now on stays in doubt for this write-back.
        drop(self.defer_mutex.take().await);
        self.write_backs.set(self.write_backs.get() + 1);
        let in_doubt = self.deferred.borrow().clone();
        let limit = self.tickets.next();
        let limit = if mutation!(WriteBackAhead) { Ticket(limit.0 + 1) } else { limit };
        self.frozen.set(Some(limit));
        let flushed = if mutation!(TableBeforeFlush) { Ok(()) } else { self.flush().await };
        if let Err(error) = flushed {
            self.frozen.set(None);
            return Err(error);
        }
        let is_covered = self.covered.get().0 >= limit || mutation!(TableBeforeFlush);
        assert!(is_covered, "a write-back takes from the pages what a flush has covered");
        let rows = std::mem::take(&mut *self.dirty_rows.borrow_mut());
        rows.iter().for_each(|row| self.gather_pages(row));
        self.frozen.set(None);
        let attachments = self.pool.members().attachments();
        let written = self.write_tables(&rows).await?;
        if !mutation!(TableNotFlushed) {
            self.pool.flusher().flush_disks().await?;
        }
        // One that left and came back may have lost what it was given. What became of the pages is decided here, once, and
        // not by where the disks are when something is made of it: one that came back since does not have them.
        let mut stayed = self.pool.members().attachments();
        stayed.retain(|slot, seating| attachments.get(slot) == Some(seating));
        let stayed: BTreeSet<DiskSlot> = stayed.into_keys().collect();
        let mut homeless = Homeless::default();
        for (row, column) in &written.kept_back {
            homeless.add(row, *column);
        }
        let mut is_held = Vec::with_capacity(written.given.len());
        for together in written.given.chunks(TABLE_WRITES_MAX) {
            let are_there = join_all(together.iter().map(|given| self.is_only_copy_there(given))).await;
            is_held.extend(together.iter().zip(are_there).map(|(given, is_there)| {
                is_there && RowStore::is_table_held_by(&given.row, given.column, &stayed)
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
        rows.iter().filter(|row| !row.freed.get() && unwritten(row)).for_each(|row| self.note_dirty(row));
        // Whatever slab did not get the pages would be believed with what it has, once it is the only one.
        self.commit_missed_pages(&rows, &stayed).await?;
        let unformatted: Vec<_> =
            rows.iter().filter(|row| !row.freed.get() && !row.is_formatted()).cloned().collect();
        self.commit_formatted(&unformatted, |row| !homeless.has(row)).await?;
        // Tables are believed once a commit says that all of a row's are there; until then none are.
        homeless.take_all_of(|row| !row.is_formatted());
        // The next one has to look at them again, also where all of their pages are clean, and where this one ends half-way.
        homeless.rows().for_each(|row| self.note_dirty(row));
        self.forward(&homeless, &in_doubt, &caches, below).await
    }
}

impl TableOwner for Shared {
    fn write_back(&self, below: Lsn) -> LocalFuture<'_, Result<u64, PoolError>> {
        Box::pin(async move {
            self.write_back_all(below).await.map_err(|error| match error {
                SpaceError::Pool(error) => error,
                other => PoolError::Corrupt { name: self.pool_name().clone(), what: other.to_string() },
            })
        })
    }
}
