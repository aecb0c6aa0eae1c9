//! The slabs of a row of one width: how many, and how long.

use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes};

use crate::request::{Request, Resiliency};

/// A row of one width. Columns come in two lengths at most, because interleaves are dealt in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Columns that hold data.
    pub(crate) data_columns: u32,
    /// Replicas of each column.
    pub(crate) copies: u32,
    /// Columns that hold parity, each as long as the longest data column.
    pub(crate) parity: u32,
    /// The first data columns, which have one interleave more than the others. At least one.
    pub(crate) long_columns: u32,
    /// Allocation units of a slab of a long column.
    pub(crate) long_units: u64,
    /// Allocation units of a slab of any other data column.
    pub(crate) short_units: u64,
    /// Bytes that the parity columns of a row hold, without overhead.
    pub(crate) parity_bytes: u64,
}

impl Shape {
    fn new(request: &Request, data_columns: u32, slab_units: &dyn Fn(Bytes) -> u64) -> Self {
        let (copies, parity) = match request.resiliency() {
            Resiliency::Span => (1, 0),
            Resiliency::Striped { copies } => (copies, 0),
            Resiliency::Parity { parity } => (1, parity),
        };
        let columns = u64::from(data_columns);
        let (floor, left) = (request.interleaves() / columns, request.interleaves() % columns);
        let units = |interleaves: u64| {
            let bytes = interleaves * request.interleave().0;
            let units = slab_units(Bytes(bytes));
            assert!(
                units.saturating_mul(ALLOCATION_UNIT_BYTES) >= bytes,
                "a slab of {units} allocation units cannot hold {bytes} bytes"
            );
            units
        };
        let long = request.interleaves().div_ceil(columns);
        // When the interleaves divide evenly, every column is long.
        let long_columns = if left == 0 { data_columns } else { u32::try_from(left).unwrap_or(data_columns) };
        let long_units = units(long);
        let short_units = units(floor);
        assert!(short_units <= long_units, "a slab with less data needs no more allocation units");
        let parity_bytes = u64::from(parity) * long * request.interleave().0;
        Self { data_columns, copies, parity, long_columns, long_units, short_units, parity_bytes }
    }

    /// The shapes that a request allows, narrowest first: wider ones than that only while their slabs are long enough
    /// for what stands in them beside the data to be a small part.
    pub(crate) fn all(request: &Request, slab_units: &dyn Fn(Bytes) -> u64) -> Vec<Self> {
        let narrowest = *request.widths().start();
        request
            .widths()
            .map(|columns| Self::new(request, columns, slab_units))
            .filter(|shape| shape.data_columns == narrowest || shape.is_lean(request))
            .collect()
    }

    /// Whether its slabs hold data and redundancy but for a small part.
    fn is_lean(&self, request: &Request) -> bool {
        let held = u128::from(request.row().0 * u64::from(self.copies) + self.parity_bytes);
        let slabs = u128::from(self.total_units()) * u128::from(ALLOCATION_UNIT_BYTES);
        slabs.saturating_sub(held) * 100 <= slabs * u128::from(request.resiliency().overhead_percent_max())
    }

    /// The first of them.
    pub(crate) fn narrowest(request: &Request, slab_units: &dyn Fn(Bytes) -> u64) -> Self {
        Self::new(request, *request.widths().start(), slab_units)
    }

    /// Data and parity columns.
    pub(crate) const fn columns(&self) -> u32 {
        self.data_columns + self.parity
    }

    /// Slabs of a row, each on a disk of its own.
    pub(crate) const fn slabs(&self) -> u32 {
        self.columns() * self.copies
    }

    /// Slabs of one row that a group may hold: one copy of each column, or one slab where parity protects.
    pub(crate) const fn group_max(&self) -> u32 {
        if self.parity > 0 { 1 } else { self.data_columns }
    }

    /// Groups without which no row of this shape can be placed.
    pub(crate) const fn groups_min(&self) -> u32 {
        if self.parity > 0 { self.columns() } else { self.copies }
    }

    /// Allocation units of a slab of this column. Parity columns follow the data columns.
    pub(crate) const fn units(&self, column: u32) -> u64 {
        if column < self.long_columns || column >= self.data_columns {
            self.long_units
        } else {
            self.short_units
        }
    }

    /// The columns in order of length, longest first: this is the one at `place`.
    pub(crate) const fn longest(&self, place: u32) -> u32 {
        if place < self.long_columns {
            place
        } else if place < self.long_columns + self.parity {
            place - self.long_columns + self.data_columns
        } else {
            place - self.parity
        }
    }

    /// Allocation units of one copy of the data columns.
    pub(crate) fn data_units(&self) -> u64 {
        let short = u64::from(self.data_columns - self.long_columns);
        u64::from(self.long_columns) * self.long_units + short * self.short_units
    }

    /// Allocation units of all slabs of a row.
    pub(crate) fn total_units(&self) -> u64 {
        self.data_units() * u64::from(self.copies) + u64::from(self.parity) * self.long_units
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Width;

    #[test]
    fn columns_differ_by_one_interleave_and_hold_the_row() {
        let request = Request::usual(Resiliency::Parity { parity: 2 }).unwrap();
        let shapes = Shape::all(&request, &|bytes| bytes.0.div_ceil(ALLOCATION_UNIT_BYTES));
        assert_eq!(shapes.len(), 11);
        let row_units = request.row().0 / ALLOCATION_UNIT_BYTES;
        let unit_length = request.interleave().0 / ALLOCATION_UNIT_BYTES;
        for (shape, columns) in shapes.iter().zip(2u32..) {
            assert_eq!(shape.data_columns, columns);
            assert_eq!(shape.data_units(), row_units, "{shape:?}");
            assert!(shape.long_units - shape.short_units <= unit_length);
            assert_eq!(shape.total_units(), row_units + 2 * shape.long_units);
            let dealt: u64 = (0..columns).map(|column| shape.units(column)).sum();
            assert_eq!(dealt, row_units);
            assert_eq!(shape.units(columns), shape.long_units);
        }
    }

    /// Each slab needs a fixed part of itself: of the widths of a row, those remain whose slabs are long enough for it.
    #[test]
    fn an_automatic_row_is_no_wider_than_its_overhead_allows() {
        let slab = |bytes: Bytes| bytes.0 / ALLOCATION_UNIT_BYTES + 3;
        let widths = |width, row| {
            let request =
                Request::new(Resiliency::Striped { copies: 2 }, width, row, Bytes::kib(256)).unwrap();
            let shapes = Shape::all(&request, &slab);
            shapes.iter().map(|shape| shape.data_columns).collect::<Vec<_>>()
        };
        assert_eq!(widths(Width::Auto, Bytes::mib(1)), [1], "the narrowest is permitted whatever it costs");
        assert_eq!(widths(Width::Auto, Bytes::mib(4)), [1, 2, 3]);
        assert_eq!(widths(Width::Auto, Bytes::mib(64)), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(widths(Width::Columns(4), Bytes::mib(1)), [4], "what was asked for is obeyed");
    }

    #[test]
    #[should_panic(expected = "cannot hold")]
    fn a_slab_function_that_loses_data_is_caught() {
        let row = Bytes::mib(64);
        let request = Request::new(Resiliency::Span, Width::Auto, row, Bytes::mib(1)).unwrap();
        let _ = Shape::all(&request, &|bytes| bytes.0 / ALLOCATION_UNIT_BYTES - 1);
    }
}
