//! Copies that segments of a write cache have and lack.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use dolmen_disk::MemberState;
use dolmen_placement::DomainId;
use dolmen_pool::Purpose;
use dolmen_units::DiskSlot;

use crate::cache::destage::Prepared;
use crate::cache::segments::CacheIndex;
use crate::format::record::BlockState;
use crate::resources::fast_disks::is_fast;
use crate::table::redo::Redo;
use crate::table::row::{Row, Slab};
use crate::table::space::Cache;
use std::rc::Rc;

/// Copies that segments of a write cache have and lack.
#[derive(Clone, Copy)]
pub(crate) struct SegmentCopies<'a> {
    cache: &'a Rc<Cache>,
}

impl<'a> SegmentCopies<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Rc<Cache>) -> Self {
        Self { cache }
    }
}

impl SegmentCopies<'_> {
    pub(crate) fn copies(self) -> usize {
        usize::from(self.cache.space().spec().resiliency.copies())
    }

    /// Whether a row has all of its copies on disks that are here, and nothing that the log says of it waits for disks.
    pub(crate) fn has_all_copies(self, row: &Row) -> bool {
        let pool = &self.cache.shared().pool;
        let is_good = |slab: &Slab| slab.readable(pool).is_some();
        self.count_apart(row, is_good) >= self.copies() && !self.cache.shared().is_deferred(row)
    }

    /// Disks with slabs of a row that are as wanted; those that go to one disk in the end are one.
    fn count_apart(self, row: &Row, is_wanted: impl Fn(&Slab) -> bool) -> usize {
        let pool = &self.cache.shared().pool;
        row.with_slabs(0, |slabs| {
            let wanted = slabs.iter().filter(|slab| is_wanted(slab));
            // Mostly nothing of it moves.
            if slabs.len() <= self.copies() {
                return wanted.count();
            }
            wanted.map(|slab| pool.members().destination(slab.disk)).collect::<BTreeSet<DiskSlot>>().len()
        })
    }

    /// Whether all that a stripe becomes lies in rows with all of their copies.
    pub(crate) fn is_whole(self, redo: &Redo) -> bool {
        let has_all = |place| {
            let row = self.cache.row_of(place);
            row.is_some_and(|row| self.has_all_copies(&row))
        };
        let valid = redo.blocks.iter().filter(|block| matches!(block.state, BlockState::Valid(_)));
        valid.into_iter().all(|block| has_all(block.place))
    }

    /// Leaves stripes to be finished of which the cache lacks copies that it can have: what is begun to be written in place must
    /// not stand against fewer. Those that need not wait.
    pub(crate) fn without_those_that_lack(self, prepared: Vec<Prepared>) -> Vec<Prepared> {
        if !self.can_be_brought_any() {
            return prepared;
        }
        let (whole, lack): (Vec<Prepared>, Vec<Prepared>) =
            prepared.into_iter().partition(|one| self.is_whole(&one.redo));
        self.cache.waits_for_copies.set(self.cache.waits_for_copies.get() || !lack.is_empty());
        lack.into_iter().for_each(|one| CacheIndex::of(self.cache).leave_unfinished(one.redo));
        whole
    }

    /// Whether some row lacks copies and can have them now.
    pub(crate) fn can_be_brought_any(self) -> bool {
        let segments = self.cache.segments.borrow();
        segments.iter().any(|segment| self.can_be_brought(&segment.row))
    }

    /// Whether a row lacks copies and can have them now, as far as is known.
    pub(crate) fn can_be_brought(self, row: &Row) -> bool {
        let is_tried = {
            let (epoch, rows) = &*self.cache.not_brought.borrow();
            *epoch == self.cache.shared().pool.epoch().number && rows.contains(&row.index)
        };
        !is_tried
            && !self.has_all_copies(row)
            && CacheIndex::of(self.cache).can_be_filled(row)
            && (self.lacks_slabs(row) == 0 || self.next_place(row).is_some())
    }

    /// How many slabs on disks that are here a row lacks, whether they hold everything yet or not.
    pub(crate) fn lacks_slabs(self, row: &Row) -> usize {
        let is_here = |slab: &Slab| slab.present(&self.cache.shared().pool).is_some();
        self.copies().saturating_sub(self.count_apart(row, is_here))
    }

    /// A disk of a row that is away, and one that can take its copy.
    pub(crate) fn next_place(self, row: &Row) -> Option<(DiskSlot, DiskSlot)> {
        let pool = &self.cache.shared().pool;
        let slabs = row.with_slabs(0, <[Slab]>::to_vec);
        let mut away: Vec<&Slab> = slabs.iter().filter(|slab| slab.present(pool).is_none()).collect();
        // One that never held anything goes first.
        away.sort_by_key(|slab| (slab.stale.is_none(), slab.stale));
        let is_used = |slot: DiskSlot| slabs.iter().any(|slab| slab.disk == slot);
        let is_fit = |slot: &DiskSlot| {
            let disk = pool.disk(*slot).filter(|disk| disk.is_present());
            disk.is_some_and(|disk| disk.member().state == MemberState::Active) && !is_used(*slot)
        };
        // What is being replaced goes where all of it goes.
        let successors = away.iter().map(|slab| (slab.disk, pool.members().destination(slab.disk)));
        if let Some(found) = successors.into_iter().find(|(from, to)| from != to && is_fit(to)) {
            return Some(found);
        }
        let from = away.first()?.disk;
        let kept: BTreeSet<DomainId> = slabs
            .iter()
            .filter(|slab| slab.present(pool).is_some())
            .filter_map(|slab| pool.members().domain_of(pool.members().destination(slab.disk)))
            .collect();
        let all = pool.free_space().offers_with_absent(Purpose::Move);
        let domains: BTreeSet<DomainId> = all.iter().map(|offer| offer.domain).collect();
        let keeps_apart = domains.len() >= self.copies();
        let units = row.map(0).units();
        let fit = pool.free_space().offers(Purpose::Move).into_iter().filter(|offer| {
            is_fit(&offer.slot)
                && !slabs.iter().any(|slab| pool.members().destination(slab.disk) == offer.slot)
                && offer.claimable_units() >= units
                && !(keeps_apart && kept.contains(&offer.domain))
        });
        let best = fit.max_by_key(|offer| {
            let fitness = Reverse(pool.members().ailment_of(offer.slot));
            (fitness, is_fast(pool, offer.slot), offer.claimable_units(), offer.slot)
        });
        Some((from, best?.slot))
    }
}
