//! Where damage may be done, so that what a test judges is a loss that redundancy should have prevented.
//!
//! Disks whose content stands in for each other form a group with a tolerance. Within one zone (a range of addresses)
//! of a group, faults of content fall on at most `tolerance` different disks. A layered oracle that knows which ranges
//! hold copies of each other answers for itself instead.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::trace::DiskIndex;

/// Says where faults of content may be placed.
///
/// The disk asks before it damages, with the range in bytes, and injects nothing when refused. An answer of `true` is a
/// promise taken up: the implementor counts the range as damaged. It must not call into the disk that asks.
pub trait DamagePolicy {
    /// Whether the range may be damaged.
    fn may_damage(&self, disk: DiskIndex, range: Range<u64>) -> bool;
}

impl<F: Fn(DiskIndex, Range<u64>) -> bool> DamagePolicy for F {
    fn may_damage(&self, disk: DiskIndex, range: Range<u64>) -> bool {
        self(disk, range)
    }
}

/// Disks that stand in for each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AtlasGroup {
    /// The disks.
    pub disks: Vec<DiskIndex>,
    /// How many of them may be damaged in one zone.
    pub tolerance: usize,
}

#[derive(Debug, Default)]
struct DamageLimits {
    lost: BTreeSet<DiskIndex>,
    zones: BTreeMap<u64, BTreeSet<DiskIndex>>,
}

/// Keeps faults within what redundancy can repair. A disk in no group may be damaged nowhere.
#[derive(Debug)]
pub struct Atlas {
    zone_bytes: u64,
    groups: Vec<(AtlasGroup, RefCell<DamageLimits>)>,
}

impl Atlas {
    /// An atlas of these groups, which divides addresses into zones of `zone_bytes`.
    ///
    /// # Panics
    /// When `zone_bytes` is zero or a disk stands in two groups.
    #[must_use]
    pub fn new(groups: Vec<AtlasGroup>, zone_bytes: u64) -> Self {
        assert!(zone_bytes > 0, "a zone has at least one byte");
        let mut seen = BTreeSet::new();
        for disk in groups.iter().flat_map(|group| &group.disks) {
            assert!(seen.insert(*disk), "{disk} stands in one group");
        }
        Self { zone_bytes, groups: groups.into_iter().map(|group| (group, RefCell::default())).collect() }
    }

    fn group_of(&self, disk: DiskIndex) -> Option<&(AtlasGroup, RefCell<DamageLimits>)> {
        self.groups.iter().find(|(group, _)| group.disks.contains(&disk))
    }

    fn zones(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.zone_bytes..range.end.div_ceil(self.zone_bytes)
    }

    /// Whether a whole disk may be taken away now, in addition to the damage there is; counts it as taken if so.
    pub fn may_lose(&self, disk: DiskIndex) -> bool {
        let Some((group, claims)) = self.group_of(disk) else { return false };
        let mut claims = claims.borrow_mut();
        let mut lost = claims.lost.clone();
        lost.insert(disk);
        let fits = lost.len() <= group.tolerance
            && claims.zones.values().all(|damaged| damaged.union(&lost).count() <= group.tolerance);
        if fits {
            claims.lost = lost;
        }
        fits
    }

    /// The disk is back, with all that it held.
    pub fn found(&self, disk: DiskIndex) {
        if let Some((_, claims)) = self.group_of(disk) {
            claims.borrow_mut().lost.remove(&disk);
        }
    }

    /// The damage in the zones that lie wholly in the range was repaired.
    pub fn repaired(&self, disk: DiskIndex, range: Range<u64>) {
        let Some((_, claims)) = self.group_of(disk) else { return };
        let mut claims = claims.borrow_mut();
        for zone in range.start.div_ceil(self.zone_bytes)..range.end / self.zone_bytes {
            if let Some(damaged) = claims.zones.get_mut(&zone) {
                damaged.remove(&disk);
            }
        }
    }
}

impl DamagePolicy for Atlas {
    fn may_damage(&self, disk: DiskIndex, range: Range<u64>) -> bool {
        let Some((group, claims)) = self.group_of(disk) else { return false };
        let mut claims = claims.borrow_mut();
        let fits = self.zones(&range).all(|zone| {
            let mut hurt = claims.lost.clone();
            hurt.extend(claims.zones.get(&zone).into_iter().flatten());
            hurt.insert(disk);
            hurt.len() <= group.tolerance
        });
        if fits {
            for zone in self.zones(&range) {
                claims.zones.entry(zone).or_default().insert(disk);
            }
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn atlas(disk_count: usize, tolerance: usize) -> Atlas {
        let disks = (0..disk_count).map(DiskIndex).collect();
        Atlas::new(vec![AtlasGroup { disks, tolerance }], 100)
    }

    proptest! {
        // Whatever is asked for, no address is damaged on more disks than the tolerance, lost disks included.
        #[test]
        fn no_address_is_hurt_on_more_disks_than_the_tolerance(
            tolerance in 0usize..3,
            asked in proptest::collection::vec((0usize..4, 0u64..1000, 1u64..300, 0u8..5), 1..60),
        ) {
            let atlas = atlas(4, tolerance);
            let mut hurt = vec![BTreeSet::new(); 1300];
            for (disk, start, length, whole) in asked {
                let disk = DiskIndex(disk);
                if whole == 0 && atlas.may_lose(disk) {
                    hurt.iter_mut().for_each(|disks| { disks.insert(disk); });
                } else if atlas.may_damage(disk, start..start + length) {
                    for address in start..start + length {
                        hurt[usize::try_from(address).unwrap()].insert(disk);
                    }
                }
            }
            prop_assert!(hurt.iter().all(|disks| disks.len() <= tolerance));
        }
    }

    #[test]
    fn repaired_zones_and_found_disks_may_be_hurt_again() {
        let atlas = atlas(2, 1);
        let (one, two) = (DiskIndex(0), DiskIndex(1));
        assert!(atlas.may_damage(one, 50..60));
        assert!(!atlas.may_damage(two, 90..110));
        assert!(!atlas.may_lose(two));
        atlas.repaired(one, 0..99);
        assert!(!atlas.may_damage(two, 90..110));
        atlas.repaired(one, 0..100);
        assert!(atlas.may_lose(two));
        assert!(!atlas.may_damage(one, 500..501));
        atlas.found(two);
        assert!(atlas.may_damage(one, 500..501));
        assert!(!atlas.may_damage(DiskIndex(7), 0..1));
    }
}
