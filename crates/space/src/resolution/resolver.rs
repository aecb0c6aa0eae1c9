//! Decisions about rows that waited for absent disks, and their durability.

use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_journal::Wait;
use dolmen_mutation::mutation;
use dolmen_units::SpaceId;
use smallvec::SmallVec;

use crate::format::error::{SpaceError, UnreadableReason};
use crate::layout::Covered;
use crate::resolution::in_flight::decide_sources;
use crate::resolution::recovery::{Below, Recovery, Restating, abandon, encode_candidates, note_all_unfound};
use crate::resolution::row_recovery::recover_row;
use crate::resources::locks::Range;
use crate::row_io::absence::RowRecords;
use crate::row_io::block_log::BlockLog;
use crate::table::candidates::RowCandidates;
use crate::table::pages::TableStore;
use crate::table::row::Row;
use crate::table::space::{Shared, SpaceRows};

/// Resolution of in-doubt blocks of rows while the pool is open.
#[derive(Clone, Copy)]
pub(crate) struct Resolver<'a> {
    shared: &'a Shared,
}

impl<'a> Resolver<'a> {
    /// Returns the service for what the spaces of a pool share.
    pub(crate) fn of(shared: &'a Shared) -> Self {
        Self { shared }
    }
}

impl Resolver<'_> {
    /// Decides what the log says of a row and of its shadow row, now that their disks may be here.
    #[pooled]
    pub(crate) async fn resolve(self, space: &SpaceRows, row: &Rc<Row>) -> Result<(), SpaceError> {
        let both: SmallVec<[Rc<Row>; 2]> = row.shadow().into_iter().chain([Rc::clone(row)]).collect();
        if both.iter().any(|row| self.shared.is_being_deferred(row)) {
            drop(self.shared.defer_mutex.take().await);
        }
        {
            let _exclusive = self.shared.resolve_mutex.take().await;
            self.decide_both(space, row).await?;
        }
        // Nothing of the row is served before its decisions are durable.
        let _exclusive = self.shared.durability_mutex.take().await;
        if both.iter().any(|row| self.shared.becoming_durable.borrow().contains_key(&(row.space, row.index)))
        {
            let before = self.shared.write_backs.get();
            self.shared.pool.checkpoint().await?;
            self.shared.becoming_durable.borrow_mut().retain(|_, decided| *decided > before);
        }
        Ok(())
    }

    /// Decides what waits of a shadow row and its row; a stripe of the shadow row that was left for the row, behind that.
    pub(crate) async fn decide_both(self, space: &SpaceRows, row: &Rc<Row>) -> Result<(), SpaceError> {
        let decide = async |row: &Rc<Row>| {
            let waits = self.shared.deferred.borrow().contains_key(&(row.space, row.index));
            if waits { self.decide_row(space, row).await } else { Ok(()) }
        };
        let Some(shadow) = row.shadow() else { return decide(row).await };
        let of_shadow = decide(&shadow).await;
        decide(row).await?;
        if of_shadow.is_err() { decide(&shadow).await } else { Ok(()) }
    }

    #[pooled]
    pub(crate) async fn decide_row(self, space: &SpaceRows, row: &Rc<Row>) -> Result<(), SpaceError> {
        let key = (row.space, row.index);
        let mut recovery = Recovery::default();
        // Whoever began before the disk left is done with the row then. A checkpoint may need the lock as well.
        let _guard = row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await;
        RowRecords::of(self.shared).commit_absences(row).await?;
        row.moves.touch(Range { first: 0, count: row.shape.row_blocks() });
        let candidates = self
            .shared
            .deferred
            .borrow()
            .get(&key)
            .map(|candidates| (**candidates).clone())
            .unwrap_or_default();
        let places: Vec<(usize, u32)> = candidates.keys().copied().collect();
        self.shared.deciding.set(Some((key, false)));
        let left = self.decide_candidates(space, row, candidates, &mut recovery).await;
        note_all_unfound(self.shared, |row| space.cache_of(row), &mut recovery);
        let left_again = self.shared.deciding.take().is_some_and(|(_, left_again)| left_again);
        let left = left?;
        if left_again && let Some((column, block)) = places.first() {
            // A disk left meanwhile, perhaps with what was just decided: all of the row is decided again.
            return Err(TableStore::of(self.shared).unreadable(
                row,
                *column,
                *block as usize,
                UnreadableReason::Absent,
            ));
        }
        let lost = recovery.reverted + recovery.damaged + recovery.accepted_unverified > 0;
        if lost && self.shared.is_unflushed_away(row) {
            space.lost_unflushed.set(true);
        }
        self.note_decided(key, &places, &left);
        match left.keys().next() {
            Some((column, block)) => Err(TableStore::of(self.shared).unreadable(
                row,
                *column,
                *block as usize,
                UnreadableReason::Absent,
            )),
            None => Ok(()),
        }
    }

    #[pooled]
    pub(crate) async fn decide_candidates(
        self,
        space: &SpaceRows,
        row: &Rc<Row>,
        candidates: RowCandidates,
        recovery: &mut Recovery,
    ) -> Result<RowCandidates, SpaceError> {
        let (mut left, sources) =
            recover_row(self.shared, space, row, candidates, Below::Disk, recovery).await?;
        // Which slabs lack something is on record.
        let freed = decide_sources(self.shared, space, sources, &mut left, recovery).await?;
        freed.iter().for_each(|source| source.is_deleting(self.shared));
        Ok(left)
    }

    /// Notes that blocks of a row are decided. Claims that came meanwhile stay.
    pub(crate) fn note_decided(self, key: (SpaceId, u64), places: &[(usize, u32)], left: &RowCandidates) {
        self.shared.becoming_durable.borrow_mut().insert(key, self.shared.write_backs.get());
        let mut deferred = self.shared.deferred.borrow_mut();
        let Some(candidates) = deferred.get_mut(&key).map(Rc::make_mut) else { return };
        places
            .iter()
            .filter(|place| !left.contains_key(place))
            .for_each(|place| drop(candidates.remove(place)));
        if candidates.is_empty() {
            deferred.remove(&key);
            self.shared.unflushed_away.borrow_mut().remove(&key);
            drop(deferred);
            // Whoever waits for room in a write cache may find some.
            self.shared.caches().iter().for_each(|cache| cache.notify.notify_all());
        }
    }

    /// Says of blocks of some columns of a row that nobody could decide that they are not to be taken as they are found, and, if they are
    /// lost, that they are, unless a copy turns up. Both are durable then: otherwise power could take them, and
    /// leave what the log says behind them. The caller holds the lock of all of the row.
    #[pooled]
    pub(crate) async fn declare_in_doubt_lost(
        self,
        row: &Row,
        columns: &[usize],
        are_lost: bool,
    ) -> Result<(), SpaceError> {
        let _exclusive = self.shared.defer_mutex.take().await;
        let key = (row.space, row.index);
        let mut candidates = self
            .shared
            .deferred
            .borrow()
            .get(&key)
            .map(|candidates| (**candidates).clone())
            .unwrap_or_default();
        candidates
            .retain(|(column, _), candidates| columns.contains(column) && abandon(candidates, are_lost));
        if candidates.is_empty() || mutation!(LostAcceptedUnverified) {
            return Ok(());
        }
        for body in encode_candidates(&candidates, (Restating::Supersedes, Covered::Before)) {
            BlockLog::of(self.shared).record(&body, Wait::Durable).await?;
        }
        let mut deferred = self.shared.deferred.borrow_mut();
        Rc::make_mut(deferred.entry(key).or_default()).extend(candidates);
        Ok(())
    }
}
