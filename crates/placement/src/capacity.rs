//! What the placer itself reaches on a set of disks, without placing millions of rows one by one.
//!
//! Rows are placed in batches: a batch is one choice whose slabs are as many times as long as it has rows. A batch
//! is a small part of what is left, so that the unevenness it leaves behind is levelled by the smaller ones that
//! follow, down to single rows at the end. A batch that would cost room where single rows may not is cut down
//! before it is accepted. Sets of up to [`ONE_BY_ONE_MAX`] rows are placed row by row, with the turns 0, 1, 2, …

use std::collections::BTreeMap;

use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskSlot};

use crate::bound::{FINE, Rule, fixed_rows};
use crate::field::{Field, Offer};
use crate::place::{Choice, Placer, takes_slabs};
use crate::request::Resiliency;
use crate::shape::Shape;

/// Sets that hold no more rows than this are counted by placing every row.
pub const ONE_BY_ONE_MAX: u64 = 2048;
/// A batch is at most so small a part of what is left, for each batch that levelling all groups takes.
const PARTS_MIN: u64 = 64;
const ROUNDS: u64 = 4;
/// Choices between two looks at how much is left.
const STEPS: u64 = 16;
/// How far a batch that would cost room is cut down.
const CUT_SHIFT_MAX: u32 = 4;

/// Room on one disk that no row of the request can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stranded {
    /// The disk.
    pub slot: DiskSlot,
    /// Allocation units beyond its reserve.
    pub units: u64,
}

/// What a set of disks holds in rows of one request. Bytes of slabs = data + redundancy + overhead.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Capacity {
    /// Whole rows.
    pub rows: u64,
    /// What a client can write.
    pub data: Bytes,
    /// Further copies of it, or parity.
    pub redundancy: Bytes,
    /// Headers, tables and rounding up to allocation units.
    pub overhead: Bytes,
    /// Room that is kept back, of all disks that take new slabs.
    pub reserve: Bytes,
    /// Room that is left on each disk that takes new slabs, in the order of the offers.
    pub stranded: Vec<Stranded>,
}

impl Capacity {
    /// Everything that the rows take from the disks.
    #[must_use]
    pub fn slabs(&self) -> Bytes {
        self.data + self.redundancy + self.overhead
    }

    fn add(&mut self, shape: &Shape, rows: u64, row: Bytes) {
        let data = row.0 * rows;
        let redundancy = data * u64::from(shape.copies - 1) + shape.parity_bytes * rows;
        let slabs = shape.total_units() * rows * ALLOCATION_UNIT_BYTES;
        self.rows += rows;
        self.data = self.data + Bytes(data);
        self.redundancy = self.redundancy + Bytes(redundancy);
        self.overhead = self.overhead + Bytes(slabs - data - redundancy);
    }
}

impl Placer {
    /// What this placer reaches on the offers, in the turns from 0 on.
    #[must_use]
    pub fn usable(&self, offers: &[Offer]) -> Capacity {
        self.usable_from(offers, 0)
    }

    /// The same in the turns from another one on.
    #[must_use]
    pub fn usable_from(&self, offers: &[Offer], first_in_order: u64) -> Capacity {
        let mut field = self.field(offers);
        let mut capacity = Capacity::default();
        if self.request.resiliency() == Resiliency::Span {
            self.fill_span(&mut field, &mut capacity);
        } else {
            self.fill(&mut field, &mut capacity, first_in_order);
        }
        let left: BTreeMap<DiskSlot, u64> =
            field.groups.iter().flat_map(|group| &group.bins).map(|bin| (bin.slot, bin.free)).collect();
        let members = || offers.iter().filter(|offer| takes_slabs(offer));
        capacity.stranded = members()
            .map(|offer| Stranded { slot: offer.slot, units: left.get(&offer.slot).copied().unwrap_or(0) })
            .collect();
        let kept = |offer: &Offer| Bytes(offer.reserve_units.min(offer.free_units) * ALLOCATION_UNIT_BYTES);
        capacity.reserve = members().map(kept).sum();
        capacity
    }

    fn fill_span(&self, field: &mut Field, capacity: &mut Capacity) {
        for bin in field.groups.iter_mut().flat_map(|group| &mut group.bins) {
            let rows = bin.free / self.narrowest.long_units;
            bin.free -= rows * self.narrowest.long_units;
            capacity.add(&self.narrowest, rows, self.request.row());
        }
    }

    fn fill(&self, field: &mut Field, capacity: &mut Capacity, first_in_order: u64) {
        let one_by_one = self.rows_left(field) <= ONE_BY_ONE_MAX;
        let mut turn = first_in_order;
        loop {
            let batch = if one_by_one { 1 } else { self.batch(field) };
            for _ in 0..STEPS {
                let Some((choice, rows)) = self.choose_batch(field, batch, turn) else { return };
                take(field, &choice, rows);
                capacity.add(&choice.shape, rows, self.request.row());
                turn += 1;
            }
        }
    }

    /// Rows that the field can hold at most.
    fn rows_left(&self, field: &Field) -> u64 {
        let left = match &self.rule {
            Rule::Fixed(shape) => fixed_rows(field, shape) / FINE,
            Rule::Mirror { .. } | Rule::Parity { .. } => {
                let promise = self.rule.promise(field.groups.iter().map(|group| group.free));
                promise.map_or(0, |promise| promise.columns) / FINE / u128::from(self.narrowest.data_units())
            }
        };
        u64::try_from(left).unwrap_or(u64::MAX)
    }

    /// Rows of a batch: a power of two, so that smaller batches level what larger ones left.
    fn batch(&self, field: &Field) -> u64 {
        let slabs = u64::from(self.narrowest.slabs());
        let parts = PARTS_MIN.max(ROUNDS * u64::from(field.group_count()) / slabs.max(1));
        let share = self.rows_left(field) / (parts + STEPS);
        if share == 0 { 1 } else { 1 << share.ilog2() }
    }

    /// A choice for `batch` rows, or for fewer where so many would not fit or would cost room.
    fn choose_batch(&self, field: &mut Field, batch: u64, turn: u64) -> Option<(Choice, u64)> {
        let mut rows = batch;
        let mut found = None;
        loop {
            if let Some(choice) = self.choose(field, rows, turn) {
                let good = choice.is_lossless(rows) || batch / rows >= 1 << CUT_SHIFT_MAX;
                found = Some((choice, rows));
                if good {
                    return found;
                }
            }
            if rows == 1 {
                return found;
            }
            rows /= 2;
        }
    }
}

fn take(field: &mut Field, choice: &Choice, rows: u64) {
    for pick in &choice.picks {
        let Some(group) = field.groups.get_mut(pick.group) else { continue };
        let Some(bin) = group.bins.get_mut(pick.bin) else { continue };
        bin.free -= pick.units * rows;
        group.free -= pick.units * rows;
    }
}
