//! Who holds which slot: the free ones as bits of a few words, so that taking and returning one is one atomic step.
//!
//! The slots bound what is in flight. When none is free, the reading threads rest and requests wait in the kernel, where
//! they cost the daemon nothing.

use super::cores::{AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, PoisonError};
use super::region::SLOTS_MAX;

const WORD_BITS: usize = 64;
const WORDS: usize = SLOTS_MAX / WORD_BITS;
const _: () = assert!(SLOTS_MAX.is_multiple_of(WORD_BITS), "every slot has a bit");

pub(crate) struct Slots {
    free: [AtomicU64; WORDS],
    waiting: AtomicUsize,
    closed: Mutex<bool>,
    notify: Condvar,
}

impl Slots {
    /// All of the first `count` slots are free.
    pub(crate) fn new(count: usize) -> Self {
        let word = |index: usize| {
            let bits = count.saturating_sub(index * WORD_BITS).min(WORD_BITS);
            if bits == WORD_BITS { u64::MAX } else { (1 << bits) - 1 }
        };
        let free = std::array::from_fn(|index| AtomicU64::new(word(index)));
        Self { free, waiting: AtomicUsize::new(0), closed: Mutex::new(false), notify: Condvar::new() }
    }

    /// Takes a free slot, if there is one.
    pub(crate) fn try_take(&self) -> Option<usize> {
        for (word, base) in self.free.iter().zip((0..).step_by(WORD_BITS)) {
            let mut bits = word.load(Ordering::SeqCst);
            while bits != 0 {
                let bit = bits.trailing_zeros();
                match word.compare_exchange_weak(bits, bits & !(1 << bit), Ordering::SeqCst, Ordering::SeqCst)
                {
                    Ok(_) => return Some(base + bit as usize),
                    Err(now) => bits = now,
                }
            }
        }
        None
    }

    /// Takes that slot.
    ///
    /// # Panics
    /// When it is taken.
    pub(crate) fn take_one(&self, index: usize) {
        let before = self.word(index).fetch_and(!Self::bit(index), Ordering::SeqCst);
        assert!(before & Self::bit(index) != 0, "slot {index} is taken once");
    }

    /// Takes a slot as soon as one is free; `None` once the slots were closed.
    pub(crate) fn take(&self) -> Option<usize> {
        if let Some(index) = self.try_take() {
            return Some(index);
        }
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever returns a slot sees this count, or this thread sees the slot: both sides write before they look.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let taken = loop {
            if *closed {
                break None;
            }
            if let Some(index) = self.try_take() {
                break Some(index);
            }
            closed = self.notify.wait(closed).unwrap_or_else(PoisonError::into_inner);
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        taken
    }

    /// Returns a slot.
    ///
    /// # Panics
    /// When it is free: two requests in one slot would answer for each other.
    pub(crate) fn return_slot(&self, index: usize) {
        let before = self.word(index).fetch_or(Self::bit(index), Ordering::SeqCst);
        assert!(before & Self::bit(index) == 0, "slot {index} is returned once");
        if self.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.closed.lock().unwrap_or_else(PoisonError::into_inner));
            self.notify.notify_all();
        }
    }

    /// Sends away whoever waits for a slot.
    pub(crate) fn close(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.notify.notify_all();
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        let Some(word) = self.free.get(index / WORD_BITS) else { panic!("slot {index} of {SLOTS_MAX}") };
        word
    }

    fn bit(index: usize) -> u64 {
        1 << (index % WORD_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    #[test]
    fn each_slot_is_lent_once_and_all_of_them_are() {
        for count in [1, 63, 64, 65, SLOTS_MAX] {
            let slots = Slots::new(count);
            let taken: BTreeSet<usize> = std::iter::from_fn(|| slots.try_take()).collect();
            assert_eq!(taken, (0..count).collect());
            taken.iter().for_each(|index| slots.return_slot(*index));
            slots.take_one(count - 1);
            assert_eq!(std::iter::from_fn(|| slots.try_take()).count(), count - 1);
        }
    }

    #[test]
    fn who_waits_is_served_or_sent_away() {
        // Scenario: more threads than slots pass them on many times; none is lost and none is lent twice, and a close
        // ends every wait.
        let slots = Arc::new(Slots::new(2));
        let held = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let threads: Vec<_> = (0..6)
            .map(|_| {
                let (slots, held) = (Arc::clone(&slots), Arc::clone(&held));
                std::thread::Builder::new()
                    .spawn(move || {
                        for _ in 0..2000 {
                            let index = slots.take().unwrap();
                            assert_eq!(held[index].fetch_add(1, Ordering::SeqCst), 0);
                            held[index].fetch_sub(1, Ordering::SeqCst);
                            slots.return_slot(index);
                        }
                    })
                    .unwrap()
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());

        let (_a, _b) = (slots.take().unwrap(), slots.take().unwrap());
        let waiter = {
            let slots = Arc::clone(&slots);
            std::thread::Builder::new().spawn(move || slots.take()).unwrap()
        };
        slots.close();
        assert_eq!(waiter.join().unwrap(), None);
    }
}
