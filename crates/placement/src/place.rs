//! The choice of one row: widths from the widest down, and the groups with the most room.

use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskSlot};

use crate::bound::{Bound, FINE, Promise, Rule, fixed_rows};
use crate::field::{Field, Group, Offer, Standing};
use crate::keep::{RowKind, apply_kept_room, repairable_of_wanted};
use crate::request::{Request, Resiliency};
use crate::shape::Shape;

/// A row may cost the remaining space a 512th of its own length before a narrower one is looked for: columns that
/// differ by an interleave shift the bound by allocation units, which is no reason to give up half the width.
const LOSS_SHIFT: u32 = 9;
/// Groups whose room differs by less than a quarter of the smallest slab are about even.
const EVEN_PART: u64 = 4;

/// The code of a placed row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Columns, each on `copies` disks.
    Striped {
        /// Replicas of each column.
        copies: u32,
    },
    /// Columns numbered below `data` hold data, the `parity` columns behind them parity.
    Parity {
        /// Data columns.
        data: u32,
        /// Parity columns.
        parity: u32,
    },
}

/// Where one slab goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlabPlace {
    /// The column that it holds.
    pub column: u32,
    /// Which copy of the column.
    pub copy: u32,
    /// The disk.
    pub slot: DiskSlot,
    /// Its length.
    pub units: u64,
}

/// Where a row goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// What the columns mean.
    pub code: Code,
    /// Columns, those of parity included.
    pub columns: u32,
    /// One entry for each column and copy, in order of column, then copy.
    pub slabs: Vec<SlabPlace>,
}

/// No row can be placed. Figures are of the narrowest row that the request permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// Even with all disks empty a row would not fit.
    #[error(
        "cannot place a row: it needs {slabs_needed} disks in {groups_needed} fault domains, but the pool has {disks} in use, in {groups} domains; add disks, or choose a narrower or less redundant layout"
    )]
    TooFewDisks {
        /// Disks that take new slabs.
        disks: u32,
        /// Fault domains of these.
        groups: u32,
        /// Disks that a row needs.
        slabs_needed: u32,
        /// Fault domains that a row needs.
        groups_needed: u32,
    },
    /// There are enough disks, but too few of them have room.
    #[error(
        "cannot place a row: it needs {slabs_needed} slabs of {slab} in {groups_needed} fault domains, but only {groups_with_room} domains have room, for {slabs_with_room} slabs; add a disk, or free space"
    )]
    Full {
        /// Fault domains in which at least one slab fits beyond the reserve.
        groups_with_room: u32,
        /// Fault domains that a row needs.
        groups_needed: u32,
        /// Slabs of one row that fit.
        slabs_with_room: u32,
        /// Slabs of a row.
        slabs_needed: u32,
        /// The length of the longest of them.
        slab: Bytes,
    },
    /// It would fit, but in room that is kept for the repair of lost disks.
    #[error(
        "cannot place a row: what is free is kept so that the loss of {losses} of the disks can be repaired on the others; add a disk, free space, or have less kept with `dolmen pool set POOL --keep-room-for N`"
    )]
    Kept {
        /// Losses for which room is kept.
        losses: u32,
    },
}

/// Places rows of one request.
#[derive(Debug, Clone)]
pub struct Placer {
    pub(crate) request: Request,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) narrowest: Shape,
    pub(crate) rule: Rule,
    /// Slabs of a row at most whose width is automatic, whatever disks there are.
    pub(crate) width_max: Option<u32>,
}

/// One slab of a choice, by its place in the field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pick {
    pub(crate) group: usize,
    pub(crate) bin: usize,
    pub(crate) column: u32,
    pub(crate) copy: u32,
    pub(crate) units: u64,
}

/// A row, or several alike, placed in a field.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub(crate) shape: Shape,
    pub(crate) picks: Vec<Pick>,
    /// By how much more than their own length the rows lower the bound, in 1024ths of an allocation unit.
    pub(crate) loss: u128,
}

impl Choice {
    /// Whether the loss is within what a single row may cost.
    pub(crate) fn is_lossless(&self, rows: u64) -> bool {
        self.loss <= (u128::from(self.shape.data_units() * rows) * FINE) >> LOSS_SHIFT
    }
}

/// What an even future asks of each group now.
#[derive(Debug, Clone, Copy)]
enum Level {
    /// No group is ahead of the others by more than the order of choice mends.
    Unknown,
    /// A group can use so many allocation units until the field is full.
    Group(u64),
    /// A disk can use so many allocation units until the field is full.
    Disk(u64),
}

impl Placer {
    /// Prepares a request. `slab_units` tells how many allocation units a slab with so many bytes of data takes, tables and
    /// headers included; it must not shrink as the data grows, and is asked only here.
    #[must_use]
    pub fn new(request: Request, slab_units: impl Fn(Bytes) -> u64) -> Self {
        let shapes = Shape::all(&request, &slab_units);
        let narrowest = Shape::narrowest(&request, &slab_units);
        let rule = Rule::new(&request, &shapes, narrowest);
        Self { request, shapes, narrowest, rule, width_max: None }
    }

    /// For rows that may use the room that is kept for repair, and are to be repaired all the same when a disk is lost: no wider than
    /// rows that are claimed on these offers.
    #[must_use]
    pub fn no_wider_than_claims(mut self, offers: &[Offer]) -> Self {
        self.width_max = apply_kept_room(offers, self.kind()).width_max;
        self
    }

    /// What was asked for.
    #[must_use]
    pub const fn request(&self) -> &Request {
        &self.request
    }

    /// The most data that the offers can hold in rows of this request, fractional rows allowed.
    #[must_use]
    pub fn bound(&self, offers: &[Offer]) -> Bound {
        self.rule.bound(&self.field(offers), &self.request, &self.shapes)
    }

    /// Whether rows on these disks keep what may not be lost together in different fault domains.
    #[must_use]
    pub fn keeps_domains_apart(&self, offers: &[Offer]) -> bool {
        self.request.resiliency().survives() > 0 && Field::has_domains(offers, &self.narrowest)
    }

    /// Places one row. `turn` decides among groups that are about even: pass a number that differs from row to
    /// row, such as the row's id, so that all pairs of disks come to share rows.
    ///
    /// # Errors
    /// [`NoRoom`] when not even the narrowest permitted row fits.
    pub fn place(&self, offers: &[Offer], turn: u64) -> Result<Placement, NoRoom> {
        self.place_without(offers, &[], turn)
    }

    /// As [`place`](Self::place), on none of these disks. They are members all the same: room is kept for the repair of what is on them,
    /// and rows are no wider than can be repaired without them.
    ///
    /// # Errors
    /// As there.
    pub fn place_without(
        &self,
        offers: &[Offer],
        left_out: &[DiskSlot],
        turn: u64,
    ) -> Result<Placement, NoRoom> {
        if self.request.resiliency() == Resiliency::Span {
            return self.place_span(offers, left_out);
        }
        let mut field = self.field_without(offers, left_out);
        let choice =
            self.choose(&mut field, 1, turn).ok_or_else(|| self.no_room_of(&field, (offers, left_out)))?;
        let mut slabs: Vec<SlabPlace> = choice
            .picks
            .iter()
            .filter_map(|pick| {
                let bin = field.groups.get(pick.group)?.bins.get(pick.bin)?;
                Some(SlabPlace { column: pick.column, copy: pick.copy, slot: bin.slot, units: pick.units })
            })
            .collect();
        slabs.sort_unstable_by_key(|slab| (slab.column, slab.copy));
        Ok(Placement { code: code(&choice.shape), columns: choice.shape.columns(), slabs })
    }

    /// A span goes on where it is, so that what was written together stays together and other disks can rest.
    fn place_span(&self, offers: &[Offer], left_out: &[DiskSlot]) -> Result<Placement, NoRoom> {
        let units = self.narrowest.long_units;
        let usable = self.claimable(offers);
        let best = usable
            .iter()
            .filter(|offer| !left_out.contains(&offer.slot) && offer.claimable_units() >= units)
            .max_by_key(|offer| (offer.space_rows, offer.claimable_units(), std::cmp::Reverse(offer.slot)));
        let best =
            best.ok_or_else(|| self.no_room_of(&self.field_without(offers, left_out), (offers, left_out)))?;
        let slabs = vec![SlabPlace { column: 0, copy: 0, slot: best.slot, units }];
        Ok(Placement { code: code(&self.narrowest), columns: 1, slabs })
    }

    pub(crate) fn field(&self, offers: &[Offer]) -> Field {
        self.field_without(offers, &[])
    }

    fn field_without(&self, offers: &[Offer], left_out: &[DiskSlot]) -> Field {
        let resiliency = self.request.resiliency();
        let mut field = Field::new((offers, left_out), resiliency, &self.narrowest, &self.shapes);
        field.width_max = field.width_max.into_iter().chain(self.width_max).min();
        field
    }

    /// The same offers without room that is kept for repair: what is left may be looked at disk by disk.
    #[must_use]
    pub fn claimable(&self, offers: &[Offer]) -> Vec<Offer> {
        apply_kept_room(offers, self.kind()).offers
    }

    /// Of the losses for which room is kept, those behind which rows on these disks could be repaired, as far as the number of disks
    /// goes. Rows are placed also where that is less, because disks were lost.
    #[must_use]
    pub fn repairable(&self, offers: &[Offer]) -> u32 {
        repairable_of_wanted(offers, self.kind())
    }

    fn kind(&self) -> RowKind {
        RowKind::of(self.request.resiliency(), &self.narrowest, &self.shapes)
    }

    fn no_room_of(&self, field: &Field, (offers, left_out): (&[Offer], &[DiskSlot])) -> NoRoom {
        let losses = field.losses;
        if losses == 0 {
            return self.no_room(field);
        }
        let all: Vec<Offer> = offers.iter().map(|offer| Offer { keep: 0, ..*offer }).collect();
        self.place_without(&all, left_out, 0).map_or_else(|refused| refused, |_| NoRoom::Kept { losses })
    }

    fn no_room(&self, field: &Field) -> NoRoom {
        let shape = &self.narrowest;
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let (slabs_needed, groups_needed) = (shape.slabs(), shape.groups_min());
        let at_best: u32 =
            field.groups.iter().map(|group| count(group.bins.len()).min(shape.group_max())).sum();
        if at_best < slabs_needed {
            let disks = count(field.groups.iter().map(|group| group.bins.len()).sum());
            return NoRoom::TooFewDisks { disks, groups: field.group_count(), slabs_needed, groups_needed };
        }
        let room = || field.groups.iter().map(|group| group.room(shape, shape.long_units));
        NoRoom::Full {
            groups_with_room: count(room().filter(|slabs| *slabs > 0).count()),
            groups_needed,
            slabs_with_room: room().sum(),
            slabs_needed,
            slab: Bytes(shape.long_units * ALLOCATION_UNIT_BYTES),
        }
    }

    /// The widest of the choices that cost the remaining space least, for `rows` rows alike on the same disks.
    pub(crate) fn choose(&self, field: &mut Field, rows: u64, turn: u64) -> Option<Choice> {
        let smallest = self.shapes.iter().map(|shape| shape.short_units).min().unwrap_or(1);
        field.order((smallest * rows / EVEN_PART).max(1), turn);
        let before = self.rule.promise(field.groups.iter().map(|group| group.free));
        let level = self.level(field, before);
        let mut best: Option<Choice> = None;
        for shape in self.shapes.iter().rev().filter(|shape| self.is_wide_enough_for(shape, field)) {
            let Some(picks) = pick(field, shape, level, rows) else { continue };
            let loss = before.map_or(0, |before| self.loss(field, shape, &picks, rows, before));
            let choice = Choice { shape: *shape, picks, loss };
            if choice.is_lossless(rows) {
                return Some(choice);
            }
            if best.as_ref().is_none_or(|best| choice.loss < best.loss) {
                best = Some(choice);
            }
        }
        best
    }

    /// An automatic row is no wider than one slab to each group allows.
    fn is_wide_enough_for(&self, shape: &Shape, field: &Field) -> bool {
        *shape == self.narrowest || shape.slabs() <= field.width_max()
    }

    fn level(&self, field: &Field, promise: Option<Promise>) -> Level {
        let whole = |fine: u128| u64::try_from(fine / FINE).unwrap_or(u64::MAX);
        match (&self.rule, promise) {
            (_, Some(promise)) => Level::Group(whole(promise.level)),
            // Among disks that stand alone, the order of choice does all that a level could.
            (Rule::Fixed(shape), None) if field.groups.iter().any(|group| group.bins.len() > 1) => {
                let level = fixed_rows(field, shape) * u128::from(shape.long_units);
                if shape.group_max() == 1 { Level::Group(whole(level)) } else { Level::Disk(whole(level)) }
            }
            (_, None) => Level::Unknown,
        }
    }

    fn loss(&self, field: &Field, shape: &Shape, picks: &[Pick], rows: u64, before: Promise) -> u128 {
        let mut room: Vec<u64> = field.groups.iter().map(|group| group.free).collect();
        for pick in picks {
            if let Some(free) = room.get_mut(pick.group) {
                *free -= pick.units * rows;
            }
        }
        let after = self.rule.promise(room.into_iter()).map_or(0, |promise| promise.columns);
        let own = u128::from(shape.data_units() * rows) * FINE;
        before.columns.saturating_sub(own).saturating_sub(after)
    }
}

fn code(shape: &Shape) -> Code {
    if shape.parity > 0 {
        Code::Parity { data: shape.data_columns, parity: shape.parity }
    } else {
        Code::Striped { copies: shape.copies }
    }
}

/// Slabs that a group must take now, lest it be left with more than it can use once `rows` rows are placed.
fn must_take(group: &Group, shape: &Shape, level: Level, rows: u64) -> u32 {
    let slab = shape.long_units * rows;
    let most = u64::from(shape.group_max());
    let needed = match level {
        Level::Unknown => 0,
        Level::Group(units) => group.free.saturating_sub(units.saturating_sub(most * slab)).div_ceil(slab),
        Level::Disk(units) => {
            let later = units.saturating_sub(slab);
            let ahead =
                u64::try_from(group.bins.iter().filter(|bin| bin.free > later).count()).unwrap_or(most);
            let usable: u64 = group.bins.iter().map(|bin| bin.free.min(units)).sum();
            usable.saturating_sub(later.saturating_mul(most)).div_ceil(slab).max(ahead)
        }
    };
    u32::try_from(needed.min(most)).unwrap_or(0)
}

/// How many slabs each group takes: first what it must, then one more each, in the order of the field.
fn quotas(field: &Field, shape: &Shape, level: Level, rows: u64) -> Option<Vec<u32>> {
    let slab = shape.long_units * rows;
    let room: Vec<u32> = field.groups.iter().map(|group| group.room(shape, slab)).collect();
    let mut left = shape.slabs();
    if room.iter().sum::<u32>() < left {
        return None;
    }
    let mut quotas = Vec::with_capacity(room.len());
    for (group, room) in field.groups.iter().zip(&room) {
        let quota = must_take(group, shape, level, rows).min(*room).min(left);
        left -= quota;
        quotas.push(quota);
    }
    for target in 1..=shape.group_max() {
        for (quota, room) in quotas.iter_mut().zip(&room) {
            if left > 0 && *quota < target && *room >= target {
                *quota += 1;
                left -= 1;
            }
        }
    }
    Some(quotas)
}

/// The disks of a row, in the order of the field.
fn pick(field: &Field, shape: &Shape, level: Level, rows: u64) -> Option<Vec<Pick>> {
    let slab = shape.long_units * rows;
    let quotas = quotas(field, shape, level, rows)?;
    let spread = quotas.iter().all(|quota| *quota <= 1);
    let mut places = Vec::with_capacity(usize::try_from(shape.slabs()).unwrap_or(0));
    for ((index, group), quota) in field.groups.iter().enumerate().zip(quotas) {
        let fitting = group.bins.iter().enumerate().filter(|(_, bin)| bin.free >= slab);
        let taken = fitting.take(usize::try_from(quota).unwrap_or(0));
        places.extend(taken.map(|(bin, disk)| Place { group: index, bin, free: disk.free }));
    }
    assert!(u32::try_from(places.len()) == Ok(shape.slabs()), "quotas were kept within what fits");
    let picks = if spread { deal_longest_first(shape, &places) } else { deal_in_order(shape, &places, rows) };
    Some(picks)
}

/// A disk that was taken for a row.
#[derive(Debug, Clone, Copy)]
struct Place {
    group: usize,
    bin: usize,
    free: u64,
}

impl Place {
    fn holding(self, shape: &Shape, column: u32, copy: u32) -> Pick {
        Pick { group: self.group, bin: self.bin, column, copy, units: shape.units(column) }
    }
}

/// Where no group takes two slabs, the longest columns go to the groups with the most room.
fn deal_longest_first(shape: &Shape, places: &[Place]) -> Vec<Pick> {
    let dealt = (0u32..).zip(places);
    dealt
        .map(|(index, place)| place.holding(shape, shape.longest(index / shape.copies), index % shape.copies))
        .collect()
}

/// Columns in turn: a group's slabs follow one another and are no more than the columns, so that it never gets two
/// copies of one column. Of all columns to begin with, the one that leaves the fullest disk most room is taken.
fn deal_in_order(shape: &Shape, places: &[Place], rows: u64) -> Vec<Pick> {
    let columns = shape.columns();
    let deal = |first: u32| {
        let column = move |index: u32| (index + first) % columns;
        (0u32..).zip(places).map(move |(index, place)| (place, column(index), index / columns))
    };
    let least_left = |first: &u32| {
        deal(*first).map(|(place, column, _)| place.free.saturating_sub(shape.units(column) * rows)).min()
    };
    // Even columns leave the same wherever dealing begins.
    let starts = if shape.long_columns == columns { 1 } else { columns };
    let first = (0..starts).rev().max_by_key(least_left).unwrap_or(0);
    deal(first).map(|(place, column, copy)| place.holding(shape, column, copy)).collect()
}

/// Whether a disk takes new slabs.
pub(crate) const fn takes_slabs(offer: &Offer) -> bool {
    matches!(offer.standing, Standing::Claimable)
}
