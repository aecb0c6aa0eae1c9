//! Exchanges: commits that change which row a place names (docs/design/0032, *One commit*).
//!
//! 1. The caller holds the lock of the whole row. A shadow row shares it, but for a conversion shadow, whose own lock the caller
//!    has tried.
//! 2. Table mutex, then commit mutex.
//! 3. `obstacles`. Where there is one, nothing changes.
//! 4. One change of the map, durable. The rows that go are detached before, and attached again if it fails.
//! 5. Memory follows: what is known of the rows that go is forgotten, and the row that stays has its place.
//! 6. Headers of the row that stays, unflushed.
//!
//! Invariants:
//! - [`commit_exchange`](Exchanges::commit_exchange) alone deletes the key of a row; `tidy` counts.
//! - Allocation units are released behind the commit that takes their row off the map.
//! - A task that holds the lock of a row to free it waits for no other row.
//!
//! Left to others: when rows are exchanged (`promote`, `drop_shadow`, `conversion_shadow`, `discard`, `reserve`, `spaces`).

use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_causes::in_one_line;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::{Change, Purpose, keys};
use dolmen_units::{Epoch, RowId, SpaceId};
use smallvec::SmallVec;

use crate::cache::segments::CacheIndex;
use crate::format::error::SpaceError;
use crate::format::ids::COUNTER_ROW;
use crate::format::record::BlockState;
use crate::relocation::obstacles;
use crate::relocation::obstacles::{EndCause, ExchangeKind, Facts, Known, Obstacles, RowFacts, obstacles};
use crate::resolution::decided_rows::DecidedRows;
use crate::resources::locks::Range;
use crate::row_io::absence::RowRecords;
use crate::row_io::flusher::Flusher;
use crate::row_io::header::HeaderStore;
use crate::table::moving::Watch;
use crate::table::page::Page;
use crate::table::pages::TableStore;
use crate::table::row::{Row, RowRecord, Slab, can_be_had, encode_place};
use crate::table::space::SpaceRows;

/// Rows that are looked up together.
const TOGETHER: usize = 256;
/// Estimated bytes of a change that frees several rows, at most, without its last row: a half of the largest record of the log.
const CHANGE_BYTES: usize = 96 << 10;
/// Bytes of an edit that takes a key off the map, and of the edits that release a run of allocation units, at most.
const EDIT_BYTES: usize = 26;
const RUN_BYTES: usize = 3 * 48;

/// Pages of a row and of its shadow row that stay in memory until an exchange has ended: they say which of the two has a stripe.
pub(crate) type HeldPages = Vec<Rc<Page>>;

/// Disks of a row that have to be present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disks {
    All,
    /// As many as it takes to read and write the row.
    Enough,
}

/// An exchange, as the caller has prepared it.
pub(crate) enum Exchange<'a> {
    /// The shadow row takes the place of its row. The caller holds the pages that say which of the two has a stripe.
    Promotion { shadow: &'a Rc<Row>, cause: EndCause },
    /// The conversion shadow takes the place of its row, which goes with its own shadow row.
    Conversion { shadow: &'a Rc<Row>, shadows: &'a SpaceRows, watch: &'a Watch, is_locked: bool },
    /// The row loses its shadow row. The caller holds the pages that say whether that has a stripe.
    Drop { shadow: &'a Rc<Row>, cause: EndCause },
    /// The place loses its row, and the row its shadow row.
    Free,
    /// A row that holds nothing becomes another row, in a place without a row or in its own.
    Renewal { to: u64, disks: Disks, holds_content: bool },
}

impl Exchange<'_> {
    fn kind(&self) -> ExchangeKind {
        match self {
            Self::Promotion { .. } => ExchangeKind::Promotion,
            Self::Conversion { .. } => ExchangeKind::Conversion,
            Self::Drop { .. } => ExchangeKind::Drop,
            Self::Free => ExchangeKind::Free,
            Self::Renewal { .. } => ExchangeKind::Renewal,
        }
    }
}

/// Outcome of an exchange.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ExchangeOutcome {
    Done,
    /// Nothing has changed.
    Hindered(Obstacles),
}

impl ExchangeOutcome {
    /// Returns whether the exchange is durable.
    pub(crate) fn is_done(&self) -> bool {
        *self == Self::Done
    }
}

/// A row that gets a place.
struct Stays {
    /// The row object that is detached: its record moves.
    from: Rc<Row>,
    index: u64,
    record: RowRecord,
}

/// The part of an exchange that concerns one place.
struct Plan {
    row: Rc<Row>,
    /// Rows whose allocation units are released.
    goes: SmallVec<[(Rc<Row>, RowRecord); 2]>,
    stays: Option<Stays>,
}

impl Plan {
    /// Rows that are detached.
    fn detached(&self) -> impl Iterator<Item = &Rc<Row>> {
        self.goes.iter().map(|(row, _)| row).chain(self.stays.as_ref().map(|stays| &stays.from))
    }
}

/// Exchanges of a row and its shadow row, and freed rows.
#[derive(Clone, Copy)]
pub(crate) struct Exchanges<'a> {
    space: &'a SpaceRows,
}

impl<'a> Exchanges<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl Exchanges<'_> {
    /// Commits an exchange of rows, if nothing hinders it. The caller holds the lock of all of each row. Several rows are freed in
    /// one change; a row that was detached since the caller looked is left out then.
    ///
    /// # Errors
    /// [`SpaceError`] when the commit fails: every place names the row that it named before.
    #[pooled]
    pub(crate) async fn commit_exchange(
        self,
        rows: &[&Rc<Row>],
        exchange: &Exchange<'_>,
    ) -> Result<ExchangeOutcome, SpaceError> {
        // A write-back that is under way may have taken pages.
        let _tables = self.space.shared.table_mutex.take().await;
        // An exchange makes the map no longer, and what is reserved is there also where nothing else has room.
        let mut change = self.space.shared.pool.change(Purpose::Release).await;
        let counts = counts_of(&mut change, self.space, rows, exchange).await?;
        let new = match exchange {
            Exchange::Renewal { .. } => RowId(change.number(keys::counter(COUNTER_ROW)).await?),
            _ => RowId::default(),
        };
        // From here to the commit nothing else runs.
        let (mut plans, mut hindered) = (Vec::with_capacity(rows.len()), Obstacles::new());
        for row in rows {
            let found = obstacles(&facts(self.space, row, exchange));
            match plan(self.space, row, exchange, new).filter(|_| found.is_empty()) {
                Some(plan) => plans.push(plan),
                None => hindered = found,
            }
        }
        if plans.is_empty() {
            return Ok(ExchangeOutcome::Hindered(hindered));
        }
        let counts = edit(&mut change, self.space, &plans, &counts);
        let set_detached = |is_detached| {
            plans.iter().flat_map(Plan::detached).for_each(|row| row.freed.set(is_detached));
        };
        // Whoever waits for the lock of a row must look it up again.
        set_detached(true);
        if let Err(error) = change.commit().await {
            // The pool has stopped, and nobody was told of the exchange.
            set_detached(false);
            return Err(error.into());
        }
        let mut stays = SmallVec::<[Rc<Row>; 1]>::new();
        for plan in plans {
            stays.extend(remember(self.space, plan, exchange));
        }
        counts.into_iter().for_each(|(space, count)| set_count(self.space, space, count));
        report(self.space, rows, exchange);
        if !matches!(exchange, Exchange::Renewal { .. }) {
            for row in stays {
                if let Err(error) = HeaderStore::of(&self.space.shared).write_headers(&row, |_| true).await {
                    tracing::warn!(space = %self.space.name(), row = row.index, error = %in_one_line(&error), "a row has another one in its place, and its headers could not be written; a scrub writes them");
                }
            }
        }
        Ok(ExchangeOutcome::Done)
    }

    /// Returns what hinders an exchange of a row now, as far as can be known without a lock.
    pub(crate) fn obstacles_of(self, row: &Rc<Row>, exchange: &Exchange<'_>) -> Obstacles {
        obstacles(&facts(self.space, row, exchange))
    }
}

/// Reads the counts of rows that an exchange may change.
async fn counts_of(
    change: &mut Change<'_>,
    space: &SpaceRows,
    rows: &[&Rc<Row>],
    exchange: &Exchange<'_>,
) -> Result<BTreeMap<SpaceId, u64>, SpaceError> {
    let mut spaces: SmallVec<[SpaceId; 3]> =
        rows.iter().filter_map(|row| Some(row.shadow()?.space)).collect();
    match exchange {
        Exchange::Conversion { shadows, .. } => spaces.push(shadows.id()),
        Exchange::Free => spaces.push(space.id()),
        Exchange::Promotion { .. } | Exchange::Drop { .. } | Exchange::Renewal { .. } => {}
    }
    spaces.sort_unstable();
    spaces.dedup();
    let mut counts = BTreeMap::new();
    for id in spaces {
        let value = change.get(&keys::row_count(id)).await?;
        counts.insert(id, value.and_then(|value| value.try_into().ok()).map_or(0, u64::from_le_bytes));
    }
    Ok(counts)
}

/// Returns whether a place names a row.
fn is_named(space: &SpaceRows, row: &Rc<Row>) -> bool {
    let known = space.rows.borrow().get(&row.index).cloned().flatten();
    !row.freed.get() && known.is_some_and(|known| Rc::ptr_eq(&known, row))
}

/// Facts of an exchange of a row, from memory.
fn facts(space: &SpaceRows, row: &Rc<Row>, exchange: &Exchange<'_>) -> Facts {
    let mut facts = Facts::new(exchange.kind());
    let is_detached = !is_named(space, row);
    facts.row.is_detached = is_detached;
    if matches!(exchange, Exchange::Free) {
        return facts;
    }
    facts.row = RowFacts { is_detached, ..row_facts(space, row) };
    facts.is_space_deleted = space.freed.get();
    let now = space.layouts.get().now;
    let is_unflushed = |row: &Row| !Flusher::of(&space.shared).unflushed_of(row).is_empty();
    match exchange {
        Exchange::Promotion { shadow, cause } => {
            facts.shadow = shadow_facts(space, row, shadow);
            facts.shadow.is_unflushed = is_unflushed(shadow);
            facts.is_for_room = *cause == EndCause::LackOfRoom;
            facts.lacks_stripe = lacks_stripe(row, shadow);
        }
        Exchange::Drop { shadow, cause } => {
            facts.shadow = shadow_facts(space, row, shadow);
            facts.row.is_unflushed = is_unflushed(row);
            facts.shadow.is_unflushed = is_unflushed(shadow);
            facts.is_for_room = *cause == EndCause::LackOfRoom;
            facts.has_stripe = has_stripe(shadow);
        }
        Exchange::Conversion { shadow, shadows, watch, is_locked } => {
            facts.shadow = row_facts(shadows, shadow);
            facts.shadow.is_detached = !is_named(shadows, shadow);
            facts.shadow.is_unflushed = is_unflushed(shadow);
            facts.is_shadow_locked = !is_locked;
            facts.is_changed = !watch.is_untouched();
            facts.is_layout_wrong = shadow.laid().layout != now || row.laid().layout == now;
        }
        Exchange::Renewal { disks, holds_content, .. } => {
            facts.is_layout_wrong = row.laid().layout != now;
            facts.holds_content = *holds_content;
            facts.lacks_slabs_of_new = as_new(space, row, *disks).is_none();
        }
        Exchange::Free => {}
    }
    facts
}

/// Facts of a shadow row that has its row's locks.
fn shadow_facts(space: &SpaceRows, row: &Row, shadow: &Rc<Row>) -> RowFacts {
    let is_shadow = row.shadow().is_some_and(|other| Rc::ptr_eq(&other, shadow));
    RowFacts { is_detached: shadow.freed.get() || !is_shadow, ..row_facts(space, shadow) }
}

/// Facts of a row whose cache is that of a space, but for its place and its unflushed blocks.
fn row_facts(space: &SpaceRows, row: &Rc<Row>) -> RowFacts {
    let shared = &space.shared;
    let is_readable = |slab: &Slab| slab.readable(&shared.pool).is_some();
    let mut lacks_a_slab = false;
    row.for_each_slab(|_, slab| lacks_a_slab |= !is_readable(slab));
    let is_lacking = |page: &Page| !page.is_durable() || (!row.is_formatted() && page.used_count() > 0);
    RowFacts {
        is_detached: false,
        is_in_doubt: shared.is_deferred(row),
        is_unflushed: false,
        is_unflushed_away: shared.is_unflushed_away(row),
        has_dirty_tables: row.dirty.get() || row.pages().iter().any(|(_, _, page)| is_lacking(page)),
        is_cached: !row.mappings.is_empty(),
        is_half_destaged: space
            .cache_of(row)
            .is_some_and(|cache| CacheIndex::of(&cache).has_unfinished_pair(row)),
        is_held: row.moves.is_held(),
        has_shadow: row.shadow().is_some(),
        columns_lacking: row.shape.columns().saturating_sub(row.count_columns(is_readable)),
        columns_spare: row.shape.parity_columns(),
        lacks_a_slab,
    }
}

/// Returns whether one of a row and its shadow row may get all content of the other one, which goes then.
pub(crate) fn may_replace(space: &SpaceRows, stays: &Rc<Row>, goes: &Rc<Row>, cause: EndCause) -> bool {
    obstacles::may_replace(&row_facts(space, stays), &row_facts(space, goes), cause == EndCause::LackOfRoom)
}

/// Returns whether a row has a stripe that its shadow row lacks. A stripe of which the shadow row does not know whose it is counts
/// as lacking.
fn lacks_stripe(row: &Row, shadow: &Row) -> Known {
    let data = row.shape.data_columns();
    for stripe in 0..row.shape.column_blocks(data) {
        match shadow.state_in_memory((data, stripe)) {
            Some(BlockState::Valid(_)) => continue,
            Some(BlockState::Damaged) => return Known::Yes,
            Some(BlockState::Never) => {}
            None => return Known::Away,
        }
        for column in (0..data).filter(|column| stripe < row.shape.column_blocks(*column)) {
            match row.state_in_memory((column, stripe)) {
                Some(BlockState::Never) => {}
                Some(BlockState::Valid(_) | BlockState::Damaged) => return Known::Yes,
                None => return Known::Away,
            }
        }
    }
    Known::No
}

/// Returns whether a shadow row has a stripe.
fn has_stripe(shadow: &Row) -> Known {
    let data = shadow.shape.data_columns();
    for stripe in 0..shadow.shape.column_blocks(data) {
        match shadow.state_in_memory((data, stripe)) {
            Some(BlockState::Never) => {}
            Some(BlockState::Valid(_) | BlockState::Damaged) => return Known::Yes,
            None => return Known::Away,
        }
    }
    Known::No
}

/// Returns the record of a row as one that was never written; `None` where disks that it needs are absent or stale. A slab on an
/// absent disk counts as empty, as at a claim.
fn as_new(space: &SpaceRows, row: &Row, disks: Disks) -> Option<RowRecord> {
    let pool = &space.shared.pool;
    let mut record = row.record();
    record.formatted = false;
    for slab in record.columns.iter_mut().flatten() {
        match slab.present(pool) {
            Some(_) if slab.stale.is_some() => return None,
            Some(_) => {}
            None if disks == Disks::All => return None,
            None => slab.stale = Some(Epoch(0)),
        }
    }
    let is_good = |slab: &Slab| slab.readable(pool).is_some();
    let (shape, mut columns) = (record.row_shape(), 0..record.columns.len());
    columns.all(|column| can_be_had(&shape, &record.columns, column, is_good)).then_some(record)
}

/// Returns the part of an exchange that concerns the place of a row; `None` where slabs are lacking.
fn plan(space: &SpaceRows, row: &Rc<Row>, exchange: &Exchange<'_>, new: RowId) -> Option<Plan> {
    let with_record = |row: &Rc<Row>| (Rc::clone(row), row.record());
    let (mut goes, mut stays) = (SmallVec::new(), None);
    match exchange {
        Exchange::Promotion { shadow, .. } => {
            goes.push(with_record(row));
            // A write-back may be about to mark slabs that missed pages: it passes over rows that are detached, so this change
            // marks those of the shadow row.
            let marked = RowRecords::of(&space.shared)
                .with_absences(shadow)
                .filter(|_| !mutation!(PromotionMarksNothing));
            let record = marked.map_or_else(|| shadow.record(), |(record, _)| record);
            stays = Some(Stays { from: Rc::clone(shadow), index: row.index, record });
        }
        Exchange::Conversion { shadow, .. } => {
            let (from, record) = with_record(shadow);
            goes.extend([Some(row), row.shadow().as_ref()].into_iter().flatten().map(with_record));
            stays = Some(Stays { from, index: row.index, record });
        }
        Exchange::Drop { shadow, .. } => goes.push(with_record(shadow)),
        Exchange::Free => {
            goes.extend([Some(row), row.shadow().as_ref()].into_iter().flatten().map(with_record));
        }
        Exchange::Renewal { to, disks, .. } => {
            let record = RowRecord { id: new, place: space.place_of(*to), ..as_new(space, row, *disks)? };
            stays = Some(Stays { from: Rc::clone(row), index: *to, record });
        }
    }
    Some(Plan { row: Rc::clone(row), goes, stays })
}

/// Puts the edits of an exchange into a change; returns the counts of rows behind it.
fn edit(
    change: &mut Change<'_>,
    space: &SpaceRows,
    plans: &[Plan],
    counts: &BTreeMap<SpaceId, u64>,
) -> BTreeMap<SpaceId, u64> {
    let mut changed = BTreeMap::new();
    let mut less = |id: SpaceId| {
        let count = counts.get(&id).copied().unwrap_or_default();
        changed
            .entry(id)
            .and_modify(|count: &mut u64| *count = count.saturating_sub(1))
            .or_insert(count.saturating_sub(1));
    };
    for Plan { row, goes, stays } in plans {
        for (gone, record) in goes {
            delete_keys(change, gone, record);
            record.columns.iter().flatten().for_each(|slab| change.release(slab.disk, &slab.runs));
            if gone.space != space.id() || stays.is_none() {
                less(gone.space);
            }
        }
        let Some(Stays { from, index, record }) = stays else { continue };
        delete_keys(change, from, record);
        if from.space != space.id() {
            less(from.space);
        }
        goes.iter().for_each(|(gone, old)| assert_disjoint(gone, old, record));
        for slab in record.columns.iter().flatten().filter(|slab| slab.stale.is_some()) {
            change.put(keys::stale(slab.disk, record.id), Vec::new());
        }
        space.shared.has_claimed_on_absent(space.id());
        change.put(keys::place(space.id(), *index), encode_place(record.id));
        change.put(keys::row(record.id), record.encode());
        debug_assert_eq!(row.space, space.id(), "a place is one of the space");
    }
    for (id, count) in &changed {
        change.put(keys::row_count(*id), count.to_le_bytes().to_vec());
    }
    changed
}

/// Deletes the keys of a row.
fn delete_keys(change: &mut Change<'_>, row: &Row, record: &RowRecord) {
    change.delete(keys::place(row.space, row.index));
    change.delete(keys::row(row.id));
    for slab in record.columns.iter().flatten() {
        change.delete(keys::stale(slab.disk, row.id));
    }
}

/// # Panics
/// When a row that goes and the row that stays have an allocation unit in common: its release would give it two owners.
fn assert_disjoint(gone: &Row, old: &RowRecord, stays: &RowRecord) {
    for slab in old.columns.iter().flatten() {
        for other in stays.columns.iter().flatten().filter(|other| other.disk == slab.disk) {
            let overlaps = slab.runs.iter().any(|one| {
                other
                    .runs
                    .iter()
                    .any(|two| one.first < two.first + two.count && two.first < one.first + one.count)
            });
            assert!(
                !overlaps,
                "{gone:?} goes and {} stays, with allocation units of {} in common",
                stays.id, slab.disk
            );
        }
    }
}

/// Forgets what memory has of the rows that go, and gives the row that stays its place; returns that row.
fn remember(space: &SpaceRows, plan: Plan, exchange: &Exchange<'_>) -> Option<Rc<Row>> {
    let Plan { row, goes, stays } = plan;
    let has_shadow_gone = row.shadow().filter(|_| !matches!(exchange, Exchange::Renewal { .. }));
    if let Some(shadow) = has_shadow_gone {
        if goes.iter().any(|(gone, _)| Rc::ptr_eq(gone, &shadow)) {
            TableStore::of(&space.shared).forget_pages(&shadow);
        }
        Exchanges::of(space).forget_shadow(&row);
    }
    if !matches!(exchange, Exchange::Drop { .. }) {
        space.rows.borrow_mut().insert(row.index, None);
        TableStore::of(&space.shared).forget_pages(&row);
        if let Some(cache) = space.cache_of(&row) {
            CacheIndex::of(&cache).forget_row(&row);
        }
        space.shared.forget_row(space.id(), row.index);
    }
    match exchange {
        // Counted again when it is asked for.
        Exchange::Conversion { .. } => space.own.borrow_mut().clear(),
        Exchange::Free => {
            goes.iter().filter(|(gone, _)| Rc::ptr_eq(gone, &row)).for_each(|(_, old)| space.forget_own(old))
        }
        Exchange::Promotion { .. } | Exchange::Drop { .. } | Exchange::Renewal { .. } => {}
    }
    let Stays { from, index, record } = stays?;
    let id = record.id;
    let new = match exchange {
        Exchange::Renewal { .. } => Row::new(space.id(), index, record),
        _ => from.promoted_as(&row, record),
    };
    if let Exchange::Conversion { shadows, .. } = exchange {
        shadows.rows.borrow_mut().insert(from.index, None);
        space.shared.forget_row(from.space, from.index);
    }
    space.rows.borrow_mut().insert(index, Some(Rc::clone(&new)));
    assert!(is_named(space, &new) && new.id == id, "the place names the row that stays");
    Some(new)
}

/// Notes the count of rows of a space.
fn set_count(space: &SpaceRows, id: SpaceId, count: u64) {
    let spaces = space.list.spaces.borrow().upgrade();
    let other = spaces.and_then(|spaces| spaces.borrow().get(&id).cloned());
    match other.filter(|_| id != space.id()) {
        Some(other) => other.row_count.set(count),
        None if id == space.id() => space.row_count.set(count),
        None => {}
    }
}

/// Counts and logs exchanges.
fn report(space: &SpaceRows, rows: &[&Rc<Row>], exchange: &Exchange<'_>) {
    let what = match exchange {
        Exchange::Promotion { .. } => {
            space.shared.count(|counters| counters.shadows_promoted += 1);
            "a shadow row has taken the place of its row"
        }
        Exchange::Conversion { .. } => {
            space.shared.count(|counters| counters.converted_rows += 1);
            "a row has another layout"
        }
        Exchange::Drop { .. } => {
            space.shared.count(|counters| counters.shadows_dropped += 1);
            "a shadow row was dropped"
        }
        Exchange::Free | Exchange::Renewal { .. } => return,
    };
    rows.iter().for_each(|row| tracing::debug!(space = %space.name(), row = row.index, "{what}"));
}

impl Exchanges<'_> {
    /// Frees a row: the commit first, then the allocation units, then its memory. The caller holds a lock on all of it.
    pub(crate) async fn free_row(self, row: &Rc<Row>) -> Result<(), SpaceError> {
        self.free_together(&[row]).await
    }

    /// Frees all of these rows, in order and many in one change, also those whose blocks wait for absent disks to be decided, and
    /// those that take their places meanwhile. Killed half-way, some of them are left.
    #[pooled]
    pub(crate) async fn free_rows(self, indexes: &[u64]) -> Result<(), SpaceError> {
        for indexes in indexes.chunks(TOGETHER) {
            let mut left = indexes.to_vec();
            while !left.is_empty() {
                let mut rows = Vec::with_capacity(left.len());
                for index in &left {
                    rows.extend(self.space.in_doubt_row(*index).await?);
                }
                left = self.free_looked_up(&rows).await?;
            }
        }
        Ok(())
    }

    /// The same of rows of a space that stays: what nobody has decided of them is not left behind for those that come there next.
    pub(crate) async fn free_rows_decided(self, indexes: &[u64]) -> Result<(), SpaceError> {
        for indexes in indexes.chunks(TOGETHER) {
            for index in indexes {
                DecidedRows::of(self.space).row(*index).await?;
            }
            self.free_rows(indexes).await?;
        }
        Ok(())
    }

    /// Frees rows; those of which somebody else had a lock, and that are another one by now, or none, are to be looked up again.
    #[pooled]
    async fn free_looked_up(self, rows: &[Rc<Row>]) -> Result<Vec<u64>, SpaceError> {
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
    async fn free_together(self, rows: &[&Rc<Row>]) -> Result<(), SpaceError> {
        if !rows.is_empty() {
            self.commit_exchange(rows, &Exchange::Free).await?;
        }
        Ok(())
    }

    /// Notes that a row has no shadow row any more.
    pub(crate) fn forget_shadow(self, row: &Row) {
        row.forget_shadow();
        if let Some(hidden) = self.space.shadows.space() {
            hidden.rows.borrow_mut().insert(row.index, None);
            self.space.shared.forget_row(hidden.id(), row.index);
        }
        self.space.shadows.wanted.borrow_mut().remove(&row.index);
        self.space.shadows.forget(row.index);
    }
}

/// What it takes to free a row, at most.
fn bytes_of(record: &RowRecord) -> usize {
    let of_slabs = record.columns.iter().flatten().map(|slab| EDIT_BYTES + slab.runs.len() * RUN_BYTES);
    // Its keys, and the count of rows.
    4 * EDIT_BYTES + of_slabs.sum::<usize>()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dolmen_space::Space;
    use std::error::Error;

    use dolmen_units::Bytes;

    use super::*;
    use crate::harness::{Bench, ROW};
    use crate::relocation::exchange::Exchanges;
    use crate::relocation::obstacles::Obstacle;
    use crate::relocation::promote::Promotion;
    use crate::relocation::shadow_stripes::ShadowStripes;
    use crate::table::page::place_in_page;
    use crate::table::redo::Redo;

    /// Expects an exchange to be hindered, and its place to name the same row as before.
    async fn expect_hindered(
        space: &Space,
        row: &Rc<Row>,
        exchange: &Exchange<'_>,
        obstacle: Obstacle,
    ) -> Result<(), Box<dyn Error>> {
        let shadow = row.shadow();
        let guard = row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await;
        let outcome = Exchanges::of(space).commit_exchange(&[row], exchange).await?;
        drop(guard);
        let ExchangeOutcome::Hindered(found) = outcome else {
            panic!("a row was exchanged in spite of {obstacle:?}");
        };
        assert!(found.contains(&obstacle), "{found:?} instead of {obstacle:?}");
        let known = space.rows.borrow().get(&row.index).cloned().flatten();
        assert!(known.is_some_and(|known| Rc::ptr_eq(&known, row)), "{obstacle:?} changed the place");
        assert_eq!(
            row.shadow().map(|row| row.id),
            shadow.map(|row| row.id),
            "{obstacle:?} changed the shadow row"
        );
        Ok(())
    }

    /// Puts a parity block of a shadow row into a state, as only recovery does.
    fn set_parity(space: &Space, shadow: &Row, stripe: u32, state: BlockState) {
        let (index, entry) = place_in_page(stripe);
        let held = space.shared.tickets.begin();
        let page = shadow.page(shadow.shape.data_columns(), index).unwrap();
        page.set(entry, state, space.shared.stamp(), space.shared.now(&held));
    }

    /// Scenario: a shadow row is ready to be promoted. One event after the other comes between the last look and the commit. Each is
    /// found under the commit mutex, and nothing changes; without an event, the shadow row is promoted, and its room is its own.
    #[test]
    fn obstacles_are_checked_under_the_commit() {
        let bench = Bench::new(81, 3, Bytes::mib(128));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.with_shadow(&spaces, ROW.0).await?;
                spaces.pool().checkpoint().await?;
                let row = DecidedRows::of(&space).row(0).await?.ok_or("there is a row")?;
                let shadow = row.shadow().ok_or("there is a shadow row")?;
                let mut held = HeldPages::new();
                ShadowStripes::of(&space).lacking(&row, &shadow, &mut held).await?;
                let (shared, cause) = (&space.shared, EndCause::Unused);
                let promotion = Exchange::Promotion { shadow: &shadow, cause };
                for detached in [&row, &shadow] {
                    detached.freed.set(true);
                    let outcome = Exchanges::of(&space).commit_exchange(&[&row], &promotion).await?;
                    assert!(!outcome.is_done(), "a row was exchanged in spite of RowDetached");
                    detached.freed.set(false);
                }
                space.freed.set(true);
                expect_hindered(&space, &row, &promotion, Obstacle::SpaceDeleted).await?;
                space.freed.set(false);
                for of in [&row, &shadow] {
                    let key = (of.space, of.index);
                    shared.deferred.borrow_mut().insert(key, Rc::default());
                    expect_hindered(&space, &row, &promotion, Obstacle::InDoubt).await?;
                    shared.deferred.borrow_mut().remove(&key);
                    shared.unflushed_away.borrow_mut().insert(key);
                    expect_hindered(&space, &row, &promotion, Obstacle::UnflushedAway).await?;
                    shared.unflushed_away.borrow_mut().remove(&key);
                }
                let cache = space.cache_of(&row).ok_or("there is a cache")?;
                for of in [&row, &shadow] {
                    let (row_of, ends) = (Rc::clone(of), Vec::new());
                    let redo = Redo {
                        row: row_of,
                        stripe: 0,
                        blocks: Vec::new(),
                        ends,
                        relogged: Default::default(),
                        owns_all: false,
                    };
                    cache.unfinished.borrow_mut().push(redo);
                    expect_hindered(&space, &row, &promotion, Obstacle::HalfDestaged).await?;
                    cache.unfinished.borrow_mut().clear();
                }
                let watch = Watch::of(&row);
                watch.hold().await;
                expect_hindered(&space, &row, &promotion, Obstacle::Held).await?;
                drop(watch);
                shadow.dirty.set(true);
                expect_hindered(&space, &row, &promotion, Obstacle::TablesDirty).await?;
                shadow.dirty.set(false);
                let drop_of_shadow = Exchange::Drop { shadow: &shadow, cause };
                expect_hindered(&space, &row, &drop_of_shadow, Obstacle::HoldsStripes).await?;
                let whole = Range { first: 0, count: row.shape.row_blocks() };
                let guard = row.locks.lock(whole).await;
                assert!(Exchanges::of(&space).commit_exchange(&[&row], &promotion).await?.is_done());
                drop(guard);
                let promoted = DecidedRows::of(&space).row(0).await?.ok_or("there is a row")?;
                assert_eq!(promoted.id, shadow.id, "the place names another row");
                assert!(promoted.shadow().is_none() && row.freed.get() && shadow.freed.get());
                assert_eq!(space.shadows.space().map(|hidden| hidden.row_count.get()), Some(0));
                lab.expect(&space, 0, usize::try_from(ROW.0)?, 2).await?;
                drop((space, row, shadow, promoted, cache, held));
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }

    /// Scenario: behind the last look, recovery finds a stripe of a shadow row that was never written, or whose parity is damaged; or
    /// the pages that say so leave memory. The shadow row is not promoted.
    #[test]
    fn a_shadow_row_that_lacks_a_stripe_is_not_promoted() {
        let bench = Bench::new(82, 3, Bytes::mib(128));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.with_shadow(&spaces, ROW.0).await?;
                spaces.pool().checkpoint().await?;
                let row = DecidedRows::of(&space).row(0).await?.ok_or("there is a row")?;
                let shadow = row.shadow().ok_or("there is a shadow row")?;
                let mut held = HeldPages::new();
                assert!(ShadowStripes::of(&space).lacking(&row, &shadow, &mut held).await?.is_empty());
                let promotion = Exchange::Promotion { shadow: &shadow, cause: EndCause::Unused };
                let before = shadow.state_in_memory((shadow.shape.data_columns(), 1)).unwrap();
                for state in [BlockState::Never, BlockState::Damaged] {
                    set_parity(&space, &shadow, 1, state);
                    assert_eq!(lacks_stripe(&row, &shadow), Known::Yes, "{state:?}");
                    expect_hindered(&space, &row, &promotion, Obstacle::Lacks).await?;
                }
                set_parity(&space, &shadow, 1, before);
                assert_eq!(lacks_stripe(&row, &shadow), Known::No);
                space.shared.note_dirty(&shadow);
                spaces.pool().checkpoint().await?;
                held.clear();
                for _ in 0..2 {
                    shadow.drop_pages();
                }
                expect_hindered(&space, &row, &promotion, Obstacle::PageAway).await?;
                assert!(
                    Promotion::of(&space).promote(&[0], EndCause::Unused).await?,
                    "nothing hinders it any more"
                );
                lab.expect(&space, 0, usize::try_from(ROW.0)?, 2).await?;
                drop((space, row, shadow, held));
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }
}
