//! Rows in memory: which slabs hold an extent of a space, and its tables as far as they were read.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::{Rc, Weak};

use dolmen_block_io::ranks::LockRank;
use dolmen_mutation::mutation;
use dolmen_pool::{Disk, Pool, RUNS_MAX, Run};
use dolmen_units::{ALLOCATION_UNIT_BYTES, BLOCK_BYTES, Bytes, DiskSlot, Epoch, RowId, SpaceId};
use smallvec::SmallVec;
use zerocopy::{FromBytes, IntoBytes};

use crate::format::ids::{is_of_shadows, seen_as, shadows_of};
use crate::format::raw::{RECORD_VERSION, RawPlaceRow, RawRow, RawRun, RawSlab};
use crate::format::record::BlockState;
use crate::format::resiliency::{Integrity, Resiliency};
use crate::layout::{ReadPlan, RowShape, Shape, SlabMap, SlabSet, Unit};
use crate::resources::locks::RangeLocks;
use crate::resources::ranks;
use crate::table::mapping::Mappings;
use crate::table::moved::Moved;
use crate::table::moves::Moves;
use crate::table::page::{Page, place_in_page};

/// Slabs of a column, at most: four copies, and one that is about to replace another.
pub(crate) const SLABS_MAX: usize = 5;

/// A run of allocation units on one disk that serves a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slab {
    pub(crate) disk: DiskSlot,
    pub(crate) runs: Vec<Run>,
    /// It misses what was written since this epoch; `None`: it holds everything.
    pub(crate) stale: Option<Epoch>,
}

/// A part of a slab that lies in one piece on its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Byte of the disk's data area.
    pub(crate) at: u64,
    /// Offset in what was asked for.
    pub(crate) offset: usize,
    /// Length in bytes.
    pub(crate) length: usize,
}

impl Slab {
    /// Where `length` bytes from byte `start` of the slab are.
    pub(crate) fn pieces(&self, start: u64, length: usize) -> SmallVec<[Piece; 2]> {
        let mut pieces = SmallVec::new();
        let (mut skip, mut left, mut offset) = (start, length, 0);
        for run in &self.runs {
            let bytes = run.count * ALLOCATION_UNIT_BYTES;
            if skip >= bytes {
                skip -= bytes;
                continue;
            }
            if left == 0 {
                break;
            }
            let now = usize::try_from(bytes - skip).unwrap_or(usize::MAX).min(left);
            pieces.push(Piece { at: run.first * ALLOCATION_UNIT_BYTES + skip, offset, length: now });
            (skip, left, offset) = (0, left - now, offset + now);
        }
        assert!(left == 0, "a slab holds all bytes of its column and its table");
        pieces
    }

    /// Whether it was claimed and never filled.
    pub(crate) fn has_nothing(&self) -> bool {
        self.stale == Some(Epoch(0))
    }

    /// Whether it holds everything and its disk is here.
    pub(crate) fn readable(&self, pool: &Pool) -> Option<Rc<Disk>> {
        if self.stale.is_some() {
            return None;
        }
        self.present(pool)
    }

    /// The disk, if it is here.
    pub(crate) fn present(&self, pool: &Pool) -> Option<Rc<Disk>> {
        pool.disk(self.disk).filter(|disk| disk.is_present())
    }
}

/// Which slabs have a table of a row, and which of their tables it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TablePlace {
    /// The column that the slabs serve.
    holder: usize,
    table: usize,
}

impl TablePlace {
    /// The column whose slabs have it.
    pub(crate) fn holder(self) -> usize {
        self.holder
    }
}

/// Whether the blocks of a column can be had from slabs that are good.
pub(crate) fn can_be_had(
    shape: &RowShape,
    columns: &[Slabs],
    column: usize,
    is_good: impl Fn(&Slab) -> bool,
) -> bool {
    let is_held = |slabs: &Slabs| slabs.iter().any(&is_good);
    if columns.get(column).is_some_and(is_held) {
        return true;
    }
    shape.plan_read(column, SlabSet::of_columns(shape, columns_without(columns, is_good))) != ReadPlan::Lost
}

/// Returns the columns none of whose slabs is good.
pub(crate) fn columns_without(
    columns: &[Slabs],
    is_good: impl Fn(&Slab) -> bool,
) -> impl Iterator<Item = usize> {
    let columns = columns.iter().enumerate();
    columns.filter(move |(_, slabs)| !slabs.iter().any(&is_good)).map(|(column, _)| column)
}

/// The slabs of one column.
pub(crate) type Slabs = SmallVec<[Slab; 2]>;

/// A row that cannot be what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadRow;

/// The place that names a row, or whose row it is a shadow of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowPlace {
    /// The space that people see, or a write cache.
    pub(crate) space: SpaceId,
    pub(crate) index: u64,
}

/// The value of the key of a place.
pub(crate) fn encode_place(row: RowId) -> Vec<u8> {
    let raw = RawPlaceRow { row: row.0.into(), shadow: 0.into(), purpose: 0, reserved: [0; 7] };
    raw.as_bytes().to_vec()
}

/// The row that stands in a place, by the value of its key.
pub(crate) fn parse_place(value: &[u8]) -> Result<RowId, BadRow> {
    let raw = RawPlaceRow::read_from_bytes(value).map_err(|_| BadRow)?;
    let is_spare_zero = raw.shadow.get() == 0 && raw.purpose == 0 && raw.reserved == [0; 7];
    let row = RowId(raw.row.get());
    if is_spare_zero && row != RowId(0) { Ok(row) } else { Err(BadRow) }
}

/// How a row is laid and written over, whatever its space says by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowLaid {
    /// Which layout of its space it has: the conversion round that laid it.
    pub(crate) layout: u8,
    pub(crate) resiliency: Resiliency,
    pub(crate) integrity: Integrity,
}

/// What the metadata says of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowRecord {
    pub(crate) id: RowId,
    pub(crate) place: RowPlace,
    pub(crate) formatted: bool,
    pub(crate) laid: RowLaid,
    pub(crate) shape: Shape,
    pub(crate) columns: Vec<Slabs>,
}

/// What names a row: one place, or one row whose shadow it is.
const REFERENCES: u32 = 1;

impl RowRecord {
    /// Slabs that a column needs.
    pub(crate) fn copies(&self) -> usize {
        usize::from(self.laid.resiliency.copies())
    }

    /// Bytes of the row.
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes(u64::from(self.shape.row_blocks()) * BLOCK_BYTES)
    }

    /// Whether any slab on a disk misses something: then the row is on record among those of that disk.
    pub(crate) fn is_stale_on(&self, disk: DiskSlot) -> bool {
        self.columns.iter().flatten().any(|slab| slab.disk == disk && slab.stale.is_some())
    }

    /// Returns its shape with its layout.
    pub(crate) fn row_shape(&self) -> RowShape {
        // Beyond the copies of its layout there are those that are about to replace one.
        let least = self.columns.iter().map(SmallVec::len).min().unwrap_or(1);
        RowShape::new(self.laid.resiliency.layout(), least.min(self.copies()), self.shape)
    }

    /// Returns whether its content is lost with all slabs that are not good.
    pub(crate) fn is_lost_without(&self, is_good: impl Fn(&Slab) -> bool) -> bool {
        !self.row_shape().decodable_without(columns_without(&self.columns, is_good))
    }

    /// The value of the row's key.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let raw = RawRow {
            version: RECORD_VERSION.into(),
            formatted: u8::from(self.formatted),
            layout: self.laid.resiliency.number(),
            copies: self.laid.resiliency.copies(),
            columns: u8::try_from(self.shape.data_columns()).unwrap_or(0),
            parity: u8::try_from(self.shape.parity_columns()).unwrap_or(0),
            integrity: self.laid.integrity.number(),
            interleave_shift: u8::try_from(self.shape.interleave().0.trailing_zeros()).unwrap_or(0),
            round: self.laid.layout,
            reserved: [0; 2],
            references: REFERENCES.into(),
            row: self.id.0.into(),
            space: self.place.space.0.into(),
            index: self.place.index.into(),
            blocks: self.shape.row_blocks().into(),
            reserved_tail: 0.into(),
        };
        let mut bytes = raw.as_bytes().to_vec();
        for (column, slab) in
            self.columns.iter().enumerate().flat_map(|(c, slabs)| slabs.iter().map(move |s| (c, s)))
        {
            let raw = RawSlab {
                disk: slab.disk.0.into(),
                column: u8::try_from(column).unwrap_or(0),
                run_count: u8::try_from(slab.runs.len()).unwrap_or(0),
                stale: u32::from(slab.stale.is_some()).into(),
                since: slab.stale.unwrap_or_default().0.into(),
            };
            bytes.extend_from_slice(raw.as_bytes());
            for run in &slab.runs {
                let raw =
                    RawRun { first: run.first.into(), count: u32::try_from(run.count).unwrap_or(0).into() };
                bytes.extend_from_slice(raw.as_bytes());
            }
        }
        bytes
    }

    /// The row in the value of its key. Whoever reads it compares its place and its length with those of its space.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, BadRow> {
        let (raw, mut rest) = RawRow::read_from_prefix(bytes).map_err(|_| BadRow)?;
        let is_spare_zero = raw.reserved == [0; 2] && raw.reserved_tail.get() == 0;
        if raw.version.get() != RECORD_VERSION || raw.formatted > 1 || raw.round > 1 || !is_spare_zero {
            return Err(BadRow);
        }
        if raw.references.get() != REFERENCES && !mutation!(ReferencesNotChecked) {
            return Err(BadRow);
        }
        let interleave = Bytes(1u64.checked_shl(raw.interleave_shift.into()).ok_or(BadRow)?);
        let (data, parity) = (u32::from(raw.columns), u32::from(raw.parity));
        let length = Bytes(u64::from(raw.blocks.get()) * BLOCK_BYTES);
        let shape = Shape::new(length, interleave, data, parity).ok_or(BadRow)?;
        let resiliency = Resiliency::of((raw.layout, raw.copies, raw.parity)).ok_or(BadRow)?;
        let integrity = Integrity::of(raw.integrity).ok_or(BadRow)?;
        if !resiliency.fits_row(shape.data_columns(), integrity) {
            return Err(BadRow);
        }
        let mut columns = vec![Slabs::new(); shape.columns()];
        while !rest.is_empty() {
            let (column, slab, after) = parse_slab(rest)?;
            rest = after;
            let slabs = columns.get_mut(column).ok_or(BadRow)?;
            let units = shape.slab_map(column).units();
            let whole = slab.runs.iter().map(|run| run.count).sum::<u64>() == units;
            if !whole || slabs.len() >= SLABS_MAX || slabs.iter().any(|other| other.disk == slab.disk) {
                return Err(BadRow);
            }
            slabs.push(slab);
        }
        if columns.iter().any(SmallVec::is_empty) {
            return Err(BadRow);
        }
        let record = Self {
            id: RowId(raw.row.get()),
            place: RowPlace { space: SpaceId(raw.space.get()), index: raw.index.get() },
            formatted: raw.formatted == 1,
            laid: RowLaid { layout: raw.round, resiliency, integrity },
            shape,
            columns,
        };
        record.row_shape().check().map_err(|_| BadRow)?;
        Ok(record)
    }
}

fn parse_slab(bytes: &[u8]) -> Result<(usize, Slab, &[u8]), BadRow> {
    let (raw, mut rest) = RawSlab::read_from_prefix(bytes).map_err(|_| BadRow)?;
    let count = usize::from(raw.run_count);
    if count == 0 || count > RUNS_MAX || raw.stale.get() > 1 {
        return Err(BadRow);
    }
    let mut runs = Vec::with_capacity(count);
    for _ in 0..count {
        let (run, after) = RawRun::read_from_prefix(rest).map_err(|_| BadRow)?;
        let run = Run { first: run.first.get(), count: u64::from(run.count.get()) };
        if run.count == 0
            || run.first.checked_add(run.count).is_none_or(|end| end > u64::MAX / ALLOCATION_UNIT_BYTES)
        {
            return Err(BadRow);
        }
        runs.push(run);
        rest = after;
    }
    let stale = (raw.stale.get() == 1).then_some(Epoch(raw.since.get()));
    Ok((usize::from(raw.column), Slab { disk: DiskSlot(raw.disk.get()), runs, stale }, rest))
}

/// Returns the place of a row's locks in the order of locks.
fn rank_of(shape: &RowShape, space: SpaceId, index: u64) -> LockRank {
    match shape.unit() {
        Unit::Stripe => ranks::stripe_row(space, index),
        Unit::Block => ranks::block_row(space, index),
    }
}

/// A row that is in use.
pub(crate) struct Row {
    pub(crate) space: SpaceId,
    pub(crate) index: u64,
    pub(crate) id: RowId,
    pub(crate) shape: RowShape,
    columns: RefCell<Vec<Slabs>>,
    formatted: Cell<bool>,
    laid: Cell<RowLaid>,
    pages: Vec<RefCell<Vec<Option<Rc<Page>>>>>,
    /// Shared with its shadow row: a block has one lock, wherever it lies.
    pub(crate) locks: Rc<RangeLocks>,
    /// Set when the row was freed: whoever waited for a lock looks the row up again.
    pub(crate) freed: Cell<bool>,
    /// Whether some page may be dirty.
    pub(crate) dirty: Cell<bool>,
    pub(crate) used: Cell<bool>,
    /// Pages of its tables that were given to its disks since it came into memory: who reads one sees that it changed.
    pub(crate) seals: Cell<u64>,
    /// What of it is in the write cache; shared with its shadow row.
    pub(crate) mappings: Rc<Mappings>,
    /// Which of its stripes were written in place last; shared with its shadow row.
    pub(crate) moved: Rc<Moved>,
    /// The row that is about to take its place (docs/design/0007).
    shadow: RefCell<Option<Rc<Row>>>,
    /// The row whose shadow row this is.
    shadow_of: RefCell<Weak<Row>>,
    /// What is known while it is moved to another layout.
    pub(crate) moves: Moves,
}

impl Row {
    /// A row as the metadata has it.
    pub(crate) fn new(space: SpaceId, index: u64, record: RowRecord) -> Rc<Self> {
        let (mappings, moved) = Default::default();
        let locks = RangeLocks::new(rank_of(&record.row_shape(), space, index));
        Self::with(space, index, record, (Rc::new(locks), mappings, moved))
    }

    /// The shadow row of this row as the metadata has it, in the hidden space of shadow rows.
    pub(crate) fn make_shadow(self: &Rc<Self>, record: RowRecord) -> Rc<Self> {
        let shared = (Rc::clone(&self.locks), Rc::clone(&self.mappings), Rc::clone(&self.moved));
        let shadow = Self::with(shadows_of(self.space), self.index, record, shared);
        *shadow.shadow_of.borrow_mut() = Rc::downgrade(self);
        *self.shadow.borrow_mut() = Some(Rc::clone(&shadow));
        shadow
    }

    /// This shadow row, or draft, as the row whose place it takes: with the same tables in memory, and that row's locks for whoever
    /// waits.
    pub(crate) fn promoted_as(&self, row: &Self, record: RowRecord) -> Rc<Self> {
        let shared = (Rc::clone(&row.locks), Rc::default(), Rc::default());
        let new = Self::with(row.space, row.index, record, shared);
        new.locks.rerank(rank_of(&new.shape, new.space, new.index));
        for (column, index, page) in self.pages() {
            new.put_page(column, index, page);
        }
        new
    }

    fn with(
        space: SpaceId,
        index: u64,
        record: RowRecord,
        (locks, mappings, moved): (Rc<RangeLocks>, Rc<Mappings>, Rc<Moved>),
    ) -> Rc<Self> {
        let pages = (0..record.shape.columns())
            .map(|column| RefCell::new(vec![None; record.shape.slab_map(column).pages()]));
        Rc::new(Self {
            space,
            index,
            id: record.id,
            shape: record.row_shape(),
            pages: pages.collect(),
            columns: RefCell::new(record.columns),
            formatted: Cell::new(record.formatted),
            laid: Cell::new(record.laid),
            locks,
            freed: Cell::new(false),
            dirty: Cell::new(false),
            used: Cell::new(true),
            seals: Cell::new(0),
            mappings,
            moved,
            shadow: RefCell::default(),
            shadow_of: RefCell::default(),
            moves: Moves::default(),
        })
    }

    /// The row that is about to take its place, if there is one.
    pub(crate) fn shadow(&self) -> Option<Rc<Self>> {
        self.shadow.borrow().clone()
    }

    /// Notes that it has no shadow row any more.
    pub(crate) fn forget_shadow(&self) {
        if let Some(shadow) = self.shadow.borrow_mut().take() {
            shadow.shadow_of.take();
        }
    }

    /// Its shadow row, or the row whose shadow row this is: a stripe is in one of the two.
    pub(crate) fn partner(&self) -> Option<Rc<Self>> {
        self.shadow().or_else(|| self.shadow_of.borrow().upgrade())
    }

    /// Whether it is the shadow row of another row.
    pub(crate) fn is_shadow(&self) -> bool {
        is_of_shadows(self.space)
    }

    /// The space whose content it holds.
    pub(crate) fn owner(&self) -> SpaceId {
        if self.is_shadow() { seen_as(self.space) } else { self.space }
    }

    /// Whether it is another row, or that one's shadow row, or the row whose shadow row that is.
    pub(crate) fn is_paired_with(&self, other: &Self) -> bool {
        self.id == other.id || Rc::ptr_eq(&self.mappings, &other.mappings)
    }

    /// What the metadata says of it.
    pub(crate) fn record(&self) -> RowRecord {
        RowRecord {
            id: self.id,
            place: RowPlace { space: seen_as(self.space), index: self.index },
            formatted: self.formatted.get(),
            laid: self.laid.get(),
            shape: *self.shape.geometry(),
            columns: self.columns.borrow().clone(),
        }
    }

    /// Takes over what was just committed.
    pub(crate) fn adopt(&self, record: RowRecord) {
        *self.columns.borrow_mut() = record.columns;
        self.formatted.set(record.formatted);
        self.laid.set(record.laid);
    }

    /// How it is laid and written over.
    pub(crate) fn laid(&self) -> RowLaid {
        self.laid.get()
    }

    /// Slabs that a column needs.
    pub(crate) fn copies(&self) -> usize {
        usize::from(self.laid.get().resiliency.copies())
    }

    /// Whether every page of its tables is on its disks.
    pub(crate) fn is_formatted(&self) -> bool {
        self.formatted.get()
    }

    /// How the slabs of a column are used.
    pub(crate) fn map(&self, column: usize) -> SlabMap {
        self.shape.slab_map(column)
    }

    /// Does something with the slabs of a column.
    pub(crate) fn with_slabs<T>(&self, column: usize, action: impl FnOnce(&[Slab]) -> T) -> T {
        action(self.columns.borrow().get(column).map_or(&[], |slabs| slabs.as_slice()))
    }

    /// Returns whether a slab still belongs to a column, whatever it misses by now.
    pub(crate) fn has_slab(&self, column: usize, slab: &Slab) -> bool {
        self.with_slabs(column, |slabs| {
            slabs.iter().any(|other| (other.disk, &other.runs) == (slab.disk, &slab.runs))
        })
    }

    /// Does something with every slab that has the table of a column, and the place of that table.
    pub(crate) fn for_each_table(&self, column: usize, mut action: impl FnMut(&Slab, TablePlace)) {
        let columns = self.columns.borrow();
        for (holder, table) in self.shape.table_holders(column) {
            let place = TablePlace { holder, table };
            columns.get(holder).into_iter().flatten().for_each(|slab| action(slab, place));
        }
    }

    /// Whether some slab that has the table of a column is as wanted.
    pub(crate) fn has_table_on(&self, column: usize, is_wanted: impl Fn(&Slab) -> bool) -> bool {
        let mut found = false;
        self.for_each_table(column, |slab, _| found |= is_wanted(slab));
        found
    }

    /// Whether a slab that holds everything is on a disk other than those whose copy was read.
    pub(crate) fn has_other_trusted(&self, column: usize, was_read: impl Fn(DiskSlot) -> bool) -> bool {
        self.with_slabs(column, |slabs| slabs.iter().any(|slab| slab.stale.is_none() && !was_read(slab.disk)))
    }

    /// Whether the blocks of a column can be had from slabs that hold everything and are as wanted: from its own, or with parity
    /// from those of enough other columns.
    pub(crate) fn has_blocks_on(&self, column: usize, is_wanted: impl Fn(&Slab) -> bool) -> bool {
        can_be_had(&self.shape, &self.columns.borrow(), column, |slab| {
            slab.stale.is_none() && is_wanted(slab)
        })
    }

    /// Returns whether all of it can be had from slabs that are as wanted.
    pub(crate) fn is_decodable_from(&self, is_wanted: impl Fn(&Slab) -> bool) -> bool {
        self.shape.decodable_without(columns_without(&self.columns.borrow(), is_wanted))
    }

    /// Columns with a slab that is as wanted.
    pub(crate) fn count_columns(&self, is_wanted: impl Fn(&Slab) -> bool) -> usize {
        self.columns.borrow().iter().filter(|slabs| slabs.iter().any(&is_wanted)).count()
    }

    /// Whether a slab that has held something is on a disk other than those whose copy was read: even where it misses other
    /// writes, it may have a good copy of a block.
    pub(crate) fn may_have_other_good(&self, column: usize, was_read: impl Fn(DiskSlot) -> bool) -> bool {
        let has_held = |slab: &Slab| slab.stale.is_none_or(|since| since.0 > 0);
        self.with_slabs(column, |slabs| slabs.iter().any(|slab| has_held(slab) && !was_read(slab.disk)))
    }

    /// Does something with every slab.
    pub(crate) fn for_each_slab(&self, mut action: impl FnMut(usize, &Slab)) {
        for (column, slabs) in self.columns.borrow().iter().enumerate() {
            slabs.iter().for_each(|slab| action(column, slab));
        }
    }

    /// A page, if it is in memory.
    pub(crate) fn page(&self, column: usize, index: usize) -> Option<Rc<Page>> {
        self.pages.get(column)?.borrow().get(index)?.clone()
    }

    /// What is known of a block, by column and block of the column, if its page is in memory.
    pub(crate) fn state_in_memory(&self, (column, block): (usize, u32)) -> Option<BlockState> {
        let (index, entry) = place_in_page(block);
        Some(self.page(column, index)?.state(entry))
    }

    /// Pages of its tables that are in memory.
    pub(crate) fn page_count(&self) -> usize {
        self.pages.iter().map(|pages| pages.borrow().iter().flatten().count()).sum()
    }

    /// Of these, those that say more than the disks.
    pub(crate) fn dirty_page_count(&self) -> usize {
        let is_dirty = |page: &&Rc<Page>| page.is_dirty();
        self.pages.iter().map(|pages| pages.borrow().iter().flatten().filter(is_dirty).count()).sum()
    }

    /// Puts a page into memory, unless somebody else has meanwhile; the one that is there.
    pub(crate) fn keep_page(&self, column: usize, index: usize, page: Page) -> (Rc<Page>, bool) {
        let fresh = Rc::new(page);
        let Some(pages) = self.pages.get(column) else { return (fresh, false) };
        match pages.borrow_mut().get_mut(index) {
            Some(Some(other)) => (Rc::clone(other), false),
            Some(empty) => {
                *empty = Some(Rc::clone(&fresh));
                (fresh, true)
            }
            None => (fresh, false),
        }
    }

    fn put_page(&self, column: usize, index: usize, page: Rc<Page>) {
        if let Some(pages) = self.pages.get(column)
            && let Some(place) = pages.borrow_mut().get_mut(index)
        {
            *place = Some(page);
        }
    }

    /// Byte of a slab at which a slot of a page of a column's table begins.
    pub(crate) fn page_at(&self, place: TablePlace, index: usize, generation: u64) -> u64 {
        self.map(place.holder).page_at(place.table, index, generation)
    }

    /// The columns whose tables a column's slabs have, and their places.
    pub(crate) fn tables_on(&self, holder: usize) -> impl Iterator<Item = (usize, TablePlace)> + use<> {
        let shape = self.shape;
        (0..shape.columns()).flat_map(move |column| {
            let places = shape.table_holders(column).filter(move |(other, _)| *other == holder);
            places.map(move |(holder, table)| (column, TablePlace { holder, table }))
        })
    }

    /// Column and index of every page that its tables have.
    pub(crate) fn places_of_pages(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.shape.columns())
            .flat_map(|column| (0..self.map(column).pages()).map(move |index| (column, index)))
    }

    /// Pages in memory, with column and index.
    pub(crate) fn pages(&self) -> Vec<(usize, usize, Rc<Page>)> {
        let mut found = Vec::new();
        for (column, pages) in self.pages.iter().enumerate() {
            for (index, page) in pages.borrow().iter().enumerate() {
                if let Some(page) = page {
                    found.push((column, index, Rc::clone(page)));
                }
            }
        }
        found
    }

    /// Whether anything is in it, as far as is in memory: of a row that never had tables on its disks, that is all.
    pub(crate) fn holds_anything_in_memory(&self) -> bool {
        !self.mappings.is_empty() || self.pages().iter().any(|(_, _, page)| page.used_count() > 0)
    }

    /// Drops clean pages that were not used since the last call; how many. A row without tables on disk keeps all.
    pub(crate) fn drop_pages(&self) -> usize {
        if !self.is_formatted() {
            return 0;
        }
        let dirty_count = self.dirty_page_count();
        let mut dropped = 0;
        for pages in &self.pages {
            for page in pages.borrow_mut().iter_mut() {
                let idle = |page: &Rc<Page>| {
                    (!page.is_dirty() || mutation!(TrimDropsDirty))
                        && Rc::strong_count(page) == 1
                        && !page.take_used()
                };
                if page.as_ref().is_some_and(idle) {
                    *page = None;
                    dropped += 1;
                }
            }
        }
        assert_eq!(
            self.dirty_page_count(),
            dirty_count,
            "a page that says more than its disks stays in memory"
        );
        dropped
    }

    /// Bytes of the row.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.shape.row_blocks()) * BLOCK_BYTES
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Row({}, index {}, {})", self.space, self.index, self.id)
    }
}

/// Blocks of rows, by column and block of the column.
pub(crate) type BlocksOfRows = BTreeMap<RowKey, (Rc<Row>, BTreeSet<(usize, u32)>)>;

/// A row as the log names it.
pub(crate) type RowKey = (SpaceId, u64, RowId);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::BLOCK;
    use proptest::prelude::*;

    #[test]
    fn a_row_reads_back_as_it_was_written() {
        let shape = Shape::new(Bytes::mib(2), Bytes::kib(256), 2, 0).unwrap();
        let units = shape.slab_map(0).units();
        let slab = |disk: u16, stale| Slab {
            disk: DiskSlot(disk),
            runs: vec![Run { first: 5, count: 3 }, Run { first: 100, count: units - 3 }],
            stale,
        };
        let column = |a, b| Slabs::from_vec(vec![slab(a, None), slab(b, Some(Epoch(9)))]);
        let record = RowRecord {
            id: RowId(4),
            place: RowPlace { space: SpaceId(7), index: 3 },
            formatted: true,
            laid: RowLaid {
                layout: 1,
                resiliency: Resiliency::Mirror { copies: 2 },
                integrity: Integrity::Relaxed,
            },
            shape,
            columns: vec![column(0, 1), column(2, 3)],
        };
        let sound = record.encode();
        assert_eq!(RowRecord::parse(&sound), Ok(record.clone()));
        let pieces = slab(0, None).pieces(2 * ALLOCATION_UNIT_BYTES, 2 * BLOCK);
        let expected = [(7 * ALLOCATION_UNIT_BYTES, 0), (100 * ALLOCATION_UNIT_BYTES, BLOCK)];
        assert_eq!(pieces.iter().map(|piece| (piece.at, piece.offset)).collect::<Vec<_>>(), expected);
    }

    /// Scenario: rows of each resiliency have as many slabs as they should, one less, and one that is about to replace another. Each
    /// has the layout that its record names, with no more copies than that has.
    #[test]
    fn a_row_has_the_layout_that_its_record_names() {
        for (resiliency, columns, parity) in [
            (Resiliency::Simple, 2, 0),
            (Resiliency::Span, 1, 0),
            (Resiliency::Mirror { copies: 3 }, 2, 0),
            (Resiliency::Parity { parity: 1 }, 2, 1),
        ] {
            let shape = Shape::new(Bytes::mib(2), Bytes::kib(256), columns, parity).unwrap();
            for count in [1, resiliency.copies().into(), u16::from(resiliency.copies()) + 1] {
                let slab = |column: usize, copy: u16| Slab {
                    disk: DiskSlot(copy * 8 + u16::try_from(column).unwrap()),
                    runs: vec![Run { first: 5, count: shape.slab_map(column).units() }],
                    stale: None,
                };
                let slabs_of = |column| (0..count).map(|copy| slab(column, copy)).collect();
                let integrity = if parity == 0 { Integrity::Relaxed } else { Integrity::Strict };
                let record = RowRecord {
                    id: RowId(4),
                    place: RowPlace { space: SpaceId(7), index: 3 },
                    formatted: true,
                    laid: RowLaid { layout: 0, resiliency, integrity },
                    shape,
                    columns: (0..shape.columns()).map(slabs_of).collect(),
                };
                assert_eq!(RowRecord::parse(&record.encode()), Ok(record.clone()), "{resiliency}, {count}");
                let found = record.row_shape();
                assert_eq!(found.copies(), usize::from(count.min(resiliency.copies().into())));
                let is_whole = count >= resiliency.copies().into();
                assert!(!is_whole || found.placement().code == resiliency.code(), "{resiliency}");
            }
        }
    }

    /// Scenario: a place names row 0, a shadow row or a purpose, or has another length: nothing is read of it.
    #[test]
    fn a_place_names_one_row() {
        let sound = encode_place(RowId(9));
        assert_eq!(parse_place(&sound), Ok(RowId(9)));
        for at in 8..24 {
            let mut bytes = sound.clone();
            bytes[at] = 1;
            assert_eq!(parse_place(&bytes), Err(BadRow), "byte {at}");
        }
        assert_eq!(parse_place(&encode_place(RowId(0))), Err(BadRow));
        assert_eq!(parse_place(&sound[..23]), Err(BadRow));
    }

    /// Scenario: a record says something that no row is: another version, a kind of layout with other copies or parity, a round
    /// that there is not, other places that name it, bytes that are reserved. None of it is taken for a row.
    #[test]
    fn what_no_row_is_is_refused() {
        let shape = Shape::new(Bytes::mib(2), Bytes::kib(256), 2, 0).unwrap();
        let runs = |column| vec![Run { first: 5, count: shape.slab_map(column).units() }];
        let slab =
            |column: u16| Slab { disk: DiskSlot(column), runs: runs(usize::from(column)), stale: None };
        let sound = RowRecord {
            id: RowId(4),
            place: RowPlace { space: SpaceId(7), index: 3 },
            formatted: true,
            laid: RowLaid { layout: 0, resiliency: Resiliency::Simple, integrity: Integrity::Relaxed },
            shape,
            columns: (0..2).map(|column| Slabs::from_vec(vec![slab(column)])).collect(),
        };
        let sound = sound.encode();
        assert!(RowRecord::parse(&sound).is_ok());
        // Version, layout, copies, parity, integrity, round, reserved, blocks, reserved.
        let edits = [(0, 1), (3, 0), (3, 2), (3, 3), (3, 4), (3, 5), (4, 0), (4, 2), (6, 1), (7, 0), (7, 3)];
        let edits = edits.into_iter().chain([(9, 2), (10, 1), (11, 1), (41, 3), (44, 1), (47, 1)]);
        for (at, byte) in edits {
            let mut bytes = sound.clone();
            bytes[at] = byte;
            assert_eq!(RowRecord::parse(&bytes), Err(BadRow), "byte {at} is {byte}");
        }
        for references in [0u32, 2, 1 << 16, u32::MAX] {
            let mut bytes = sound.clone();
            bytes[12..16].copy_from_slice(&references.to_le_bytes());
            assert_eq!(RowRecord::parse(&bytes), Err(BadRow), "a row with {references} references is taken");
        }
    }

    #[test]
    fn a_trim_drops_idle_pages_and_keeps_dirty_ones() {
        // Scenario: of two pages one says more than the disks; the trim drops the other one, and later that one too.
        let shape = Shape::new(Bytes::mib(2), Bytes::kib(256), 2, 0).unwrap();
        let columns = vec![Slabs::new(); 2];
        let laid = RowLaid { layout: 0, resiliency: Resiliency::Simple, integrity: Integrity::Relaxed };
        let place = RowPlace { space: SpaceId(1), index: 0 };
        let record = RowRecord { id: RowId(4), place, formatted: true, laid, shape, columns };
        let row = Row::new(SpaceId(1), 0, record);
        row.put_page(0, 0, Rc::new(Page::blank()));
        row.put_page(1, 0, Rc::new(Page::blank()));
        row.page(1, 0).unwrap().write_again(false);
        // A page that was used since the last trim stays this time.
        let trim = || row.drop_pages() + row.drop_pages();
        assert_eq!((trim(), row.page(0, 0).is_none(), row.page(1, 0).is_some()), (1, true, true));
        row.page(1, 0).unwrap().sealed();
        assert_eq!((trim(), row.page_count()), (1, 0));
    }

    proptest! {
        #[test]
        fn nonsense_in_a_row_does_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = RowRecord::parse(&bytes);
        }
    }
}
