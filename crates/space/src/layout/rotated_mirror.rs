//! A mirror of the tests alone, in which each round of interleaves begins one column later. Rows are whole rounds.

use dolmen_placement::{COPIES_MAX, Resiliency as Code};

use super::shape::Spot;
use super::{Apart, Layout, LayoutFault, Placement, RowShape, copied};

pub(super) struct RotatedMirror;

impl Layout for RotatedMirror {
    fn code(&self) -> u8 {
        255
    }

    fn name(&self) -> &'static str {
        "rotated mirror"
    }

    fn check(&self, shape: &RowShape) -> Result<(), LayoutFault> {
        LayoutFault::check(self, "copies", shape.copies(), 2..=COPIES_MAX as usize)?;
        let last = shape.row_blocks() % (interleave_of(shape) * columns_of(shape));
        LayoutFault::check(self, "blocks in a last round", last as usize, 0..=0)?;
        copied::check(self, shape)
    }

    fn locate(&self, shape: &RowShape, block: u32) -> Spot {
        let spot = shape.geometry().locate(block);
        let column = (spot.column + (spot.block / interleave_of(shape)) as usize) % shape.columns();
        let contiguous = interleave_of(shape) - block % interleave_of(shape);
        Spot { column, contiguous, ..spot }
    }

    fn row_block(&self, shape: &RowShape, column: usize, block: u32) -> u32 {
        let round = (block / interleave_of(shape)) as usize;
        let column = (column + shape.columns() - round % shape.columns()) % shape.columns();
        shape.geometry().row_block(column, block)
    }

    fn placement(&self, shape: &RowShape) -> Placement {
        let copies = u32::try_from(shape.copies()).unwrap();
        Placement { apart: Apart::Column, code: Code::Striped { copies } }
    }
}

fn interleave_of(shape: &RowShape) -> u32 {
    u32::try_from(shape.interleave().0 / dolmen_units::BLOCK_BYTES).unwrap()
}

fn columns_of(shape: &RowShape) -> u32 {
    u32::try_from(shape.columns()).unwrap()
}
