//! Where slabs go that leave a disk (docs/design/0010, *Where a slab goes*).
//!
//! Invariant: what is chosen obeys the rules of placement as far as the members allow, but that two columns of a row without
//! parity may share a disk where all others are taken.
//!
//! A disk that is known to be failing is chosen where no other can be, and a slow one where no other that has no slab of the row; a
//! rebalance chooses neither (docs/design/0022).
//!
//! Left to others: moving them (`removal`, `rebalance`).

use std::collections::BTreeSet;

use dolmen_placement::{DomainId, Offer};
use dolmen_pool::{Ailment, Pool, Purpose};
use dolmen_units::{DiskSlot, Epoch};

use crate::layout::Apart;
use crate::table::row::{RowRecord, Slab, Slabs};

/// The disks that can take slabs, and what is left of them.
pub(crate) struct SlabTargets {
    offers: Vec<Offer>,
    /// Whose free allocation units lie in too many pieces.
    refused: BTreeSet<DiskSlot>,
    /// Fault domains of all members that are to keep slabs, whether they are here or not.
    domains: BTreeSet<DomainId>,
}

impl SlabTargets {
    /// What the disks of a pool have to give now, beside what each keeps for repair.
    pub(crate) fn of(pool: &Pool) -> Self {
        let domains = pool
            .free_space()
            .offers_with_absent(Purpose::Move)
            .into_iter()
            .map(|offer| offer.domain)
            .collect();
        Self { offers: pool.free_space().offers_for_repair(), refused: BTreeSet::new(), domains }
    }

    /// The same with disks that may join the pool.
    pub(crate) fn with_more(pool: &Pool, more: &[Offer]) -> Self {
        let mut targets_for_slabs = Self::of(pool);
        targets_for_slabs.domains.extend(more.iter().map(|offer| offer.domain));
        targets_for_slabs.offers.extend_from_slice(more);
        targets_for_slabs
    }

    /// A disk cannot take what was to go there.
    pub(crate) fn refuse(&mut self, slot: DiskSlot) {
        self.refused.insert(slot);
    }

    /// What a disk can take.
    pub(crate) fn room_on(&self, slot: DiskSlot) -> u64 {
        self.offers.iter().find(|offer| offer.slot == slot).map_or(0, Offer::claimable_units)
    }

    /// What is left of the room.
    pub(crate) fn left(self) -> Vec<Offer> {
        self.offers
    }

    /// A disk for the slab of a column that is on `from`; its room is reckoned as taken.
    pub(crate) fn choose(
        &mut self,
        pool: &Pool,
        record: &RowRecord,
        column: usize,
        from: DiskSlot,
    ) -> Option<DiskSlot> {
        let units = record.shape.slab_map(column).units();
        let best = self.best(pool, record, column, from, |_| true)?;
        best.free_units -= units;
        Some(best.slot)
    }

    /// A disk for the slab of a column that is on `from`, if it is well, has no slab of the row and is emptier than `from`, also
    /// when it has taken this one. The room of both is reckoned as it is then.
    pub(crate) fn choose_emptier(
        &mut self,
        pool: &Pool,
        record: &RowRecord,
        column: usize,
        from: DiskSlot,
    ) -> Option<DiskSlot> {
        let units = record.shape.slab_map(column).units();
        let has = self.offers.iter().find(|offer| offer.slot == from)?.claimable_units();
        let best = self.best(pool, record, column, from, |slot| pool.members().ailment_of(slot).is_none())?;
        let is_paired_with = record.columns.iter().flatten().any(|slab| slab.disk == best.slot);
        if is_paired_with || best.claimable_units() < has + 2 * units {
            return None;
        }
        best.free_units -= units;
        let to = best.slot;
        let old = self.offers.iter_mut().filter(|offer| offer.slot == from);
        old.for_each(|offer| offer.free_units += units);
        Some(to)
    }

    /// A disk that is well, in another fault domain, for the slab of a column that is on `from`, if it lies in one with another slab from which
    /// it should be apart. Its room is reckoned as taken.
    pub(crate) fn choose_apart(
        &mut self,
        pool: &Pool,
        record: &RowRecord,
        column: usize,
        from: DiskSlot,
    ) -> Option<DiskSlot> {
        if !self.is_badly_placed(pool, record, column, from) {
            return None;
        }
        let units = record.shape.slab_map(column).units();
        let best = self.best(pool, record, column, from, |slot| pool.members().ailment_of(slot).is_none())?;
        best.free_units -= units;
        Some(best.slot)
    }

    /// Whether the slab of a column on `from` shares a fault domain with another one, and there are domains enough for all.
    pub(crate) fn is_badly_placed(
        &self,
        pool: &Pool,
        record: &RowRecord,
        column: usize,
        from: DiskSlot,
    ) -> bool {
        let is_apart = record.row_shape().placement().apart == Apart::Row;
        let columns = record.columns.iter().enumerate();
        let extra: BTreeSet<DomainId> = columns
            .filter(|(other, _)| is_apart || *other == column)
            .flat_map(|(_, slabs)| slabs.iter())
            .filter(|slab| slab.disk != from)
            .filter_map(|slab| pool.members().domain_of(slab.disk))
            .collect();
        let own = pool.members().domain_of(from);
        own.is_some_and(|own| extra.contains(&own)) && self.domains.len() > extra.len()
    }

    /// The emptiest disk that may take the slab of a column that is on `from`, of those that are meant: one that is well, if any is.
    fn best(
        &mut self,
        pool: &Pool,
        record: &RowRecord,
        column: usize,
        from: DiskSlot,
        is_meant: impl Fn(DiskSlot) -> bool,
    ) -> Option<&mut Offer> {
        let units = record.shape.slab_map(column).units();
        let elsewhere = |slab: &&Slab| slab.disk != from;
        // What is being replaced is where it goes as well.
        let both = |slab: &Slab| [slab.disk, pool.members().destination(slab.disk)];
        let of_row: BTreeSet<DiskSlot> =
            record.columns.iter().flatten().filter(elsewhere).flat_map(both).collect();
        let of_column: BTreeSet<DiskSlot> = match record.row_shape().placement().apart {
            Apart::Column => record.columns.get(column)?.iter().filter(elsewhere).flat_map(both).collect(),
            Apart::Row => of_row.clone(),
        };
        let joining = |slot| self.offers.iter().find(|offer| offer.slot == slot).map(|offer| offer.domain);
        let domain_of =
            |slot| pool.members().domain_of(pool.members().destination(slot)).or_else(|| joining(slot));
        let domains_of = |slots: &BTreeSet<DiskSlot>| -> BTreeSet<DomainId> {
            slots.iter().filter_map(|slot| domain_of(*slot)).collect()
        };
        let extra = domains_of(&of_column);
        let keeps_apart = self.domains.len() > extra.len();
        let is_fit = |offer: &&mut Offer| {
            offer.claimable_units() >= units
                && offer.slot != from
                && !self.refused.contains(&offer.slot)
                && !of_column.contains(&offer.slot)
                && !(keeps_apart && extra.contains(&offer.domain))
                && is_meant(offer.slot)
        };
        self.offers.iter_mut().filter(is_fit).max_by_key(|offer| {
            let ailment = pool.members().ailment_of(offer.slot);
            (
                ailment < Some(Ailment::Failing),
                !of_row.contains(&offer.slot),
                ailment.is_none(),
                offer.claimable_units(),
                std::cmp::Reverse(offer.slot),
            )
        })
    }
}

/// Columns of a row that have a slab on a disk and not as many on others as they have copies. What was claimed for an earlier try
/// on a disk that is away by now, and holds nothing yet, counts for none.
pub(crate) fn columns_to_move(pool: &Pool, record: &RowRecord, from: DiskSlot, copies: usize) -> Vec<usize> {
    let counts =
        |slab: &&Slab| slab.disk != from && (slab.stale != Some(Epoch(0)) || slab.present(pool).is_some());
    let is_to_move = |slabs: &Slabs| {
        slabs.iter().any(|slab| slab.disk == from) && slabs.iter().filter(counts).count() < copies
    };
    let columns = record.columns.iter().enumerate();
    columns.filter(|(_, slabs)| is_to_move(slabs)).map(|(column, _)| column).collect()
}
