//! The disks as a placement sees them: what each offers, gathered into the groups that the rules speak of.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;

use dolmen_units::DiskSlot;

use crate::keep::{RowKind, UsableOffers, apply_kept_room};
use crate::request::Resiliency;
use crate::shape::Shape;

/// Groups whose order is drawn: no row has as many slabs.
const DRAWN_MAX: u16 = 48;

/// A fault domain: disks that may fail as one. By default each disk is its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(pub u32);

impl fmt::Display for DomainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fault domain {}", self.0)
    }
}

/// Whether new slabs may go to a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It takes new slabs.
    Claimable,
    /// Retired, absent or failing: it takes none, and its fault domain does not count for it either.
    Excluded,
    /// A member that is absent: as one that is excluded, but that what it has may have to be repaired.
    Away,
    /// It takes none before a disk is lost, and then what that had.
    Spare,
    /// It takes none, and what it has is to go to the others.
    Leaving,
}

/// What one disk offers to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The disk. No two offers of a claim name the same one.
    pub slot: DiskSlot,
    /// What it may fail together with.
    pub domain: DomainId,
    /// Allocation units that no slab holds.
    pub free_units: u64,
    /// Allocation units of these that the claim must leave.
    pub reserve_units: u64,
    /// Whether it may be chosen.
    pub standing: Standing,
    /// Rows of the claiming space that already lie on it. Only `span` asks.
    pub space_rows: u64,
    /// Allocation units of it in all. Only asked where room is kept.
    pub size_units: u64,
    /// Lost disks for which the pool keeps room; of several offers, the most. 0 for none.
    pub keep: u32,
}

impl Offer {
    /// A claimable disk that is its own fault domain, with no reserve.
    #[must_use]
    pub fn alone(slot: DiskSlot, free_units: u64) -> Self {
        let domain = DomainId(u32::from(slot.0));
        Self {
            slot,
            domain,
            free_units,
            reserve_units: 0,
            standing: Standing::Claimable,
            space_rows: 0,
            size_units: free_units,
            keep: 0,
        }
    }

    /// Whether a disk is a member that holds, or may come to hold, slabs; spares count, what leaves does not.
    #[must_use]
    pub const fn stays(&self) -> bool {
        matches!(self.standing, Standing::Claimable | Standing::Away | Standing::Spare)
    }

    /// Allocation units that a claim may take.
    #[must_use]
    pub fn claimable_units(&self) -> u64 {
        match self.standing {
            Standing::Claimable => self.free_units.saturating_sub(self.reserve_units),
            Standing::Excluded | Standing::Away | Standing::Spare | Standing::Leaving => 0,
        }
    }
}

/// One disk of a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bin {
    pub(crate) slot: DiskSlot,
    pub(crate) free: u64,
}

/// Disks that one rule binds.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// Claimable allocation units of all its disks.
    pub(crate) free: u64,
    pub(crate) bins: Vec<Bin>,
}

impl Group {
    /// Slabs of so many allocation units that it can take for one row of `shape`.
    pub(crate) fn room(&self, shape: &Shape, slab_units: u64) -> u32 {
        let fitting = self.bins.iter().filter(|bin| bin.free >= slab_units).count();
        u32::try_from(fitting).unwrap_or(u32::MAX).min(shape.group_max())
    }
}

/// All claimable disks, grouped.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) groups: Vec<Group>,
    /// Slabs that a row may have at most, so that it can be repaired; `None` for as many as there are groups.
    pub(crate) width_max: Option<u32>,
    /// Losses for which room is kept.
    pub(crate) losses: u32,
}

impl Field {
    /// Groups the offers for rows of which `narrowest` is the narrowest shape, but for those of disks that are left out. What is kept
    /// for repair is reckoned with all of them.
    pub(crate) fn new(
        (offers, left_out): (&[Offer], &[DiskSlot]),
        resiliency: Resiliency,
        narrowest: &Shape,
        shapes: &[Shape],
    ) -> Self {
        let kind = RowKind::of(resiliency, narrowest, shapes);
        let UsableOffers { mut offers, width_max, losses } = apply_kept_room(offers, kind);
        offers.retain(|offer| !left_out.contains(&offer.slot));
        let mut members: Vec<&Offer> =
            offers.iter().filter(|offer| offer.standing == Standing::Claimable).collect();
        let by_domain = resiliency.survives() > 0 && Self::has_domains(&offers, narrowest);
        members.sort_unstable_by_key(|offer| (by_domain.then_some(offer.domain), offer.slot));
        assert!(
            members.iter().zip(members.iter().skip(1)).all(|(one, next)| one.slot != next.slot),
            "a disk was offered twice, so two slabs of a row could land on it"
        );
        let groups: Vec<Group> = members
            .chunk_by(|one, next| by_domain && one.domain == next.domain)
            .map(|disks| Group {
                free: disks.iter().map(|offer| offer.claimable_units()).sum(),
                bins: disks.iter().map(|o| Bin { slot: o.slot, free: o.claimable_units() }).collect(),
            })
            .collect();
        // What these alone can repair: one that is left out may be about to leave.
        let spare = u32::try_from(groups.len()).unwrap_or(u32::MAX).saturating_sub(losses);
        let is_all = left_out.is_empty();
        let width_max = width_max.map(|most| if is_all { most } else { most.min(spare) });
        Self { groups, width_max, losses }
    }

    /// Whether there are fault domains enough for rows of which `narrowest` is the narrowest shape.
    pub(crate) fn has_domains(offers: &[Offer], narrowest: &Shape) -> bool {
        let members = offers.iter().filter(|offer| offer.standing == Standing::Claimable);
        let domains: BTreeSet<DomainId> = members.map(|offer| offer.domain).collect();
        u32::try_from(domains.len()).unwrap_or(u32::MAX) >= narrowest.groups_min()
    }

    /// Groups, as a count that compares with widths.
    pub(crate) fn group_count(&self) -> u32 {
        u32::try_from(self.groups.len()).unwrap_or(u32::MAX)
    }

    /// Slabs of a row at most whose width is automatic.
    pub(crate) fn width_max(&self) -> u32 {
        self.width_max.map_or(u32::MAX, |most| most).min(self.group_count())
    }

    /// Sorts groups and their disks, most room first. Those about one `quantum` apart or less count as even and
    /// stand in an order that `turn` draws: in a fixed order the same disks would be partners for ever. The
    /// borders between quanta are drawn too, lest two disks on either side of one be told apart every time.
    pub(crate) fn order(&mut self, quantum: u64, turn: u64) {
        let shift = mix(turn, DiskSlot(u16::MAX)) % quantum;
        let key = |free: u64, slot: DiskSlot| (Reverse((free + shift) / quantum), mix(turn, slot), slot);
        for group in &mut self.groups {
            if group.bins.len() > 1 {
                group.bins.sort_unstable_by_key(|bin| key(bin.free, bin.slot));
            }
        }
        if self.losses > 0 {
            self.draw_order(turn);
            return;
        }
        self.groups
            .sort_by_cached_key(|group| key(group.free, group.bins.first().map_or(DiskSlot(0), |b| b.slot)));
    }

    /// An order that is drawn, each place by what room the groups have. Where room is kept for the repair of lost disks, rows
    /// are to lie evenly from the first to the last, and in every combination: what was on a lost disk goes to disks that its
    /// rows do not use, and those that are always filled together do not help each other.
    fn draw_order(&mut self, turn: u64) {
        self.groups.sort_unstable_by_key(|group| group.bins.first().map_or(DiskSlot(0), |bin| bin.slot));
        let mut left: u64 = self.groups.iter().map(|group| group.free).sum();
        for (place, number) in (0..self.groups.len()).zip(0u16..DRAWN_MAX) {
            if left == 0 {
                return;
            }
            let mut at = mix(turn, DiskSlot(number)) % left;
            let mut after = self.groups.iter().skip(place);
            let drawn = after.position(|group| {
                let is_it = at < group.free;
                at = at.saturating_sub(group.free);
                is_it
            });
            let Some(drawn) = drawn else { return };
            self.groups.swap(place, place + drawn);
            left -= self.groups.get(place).map_or(0, |group| group.free);
        }
    }
}

/// A well-mixed function of both arguments: the finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
fn mix(turn: u64, slot: DiskSlot) -> u64 {
    let mut z = turn.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ u64::from(slot.0).wrapping_mul(0xd134_2543_de82_ef95);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
