//! Span: a row is one slab, and the rows of a space fill one disk before the next.

use dolmen_placement::Resiliency as Code;

use super::{Apart, Layout, LayoutFault, Placement, RowShape, Spread, copied};

/// The layout of rows of one slab, without redundancy.
pub(super) struct Span;

impl Layout for Span {
    fn code(&self) -> u8 {
        2
    }

    fn name(&self) -> &'static str {
        "span"
    }

    fn check(&self, shape: &RowShape) -> Result<(), LayoutFault> {
        LayoutFault::check(self, "copies", shape.copies(), 1..=1)?;
        LayoutFault::check(self, "columns", shape.columns(), 1..=1)?;
        copied::check(self, shape)
    }

    fn spread(&self) -> Spread {
        Spread::DiskByDisk
    }

    fn placement(&self, _shape: &RowShape) -> Placement {
        Placement { apart: Apart::Column, code: Code::Span }
    }
}
