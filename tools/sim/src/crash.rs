//! What a power cut leaves: the cache of a disk, the fate of each write in it, and plans that try the fates out.

use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use crate::image::{ALL_SECTORS, Image, PAGE_BYTES, Piece, SECTOR};
use crate::random::Random;
use crate::trace::DiskIndex;

/// Completed writes that a disk keeps in its cache, at most; beyond it the oldest reach the medium by themselves, as
/// they may at any time.
const CACHED_WRITES_MAX: usize = 4096;
/// Up to so many writes a plan tries every subset.
pub const SUBSETS_MAX: usize = 10;
/// Random subsets that a plan draws above that.
pub const DRAWN_STATES: u64 = 256;

const _: () = assert!(SUBSETS_MAX < 16, "2^n subsets, each with torn variants, are opened one by one");

/// The bytes of one write, cut into pages.
#[derive(Clone)]
pub(crate) struct Content {
    pub(crate) at: u64,
    pub(crate) length: u64,
    pub(crate) pieces: Vec<Piece>,
}

/// What becomes of a write that was not durable when the power failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Nothing of it reached the medium.
    Lost,
    /// All of it did.
    Landed,
    /// Some of it did, in units of the disk's atomic write.
    Torn(Tear),
}

/// Which units of a torn write reached the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tear {
    /// The first so many.
    First(u64),
    /// All but the first so many.
    AllButFirst(u64),
    /// Each by a draw from this seed.
    Drawn(u64),
    /// In every block the first so many sectors; on a disk that writes blocks atomically every block.
    SectorsOfEachBlock(u8),
}

/// A write whose fate a power cut decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingWrite {
    /// On which disk.
    pub disk: DiskIndex,
    /// Where, in bytes.
    pub at: u64,
    /// How long, in bytes.
    pub length: u64,
    /// Into how many units it can be torn.
    pub unit_count: u64,
    /// Whether it had been answered.
    pub completed: bool,
}

impl Content {
    fn units_of(piece: &Piece, atomic_bytes: u32) -> u64 {
        if atomic_bytes < 4096 { u64::from(piece.sectors.count_ones()) } else { 1 }
    }

    pub(crate) fn unit_count(&self, atomic_bytes: u32) -> u64 {
        self.pieces.iter().map(|piece| Self::units_of(piece, atomic_bytes)).sum()
    }

    /// The pieces, narrowed to what a fate lets through.
    pub(crate) fn landing(&self, fate: Fate, atomic_bytes: u32) -> impl Iterator<Item = (&Piece, u8)> {
        let mut unit = 0;
        let mut draws = Random::new(if let Fate::Torn(Tear::Drawn(seed)) = fate { seed } else { 0 });
        self.pieces.iter().map(move |piece| {
            let sectors = match fate {
                Fate::Lost => 0,
                Fate::Landed => ALL_SECTORS,
                Fate::Torn(tear) if atomic_bytes < 4096 => {
                    let mut landed = 0;
                    for sector in (0..8).filter(|sector| piece.sectors & (1 << sector) != 0) {
                        landed |= u8::from(tear.lets_through(unit, sector, &mut draws)) << sector;
                        unit += 1;
                    }
                    landed
                }
                Fate::Torn(tear) => {
                    let lands = tear.lets_through(unit, 0, &mut draws);
                    unit += 1;
                    if lands { ALL_SECTORS } else { 0 }
                }
            };
            (piece, sectors)
        })
    }

    pub(crate) fn apply(&self, image: &mut Image, fate: Fate, atomic_bytes: u32) {
        for (piece, sectors) in self.landing(fate, atomic_bytes) {
            image.apply(piece, sectors);
        }
    }

    /// What a fate lets through, and the rest.
    pub(crate) fn split(&self, fate: Fate, atomic_bytes: u32) -> (Self, Self) {
        let (mut now, mut later) = (Vec::new(), Vec::new());
        for (piece, landed) in self.landing(fate, atomic_bytes) {
            for (part, sectors) in [(&mut now, piece.sectors & landed), (&mut later, piece.sectors & !landed)]
            {
                if sectors != 0 {
                    part.push(Piece { sectors, ..piece.clone() });
                }
            }
        }
        let whole = |pieces| Self { at: self.at, length: self.length, pieces };
        (whole(now), whole(later))
    }

    /// What a fate lets through.
    pub(crate) fn narrowed(&self, fate: Fate, atomic_bytes: u32) -> Self {
        self.split(fate, atomic_bytes).0
    }
}

impl Fate {
    /// Lost, landed or, when there are units to tear apart, torn: one as likely as the other.
    #[must_use]
    pub fn drawn(unit_count: u64, random: &mut Random) -> Self {
        match random.below(if unit_count > 1 { 3 } else { 2 }) {
            0 => Self::Lost,
            1 => Self::Landed,
            _ => Self::Torn(Tear::Drawn(random.next_u64())),
        }
    }
}

impl Tear {
    fn lets_through(self, unit: u64, sector: u8, draws: &mut Random) -> bool {
        match self {
            Self::First(count) => unit < count,
            Self::AllButFirst(count) => unit >= count,
            Self::Drawn(_) => draws.coin(),
            Self::SectorsOfEachBlock(count) => sector < count,
        }
    }
}

struct Held {
    order: u64,
    content: Rc<Content>,
    /// It was asked to be durable, and all of it is done: a power cut cannot take it.
    certain: bool,
}

/// The medium of a disk and the completed writes in front of it, in the order of their completion.
///
/// Durable writes wait in line as well when older ones are in front of them, so that an older write which a flush or a
/// power cut brings to the medium later never covers a newer one.
#[derive(Default)]
pub(crate) struct WriteCache {
    pub(crate) durable: Image,
    held: VecDeque<Held>,
    next_order: u64,
}

impl WriteCache {
    pub(crate) fn new(durable: Image) -> Self {
        Self { durable, ..Self::default() }
    }

    /// Stands for all writes completed so far; the next one is held under this number.
    pub(crate) fn mark(&self) -> u64 {
        self.next_order
    }

    pub(crate) fn hold(&mut self, content: Rc<Content>, certain: bool) {
        self.held.push_back(Held { order: self.next_order, content, certain });
        self.next_order += 1;
        while self.held.front().is_some_and(|held| held.certain) || self.held.len() > CACHED_WRITES_MAX {
            self.complete_first();
        }
    }

    /// From now on a power cut cannot take what is held under these numbers.
    pub(crate) fn make_certain(&mut self, orders: &[u64]) {
        for held in self.held.iter_mut().filter(|held| orders.contains(&held.order)) {
            held.certain = true;
        }
        self.flush_to(0);
    }

    fn complete_first(&mut self) {
        if let Some(held) = self.held.pop_front() {
            held.content.apply(&mut self.durable, Fate::Landed, 4096);
        }
    }

    /// Makes the writes before the mark durable.
    pub(crate) fn flush_to(&mut self, mark: u64) {
        while self.held.front().is_some_and(|held| held.order < mark || held.certain) {
            self.complete_first();
        }
    }

    /// Writes that a power cut could take, oldest first.
    pub(crate) fn uncertain(&self) -> impl Iterator<Item = &Rc<Content>> {
        self.held.iter().filter(|held| !held.certain).map(|held| &held.content)
    }

    /// Ends the cache: what `fate` lets through reaches the medium, in order.
    pub(crate) fn cut(&mut self, atomic_bytes: u32, mut fate: impl FnMut(&Content) -> Fate) {
        while let Some(held) = self.held.pop_front() {
            let fate = if held.certain { Fate::Landed } else { fate(&held.content) };
            held.content.apply(&mut self.durable, fate, atomic_bytes);
        }
    }

    /// The medium as it would be after a cut, with the cache left as it is. `fates` answers for the uncertain writes in
    /// order; one that is missing is lost.
    pub(crate) fn image_after(&self, atomic_bytes: u32, fates: &mut impl Iterator<Item = Fate>) -> Image {
        let mut image = self.durable.clone();
        for held in &self.held {
            let fate = if held.certain { Fate::Landed } else { fates.next().unwrap_or(Fate::Lost) };
            held.content.apply(&mut image, fate, atomic_bytes);
        }
        image
    }
}

/// Whether a plan tears writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tearing {
    /// Every write lands or is lost as a whole.
    Whole,
    /// In addition each write in turn is torn, its first part landing or its last, beside every choice for the others.
    OneTorn,
}

/// The fates to try out for some pending writes, one list for each state.
///
/// Up to [`SUBSETS_MAX`] writes: every subset; and with [`Tearing::OneTorn`] every subset of the others beside each torn
/// one, so 2ⁿ + t·2ⁿ states when t of n writes can be torn. Above: every prefix, every single loss, every single torn
/// write beside all or none of the others, and [`DRAWN_STATES`] random subsets.
#[derive(Debug, Clone)]
pub struct CrashPlan {
    unit_counts: Vec<u64>,
    torn: Vec<usize>,
    next: u64,
    draws: Random,
}

impl CrashPlan {
    /// A plan for writes of so many units each. `seed` is for what is drawn.
    #[must_use]
    pub fn new(unit_counts: Vec<u64>, tearing: Tearing, seed: u64) -> Self {
        let torn = match tearing {
            Tearing::Whole => Vec::new(),
            Tearing::OneTorn => {
                (0..).zip(&unit_counts).filter(|(_, units)| **units > 1).map(|(index, _)| index).collect()
            }
        };
        Self { unit_counts, torn, next: 0, draws: Random::new(seed) }
    }

    /// How many states the plan has in all.
    #[must_use]
    pub fn state_count(&self) -> u64 {
        let (count, torn) = (self.unit_counts.len() as u64, self.torn.len() as u64);
        if self.is_exhaustive() { (1 << count) * (1 + torn) } else { 2 * count + 1 + DRAWN_STATES + 4 * torn }
    }

    /// Whether every subset is tried.
    #[must_use]
    pub fn is_exhaustive(&self) -> bool {
        self.unit_counts.len() <= SUBSETS_MAX
    }

    fn each(&self, mut fate: impl FnMut(u64) -> bool) -> Vec<Fate> {
        (0..self.unit_counts.len() as u64)
            .map(|index| if fate(index) { Fate::Landed } else { Fate::Lost })
            .collect()
    }

    /// Tears write `torn` (by its place among those that can be), its first part landing or its last.
    fn with_torn(&self, mut fates: Vec<Fate>, torn: u64, first_part: bool) -> Vec<Fate> {
        let place = usize::try_from(torn).ok().and_then(|torn| self.torn.get(torn)).copied().unwrap_or(0);
        let units = self.unit_counts.get(place).copied().unwrap_or(0) / 2;
        if let Some(fate) = fates.get_mut(place) {
            *fate = Fate::Torn(if first_part { Tear::First(units) } else { Tear::AllButFirst(units) });
        }
        fates
    }

    /// State `index`: which subset, then which write is torn. The bit of a torn write itself says which part lands, so
    /// that no state comes twice.
    fn exhaustive(&self, index: u64) -> Vec<Fate> {
        let subsets = 1 << self.unit_counts.len();
        let (torn, subset) = (index / subsets, index % subsets);
        let fates = self.each(|write| subset & (1 << write) != 0);
        if torn == 0 {
            return fates;
        }
        let place = usize::try_from(torn - 1).ok().and_then(|torn| self.torn.get(torn)).copied().unwrap_or(0);
        self.with_torn(fates, torn - 1, subset & (1 << place) != 0)
    }

    fn sampled(&mut self, index: u64) -> Vec<Fate> {
        let count = self.unit_counts.len() as u64;
        let (prefixes, losses) = (count + 1, count);
        if index < prefixes {
            self.each(|write| write < index)
        } else if index < prefixes + losses {
            self.each(|write| write != index - prefixes)
        } else if index < prefixes + losses + DRAWN_STATES {
            let mut draws = self.draws.clone();
            let fates = self.each(|_| draws.coin());
            self.draws = draws;
            fates
        } else {
            let rest = index - prefixes - losses - DRAWN_STATES;
            let fates = self.each(|_| rest & 1 == 0);
            self.with_torn(fates, rest / 4, rest & 2 == 0)
        }
    }
}

impl Iterator for CrashPlan {
    type Item = Vec<Fate>;

    fn next(&mut self) -> Option<Vec<Fate>> {
        if self.next >= self.state_count() {
            return None;
        }
        let index = self.next;
        self.next += 1;
        Some(if self.is_exhaustive() { self.exhaustive(index) } else { self.sampled(index) })
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => f.write_str("lost"),
            Self::Landed => f.write_str("landed"),
            Self::Torn(Tear::First(count)) => write!(f, "torn, only the first {count} units landed"),
            Self::Torn(Tear::AllButFirst(count)) => write!(f, "torn, all but the first {count} units landed"),
            Self::Torn(Tear::Drawn(seed)) => write!(f, "torn by seed {seed:#x}"),
            Self::Torn(Tear::SectorsOfEachBlock(count)) => {
                write!(f, "torn, {count} sectors of each block landed")
            }
        }
    }
}

impl fmt::Display for PendingWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { disk, at, length, completed, .. } = self;
        write!(
            f,
            "{disk}: {} write of {length} bytes at {at}",
            if *completed { "completed" } else { "unanswered" }
        )
    }
}

const _: () = assert!(PAGE_BYTES / SECTOR == 8, "fates go through the eight sectors of a page");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn distinct(plan: CrashPlan) -> (u64, usize) {
        let count = plan.state_count();
        let all: Vec<_> = plan.collect();
        assert_eq!(all.len() as u64, count);
        (count, all.iter().map(|fates| format!("{fates:?}")).collect::<BTreeSet<_>>().len())
    }

    #[test]
    fn up_to_ten_writes_have_exactly_their_subsets() {
        for count in 0..=SUBSETS_MAX {
            let (planned, seen) = distinct(CrashPlan::new(vec![1; count], Tearing::OneTorn, 1));
            assert_eq!((planned, seen), (1 << count, 1 << count));
        }
    }

    #[test]
    fn each_tearable_write_is_torn_both_ways_with_every_choice() {
        let (planned, seen) = distinct(CrashPlan::new(vec![2, 1, 8], Tearing::OneTorn, 1));
        assert_eq!((planned, seen), (8 + 2 * 8, 8 + 2 * 8));
    }

    #[test]
    fn many_writes_are_sampled_with_every_prefix_and_every_single_loss() {
        let plan = CrashPlan::new(vec![8; 20], Tearing::OneTorn, 1);
        assert_eq!(plan.state_count(), 21 + 20 + DRAWN_STATES + 80);
        let all: Vec<Vec<Fate>> = plan.collect();
        for length in 0..=20 {
            let prefix: Vec<Fate> =
                (0..20).map(|write| if write < length { Fate::Landed } else { Fate::Lost }).collect();
            assert!(all.contains(&prefix));
        }
        for lost in 0..20 {
            let state: Vec<Fate> =
                (0..20).map(|write| if write == lost { Fate::Lost } else { Fate::Landed }).collect();
            assert!(all.contains(&state));
        }
        assert_eq!(
            all.iter().filter(|fates| fates.iter().any(|fate| matches!(fate, Fate::Torn(_)))).count(),
            80
        );
    }

    proptest! {
        // Cached and durable writes and flushes in any order, then a cut that loses everything uncertain: each sector
        // is as the last write to it that was durable or flushed left it.
        #[test]
        fn what_was_certain_or_flushed_survives_whatever_the_cut_takes(
            steps in proptest::collection::vec((0u64..32, 1usize..9, 0u8..6, any::<u8>()), 1..40),
        ) {
            let mut cache = WriteCache::default();
            let (mut kept, mut seen) = (vec![0u8; 64], vec![0u8; 64]);
            let mut newest_kept = vec![0usize; 64];
            let mut newest = vec![0usize; 64];
            for (step, (sector, count, kind, byte)) in steps.into_iter().enumerate() {
                if kind == 0 {
                    cache.flush_to(cache.mark());
                    (kept, newest_kept) = (seen.clone(), newest.clone());
                    continue;
                }
                let bytes = vec![byte; count * SECTOR];
                let pieces = crate::image::pieces_of(sector * 512, &bytes);
                let content = Content { at: sector * 512, length: bytes.len() as u64, pieces };
                cache.hold(Rc::new(content), kind == 1);
                for place in usize::try_from(sector).unwrap()..usize::try_from(sector).unwrap() + count {
                    (seen[place], newest[place]) = (byte, step + 1);
                    if kind == 1 {
                        (kept[place], newest_kept[place]) = (byte, step + 1);
                    }
                }
            }
            let image = cache.image_after(512, &mut std::iter::empty());
            cache.cut(512, |_| Fate::Lost);
            prop_assert_eq!(image.first_difference(&cache.durable, 1 << 15), None);
            for (sector, byte) in kept.iter().enumerate() {
                let mut found = [0; SECTOR];
                cache.durable.read((sector * SECTOR) as u64, &mut found);
                prop_assert!(found.iter().all(|b| b == byte), "sector {}", sector);
            }
        }
    }
}
