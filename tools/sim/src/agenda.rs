//! Virtual time: what will happen when. Time stands still while tasks run and leaps to the next event when none is
//! ready.
//!
//! The clock that the engine reads may run ahead of the time in which disks work: after a clock jump alarms are due at
//! once, while commands under way take as long as before. Events of one instant happen in an order that the seed draws.

use std::cell::{Cell, RefCell};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{Clock, CompletionKey, Completions, Instant, Outcome, Payload, Submission};

use crate::random::Random;

/// What an event does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventAction {
    /// A command is answered. The number tells it from a later command in the same slot.
    Complete { disk: usize, slot: usize, number: u64 },
    /// A hung command times out.
    TimeOut { disk: usize, slot: usize, number: u64 },
    /// A write takes effect although nobody waits for it any more.
    LandDelayed { disk: usize, number: u64 },
    /// A disk that vanished comes back, unless that was done meanwhile.
    ComeBack { disk: usize, absence: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Event {
    at: Instant,
    /// Drawn: orders events of one instant.
    tie: u64,
    sequence: u64,
    event_action: EventAction,
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.tie, self.sequence).cmp(&(other.at, other.tie, other.sequence))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What comes next.
pub(crate) enum Next {
    EventAction(EventAction),
    /// An alarm rang.
    Alarm,
    /// Nothing is planned.
    Nothing,
}

/// The plan of a world.
pub(crate) struct Agenda {
    now: Cell<Instant>,
    /// How far the engine's clock is ahead.
    ahead: Cell<Duration>,
    sequence: Cell<u64>,
    ties: RefCell<Random>,
    events: RefCell<BinaryHeap<Reverse<Event>>>,
    /// By what the engine's clock must show.
    alarms: RefCell<BinaryHeap<Reverse<(Instant, u64, CompletionKey)>>>,
    wakers: RefCell<Rc<Completions>>,
}

impl Agenda {
    pub(crate) fn new(ties: Random) -> Rc<Self> {
        Rc::new(Self {
            now: Cell::default(),
            ahead: Cell::default(),
            sequence: Cell::default(),
            ties: RefCell::new(ties),
            events: RefCell::default(),
            alarms: RefCell::default(),
            wakers: RefCell::new(Completions::new()),
        })
    }

    /// The time in which disks work.
    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    /// What the engine's clock shows.
    pub(crate) fn clock_now(&self) -> Instant {
        self.now.get() + self.ahead.get()
    }

    fn next_sequence(&self) -> u64 {
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        sequence
    }

    pub(crate) fn plan(&self, after: Duration, event_action: EventAction) {
        let tie = self.ties.borrow_mut().next_u64();
        let event = Event { at: self.now.get() + after, tie, sequence: self.next_sequence(), event_action };
        self.events.borrow_mut().push(Reverse(event));
    }

    fn wake_at(&self, instant: Instant) -> Submission {
        let (key, submission) = self.wakers.borrow().begin();
        self.alarms.borrow_mut().push(Reverse((instant, self.next_sequence(), key)));
        submission
    }

    pub(crate) fn jump(&self, by: Duration) {
        self.ahead.set(self.ahead.get() + by);
    }

    /// Forgets all alarms, whose owners are dead.
    pub(crate) fn silence(&self) {
        self.alarms.borrow_mut().clear();
        self.wakers.replace(Completions::new());
    }

    /// Whether an event of a disk is due within a time that a busy core may well need.
    pub(crate) fn is_near(&self, limit: Duration) -> bool {
        self.events.borrow().peek().is_some_and(|Reverse(event)| event.at <= self.now.get() + limit)
    }

    /// Leaps to whatever comes first and takes it off the plan. Alarms ring here; deeds are the caller's.
    pub(crate) fn advance(&self) -> Next {
        let first_event = self.events.borrow().peek().map(|Reverse(event)| event.at);
        let ahead = u64::try_from(self.ahead.get().as_nanos()).unwrap_or(u64::MAX);
        let first_alarm = self
            .alarms
            .borrow()
            .peek()
            .map(|Reverse((instant, _, _))| Instant(instant.0.saturating_sub(ahead)));
        match (first_event, first_alarm) {
            (None, None) => Next::Nothing,
            (Some(event), alarm) if alarm.is_none_or(|alarm| event <= alarm) => {
                self.now.set(self.now.get().max(event));
                let event_action = self.events.borrow_mut().pop().map(|Reverse(event)| event.event_action);
                event_action.map_or(Next::Nothing, Next::EventAction)
            }
            (_, alarm) => {
                self.now.set(self.now.get().max(alarm.unwrap_or_default()));
                let notified = self.alarms.borrow_mut().pop();
                let wakers = Rc::clone(&self.wakers.borrow());
                if let Some(Reverse((_, _, key))) = notified {
                    wakers.complete(key, Outcome { result: Ok(()), payload: Payload::None });
                }
                Next::Alarm
            }
        }
    }
}

/// The engine's clock in a world.
pub(crate) struct WorldClock(pub(crate) Rc<Agenda>);

impl Clock for WorldClock {
    fn now(&self) -> Instant {
        self.0.clock_now()
    }

    fn wake_at(&self, instant: Instant) -> Submission {
        self.0.wake_at(instant)
    }
}
