//! What spaces will take of a pool, for those who plan: by the same lengths and the same placement as when they are made.

use dolmen_placement::{NoRoom, Offer, Placement, Placer};
use dolmen_units::Bytes;

use crate::cache::cache_spec;
use crate::layout::slab_grains;

/// A write cache that is to be claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteCacheRows {
    /// Its rows, in the order of their claims.
    pub rows: Vec<Placement>,
    /// What disks offer behind it.
    pub left: Vec<Offer>,
}

/// The write cache that spaces of a redundancy need, in a pool with so many bytes for data, claimed from what its disks offer, in
/// the turns from the first on.
///
/// # Errors
/// [`NoRoom`] where it does not fit.
pub fn write_cache_rows(
    offers: &[Offer],
    redundancy: u8,
    pool: Bytes,
    first_turn: u64,
) -> Result<WriteCacheRows, NoRoom> {
    let spec = cache_spec(redundancy, pool);
    let mut cache = WriteCacheRows { rows: Vec::new(), left: offers.to_vec() };
    // Its size and its rows are within every limit.
    let Ok(request) = spec.check() else { return Ok(cache) };
    let placer = Placer::new(request, slab_grains(spec.interleave, 0));
    for turn in 0..spec.size.0 / spec.row_bytes().0 {
        let placement = placer.place(&cache.left, first_turn + turn)?;
        for slab in &placement.slabs {
            for offer in cache.left.iter_mut().filter(|offer| offer.slot == slab.slot) {
                offer.free_grains = offer.free_grains.saturating_sub(slab.grains);
            }
        }
        cache.rows.push(placement);
    }
    Ok(cache)
}
