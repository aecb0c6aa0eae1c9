//! Where a block of a row is: arithmetic alone, for layouts that stripe columns, and keep copies or parity of them.

use dolmen_placement::{Code, PARITY_DATA_COLUMNS_MIN, PARITY_MAX, Placement};
use dolmen_units::{ALLOCATION_UNIT_BYTES, BLOCK_BYTES, Bytes};
use smallvec::SmallVec;

use crate::format::raw::{BLOCKS_MAX, PAGE_BYTES, PAGE_ENTRIES};
use crate::resources::locks::Range;

/// Blocks that a page of a table is about.
pub const TABLE_PAGE_BLOCKS: u32 = 504;

/// Bytes of a block, as lengths in memory are counted.
pub(crate) const BLOCK: usize = 4096;

const _: () = assert!(BLOCK as u64 == BLOCK_BYTES, "a block is a block, in memory and on disks");

/// The shape of a row: its interleaves are dealt to the data columns in turn. Parity columns stand behind them, each as long
/// as the longest data column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    row_blocks: u32,
    interleave_blocks: u32,
    data_columns: u32,
    parity_columns: u32,
}

/// A place in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    /// Which column.
    pub(crate) column: usize,
    /// Block of the column.
    pub(crate) block: u32,
    /// Blocks from here on that follow each other in the row and in the column.
    pub(crate) contiguous: u32,
}

impl Shape {
    /// A shape, if the lengths fit each other.
    pub(crate) fn new(row: Bytes, interleave: Bytes, data_columns: u32, parity_columns: u32) -> Option<Self> {
        let whole = |bytes: Bytes| bytes.0 > 0 && bytes.0.is_multiple_of(BLOCK_BYTES);
        if !whole(row) || !whole(interleave) || !row.0.is_multiple_of(interleave.0) || data_columns == 0 {
            return None;
        }
        let (row_blocks, interleave_blocks) = (row.0 / BLOCK_BYTES, interleave.0 / BLOCK_BYTES);
        if row_blocks > BLOCKS_MAX || u64::from(data_columns) > row_blocks / interleave_blocks {
            return None;
        }
        if parity_columns > PARITY_MAX || (parity_columns > 0 && data_columns < PARITY_DATA_COLUMNS_MIN) {
            return None;
        }
        Some(Self {
            row_blocks: u32::try_from(row_blocks).ok()?,
            interleave_blocks: u32::try_from(interleave_blocks).ok()?,
            data_columns,
            parity_columns,
        })
    }

    /// Columns, those of parity included, which come last.
    pub(crate) fn columns(&self) -> usize {
        (self.data_columns + self.parity_columns) as usize
    }

    /// Columns that hold data.
    pub(crate) fn data_columns(&self) -> usize {
        self.data_columns as usize
    }

    /// Columns that hold parity.
    pub(crate) fn parity_columns(&self) -> usize {
        self.parity_columns as usize
    }

    /// Returns the columns that are computed from the others.
    pub(crate) fn computed_columns(&self) -> std::ops::Range<usize> {
        self.data_columns()..self.columns()
    }

    /// Blocks of the row.
    pub(crate) fn row_blocks(&self) -> u32 {
        self.row_blocks
    }

    /// Bytes written to one column before the next.
    pub(crate) fn interleave(&self) -> Bytes {
        Bytes(u64::from(self.interleave_blocks) * BLOCK_BYTES)
    }

    /// Where block `block` of the row is.
    pub(crate) fn locate(&self, block: u32) -> Spot {
        let (unit, within) = (block / self.interleave_blocks, block % self.interleave_blocks);
        let (round, column) = (unit / self.data_columns, unit % self.data_columns);
        let contiguous =
            if self.data_columns == 1 { self.row_blocks - block } else { self.interleave_blocks - within };
        Spot { column: column as usize, block: round * self.interleave_blocks + within, contiguous }
    }

    /// The block of the row that is block `block` of column `column`; for parity, the first of those that it is of.
    pub(crate) fn row_block(&self, column: usize, block: u32) -> u32 {
        let (round, within) = (block / self.interleave_blocks, block % self.interleave_blocks);
        let column =
            u32::try_from(column).ok().filter(|column| *column < self.data_columns).unwrap_or_default();
        (round * self.data_columns + column) * self.interleave_blocks + within
    }

    /// Blocks of a column, none of one that there is not.
    pub(crate) fn blocks_of(&self, column: usize) -> u32 {
        if column < self.columns() { self.column_blocks(column) } else { 0 }
    }

    /// Blocks of a column: data columns differ by one interleave at most.
    pub(crate) fn column_blocks(&self, column: usize) -> u32 {
        let units = self.row_blocks / self.interleave_blocks;
        // Parity is as long as the first column, which is the longest.
        let column = if column < self.data_columns() { column } else { 0 };
        let longer = u32::try_from(column).is_ok_and(|column| column < units % self.data_columns);
        (units / self.data_columns + u32::from(longer)) * self.interleave_blocks
    }

    /// Blocks of the row that share parity with blocks of a column: whole stripes.
    pub(crate) fn stripes_of(&self, run: Range) -> Range {
        let stripe = self.interleave_blocks * self.data_columns;
        let first = run.first / self.interleave_blocks * stripe;
        let last = (run.first + run.count.max(1) - 1) / self.interleave_blocks * stripe;
        Range { first, count: (last + stripe).min(self.row_blocks) - first }
    }

    /// Returns the shape of rows of such a length and interleave for which slabs were placed, if the lengths fit each other.
    pub(crate) fn placed(row: Bytes, interleave: Bytes, placement: &Placement) -> Option<Self> {
        let (data, parity) = match placement.code {
            Code::Striped { .. } => (placement.columns, 0),
            Code::Parity { data, parity } => (data, parity),
        };
        Self::new(row, interleave, data, parity)
    }

    /// Returns how many allocation units a slab of such rows takes, by the bytes of data in it.
    pub(crate) fn slab_units(&self) -> impl Fn(Bytes) -> u64 + Copy + use<> {
        slab_units(self.interleave(), self.parity_columns)
    }

    /// How the slabs of a column are used.
    pub(crate) fn slab_map(&self, column: usize) -> SlabMap {
        SlabMap::new(self.column_blocks(column), self.interleave_blocks, self.parity_columns)
    }

    /// The columns whose slabs have the table of a column, and which of their tables it is: its own, and with parity those
    /// behind it, in a circle.
    pub(crate) fn table_holders(&self, column: usize) -> Holders {
        Holders::circle(column, self.columns(), self.parity_columns() + 1)
    }
}

/// How a slab is used: data, then tables, each with two slots for each of its pages, then a block that says what it is. With
/// parity there is behind the table of the slab's own column one for each parity column more, of the columns before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlabMap {
    /// Blocks of data.
    blocks: u32,
    /// Pages for which each table has room.
    table_pages: u32,
    tables: u32,
}

impl SlabMap {
    fn new(blocks: u32, interleave_blocks: u32, parity_columns: u32) -> Self {
        // Tables of other columns may be longer, by an interleave at most. So a slab's length depends on its own data alone.
        let longest = if parity_columns == 0 { blocks } else { blocks.saturating_add(interleave_blocks) };
        let table_pages = longest.div_ceil(u32::try_from(PAGE_ENTRIES).unwrap_or(u32::MAX));
        Self { blocks, table_pages, tables: parity_columns + 1 }
    }

    /// Pages of the table of its own column.
    pub(crate) fn pages(self) -> usize {
        (self.blocks as usize).div_ceil(PAGE_ENTRIES)
    }

    fn data_bytes(self) -> u64 {
        u64::from(self.blocks) * BLOCK_BYTES
    }

    /// Offset of the slot for a generation of a page of one of its tables.
    pub(crate) fn page_at(self, table: usize, index: usize, generation: u64) -> u64 {
        let page = table as u64 * u64::from(self.table_pages) + index as u64;
        self.data_bytes() + (page * 2 + generation % 2) * PAGE_BYTES as u64
    }

    /// Where its tables and its header are: from the first byte to the end.
    pub(crate) fn tables_at(self) -> std::ops::Range<u64> {
        self.data_bytes()..self.header_at() + BLOCK_BYTES
    }

    /// Offset of the header.
    pub(crate) fn header_at(self) -> u64 {
        self.data_bytes() + u64::from(self.tables) * u64::from(self.table_pages) * 2 * PAGE_BYTES as u64
    }

    /// Allocation units that a slab with so much data takes.
    pub(crate) fn units(self) -> u64 {
        (self.header_at() + BLOCK_BYTES).div_ceil(ALLOCATION_UNIT_BYTES)
    }
}

/// How many allocation units a slab takes that holds so many bytes of data, in rows of this interleave and with so many parity
/// columns: the data, two slots for each page of the tables that it has, and a header.
pub fn slab_units(interleave: Bytes, parity_columns: u32) -> impl Fn(Bytes) -> u64 + Copy {
    let blocks = |bytes: Bytes| u32::try_from(bytes.0 / BLOCK_BYTES).unwrap_or(u32::MAX);
    move |data| SlabMap::new(blocks(data), blocks(interleave), parity_columns).units()
}

/// Columns with runs of their blocks.
pub(crate) type PartPlan = SmallVec<[(usize, Range); 4]>;

/// Columns whose slabs hold a table, each with the number of that table among its tables.
#[derive(Debug, Clone)]
pub(crate) struct Holders {
    column: usize,
    columns: usize,
    tables: std::ops::Range<usize>,
}

impl Holders {
    /// Returns a column and those after it, in a circle of `columns`: as many as there are `tables`.
    fn circle(column: usize, columns: usize, tables: usize) -> Self {
        Self { column, columns, tables: 0..tables }
    }
}

impl Iterator for Holders {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<Self::Item> {
        let table = self.tables.next()?;
        Some(((self.column + table) % self.columns, table))
    }
}

/// The blocks of a row that a page of the table of a column is about, as ranges: none of one of parity.
pub(crate) fn ranges_of_page(shape: &Shape, column: usize, index: usize) -> Vec<std::ops::Range<u64>> {
    let mut ranges: Vec<std::ops::Range<u64>> = Vec::new();
    if column >= shape.data_columns() {
        return ranges;
    }
    for block in blocks_of_page(shape, column, index) {
        let at = u64::from(shape.row_block(column, block));
        match ranges.last_mut().filter(|range| range.end == at) {
            Some(range) => range.end += 1,
            None => ranges.push(at..at + 1),
        }
    }
    ranges
}

/// The blocks of a column that a page of its table is about.
pub(crate) fn blocks_of_page(shape: &Shape, column: usize, index: usize) -> std::ops::Range<u32> {
    let first = u32::try_from(index).unwrap_or(u32::MAX).saturating_mul(TABLE_PAGE_BLOCKS);
    first..first.saturating_add(TABLE_PAGE_BLOCKS).min(shape.column_blocks(column))
}

/// The longest read: one buffer of the arena.
pub const READ_BYTES_MAX: usize = dolmen_buffer::FRAME_BYTES_MAX;

/// Bytes of parity of one column that are computed as one piece, at most: a frame.
pub(crate) const PARITY_BYTES_MAX: usize = 64 * 1024;

/// The first byte in its row, and the bytes of data, of the stripe that a byte of a row is in. The last stripe of a row may be
/// short: it lacks the columns for which the row has no interleave left.
pub(crate) fn stripe_at(shape: &Shape, within: u64) -> (u64, usize) {
    let whole = (shape.data_columns() * interleave_bytes(shape)) as u64;
    let start = within / whole * whole;
    let row = u64::from(shape.row_blocks()) * BLOCK_BYTES;
    (start, usize::try_from(whole.min(row - start)).unwrap_or(usize::MAX))
}

/// Blocks that are copied or verified at once: a frame of 64 KiB.
pub(crate) const RUN_BLOCKS: u32 = 16;

/// Bytes that one column has of a stripe.
pub(crate) fn interleave_bytes(shape: &Shape) -> usize {
    usize::try_from(shape.interleave().0).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::resiliency::Resiliency;
    use crate::format::spec::{Provisioning, SpaceSpec};
    use dolmen_placement::{Offer, Placer};
    use dolmen_units::DiskSlot;
    use proptest::prelude::*;

    proptest! {
        // Every block of a row has exactly one place, columns are full, and the way back leads to the same block.
        #[test]
        fn every_block_has_one_place(
            units in 1u32..64, interleave in 1u32..9, columns in 1u32..9, parity in 0u32..3
        ) {
            prop_assume!(columns <= units && (parity == 0 || columns > 1));
            let row = Bytes(u64::from(units * interleave) * BLOCK_BYTES);
            let shape = Shape::new(row, Bytes(u64::from(interleave) * BLOCK_BYTES), columns, parity).unwrap();
            let mut seen = std::collections::BTreeSet::new();
            for block in 0..shape.row_blocks() {
                let spot = shape.locate(block);
                prop_assert!(spot.block < shape.column_blocks(spot.column));
                prop_assert!(spot.column < shape.data_columns());
                prop_assert_eq!(shape.row_block(spot.column, spot.block), block);
                let stripes = shape.stripes_of(Range { first: spot.block, count: 1 });
                prop_assert!(stripes.first <= block && block < stripes.first + stripes.count);
                for other in 0..shape.row_blocks() {
                    let shares_parity = shape.locate(other).block / interleave == spot.block / interleave;
                    let is_within = stripes.first <= other && other < stripes.first + stripes.count;
                    prop_assert_eq!(is_within, shares_parity);
                }
                prop_assert!(seen.insert((spot.column, spot.block)));
                let last = shape.locate(block + spot.contiguous - 1);
                prop_assert_eq!((last.column, last.block), (spot.column, spot.block + spot.contiguous - 1));
            }
            let total: u32 = (0..shape.data_columns()).map(|column| shape.column_blocks(column)).sum();
            prop_assert_eq!(total, shape.row_blocks());
            let longest = (0..shape.data_columns()).map(|column| shape.column_blocks(column)).max();
            for column in shape.data_columns()..shape.columns() {
                prop_assert_eq!(Some(shape.column_blocks(column)), longest);
            }
        }

        // Each table stands on as many slabs as may be lost and one more, and in a slab no two things overlap.
        #[test]
        fn nothing_in_a_slab_overlaps(
            units in 2u32..3000, interleave in 1u32..9, columns in 2u32..9, parity in 0u32..3
        ) {
            prop_assume!(columns <= units);
            let row = Bytes(u64::from(units * interleave) * BLOCK_BYTES);
            let interleave = Bytes(u64::from(interleave) * BLOCK_BYTES);
            let shape = Shape::new(row, interleave, columns, parity).unwrap();
            let mut slots: Vec<std::collections::BTreeSet<u64>> = vec![Default::default(); shape.columns()];
            for column in 0..shape.columns() {
                let holders: std::collections::BTreeSet<usize> =
                    shape.table_holders(column).map(|(holder, _)| holder).collect();
                prop_assert_eq!(holders.len(), shape.parity_columns() + 1);
                for (holder, table) in shape.table_holders(column) {
                    let map = shape.slab_map(holder);
                    for index in 0..shape.slab_map(column).pages() {
                        for generation in 0..2 {
                            let at = map.page_at(table, index, generation);
                            prop_assert!(map.tables_at().contains(&at) && at < map.header_at());
                            prop_assert!(slots[holder].insert(at));
                        }
                    }
                }
            }
            for column in 0..shape.columns() {
                let map = shape.slab_map(column);
                let data = Bytes(u64::from(shape.column_blocks(column)) * BLOCK_BYTES);
                prop_assert_eq!(map.tables_at().start, data.0);
                prop_assert_eq!(map.units(), slab_units(interleave, parity)(data));
                prop_assert!(map.units() * ALLOCATION_UNIT_BYTES >= map.tables_at().end);
            }
        }
    }

    /// Every width that a thin or a fixed space of the usual sizes gets by itself, on as many disks as it can use.
    #[test]
    fn tables_and_headers_cost_at_most_a_percent() {
        for exponent in 30..=52 {
            for provisioning in [Provisioning::Thin, Provisioning::Fixed] {
                for resiliency in [Resiliency::Simple, Resiliency::Span]
                    .into_iter()
                    .chain((2..=4).map(|copies| Resiliency::Mirror { copies }))
                {
                    let mut spec = SpaceSpec::usual("x".parse().unwrap(), Bytes(1 << exponent), resiliency);
                    spec.provisioning = provisioning;
                    let placer = Placer::new(spec.check().unwrap(), slab_units(spec.interleave, 0));
                    for disks in u16::from(resiliency.copies())..=32 {
                        let offers: Vec<Offer> =
                            (0..disks).map(|slot| Offer::alone(DiskSlot(slot), 1 << 20)).collect();
                        let placement = placer.place(&offers, 0).unwrap();
                        let slabs: u64 =
                            placement.slabs.iter().map(|slab| slab.units * ALLOCATION_UNIT_BYTES).sum();
                        let overhead = slabs - spec.row_bytes().0 * u64::from(resiliency.copies());
                        assert!(overhead * 100 <= slabs, "{spec:?} on {disks} disks: {overhead} of {slabs}");
                    }
                }
            }
        }
    }

    /// What every width that a thin or a fixed space with parity gets by itself takes of disks of 128 GB beside data and parity:
    /// tables, headers and rounding up to blocks come to two hundredths of its slabs at most, on any of 3 to 32 disks. So they do with
    /// what parity is longer because a row's last stripe is short, but for rows of 8 MiB on seven columns and parity, where that alone
    /// is half a hundredth. Labels, log and map of such a disk are an eighth of a hundredth.
    #[test]
    fn tables_headers_and_rounding_cost_at_most_two_percent_with_parity() {
        let disk = dolmen_disk::Extent::of(Bytes(128_000_000_000)).unwrap();
        let metadata = disk.capacity.0 - disk.unit_count() * ALLOCATION_UNIT_BYTES;
        assert!(metadata * 800 <= disk.capacity.0, "{metadata} bytes of {disk:?}");
        for (parity, widest) in [(1u8, 8), (2, 12)] {
            for provisioning in [Provisioning::Thin, Provisioning::Fixed] {
                let mut widths = std::collections::BTreeSet::new();
                for exponent in 30..=52 {
                    let resiliency = Resiliency::Parity { parity };
                    let mut spec = SpaceSpec::usual("x".parse().unwrap(), Bytes(1 << exponent), resiliency);
                    spec.provisioning = provisioning;
                    let slab = slab_units(spec.interleave, parity.into());
                    let placer = Placer::new(spec.check().unwrap(), slab);
                    for disks in 2 + u16::from(parity)..=32 {
                        let offer = |slot| Offer::alone(DiskSlot(slot), disk.unit_count());
                        let offers: Vec<Offer> = (0..disks).map(offer).collect();
                        let placement = placer.place(&offers, 0).unwrap();
                        let data = u64::from(placement.columns) - u64::from(parity);
                        widths.insert(data);
                        let slabs: u64 =
                            placement.slabs.iter().map(|slab| slab.units * ALLOCATION_UNIT_BYTES).sum();
                        let row = spec.row_bytes().0;
                        let interleaves = (row / spec.interleave.0).div_ceil(data);
                        let held = row + interleaves * spec.interleave.0 * u64::from(parity);
                        let relogged = format!("{data} + {parity} columns of {spec:?}");
                        assert!((slabs - held) * 100 <= slabs * 2, "{relogged}: {held} of {slabs}");
                        // In hundredths of a hundredth.
                        let most = if (parity, data, row) == (1, 7, 8 << 20) { 216 } else { 200 };
                        let even = row + (row * u64::from(parity)).div_ceil(data);
                        assert!((slabs - even) * 10_000 <= slabs * most, "{relogged}: {even} of {slabs}");
                    }
                }
                assert_eq!(widths, (2..=widest).collect(), "{parity}, {provisioning:?}");
            }
        }
    }
}
