//! Slab map: for each disk of a pool, which spaces have its allocation units, cell by cell.
//!
//! One pass over the rows of all spaces fills the cells of all disks. Each space is counted as a whole before the next one, so the
//! largest owners that a cell keeps are exact; what smaller ones have there is one sum.
//!
//! The pass takes no lock and yields after each [`ROWS_AT_ONCE`] rows. A slab that moves meanwhile may be counted where it was, or
//! where it is, and room that two slabs have had one after the other counts once.
//!
//! Invariants:
//! - The allocation units of a cell are at least those of its owners, of the smaller ones and the free ones together.
//! - Memory is bounded by disks, cells and [`CELL_OWNERS_MAX`], whatever the number of rows.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use dolmen_block_io::sync::yield_now;
use dolmen_future_pool::pooled;
use dolmen_pool::Run;
use dolmen_units::{DiskSlot, Name};
use smallvec::SmallVec;

use crate::format::error::SpaceError;
use crate::format::ids::{is_of_cache, is_of_conversion_shadows, is_of_shadows};
use crate::policy::handles::Moves;
use crate::table::row::{RowRecord, Slab};
use crate::table::space::SpaceRows;

/// Owners that a cell keeps, at most: the largest.
pub const CELL_OWNERS_MAX: usize = 3;

/// Rows that the walk looks at before it yields.
const ROWS_AT_ONCE: usize = 64;
/// Free runs that it looks at before it yields.
const RUNS_AT_ONCE: usize = 1024;

/// Number of cells of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellCount(u16);

impl CellCount {
    /// The largest number.
    pub const MAX: u16 = 512;

    /// Returns the number, if it is one from 1 to [`MAX`](Self::MAX).
    #[must_use]
    pub fn new(count: u64) -> Option<Self> {
        let count = u16::try_from(count).ok()?;
        (1..=Self::MAX).contains(&count).then_some(Self(count))
    }
}

/// What slabs are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlabPurpose {
    /// Rows of a space.
    Space,
    /// Rows of a space in the trash.
    Trash,
    /// Rows of a space that is being deleted for good.
    Deleted,
    /// The write cache of spaces that survive so many lost disks.
    WriteCache {
        /// Lost disks.
        survives: u8,
    },
    /// Shadow rows of a space, which streams of writes fill.
    ShadowRows,
    /// Shadow rows of a space that is being converted.
    ConversionShadows,
}

/// What has slabs, with what it has on all disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlabOwner {
    /// What its slabs are for.
    pub purpose: SlabPurpose,
    /// The space that people see; of a write cache, an internal name.
    pub space: Name,
    /// Its allocation units.
    pub units: u64,
    /// Of them, those of slabs that miss something: they are being filled, or wait for a resync.
    pub stale_units: u64,
}

/// Part of a cell that one owner has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellShare {
    /// Index of the owner in [`SlabMap::owners`].
    pub owner: usize,
    /// Its allocation units in the cell.
    pub units: u64,
}

/// A range of allocation units of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlabCell {
    /// Its allocation units.
    pub units: u64,
    /// Of them, those that no slab has.
    pub free_units: u64,
    /// Of them, those of slabs that miss something.
    pub stale_units: u64,
    /// The owners with the most of it, the largest first.
    pub owners: SmallVec<[CellShare; CELL_OWNERS_MAX + 1]>,
    /// What all other owners have of it.
    pub other_units: u64,
}

impl SlabCell {
    /// Returns the allocation units that slabs have.
    fn used_units(&self) -> u64 {
        self.owners.iter().map(|share| share.units).sum::<u64>() + self.other_units
    }

    /// Adds what an owner has of the cell, and keeps the largest.
    fn add(&mut self, share: CellShare) {
        self.owners.push(share);
        self.owners.sort_by_key(|share| Reverse(share.units));
        if self.owners.len() > CELL_OWNERS_MAX {
            self.other_units += self.owners.pop().map_or(0, |share| share.units);
        }
    }

    /// Fits what was counted at different times into the cell: owners give way from the smallest on, then free room.
    fn fit(&mut self) {
        let mut excess = self.used_units().saturating_sub(self.units);
        for units in std::iter::once(&mut self.other_units)
            .chain(self.owners.iter_mut().rev().map(|share| &mut share.units))
        {
            let cut = excess.min(*units);
            *units -= cut;
            excess -= cut;
        }
        self.owners.retain(|share| share.units > 0);
        let used = self.used_units();
        self.stale_units = self.stale_units.min(used);
        self.free_units = self.free_units.min(self.units.saturating_sub(used));
    }
}

/// Cells of a disk, in order of address. They differ by one allocation unit at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskCells {
    /// Which disk.
    pub slot: DiskSlot,
    /// Its allocation units.
    pub units: u64,
    /// Its cells: as many as were asked for, but no more than it has allocation units.
    pub cells: Vec<SlabCell>,
}

impl DiskCells {
    fn new(slot: DiskSlot, units: u64, count: CellCount) -> Self {
        let count = u64::from(count.0).min(units);
        let length = |index| begin_of(index + 1, units, count) - begin_of(index, units, count);
        let cells = (0..count).map(|index| SlabCell { units: length(index), ..SlabCell::default() });
        Self { slot, units, cells: cells.collect() }
    }

    /// Calls back for each cell that a run lies in, with its index and how much of the run does.
    fn for_each_part(&mut self, run: Run, mut action: impl FnMut(usize, &mut SlabCell, u64)) {
        let count = self.cells.len() as u64;
        let (mut at, end) = (run.first, run.first.saturating_add(run.count).min(self.units));
        while at < end {
            let index = cell_of(at, self.units, count);
            let next = begin_of(index + 1, self.units, count).min(end).max(at + 1);
            let place = usize::try_from(index).unwrap_or(usize::MAX);
            if let Some(cell) = self.cells.get_mut(place) {
                action(place, cell, next - at);
            }
            at = next;
        }
    }
}

/// Returns the cell of an allocation unit.
fn cell_of(unit: u64, units: u64, count: u64) -> u64 {
    let cell = u128::from(unit) * u128::from(count) / u128::from(units.max(1));
    u64::try_from(cell).unwrap_or(u64::MAX)
}

/// Returns the first allocation unit of a cell.
fn begin_of(index: u64, units: u64, count: u64) -> u64 {
    let begin = (u128::from(index) * u128::from(units)).div_ceil(u128::from(count.max(1)));
    u64::try_from(begin).unwrap_or(u64::MAX)
}

/// Where on the disks of a pool slabs lie.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SlabMap {
    /// What has slabs, in the order of spaces.
    pub owners: Vec<SlabOwner>,
    /// The disks, by slot.
    pub disks: Vec<DiskCells>,
}

/// A map that is being filled, with what the owner that is being counted has of each cell.
struct Filling {
    disks: BTreeMap<DiskSlot, (DiskCells, Vec<u64>)>,
    units: u64,
    stale_units: u64,
}

impl Filling {
    fn add_row(&mut self, record: &RowRecord) {
        record.columns.iter().flatten().for_each(|slab| self.add_slab(slab));
    }

    fn add_slab(&mut self, slab: &Slab) {
        let is_stale = slab.stale.is_some();
        let units: u64 = slab.runs.iter().map(|run| run.count).sum();
        self.units += units;
        self.stale_units += if is_stale { units } else { 0 };
        let Some((disk, counted)) = self.disks.get_mut(&slab.disk) else { return };
        for run in &slab.runs {
            disk.for_each_part(*run, |index, cell, part| {
                cell.stale_units += if is_stale { part } else { 0 };
                if let Some(counted) = counted.get_mut(index) {
                    *counted += part;
                }
            });
        }
    }

    /// Ends the count of an owner. Returns its allocation units, and those that miss something.
    fn end_owner(&mut self, owner: usize) -> (u64, u64) {
        for (disk, counted) in self.disks.values_mut() {
            for (cell, units) in disk.cells.iter_mut().zip(counted) {
                let units = std::mem::take(units);
                if units > 0 {
                    cell.add(CellShare { owner, units });
                }
            }
        }
        (std::mem::take(&mut self.units), std::mem::take(&mut self.stale_units))
    }
}

impl Moves<'_> {
    /// Returns where on each disk of the pool slabs of which space lie, what is free, and what waits to be filled.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata cannot be read.
    #[pooled]
    pub async fn slab_map(self, count: CellCount) -> Result<SlabMap, SpaceError> {
        let pool = self.spaces.pool();
        // One that joins just now has no room yet.
        let members = pool.disks().into_iter().map(|disk| disk.slot());
        let cells = members.filter_map(|slot| {
            let disk = DiskCells::new(slot, pool.free_space().units_on(slot)?, count);
            let counted = vec![0; disk.cells.len()];
            Some((slot, (disk, counted)))
        });
        let mut filling = Filling { disks: cells.collect(), units: 0, stale_units: 0 };
        let mut owners = Vec::new();
        for space in self.spaces.all() {
            let mut from = Some(0);
            while let Some(first) = from {
                let mut add = |_, record: &RowRecord| filling.add_row(record);
                from = space.for_next_records(first, ROWS_AT_ONCE, &mut add).await?;
                yield_now().await;
            }
            let (units, stale_units) = filling.end_owner(owners.len());
            if units > 0 {
                owners.push(SlabOwner {
                    purpose: purpose_of(&space),
                    space: space.name(),
                    units,
                    stale_units,
                });
            }
        }
        let mut map = SlabMap { owners, disks: Vec::new() };
        for (slot, (mut disk, _)) in filling.disks {
            let mut from = Some(0);
            while let Some(first) = from {
                let runs = pool.free_space().free_runs_from(slot, first, RUNS_AT_ONCE);
                from = runs.last().map(|run| run.first + 1);
                for run in runs {
                    disk.for_each_part(run, |_, cell, part| cell.free_units += part);
                }
                yield_now().await;
            }
            disk.cells.iter_mut().for_each(SlabCell::fit);
            map.disks.push(disk);
        }
        Ok(map)
    }
}

fn purpose_of(space: &SpaceRows) -> SlabPurpose {
    match space.id() {
        id if is_of_cache(id) => SlabPurpose::WriteCache { survives: space.spec().resiliency.losses() },
        id if is_of_shadows(id) => SlabPurpose::ShadowRows,
        id if is_of_conversion_shadows(id) => SlabPurpose::ConversionShadows,
        _ if space.freed.get() => SlabPurpose::Deleted,
        _ if space.trashed.get().is_some() => SlabPurpose::Trash,
        _ => SlabPurpose::Space,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn share(owner: usize, units: u64) -> CellShare {
        CellShare { owner, units }
    }

    /// Scenario: five owners of one cell, the largest neither first nor last. The three largest are kept, the others are one sum.
    #[test]
    fn a_cell_keeps_its_largest_owners_and_the_sum_of_the_others() {
        let mut cell = SlabCell { units: 100, free_units: 65, ..SlabCell::default() };
        for (owner, units) in [1, 9, 3, 20, 2].into_iter().enumerate() {
            cell.add(share(owner, units));
        }
        cell.fit();
        assert_eq!(cell.owners.as_slice(), [share(3, 20), share(1, 9), share(2, 3)]);
        assert_eq!((cell.other_units, cell.free_units), (3, 65));
    }

    /// Scenario: slabs moved while a cell was counted, so that it has more than it holds. The smallest owners give way.
    #[test]
    fn a_cell_never_has_more_than_it_holds() {
        let mut cell = SlabCell { units: 10, free_units: 4, stale_units: 20, ..SlabCell::default() };
        for (owner, units) in [6, 5, 4, 3].into_iter().enumerate() {
            cell.add(share(owner, units));
        }
        cell.fit();
        assert_eq!(cell.owners.as_slice(), [share(0, 6), share(1, 4)]);
        assert_eq!((cell.other_units, cell.free_units, cell.stale_units), (0, 0, 10));
    }

    #[test]
    fn a_number_of_cells_is_from_1_to_512() {
        let found: Vec<bool> =
            [0, 1, 512, 513, u64::MAX].into_iter().map(|n| CellCount::new(n).is_some()).collect();
        assert_eq!(found, [false, true, true, false, false]);
    }

    proptest! {
        /// Scenario: a disk of any length, any number of cells and any run. The cells cover the disk, differ by one at most, and the parts
        /// of the run add up to what of it lies on the disk, each in the cell of its allocation units.
        #[test]
        fn cells_cover_a_disk_and_parts_cover_a_run(
            units in 0u64..5000,
            count in 1u64..=512,
            first in 0u64..6000,
            length in 0u64..6000,
        ) {
            let count = CellCount::new(count).unwrap();
            let mut disk = DiskCells::new(DiskSlot(0), units, count);
            prop_assert_eq!(disk.cells.iter().map(|cell| cell.units).sum::<u64>(), units);
            let lengths = disk.cells.iter().map(|cell| cell.units);
            let (least, most) = (lengths.clone().min().unwrap_or(0), lengths.max().unwrap_or(0));
            prop_assert!(most - least <= 1 && (units == 0 || least > 0));
            disk.for_each_part(Run { first, count: length }, |_, cell, part| cell.free_units += part);
            let mut begin = 0;
            for cell in &disk.cells {
                let end = begin + cell.units;
                let expected = (first + length).min(end).saturating_sub(first.max(begin));
                prop_assert_eq!(cell.free_units, expected);
                begin = end;
            }
        }
    }
}
