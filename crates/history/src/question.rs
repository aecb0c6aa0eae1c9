//! Points of an object in a range of time, put together from slots and from what no slot has.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::index::SlotKey;
use crate::level::Level;
use crate::point::{Object, Point};
use crate::slot::parse_slot;

/// A question about history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// The object.
    pub object: Object,
    /// The resolution.
    pub level: Level,
    /// The first moment, in seconds since 1970.
    pub from_s: u64,
    /// The last moment.
    pub to_s: u64,
}

impl Question {
    /// A question about all points of an object.
    #[must_use]
    pub fn of_all(object: Object, level: Level) -> Self {
        Self { object, level, from_s: 0, to_s: u64::MAX }
    }

    /// Whether a point that begins at this time reaches into the range.
    fn is_within(&self, begin_s: u64) -> bool {
        begin_s <= self.to_s && begin_s.saturating_add(self.level.step_s()) > self.from_s
    }
}

/// The times at which the first and the last point of a slot begin, in order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    first_s: u64,
    last_s: u64,
}

impl Reach {
    /// Whether a slot with this reach may have points that are asked for.
    pub(crate) fn is_asked(self, question: &Question) -> bool {
        self.first_s <= question.to_s && self.last_s.saturating_add(question.level.step_s()) > question.from_s
    }
}

/// Points that no saved slot has.
#[derive(Debug, Default)]
pub struct Unsaved {
    pub(crate) slots: Vec<(SlotKey, Arc<[u8]>)>,
    pub(crate) points: Vec<(u64, Point)>,
}

/// Points that were found, by time.
#[derive(Debug)]
pub struct Found {
    question: Question,
    points: BTreeMap<u64, Point>,
}

impl Found {
    /// Begins with none.
    #[must_use]
    pub fn new(question: Question) -> Self {
        Self { question, points: BTreeMap::new() }
    }

    fn add(&mut self, at_s: u64, point: &Point) {
        if self.question.is_within(at_s) {
            self.points.entry(at_s).or_default().add(point);
        }
    }

    /// Adds what a slot has of the object, and returns how far the slot reaches; `None` of one that is damaged or empty.
    pub fn add_slot(&mut self, key: SlotKey, slot: &[u8]) -> Option<Reach> {
        let entries = parse_slot(slot, key)?;
        let times = entries.iter().map(|entry| entry.at_s);
        let reach = times.clone().min().zip(times.max()).map(|(first_s, last_s)| Reach { first_s, last_s });
        let object = self.question.object;
        for entry in entries.iter().filter(|entry| entry.object == object) {
            self.add(entry.at_s, &entry.point);
        }
        reach
    }

    /// Adds what no saved slot has.
    pub fn add_unsaved(&mut self, unsaved: &Unsaved) {
        for (key, slot) in &unsaved.slots {
            self.add_slot(*key, slot);
        }
        for (at_s, point) in &unsaved.points {
            self.add(*at_s, point);
        }
    }

    /// Returns the points.
    #[must_use]
    pub fn into_points(self) -> BTreeMap<u64, Point> {
        self.points
    }
}
