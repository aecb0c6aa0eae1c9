//! The slots of one resolution and one group of objects: appended at one end, dropped at the other.

use std::collections::VecDeque;

use crate::index::{SlotKey, Slots};
use crate::level::Level;
use crate::point::{Object, Point};
use crate::slot::{Entry, SlotWriter, parse_slot};

/// Full slots that wait to be saved, at most: more than a minute of 300 busy objects makes, or an idle day. The oldest are dropped.
const UNSAVED_MAX: usize = 512;

#[derive(Debug)]
pub(crate) struct Ring {
    number: u8,
    level: Level,
    /// Slots that are kept, at most.
    slots_max: u64,
    /// As they were saved last.
    saved: Slots,
    first: u64,
    /// The slot whose begin tells whether those before it are old: the next of the first one, or one behind damaged ones.
    witness: u64,
    /// When it begins, if that is known.
    pub(crate) witness_begin_s: Option<u64>,
    /// Full slots that are not saved.
    full: VecDeque<(u64, Vec<u8>)>,
    open: SlotWriter,
    open_sequence: u64,
    /// Points of slots that were not full when the ring was loaded, in order.
    reopened: Vec<Entry>,
}

impl Ring {
    pub(crate) fn new(number: u8, level: Level, slots_max: u64, saved: Slots) -> Self {
        Self {
            number,
            level,
            slots_max,
            saved,
            first: saved.first,
            witness: saved.first + 1,
            witness_begin_s: None,
            full: VecDeque::new(),
            open: SlotWriter::default(),
            open_sequence: saved.open,
            reopened: Vec::new(),
        }
    }

    fn key(&self, sequence: u64) -> SlotKey {
        SlotKey { ring: self.number, sequence }
    }

    pub(crate) fn push(&mut self, at_s: u64, object: Object, point: &Point) {
        if self.open.push(self.level, at_s, object, point) {
            return;
        }
        self.full.push_back((self.open_sequence, self.open.finish(self.key(self.open_sequence))));
        if self.full.len() > UNSAVED_MAX {
            self.full.pop_front();
        }
        self.open_sequence += 1;
        self.open = SlotWriter::default();
        self.open.push(self.level, at_s, object, point);
    }

    /// Puts points of a slot that was not full before those that it has.
    pub(crate) fn reopen(&mut self, entries: Vec<Entry>) {
        let later = std::mem::take(&mut self.reopened);
        self.reopened = entries.into_iter().chain(later).collect();
        (self.open, self.full) = Default::default();
        self.open_sequence = self.saved.open;
        for Entry { at_s, object, point } in self.reopened.clone() {
            self.push(at_s, object, &point);
        }
    }

    /// Returns the slots that are saved, and complete.
    pub(crate) fn saved(&self) -> std::ops::Range<u64> {
        self.first.min(self.saved.open)..self.saved.open
    }

    /// Returns points that are complete and not saved.
    pub(crate) fn unsaved(&self) -> Vec<Entry> {
        let full = self.full.iter().filter_map(|(sequence, slot)| parse_slot(slot, self.key(*sequence)));
        let open = (!self.open.is_empty()).then(|| self.key(self.open_sequence));
        let open = open.and_then(|key| parse_slot(&self.open.finish(key), key));
        full.chain(open).flatten().collect()
    }

    pub(crate) fn unsaved_bytes(&self) -> usize {
        self.full.iter().map(|(_, slot)| slot.len()).sum::<usize>() + self.open.len()
    }

    /// Returns what to put and to delete, and the slots that there are then. Points that are not complete go behind the others.
    pub(crate) fn save(
        &self,
        current: &[(u64, Object, &Point)],
        puts: &mut Vec<(SlotKey, Vec<u8>)>,
        deletes: &mut Vec<SlotKey>,
    ) -> Slots {
        let (mut open, mut sequence) = (self.open.clone(), self.open_sequence);
        let mut slots: Vec<(u64, Vec<u8>)> = self.full.iter().cloned().collect();
        for (at_s, object, point) in current {
            if !open.push(self.level, *at_s, *object, point) {
                slots.push((sequence, open.finish(self.key(sequence))));
                sequence += 1;
                open = SlotWriter::default();
                open.push(self.level, *at_s, *object, point);
            }
        }
        if !open.is_empty() {
            slots.push((sequence, open.finish(self.key(sequence))));
            sequence += 1;
        }
        // Slots that were dropped before they were saved leave a hole, which nothing needs.
        let first = self.first.max(sequence.saturating_sub(self.slots_max));
        let is_kept = |slot: &(u64, Vec<u8>)| slot.0 >= first;
        puts.extend(slots.into_iter().filter(is_kept).map(|(sequence, slot)| (self.key(sequence), slot)));
        let dropped = self.saved.first..first.min(self.saved.end);
        let behind = sequence.max(first)..self.saved.end;
        deletes.extend(dropped.chain(behind).map(|sequence| self.key(sequence)));
        Slots { first, open: self.open_sequence.max(first), end: sequence.max(first) }
    }

    /// Notes that what [`save`](Self::save) returned is saved.
    pub(crate) fn note_saved(&mut self, slots: Slots) {
        self.saved = slots;
        self.full.clear();
        self.reopened = Vec::new();
        if slots.first > self.first {
            self.begin_at(slots.first);
        }
    }

    /// Drops all slots before one.
    fn begin_at(&mut self, first: u64) {
        self.first = first;
        (self.witness, self.witness_begin_s) = (first + 1, None);
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
