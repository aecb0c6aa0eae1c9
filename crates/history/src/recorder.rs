//! Folds samples into points of all resolutions, and says what is to be saved.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use dolmen_mutation::mutation;

use crate::bounds::{OBJECTS_MAX, open_max, slots_max};
use crate::index::{Index, RINGS, SlotKey, level_of, ring_of};
use crate::level::{LEVELS, Level};
use crate::point::{Object, Point};
use crate::question::{Question, Reach, Unsaved};
use crate::ring::Ring;
use crate::slot::{Entry, begin_of, parse_slot};

/// Points begin at most so long after now; later ones are of a clock that was ahead.
const AHEAD_S: u64 = 2 * 86_400;

/// Points of one moment, by object.
pub type Points = BTreeMap<Object, Point>;

/// Points that are not complete.
#[derive(Debug, Default)]
struct Current {
    begin_s: u64,
    points: Points,
}

impl Current {
    /// Adds a point of a slot. A pool has fewer objects than are taken up; slots from elsewhere may name more.
    fn take_up(&mut self, object: Object, point: &Point) {
        if self.points.len() < OBJECTS_MAX || self.points.contains_key(&object) {
            self.points.entry(object).or_default().add(point);
        }
    }
}

/// What is to be saved. It may stop behind any slot of `full`: no index names it yet.
#[derive(Debug, Default)]
pub struct Saving {
    /// Full slots, to be put first, in this order. [`Recorder::note_placed`] keeps them from being put again.
    pub full: Vec<(SlotKey, Arc<[u8]>)>,
    /// Slots with room, to be put before the index as well. The next save puts them again.
    pub open: Vec<(SlotKey, Arc<[u8]>)>,
    /// Slots that the index names already, to be put in one change with `index`: [`REWRITES_MAX`](crate::REWRITES_MAX) at most.
    pub rewrites: Vec<(SlotKey, Arc<[u8]>)>,
    /// The index.
    pub index: Index,
    /// Slots to be deleted in one change with `index`: no more than it names without them.
    pub withdrawn: Vec<SlotKey>,
    /// Slots that `index` does not name any more, to be deleted with it or behind it.
    pub deletes: Vec<SlotKey>,
}

/// Folds samples, and keeps what is not saved. It is loaded, recalled as long as it [wants](Recorder::wanted) slots, and then used.
#[derive(Debug)]
pub struct Recorder {
    saves: u64,
    rings: Vec<Ring>,
    current: [Current; LEVELS],
    /// Of each ring, the slots before this one are to be recalled still.
    recalled: [u64; RINGS],
    /// Slots that no index names, and that are not deleted yet.
    undeleted: Vec<SlotKey>,
}

impl Recorder {
    /// Makes one of an index. [`recall`](Self::recall) has to follow.
    #[must_use]
    pub fn load(index: &Index, budget: u64) -> Self {
        let rings = index.rings.iter().enumerate().filter_map(|(ring, slots)| {
            let (number, level) = (u8::try_from(ring).ok()?, level_of(ring)?);
            Some(Ring::new(number, level, slots_max(ring, level, budget), open_max(ring, level), *slots))
        });
        let mut this = Self {
            saves: index.saves,
            rings: rings.collect(),
            current: Default::default(),
            recalled: index.rings.map(|slots| slots.end),
            undeleted: Vec::new(),
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
                current.take_up(*object, point);
                continue;
            }
            let coarser =
                level.coarser().and_then(|level| Some((level, self.current.get_mut(level.index())?)));
            if let Some((_, current)) = coarser.filter(|(level, one)| one.begin_s == level.begin(*at_s)) {
                current.take_up(*object, point);
            }
            if is_open {
                open.push(entry);
            }
        }
        if is_open && let Some(ring) = self.rings.get_mut(usize::from(key.ring)) {
            ring.reopen(key.sequence, open);
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
        let mut saving = Saving { deletes: self.undeleted.clone(), ..Saving::default() };
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
            *slots = ring.save(&own, &mut saving);
        }
        Saving { index, ..saving }
    }

    /// Notes that the map has a full slot of a save, and all before it. Nothing may have been noted since that save was returned.
    pub fn note_placed(&mut self, key: SlotKey) {
        if let Some(ring) = self.rings.get_mut(usize::from(key.ring)) {
            ring.note_placed(key.sequence);
        }
    }

    /// Forgets which slots a save has put that has failed: those may be deleted now.
    pub fn forget_placed(&mut self) {
        self.rings.iter_mut().for_each(Ring::forget_placed);
    }

    /// Notes that it was saved, but for these deletes. Nothing may have been noted meanwhile.
    pub fn note_saved(&mut self, index: &Index, undeleted: Vec<SlotKey>) {
        self.saves = index.saves;
        for (ring, slots) in self.rings.iter_mut().zip(index.rings) {
            ring.note_saved(slots);
        }
        self.note_undeleted(undeleted);
    }

    /// Notes which slots are to be deleted still.
    pub fn note_undeleted(&mut self, undeleted: Vec<SlotKey>) {
        self.undeleted = if mutation!(HistoryDeletesLost) { Vec::new() } else { undeleted };
    }

    /// Returns the gaps between saved slots, as [`Index::gaps`].
    #[must_use]
    pub fn gaps(&self) -> Vec<(SlotKey, Option<SlotKey>)> {
        let mut index = Index::default();
        index.rings.iter_mut().zip(&self.rings).for_each(|(slots, ring)| *slots = ring.all_saved());
        index.gaps()
    }

    /// Returns slots that no index names, and that are to be deleted still.
    #[must_use]
    pub fn undeleted(&self) -> &[SlotKey] {
        &self.undeleted
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
        for (number, ring) in self.rings.iter_mut().enumerate() {
            let level = level_of(number);
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

    /// Returns the next slots of a ring, `count_max` in a row at most, that may have points that are asked for. An empty range says that a
    /// step has passed over many of other times: the next one begins behind it.
    #[must_use]
    pub fn asked_slots(&self, question: &Question, within: Range<u64>, count_max: u64) -> Option<Range<u64>> {
        let ring = self.rings.get(usize::from(ring_of(question.object, question.level)))?;
        ring.asked(question, within, count_max)
    }

    /// Notes how far a saved slot reaches, so that no question about other times reads it again. A damaged one reaches nowhere.
    pub fn note_reach(&mut self, key: SlotKey, reach: Option<Reach>) {
        if let Some(ring) = self.rings.get_mut(usize::from(key.ring)) {
            ring.note_reach(key.sequence, reach);
        }
    }

    /// Returns the points of an object that no saved and complete slot has, those that are not complete among them.
    #[must_use]
    pub fn unsaved(&self, object: Object, level: Level) -> Unsaved {
        let ring = self.rings.get(usize::from(ring_of(object, level)));
        let mut unsaved = Unsaved { slots: ring.map(Ring::unsaved).unwrap_or_default(), points: Vec::new() };
        // What finer points hold is not folded into this one yet.
        for current in self.current.iter().take(level.index() + 1).rev() {
            if let Some(point) = current.points.get(&object) {
                unsaved.points.push((level.begin(current.begin_s), point.clone()));
            }
        }
        unsaved
    }
}

/// Whether points before this time are older than they are kept, or of a clock that was ahead.
fn is_old(level: Level, begin_s: u64, now_s: u64) -> bool {
    begin_s.saturating_add(level.reach_s()) < now_s || begin_s > now_s.saturating_add(AHEAD_S)
}

const _: () = assert!(RINGS < 256, "a ring is named by a byte");
