//! What was asked of somebody who reads and writes, and how long it took: of a disk, or of a space (docs/design/0017).
//!
//! All of it only grows, so that two looks tell what came in between.
//!
//! Invariant: each request that began ends once, whether or not anybody waits for it.
//!
//! Invariant: nothing here takes memory once it is made.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use dolmen_latency::{Distribution, Histogram};

use crate::clock::{Clock, Instant};
use crate::device::Action;

/// How long it takes until half of what is known of a disk's pace is forgotten.
const LATENCY_HALF_LIFE: Duration = Duration::from_secs(4);

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoKind {
    /// To read.
    Read,
    /// To write, zeros among it that take room.
    Write,
    /// To forget, or to read as zeros from now on.
    Discard,
    /// To make durable what was written.
    Flush,
}

impl IoKind {
    /// What an action is, and how many bytes it moves or forgets.
    #[must_use]
    pub fn of(action: &Action) -> (Self, u64) {
        match action {
            Action::Read { into, .. } => (Self::Read, into.len() as u64),
            Action::Write { from, .. } => (Self::Write, from.len() as u64),
            Action::Discard { length, .. } | Action::WriteZeroes { length, .. } => (Self::Discard, *length),
            Action::Flush => (Self::Flush, 0),
        }
    }
}

/// Requests of one kind that ended well.
#[derive(Debug, Default)]
struct RequestTotals {
    bytes: Cell<u64>,
    latency: Histogram,
}

impl RequestTotals {
    fn look(&self) -> IoFigures {
        IoFigures { bytes: self.bytes.get(), latency: self.latency.look() }
    }
}

/// Requests of one kind that ended well, since the meter was made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IoFigures {
    /// Bytes of them.
    pub bytes: u64,
    /// How many there were, and how long they took.
    pub latency: Distribution,
}

/// What a meter says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    /// When it began to count.
    pub since: Instant,
    /// When this was seen.
    pub at: Instant,
    /// Reads.
    pub reads: IoFigures,
    /// Writes.
    pub writes: IoFigures,
    /// Discards.
    pub discards: IoFigures,
    /// Flushes.
    pub flushes: IoFigures,
    /// Requests that failed.
    pub errors: u64,
    /// Requests under way at that moment.
    pub under_way: u32,
    /// The sum of the times for which requests were under way: divided by the time that passed, how many there were on average.
    pub queue: Duration,
    /// For how long there was one at least.
    pub busy: Duration,
}

/// What matters of a meter to whoever looks at it often: reads, writes and discards that ended well, and bytes that were read and
/// written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// How many requests.
    pub requests: u64,
    /// Bytes of reads and writes.
    pub bytes: u64,
    /// For how long there was a request at least, flushes among them.
    pub busy: Duration,
}

/// How long reads took of late, and when one ended last.
#[derive(Debug, Clone, Copy, Default)]
struct ReadLatency {
    ns: u64,
    at: Instant,
}

impl ReadLatency {
    /// A new read counts for an eighth.
    fn after(self, took: Duration, now: Instant) -> Self {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let ns = self.at(now);
        let ns = if took > ns { ns + (took - ns).div_ceil(8) } else { ns - (ns - took) / 8 };
        Self { ns, at: now }
    }

    /// What is not looked at is forgotten by halves, so that it is looked at again.
    fn at(self, now: Instant) -> u64 {
        let halves = now.since(self.at).as_nanos() / LATENCY_HALF_LIFE.as_nanos();
        u32::try_from(halves).ok().and_then(|halves| self.ns.checked_shr(halves)).unwrap_or(0)
    }
}

/// A request that has begun.
#[derive(Debug, Clone, Copy)]
pub struct Started {
    kind: IoKind,
    bytes: u64,
    began: Instant,
}

impl Started {
    /// When it began.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.began
    }
}

/// Counts requests.
pub struct Meter {
    clock: Rc<dyn Clock>,
    since: Instant,
    all_totals: [RequestTotals; 4],
    errors: Cell<u64>,
    requests: Cell<u64>,
    under_way: Cell<u32>,
    /// When the number of requests under way changed last.
    changed: Cell<Instant>,
    queue_ns: Cell<u64>,
    busy_ns: Cell<u64>,
    latency: Cell<ReadLatency>,
}

impl Meter {
    /// One that has counted nothing.
    #[must_use]
    pub fn new(clock: Rc<dyn Clock>) -> Rc<Self> {
        let since = clock.now();
        Rc::new(Self {
            clock,
            since,
            all_totals: Default::default(),
            errors: Cell::new(0),
            requests: Cell::new(0),
            under_way: Cell::new(0),
            changed: Cell::new(since),
            queue_ns: Cell::new(0),
            busy_ns: Cell::new(0),
            latency: Cell::default(),
        })
    }

    /// A request begins.
    pub fn begin(&self, kind: IoKind, bytes: u64) -> Started {
        let began = self.clock.now();
        self.change(began, self.under_way.get() + 1);
        Started { kind, bytes, began }
    }

    /// It has ended, well or not; the time now.
    pub fn end(&self, started: Started, is_good: bool) -> Instant {
        let now = self.clock.now();
        self.change(now, self.under_way.get().saturating_sub(1));
        if started.kind == IoKind::Read {
            self.note_read_latency(now, now.since(started.began), is_good);
        }
        if !is_good {
            self.errors.set(self.errors.get() + 1);
            return now;
        }
        let is_flush = started.kind == IoKind::Flush;
        self.requests.set(self.requests.get() + u64::from(!is_flush));
        let kind_totals = self.kind_totals(started.kind);
        kind_totals.bytes.set(kind_totals.bytes.get().saturating_add(started.bytes));
        kind_totals.latency.note(now.since(started.began));
        now
    }

    /// A read that fails at once is no sign of speed.
    fn note_read_latency(&self, now: Instant, took: Duration, is_good: bool) {
        let latency = self.latency.get();
        if is_good || took > Duration::from_nanos(latency.ns) {
            self.latency.set(latency.after(took, now));
        }
    }

    /// How long a read takes these days: the average, in which each read counts for an eighth of those before it. It halves with
    /// every four seconds in which none ends.
    #[must_use]
    pub fn read_latency(&self) -> Duration {
        Duration::from_nanos(self.latency.get().at(self.clock.now()))
    }

    fn kind_totals(&self, kind: IoKind) -> &RequestTotals {
        let [reads, writes, discards, flushes] = &self.all_totals;
        match kind {
            IoKind::Read => reads,
            IoKind::Write => writes,
            IoKind::Discard => discards,
            IoKind::Flush => flushes,
        }
    }

    fn change(&self, now: Instant, under_way: u32) {
        let (queue_ns, busy_ns) = self.passed(now);
        self.queue_ns.set(queue_ns);
        self.busy_ns.set(busy_ns);
        self.changed.set(now);
        self.under_way.set(under_way);
    }

    /// The two sums of times, as they are now.
    fn passed(&self, now: Instant) -> (u64, u64) {
        let ns = now.0.saturating_sub(self.changed.get().0);
        let under_way = u64::from(self.under_way.get());
        let queue_ns = self.queue_ns.get().saturating_add(ns.saturating_mul(under_way));
        (queue_ns, self.busy_ns.get().saturating_add(ns * under_way.min(1)))
    }

    /// The sums of what it says. Takes no memory.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let (_, busy_ns) = self.passed(self.clock.now());
        let bytes = |kind| self.kind_totals(kind).bytes.get();
        Totals {
            requests: self.requests.get(),
            bytes: bytes(IoKind::Read).saturating_add(bytes(IoKind::Write)),
            busy: Duration::from_nanos(busy_ns),
        }
    }

    /// What it says now.
    #[must_use]
    pub fn look(&self) -> Figures {
        let at = self.clock.now();
        let (queue_ns, busy_ns) = self.passed(at);
        Figures {
            since: self.since,
            at,
            reads: self.kind_totals(IoKind::Read).look(),
            writes: self.kind_totals(IoKind::Write).look(),
            discards: self.kind_totals(IoKind::Discard).look(),
            flushes: self.kind_totals(IoKind::Flush).look(),
            errors: self.errors.get(),
            under_way: self.under_way.get(),
            queue: Duration::from_nanos(queue_ns),
            busy: Duration::from_nanos(busy_ns),
        }
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Meter({} under way)", self.under_way.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryClock;

    const MILLI: Duration = Duration::from_millis(1);

    /// So much time passes.
    fn pass(clock: &MemoryClock, time: Duration) {
        drop(clock.wake_at(clock.now() + time));
        assert!(clock.jump(), "there is an alarm");
    }

    /// One slow read among fast ones is seen at once, is made up for by fast ones, and is forgotten where nobody reads.
    #[test]
    fn the_read_latency_follows_reads_and_decays() {
        let clock = MemoryClock::new();
        let meter = Meter::new(Rc::<MemoryClock>::clone(&clock));
        let read = |took: Duration, is_good: bool| {
            let started = meter.begin(IoKind::Read, 4096);
            pass(&clock, took);
            meter.end(started, is_good);
            meter.read_latency()
        };
        let fast = |reads: u32| (0..reads).fold(Duration::ZERO, |_, _| read(MILLI, true));
        fast(100);
        assert!((MILLI * 9 / 10..=MILLI).contains(&meter.read_latency()), "{:?}", meter.read_latency());
        let slow = read(50 * MILLI, true);
        assert!((7 * MILLI..8 * MILLI).contains(&slow), "{slow:?}");
        assert_eq!(read(MILLI / 1000, false), slow, "what fails at once is not fast");
        assert!(read(500 * MILLI, false) > 60 * MILLI, "what does not come is slow");
        fast(100);
        assert!(meter.read_latency() < 2 * MILLI, "{:?}", meter.read_latency());
        pass(&clock, Duration::from_secs(80));
        assert_eq!(meter.read_latency(), Duration::ZERO);
    }

    /// Two requests that overlap for a part of the time: the queue is the area below them, busy is where there is one.
    #[test]
    fn the_queue_is_the_sum_of_times_and_busy_is_not_counted_twice() {
        let clock = MemoryClock::new();
        let meter = Meter::new(Rc::<MemoryClock>::clone(&clock));
        let first = meter.begin(IoKind::Read, 4096);
        pass(&clock, 3 * MILLI);
        let second = meter.begin(IoKind::Write, 512);
        pass(&clock, 2 * MILLI);
        meter.end(first, true);
        pass(&clock, 4 * MILLI);
        let seen = meter.look();
        assert_eq!(
            (seen.queue, seen.busy, seen.under_way),
            (11 * MILLI, 9 * MILLI, 1),
            "also of one that hangs"
        );
        meter.end(second, false);
        pass(&clock, 100 * MILLI);
        let seen = meter.look();
        assert_eq!((seen.queue, seen.busy, seen.under_way), (11 * MILLI, 9 * MILLI, 0));
        assert_eq!(
            (seen.reads.bytes, seen.reads.latency.count(), seen.reads.latency.total_us()),
            (4096, 1, 5000)
        );
        assert_eq!(
            (seen.writes.bytes, seen.writes.latency.count(), seen.errors),
            (0, 0, 1),
            "what failed moved nothing"
        );
    }
}
