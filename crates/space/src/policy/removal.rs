//! A disk leaves the pool without another in its place: what it has goes to those that stay (docs/design/0010).
//!
//! Invariants:
//! - A slab is given up only where its column has as many others that count as it has copies.
//! - Nothing is begun that has no room by what is free at that moment.
//!
//! Left to others: where slabs go (`slab_targets`), filling them (`resync`), striking the disk (crate `pool`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_placement::Offer;
use dolmen_pool::{Disk, Purpose};
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskSlot, Name, SpaceId};

use crate::cache::space::Space;
use crate::format::error::SpaceError;
use crate::policy::slab_targets::{SlabTargets, columns_to_move, is_refilled};
use crate::policy::sole_copy::is_lost;
use crate::policy::spaces::Spaces;
use crate::relocation::refill::{
    Filling, ROWS_AT_A_TIME, RowOfLot, Schedule, Waiting, disks_at_work, neediest_first, next_lot, not_begun,
    of_spaces, redundancy_left,
};
use crate::relocation::resync::{Refilled, Resynced};
use crate::resources::progress::Progress;
use crate::table::row::{Row, RowRecord, Slabs};

/// What it takes to move everything off a disk, with what is free now.
#[derive(Debug, Clone, Default)]
pub struct RemovalForecast {
    /// Rows with a slab on the disk.
    pub rows: u64,
    /// Bytes that are claimed on other disks.
    pub moved: Bytes,
    /// Rows of which a slab has nowhere to go, by their space.
    pub stuck: BTreeMap<SpaceId, StuckRows>,
    /// What the other disks have to offer behind that.
    pub left: Vec<Offer>,
}

/// Rows of a space of which a slab has nowhere to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StuckRows {
    /// What the space is called. One in the trash may be called as another one is.
    pub name: Name,
    /// How many.
    pub rows: u64,
}

/// Columns of a row with a slab on one of these disks.
fn columns_on(record: &RowRecord, disks: &[DiskSlot]) -> Vec<usize> {
    let is_on = |slabs: &Slabs| slabs.iter().any(|slab| disks.contains(&slab.disk));
    record.columns.iter().enumerate().filter(|(_, slabs)| is_on(slabs)).map(|(column, _)| column).collect()
}

/// What came of the rows of a lot that were to leave disks.
pub(crate) struct Moved {
    /// The spaces of those that have something left there.
    pub(crate) left: BTreeSet<SpaceId>,
    /// Those with which nobody has begun, because the job is to stand or to stop.
    pub(crate) not_begun: Vec<(Rc<Space>, u64)>,
}

impl Spaces {
    /// What it would take to move everything off a disk.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata cannot be read.
    #[pooled]
    pub async fn forecast_removal(&self, from: DiskSlot) -> Result<RemovalForecast, SpaceError> {
        self.forecast_removal_with(from, &[]).await
    }

    /// As [`forecast_removal`](Self::forecast_removal), with disks that may take rows by then.
    ///
    /// # Errors
    /// As there.
    #[pooled]
    pub async fn forecast_removal_with(
        &self,
        from: DiskSlot,
        more: &[Offer],
    ) -> Result<RemovalForecast, SpaceError> {
        self.forecast_leaving(from, SlabTargets::with_more(self.pool(), more)).await
    }

    /// The same, to disks with such room.
    #[pooled]
    pub(crate) async fn forecast_leaving(
        &self,
        from: DiskSlot,
        mut targets_for_slabs: SlabTargets,
    ) -> Result<RemovalForecast, SpaceError> {
        let mut forecast = RemovalForecast::default();
        for space in self.all() {
            space
                .for_each_record(|_, record| {
                    let copies = record.copies();
                    if !record.columns.iter().flatten().any(|slab| slab.disk == from) {
                        return;
                    }
                    forecast.rows += 1;
                    let mut is_stuck = false;
                    let mut after = record.clone();
                    for column in columns_to_move(self.pool(), record, from, copies) {
                        match targets_for_slabs.choose(self.pool(), &after, column, from) {
                            Some(to) => {
                                forecast.moved.0 +=
                                    record.shape.slab_map(column).units() * ALLOCATION_UNIT_BYTES;
                                let slabs = after.columns.get_mut(column).into_iter().flatten();
                                slabs.filter(|slab| slab.disk == from).for_each(|slab| slab.disk = to);
                            }
                            None => is_stuck = true,
                        }
                    }
                    if is_stuck {
                        let stuck = forecast.stuck.entry(space.id());
                        stuck.or_insert_with(|| StuckRows { name: space.name(), rows: 0 }).rows += 1;
                    }
                })
                .await?;
        }
        forecast.left = targets_for_slabs.left();
        Ok(forecast)
    }

    /// Moves everything off a disk that is to hold nothing and has no successor, to the others. Redundancy is never lower on the way;
    /// killed, it goes on when called again. Whether nothing is left; it ends early, with something left, when the disk is
    /// to stay after all or is to be replaced, and when it is stopped. Held and stopped between lots of rows.
    ///
    /// # Errors
    /// [`SpaceError`].
    #[pooled]
    pub async fn drain_disk(&self, disk: &Rc<Disk>, progress: &Progress) -> Result<bool, SpaceError> {
        let goes_on = || self.pool().members().is_to_be_empty(disk);
        // Whoever chose the disk before it was retired has put that on record then.
        drop(self.pool().change(Purpose::Release).await);
        self.end_what_has_begun().await?;
        if mutation!(DrainNeedsItsDisk) && !disk.is_present() {
            return Ok(false);
        }
        let moved = self.move_off(disk.slot(), BTreeSet::new(), &goes_on, &BTreeSet::new, progress).await?;
        let Some(left) = moved else { return Ok(false) };
        let all = left.is_empty();
        self.note_deferred(disk, left);
        Ok(all && goes_on())
    }

    /// Waits for claims that began before and may lay something on a disk that is looked at next, and ends stripes that are half in
    /// place.
    pub(crate) async fn end_what_has_begun(&self) -> Result<(), SpaceError> {
        for space in self.all() {
            space.claims_end().await;
        }
        self.finish_stripes().await
    }

    /// Moves what is on a disk to others, but for those that `but` names, and but for the rows of spaces that stay. The spaces of what
    /// is left there, those that stay among them, or nothing where it was to end before.
    #[pooled]
    pub(crate) async fn move_off(
        &self,
        from: DiskSlot,
        stays: BTreeSet<SpaceId>,
        goes_on: &dyn Fn() -> bool,
        but: &dyn Fn() -> BTreeSet<DiskSlot>,
        progress: &Progress,
    ) -> Result<Option<BTreeSet<SpaceId>>, SpaceError> {
        let mut left = stays;
        let mut result = Resynced::default();
        // A row may take the place of another on the way, or one of a space be made there that waited: looked for again.
        loop {
            let mut rows = self.rows_on(from).await?;
            rows.retain(|(space, _)| !left.contains(&space.id()));
            if rows.is_empty() {
                return Ok(Some(left));
            }
            progress.total.set(progress.done.get() + rows.len() as u64);
            let mut waiting: VecDeque<_> = neediest_first(rows).await?.into();
            while !waiting.is_empty() {
                if !progress.may_go_on(&self.shared.closing).await || !goes_on() {
                    return Ok(None);
                }
                let together = next_lot(&mut waiting).await?;
                let claim = async |space: &Space, row: &Rc<Row>| {
                    // What nobody here has fills no slab.
                    if !is_lost(self.pool(), &row.record()) {
                        self.claim_slab_targets(space, row, from, &but()).await?;
                    }
                    Ok(vec![from])
                };
                let moved = self.move_slabs_of(&together, claim, progress, &mut result).await?;
                left.extend(moved.left);
                progress.done.set(progress.done.get() + (together.len() - moved.not_begun.len()) as u64);
                moved.not_begun.into_iter().rev().for_each(|row| waiting.push_front(row));
            }
        }
    }

    /// Claims new slabs for rows by `claim`, which tells what disks the row is to leave, fills them, has them trusted and gives
    /// up what is on those disks.
    pub(crate) async fn move_slabs_of(
        &self,
        rows: &[(Rc<Space>, u64)],
        claim: impl AsyncFn(&Space, &Rc<Row>) -> Result<Vec<DiskSlot>, SpaceError>,
        progress: &Progress,
        result: &mut Resynced,
    ) -> Result<Moved, SpaceError> {
        self.shared.gate().await?;
        let _exclusive = self.shared.refill_mutex.take().await;
        let mut begun = Vec::with_capacity(rows.len());
        for (space, index) in rows {
            let Some(row) = space.in_doubt_row(*index).await? else { continue };
            let leaves = claim(space, &row).await?;
            let is_superseding = leaves.iter().all(|from| is_refilled(self.pool(), &row, *from));
            let supersedes = is_superseding.then(|| (row.id, columns_on(&row.record(), &leaves)));
            begun.push(((Rc::clone(space), *index), leaves, supersedes));
        }
        let lot: Vec<(Rc<Space>, u64)> = begun.iter().map(|(row, ..)| row.clone()).collect();
        let done = self.refill_lot(&lot, progress, result).await?;
        let mut left = BTreeSet::new();
        let not_begun = not_begun(&lot, &done).collect();
        let mut filled = Vec::with_capacity(done.len());
        for row in &done {
            let Some((of_lot, leaves, supersedes)) = begun.get_mut(row.at) else { continue };
            let leaves = std::mem::take(leaves);
            // A column that was not filled says nothing, and neither do those of another row that took the place of this one.
            let is_filled = |column: &usize| row.refilled.as_ref().is_some_and(|row| row.is_new(*column));
            let whole = supersedes.take().filter(|(_, columns)| columns.iter().all(is_filled));
            let whole = whole.filter(|_| row.result.lost_blocks == 0).map(|(id, _)| id);
            filled.push((of_lot.clone(), leaves, whole));
        }
        let refilled: Vec<(Rc<Space>, Refilled)> = of_spaces(&lot, done).collect();
        let is_early = mutation!(DroppedUntrusted);
        if !is_early {
            self.shared.trust_all(&refilled, result).await?;
        }
        for ((space, index), leaves, whole) in filled {
            let row = if leaves.is_empty() { None } else { space.in_doubt_row(index).await? };
            let Some(row) = row else { continue };
            // What nobody else has whole may be whole there, or on a disk that is away; what is here is healed from it.
            let is_whole = whole == Some(row.id);
            // Where nothing can be given up, nobody asks the disks whether it could.
            let may_go = is_whole
                || mutation!(LastCopyDropped)
                || (leaves.iter().any(|from| !space.is_stuck_on(&row, *from))
                    && space.can_do_without_absent(index).await?);
            for from in leaves {
                if !may_go || !space.drop_slab(&row, from).await? {
                    left.insert(space.id());
                }
            }
        }
        if is_early {
            self.shared.trust_all(&refilled, result).await?;
        }
        Ok(Moved { left, not_begun })
    }

    /// Gives each column of a row that has a slab on the disk another one elsewhere, stale, where there is room; on none of some
    /// disks.
    #[pooled]
    async fn claim_slab_targets(
        &self,
        space: &Space,
        row: &Rc<Row>,
        from: DiskSlot,
        but: &BTreeSet<DiskSlot>,
    ) -> Result<(), SpaceError> {
        let pool = self.pool();
        let copies = row.copies();
        for column in columns_to_move(pool, &row.record(), from, copies) {
            let mut targets_for_slabs = SlabTargets::of(pool);
            but.iter().for_each(|slot| targets_for_slabs.refuse(*slot));
            while let Some(to) = targets_for_slabs.choose(pool, &row.record(), column, from) {
                match space.add_slab(row, (from, to), |other| other == column).await {
                    Ok(_) => break,
                    // Its free allocation units lie in too many pieces, or somebody else was there first.
                    Err(SpaceError::Pool(_)) => pool.log().check_writable()?,
                    Err(error) => return Err(error),
                }
                targets_for_slabs.refuse(to);
            }
        }
        Ok(())
    }

    /// Members that stay and are to hold nothing, and hold something.
    #[must_use]
    pub fn to_empty(&self) -> Vec<Rc<Disk>> {
        let is_meant = |disk: &Rc<Disk>| {
            let pool = self.pool();
            pool.members().role_of(disk).is_some()
                && !pool.members().is_drained(disk)
                && pool.free_space().holds_rows(disk)
        };
        self.pool().disks().into_iter().filter(is_meant).collect()
    }

    /// The disks that are to leave without another in their place.
    #[must_use]
    pub fn drains(&self) -> Vec<Rc<Disk>> {
        let disks = self.pool().disks();
        disks.into_iter().filter(|disk| self.pool().members().is_drained(disk)).collect()
    }
}

impl Spaces {
    /// Gives the stale slabs of rows what they miss, those of different disks beside each other; what came of those that were begun,
    /// in the order of the rows: of a job that is to stand or to stop no more are begun. What it did is added to `result`. The
    /// caller has the turn of refilling.
    ///
    /// # Errors
    /// [`SpaceError`]; the slabs stay stale then, and nothing is lost.
    #[pooled]
    pub(crate) async fn refill_lot(
        &self,
        rows: &[(Rc<Space>, u64)],
        progress: &Progress,
        result: &mut Resynced,
    ) -> Result<Vec<RowOfLot>, SpaceError> {
        let mut waiting = Vec::with_capacity(rows.len());
        for (at, (space, index)) in rows.iter().enumerate() {
            let (mut disks, mut left) = (BTreeSet::new(), 0);
            if let Some(row) = space.in_doubt_row(*index).await? {
                (disks, left) = (disks_at_work(self.pool(), &row), redundancy_left(self.pool(), &row));
            }
            waiting.push(Waiting { at, disks, redundancy_left: left });
        }
        let schedule = Schedule::new(self.pool(), waiting);
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
                match space.fill_row(*index, filling, &mut of_row.result).await {
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
            match space.announce(refilled).await {
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
}
