//! What every layout answers: the trait, the terms of its answers, and the rules of columns that stand alone.

use dolmen_erasure::{Change, Plan};
use dolmen_placement::{COPIES_MAX, DUAL_PARITY_DATA_COLUMNS_MAX, PARITY_MAX, Resiliency as Code};
use smallvec::SmallVec;

use super::plan::{WriteFacts, WritePlan};
use super::shape::{Holders, PartPlan, Shape, Spot};
use crate::resources::locks::Range;

/// Columns of a row, at most.
pub(super) const COLUMNS_MAX: usize = (DUAL_PARITY_DATA_COLUMNS_MAX + PARITY_MAX) as usize;

const _: () = assert!(COLUMNS_MAX * COPIES_MAX as usize <= u64::BITS as usize, "a set of slabs is one word");

/// Rules of a layout. A type that implements it states how its rows are laid; the defaults are those of columns that stand alone.
///
/// Contract: every method is pure, and depends on the shape and the arguments alone. The caller passes shapes that
/// [`check`](Self::check) accepts, columns below [`Shape::columns`], and blocks that the column has.
pub(crate) trait Layout: Sync {
    /// Returns the number that records have for it.
    fn code(&self) -> u8;

    /// Returns the name that people type.
    fn name(&self) -> &'static str;

    /// Checks that rows of this layout have such a shape.
    fn check(&self, shape: &RowShape) -> Result<(), LayoutFault>;

    /// Returns where a block of the row is.
    fn locate(&self, shape: &RowShape, block: u32) -> Spot {
        shape.geometry().locate(block)
    }

    /// Returns the block of the row that a block of a column is; of a computed column, the first that it is computed from.
    fn row_block(&self, shape: &RowShape, column: usize, block: u32) -> u32 {
        shape.geometry().row_block(column, block)
    }

    /// Returns the blocks of the row that a change or a repair of blocks of a column has to lock: all that share a unit with one.
    fn lock_range(&self, shape: &RowShape, column: usize, run: Range) -> Range {
        copied::lock_range(
            self.row_block(shape, column, run.first),
            |block| self.row_block(shape, column, block),
            run,
        )
    }

    /// Returns what is written, and decided after a crash, as one.
    fn unit(&self) -> Unit {
        Unit::Block
    }

    /// Returns when a flush has covered what a table says of a block in its place.
    fn covered(&self) -> Covered {
        Covered::ByTheNextFlush
    }

    /// Returns where a block goes that takes the place of flushed content.
    fn overwrites(&self) -> Overwrites {
        Overwrites::InPlace
    }

    /// Returns the columns whose slabs hold the table of a column, each with the number of that table among its tables.
    fn table_holders(&self, shape: &RowShape, column: usize) -> Holders {
        shape.geometry().table_holders(column)
    }

    /// Plans a write of whole blocks of a row.
    fn plan_write(&self, now: &WriteFacts) -> WritePlan {
        copied::plan_write(now)
    }

    /// Plans a read of blocks of a column when these slabs are lost.
    fn plan_read(&self, shape: &RowShape, column: usize, lost: SlabSet) -> ReadPlan {
        copied::plan_read(shape, column, lost)
    }

    /// Returns whether the content of a row survives the loss of these slabs.
    fn decodable(&self, shape: &RowShape, lost: SlabSet) -> bool {
        copied::decodable(shape, lost)
    }

    /// Returns how many more slabs a row may lose, whichever they are, when its columns have so many left.
    fn losses_left(&self, shape: &RowShape, slabs_of: &dyn Fn(usize) -> usize) -> usize {
        copied::losses_left(shape, slabs_of)
    }

    /// Computes the columns that are computed from all others, with a place for each as [`dolmen_erasure::Code::encode`] wants them.
    fn encode(&self, _shape: &Shape, _data: &[Option<&[u8]>], _into: &mut [Option<&mut [u8]>]) {}

    /// Carries a change of blocks into the columns that are computed from them, with a place for each as
    /// [`dolmen_erasure::Code::update`] wants them.
    fn update(&self, _shape: &Shape, _changes: &[Change<'_>], _into: &mut [Option<&mut [u8]>]) {}

    /// Returns how wanted columns of a stripe follow from given ones; `None` where they do not.
    fn rebuild(&self, _shape: &Shape, _given: &[usize], _wanted: &[usize]) -> Option<Plan> {
        None
    }

    /// Returns how the rows of a space spread over disks.
    fn spread(&self) -> Spread {
        Spread::Even
    }

    /// Returns where the slabs of a row may be.
    fn placement(&self, shape: &RowShape) -> Placement;

    /// Returns what a row has beyond its content, and what that is good for.
    fn redundancy(&self, shape: &RowShape) -> Redundancy {
        copied::redundancy(shape)
    }
}

/// What is written, and decided after a crash, as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A block with its copies.
    Block,
    /// The blocks of all columns that have the same number in their column.
    Stripe,
}

/// Since when a flush covers what a record states as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Covered {
    /// Since before the record: it counts at once.
    Before,
    /// By the flush that follows: it counts with the mark of that flush.
    ByTheNextFlush,
}

/// Where a block goes that takes the place of flushed content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overwrites {
    /// To its place, after a record that names it; a strict space has the write cache between.
    InPlace,
    /// To the write cache: other blocks change with it.
    Cached,
}

/// Which slabs may share what fails as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Apart {
    /// Slabs of one column are on different disks.
    Column,
    /// All slabs of a row are on different disks.
    Row,
}

/// How the rows of a space spread over disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spread {
    /// Over all, in proportion to their room.
    Even,
    /// They fill one disk before the next, so that the loss of a disk costs few rows.
    DiskByDisk,
}

/// Where the slabs of a row may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placement {
    /// Which slabs are on different disks, and in different fault domains where there are enough.
    pub(crate) apart: Apart,
    /// Name of the layout in requests for room.
    pub(crate) code: Code,
}

/// What a row has beyond its content, and what that is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Redundancy {
    /// Disks that a row may lose.
    pub(crate) losses: usize,
    /// Columns that the blocks of a lost one are computed from; 0 where they are not computed.
    pub(crate) sources: usize,
}

/// How blocks of a column are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReadPlan {
    /// From any of these slabs.
    Copy(SlabSet),
    /// Computed from these columns, of each of which a slab is left.
    Rebuild(SmallVec<[usize; COLUMNS_MAX]>),
    /// Not from the slabs that are left.
    Lost,
}

/// A shape that rows of a layout do not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a row of layout {layout} has {found} {what}; this layout has {min} to {max}: the record of the row is damaged"
)]
pub(crate) struct LayoutFault {
    layout: &'static str,
    what: &'static str,
    found: usize,
    min: usize,
    max: usize,
}

impl LayoutFault {
    /// Checks a number against its limits.
    pub(super) fn check(
        layout: &dyn Layout,
        what: &'static str,
        found: usize,
        limits: std::ops::RangeInclusive<usize>,
    ) -> Result<(), Self> {
        let (min, max) = limits.into_inner();
        let fault = Self { layout: layout.name(), what, found, min, max };
        if (min..=max).contains(&found) { Ok(()) } else { Err(fault) }
    }
}

/// A set of slabs of a row. The slab that is copy `k` of column `c` has the number `c * copies + k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SlabSet(pub(super) u64);

impl SlabSet {
    /// Returns all slabs of a column.
    pub(crate) fn of_column(shape: &RowShape, column: usize) -> Self {
        let first = column * shape.copies();
        (first..first + shape.copies()).fold(Self::default(), Self::with)
    }

    /// Returns all slabs of these columns.
    pub(crate) fn of_columns(shape: &RowShape, columns: impl IntoIterator<Item = usize>) -> Self {
        columns
            .into_iter()
            .fold(Self::default(), |all, column| Self(all.0 | Self::of_column(shape, column).0))
    }

    /// Returns the set with one slab more.
    pub(crate) fn with(self, slab: usize) -> Self {
        assert!(slab < COLUMNS_MAX * COPIES_MAX as usize, "slab {slab} is one that a row can have");
        Self(self.0 | 1 << slab)
    }

    /// Returns the slabs of this set that another one lacks.
    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether no slab is in it.
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether all slabs of a column are in it.
    pub(super) fn has_column(self, shape: &RowShape, column: usize) -> bool {
        Self::of_column(shape, column).without(self).is_empty()
    }
}

/// The shape of a row with the layout that gives it meaning. It stands for its [`Shape`] wherever one is asked for.
#[derive(Clone, Copy)]
pub(crate) struct RowShape {
    pub(super) layout: &'static dyn Layout,
    copies: usize,
    shape: Shape,
}

impl RowShape {
    /// Returns the shape of rows with `copies` slabs for each column.
    pub(crate) fn new(layout: &'static dyn Layout, copies: usize, shape: Shape) -> Self {
        Self { layout, copies: copies.clamp(1, COPIES_MAX as usize), shape }
    }

    /// Checks that the layout has rows of this shape.
    pub(crate) fn check(&self) -> Result<(), LayoutFault> {
        self.layout.check(self)
    }

    /// Returns the slabs of each column, not counted those that are about to replace one.
    pub(crate) fn copies(&self) -> usize {
        self.copies
    }

    /// Returns the shape alone.
    pub(crate) fn geometry(&self) -> &Shape {
        &self.shape
    }

    /// See [`Layout::locate`].
    pub(crate) fn locate(&self, block: u32) -> Spot {
        self.layout.locate(self, block)
    }

    /// See [`Layout::row_block`].
    pub(crate) fn row_block(&self, column: usize, block: u32) -> u32 {
        self.layout.row_block(self, column, block)
    }

    /// Returns where blocks of the row are: columns, and runs of their blocks.
    pub(crate) fn parts_of(&self, blocks: Range) -> PartPlan {
        let mut parts = PartPlan::new();
        let (mut block, end) = (blocks.first, blocks.first + blocks.count);
        while block < end {
            let spot = self.locate(block);
            let count = spot.contiguous.min(end - block);
            parts.push((spot.column, Range { first: spot.block, count }));
            block += count;
        }
        parts
    }

    /// See [`Layout::lock_range`].
    pub(crate) fn lock_range(&self, column: usize, run: Range) -> Range {
        self.layout.lock_range(self, column, run)
    }

    /// See [`Layout::unit`].
    pub(crate) fn unit(&self) -> Unit {
        self.layout.unit()
    }

    /// See [`Layout::covered`].
    pub(crate) fn covered(&self) -> Covered {
        self.layout.covered()
    }

    /// See [`Layout::overwrites`].
    pub(crate) fn overwrites(&self) -> Overwrites {
        self.layout.overwrites()
    }

    /// See [`Layout::table_holders`].
    pub(crate) fn table_holders(&self, column: usize) -> Holders {
        self.layout.table_holders(self, column)
    }

    /// See [`Layout::plan_write`].
    pub(crate) fn plan_write(&self, now: &WriteFacts) -> WritePlan {
        self.layout.plan_write(now)
    }

    /// See [`Layout::plan_read`].
    pub(crate) fn plan_read(&self, column: usize, lost: SlabSet) -> ReadPlan {
        self.layout.plan_read(self, column, lost)
    }

    /// See [`Layout::decodable`].
    pub(crate) fn decodable(&self, lost: SlabSet) -> bool {
        self.layout.decodable(self, lost)
    }

    /// Returns whether the content of a row survives the loss of all slabs of these columns.
    pub(crate) fn decodable_without(&self, columns: impl IntoIterator<Item = usize>) -> bool {
        self.decodable(SlabSet::of_columns(self, columns))
    }

    /// See [`Layout::losses_left`].
    pub(crate) fn losses_left(&self, slabs_of: impl Fn(usize) -> usize) -> usize {
        self.layout.losses_left(self, &slabs_of)
    }

    /// See [`Layout::encode`].
    pub(crate) fn encode(&self, data: &[Option<&[u8]>], into: &mut [Option<&mut [u8]>]) {
        self.layout.encode(&self.shape, data, into);
    }

    /// See [`Layout::update`].
    pub(crate) fn update(&self, changes: &[Change<'_>], into: &mut [Option<&mut [u8]>]) {
        self.layout.update(&self.shape, changes, into);
    }

    /// See [`Layout::rebuild`].
    pub(crate) fn rebuild(&self, given: &[usize], wanted: &[usize]) -> Option<Plan> {
        self.layout.rebuild(&self.shape, given, wanted)
    }

    /// See [`Layout::placement`].
    pub(crate) fn placement(&self) -> Placement {
        self.layout.placement(self)
    }

    /// See [`Redundancy::losses`].
    pub(crate) fn losses(&self) -> usize {
        self.layout.redundancy(self).losses
    }

    /// See [`Redundancy::sources`].
    pub(crate) fn sources(&self) -> usize {
        self.layout.redundancy(self).sources
    }

    /// Returns whether the blocks of a column can be computed from other columns.
    pub(crate) fn is_computable(&self) -> bool {
        self.sources() > 0
    }
}

impl std::ops::Deref for RowShape {
    type Target = Shape;

    fn deref(&self) -> &Shape {
        &self.shape
    }
}

impl std::fmt::Debug for RowShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} slabs a column, {:?}", self.layout.name(), self.copies, self.shape)
    }
}

/// Rules of rows whose columns stand alone: a block has one place on each slab of its column, and nothing else depends on it.
pub(super) mod copied {
    use dolmen_mutation::mutation;

    use super::super::plan::WriteClass;
    use super::*;

    /// Checks that no column is computed, and that there are not too many.
    pub(crate) fn check(layout: &dyn Layout, shape: &RowShape) -> Result<(), LayoutFault> {
        LayoutFault::check(layout, "computed columns", shape.computed_columns().len(), 0..=0)?;
        LayoutFault::check(layout, "columns", shape.columns(), 1..=COLUMNS_MAX)
    }

    /// Returns the smallest range of a row that holds a run of a column, whose first block is `first`.
    pub(crate) fn lock_range(first: u32, row_block: impl Fn(u32) -> u32, run: Range) -> Range {
        let last = row_block(run.first + run.count.saturating_sub(1));
        Range { first, count: last - first + 1 }
    }

    /// Plans a write: to the write cache where the cache has something of it or the space is strict, else to its place.
    pub(crate) fn plan_write(now: &WriteFacts) -> WritePlan {
        let is_over_flushed = now.class == WriteClass::Overwrite && !mutation!(StrictInPlace);
        if now.is_cached || is_over_flushed && now.is_strict { WritePlan::Cached } else { WritePlan::InPlace }
    }

    pub(crate) fn plan_read(shape: &RowShape, column: usize, lost: SlabSet) -> ReadPlan {
        let left = SlabSet::of_column(shape, column).without(lost);
        if left.is_empty() { ReadPlan::Lost } else { ReadPlan::Copy(left) }
    }

    pub(crate) fn decodable(shape: &RowShape, lost: SlabSet) -> bool {
        if mutation!(DecodableByCount) {
            let has_lost = |column: &usize| {
                plan_read(shape, *column, lost) != plan_read(shape, *column, SlabSet::default())
            };
            return (0..shape.columns()).filter(has_lost).count() <= redundancy(shape).losses;
        }
        (0..shape.columns()).all(|column| !lost.has_column(shape, column))
    }

    pub(crate) fn losses_left(shape: &RowShape, slabs_of: &dyn Fn(usize) -> usize) -> usize {
        (0..shape.columns()).map(slabs_of).min().unwrap_or(0).saturating_sub(1)
    }

    pub(crate) fn redundancy(shape: &RowShape) -> Redundancy {
        Redundancy { losses: shape.copies() - 1, sources: 0 }
    }
}
