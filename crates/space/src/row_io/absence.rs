//! Slabs that miss something: their rows say so, durably, before anybody could believe them.

use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::{Pool, Purpose, keys};
use dolmen_store::Key;
use dolmen_units::{DiskSlot, Epoch};

use crate::format::error::SpaceError;
use crate::format::record::ROWS_BYTES_MAX;
use crate::table::row::{Row, RowRecord, Slab};
use crate::table::row_store::RowStore;

/// Values that a change of the map sets.
type Edits = Vec<(Key, Vec<u8>)>;

/// Row records in the map that say which slabs miss writes.
#[derive(Clone, Copy)]
pub(crate) struct RowRecords<'a> {
    store: &'a RowStore,
}

impl<'a> RowRecords<'a> {
    /// Returns the service for the rows of a pool.
    pub(crate) fn of(store: &'a RowStore) -> Self {
        Self { store }
    }
}

impl RowRecords<'_> {
    /// Commits that slabs on absent disks miss what is written from now on. Columns that could not be had any more are left
    /// alone: their data is where it was, only out of reach.
    pub(crate) async fn commit_absences(self, row: &Rc<Row>) -> Result<(), SpaceError> {
        // Each write asks this; nearly always nothing is to be committed.
        match has_unmarked(row, &|slab| slab.present(&self.store.pool).is_some()) {
            true => self.commit_absences_of_row(row).await,
            false => Ok(()),
        }
    }

    #[pooled]
    async fn commit_absences_of_row(self, row: &Rc<Row>) -> Result<(), SpaceError> {
        self.commit_absences_of(std::iter::once(row)).await
    }

    /// As [`commit_absences`](Self::commit_absences), for several rows at once.
    pub(crate) async fn commit_absences_of(
        self,
        rows: impl Iterator<Item = &Rc<Row>> + Clone,
    ) -> Result<(), SpaceError> {
        if mutation!(AbsenceNotCommitted) {
            return Ok(());
        }
        let is_here = |slab: &Slab| slab.present(&self.store.pool).is_some();
        self.mark_slabs(rows, |row| self.marked(row, &is_here)).await
    }

    /// Commits that slabs are stale whose disks did not stay for all of a write-back: with the pages that they have, they
    /// would be believed once they are the only ones. Where the disks are by now does not matter.
    #[pooled]
    pub(crate) async fn commit_missed_pages(
        self,
        rows: &[Rc<Row>],
        stayed: &BTreeSet<DiskSlot>,
    ) -> Result<(), SpaceError> {
        if mutation!(MissedTables) {
            return Ok(());
        }
        let has_them = |slab: &Slab| stayed.contains(&slab.disk);
        self.mark_slabs(rows.iter(), |row| self.marked(row, &has_them)).await
    }

    /// Commits that slabs on a disk lack what was written since an epoch, also where they were trusted or lacked less, as long
    /// as another slab of their column holds everything, wherever that is.
    #[pooled]
    pub(crate) async fn mark_old(
        self,
        rows: &[Rc<Row>],
        slot: DiskSlot,
        since: Epoch,
    ) -> Result<(), SpaceError> {
        self.mark_slabs(rows.iter(), |row| marked_old(&self.store.pool, row, slot, since)).await
    }

    /// Returns whether a row says what [`mark_old`](Self::mark_old) has it say.
    pub(crate) fn is_marked_old(self, row: &Row, slot: DiskSlot, since: Epoch) -> bool {
        marked_old(&self.store.pool, row, slot, since).is_none()
    }

    /// Marks slabs stale, in as few changes as will do.
    async fn mark_slabs<'a>(
        self,
        rows: impl Iterator<Item = &'a Rc<Row>> + Clone,
        marked: impl Fn(&Row) -> Option<(RowRecord, Edits)>,
    ) -> Result<(), SpaceError> {
        let mut rows = rows.filter(|row| marked(row).is_some()).peekable();
        while rows.peek().is_some() {
            let mut change = self.store.pool.change(Purpose::Release).await;
            let mut records = Vec::new();
            let mut bytes = 0;
            while bytes < ROWS_BYTES_MAX
                && let Some(row) = rows.next()
            {
                let marked = if row.freed.get() { None } else { marked(row) };
                let Some((record, edits)) = marked else { continue };
                bytes += edits.iter().map(|(_, value)| size_of::<Key>() + value.len()).sum::<usize>();
                edits.into_iter().for_each(|(key, value)| change.put(key, value));
                records.push((row, record));
            }
            change.commit().await?;
            records.into_iter().for_each(|(row, record)| row.adopt(record));
        }
        Ok(())
    }

    /// The row as it is when slabs on absent disks are stale, and the edits that say so; `None` when nothing changes.
    pub(crate) fn with_absences(self, row: &Row) -> Option<(RowRecord, Edits)> {
        self.marked(row, &|slab| slab.present(&self.store.pool).is_some())
    }

    fn marked(self, row: &Row, is_good: &impl Fn(&Slab) -> bool) -> Option<(RowRecord, Edits)> {
        if !has_unmarked(row, is_good) {
            return None;
        }
        let mut record = row.record();
        let mut edits = Edits::new();
        let is_had = |column| row.has_blocks_on(column, is_good);
        for (_, slabs) in record.columns.iter_mut().enumerate().filter(|(column, _)| is_had(*column)) {
            for slab in slabs.iter_mut().filter(|slab| slab.stale.is_none() && !is_good(slab)) {
                slab.stale = Some(self.missing_since(slab.disk));
                edits.push((keys::stale(slab.disk, row.id), Vec::new()));
            }
        }
        edits.push((keys::row(row.id), record.encode()));
        Some((record, edits))
    }

    /// The epoch since which a disk misses what is written. One that is here again, or is only about to leave, misses it from
    /// now on: what was written while it was away before is marked already.
    fn missing_since(self, slot: DiskSlot) -> Epoch {
        let left = self.store.pool.disk(slot).map(|disk| disk.member().left);
        left.filter(|left| left.0 > 0).unwrap_or(self.store.pool.epoch().number)
    }
}

/// Whether a slab is on another disk that has what its record says. A disk that was left out as old has not: it would have the
/// content of another old disk replaced by its own.
pub(crate) fn is_other_holder(pool: &Pool, slab: &Slab, slot: DiskSlot) -> bool {
    let is_old = || pool.disk(slab.disk).is_some_and(|disk| disk.absence().is_left_out_as_old());
    slab.disk != slot && !is_old()
}

/// The row as it is when slabs on a disk lack what was written since an epoch, and the edits that say so.
fn marked_old(pool: &Pool, row: &Row, slot: DiskSlot, since: Epoch) -> Option<(RowRecord, Edits)> {
    let mut record = row.record();
    let mut is_changed = false;
    let is_elsewhere = |column| row.has_blocks_on(column, |slab| is_other_holder(pool, slab, slot));
    for (_, slabs) in record.columns.iter_mut().enumerate().filter(|(column, _)| is_elsewhere(*column)) {
        let lacks_less = |slab: &&mut Slab| slab.disk == slot && slab.stale.is_none_or(|known| known > since);
        for slab in slabs.iter_mut().filter(lacks_less) {
            slab.stale = Some(since);
            is_changed = true;
        }
    }
    let edits = || {
        let row_key = keys::row(row.id);
        vec![(keys::stale(slot, row.id), Vec::new()), (row_key, record.encode())]
    };
    is_changed.then(edits).map(|edits| (record.clone(), edits))
}

/// Whether a column has a slab that is not good and not stale, and its blocks can be had from others that are good.
fn has_unmarked(row: &Row, is_good: &impl Fn(&Slab) -> bool) -> bool {
    let is_unmarked = |slab: &Slab| slab.stale.is_none() && !is_good(slab);
    (0..row.shape.columns()).any(|column| {
        row.with_slabs(column, |slabs| slabs.iter().any(is_unmarked)) && row.has_blocks_on(column, is_good)
    })
}

impl RowRecords<'_> {
    /// Commits that every page of the tables of rows is on its disks, many rows in one change: a record each would take more
    /// of the log than the checkpoint that this is a part of can trim. What else became of a row meanwhile stands: it is
    /// looked at only when no other change can come between, and a row that was freed stays freed.
    pub(crate) async fn commit_formatted(
        self,
        rows: &[Rc<Row>],
        is_whole: impl Fn(&Rc<Row>) -> bool,
    ) -> Result<(), SpaceError> {
        let mut rows = rows.iter().filter(|row| is_whole(row)).peekable();
        while rows.peek().is_some() {
            let mut change = self.store.pool.change(dolmen_pool::Purpose::Release).await;
            let mut formatted = Vec::new();
            let mut bytes = 0;
            while bytes < ROWS_BYTES_MAX
                && let Some(row) = rows.next()
            {
                if row.freed.get() {
                    continue;
                }
                let mut record = row.record();
                record.formatted = true;
                let value = record.encode();
                bytes += size_of::<Key>() + value.len();
                change.put(keys::row(row.id), value);
                // Recovery has marked slabs stale in memory only, and the record must not be durable without its index.
                for slab in record.columns.iter().flatten().filter(|slab| slab.stale.is_some()) {
                    bytes += size_of::<Key>();
                    change.put(keys::stale(slab.disk, row.id), Vec::new());
                }
                formatted.push((row, record));
            }
            if !formatted.is_empty() {
                change.commit().await?;
            }
            formatted.into_iter().for_each(|(row, record)| row.adopt(record));
        }
        Ok(())
    }
}
