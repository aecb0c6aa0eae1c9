//! Room that claims leave so that lost disks can be repaired on the others (docs/design/0023).
//!
//! What is kept on each disk follows from sizes alone, and not from what is on them, so that the figure for an empty pool
//! is the one for a full pool. It depends on the request: rows with more slabs need more disks to move to.
//!
//! *Even sizes.* With sizes `sᵢ`, and `S` for all of them but the disks that may be lost, each disk is filled to the share
//! `S / (all)` of its size: what is on the lost ones then fits what is free on the others, whichever they are, because the
//! largest are reckoned with.
//!
//! *Uneven sizes.* A disk that is larger than the others together can use of it is reckoned as no larger than that: rows of
//! `g` slabs on the disks that are left can have `R` slabs on a disk at most, where `g·R ≤ Σ min(sᵢ, R)` (McNaughton's rule,
//! as in `bound.rs`).
//!
//! *Rows.* A slab that is lost goes to a disk that the row does not use. Shares are exact where rows lie evenly; a few slabs
//! for each disk are kept beside them for those that do not.

use std::collections::{BTreeMap, BTreeSet};

use crate::field::{DomainId, Offer, Standing};
use crate::request::Resiliency;
use crate::shape::Shape;

/// Slabs that each disk keeps beside its share, because rows do not lie as evenly as shares are reckoned.
const SLACK_SLABS: u64 = 2;
/// At most such a part of it.
const SLACK_OF_DISK: u64 = 16;
/// And such a part of what is kept in all.
const SLACK_PART: u64 = 4;

/// What rows of a request are, as far as repair asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowKind {
    /// Fault domains without which no row can be; 1 where nothing is to be repaired.
    pub(crate) groups_min: u32,
    /// Slabs of its widest row, where that may be chosen and no two of them may share a group; else as `groups_min`.
    pub(crate) groups_max: u32,
    /// Of these, the ones that hold no data.
    pub(crate) parity: u32,
    /// Lost disks that a row survives.
    pub(crate) survives: u32,
    /// The longest slab of its narrowest row.
    pub(crate) slab_units: u64,
}

impl RowKind {
    pub(crate) fn of(resiliency: Resiliency, narrowest: &Shape, shapes: &[Shape]) -> Self {
        let survives = resiliency.survives();
        let groups_min = if survives > 0 { narrowest.groups_min() } else { 1 };
        let widest = shapes.iter().map(Shape::groups_min).max().unwrap_or(groups_min).max(groups_min);
        let groups_max = if narrowest.parity > 0 { widest } else { groups_min };
        Self { groups_min, groups_max, parity: narrowest.parity, survives, slab_units: narrowest.long_units }
    }
}

/// How many lost disks a pool can be repaired for by what its disks have free, up to what its people want to keep; and what
/// is left to be kept when that is less, because room was used for a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kept {
    /// Losses that people want room for.
    pub wanted: u32,
    /// Losses that there is room for.
    pub losses: u32,
}

/// Whether rows may lie on a disk now.
const fn holds(offer: &Offer) -> bool {
    matches!(offer.standing, Standing::Claimable | Standing::Away)
}

/// Allocation units of a disk that claims may use in all.
const fn size(offer: &Offer) -> u64 {
    offer.size_units.saturating_sub(offer.reserve_units)
}

const fn used(offer: &Offer) -> u64 {
    offer.size_units.saturating_sub(offer.free_units)
}

/// For how many losses the members have room, by what is on them in all.
#[must_use]
pub fn kept(offers: &[Offer]) -> Kept {
    let wanted = offers.iter().map(|offer| offer.keep).max().unwrap_or(0);
    let all_used = all_used(offers);
    let sizes = largest_first(offers.iter().filter(|offer| offer.stays()).map(size));
    let left_without = |losses: u32| sizes.iter().skip(as_index(losses)).sum::<u64>();
    let losses = (1..=wanted).rev().find(|losses| all_used <= left_without(*losses)).unwrap_or(0);
    Kept { wanted, losses }
}

/// What claims may find, once room is kept: offers with larger reserves, and how wide rows may be that can be repaired.
#[derive(Debug, Clone)]
pub(crate) struct UsableOffers {
    pub(crate) offers: Vec<Offer>,
    /// Slabs of a row at most that survives a loss by parity; `None` for as many as there are groups.
    pub(crate) width_max: Option<u32>,
    /// Losses for which room is kept. Where there are some, disks are filled in proportion to what each may hold, so that
    /// rows lie evenly from the first to the last.
    pub(crate) losses: u32,
}

/// Turns offers of a pool that keeps room into those that a claim may use. Others stay what they are.
pub(crate) fn apply_kept_room(offers: &[Offer], kind: RowKind) -> UsableOffers {
    let mut usable = UsableOffers { offers: offers.to_vec(), width_max: None, losses: 0 };
    if offers.iter().all(|offer| offer.keep == 0) {
        return usable;
    }
    let losses = repairable(offers, kept(offers).losses, kind);
    if losses == 0 {
        usable.offers.iter_mut().for_each(|offer| offer.keep = 0);
        stay_within(&mut usable.offers, left_in_all(offers, 0));
        return usable;
    }
    let worlds = Left::all(offers, losses, kind);
    let shares: Vec<(&Left, Share)> = worlds.iter().map(|left| (left, left.share(offers))).collect();
    for offer in &mut usable.offers {
        // What it is without goes to whoever looks at the offers again.
        offer.keep = 0;
        if !holds(offer) {
            continue;
        }
        let most = |(left, share): &(&Left, Share)| {
            let most = share.of(left.useful(offer));
            let slack = (SLACK_SLABS * kind.slab_units).min(most / SLACK_OF_DISK);
            if share.is_whole() { most } else { most - slack }
        };
        let most = shares.iter().map(most).min().unwrap_or(0);
        offer.reserve_units = offer.size_units.saturating_sub(most).max(offer.reserve_units);
    }
    stay_within(&mut usable.offers, left_in_all(offers, losses));
    usable.losses = losses;
    let width = worlds.iter().map(|left| left.width).min();
    usable.width_max = width.filter(|_| kind.parity > 0 && losses > 0);
    usable
}

/// Of so many losses, those behind which enough disks are left for a row of this kind. Nothing is kept where none are: rows that
/// need all disks cannot be repaired before one comes, and whoever has such rows, because a disk was lost, goes on to write.
fn repairable(offers: &[Offer], losses: u32, kind: RowKind) -> u32 {
    let disks = offers.iter().filter(|offer| offer.stays()).count();
    let spare = disks.saturating_sub(as_index(kind.groups_min));
    losses.min(u32::try_from(spare).unwrap_or(u32::MAX))
}

/// Of the losses that people want room for, those behind which rows of this kind can be repaired, as far as the number of disks
/// goes. Of rows that survive none, nothing is to be repaired.
pub(crate) fn repairable_of_wanted(offers: &[Offer], kind: RowKind) -> u32 {
    let wanted = kept(offers).wanted;
    if kind.survives == 0 { wanted } else { repairable(offers, wanted, kind) }
}

/// Allocation units that may be claimed before the disks that are left could not take all there is.
fn left_in_all(offers: &[Offer], losses: u32) -> u64 {
    let sizes = largest_first(offers.iter().filter(|offer| offer.stays()).map(size));
    sizes.iter().skip(as_index(losses)).sum::<u64>().saturating_sub(all_used(offers))
}

/// Kinds of rows that fill different disks may together find more than one kind alone: all claims together stay within what
/// is left, so that it is never claims that use room up.
fn stay_within(offers: &mut [Offer], left: u64) {
    let claimable: u64 = offers.iter().map(Offer::claimable_units).sum();
    if claimable <= left {
        return;
    }
    for offer in offers.iter_mut().filter(|offer| offer.standing == Standing::Claimable) {
        offer.reserve_units = offer.free_units - part(offer.claimable_units(), left, claimable);
    }
}

fn all_used(offers: &[Offer]) -> u64 {
    offers.iter().filter(|offer| offer.standing != Standing::Excluded).map(used).sum()
}

/// The members once so many disks are lost, in groups that may each hold one slab of a row.
struct Left {
    /// What the largest group can use of its size.
    level: u64,
    /// Slabs of a row with which the disks hold most.
    width: u32,
    /// Allocation units of each group with all its disks, by domain; empty where each disk is a group of its own.
    domains: BTreeMap<DomainId, u64>,
    /// What those that stay can use when the disks are lost.
    useful: u64,
}

impl Left {
    /// What may be left. Where a loss can leave too few fault domains to keep a row apart by them, and another one does not,
    /// both count: behind the one, slabs go to any disk; behind the other, they keep to domains.
    fn all(offers: &[Offer], losses: u32, kind: RowKind) -> Vec<Self> {
        let members = || offers.iter().filter(|offer| offer.stays());
        let mut counts: BTreeMap<DomainId, u32> = BTreeMap::new();
        members().for_each(|offer| *counts.entry(offer.domain).or_insert(0) += 1);
        // Rows lie by domains where those that hold some are enough; a spare may be in one of its own.
        let domains: BTreeSet<DomainId> =
            members().filter(|offer| holds(offer)).map(|offer| offer.domain).collect();
        let now = u32::try_from(domains.len()).unwrap_or(u32::MAX);
        let left = count_left(counts.into_values().collect(), losses);
        let needed = if kind.survives > 0 { kind.groups_min } else { u32::MAX };
        let worlds: &[bool] = match (now >= needed, left >= needed) {
            (true, true) => &[true],
            (true, false) => &[true, false],
            (false, _) => &[false],
        };
        worlds.iter().map(|by_domain| Self::of(members().collect(), losses, kind, *by_domain)).collect()
    }

    fn of(mut members: Vec<&Offer>, losses: u32, kind: RowKind, by_domain: bool) -> Self {
        // A group of its own for each disk where domains do not count.
        let group = |offer: &Offer| match by_domain {
            true => offer.domain,
            false => DomainId(u32::from(offer.slot.0)),
        };
        let mut groups: BTreeMap<DomainId, u64> = BTreeMap::new();
        members.iter().for_each(|offer| *groups.entry(group(offer)).or_default() += size(offer));
        let all = largest_first(groups.values().copied());
        let whole = groups.clone();
        let least = spread_level(&all, kind.groups_min + losses);
        for _ in 0..losses {
            let left = groups.values().filter(|size| **size > 0).count();
            let empties = !by_domain || left > as_index(kind.groups_min);
            let lost = worst_loss(&mut members, &groups, group, (least, empties));
            lost.into_iter().for_each(|(group, size)| *groups.entry(group).or_default() -= size);
        }
        let rest = largest_first(groups.into_values().filter(|size| *size > 0));
        let groups = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let level = |width: u32| level(&rest, width).min(spread_level(&all, width + losses));
        let width = best_width(&rest, kind, groups, level);
        let level = level(width);
        let useful = rest.iter().map(|size| (*size).min(level)).sum();
        Self { level, width, domains: if by_domain { whole } else { BTreeMap::new() }, useful }
    }

    /// What of a disk rows can use.
    fn useful(&self, offer: &Offer) -> u64 {
        let own = size(offer);
        match self.domains.get(&offer.domain) {
            None => own.min(self.level),
            Some(group) if *group <= self.level => own,
            Some(group) => part(own, self.level, *group),
        }
    }

    /// The part of what is useful that may be used.
    fn share(&self, offers: &[Offer]) -> Share {
        let leaving: u64 = offers.iter().filter(|offer| offer.standing == Standing::Leaving).map(used).sum();
        let all = offers.iter().filter(|offer| holds(offer)).map(|offer| self.useful(offer)).sum();
        let lost = all - self.useful.min(all);
        Share { part: self.useful.saturating_sub(leaving + lost / SLACK_PART).min(all), of: all }
    }
}

#[derive(Debug, Clone, Copy)]
struct Share {
    part: u64,
    of: u64,
}

impl Share {
    const fn is_whole(self) -> bool {
        self.part == self.of
    }

    fn of(self, units: u64) -> u64 {
        part(units, self.part, self.of)
    }
}

/// `units · of / whole`, rounded down.
fn part(units: u64, of: u64, whole: u64) -> u64 {
    let scaled = u128::from(units) * u128::from(of) / u128::from(whole.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// The most slabs that a disk can hold of rows of `slabs` slabs on these sizes, largest first, in allocation units.
fn level(sizes: &[u64], slabs: u32) -> u64 {
    let slabs = as_index(slabs);
    if sizes.len() < slabs {
        return 0;
    }
    let after = |skipped: usize| sizes.iter().skip(skipped).sum::<u64>() / (slabs - skipped) as u64;
    (0..slabs).map(after).min().unwrap_or(0)
}

/// As `level`, but lower where no disk is to be in nearly every row.
fn spread_level(sizes: &[u64], slabs: u32) -> u64 {
    // Groups of several disks are their own way out: where there are no more of them, a lost slab goes to its own group.
    let most = u32::try_from(sizes.len()).unwrap_or(u32::MAX);
    level(sizes, slabs.saturating_add(1).min(most))
}

/// The width of rows in which these sizes hold most data.
fn best_width(sizes: &[u64], kind: RowKind, groups: u32, level: impl Fn(u32) -> u64) -> u32 {
    let data = |width: &u32| {
        let level = level(*width);
        let slabs: u64 = sizes.iter().map(|size| (*size).min(level)).sum();
        part(slabs, (*width - kind.parity).into(), (*width).into())
    };
    let most = kind.groups_max.min(groups).max(kind.groups_min);
    (kind.groups_min..=most).max_by_key(data).unwrap_or(kind.groups_min)
}

/// Fault domains that are left when disks are lost where they leave the fewest.
fn count_left(mut counts: Vec<u32>, losses: u32) -> u32 {
    counts.sort_unstable();
    let mut lost = losses;
    let mut left = counts.len();
    for count in counts {
        if count > lost {
            break;
        }
        lost -= count;
        left -= 1;
    }
    u32::try_from(left).unwrap_or(u32::MAX)
}

/// Takes the disk out of the members whose loss leaves least that can be used, and tells its group and its size.
fn worst_loss(
    members: &mut Vec<&Offer>,
    groups: &BTreeMap<DomainId, u64>,
    group: impl Fn(&Offer) -> DomainId,
    (level, may_empty_a_group): (u64, bool),
) -> Option<(DomainId, u64)> {
    let of_group = |offer: &Offer| groups.get(&group(offer)).copied().unwrap_or(0);
    let is_meant = |offer: &Offer| may_empty_a_group || of_group(offer) > size(offer);
    let costs = |offer: &Offer| {
        let before = of_group(offer);
        (before.min(level) - before.saturating_sub(size(offer)).min(level), size(offer))
    };
    let meant = members.iter().enumerate().filter(|(_, offer)| is_meant(offer));
    let worst = meant.max_by_key(|(_, offer)| costs(offer)).map(|(index, _)| index)?;
    let lost = members.swap_remove(worst);
    Some((group(lost), size(lost)))
}

fn largest_first<S: IntoIterator<Item = u64>>(sizes: S) -> Vec<u64> {
    let mut sizes: Vec<u64> = sizes.into_iter().collect();
    sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
    sizes
}

fn as_index(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
