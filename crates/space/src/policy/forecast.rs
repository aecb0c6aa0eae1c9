//! What spaces will take of a pool, for those who plan: by the same lengths and the same placement as when they are made.

use dolmen_placement::{NoRoom, Offer, Placement, Placer};
use dolmen_pool::{Pool, Purpose};
use dolmen_units::{Bytes, DiskSlot};

use crate::format::spec::{SpaceSpec, cache_spec};
use crate::layout::slab_units;
use crate::resources::fast_disks::{fastest, is_fast};

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
