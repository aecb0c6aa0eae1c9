//! Time, from the system's monotonic clock, and alarms, from a heap that the runtime looks at between batches.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::rc::Rc;

use dolmen_block_io::{Clock, CompletionKey, Completions, Instant, Outcome, Payload, Submission};
use rustix::time::{ClockId, clock_gettime};

/// Alarms for which the heap has room from the start; more make it grow once.
const ALARMS_EXPECTED: usize = 4096;

/// The monotonic clock. It counts from the start of the machine and stands still while the machine sleeps, so a
/// laptop that wakes up does not find every time limit exceeded.
pub(crate) struct MonotonicClock {
    completions: Rc<Completions>,
    alarms: RefCell<BinaryHeap<Reverse<(Instant, CompletionKey)>>>,
}

impl MonotonicClock {
    pub(crate) fn new() -> Rc<Self> {
        let alarms = RefCell::new(BinaryHeap::with_capacity(ALARMS_EXPECTED));
        Rc::new(Self { completions: Completions::new(), alarms })
    }

    /// When the next alarm rings.
    pub(crate) fn next_alarm(&self) -> Option<Instant> {
        self.alarms.borrow().peek().map(|Reverse((instant, _))| *instant)
    }

    /// Rings the alarms whose moment has come.
    pub(crate) fn ring(&self, now: Instant) {
        while let Some(key) = self.take_due(now) {
            self.completions.complete(key, Outcome { result: Ok(()), payload: Payload::None });
        }
    }

    fn take_due(&self, now: Instant) -> Option<CompletionKey> {
        let mut alarms = self.alarms.borrow_mut();
        let due = alarms.peek().is_some_and(|Reverse((instant, _))| *instant <= now);
        due.then(|| alarms.pop()).flatten().map(|Reverse((_, key))| key)
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Instant {
        let time = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
        Instant(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds))
    }

    fn wake_at(&self, instant: Instant) -> Submission {
        let (key, submission) = self.completions.begin();
        self.alarms.borrow_mut().push(Reverse((instant, key)));
        submission
    }
}

impl fmt::Debug for MonotonicClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MonotonicClock({} alarms)", self.alarms.borrow().len())
    }
}
