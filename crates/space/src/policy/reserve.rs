//! Room that is reserved for a thin space: rows that are claimed and hold nothing, and take the place of the one that is written
//! next (docs/design/0024).
//!
//! Invariants:
//! - A thin space has as many rows as its reserve takes, or more. One that it gives back below that stays, and holds nothing.
//! - A row that takes another place is another row: its number is new, and nothing that was said of it before counts.
//!
//! Left to others: when rows hold nothing (`discard`); what is asked of all spaces when a pool is opened (`finish`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_block_io::sync::AsyncMutex;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::{Pool, PoolError, Purpose, keys};
use dolmen_units::{Bytes, Epoch, RowId, SpaceId};

use crate::facade::space::{COUNTER_ROW, Space};
use crate::facade::spaces::Spaces;
use crate::format::error::SpaceError;
use crate::format::spec::Provisioning;
use crate::resources::locks::Range;
use crate::resources::ranks;
use crate::table::row::{Row, RowRecord, Slab, can_be_had};

/// The number of the setting, in its key of the map.
const RESERVE: u64 = 3;

/// What is reserved for a space, and rows of it that may hold nothing.
pub(crate) struct Reserve {
    bytes: Cell<Bytes>,
    /// Rows that held nothing when they were looked at last.
    blanks: RefCell<BTreeSet<u64>>,
    /// Rows that may hold nothing: they could not be looked at, or nobody has known since.
    doubtful: RefCell<BTreeSet<u64>>,
    /// How many keep rows that hold nothing from becoming others.
    still: Rc<Cell<u32>>,
    /// Whether rows that were never formatted were looked for.
    has_looked: Cell<bool>,
    /// Whether all others were.
    has_read: Cell<bool>,
    /// Held while it is decided whether a row is given back, and done.
    mutex: AsyncMutex,
}

impl Default for Reserve {
    fn default() -> Self {
        let (bytes, blanks, doubtful, still, has_looked, has_read) = Default::default();
        Self { bytes, blanks, doubtful, still, has_looked, has_read, mutex: ranks::reserve() }
    }
}

impl Reserve {
    /// The last of the rows before `end` that hold nothing, or may.
    fn last_before(&self, end: u64) -> Option<u64> {
        let last = |rows: &RefCell<BTreeSet<u64>>| rows.borrow().range(..end).next_back().copied();
        last(&self.blanks).max(last(&self.doubtful))
    }

    fn forget(&self, index: u64) {
        self.blanks.borrow_mut().remove(&index);
        self.doubtful.borrow_mut().remove(&index);
    }

    fn note(&self, index: u64) {
        self.doubtful.borrow_mut().remove(&index);
        self.blanks.borrow_mut().insert(index);
    }

    fn note_doubtful(&self, index: u64) {
        self.doubtful.borrow_mut().insert(index);
    }

    /// Notes that a row is not known any more: it was written, or not.
    pub(crate) fn doubt(&self, index: u64) {
        if self.blanks.borrow_mut().remove(&index) {
            self.note_doubtful(index);
        }
    }

    /// Keeps every row that holds nothing where it is, for as long as the guard lives.
    pub(crate) fn keep_still(&self) -> Still {
        self.still.set(self.still.get() + 1);
        Still(Rc::clone(&self.still))
    }
}

/// Rows that hold nothing stay where they are.
pub(crate) struct Still(Rc<Cell<u32>>);

impl Drop for Still {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// What came of a row that was to become another one.
enum Renewed {
    Row(Rc<Row>),
    /// It holds something.
    InUse,
    /// Somebody is at it, or a disk of it is away or lacks something: it may be had later.
    Busy,
}

/// Which disks of a row have to be here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Disks {
    AllHere,
    /// As many as it takes to read and write it.
    Enough,
}

impl Space {
    /// What is reserved for it.
    #[must_use]
    pub fn reserve(&self) -> Bytes {
        self.reserve.bytes.get()
    }

    /// Bytes of its rows that its reserve takes and that are not claimed: zero, but while it is filled, or where room for it was
    /// lost.
    #[must_use]
    pub fn lacks_of_reserve(&self) -> Bytes {
        match self.is_thin() {
            true => Bytes(self.reserve_rows().saturating_sub(self.row_count.get()) * self.row_bytes()),
            false => Bytes::ZERO,
        }
    }

    /// What can be written of what is reserved, as far as is known without reading tables.
    #[must_use]
    pub fn blank_bytes(&self) -> Bytes {
        let rows = self.rows.borrow();
        // One that is dropped from memory is doubtful from then on; one that never had tables is not dropped.
        let is_written = |index: &&u64| match rows.get(index) {
            Some(Some(row)) => row.is_formatted() || row.holds_anything_in_memory(),
            _ => false,
        };
        let blanks = self.reserve.blanks.borrow().iter().filter(|index| !is_written(index)).count();
        Bytes(blanks as u64 * self.row_bytes())
    }

    /// Rows that its reserve takes.
    pub(crate) fn reserve_rows(&self) -> u64 {
        self.reserve().0.min(self.size().0).div_ceil(self.row_bytes())
    }

    /// Reads what is on record. What an unknown version wrote there is none of ours.
    pub(crate) async fn load_reserve(&self, pool: &Pool) -> Result<(), SpaceError> {
        let value = pool.get(&reserve_of(self.id())).await?;
        let bytes = value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_le_bytes);
        self.reserve.bytes.set(Bytes(bytes));
        Ok(())
    }

    /// Whether rows that hold nothing take the places of those that are written. All rows of a fixed space are where they belong.
    fn has_movable_reserve(&self) -> bool {
        self.is_thin() && self.reserve_rows() > 0 && self.reserve.still.get() == 0
    }

    /// A row that holds nothing, in the place of one that does not exist. `None` where there is none, or nothing is reserved.
    #[pooled]
    pub(crate) async fn take_blank(&self, index: u64) -> Result<Option<Rc<Row>>, SpaceError> {
        if !self.has_movable_reserve() {
            return Ok(None);
        }
        self.look_for_unformatted().await?;
        match self.take_blank_on(index, Disks::AllHere).await? {
            None if self.reserve.last_before(u64::MAX).is_some() => {
                self.take_blank_on(index, Disks::Enough).await
            }
            taken => Ok(taken),
        }
    }

    async fn take_blank_on(&self, index: u64, disks: Disks) -> Result<Option<Rc<Row>>, SpaceError> {
        let mut end = u64::MAX;
        while let Some(blank) = self.reserve.last_before(end) {
            end = blank;
            let Some(row) = self.in_doubt_row(blank).await? else {
                self.reserve.forget(blank);
                continue;
            };
            let Some(_guard) = row.locks.try_lock(whole(&row)) else { continue };
            match self.renewed(&row, index, disks).await? {
                Renewed::Row(row) => return Ok(Some(row)),
                Renewed::InUse => self.reserve.forget(blank),
                Renewed::Busy => {}
            }
        }
        Ok(None)
    }

    /// Looks at all rows of a space that has no room for another: whether there were any among them that hold nothing.
    #[pooled]
    pub(crate) async fn finds_blanks(&self) -> Result<bool, SpaceError> {
        if !self.has_movable_reserve() || self.reserve.has_read.get() {
            return Ok(false);
        }
        let mut rows = Vec::new();
        self.for_each_record(|index, record| rows.extend(record.formatted.then_some(index))).await?;
        let mut has_found = false;
        for index in rows {
            let Some(row) = self.in_doubt_row(index).await? else { continue };
            let guard = row.locks.try_lock(whole(&row)).filter(|_| !self.shared.is_deferred(&row));
            let holds_nothing = match guard {
                Some(_guard) => self.holds_nothing(&row).await?,
                None => None,
            };
            match holds_nothing {
                Some(true) => self.reserve.note(index),
                Some(false) => continue,
                // It is asked again when it is wanted.
                None => self.reserve.note_doubtful(index),
            }
            has_found = true;
        }
        self.reserve.has_read.set(true);
        Ok(has_found)
    }

    /// Whether nothing is in a row; `None` where its tables cannot be read now.
    async fn holds_nothing(&self, row: &Rc<Row>) -> Result<Option<bool>, SpaceError> {
        match self.is_unused(row).await {
            Err(SpaceError::Unreadable { .. }) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Finds rows that were never written, once.
    pub(crate) async fn look_for_unformatted(&self) -> Result<(), SpaceError> {
        if self.reserve.has_looked.get() {
            return Ok(());
        }
        let mut rows = Vec::new();
        self.for_each_record(|index, record| rows.extend((!record.formatted).then_some(index))).await?;
        self.reserve.blanks.borrow_mut().extend(rows);
        self.reserve.has_looked.set(true);
        Ok(())
    }

    /// Frees a row in which nothing is left, or keeps it for what is reserved. The caller holds a lock on all of it.
    pub(crate) async fn release(&self, row: &Rc<Row>) -> Result<(), SpaceError> {
        // Whoever reserves waits until it is done.
        let _exclusive = self.reserve.mutex.take().await;
        if self.row_count.get() > self.reserve_rows() || mutation!(ReserveReleased) {
            self.reserve.forget(row.index);
            return self.free_row(row).await;
        }
        // As one that was never formatted, it is known again behind the next opening.
        if row.is_formatted() {
            self.renewed(row, row.index, Disks::Enough).await?;
        }
        self.reserve.note(row.index);
        Ok(())
    }

    /// Has a row be another one, in a place where there is none, or in its own. The caller holds a lock on all of it.
    #[pooled]
    async fn renewed(&self, row: &Rc<Row>, to: u64, disks: Disks) -> Result<Renewed, SpaceError> {
        if self.as_new(row, disks).is_none() || self.shared.is_deferred(row) {
            return Ok(Renewed::Busy);
        }
        match self.holds_nothing(row).await? {
            _ if mutation!(ReserveTakesWritten) => {}
            Some(true) => {}
            Some(false) => return Ok(Renewed::InUse),
            None => return Ok(Renewed::Busy),
        }
        let _tables = self.shared.table_mutex.take().await;
        // It makes the map no longer, and what is reserved is there also where nothing else has room.
        let mut change = self.shared.pool.change(Purpose::Release).await;
        let id = RowId(change.number(keys::counter(COUNTER_ROW)).await?);
        let Some(new) = self.as_new(row, disks) else { return Ok(Renewed::Busy) };
        let record = RowRecord { id, ..new };
        change.delete(keys::row(self.id(), row.index));
        row.record().columns.iter().flatten().for_each(|slab| {
            change.delete(keys::stale(slab.disk, self.id(), row.index));
        });
        for slab in record.columns.iter().flatten().filter(|slab| slab.stale.is_some()) {
            change.put(keys::stale(slab.disk, self.id(), to), Vec::new());
            self.shared.has_claimed_on_absent(self.id());
        }
        change.put(keys::row(self.id(), to), record.encode());
        // Whoever waits for its lock must look it up again.
        row.freed.set(true);
        if let Err(error) = change.commit().await {
            row.freed.set(false);
            return Err(error.into());
        }
        self.forget_what_was_of(row);
        let new = Row::new(self.id(), to, record);
        self.rows.borrow_mut().insert(to, Some(Rc::clone(&new)));
        if to != row.index {
            self.reserve.forget(row.index);
        }
        Ok(Renewed::Row(new))
    }

    /// What a row is as one that was never written; `None` where somebody is at it, or disks that it needs are away or behind.
    /// What is on a disk that is away counts as nothing there, as when it is claimed.
    fn as_new(&self, row: &Row, disks: Disks) -> Option<RowRecord> {
        let pool = &self.shared.pool;
        let is_other = row.layout() != self.layouts.get().now;
        if is_other || row.freed.get() || row.is_held() || row.shadow().is_some() {
            return None;
        }
        let mut record = row.record();
        record.formatted = false;
        for slab in record.columns.iter_mut().flatten() {
            match slab.present(pool) {
                Some(_) if slab.stale.is_some() => return None,
                Some(_) => {}
                None if disks == Disks::AllHere => return None,
                None => slab.stale = Some(Epoch(0)),
            }
        }
        let is_good = |slab: &Slab| slab.readable(pool).is_some();
        let (shape, mut columns) = (record.row_shape(), 0..record.columns.len());
        columns.all(|column| can_be_had(&shape, &record.columns, column, is_good)).then_some(record)
    }

    /// Claims rows that hold nothing until there are as many as its reserve takes.
    ///
    /// # Errors
    /// [`PoolError::NoSpace`] among others; what was claimed stays.
    pub(crate) async fn fill_reserve(&self) -> Result<(), SpaceError> {
        if self.lacks_of_reserve() == Bytes::ZERO {
            return Ok(());
        }
        self.look_for_unformatted().await?;
        let mut index = 0;
        while self.lacks_of_reserve() > Bytes::ZERO {
            self.shared.gate().await?;
            if self.in_doubt_row(index).await?.is_none() && self.claim_blank(index).await? {
                self.reserve.note(index);
            }
            // Clients may have taken blanks from in front of it to where it comes later: then it goes round once more.
            index = (index + 1) % self.size().0.div_ceil(self.row_bytes());
        }
        Ok(())
    }

    /// Gives back rows that hold nothing, as many as its reserve does not take.
    #[pooled]
    pub(crate) async fn trim_reserve(&self) -> Result<(), SpaceError> {
        self.look_for_unformatted().await?;
        let mut end = u64::MAX;
        while self.is_thin() && self.row_count.get() > self.reserve_rows() {
            let Some(blank) = self.reserve.last_before(end) else { break };
            end = blank;
            match self.row(blank).await {
                // One that is kept after all stays known.
                Ok(Some(row)) => self.free_if_known_unused(&row).await?,
                Ok(None) => self.reserve.forget(blank),
                // As long as nobody can tell what it holds, it stays.
                Err(SpaceError::Unreadable { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn whole(row: &Row) -> Range {
    Range { first: 0, count: row.shape.row_blocks() }
}

impl Spaces {
    /// Whether so much could be reserved for a space with what is free now.
    ///
    /// # Errors
    /// [`SpaceError::Reserve`] tells why not.
    pub fn check_reserve(&self, space: &Space, bytes: Bytes) -> Result<(), SpaceError> {
        let spec = space.spec();
        let refused = |most: Bytes, why| SpaceError::Reserve { name: space.name(), wanted: bytes, most, why };
        if bytes == Bytes::ZERO {
            return Ok(());
        }
        if spec.provisioning == Provisioning::Fixed {
            return Err(refused(Bytes::ZERO, "it is fixed, and has room for all of its blocks"));
        }
        if bytes > spec.size {
            return Err(refused(spec.size, "it is no larger"));
        }
        let has = space.row_count.get();
        let needs = bytes.0.div_ceil(space.row_bytes());
        if needs <= has {
            return Ok(());
        }
        let most = has + self.rows_that_fit(&crate::policy::convert::laid(space, spec.layout()))?;
        if needs <= most {
            return Ok(());
        }
        let most = Bytes((most * space.row_bytes()).min(spec.size.0));
        Err(refused(most, "nothing more is free for it"))
    }

    /// Reserves room for a thin space: so much of it can be written, however full the pool is. Killed on the way, the rest is
    /// claimed when the pool is opened.
    ///
    /// # Errors
    /// [`SpaceError::Reserve`], or what the pool says; the reserve is what it was then.
    #[pooled]
    pub async fn set_reserve(&self, space: &Rc<Space>, bytes: Bytes) -> Result<(), SpaceError> {
        let _exclusive = space.spec_mutex.take().await;
        space.check_stays()?;
        self.check_reserve(space, bytes)?;
        let before = space.reserve();
        self.put_reserve(space, bytes).await?;
        if let Err(error) = space.fill_reserve().await {
            self.put_reserve(space, before).await?;
            space.trim_reserve().await?;
            return Err(match error {
                SpaceError::Pool(PoolError::NoSpace { .. }) => SpaceError::Reserve {
                    name: space.name(),
                    wanted: bytes,
                    most: space.claimed(),
                    why: "something else took what was free for it",
                },
                error => error,
            });
        }
        space.trim_reserve().await
    }

    async fn put_reserve(&self, space: &Space, bytes: Bytes) -> Result<(), SpaceError> {
        let key = reserve_of(space.id());
        let _exclusive = space.reserve.mutex.take().await;
        let mut change = self.pool().change(Purpose::Release).await;
        match bytes {
            Bytes::ZERO => change.delete(key),
            bytes => change.put(key, bytes.0.to_le_bytes().to_vec()),
        }
        change.commit().await?;
        space.reserve.bytes.set(bytes);
        Ok(())
    }
}

/// The key of what is reserved for a space.
pub(crate) fn reserve_of(space: SpaceId) -> dolmen_store::Key {
    keys::setting(space, RESERVE)
}

/// What is reserved and finds no room now is told as lacking, and keeps nothing else from being done.
pub(crate) fn unless_full(error: SpaceError) -> Result<(), SpaceError> {
    match error {
        SpaceError::Pool(
            PoolError::NoSpace { .. } | PoolError::MetadataFull { .. } | PoolError::Fragmented { .. },
        )
        | SpaceError::NoSpaceBelow { .. } => Ok(()),
        error => Err(error),
    }
}
