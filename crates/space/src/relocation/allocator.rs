//! A space: a list of rows, found by arithmetic, claimed when they are first written.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::{Rc, Weak};

use dolmen_block_io::Meter;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_placement::{Request, SlabPlace, Width};
use dolmen_pool::{Change, Claim, ExcludeReason, PoolError, Purpose, keys};
use dolmen_units::{ALLOCATION_UNIT_BYTES, BLOCK_BYTES, Bytes, DiskSlot, Epoch, Name, RowId, SpaceId};
use smallvec::SmallVec;

use crate::cache::space::{Cache, ShadowRows, Shared, Space, SpaceList};
use crate::format::error::SpaceError;
use crate::format::ids::{COUNTER_ROW, is_hidden, is_of_conversion_shadows, is_of_shadows, seen_as};
use crate::format::layouts::{Layout, Layouts};
use crate::format::resiliency::{Integrity, Resiliency};
use crate::format::spec::{Footprint, Provisioning, SpaceSpec, Standing};
use crate::layout::{Shape, Spread};
use crate::relocation::promote::{promote_or_drop_shadows, rounds_to_free_shadows};
use crate::resources::failed_reads::FailedReads;
use crate::resources::forming::Forming;
use crate::resources::locks::Range;
use crate::resources::minimum_rate::Terms;
use crate::resources::ranks::{self, Visibility};
use crate::table::reserve::Reserve;
use crate::table::row::{Row, RowLaid, RowPlace, RowRecord, Slab, Slabs, encode_place, parse_place};

/// Rows of one space that are kept in memory before idle ones are dropped.
const ROWS_MAX: usize = 8 * 1024;
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

impl Space {
    pub(crate) fn new(
        shared: Rc<Shared>,
        list: Rc<SpaceList>,
        id: SpaceId,
        spec: SpaceSpec,
        layouts: Layouts,
    ) -> Result<Rc<Self>, SpaceError> {
        let request = spec.check()?;
        let row_bytes = spec.row_bytes().0;
        shared.note_name(id, spec.name.clone());
        let clock = &shared.pool.seams().clock;
        let terms = Rc::new(Terms::new(id, Meter::new(Rc::clone(clock))));
        terms.set(spec.limits, clock.now());
        let visibility = if is_hidden(id) { Visibility::Hidden } else { Visibility::User };
        Ok(Rc::new_cyclic(|this| Self {
            shared,
            list,
            id,
            spec: RefCell::new(spec),
            request: Cell::new(request),
            layouts: Cell::new(layouts),
            row_bytes,
            rows: RefCell::default(),
            claim_mutex: ranks::claim(),
            drops: Cell::default(),
            own: RefCell::default(),
            row_count: Cell::new(0),
            freed: Cell::new(false),
            condemned: Cell::new(false),
            trashed: Cell::new(None),
            spec_mutex: ranks::spec(id, visibility),
            lost_unflushed: Cell::new(false),
            caches: RefCell::default(),
            conversion_mutex: ranks::conversion(id, visibility),
            conversion_shadows: RefCell::default(),
            forming: Forming::default(),
            shadows: ShadowRows::default(),
            reserve: Reserve::default(),
            terms,
            failed_reads: FailedReads::default(),
            this: Weak::clone(this),
        }))
    }

    /// Its number in the pool.
    #[must_use]
    pub fn id(&self) -> SpaceId {
        self.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> Name {
        // Shadow rows and conversion shadows are of a space that people see.
        match seen_as(self.id) == self.id {
            true => self.spec.borrow().name.clone(),
            false => self.shared.name_of(self.id),
        }
    }

    /// What it is.
    #[must_use]
    pub fn spec(&self) -> SpaceSpec {
        self.spec.borrow().clone()
    }

    /// The value of its key, with what it is to be.
    pub(crate) fn encode(&self, spec: &SpaceSpec, standing: Standing) -> Vec<u8> {
        spec.encode(standing, self.layouts.get())
    }

    /// What those of its rows have that are not laid as it says now, while there may be any.
    #[must_use]
    pub fn layout_before(&self) -> Option<Layout> {
        self.layouts.get().before
    }

    /// How its rows of a layout survive the loss of disks.
    pub(crate) fn resiliency_of(&self, layout: u8) -> Resiliency {
        let layouts = self.layouts.get();
        match layouts.before.filter(|_| layout != layouts.now) {
            Some(before) => before.resiliency,
            None => self.spec.borrow().resiliency,
        }
    }

    /// How flushed content of its rows of a layout is written over.
    pub(crate) fn integrity_of(&self, layout: u8) -> Integrity {
        let layouts = self.layouts.get();
        match layouts.before.filter(|_| layout != layouts.now) {
            Some(before) => before.integrity,
            None => self.spec.borrow().integrity,
        }
    }

    /// How it lays its rows of a layout.
    pub(crate) fn laid_of(&self, layout: u8) -> RowLaid {
        RowLaid { layout, resiliency: self.resiliency_of(layout), integrity: self.integrity_of(layout) }
    }

    /// The place of its row with this index, as records have it.
    pub(crate) fn place_of(&self, index: u64) -> RowPlace {
        RowPlace { space: seen_as(self.id), index }
    }

    /// The write caches that its rows need, by the number of their layout.
    pub(crate) fn write_caches(&self) -> impl Iterator<Item = (u8, u8)> + use<> {
        let layouts = self.layouts.get();
        let now = self.spec.borrow().write_cache().map(|redundancy| (layouts.now, redundancy));
        let before = layouts.before.and_then(Layout::write_cache);
        now.into_iter().chain(before.map(|redundancy| (1 - layouts.now, redundancy)))
    }

    /// The write cache of a row, if what is written over it goes through one.
    pub(crate) fn cache_of(&self, row: &Row) -> Option<Rc<Cache>> {
        self.caches.borrow().get(usize::from(row.laid().layout)).cloned().flatten()
    }

    /// The write caches of its rows, each once.
    pub(crate) fn caches(&self) -> SmallVec<[Rc<Cache>; 2]> {
        let mut caches: SmallVec<[Rc<Cache>; 2]> = self.caches.borrow().iter().flatten().cloned().collect();
        caches.dedup_by(|one, other| Rc::ptr_eq(one, other));
        caches
    }

    /// Its size.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.spec.borrow().size
    }

    /// Bytes of its rows.
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    /// Room that its rows could hold: what a thin space has claimed.
    #[must_use]
    pub fn claimed(&self) -> Bytes {
        Bytes(self.row_count.get() * self.row_bytes)
    }

    /// Refuses what is asked of a space that is being deleted, or is in the trash.
    pub(crate) fn check_stays(&self) -> Result<(), SpaceError> {
        match (self.freed.get(), self.trashed.get()) {
            (true, _) => Err(SpaceError::Deleted { name: self.name() }),
            (false, Some(_)) => Err(SpaceError::Trashed { name: self.name() }),
            (false, None) => Ok(()),
        }
    }

    /// Checks a range against the size. It may begin and end at any byte.
    pub(crate) fn check_range(&self, at: u64, length: u64) -> Result<(), SpaceError> {
        self.check_stays()?;
        self.check_bounds(at, length)
    }

    /// The same, also of a space that nobody may use.
    pub(crate) fn check_bounds(&self, at: u64, length: u64) -> Result<(), SpaceError> {
        let spec = self.spec.borrow();
        if at.checked_add(length).is_some_and(|end| end <= spec.size.0) {
            return Ok(());
        }
        Err(SpaceError::Range { name: spec.name.clone(), at, length: Bytes(length), size: spec.size })
    }

    /// The row with this index, if it exists, once all that the log says of it was decided.
    ///
    /// # Errors
    /// [`SpaceError::Unreadable`] while the disks that could decide it are absent.
    pub(crate) async fn row(&self, index: u64) -> Result<Option<Rc<Row>>, SpaceError> {
        if is_of_shadows(self.id) {
            return self.decided_shadow(index).await;
        }
        loop {
            let row = self.in_doubt_row(index).await?;
            match row.as_ref().filter(|row| self.shared.is_deferred(row)) {
                // Blocks of it may be left in doubt again while the decisions of others become durable.
                Some(in_doubt) => self.shared.resolve(self, in_doubt).await?,
                None => return Ok(row),
            }
        }
    }

    /// The row with this index, if it exists, whatever the log says of it.
    pub(crate) async fn in_doubt_row(&self, index: u64) -> Result<Option<Rc<Row>>, SpaceError> {
        let record = loop {
            if let Some(row) = self.rows.borrow().get(&index) {
                if let Some(row) = row {
                    row.used.set(true);
                }
                return Ok(row.clone());
            }
            let drops = self.drops.get();
            let found = self.record_at(index).await;
            // What somebody else made of the row meanwhile is in memory, unless it was dropped again.
            if self.drops.get() == drops {
                break found?;
            }
        };
        // Somebody else may have looked it up, or claimed it, meanwhile.
        let mut rows = self.rows.borrow_mut();
        let row = rows.entry(index).or_insert_with(|| record.map(|record| Row::new(self.id, index, record)));
        let row = row.clone();
        if rows.len() > ROWS_MAX {
            let before = rows.len();
            let dropped = drop_idle(&mut rows, |index| self.reserve.doubt(index));
            if rows.len() < before {
                self.drops.set(self.drops.get() + 1);
            }
            self.shared.page_count.set(self.shared.page_count.get().saturating_sub(dropped));
        }
        Ok(row)
    }

    /// What the map says of the row with this index, if it exists.
    async fn record_at(&self, index: u64) -> Result<Option<RowRecord>, SpaceError> {
        let mut named = None;
        loop {
            let Some(place) = self.shared.pool.map().get(&keys::place(self.id, index)).await? else {
                return Ok(None);
            };
            let id = parse_place(&place).map_err(|_| self.impossible_row(index))?;
            if let Some(value) = self.shared.pool.map().get(&keys::row(id)).await? {
                return self.parse_row(index, id, &value).map(Some);
            }
            // Another row may have come into the place between the two looks; one that names no row twice is damage.
            if named.replace(id) == Some(id) {
                return Err(self.impossible_row(index));
            }
        }
    }

    fn impossible_row(&self, index: u64) -> SpaceError {
        let what = format!("an impossible row {index} of space {}", self.name());
        dolmen_pool::PoolError::Corrupt { name: self.shared.pool_name().clone(), what }.into()
    }

    fn parse_row(&self, index: u64, id: RowId, value: &[u8]) -> Result<RowRecord, SpaceError> {
        let record = RowRecord::parse(value).ok();
        let is_here = |record: &RowRecord| {
            let is_named = record.id == id && record.place == self.place_of(index);
            is_named && record.bytes() == Bytes(self.row_bytes)
        };
        let may_be = |record: &RowRecord| {
            is_here(record) && (self.is_on_disks(record) || mutation!(SlabBeyondItsDisk))
        };
        record.filter(may_be).ok_or_else(|| self.impossible_row(index))
    }

    /// Whether the slabs of a row end where their disks do, as far as these are here.
    fn is_on_disks(&self, record: &RowRecord) -> bool {
        record.columns.iter().flatten().all(|slab| {
            let extent = self.shared.pool.disk(slab.disk).and_then(|disk| disk.extent());
            let units = extent.map_or(u64::MAX, |extent| extent.unit_count());
            slab.runs.iter().all(|run| run.first.saturating_add(run.count) <= units)
        })
    }

    /// The row with this index, claimed if it did not exist.
    pub(crate) async fn row_for_write(&self, index: u64) -> Result<Rc<Row>, SpaceError> {
        if let Some(row) = self.row(index).await? {
            return Ok(row);
        }
        claim_with_room(self, index, ClaimFor::Write).await.map(|(row, _)| row)
    }

    /// Claims a row that does not exist, wherever the space ends.
    pub(crate) async fn claim_beyond(&self, index: u64) -> Result<Rc<Row>, SpaceError> {
        claim_with_room(self, index, ClaimFor::HiddenRow).await.map(|(row, _)| row)
    }

    /// Waits until the claim under way has ended. One that begins later sees that the space is gone or smaller.
    pub(crate) async fn claims_end(&self) {
        drop(self.claim_mutex.take().await);
    }

    /// Waits until writes to rows behind `end` that are under way have ended.
    pub(crate) async fn writes_end_after(&self, end: u64) -> Result<(), SpaceError> {
        let mut rows = Vec::new();
        self.for_each_record(|index, _| rows.push(index)).await?;
        for index in rows.into_iter().filter(|index| (index + 1) * self.row_bytes > end) {
            if let Some(row) = self.in_doubt_row(index).await? {
                drop(row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await);
            }
        }
        Ok(())
    }

    /// Claims a row that holds nothing, if it does not exist; whether it did not.
    pub(crate) async fn claim_blank(&self, index: u64) -> Result<bool, SpaceError> {
        let claimed = claim_with_room(self, index, ClaimFor::BlankRow).await?;
        Ok(claimed.1 == Claimed::New)
    }

    #[pooled]
    async fn claim_new(&self, index: u64) -> Result<Rc<Row>, SpaceError> {
        self.load_own().await?;
        loop {
            match self.try_claim(index).await? {
                ClaimOutcome::Row(row) => return Ok(row),
                ClaimOutcome::Failed(slots) => {
                    for slot in slots {
                        self.shared.pool.exclude(slot, ExcludeReason::MissedWrite).await?;
                    }
                }
            }
        }
    }

    #[pooled]
    async fn try_claim(&self, index: u64) -> Result<ClaimOutcome, SpaceError> {
        // Conversion shadows move what is there.
        let purpose = if is_of_conversion_shadows(self.id) { Purpose::Move } else { Purpose::Claim };
        let mut change = self.shared.pool.change(purpose).await;
        let id = RowId(change.number(keys::counter(COUNTER_ROW)).await?);
        let laid = self.laid_of(self.layouts.get().now);
        let own = self.own.borrow().clone();
        let units = self.slab_units();
        let request = self.request.get();
        let on_fast = self.fast_disks().and_then(|fast| change.place_among(&request, units, &fast));
        let (placement, claims) = match on_fast {
            Some(placed) => placed,
            None => change.place(&request, units, |slot| own.get(&slot).copied().unwrap_or(0))?,
        };
        let shape = Shape::placed(Bytes(self.row_bytes), self.spec.borrow().interleave, &placement);
        let Some(shape) = shape else { panic!("placement keeps to the limits of the request") };
        let columns = columns_in_order(&placement.slabs, width_of(&shape), index);
        let placed = (columns.as_slice(), claims.as_slice());
        let record = match self.claimed_row(&mut change, (id, index), (laid, shape), placed).await? {
            Ok(record) => record,
            Err(failed) => return Ok(ClaimOutcome::Failed(failed)),
        };
        let count = change.add(keys::row_count(self.id), 1).await?;
        change.commit().await?;
        self.row_count.set(count);
        self.note_own(&claims);
        let row = Row::new(self.id, index, record);
        self.rows.borrow_mut().insert(index, Some(Rc::clone(&row)));
        Ok(ClaimOutcome::Row(row))
    }

    /// Claims the shadow row of a row, of the same shape; `None` where there is no room for one beyond what is kept for repair.
    /// Called for the hidden space of shadow rows.
    #[pooled]
    pub(crate) async fn claim_shadow(&self, row: &Rc<Row>) -> Result<Option<Rc<Row>>, SpaceError> {
        let (shape, index) = (*row.shape.geometry(), row.index);
        let (code, width) = (row.shape.placement().code, width_of(&shape));
        let request = Request::new(code, Width::Columns(width), Bytes(self.row_bytes), shape.interleave());
        let Ok(request) = request else { return Ok(None) };
        let mut change = self.shared.pool.change(Purpose::Claim).await;
        if row.freed.get() || row.shadow().is_some() {
            return Ok(None);
        }
        let id = RowId(change.number(keys::counter(COUNTER_ROW)).await?);
        let (placement, claims) = match change.place(&request, shape.slab_units(), |_| 0) {
            Ok(placed) => placed,
            Err(PoolError::NoSpace { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if Shape::placed(Bytes(self.row_bytes), shape.interleave(), &placement) != Some(shape) {
            return Ok(None);
        }
        let columns = columns_in_order(&placement.slabs, width, index);
        let placed = (columns.as_slice(), claims.as_slice());
        let record = match self.claimed_row(&mut change, (id, index), (row.laid(), shape), placed).await? {
            Ok(record) => record,
            Err(_) => return Ok(None),
        };
        let count = change.add(keys::row_count(self.id), 1).await?;
        change.commit().await?;
        self.row_count.set(count);
        let shadow = row.make_shadow(record);
        self.rows.borrow_mut().insert(index, Some(Rc::clone(&shadow)));
        Ok(Some(shadow))
    }

    /// Adds a row on these allocation units to a change; its record, or the disks that failed while room was taken on them.
    #[pooled]
    async fn claimed_row(
        &self,
        change: &mut Change<'_>,
        (id, index): (RowId, u64),
        (laid, shape): (RowLaid, Shape),
        (columns, claims): (&[u32], &[Claim]),
    ) -> Result<Result<RowRecord, SmallVec<[DiskSlot; 2]>>, SpaceError> {
        let placed = columns.iter().zip(claims).map(|(column, claim)| {
            let mut new = Slab { disk: claim.slot, runs: claim.runs.clone(), stale: None };
            // One that is absent misses all that will be written.
            if new.present(&self.shared.pool).is_none() {
                new.stale = Some(Epoch(0));
                change.put(keys::stale(new.disk, id), Vec::new());
                self.shared.has_claimed_on_absent(self.id);
            }
            (*column as usize, new)
        });
        let slabs: Vec<(usize, Slab)> = placed.collect();
        let failed = self.shared.take_table_room(self.id(), &shape, &slabs).await?;
        if !failed.is_empty() {
            return Ok(Err(failed));
        }
        let mut columns = vec![Slabs::new(); shape.columns()];
        for (column, slab) in slabs {
            columns.get_mut(column).into_iter().for_each(|slabs| slabs.push(slab.clone()));
        }
        let place = self.place_of(index);
        let record = RowRecord { id, place, formatted: false, laid, shape, columns };
        if !mutation!(RecordWithoutPlace) {
            change.put(keys::place(self.id, index), encode_place(id));
        }
        change.put(keys::row(id), record.encode());
        Ok(Ok(record))
    }

    /// How many allocation units its slabs take, by the bytes of data in them.
    pub(crate) fn slab_units(&self) -> impl Fn(Bytes) -> u64 + Copy + use<> {
        let spec = self.spec.borrow();
        spec.resiliency.slab_units(spec.interleave)
    }

    /// Claims every row that does not exist: for fixed provisioning. None that is there takes the place of another one for that.
    pub(crate) async fn claim_all(&self) -> Result<(), SpaceError> {
        for index in 0..self.size().0.div_ceil(self.row_bytes) {
            self.shared.gate().await?;
            self.claim_blank(index).await?;
        }
        Ok(())
    }

    fn note_own(&self, claims: &[Claim]) {
        let mut own = self.own.borrow_mut();
        for claim in claims {
            *own.entry(claim.slot).or_insert(0) += claim.runs.iter().map(|run| run.count).sum::<u64>();
        }
    }

    /// A span fills the disk that it has most on; what it has is counted once.
    async fn load_own(&self) -> Result<(), SpaceError> {
        if self.spec.borrow().resiliency.layout().spread() != Spread::DiskByDisk
            || !self.own.borrow().is_empty()
        {
            return Ok(());
        }
        let mut own: BTreeMap<DiskSlot, u64> = BTreeMap::new();
        self.for_each_record(|_, record| {
            for slab in record.columns.iter().flatten() {
                *own.entry(slab.disk).or_insert(0) += slab.runs.iter().map(|run| run.count).sum::<u64>();
            }
        })
        .await?;
        *self.own.borrow_mut() = own;
        Ok(())
    }

    /// What a row had that is free counts no more.
    pub(crate) fn forget_own(&self, record: &RowRecord) {
        let mut own = self.own.borrow_mut();
        for slab in record.columns.iter().flatten() {
            if let Some(units) = own.get_mut(&slab.disk) {
                *units = units.saturating_sub(slab.runs.iter().map(|run| run.count).sum());
            }
        }
    }

    /// Calls back for every row that exists, in order, as the metadata has it.
    pub(crate) async fn for_each_record(
        &self,
        mut action: impl FnMut(u64, &RowRecord),
    ) -> Result<(), SpaceError> {
        const STEP: usize = 256;
        let mut from = 0;
        loop {
            let found = self.shared.pool.map().scan(keys::places(self.id, from..u64::MAX), STEP).await?;
            let count = found.len();
            for (key, _) in found {
                let (_, _, index) = keys::parts(&key);
                // One that was freed since is none any more.
                if let Some(record) = self.record_at(index).await? {
                    action(index, &record);
                }
                from = index + 1;
            }
            if count < STEP {
                return Ok(());
            }
        }
    }

    /// Drops idle table pages of its rows.
    pub(crate) fn trim_pages(&self) {
        let rows: Vec<Rc<Row>> = self.rows.borrow().values().flatten().cloned().collect();
        self.shared.trim_pages(rows.iter());
    }

    /// Whether its rows are claimed when first written.
    #[must_use]
    pub fn is_thin(&self) -> bool {
        self.spec.borrow().provisioning == Provisioning::Thin
    }

    /// What its rows take on all disks.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    #[pooled]
    pub async fn footprint(&self) -> Result<Footprint, SpaceError> {
        let (mut units, mut blocks, mut rows) = (0, 0, 0);
        self.for_each_record(|_, record| {
            rows += 1;
            for (column, slabs) in record.columns.iter().enumerate() {
                blocks += slabs.len() as u64 * u64::from(record.shape.column_blocks(column));
                units += slabs.iter().flat_map(|slab| &slab.runs).map(|run| run.count).sum::<u64>();
            }
        })
        .await?;
        // Rows that are about to take the place of its own are further copies of them.
        let conversion_shadows = self.conversion_shadows.borrow().clone();
        for hidden in self.shadows.space().into_iter().chain(conversion_shadows) {
            let add = |_: u64, record: &RowRecord| {
                let columns = (0..record.shape.columns()).map(|column| record.shape.column_blocks(column));
                blocks += columns.map(u64::from).sum::<u64>();
                let slabs = record.columns.iter().flatten().flat_map(|slab| &slab.runs);
                units += slabs.map(|run| run.count).sum::<u64>();
            };
            hidden.for_each_record(add).await?;
        }
        let of_blocks = Bytes(blocks * BLOCK_BYTES);
        Ok(Footprint {
            total: Bytes(units * ALLOCATION_UNIT_BYTES),
            redundancy: of_blocks.saturating_sub(Bytes(rows * self.row_bytes)),
        })
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

/// Drops rows that nobody uses, each of which is told; how many pages went with them.
fn drop_idle(rows: &mut BTreeMap<u64, Option<Rc<Row>>>, mut dropped: impl FnMut(u64)) -> usize {
    let mut pages = 0;
    rows.retain(|index, row| match row {
        None => false,
        Some(row) => {
            let has_more = !row.mappings.is_empty() || row.shadow().is_some();
            let is_needed = row.dirty.get() || !row.is_formatted() || has_more;
            let busy = Rc::strong_count(row) > 1 || is_needed;
            let keep = busy || row.used.replace(false);
            if !keep {
                pages += row.pages().len();
                dropped(*index);
            }
            keep
        }
    });
    pages
}

const _: () =
    assert!(ALLOCATION_UNIT_BYTES.is_multiple_of(BLOCK_BYTES), "blocks never straddle runs of a slab");

impl fmt::Debug for Space {
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
    space: &Space,
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
async fn claim_once(space: &Space, index: u64, purpose: ClaimFor) -> Result<ClaimAttempt, SpaceError> {
    let _exclusive = space.claim_mutex.take().await;
    if let Some(row) = check_claim(space, index, purpose).await? {
        return Ok(ClaimAttempt::Done(row, Claimed::Before));
    }
    if purpose != ClaimFor::BlankRow
        && let Some(row) = space.take_blank(index).await?
    {
        return Ok(ClaimAttempt::Done(row, Claimed::New));
    }
    match space.claim_new(index).await {
        Ok(row) => Ok(ClaimAttempt::Done(row, Claimed::New)),
        Err(SpaceError::Pool(error @ PoolError::NoSpace { .. })) => Ok(ClaimAttempt::NeedsRoom(error)),
        Err(error) => Err(error),
    }
}

/// Takes a reserved row that holds nothing where the pool has no room for a new one, after it looked for such rows.
#[pooled]
async fn claim_found_blank(
    space: &Space,
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
    let blank = match space.finds_blanks().await? {
        true => space.take_blank(index).await?,
        false => None,
    };
    blank.map(|row| (row, Claimed::New)).ok_or(error.into())
}

/// Returns the row if it exists by now, and checks that the space still takes a claim: it may have been deleted or made
/// smaller while the claim waited for the lock.
async fn check_claim(space: &Space, index: u64, purpose: ClaimFor) -> Result<Option<Rc<Row>>, SpaceError> {
    match purpose {
        ClaimFor::HiddenRow => Ok(None),
        ClaimFor::BlankRow => {
            space.check_stays()?;
            space.row(index).await
        }
        ClaimFor::Write => {
            let row = space.row(index).await?;
            if row.is_none() {
                space.check_range(index * space.row_bytes, BLOCK_BYTES)?;
            }
            Ok(row)
        }
    }
}
