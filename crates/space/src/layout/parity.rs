//! Parity: interleaves are dealt to data columns in turn, and one or two more columns are computed from them.
//!
//! A *stripe* is the block with the same number of each column. Any data columns' worth of its blocks gives the others. So a block
//! never changes alone: a write replaces a whole stripe, or goes to the write cache, which destages stripes.

use dolmen_erasure::{Change, Code as ErasureCode, Plan, Shape as CodeShape};
use dolmen_mutation::mutation;
use dolmen_placement::{
    DUAL_PARITY_DATA_COLUMNS_MAX, PARITY_DATA_COLUMNS_MIN, PARITY_MAX, Resiliency as Code,
};

use super::plan::{WriteFacts, WritePlan};
use super::{
    Apart, Covered, Layout, LayoutFault, Overwrites, Placement, ReadPlan, Redundancy, RowShape, Shape,
    SlabSet, Unit, copied,
};
use crate::resources::locks::Range;

/// The layout of rows with parity over their columns.
pub(super) struct Parity;

impl Layout for Parity {
    fn code(&self) -> u8 {
        4
    }

    fn name(&self) -> &'static str {
        "parity"
    }

    fn check(&self, shape: &RowShape) -> Result<(), LayoutFault> {
        LayoutFault::check(self, "copies", shape.copies(), 1..=1)?;
        let data = PARITY_DATA_COLUMNS_MIN as usize..=DUAL_PARITY_DATA_COLUMNS_MAX as usize;
        LayoutFault::check(self, "data columns", shape.data_columns(), data)?;
        let computed = shape.computed_columns().len();
        LayoutFault::check(self, "parity columns", computed, 1..=PARITY_MAX as usize)
    }

    fn lock_range(&self, shape: &RowShape, column: usize, run: Range) -> Range {
        if mutation!(LockRangeShort) {
            let row_block = |block| shape.row_block(column, block);
            return copied::lock_range(row_block(run.first), row_block, run);
        }
        shape.stripes_of(run)
    }

    fn unit(&self) -> Unit {
        if mutation!(UnitOfCopies) { Unit::Block } else { Unit::Stripe }
    }

    // A stripe goes in place by way of the write cache, which flushes it before a table says so, or where nothing was before.
    fn covered(&self) -> Covered {
        Covered::Before
    }

    fn overwrites(&self) -> Overwrites {
        Overwrites::Cached
    }

    fn plan_write(&self, now: &WriteFacts) -> WritePlan {
        // What is cached is newer than whatever a slot holds.
        let is_cached = now.is_cached && !mutation!(PlanMissesCached);
        if now.has_free_slot && !is_cached { WritePlan::WholeStripes } else { WritePlan::Cached }
    }

    fn plan_read(&self, shape: &RowShape, column: usize, lost: SlabSet) -> ReadPlan {
        match copied::plan_read(shape, column, lost) {
            ReadPlan::Lost if self.decodable(shape, lost) => {
                let left = (0..shape.columns()).filter(|other| !lost.has_column(shape, *other));
                ReadPlan::Rebuild(left.take(shape.data_columns()).collect())
            }
            plan => plan,
        }
    }

    fn decodable(&self, shape: &RowShape, lost: SlabSet) -> bool {
        let lacking = (0..shape.columns()).filter(|column| lost.has_column(shape, *column)).count();
        lacking <= shape.computed_columns().len()
    }

    fn losses_left(&self, shape: &RowShape, slabs_of: &dyn Fn(usize) -> usize) -> usize {
        let left = (0..shape.columns()).filter(|column| slabs_of(*column) > 0).count();
        left.saturating_sub(shape.data_columns())
    }

    fn encode(&self, shape: &Shape, data: &[Option<&[u8]>], into: &mut [Option<&mut [u8]>]) {
        code_of(shape)
            .encode(data, into)
            .unwrap_or_else(|error| panic!("blocks of a stripe are blocks: {error}"));
        if mutation!(SecondParityAsFirst)
            && let [Some(first), Some(second)] = into
        {
            second.copy_from_slice(first);
        }
    }

    fn update(&self, shape: &Shape, changes: &[Change<'_>], into: &mut [Option<&mut [u8]>]) {
        code_of(shape)
            .update(changes, into)
            .unwrap_or_else(|error| panic!("blocks of a stripe are blocks: {error}"));
    }

    fn rebuild(&self, shape: &Shape, given: &[usize], wanted: &[usize]) -> Option<Plan> {
        code_of(shape).plan(given, wanted).ok()
    }

    fn placement(&self, shape: &RowShape) -> Placement {
        let parity = u32::try_from(shape.computed_columns().len()).unwrap_or(PARITY_MAX);
        Placement { apart: Apart::Row, code: Code::Parity { parity } }
    }

    fn redundancy(&self, shape: &RowShape) -> Redundancy {
        Redundancy { losses: shape.computed_columns().len(), sources: shape.data_columns() }
    }
}

/// Returns the code of a shape's parity.
fn code_of(shape: &Shape) -> ErasureCode {
    let columns =
        CodeShape { data_count: shape.data_columns(), parity_count: shape.computed_columns().len() };
    ErasureCode::new(columns).unwrap_or_else(|error| panic!("a shape keeps to the limits of codes: {error}"))
}
