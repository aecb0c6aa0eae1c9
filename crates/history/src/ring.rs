//! The slots of one resolution and one group of objects: appended at one end, dropped at the other.
//!
//! ```text
//!        saved, complete          saved, with room      in no index
//! ├───────────────────────────┼────────────────────┼─────────────────┤
//! first                  saved.open            saved.end         sequence
//! ```
//!
//! A save puts slots behind the end first. The index does not name them yet, so it may stop between any two of them. What changes slots
//! that the index names goes with the next index, in one change of the map.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use crate::index::{SlotKey, Slots};
use crate::level::Level;
use crate::point::{Object, Point};
use crate::question::{Question, Reach};
use crate::recorder::Saving;
use crate::slot::{Entry, SlotWriter};

/// Full slots that wait to be saved, at most: more than a minute of 300 busy objects makes, or an idle day. The oldest are dropped.
const UNSAVED_MAX: usize = 512;
/// Slots that a step of a question passes over, at most, because they are of other times.
const PASSED_MAX: u64 = 512;

#[derive(Debug)]
pub(crate) struct Ring {
    number: u8,
    level: Level,
    /// Slots that are kept, at most.
    slots_max: u64,
    /// Slots that are not complete, at most.
    open_max: u64,
    /// As they were saved last.
    saved: Slots,
    first: u64,
    /// The slot whose begin tells whether those before it are old: the next of the first one, or one behind damaged ones.
    witness: u64,
    /// When it begins, if that is known.
    pub(crate) witness_begin_s: Option<u64>,
    /// Full slots that no index names.
    full: VecDeque<(u64, Arc<[u8]>)>,
    /// Full slots before this one are in the map, or were dropped.
    placed: u64,
    open: SlotWriter,
    open_sequence: u64,
    /// Points of slots that were not full when the ring was loaded, newest slot first.
    reopened: Vec<Vec<Entry>>,
    /// How far saved slots reach that were read; none of a damaged one.
    reaches: BTreeMap<u64, Option<Reach>>,
}

impl Ring {
    pub(crate) fn new(number: u8, level: Level, slots_max: u64, open_max: u64, saved: Slots) -> Self {
        Self {
            number,
            level,
            slots_max,
            open_max,
            saved,
            first: saved.first,
            witness: saved.first + 1,
            witness_begin_s: None,
            full: VecDeque::new(),
            placed: saved.end,
            open: SlotWriter::default(),
            open_sequence: saved.open,
            reopened: Vec::new(),
            reaches: BTreeMap::new(),
        }
    }

    fn key(&self, sequence: u64) -> SlotKey {
        SlotKey { ring: self.number, sequence }
    }

    pub(crate) fn push(&mut self, at_s: u64, object: Object, point: &Point) {
        if self.open.push(self.level, at_s, object, point) {
            return;
        }
        let slot = self.open.finish(self.key(self.open_sequence));
        self.full.push_back((self.open_sequence, slot.into()));
        if self.full.len() > UNSAVED_MAX {
            self.full.pop_front();
        }
        self.open_sequence += 1;
        self.open = SlotWriter::default();
        self.open.push(self.level, at_s, object, point);
    }

    /// Takes up points of a slot that was not full, from the newest slot back. The last of them puts all of these points back.
    pub(crate) fn reopen(&mut self, sequence: u64, entries: Vec<Entry>) {
        self.reopened.push(entries);
        if sequence > self.saved.open {
            return;
        }
        for Entry { at_s, object, point } in std::mem::take(&mut self.reopened).into_iter().rev().flatten() {
            self.push(at_s, object, &point);
        }
    }

    /// Returns the slots as they were saved last.
    pub(crate) fn all_saved(&self) -> Slots {
        self.saved
    }

    /// Returns the slots that are saved, and complete.
    pub(crate) fn saved(&self) -> Range<u64> {
        self.first.min(self.saved.open)..self.saved.open
    }

    /// Returns slots with points that are complete and not saved.
    pub(crate) fn unsaved(&self) -> Vec<(SlotKey, Arc<[u8]>)> {
        let full = self.full.iter().map(|(sequence, slot)| (self.key(*sequence), Arc::clone(slot)));
        let key = self.key(self.open_sequence);
        full.chain((!self.open.is_empty()).then(|| (key, self.open.finish(key).into()))).collect()
    }

    pub(crate) fn unsaved_bytes(&self) -> usize {
        self.full.iter().map(|(_, slot)| slot.len()).sum::<usize>() + self.open.len()
    }

    /// Adds what is to be put and to be deleted; returns the slots that there are then. Points that are not complete go behind the
    /// others. Those that have no room there stay in memory alone.
    pub(crate) fn save(&self, current: &[(u64, Object, &Point)], saving: &mut Saving) -> Slots {
        let (mut open, mut sequence) = (self.open.clone(), self.open_sequence);
        let mut slots: Vec<(u64, Arc<[u8]>)> = Vec::new();
        for (at_s, object, point) in current {
            if !open.push(self.level, *at_s, *object, point) {
                slots.push((sequence, open.finish(self.key(sequence)).into()));
                sequence += 1;
                open = SlotWriter::default();
                if sequence - self.open_sequence >= self.open_max {
                    break;
                }
                open.push(self.level, *at_s, *object, point);
            }
        }
        if !open.is_empty() {
            slots.push((sequence, open.finish(self.key(sequence)).into()));
            sequence += 1;
        }
        // Slots that were dropped before they were saved leave a hole, which nothing needs.
        let first = self.first.max(sequence.saturating_sub(self.slots_max));
        let kept = |slots: Vec<(u64, Arc<[u8]>)>| {
            let kept = slots.into_iter().filter(move |slot| slot.0 >= first);
            kept.map(|(sequence, slot)| (self.key(sequence), slot))
        };
        let is_named = |slot: &(u64, Arc<[u8]>)| slot.0 < self.saved.end;
        let (again, full): (Vec<_>, Vec<_>) = self.full.iter().cloned().partition(is_named);
        saving.full.extend(kept(full.into_iter().filter(|slot| slot.0 >= self.placed).collect()));
        let (open_again, open): (Vec<_>, Vec<_>) = slots.into_iter().partition(is_named);
        saving.open.extend(kept(open));
        let rewrites: Vec<_> = kept(again).chain(kept(open_again)).collect();
        // What was not complete there is elsewhere by now, or was dropped.
        let former = (self.saved.open.max(first)..self.saved.end).map(|sequence| self.key(sequence));
        saving.withdrawn.extend(former.filter(|key| rewrites.iter().all(|(rewritten, _)| rewritten != key)));
        saving.rewrites.extend(rewrites);
        let dropped = self.saved.first..first.min(self.placed);
        saving.deletes.extend(dropped.map(|sequence| self.key(sequence)));
        Slots { first, open: self.open_sequence.max(first), end: sequence.max(first) }
    }

    /// Notes that the map has a full slot, and all full ones before it.
    pub(crate) fn note_placed(&mut self, sequence: u64) {
        self.placed = self.placed.max(sequence + 1);
    }

    /// Forgets that the map has any slots which the index does not name.
    pub(crate) fn forget_placed(&mut self) {
        self.placed = self.saved.end;
    }

    /// Notes that what [`save`](Self::save) returned is saved.
    pub(crate) fn note_saved(&mut self, slots: Slots) {
        self.saved = slots;
        self.placed = slots.end;
        self.full.clear();
        if slots.first > self.first {
            self.begin_at(slots.first);
        }
    }

    /// Drops all slots before one.
    fn begin_at(&mut self, first: u64) {
        self.first = first;
        self.reaches = self.reaches.split_off(&first);
        (self.witness, self.witness_begin_s) = (first + 1, None);
    }

    /// Returns the next slots, a few in a row, that may have points that are asked for. An empty range says that these follow behind it,
    /// if any do.
    pub(crate) fn asked(
        &self,
        question: &Question,
        within: Range<u64>,
        count_max: u64,
    ) -> Option<Range<u64>> {
        let is_asked = |sequence: &u64| match self.reaches.get(sequence) {
            None => true,
            Some(reach) => reach.is_some_and(|reach| reach.is_asked(question)),
        };
        let begin = within.start.max(self.first);
        let end = within.end.min(begin.saturating_add(PASSED_MAX));
        let Some(start) = (begin..end).find(is_asked) else { return (end < within.end).then_some(end..end) };
        let end = (start + 1..within.end)
            .take_while(is_asked)
            .take_while(|sequence| sequence - start < count_max)
            .last();
        Some(start..end.unwrap_or(start) + 1)
    }

    /// Notes how far a saved slot reaches.
    pub(crate) fn note_reach(&mut self, sequence: u64, reach: Option<Reach>) {
        if self.saved().contains(&sequence) {
            self.reaches.insert(sequence, reach);
        }
    }

    /// Returns the saved slot that is to be looked at.
    pub(crate) fn unchecked_ages(&self) -> Option<u64> {
        (self.witness_begin_s.is_none() && self.saved().contains(&self.witness)).then_some(self.witness)
    }

    /// Notes when a slot begins, or that it is damaged, and drops the slots before it if it is old as well.
    pub(crate) fn check_age(&mut self, sequence: u64, begin_s: Option<u64>, is_old: impl Fn(u64) -> bool) {
        match begin_s {
            _ if sequence != self.witness => {}
            None => self.witness += 1,
            Some(begin_s) if is_old(begin_s) => self.begin_at(sequence),
            Some(begin_s) => self.witness_begin_s = Some(begin_s),
        }
    }
}
