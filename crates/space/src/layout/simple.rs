//! Simple: interleaves are dealt to columns in turn, each with one slab. A lost slab takes its column with it.

use dolmen_placement::Resiliency as Code;

use super::{Apart, Layout, LayoutFault, Placement, RowShape, copied};

/// The layout of rows that are striped over disks, without redundancy.
pub(super) struct Simple;

impl Layout for Simple {
    fn code(&self) -> u8 {
        1
    }

    fn name(&self) -> &'static str {
        "simple"
    }

    fn check(&self, shape: &RowShape) -> Result<(), LayoutFault> {
        LayoutFault::check(self, "copies", shape.copies(), 1..=1)?;
        copied::check(self, shape)
    }

    fn placement(&self, _shape: &RowShape) -> Placement {
        Placement { apart: Apart::Column, code: Code::Striped { copies: 1 } }
    }
}
