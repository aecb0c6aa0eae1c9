//! Where a block of a row is: arithmetic alone, for layouts that stripe columns and keep copies of each.

use dolmen_units::{BLOCK_BYTES, Bytes, GRAIN_BYTES};

use crate::format::{PAGE_BYTES, PAGE_ENTRIES};

/// Bytes of a block, as lengths in memory are counted.
pub(crate) const BLOCK: usize = 4096;

const _: () = assert!(BLOCK as u64 == BLOCK_BYTES, "a block is a block, in memory and on disks");

/// Blocks of a row, at most: rows are at most 1 GiB.
const BLOCKS_MAX: u64 = (1 << 30) / BLOCK_BYTES;

/// The shape of a row: its interleaves are dealt to the columns in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    row_blocks: u32,
    interleave_blocks: u32,
    columns: u32,
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
    pub(crate) fn new(row: Bytes, interleave: Bytes, columns: u32) -> Option<Self> {
        let whole = |bytes: Bytes| bytes.0 > 0 && bytes.0.is_multiple_of(BLOCK_BYTES);
        if !whole(row) || !whole(interleave) || !row.0.is_multiple_of(interleave.0) || columns == 0 {
            return None;
        }
        let (row_blocks, interleave_blocks) = (row.0 / BLOCK_BYTES, interleave.0 / BLOCK_BYTES);
        if row_blocks > BLOCKS_MAX || u64::from(columns) > row_blocks / interleave_blocks {
            return None;
        }
        Some(Self {
            row_blocks: u32::try_from(row_blocks).ok()?,
            interleave_blocks: u32::try_from(interleave_blocks).ok()?,
            columns,
        })
    }

    /// Data columns.
    pub(crate) fn columns(&self) -> usize {
        self.columns as usize
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
        let (round, column) = (unit / self.columns, unit % self.columns);
        let contiguous =
            if self.columns == 1 { self.row_blocks - block } else { self.interleave_blocks - within };
        Spot { column: column as usize, block: round * self.interleave_blocks + within, contiguous }
    }

    /// The block of the row that is block `block` of column `column`.
    pub(crate) fn row_block(&self, column: usize, block: u32) -> u32 {
        let (round, within) = (block / self.interleave_blocks, block % self.interleave_blocks);
        let column = u32::try_from(column).unwrap_or(0);
        (round * self.columns + column) * self.interleave_blocks + within
    }

    /// Blocks of a column: columns differ by one interleave at most.
    pub(crate) fn column_blocks(&self, column: usize) -> u32 {
        let units = self.row_blocks / self.interleave_blocks;
        let longer = u32::try_from(column).is_ok_and(|column| column < units % self.columns);
        (units / self.columns + u32::from(longer)) * self.interleave_blocks
    }
}

/// How a slab is used: data, then two slots for each page of its table, then a block that says what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlabMap {
    /// Blocks of data.
    pub(crate) blocks: u32,
}

impl SlabMap {
    /// Pages of the table.
    pub(crate) fn pages(self) -> usize {
        (self.blocks as usize).div_ceil(PAGE_ENTRIES)
    }

    fn data_bytes(self) -> u64 {
        u64::from(self.blocks) * BLOCK_BYTES
    }

    /// Offset of the slot for a generation of a page.
    pub(crate) fn page_at(self, index: usize, generation: u64) -> u64 {
        self.data_bytes() + (index as u64 * 2 + generation % 2) * PAGE_BYTES as u64
    }

    /// Offset of the header.
    pub(crate) fn header_at(self) -> u64 {
        self.data_bytes() + self.pages() as u64 * 2 * PAGE_BYTES as u64
    }

    /// Grains that a slab with so much data takes.
    pub(crate) fn grains(self) -> u64 {
        (self.header_at() + BLOCK_BYTES).div_ceil(GRAIN_BYTES)
    }
}

/// Grains of a slab that holds so many bytes of data.
pub(crate) fn slab_grains(data: Bytes) -> u64 {
    SlabMap { blocks: u32::try_from(data.0 / BLOCK_BYTES).unwrap_or(u32::MAX) }.grains()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Provisioning, Resiliency, SpaceSpec};
    use dolmen_placement::{Offer, Placer};
    use dolmen_units::DiskSlot;
    use proptest::prelude::*;

    proptest! {
        // Every block of a row has exactly one place, columns are full, and the way back leads to the same block.
        #[test]
        fn every_block_has_one_place(units in 1u32..64, interleave in 1u32..9, columns in 1u32..9) {
            prop_assume!(columns <= units);
            let row = Bytes(u64::from(units * interleave) * BLOCK_BYTES);
            let shape = Shape::new(row, Bytes(u64::from(interleave) * BLOCK_BYTES), columns).unwrap();
            let mut seen = std::collections::BTreeSet::new();
            for block in 0..shape.row_blocks() {
                let spot = shape.locate(block);
                prop_assert!(spot.block < shape.column_blocks(spot.column));
                prop_assert_eq!(shape.row_block(spot.column, spot.block), block);
                prop_assert!(seen.insert((spot.column, spot.block)));
                let last = shape.locate(block + spot.contiguous - 1);
                prop_assert_eq!((last.column, last.block), (spot.column, spot.block + spot.contiguous - 1));
            }
            let total: u32 = (0..shape.columns()).map(|column| shape.column_blocks(column)).sum();
            prop_assert_eq!(total, shape.row_blocks());
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
                    let placer = Placer::new(spec.check().unwrap(), slab_grains);
                    for disks in u16::from(resiliency.copies())..=32 {
                        let offers: Vec<Offer> =
                            (0..disks).map(|slot| Offer::alone(DiskSlot(slot), 1 << 20)).collect();
                        let placement = placer.place(&offers, 0).unwrap();
                        let slabs: u64 = placement.slabs.iter().map(|slab| slab.grains * GRAIN_BYTES).sum();
                        let overhead = slabs - spec.row_bytes().0 * u64::from(resiliency.copies());
                        assert!(overhead * 100 <= slabs, "{spec:?} on {disks} disks: {overhead} of {slabs}");
                    }
                }
            }
        }
    }
}
