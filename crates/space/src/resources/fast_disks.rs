//! Which disks are fast: where rows of a write cache should lie.

use std::collections::BTreeSet;

use dolmen_disk::Medium;
use dolmen_placement::DomainId;
use dolmen_placement::Offer;
use dolmen_placement::Standing;
use dolmen_pool::Pool;
use dolmen_units::DiskSlot;

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
