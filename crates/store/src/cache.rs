//! Pages in memory: at most so many, the least lately used go first (the clock algorithm, Corbató 1968).

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use crate::page::{Page, Pointer};

/// The part of a full cache that pages may take which are read aside.
const ASIDE_PARTS: usize = 16;

/// Use of the cache by a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caching {
    /// Pages that were read stay as long as others are used less.
    Kept,
    /// Pages that were read take room that is free, or that of others read like this: what many readers need is not displaced by
    /// one long read.
    Aside,
}

struct Slot {
    page: Rc<Page>,
    used: bool,
}

/// A bounded set of pages.
pub(crate) struct Cache {
    slots: Vec<Slot>,
    places: BTreeMap<u64, usize>,
    hand: usize,
    pages_max: usize,
    /// Pages that took the room of others when they were read aside, the oldest first.
    aside: VecDeque<u64>,
}

impl Cache {
    pub(crate) fn new(pages_max: usize) -> Self {
        Self { slots: Vec::new(), places: BTreeMap::new(), hand: 0, pages_max, aside: VecDeque::new() }
    }

    /// The page that a pointer names. What a place held before does not match and is not returned.
    pub(crate) fn get(&mut self, at: Pointer, caching: Caching) -> Option<Rc<Page>> {
        let slot = self.slots.get_mut(*self.places.get(&at.page)?)?;
        if slot.page.at() != at {
            return None;
        }
        slot.used |= caching == Caching::Kept;
        Some(Rc::clone(&slot.page))
    }

    pub(crate) fn insert(&mut self, page: Rc<Page>, caching: Caching) {
        let number = page.at().page;
        let slot = Slot { page, used: caching == Caching::Kept };
        if let Some(place) = self.places.get(&number).and_then(|place| self.slots.get_mut(*place)) {
            *place = slot;
        } else if self.slots.len() < self.pages_max {
            self.places.insert(number, self.slots.len());
            self.slots.push(slot);
        } else if caching == Caching::Kept {
            self.replace(number, slot);
        } else {
            self.replace_aside(number, slot);
        }
    }

    /// Replaces the oldest page that was read aside and is not used otherwise, once these have their part of the cache.
    fn replace_aside(&mut self, number: u64, new: Slot) {
        let is_full = self.aside.len() >= self.pages_max / ASIDE_PARTS;
        while let Some(oldest) = self.aside.pop_front_if(|_| is_full) {
            let place = self.places.get(&oldest).copied();
            let Some((place, slot)) = place.and_then(|place| Some((place, self.slots.get_mut(place)?)))
            else {
                continue;
            };
            if !slot.used {
                *slot = new;
                self.places.remove(&oldest);
                self.places.insert(number, place);
                self.aside.push_back(number);
                return;
            }
        }
        self.replace(number, new);
        self.aside.push_back(number);
    }

    fn replace(&mut self, number: u64, new: Slot) {
        // Two rounds suffice: the first clears every mark.
        for _ in 0..=2 * self.slots.len() {
            let hand = self.hand;
            self.hand = (hand + 1) % self.slots.len().max(1);
            let Some(slot) = self.slots.get_mut(hand) else { return };
            if slot.used {
                slot.used = false;
                continue;
            }
            self.places.remove(&slot.page.at().page);
            *slot = new;
            self.places.insert(number, hand);
            return;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }
}
