//! Pages in memory: at most so many, the least lately used go first (the clock algorithm, Corbató 1968).

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::page::{Page, Pointer};

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
}

impl Cache {
    pub(crate) fn new(pages_max: usize) -> Self {
        Self { slots: Vec::new(), places: BTreeMap::new(), hand: 0, pages_max }
    }

    /// The page that a pointer names. What a place held before does not match and is not returned.
    pub(crate) fn get(&mut self, at: Pointer) -> Option<Rc<Page>> {
        let slot = self.slots.get_mut(*self.places.get(&at.page)?)?;
        if slot.page.at() != at {
            return None;
        }
        slot.used = true;
        Some(Rc::clone(&slot.page))
    }

    pub(crate) fn insert(&mut self, page: Rc<Page>) {
        let number = page.at().page;
        let slot = Slot { page, used: true };
        if let Some(place) = self.places.get(&number).and_then(|place| self.slots.get_mut(*place)) {
            *place = slot;
        } else if self.slots.len() < self.pages_max {
            self.places.insert(number, self.slots.len());
            self.slots.push(slot);
        } else {
            self.replace(number, slot);
        }
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
