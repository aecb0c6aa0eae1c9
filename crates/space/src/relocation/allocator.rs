//! A space: a list of rows, found by arithmetic, claimed when they are first written.

use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_placement::{Request, SlabPlace, Width};
use dolmen_pool::{Change, Claim, ExcludeReason, PoolError, Purpose, keys};
use dolmen_units::{ALLOCATION_UNIT_BYTES, BLOCK_BYTES, Bytes, DiskSlot, Epoch, RowId};
use smallvec::SmallVec;

use crate::format::error::SpaceError;
use crate::format::ids::{COUNTER_ROW, is_of_cache, is_of_conversion_shadows};
use crate::layout::Shape;
use crate::relocation::blanks::Blanks;
use crate::relocation::promote::{promote_or_drop_shadows, rounds_to_free_shadows};
use crate::resolution::decided_rows::DecidedRows;
use crate::resources::fast_disks::{fastest, is_fast};
use crate::resources::locks::Range;
use crate::row_io::flusher::Flusher;
use crate::row_io::room::TableRoom;
use crate::table::row::{Row, RowLaid, RowRecord, Slab, Slabs, encode_place};
use crate::table::space::SpaceRows;

/// What became of a claim.
enum ClaimOutcome {
    Row(Rc<Row>),
    /// Disks that failed while room was taken on them. Nothing was claimed.
    Failed(SmallVec<[DiskSlot; 2]>),
}

/// The reason for a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimFor {
    /// A write to a row that may not exist.
    Write,
    /// A row of a hidden space, which has no end of its own.
    HiddenRow,
    /// A row that holds nothing, for room that is reserved.
    BlankRow,
}

/// Whether a row was claimed by this call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claimed {
    New,
    /// The row existed.
    Before,
}

/// The outcome of one attempt to claim a row under the claim lock.
enum ClaimAttempt {
    Done(Rc<Row>, Claimed),
    /// The pool has no room; other rows may give some back.
    NeedsRoom(PoolError),
}

/// Slabs that new rows and shadow rows of a space get.
#[derive(Clone, Copy)]
pub(crate) struct Allocator<'a> {
    space: &'a SpaceRows,
}

impl<'a> Allocator<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl Allocator<'_> {
    /// The row with this index, claimed if it did not exist.
    pub(crate) async fn row_for_write(self, index: u64) -> Result<Rc<Row>, SpaceError> {
        if let Some(row) = DecidedRows::of(self.space).row(index).await? {
            return Ok(row);
        }
        claim_with_room(self.space, index, ClaimFor::Write).await.map(|(row, _)| row)
    }

    /// Claims a row that does not exist, wherever the space ends.
    pub(crate) async fn claim_beyond(self, index: u64) -> Result<Rc<Row>, SpaceError> {
        claim_with_room(self.space, index, ClaimFor::HiddenRow).await.map(|(row, _)| row)
    }

    /// Waits until the claim under way has ended. One that begins later sees that the space is gone or smaller.
    pub(crate) async fn claims_end(self) {
        drop(self.space.claim_mutex.take().await);
    }

    /// Waits until writes to rows behind `end` that are under way have ended.
    pub(crate) async fn writes_end_after(self, end: u64) -> Result<(), SpaceError> {
        let mut rows = Vec::new();
        self.space.for_each_record(|index, _| rows.push(index)).await?;
        for index in rows.into_iter().filter(|index| (index + 1) * self.space.row_bytes > end) {
            if let Some(row) = self.space.in_doubt_row(index).await? {
                drop(row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await);
            }
        }
        Ok(())
    }

    /// Claims a row that holds nothing, if it does not exist; whether it did not.
    pub(crate) async fn claim_blank(self, index: u64) -> Result<bool, SpaceError> {
        let claimed = claim_with_room(self.space, index, ClaimFor::BlankRow).await?;
        Ok(claimed.1 == Claimed::New)
    }

    #[pooled]
    async fn claim_new(self, index: u64) -> Result<Rc<Row>, SpaceError> {
        self.space.load_own().await?;
        loop {
            match self.try_claim(index).await? {
                ClaimOutcome::Row(row) => return Ok(row),
                ClaimOutcome::Failed(slots) => {
                    for slot in slots {
                        self.space.shared.pool.exclude(slot, ExcludeReason::MissedWrite).await?;
                    }
                }
            }
        }
    }

    #[pooled]
    async fn try_claim(self, index: u64) -> Result<ClaimOutcome, SpaceError> {
        // Conversion shadows move what is there.
        let purpose = if is_of_conversion_shadows(self.space.id) { Purpose::Move } else { Purpose::Claim };
        let mut change = self.space.shared.pool.change(purpose).await;
        let id = RowId(change.number(keys::counter(COUNTER_ROW)).await?);
        let laid = self.space.laid_of(self.space.layouts.get().now);
        let own = self.space.own.borrow().clone();
        let units = self.space.slab_units();
        let request = self.space.request.get();
        let on_fast = self.fast_disks().and_then(|fast| change.place_among(&request, units, &fast));
        let (placement, claims) = match on_fast {
            Some(placed) => placed,
            None => change.place(&request, units, |slot| own.get(&slot).copied().unwrap_or(0))?,
        };
        let shape =
            Shape::placed(Bytes(self.space.row_bytes), self.space.spec.borrow().interleave, &placement);
        let Some(shape) = shape else { panic!("placement keeps to the limits of the request") };
        let columns = columns_in_order(&placement.slabs, width_of(&shape), index);
        let placed = (columns.as_slice(), claims.as_slice());
        let record = match self.claimed_row(&mut change, (id, index), (laid, shape), placed).await? {
            Ok(record) => record,
            Err(failed) => return Ok(ClaimOutcome::Failed(failed)),
        };
        let count = change.add(keys::row_count(self.space.id), 1).await?;
        change.commit().await?;
        self.space.row_count.set(count);
        self.space.note_own(&claims);
        let row = Row::new(self.space.id, index, record);
        self.space.rows.borrow_mut().insert(index, Some(Rc::clone(&row)));
        Ok(ClaimOutcome::Row(row))
    }

    /// Claims the shadow row of a row, of the same shape; `None` where there is no room for one beyond what is kept for repair.
    /// Called for the hidden space of shadow rows.
    #[pooled]
    pub(crate) async fn claim_shadow(self, row: &Rc<Row>) -> Result<Option<Rc<Row>>, SpaceError> {
        let (shape, index) = (*row.shape.geometry(), row.index);
        let (code, width) = (row.shape.placement().code, width_of(&shape));
        let request =
            Request::new(code, Width::Columns(width), Bytes(self.space.row_bytes), shape.interleave());
        let Ok(request) = request else { return Ok(None) };
        let mut change = self.space.shared.pool.change(Purpose::Claim).await;
        if row.freed.get() || row.shadow().is_some() {
            return Ok(None);
        }
        let id = RowId(change.number(keys::counter(COUNTER_ROW)).await?);
        let (placement, claims) = match change.place(&request, shape.slab_units(), |_| 0) {
            Ok(placed) => placed,
            Err(PoolError::NoSpace { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if Shape::placed(Bytes(self.space.row_bytes), shape.interleave(), &placement) != Some(shape) {
            return Ok(None);
        }
        let columns = columns_in_order(&placement.slabs, width, index);
        let placed = (columns.as_slice(), claims.as_slice());
        let record = match self.claimed_row(&mut change, (id, index), (row.laid(), shape), placed).await? {
            Ok(record) => record,
            Err(_) => return Ok(None),
        };
        let count = change.add(keys::row_count(self.space.id), 1).await?;
        change.commit().await?;
        self.space.row_count.set(count);
        let shadow = row.make_shadow(record);
        self.space.rows.borrow_mut().insert(index, Some(Rc::clone(&shadow)));
        Ok(Some(shadow))
    }

    /// Adds a row on these allocation units to a change; its record, or the disks that failed while room was taken on them.
    #[pooled]
    async fn claimed_row(
        self,
        change: &mut Change<'_>,
        (id, index): (RowId, u64),
        (laid, shape): (RowLaid, Shape),
        (columns, claims): (&[u32], &[Claim]),
    ) -> Result<Result<RowRecord, SmallVec<[DiskSlot; 2]>>, SpaceError> {
        let placed = columns.iter().zip(claims).map(|(column, claim)| {
            let mut new = Slab { disk: claim.slot, runs: claim.runs.clone(), stale: None };
            // One that is absent misses all that will be written.
            if new.present(&self.space.shared.pool).is_none() {
                new.stale = Some(Epoch(0));
                change.put(keys::stale(new.disk, id), Vec::new());
                self.space.shared.has_claimed_on_absent(self.space.id);
            }
            (*column as usize, new)
        });
        let slabs: Vec<(usize, Slab)> = placed.collect();
        let failed =
            TableRoom::of(&self.space.shared).take_table_room(self.space.id(), &shape, &slabs).await?;
        if !failed.is_empty() {
            return Ok(Err(failed));
        }
        let mut columns = vec![Slabs::new(); shape.columns()];
        for (column, slab) in slabs {
            columns.get_mut(column).into_iter().for_each(|slabs| slabs.push(slab.clone()));
        }
        let place = self.space.place_of(index);
        let record = RowRecord { id, place, formatted: false, laid, shape, columns };
        if !mutation!(RecordWithoutPlace) {
            change.put(keys::place(self.space.id, index), encode_place(id));
        }
        change.put(keys::row(id), record.encode());
        Ok(Ok(record))
    }

    /// Claims every row that does not exist: for fixed provisioning. None that is there takes the place of another one for that.
    pub(crate) async fn claim_all(self) -> Result<(), SpaceError> {
        for index in 0..self.space.size().0.div_ceil(self.space.row_bytes) {
            Flusher::of(&self.space.shared).gate().await?;
            self.claim_blank(index).await?;
        }
        Ok(())
    }

    /// The disks that a row of it should lie on, if it is one of a write cache and they are not all that there are.
    pub(crate) fn fast_disks(self) -> Option<BTreeSet<DiskSlot>> {
        let pool = &self.space.shared.pool;
        let copies = self.space.spec().resiliency.copies();
        is_of_cache(self.space.id())
            .then(|| fastest(&pool.free_space().offers(Purpose::Claim), copies, |slot| is_fast(pool, slot)))?
    }
}

/// The column of each slab of a placement. With parity, those that are as long as a parity column take turns at being one.
fn columns_in_order(slabs: &[SlabPlace], data: u32, rotation: u64) -> Vec<u32> {
    let mut columns: Vec<u32> = slabs.iter().map(|slab| slab.column).collect();
    let Some(parity) = slabs.iter().find(|slab| slab.column >= data) else { return columns };
    let as_long = |at: &usize| slabs.get(*at).is_some_and(|slab| slab.units == parity.units);
    let is_same: Vec<usize> = (0..slabs.len()).filter(as_long).collect();
    let shift = usize::try_from(rotation % is_same.len() as u64).unwrap_or(0);
    for (at, taken) in is_same.iter().zip(is_same.iter().cycle().skip(shift)) {
        if let (Some(column), Some(slab)) = (columns.get_mut(*at), slabs.get(*taken)) {
            *column = slab.column;
        }
    }
    columns
}

const _: () =
    assert!(ALLOCATION_UNIT_BYTES.is_multiple_of(BLOCK_BYTES), "blocks never straddle runs of a slab");

impl fmt::Debug for SpaceRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Space({}, {}, {})", self.id, self.name(), self.size())
    }
}
/// Returns the data columns of rows of a shape, as placement counts them.
fn width_of(shape: &Shape) -> u32 {
    u32::try_from(shape.data_columns()).unwrap_or(u32::MAX)
}

/// Claims a row. Where the pool has no room for it, shadow rows are promoted or dropped, which have room only as long as
/// nothing else needs it. The claim lock is free meanwhile: that takes as long as a checkpoint.
#[pooled]
async fn claim_with_room(
    space: &SpaceRows,
    index: u64,
    purpose: ClaimFor,
) -> Result<(Rc<Row>, Claimed), SpaceError> {
    let mut rounds = None;
    loop {
        let error = match claim_once(space, index, purpose).await? {
            ClaimAttempt::Done(row, claimed) => return Ok((row, claimed)),
            ClaimAttempt::NeedsRoom(error) => error,
        };
        // As many as there are now: others may come meanwhile.
        let left = *rounds.get_or_insert_with(|| rounds_to_free_shadows(&space.list));
        if left == 0 || !promote_or_drop_shadows(&space.list, space.shared.pool.seams().clock.as_ref()).await
        {
            return claim_found_blank(space, index, purpose, error).await;
        }
        rounds = Some(left - 1);
    }
}

/// Claims a row that does not exist: one that is reserved, if there is one that holds nothing, or a new one.
#[pooled]
async fn claim_once(space: &SpaceRows, index: u64, purpose: ClaimFor) -> Result<ClaimAttempt, SpaceError> {
    let _exclusive = space.claim_mutex.take().await;
    if let Some(row) = check_claim(space, index, purpose).await? {
        return Ok(ClaimAttempt::Done(row, Claimed::Before));
    }
    if purpose != ClaimFor::BlankRow
        && let Some(row) = Blanks::of(space).take_blank(index).await?
    {
        return Ok(ClaimAttempt::Done(row, Claimed::New));
    }
    match Allocator::of(space).claim_new(index).await {
        Ok(row) => Ok(ClaimAttempt::Done(row, Claimed::New)),
        Err(SpaceError::Pool(error @ PoolError::NoSpace { .. })) => Ok(ClaimAttempt::NeedsRoom(error)),
        Err(error) => Err(error),
    }
}

/// Takes a reserved row that holds nothing where the pool has no room for a new one, after it looked for such rows.
#[pooled]
async fn claim_found_blank(
    space: &SpaceRows,
    index: u64,
    purpose: ClaimFor,
    error: PoolError,
) -> Result<(Rc<Row>, Claimed), SpaceError> {
    if purpose == ClaimFor::BlankRow {
        return Err(error.into());
    }
    let _exclusive = space.claim_mutex.take().await;
    if let Some(row) = check_claim(space, index, purpose).await? {
        return Ok((row, Claimed::Before));
    }
    let blank = match Blanks::of(space).finds_blanks().await? {
        true => Blanks::of(space).take_blank(index).await?,
        false => None,
    };
    blank.map(|row| (row, Claimed::New)).ok_or(error.into())
}

/// Returns the row if it exists by now, and checks that the space still takes a claim: it may have been deleted or made
/// smaller while the claim waited for the lock.
async fn check_claim(
    space: &SpaceRows,
    index: u64,
    purpose: ClaimFor,
) -> Result<Option<Rc<Row>>, SpaceError> {
    match purpose {
        ClaimFor::HiddenRow => Ok(None),
        ClaimFor::BlankRow => {
            space.check_stays()?;
            DecidedRows::of(space).row(index).await
        }
        ClaimFor::Write => {
            let row = DecidedRows::of(space).row(index).await?;
            if row.is_none() {
                space.check_range(index * space.row_bytes, BLOCK_BYTES)?;
            }
            Ok(row)
        }
    }
}
