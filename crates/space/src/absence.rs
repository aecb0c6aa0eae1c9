//! Slabs that miss something: their rows say so, durably, before anybody could believe them.

use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_planted::{Bug, is_planted};
use dolmen_pool::{Purpose, keys};
use dolmen_store::Key;
use dolmen_units::{DiskSlot, Epoch};

use crate::error::SpaceError;
use crate::row::{Row, RowRecord, Slab};
use crate::shared::Shared;

/// Rows that are marked by one change of the map: a record of the log has room for so many.
const ABSENCES_TOGETHER: usize = 128;

/// Values that a change of the map sets.
type Edits = Vec<(Key, Vec<u8>)>;

impl Shared {
    /// Commits that slabs on absent disks miss what is written from now on. Columns whose every slab would be stale are
    /// left alone: their data is where it was, only out of reach.
    pub(crate) async fn settle_absences(&self, row: &Rc<Row>) -> Result<(), SpaceError> {
        self.settle_absences_of(std::iter::once(row)).await
    }

    /// As [`settle_absences`](Self::settle_absences), for several rows in one commit.
    pub(crate) async fn settle_absences_of(
        &self,
        rows: impl Iterator<Item = &Rc<Row>> + Clone,
    ) -> Result<(), SpaceError> {
        if is_planted(Bug::AbsenceNotCommitted) || !rows.clone().any(|row| self.has_unmarked_absence(row)) {
            return Ok(());
        }
        let mut change = self.pool.change(Purpose::Release).await;
        let mut records = Vec::new();
        for row in rows.filter(|row| !row.gone.get()) {
            if let Some((record, edits)) = self.with_absences(row) {
                edits.into_iter().for_each(|(key, value)| change.put(key, value));
                records.push((row, record));
            }
        }
        change.commit().await?;
        for (row, record) in records {
            row.adopt(record);
        }
        Ok(())
    }

    /// The row as it is when slabs on absent disks are stale, and the edits that say so; `None` when nothing changes.
    pub(crate) fn with_absences(&self, row: &Row) -> Option<(RowRecord, Edits)> {
        if !self.has_unmarked_absence(row) {
            return None;
        }
        let mut record = row.record();
        let mut edits = Vec::new();
        for slabs in &mut record.columns {
            let reachable =
                slabs.iter().any(|slab| slab.stale.is_none() && slab.present(&self.pool).is_some());
            for slab in slabs.iter_mut().filter(|slab| reachable && slab.stale.is_none()) {
                if slab.present(&self.pool).is_none() {
                    let left = self.pool.disk(slab.disk).map_or(Epoch(0), |disk| disk.member().left);
                    slab.stale = Some(left);
                    edits.push((keys::stale(slab.disk, row.space, row.index), Vec::new()));
                }
            }
        }
        edits.push((keys::row(row.space, row.index), record.encode()));
        Some((record, edits))
    }

    fn has_unmarked_absence(&self, row: &Row) -> bool {
        (0..row.shape.columns()).any(|column| {
            row.with_slabs(column, |slabs| {
                let reachable =
                    slabs.iter().any(|slab| slab.stale.is_none() && slab.present(&self.pool).is_some());
                reachable
                    && slabs.iter().any(|slab| slab.stale.is_none() && slab.present(&self.pool).is_none())
            })
        })
    }

    /// Commits that slabs are stale whose disks were not here for all of a write-back, one way or another. Columns whose every
    /// slab would be are left alone.
    pub(crate) async fn settle_missed_pages(
        &self,
        rows: &[Rc<Row>],
        seats: &BTreeMap<DiskSlot, u64>,
    ) -> Result<(), SpaceError> {
        let is_held = |slab: &Slab| {
            slab.present(&self.pool).is_some_and(|disk| seats.get(&disk.slot()) == Some(&disk.seating()))
        };
        let missed = |row: &&Rc<Row>| {
            (0..row.shape.columns()).any(|column| {
                row.with_slabs(column, |slabs| {
                    let mut trusted = slabs.iter().filter(|slab| slab.stale.is_none());
                    trusted.clone().any(is_held) && !trusted.all(is_held)
                })
            })
        };
        let rows: Vec<&Rc<Row>> =
            rows.iter().filter(missed).filter(|_| !is_planted(Bug::MissedTables)).collect();
        for some in rows.chunks(ABSENCES_TOGETHER) {
            let mut change = self.pool.change(Purpose::Release).await;
            let mut records = Vec::new();
            for row in some.iter().filter(|row| !row.gone.get()) {
                let mut record = row.record();
                for slabs in &mut record.columns {
                    let is_reachable = slabs.iter().any(|slab| slab.stale.is_none() && is_held(slab));
                    for slab in slabs.iter_mut().filter(|slab| slab.stale.is_none() && !is_held(slab)) {
                        if is_reachable {
                            let left = self.pool.disk(slab.disk).map(|disk| disk.member().left);
                            // One that is here again has what was written while it was away marked already.
                            let now = self.pool.epoch().number;
                            slab.stale = Some(left.filter(|left| left.0 > 0).unwrap_or(now));
                            change.put(keys::stale(slab.disk, row.space, row.index), Vec::new());
                        }
                    }
                }
                change.put(keys::row(row.space, row.index), record.encode());
                records.push((row, record));
            }
            change.commit().await?;
            records.into_iter().for_each(|(row, record)| row.adopt(record));
        }
        Ok(())
    }
}
