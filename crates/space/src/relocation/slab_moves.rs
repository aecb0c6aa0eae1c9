//! Slab moves: one executor; planners say which slabs go where (docs/design/0032, *Slab moves*).
//!
//! 1. The planner names the moves of each row of a lot. Each gets a new slab, stale.
//! 2. The new slabs are filled; a checkpoint writes their tables; then they are trusted.
//! 3. A row is verified, unless this lot has filled all of its new slabs from nothing, without a loss, and it is the same row still.
//! 4. Its slabs on the disks that it leaves are dropped: with the lot, or, for a replacement, when all rows have their new slabs.
//!
//! Invariants:
//! - The refill mutex is held throughout a lot: no slab is claimed or dropped under a refill.
//! - Redundancy is never lower on the way: a slab is dropped when enough others of its column are trusted.
//!
//! Left to others: which slabs go where (`removal`, `emptying`, `replacement`, `rebalance`), filling them (`refill`), adding and
//! dropping them (`resync`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::Pool;
use dolmen_units::{DiskSlot, Epoch, RowId, SpaceId};

use crate::format::error::SpaceError;
use crate::relocation::refill::{
    Filling, ROWS_AT_A_TIME, RowOfLot, RowRefill, Schedule, Waiting, disks_at_work, neediest_first, next_lot,
    not_begun, of_spaces, redundancy_left,
};
use crate::relocation::resync::{Refilled, Resynced, SlabChanges, SlabTrust};
use crate::relocation::row_verify::RowVerify;
use crate::resources::progress::Progress;
use crate::row_io::flusher::Flusher;
use crate::table::row::{Row, RowRecord, Slabs};
use crate::table::space::{Shared, SpaceRows};

/// Move of the slab of a column from one disk to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlabMove {
    pub(crate) column: usize,
    pub(crate) from: DiskSlot,
    pub(crate) to: DiskSlot,
}

/// Row whose slabs are to move, as it is now.
pub(crate) struct RowToMove<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) record: &'a RowRecord,
}

/// Moves of a row that this lot has tried.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    /// Moves whose new slab the row has.
    pub(crate) done: Vec<SlabMove>,
    /// Moves whose disk had no room.
    pub(crate) refused: Vec<SlabMove>,
    /// Moves for which nothing was to be added.
    pub(crate) void: Vec<SlabMove>,
}

impl Tried {
    /// Returns whether a column has its new slab, or gets none.
    pub(crate) fn has_ended(&self, column: usize) -> bool {
        self.done.iter().chain(&self.void).any(|one| one.column == column)
    }

    /// Returns whether no move was tried.
    pub(crate) fn is_empty(&self) -> bool {
        self.done.is_empty() && self.refused.is_empty() && self.void.is_empty()
    }

    /// Returns the disks that took no slab of a column.
    pub(crate) fn refused(&self, column: usize) -> impl Iterator<Item = DiskSlot> {
        self.refused.iter().filter(move |one| one.column == column).map(|one| one.to)
    }
}

/// Planner of slab moves.
pub(crate) trait Planner {
    /// Returns the next move of a row, `None` when it has no more. The executor asks again after each move, with the row as it is
    /// then.
    fn next(&self, row: &RowToMove<'_>, tried: &Tried) -> Option<SlabMove>;

    /// Returns the disks whose slabs the row loses after these moves.
    fn leaves(&self, tried: &Tried) -> Vec<DiskSlot>;

    /// Notes that a disk took no slab; `error` where its free allocation units lie in too many pieces, or do not suffice.
    ///
    /// # Errors
    /// The error, where the job cannot go on without that disk.
    fn note_refusal(&self, _refused: SlabMove, _error: Option<SpaceError>) -> Result<(), SpaceError> {
        Ok(())
    }

    /// Returns whether the job still applies. The executor asks between lots.
    fn goes_on(&self) -> bool;

    /// Returns whether old slabs stay until all rows have their new ones. Else they go with their lot, also where the job has ended
    /// meanwhile, so that no row keeps a slab too many.
    fn drops_last(&self) -> bool {
        false
    }
}

/// Outcome of a lot.
pub(crate) struct Moved {
    /// Spaces of rows that keep a slab on a disk that they were to leave.
    pub(crate) left: BTreeSet<SpaceId>,
    /// Rows that were not begun, because the job is to stand or to stop.
    pub(crate) not_begun: Vec<(Rc<SpaceRows>, u64)>,
    /// Rows that have their new slabs and keep the old ones until the end.
    filled: Vec<Filled>,
}

/// A row of a lot that has its new slabs.
struct Begun {
    of_lot: (Rc<SpaceRows>, u64),
    leaves: Vec<DiskSlot>,
    /// The row and its columns, if all of them get new slabs from nothing.
    supersedes: Option<(RowId, Vec<usize>)>,
}

/// A row of a lot whose new slabs were filled, as far as that could be done.
struct Filled {
    of_lot: (Rc<SpaceRows>, u64),
    leaves: Vec<DiskSlot>,
    /// The row, if its new slabs were filled from nothing and no block was without a good copy.
    whole: Option<RowId>,
}

/// Executor of slab moves of a pool.
#[derive(Clone, Copy)]
pub(crate) struct SlabMoves<'a> {
    pub(crate) shared: &'a Shared,
}

impl SlabMoves<'_> {
    /// Moves slabs of rows as a planner says, lot by lot, those with the least redundancy first; returns the spaces of rows that keep
    /// a slab on a disk that they were to leave, or `None` where the job was to end before.
    ///
    /// # Errors
    /// [`SpaceError`]; called again, it goes on.
    #[pooled]
    pub(crate) async fn move_rows(
        &self,
        rows: Vec<(Rc<SpaceRows>, u64)>,
        planner: &dyn Planner,
        progress: &Progress,
        result: &mut Resynced,
    ) -> Result<Option<BTreeSet<SpaceId>>, SpaceError> {
        progress.total.set(progress.done.get() + rows.len() as u64);
        let (mut left, mut filled) = (BTreeSet::new(), Vec::new());
        let mut waiting: VecDeque<_> = neediest_first(rows).await?.into();
        while !waiting.is_empty() {
            if !progress.may_go_on(&self.shared.closing).await || !planner.goes_on() {
                return Ok(None);
            }
            let together = next_lot(&mut waiting).await?;
            let moved = self.move_lot(&together, planner, progress, result).await?;
            left.extend(moved.left);
            filled.extend(moved.filled);
            progress.done.set(progress.done.get() + (together.len() - moved.not_begun.len()) as u64);
            moved.not_begun.into_iter().rev().for_each(|row| waiting.push_front(row));
        }
        for row in &filled {
            if !progress.may_go_on(&self.shared.closing).await || !planner.goes_on() {
                return Ok(None);
            }
            let Some((found, may_go)) = self.may_drop(row).await? else { continue };
            let _exclusive = self.shared.refill_mutex.take().await;
            if !drop_old(row, &found, may_go).await? {
                left.insert(row.of_lot.0.id());
            }
        }
        Ok(Some(left))
    }

    /// Moves slabs of a lot of rows as a planner says.
    ///
    /// # Errors
    /// [`SpaceError`]; slabs that were added stay stale then, or are trusted beside the old ones.
    #[pooled]
    pub(crate) async fn move_lot(
        &self,
        rows: &[(Rc<SpaceRows>, u64)],
        planner: &dyn Planner,
        progress: &Progress,
        result: &mut Resynced,
    ) -> Result<Moved, SpaceError> {
        Flusher::of(self.shared).gate().await?;
        let _exclusive = self.shared.refill_mutex.take().await;
        let mut begun = Vec::with_capacity(rows.len());
        for (space, index) in rows {
            let Some(row) = space.in_doubt_row(*index).await? else { continue };
            let leaves = self.claim_moves(space, &row, planner).await?;
            let is_superseding = leaves.iter().all(|from| is_refilled(&self.shared.pool, &row, *from));
            let supersedes = is_superseding.then(|| (identity(&row), columns_on(&row.record(), &leaves)));
            begun.push(Begun { of_lot: (Rc::clone(space), *index), leaves, supersedes });
        }
        let lot: Vec<(Rc<SpaceRows>, u64)> = begun.iter().map(|row| row.of_lot.clone()).collect();
        let done = self.refill_lot(&lot, progress, result).await?;
        let not_begun = not_begun(&lot, &done).collect();
        let mut filled = Vec::with_capacity(done.len());
        for row in &done {
            let Some(Begun { of_lot, leaves, supersedes }) = begun.get_mut(row.at) else { continue };
            // A column that was not filled says nothing, and neither do those of another row that took the place of this one.
            let is_filled = |column: &usize| row.refilled.as_ref().is_some_and(|row| row.is_new(*column));
            let whole = supersedes.take().filter(|(_, columns)| columns.iter().all(is_filled));
            let whole = whole.filter(|_| row.result.lost_blocks == 0).map(|(id, _)| id);
            filled.push(Filled { of_lot: of_lot.clone(), leaves: std::mem::take(leaves), whole });
        }
        let refilled: Vec<(Rc<SpaceRows>, Refilled)> = of_spaces(&lot, done).collect();
        let is_early = mutation!(DroppedUntrusted);
        if !is_early {
            SlabTrust::of(self.shared).trust_all(&refilled, result).await?;
        }
        let mut left = BTreeSet::new();
        if planner.drops_last() {
            return Ok(Moved { left, not_begun, filled });
        }
        for row in &filled {
            let Some((found, may_go)) = self.may_drop(row).await? else { continue };
            if !drop_old(row, &found, may_go).await? {
                left.insert(row.of_lot.0.id());
            }
        }
        if is_early {
            SlabTrust::of(self.shared).trust_all(&refilled, result).await?;
        }
        Ok(Moved { left, not_begun, filled: Vec::new() })
    }

    /// Returns a row that is to leave disks and whether its slabs there may go; `None` where there is no such row any more.
    async fn may_drop(&self, filled: &Filled) -> Result<Option<(Rc<Row>, bool)>, SpaceError> {
        let (space, index) = &filled.of_lot;
        let row = if filled.leaves.is_empty() { None } else { space.in_doubt_row(*index).await? };
        let Some(row) = row else { return Ok(None) };
        // What nobody else has whole may be whole there, or on a disk that is away; what is here is healed from it.
        let is_whole = filled.whole == Some(identity(&row));
        // Where nothing can be dropped, nobody asks the disks whether it could.
        let may_go = is_whole
            || mutation!(LastCopyDropped)
            || (filled.leaves.iter().any(|from| !SlabChanges::of(space).is_stuck_on(&row, *from))
                && RowVerify::of(space).can_do_without_absent(*index).await?);
        Ok(Some((row, may_go)))
    }

    /// Gives the stale slabs of rows what they miss, those of different disks beside each other; what came of those that were begun,
    /// in the order of the rows: of a job that is to stand or to stop no more are begun. What it did is added to `result`. The
    /// caller has the turn of refilling.
    ///
    /// # Errors
    /// [`SpaceError`]; the slabs stay stale then, and nothing is lost.
    #[pooled]
    pub(crate) async fn refill_lot(
        &self,
        rows: &[(Rc<SpaceRows>, u64)],
        progress: &Progress,
        result: &mut Resynced,
    ) -> Result<Vec<RowOfLot>, SpaceError> {
        let mut waiting = Vec::with_capacity(rows.len());
        for (at, (space, index)) in rows.iter().enumerate() {
            let (mut disks, mut left) = (BTreeSet::new(), 0);
            if let Some(row) = space.in_doubt_row(*index).await? {
                (disks, left) =
                    (disks_at_work(&self.shared.pool, &row), redundancy_left(&self.shared.pool, &row));
            }
            waiting.push(Waiting { at, disks, redundancy_left: left });
        }
        let schedule = Schedule::new(&self.shared.pool, waiting);
        let declared_lost = Cell::new(result.unreadable);
        let done = RefCell::new(Vec::with_capacity(rows.len()));
        let work = async |_: usize| {
            while let Some(next) = schedule.next().await {
                if !progress.goes_on() {
                    schedule.end();
                    break;
                }
                let Some((space, index)) = rows.get(next.at) else { continue };
                let mut of_row = RowOfLot { at: next.at, refilled: None, result: Resynced::default() };
                let filling = Filling { declared_lost: &declared_lost, progress };
                match RowRefill::of(space).fill_row(*index, filling, &mut of_row.result).await {
                    Ok(refilled) => of_row.refilled = refilled,
                    // Others are not kept waiting by a row whose disks are away.
                    Err(SpaceError::Unreadable { .. }) => of_row.result.waiting += 1,
                    Err(error) => {
                        // What the others have begun comes to its end, and no more.
                        schedule.end();
                        return Err(error);
                    }
                }
                done.borrow_mut().push(of_row);
            }
            Ok(())
        };
        let ended = join_all((0..ROWS_AT_A_TIME.min(rows.len())).map(work)).await;
        ended.into_iter().collect::<Result<(), SpaceError>>()?;
        let mut done: Vec<RowOfLot> = done.into_inner();
        done.sort_by_key(|row| row.at);
        // Behind all of them, so that heads do not go to the log and back for each.
        for row in &mut done {
            let (Some(refilled), Some((space, _))) = (&row.refilled, rows.get(row.at)) else { continue };
            match RowRefill::of(space).announce(refilled).await {
                Ok(()) => {}
                // Its last source has left, and nobody can tell what its tables say: the others do not wait for it.
                Err(SpaceError::Unreadable { .. }) => {
                    row.result.waiting += refilled.slabs.len() as u64;
                    row.refilled = None;
                }
                Err(error) => return Err(error),
            }
        }
        done.iter().for_each(|row| result.add(&row.result));
        Ok(done)
    }

    /// Gives a row the new slabs that a planner names, stale; returns the disks that the row is to leave.
    #[pooled]
    async fn claim_moves(
        &self,
        space: &SpaceRows,
        row: &Rc<Row>,
        planner: &dyn Planner,
    ) -> Result<Vec<DiskSlot>, SpaceError> {
        let (pool, mut tried) = (&self.shared.pool, Tried::default());
        loop {
            let next = planner.next(&RowToMove { pool, record: &row.record() }, &tried);
            let Some(one) = next else { return Ok(planner.leaves(&tried)) };
            match SlabChanges::of(space)
                .add_slab(row, (one.from, one.to), |column| column == one.column)
                .await
            {
                Ok(true) => tried.done.push(one),
                Ok(false) => {
                    planner.note_refusal(one, None)?;
                    tried.void.push(one);
                }
                // Its free allocation units lie in too many pieces, or somebody else was there first.
                Err(error @ SpaceError::Pool(_)) => {
                    pool.log().check_writable()?;
                    planner.note_refusal(one, Some(error))?;
                    tried.refused.push(one);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Drops the slabs of a row on the disks that it leaves, if they may go; returns whether none is left there.
async fn drop_old(filled: &Filled, row: &Rc<Row>, may_go: bool) -> Result<bool, SpaceError> {
    let mut none_is_left = true;
    for from in &filled.leaves {
        none_is_left &= may_go && SlabChanges::of(&filled.of_lot.0).drop_slab(row, *from).await?;
    }
    Ok(none_is_left)
}

/// Identity of a row: another row may take its place meanwhile, and nothing says that a slab of that one was filled from nothing.
fn identity(row: &Row) -> RowId {
    if mutation!(ReplacedByPlace) { RowId(row.index) } else { row.id }
}

/// Columns of a row with a slab on one of these disks.
fn columns_on(record: &RowRecord, disks: &[DiskSlot]) -> Vec<usize> {
    let is_on = |slabs: &Slabs| slabs.iter().any(|slab| disks.contains(&slab.disk));
    record.columns.iter().enumerate().filter(|(_, slabs)| is_on(slabs)).map(|(column, _)| column).collect()
}

/// Returns whether each column of a row with a slab on a disk has another, on a disk that is here, that is filled from nothing:
/// filling it shows whether anything lacks a good copy. One that was filled before, and trusted, says nothing of that.
pub(crate) fn is_refilled(pool: &Pool, row: &Row, from: DiskSlot) -> bool {
    row.record().columns.iter().filter(|slabs| slabs.iter().any(|slab| slab.disk == from)).all(|slabs| {
        let mut others = slabs.iter().filter(|slab| slab.disk != from);
        others.any(|slab| slab.stale == Some(Epoch(0)) && slab.present(pool).is_some())
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use std::cell::Cell;

    use dolmen_units::Bytes;

    use super::*;
    use crate::format::resiliency::Resiliency;
    use crate::harness::Bench;
    use crate::resolution::decided_rows::DecidedRows;

    /// Planner that moves one slab of each row to one disk.
    struct One {
        planned: SlabMove,
        drops_last: bool,
        /// Questions whether the job goes on that are answered with yes.
        goes_on: Cell<u32>,
    }

    impl Planner for One {
        fn next(&self, _: &RowToMove<'_>, tried: &Tried) -> Option<SlabMove> {
            tried.is_empty().then_some(self.planned)
        }

        fn leaves(&self, _: &Tried) -> Vec<DiskSlot> {
            vec![self.planned.from]
        }

        fn goes_on(&self) -> bool {
            let left = self.goes_on.get();
            self.goes_on.set(left.saturating_sub(1));
            left > 0
        }

        fn drops_last(&self) -> bool {
            self.drops_last
        }
    }

    /// Scenario: a job ends after its only lot has its new slabs. Where old slabs go with their lot, the row has lost its old slab.
    /// Where they go last, the row keeps both, and the job says that it was to end; another run drops the old slab. The content is
    /// there.
    #[test]
    fn a_job_that_ends_before_its_drops_drops_nothing() {
        let bench = Bench::new(83, 3, Bytes::mib(128));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let mirror = Resiliency::Mirror { copies: 2 };
                let space = lab.space(&spaces, "data", Bytes::mib(4), mirror).await?;
                lab.write(&space, 0, 256 << 10, 1).await?;
                spaces.flush().await?;
                let row = DecidedRows::of(&space).row(0).await?.ok_or("there is a row")?;
                let disks: Vec<DiskSlot> =
                    row.record().columns.iter().flatten().map(|slab| slab.disk).collect();
                let mut others = spaces.pool().disks().into_iter().map(|disk| disk.slot());
                let free = others.find(|slot| !disks.contains(slot)).ok_or("there is another disk")?;
                let on = |slot| row.count_columns(|slab| slab.disk == slot && slab.stale.is_none());
                let lot = vec![(Rc::clone(&space), 0)];
                let (there, back) = ((disks[0], free), (free, disks[0]));
                for ((from, to), drops_last, goes_on, expected, left) in [
                    (there, false, 1, (0, 1), Some(0)),
                    (back, true, 1, (1, 1), None),
                    (back, true, 2, (0, 1), Some(0)),
                ] {
                    let planned = SlabMove { column: 0, from, to };
                    let planner = One { planned, drops_last, goes_on: Cell::new(goes_on) };
                    let (moves, progress) = (spaces.slab_moves(), Progress::default());
                    let moved =
                        moves.move_rows(lot.clone(), &planner, &progress, &mut Resynced::default()).await?;
                    assert_eq!((on(from), on(to)), expected, "slabs; {planned:?}, {goes_on} questions");
                    assert_eq!(moved.map(|left| left.len()), left, "{planned:?}, {goes_on} questions");
                }
                lab.expect(&space, 0, 256 << 10, 1).await?;
                drop((space, row, lot));
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }
}
