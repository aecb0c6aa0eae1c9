//! What spaces will take of a pool, for those who plan: by the same lengths and the same placement as when they are made.

use std::collections::BTreeSet;

use dolmen_disk::Medium;
use dolmen_placement::{DomainId, NoRoom, Offer, Placement, Placer, Standing};
use dolmen_pool::{Pool, Purpose};
use dolmen_units::{Bytes, DiskSlot};

use crate::cache::space::Space;
use crate::format::ids::is_of_cache;
use crate::format::spec::{SpaceSpec, cache_spec};
use crate::layout::slab_units;

/// A write cache that is to be claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteCacheRows {
    /// Its rows, in the order of their claims.
    pub rows: Vec<Placement>,
    /// What disks offer behind it.
    pub left: Vec<Offer>,
}

/// The write cache that spaces of a redundancy need, in a pool with so many bytes for data, claimed from what its disks offer, in
/// the turns from the first on. `is_fast` tells on which disks seeks cost no time.
///
/// # Errors
/// [`NoRoom`] where it does not fit.
pub fn write_cache_rows(
    offers: &[Offer],
    redundancy: u8,
    pool: Bytes,
    first_in_order: u64,
    is_fast: impl Fn(DiskSlot) -> bool,
) -> Result<WriteCacheRows, NoRoom> {
    let spec = cache_spec(redundancy, pool);
    let mut cache = WriteCacheRows { rows: Vec::new(), left: offers.to_vec() };
    for nth in 0..spec.size.0 / spec.row_bytes().0 {
        match cache.add(&spec, first_in_order + nth, &is_fast) {
            Some(placed) => placed?,
            None => break,
        }
    }
    Ok(cache)
}

/// How many rows of a write cache a pool has room for, so many at most.
pub(crate) fn cache_rows(pool: &Pool, spec: &SpaceSpec, most: u64) -> u64 {
    let mut cache = WriteCacheRows { rows: Vec::new(), left: pool.free_space().offers(Purpose::Claim) };
    let mut yields = (pool.free_space().next_in_order()..).zip(0..most);
    let is_there = |cache: &mut WriteCacheRows, rotation| {
        matches!(cache.add(spec, rotation, &|slot| is_fast(pool, slot)), Some(Ok(())))
    };
    yields.find(|(rotation, _)| !is_there(&mut cache, *rotation)).map_or(most, |(_, rows)| rows)
}

/// Whether seeks are known to cost no time on a disk: by its device where it is here, else by what it was when it was taken in.
pub(crate) fn is_fast(pool: &Pool, slot: DiskSlot) -> bool {
    pool.disk(slot).is_some_and(|disk| {
        let here = disk.geometry().filter(|_| disk.is_present());
        here.map_or(disk.member().medium, |geometry| Medium::of(&geometry)).is_fast()
    })
}

/// The disks among these that the next row of a write cache should lie on: the fast ones, where they keep as many copies apart as
/// all of them do, and are not all of them.
pub(crate) fn fastest(
    offers: &[Offer],
    copies: u8,
    is_fast: impl Fn(DiskSlot) -> bool,
) -> Option<BTreeSet<DiskSlot>> {
    let claimable = || offers.iter().filter(|offer| offer.standing == Standing::Claimable);
    let domains = |is_meant: &dyn Fn(&Offer) -> bool| -> usize {
        let domains: BTreeSet<DomainId> =
            claimable().filter(|offer| is_meant(offer)).map(|o| o.domain).collect();
        domains.len()
    };
    let copies = usize::from(copies);
    let fast: BTreeSet<DiskSlot> =
        claimable().map(|offer| offer.slot).filter(|slot| is_fast(*slot)).collect();
    let is_apart = domains(&|_| true) < copies || domains(&|offer| fast.contains(&offer.slot)) >= copies;
    (fast.len() >= copies && fast.len() < claimable().count() && is_apart).then_some(fast)
}

impl Space {
    /// The disks that a row of it should lie on, if it is one of a write cache and they are not all that there are.
    pub(crate) fn fast_disks(&self) -> Option<BTreeSet<DiskSlot>> {
        let pool = &self.shared.pool;
        let copies = self.spec().resiliency.copies();
        is_of_cache(self.id())
            .then(|| fastest(&pool.free_space().offers(Purpose::Claim), copies, |slot| is_fast(pool, slot)))?
    }
}

impl WriteCacheRows {
    /// Claims one row more. `None` where a row cannot be as it should.
    fn add(
        &mut self,
        spec: &SpaceSpec,
        rotation: u64,
        is_fast: &impl Fn(DiskSlot) -> bool,
    ) -> Option<Result<(), NoRoom>> {
        // Its size and its rows are within every limit.
        let placer = Placer::new(spec.check().ok()?, slab_units(spec.interleave, 0));
        let on_fast = fastest(&self.left, spec.resiliency.copies(), is_fast).and_then(|fast| {
            // What is kept for repair is reckoned with all disks.
            let claimable = placer.claimable(&self.left);
            let offers: Vec<Offer> =
                claimable.into_iter().filter(|offer| fast.contains(&offer.slot)).collect();
            placer.place(&offers, rotation).ok()
        });
        let placement = match on_fast.map_or_else(|| placer.place(&self.left, rotation), Ok) {
            Ok(placement) => placement,
            Err(error) => return Some(Err(error)),
        };
        for slab in &placement.slabs {
            for offer in self.left.iter_mut().filter(|offer| offer.slot == slab.slot) {
                offer.free_units = offer.free_units.saturating_sub(slab.units);
            }
        }
        self.rows.push(placement);
        Some(Ok(()))
    }
}
