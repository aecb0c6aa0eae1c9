//! How much went through a place, and how fast lately: by the clock that the engine is given.

use std::cell::{Cell, RefCell};

use dolmen_block_io::Instant;

/// A place for each second of what counts as lately.
const PLACES: usize = 10;
const LATELY_S: u64 = PLACES as u64;
const SECOND_NS: u64 = 1_000_000_000;

/// Bytes of one second.
#[derive(Debug, Clone, Copy, Default)]
struct Second {
    number: u64,
    bytes: u64,
}

/// What went through, as it is seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowView {
    /// Bytes since the pool was opened.
    pub bytes: u64,
    /// Bytes a second, on the average of the last ten seconds.
    pub bytes_per_second: u64,
}

/// What went through.
#[derive(Default)]
pub(crate) struct Flow {
    total: Cell<u64>,
    seconds: RefCell<[Second; PLACES]>,
}

impl Flow {
    /// Notes bytes that went through now.
    pub(crate) fn add(&self, now: Instant, bytes: u64) {
        self.total.set(self.total.get() + bytes);
        let number = now.0 / SECOND_NS;
        let mut seconds = self.seconds.borrow_mut();
        // Each second has a place of its own among the last ten.
        let place = usize::try_from(number % LATELY_S).unwrap_or(0);
        let Some(second) = seconds.get_mut(place) else { return };
        if second.number != number {
            *second = Second { number, bytes: 0 };
        }
        second.bytes += bytes;
    }

    /// Bytes that went through since the pool was opened.
    pub(crate) fn total(&self) -> u64 {
        self.total.get()
    }

    /// How it is now.
    pub(crate) fn view(&self, now: Instant) -> FlowView {
        let number = now.0 / SECOND_NS;
        let seconds = self.seconds.borrow();
        let lately = seconds.iter().filter(|second| second.number + LATELY_S > number);
        let bytes: u64 = lately.map(|second| second.bytes).sum();
        FlowView { bytes: self.total.get(), bytes_per_second: bytes / LATELY_S }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_ten_seconds() {
        let flow = Flow::default();
        let at = |seconds: u64| Instant(seconds * SECOND_NS + 5);
        assert_eq!(flow.view(at(3)), FlowView::default());
        flow.add(at(3), 1000);
        flow.add(at(12), 500);
        let seen = |second| (flow.view(at(second)).bytes, flow.view(at(second)).bytes_per_second);
        assert_eq!(seen(12), (1500, 150));
        assert_eq!(seen(13), (1500, 50));
        assert_eq!(seen(22), (1500, 0));
        flow.add(at(23), 70);
        assert_eq!(seen(23), (1570, 7));
    }
}
