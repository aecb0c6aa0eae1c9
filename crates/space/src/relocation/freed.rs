//! Rows that are given back: one by one, or many in one change.
//!
//! Invariants:
//! - Allocation units are given back behind the commit that takes their row off the map.
//! - Whoever holds the lock of a row to free it waits for no other one.
//!
//! Left to others: why rows are freed (`discard`, `spaces`, `cache_size`).

use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::{Purpose, keys};

use crate::cache::space::Space;
use crate::format::error::SpaceError;
use crate::resources::locks::Range;
use crate::table::row::{Row, RowRecord};

/// Rows that are looked up together.
const TOGETHER: usize = 256;
/// What the change that frees several rows may come to by reckoning, beside its last row: a half of what the log takes in one
/// record.
const CHANGE_BYTES: usize = 96 << 10;
/// An edit that takes a key off the map, and those that a run of allocation units costs at most when it is given back.
const EDIT_BYTES: usize = 26;
const RUN_BYTES: usize = 3 * 48;

impl Space {
    /// Frees a row: the commit first, then the allocation units, then its memory. The caller holds a lock on all of it.
    pub(crate) async fn free_row(&self, row: &Rc<Row>) -> Result<(), SpaceError> {
        self.free_together(&[row]).await
    }

    /// Frees all of these rows, in order and many in one change, also those whose blocks wait for absent disks to be decided, and
    /// those that take their places meanwhile. Killed half-way, some of them are left.
    #[pooled]
    pub(crate) async fn free_rows(&self, indexes: &[u64]) -> Result<(), SpaceError> {
        for indexes in indexes.chunks(TOGETHER) {
            let mut left = indexes.to_vec();
            while !left.is_empty() {
                let mut rows = Vec::with_capacity(left.len());
                for index in &left {
                    rows.extend(self.in_doubt_row(*index).await?);
                }
                left = self.free_looked_up(&rows).await?;
            }
        }
        Ok(())
    }

    /// The same of rows of a space that stays: what nobody has decided of them is not left behind for those that come there next.
    pub(crate) async fn free_rows_decided(&self, indexes: &[u64]) -> Result<(), SpaceError> {
        for indexes in indexes.chunks(TOGETHER) {
            for index in indexes {
                self.row(*index).await?;
            }
            self.free_rows(indexes).await?;
        }
        Ok(())
    }

    /// Frees rows; those of which somebody else had a lock, and that are another one by now, or none, are to be looked up again.
    #[pooled]
    async fn free_looked_up(&self, rows: &[Rc<Row>]) -> Result<Vec<u64>, SpaceError> {
        let (mut lot, mut guards, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut again = Vec::new();
        for row in rows {
            let whole = Range { first: 0, count: row.shape.row_blocks() };
            let guard = match row.locks.try_lock(whole) {
                Some(guard) => guard,
                None => {
                    // Who has this one may wait for one of those.
                    self.free_together(&lot).await?;
                    lot.clear();
                    guards.clear();
                    bytes = 0;
                    row.locks.lock(whole).await
                }
            };
            guards.push(guard);
            if row.freed.get() {
                if !mutation!(RenewedSkipped) {
                    again.push(row.index);
                }
                continue;
            }
            lot.push(row);
            bytes += [Some(row.record()), row.shadow().map(|shadow| shadow.record())]
                .iter()
                .flatten()
                .map(bytes_of)
                .sum::<usize>();
            if bytes >= CHANGE_BYTES {
                self.free_together(&lot).await?;
                lot.clear();
                guards.clear();
                bytes = 0;
            }
        }
        self.free_together(&lot).await?;
        Ok(again)
    }

    /// Frees rows in one change. The caller holds locks on all of each.
    #[pooled]
    async fn free_together(&self, rows: &[&Rc<Row>]) -> Result<(), SpaceError> {
        if rows.is_empty() {
            return Ok(());
        }
        let _tables = self.shared.table_mutex.take().await;
        let mut change = self.shared.pool.change(Purpose::Release).await;
        let (mut count, mut freed) = (0, Vec::with_capacity(rows.len()));
        // A row that was freed or promoted since the caller looked has its allocation units no longer.
        for row in rows.iter().filter(|row| !row.freed.get() || mutation!(FreeWithoutRecheck)) {
            let record = row.record();
            change.delete(keys::row(self.id(), row.index));
            for slab in record.columns.iter().flatten() {
                change.release(slab.disk, &slab.runs);
                change.delete(keys::stale(slab.disk, self.id(), row.index));
            }
            count = change.add(keys::row_count(self.id()), -1).await?;
            // Its shadow row goes with it: alone, it would be nobody's.
            let shadow = row.shadow();
            if let Some(shadow) = &shadow {
                self.release_shadow(&mut change, shadow).await?;
            }
            freed.push((*row, record, shadow));
        }
        if freed.is_empty() {
            return Ok(());
        }
        // Whoever waits for a row's lock must look it up again, and find nothing.
        let set_deleting = |is_deleting| {
            for (row, _, shadow) in &freed {
                row.freed.set(is_deleting);
                shadow.iter().for_each(|shadow| shadow.freed.set(is_deleting));
            }
        };
        set_deleting(true);
        if let Err(error) = change.commit().await {
            // The pool has stopped, and nobody was told that the rows are free. Whoever looks them up finds them again.
            set_deleting(false);
            return Err(error.into());
        }
        self.row_count.set(count);
        freed.iter().for_each(|(row, record, shadow)| self.forget_freed(row, record, shadow.as_ref()));
        Ok(())
    }

    /// Forgets what memory has of a row that is free.
    fn forget_freed(&self, row: &Rc<Row>, record: &RowRecord, shadow: Option<&Rc<Row>>) {
        if let Some(shadow) = shadow {
            self.shared.forget_pages(shadow);
            self.forget_shadow(row);
        }
        self.forget_what_was_of(row);
        self.forget_own(record);
    }

    /// Forgets what memory has of a row that is no more, but for whose its allocation units are.
    pub(crate) fn forget_what_was_of(&self, row: &Rc<Row>) {
        self.rows.borrow_mut().insert(row.index, None);
        self.shared.forget_pages(row);
        if let Some(cache) = self.cache_of(row) {
            cache.forget_row(row);
        }
        self.shared.forget_row(self.id(), row.index);
    }
}

/// What it takes to free a row, at most.
fn bytes_of(record: &RowRecord) -> usize {
    let of_slabs = record.columns.iter().flatten().map(|slab| EDIT_BYTES + slab.runs.len() * RUN_BYTES);
    // Its key, and the count of rows.
    3 * EDIT_BYTES + of_slabs.sum::<usize>()
}
