//! Layouts: how the blocks of a row lie on its slabs, and what of them survives a loss.
//!
//! A layout is one file with a type that implements [`Layout`], and one line of [`LAYOUTS`]. It holds rules alone: it reads no
//! disk, keeps no state and allocates nothing. The record of a row names its layout by the number of its [`Resiliency`]; the rest of the
//! crate asks a [`RowShape`], which pairs a shape with its layout.
//!
//! | file | what |
//! |---|---|
//! | `shape.rs` | arithmetic of columns and interleaves, and the use of a slab |
//! | `simple.rs`, `span.rs`, `mirror.rs` | columns that stand alone, each with one slab or several |
//! | `parity.rs` | columns computed from the others of their stripe |
//! | `rules.rs` | what every layout answers, and the rules that the first three share |
//! | `plan.rs` | the order and the place of a write, as data |
//! | `rotated_mirror.rs` | a layout of the tests alone: one file and one line bring it under every rule below |
//!
//! Invariants, which `tests.rs` checks for each entry of [`LAYOUTS`] and each shape of up to 14 slabs:
//! - each block of a row has one place, and the way back from it leads to the block;
//! - [`Layout::lock_range`] covers each block whose change another block depends on;
//! - content is decodable exactly when [`Layout::rebuild`] yields the encoded bytes and [`Layout::plan_read`] names slabs that
//!   are left;
//! - a row placed as [`Layout::placement`] demands stays decodable after the loss of as many disks as it states;
//! - a plan of a write overwrites nothing that is needed.
//!
//! Left to others: which slabs a row has (`row`), which of them answer, and all I/O.

mod mirror;
mod parity;
pub(crate) mod plan;
#[cfg(test)]
mod rotated_mirror;
mod rules;
pub(crate) mod shape;
mod simple;
mod span;
#[cfg(test)]
mod tests;

use dolmen_units::Bytes;
use mirror::Mirror;
use parity::Parity;
use rules::copied;
use simple::Simple;
use span::Span;

use crate::format::resiliency::Resiliency;

pub(crate) use rules::{
    Apart, Covered, Layout, LayoutFault, Overwrites, Placement, ReadPlan, Redundancy, RowShape, SlabSet,
    Spread, Unit,
};
pub use shape::slab_units;
pub(crate) use shape::{BLOCK, Shape, SlabMap};

/// Every layout that a row can have.
pub(crate) static LAYOUTS: &[&dyn Layout] = &[
    &Simple,
    &Span,
    &Mirror,
    &Parity,
    #[cfg(test)]
    &rotated_mirror::RotatedMirror,
];

impl Resiliency {
    /// Returns the layout of rows with this resiliency.
    pub(crate) fn layout(self) -> &'static dyn Layout {
        let code = self.number();
        let layout = LAYOUTS.iter().find(|layout| layout.code() == code);
        *layout.unwrap_or_else(|| panic!("{self} has a line in the table of layouts"))
    }

    /// Returns how many disks rows with this resiliency may lose.
    pub(crate) fn losses(self) -> u8 {
        self.redundancy()
    }

    /// Returns how many allocation units a slab takes, by the bytes of data in it, in rows with this interleave.
    pub(crate) fn slab_units(self, interleave: Bytes) -> impl Fn(Bytes) -> u64 + Copy + use<> {
        slab_units(interleave, u32::from(self.parity_columns()))
    }
}
