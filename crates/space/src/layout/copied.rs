//! Rules of rows whose columns stand alone: a block has one place on each slab of its column, and nothing else depends on it.

use dolmen_mutation::mutation;

use super::plan::{Content, Order, PlannedWrite, RowFacts, WritePlan};
use super::{COLUMNS_MAX, Layout, LayoutFault, ReadPlan, Redundancy, RowShape, SlabSet};
use crate::locks::Range;

/// Checks that no column is computed, and that there are not too many.
pub(super) fn check(layout: &dyn Layout, shape: &RowShape) -> Result<(), LayoutFault> {
    LayoutFault::check(layout, "computed columns", shape.computed_columns().len(), 0..=0)?;
    LayoutFault::check(layout, "columns", shape.columns(), 1..=COLUMNS_MAX)
}

/// Returns the smallest range of a row that holds a run of a column, whose first block is `first`.
pub(super) fn lock_range(first: u32, row_block: impl Fn(u32) -> u32, run: Range) -> Range {
    let last = row_block(run.first + run.count.saturating_sub(1));
    Range { first, count: last - first + 1 }
}

/// Plans a write: to the write cache where the cache has something of it or the space is strict, else to its place.
pub(super) fn plan_write(shape: &RowShape, write: &PlannedWrite, now: &RowFacts) -> WritePlan {
    let parts = || shape.parts_of(write.blocks);
    match now.content {
        _ if now.is_cached => WritePlan::Cached(write.blocks),
        Content::Flushed if now.is_strict => WritePlan::Cached(write.blocks),
        Content::Flushed => WritePlan::InPlace { parts: parts(), order: Order::RecordDurable },
        Content::Unflushed => WritePlan::InPlace { parts: parts(), order: Order::RecordFirst },
        Content::Nothing => WritePlan::Fresh(parts()),
    }
}

pub(super) fn plan_read(shape: &RowShape, column: usize, lost: SlabSet) -> ReadPlan {
    let left = SlabSet::of_column(shape, column).without(lost);
    if left.is_empty() { ReadPlan::Lost } else { ReadPlan::Copy(left) }
}

pub(super) fn decodable(shape: &RowShape, lost: SlabSet) -> bool {
    if mutation!(DecodableByCount) {
        let has_lost =
            |column: &usize| plan_read(shape, *column, lost) != plan_read(shape, *column, SlabSet::default());
        return (0..shape.columns()).filter(has_lost).count() <= redundancy(shape).losses;
    }
    (0..shape.columns()).all(|column| !lost.has_column(shape, column))
}

pub(super) fn losses_left(shape: &RowShape, slabs_of: &dyn Fn(usize) -> usize) -> usize {
    (0..shape.columns()).map(slabs_of).min().unwrap_or(0).saturating_sub(1)
}

pub(super) fn redundancy(shape: &RowShape) -> Redundancy {
    Redundancy { losses: shape.copies() - 1, sources: 0 }
}
