//! Mirror: interleaves are dealt to columns in turn, and each column has a slab on two to four disks.

use dolmen_placement::{COPIES_MAX, Resiliency as Code};

use super::{Apart, Layout, LayoutFault, Placement, RowShape, copied};

/// The layout of rows whose columns have copies.
pub(super) struct Mirror;

impl Layout for Mirror {
    fn code(&self) -> u8 {
        3
    }

    fn name(&self) -> &'static str {
        "mirror"
    }

    fn check(&self, shape: &RowShape) -> Result<(), LayoutFault> {
        // A row that nobody could give all its copies back has one.
        LayoutFault::check(self, "copies", shape.copies(), 1..=COPIES_MAX as usize)?;
        copied::check(self, shape)
    }

    fn placement(&self, shape: &RowShape) -> Placement {
        let copies = u32::try_from(shape.copies()).unwrap_or(COPIES_MAX);
        Placement { apart: Apart::Column, code: Code::Striped { copies } }
    }
}
