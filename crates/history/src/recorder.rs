//! Folds samples into points of all resolutions, and says what is to be saved.

use std::collections::BTreeMap;

use crate::index::{Index, RINGS, SlotKey, ring_of};
use crate::level::{LEVELS, Level};
use crate::point::{Object, Point};
use crate::ring::Ring;
use crate::slot::{Entry, SLOT_BYTES_MAX, begin_of, parse_slot};

/// Bytes that the history of a pool takes, at most, before the map's own overhead, which is less than half of it.
pub const HISTORY_BYTES_MAX: u64 = 40 << 20;
/// What a slot takes in the map beside its value.
const SLOT_EXTRA_BYTES: u64 = 64;
/// The part of the room of a map that history may take.
const MAP_PARTS: u64 = 16;
/// The part of the budget that is the pool's own.
const POOL_PARTS: u64 = 8;
/// A ring is no shorter than this: a slot that is dropped, one that is read, and one that is written.
const SLOTS_MIN: u64 = 3;
/// Points begin at most so long after now; later ones are of a clock that was ahead.
const AHEAD_S: u64 = 2 * 86_400;

/// Returns the bytes that history may take in a map of so many bytes.
#[must_use]
pub fn budget_of(map_bytes: u64) -> u64 {
    (map_bytes / MAP_PARTS).min(HISTORY_BYTES_MAX)
}

/// Points of one moment, by object.
pub type Points = BTreeMap<Object, Point>;

/// Points that are not complete.
#[derive(Debug, Default)]
struct Current {
    begin_s: u64,
    points: Points,
}

/// What is to be saved as one.
#[derive(Debug)]
pub struct Saving {
    /// Slots to put.
    pub puts: Vec<(SlotKey, Vec<u8>)>,
    /// Slots to delete.
    pub deletes: Vec<SlotKey>,
    /// The index then.
    pub index: Index,
}

/// Folds samples, and keeps what is not saved. It is loaded, recalled as long as it [wants](Recorder::wanted) slots, and then used.
#[derive(Debug)]
pub struct Recorder {
    saves: u64,
    rings: Vec<Ring>,
    current: [Current; LEVELS],
    /// Of each ring, the slots before this one are to be recalled still.
    recalled: [u64; RINGS],
}

impl Recorder {
    /// Makes one of an index. [`recall`](Self::recall) has to follow.
    #[must_use]
    pub fn load(index: &Index, budget: u64) -> Self {
        let weights: u64 = Level::all().map(Level::points).sum();
        let slots_max = |ring: usize, level: Level| {
            let own = budget / POOL_PARTS;
            let group = if ring < LEVELS { own } else { budget - own };
            (group * level.points() / weights / (SLOT_BYTES_MAX as u64 + SLOT_EXTRA_BYTES)).max(SLOTS_MIN)
        };
        let rings = index.rings.iter().enumerate().filter_map(|(ring, slots)| {
            let number = u8::try_from(ring).ok()?;
            let level = SlotKey { ring: number, sequence: 0 }.level()?;
            Some(Ring::new(number, level, slots_max(ring, level), *slots))
        });
        let mut this = Self {
            saves: index.saves,
            rings: rings.collect(),
            current: Default::default(),
            recalled: index.rings.map(|slots| slots.end),
        };
        for (current, begin_s) in this.current.iter_mut().zip(index.begins_s) {
            current.begin_s = begin_s;
        }
        this
    }

    /// Returns a slot that has points of a coarser one that is not complete, or is not full itself: [`recall`](Self::recall) takes it.
    #[must_use]
    pub fn wanted(&self) -> Option<SlotKey> {
        self.numbered().zip(&self.recalled).find_map(|((ring, one), before)| {
            let sequence = before.checked_sub(1)?;
            (sequence >= one.saved().start).then_some(SlotKey { ring, sequence })
        })
    }

    /// Takes up a slot that was saved, from the newest back. One that is absent or damaged loses its points.
    pub fn recall(&mut self, key: SlotKey, slot: Option<&[u8]>) {
        let Some((level, recalled)) = key.level().zip(self.recalled.get_mut(usize::from(key.ring))) else {
            return;
        };
        *recalled = key.sequence;
        let is_open =
            self.rings.get(usize::from(key.ring)).is_some_and(|ring| !ring.saved().contains(&key.sequence));
        let coarser_s =
            level.coarser().and_then(|level| self.current.get(level.index())).map(|one| one.begin_s);
        let entries = slot.and_then(|slot| parse_slot(slot, key));
        // Those before have points before it, unless the clock went back.
        let is_enough = |first: &Entry| coarser_s.is_none_or(|coarser_s| first.at_s < coarser_s);
        if !is_open && entries.as_ref().is_some_and(|all| all.first().is_some_and(is_enough)) {
            *recalled = 0;
        }
        let mut open = Vec::new();
        for entry in entries.into_iter().flatten() {
            let Entry { at_s, object, point } = &entry;
            let finest =
                self.current.first_mut().filter(|one| level == Level::FINEST && one.begin_s == *at_s);
            if let Some(current) = finest {
                current.points.entry(*object).or_default().add(point);
                continue;
            }
            let coarser =
                level.coarser().and_then(|level| Some((level, self.current.get_mut(level.index())?)));
            if let Some((_, current)) = coarser.filter(|(level, one)| one.begin_s == level.begin(*at_s)) {
                current.points.entry(*object).or_default().add(point);
            }
            if is_open {
                open.push(entry);
            }
        }
        if is_open && let Some(ring) = self.rings.get_mut(usize::from(key.ring)) {
            ring.reopen(open);
        }
    }

    fn push(&mut self, level: Level, at_s: u64, object: Object, point: &Point) {
        if let Some(ring) = self.rings.get_mut(usize::from(ring_of(object, level))) {
            ring.push(at_s, object, point);
        }
    }

    /// Notes samples of so many seconds that end at a time.
    pub fn note(&mut self, at_s: u64, sampled: &Points) {
        self.fold(Level::FINEST, at_s, sampled);
    }

    fn fold(&mut self, level: Level, at_s: u64, points: &Points) {
        let begin_s = level.begin(at_s);
        let Some(current) = self.current.get_mut(level.index()) else { return };
        if current.begin_s != begin_s {
            let (former_s, complete) = (current.begin_s, std::mem::take(&mut current.points));
            current.begin_s = begin_s;
            for (object, point) in &complete {
                self.push(level, former_s, *object, point);
            }
            if let Some(coarser) = level.coarser().filter(|_| !complete.is_empty()) {
                self.fold(coarser, former_s, &complete);
            }
        }
        let Some(current) = self.current.get_mut(level.index()) else { return };
        for (object, point) in points {
            current.points.entry(*object).or_default().add(point);
        }
    }

    /// Returns how many times it was saved.
    #[must_use]
    pub fn saves(&self) -> u64 {
        self.saves
    }

    /// Bytes of complete slots and open ones that are not saved.
    #[must_use]
    pub fn unsaved_bytes(&self) -> usize {
        self.rings.iter().map(Ring::unsaved_bytes).sum()
    }

    /// Returns what is to be saved now. It counts once [`note_saved`](Self::note_saved) says so.
    #[must_use]
    pub fn save(&self) -> Saving {
        let (mut puts, mut deletes) = (Vec::new(), Vec::new());
        let mut index = Index { saves: self.saves + 1, ..Index::default() };
        for (begin_s, current) in index.begins_s.iter_mut().zip(&self.current) {
            *begin_s = current.begin_s;
        }
        for (number, (ring, slots)) in self.rings.iter().zip(&mut index.rings).enumerate() {
            // Coarser points that are not complete are found again in finer ones.
            let finest = self.current.first().into_iter();
            let all =
                finest.flat_map(|one| one.points.iter().map(|(object, point)| (one.begin_s, *object, point)));
            let is_own = |object: Object| usize::from(ring_of(object, Level::FINEST)) == number;
            let own: Vec<_> = all.filter(|(_, object, _)| is_own(*object)).collect();
            *slots = ring.save(&own, &mut puts, &mut deletes);
        }
        Saving { puts, deletes, index }
    }

    /// Notes that it was saved. Nothing may have been noted meanwhile.
    pub fn note_saved(&mut self, index: &Index) {
        self.saves = index.saves;
        for (ring, slots) in self.rings.iter_mut().zip(index.rings) {
            ring.note_saved(slots);
        }
    }

    /// Returns saved slots to be [checked](Self::check_age): whether those before them are older than they are kept.
    #[must_use]
    pub fn unchecked_ages(&self) -> Vec<SlotKey> {
        self.numbered()
            .filter_map(|(ring, one)| Some(SlotKey { ring, sequence: one.unchecked_ages()? }))
            .collect()
    }

    fn numbered(&self) -> impl Iterator<Item = (u8, &Ring)> {
        (0..).zip(&self.rings)
    }

    /// Drops the slots before this one if all of their points are older than they are kept.
    pub fn check_age(&mut self, key: SlotKey, slot: Option<&[u8]>, now_s: u64) {
        let (Some(level), Some(ring)) = (key.level(), self.rings.get_mut(usize::from(key.ring))) else {
            return;
        };
        let begin_s = slot.and_then(|slot| begin_of(slot, key));
        ring.check_age(key.sequence, begin_s, |begin_s| is_old(level, begin_s, now_s));
    }

    /// Forgets when slots begin that are old by now, so that they are checked again.
    pub fn check_ages_again(&mut self, now_s: u64) {
        for (number, ring) in (0..).zip(&mut self.rings) {
            let level = SlotKey { ring: number, sequence: 0 }.level();
            let is_old = |begin_s: &u64| level.is_none_or(|level| is_old(level, *begin_s, now_s));
            if ring.witness_begin_s.as_ref().is_some_and(is_old) {
                ring.witness_begin_s = None;
            }
        }
    }

    /// Returns the saved and complete slots with points of an object.
    #[must_use]
    pub fn saved_slots(&self, object: Object, level: Level) -> (u8, std::ops::Range<u64>) {
        let ring = ring_of(object, level);
        (ring, self.rings.get(usize::from(ring)).map_or(0..0, Ring::saved))
    }

    /// Returns the points of an object that no saved and complete slot has, those that are not complete among them.
    #[must_use]
    pub fn unsaved(&self, object: Object, level: Level) -> Vec<(u64, Point)> {
        let ring = self.rings.get(usize::from(ring_of(object, level)));
        let mut points: Vec<(u64, Point)> = ring
            .map(Ring::unsaved)
            .into_iter()
            .flatten()
            .filter(|entry| entry.object == object)
            .map(|entry| (entry.at_s, entry.point))
            .collect();
        // What finer points hold is not folded into this one yet.
        for current in self.current.iter().take(level.index() + 1).rev() {
            if let Some(point) = current.points.get(&object) {
                points.push((level.begin(current.begin_s), point.clone()));
            }
        }
        points
    }
}

/// Whether points before this time are older than they are kept, or of a clock that was ahead.
fn is_old(level: Level, begin_s: u64, now_s: u64) -> bool {
    begin_s.saturating_add(level.reach_s()) < now_s || begin_s > now_s.saturating_add(AHEAD_S)
}

const _: () = assert!(RINGS < 256, "a ring is named by a byte");
