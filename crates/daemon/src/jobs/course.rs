//! How fast a job has been, and how long it may still take.

use std::any::Any;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::Eta;
use dolmen_block_io::Instant;
use dolmen_space::Progress;
use serde_json::Value;

use crate::jobs::kind::OwnState;

/// The shortest stretch that says anything.
const SAMPLE_MIN: Duration = Duration::from_millis(500);
/// Thousandths of a row or a byte are counted, so that what takes longer than a second has a speed.
const SCALE: u64 = 1000;

/// How far a job is, and how far it may have to go.
#[derive(Default)]
pub(crate) struct Course {
    pub(crate) progress: Progress,
    /// Bytes that it copies or verifies, at most; zero where nobody knows. Known when it begins, and the same until it ends.
    pub(crate) bytes_max: Cell<u64>,
    /// State of its own, of a kind that has one.
    own: Option<Rc<dyn OwnState>>,
    /// Whether it is held because another job goes before it.
    yields: Cell<bool>,
}

impl Course {
    /// Returns the course of a job with this state of its own.
    pub(crate) fn with(own: Option<Rc<dyn OwnState>>) -> Self {
        Self { own, ..Self::default() }
    }

    /// Returns the state of its own, if it is such a one.
    pub(crate) fn own<T: OwnState>(&self) -> Option<&T> {
        let own: &dyn Any = self.own.as_deref()?;
        own.downcast_ref()
    }

    /// Returns what goes on record of the state of its own.
    pub(crate) fn recorded(&self) -> Option<Value> {
        self.own.as_deref().map(OwnState::recorded)
    }

    /// Returns the number of checkpoints of its own state.
    pub(crate) fn checkpoints(&self) -> u64 {
        self.own.as_deref().map_or(0, OwnState::checkpoints)
    }

    /// Returns the course of the same job in another process, or after its pool was closed, where it resumes at its last
    /// checkpoint; none for one that begins again.
    pub(crate) fn resumed(&self) -> Option<Self> {
        let resumed = Self::with(Some(self.own.as_deref()?.resumed()));
        resumed.bytes_max.set(self.bytes_max.get());
        resumed.progress.total.set(self.progress.total.get());
        resumed.progress.done.set(self.progress.done.get());
        resumed.progress.bytes.set(self.progress.bytes.get());
        Some(resumed)
    }

    /// Holds it for a job that goes before it.
    pub(crate) fn yield_slot(&self) {
        self.yields.set(true);
        self.progress.hold();
    }

    /// Whether it is to make way, or does.
    pub(crate) fn yields(&self) -> bool {
        self.yields.get()
    }

    /// Lets it go on, also after a job that went before it.
    pub(crate) fn go_on(&self) {
        self.yields.set(false);
        self.progress.release();
    }

    /// Lets it go on, unless it makes way.
    pub(crate) fn resume(&self) {
        if !self.yields.get() {
            self.progress.release();
        }
    }

    /// Bytes that are left, as far as the rows that are done say how full rows are; where no row is done, at most.
    fn bytes_left(&self) -> u64 {
        let (done, bytes) = (self.progress.done.get(), self.progress.bytes.get());
        let most = self.bytes_max.get().saturating_sub(bytes);
        let likely = u128::from(bytes) * u128::from(self.rows_left());
        let likely = likely.checked_div(u128::from(done)).and_then(|likely| u64::try_from(likely).ok());
        likely.map_or(most, |likely| likely.min(most))
    }

    fn rows_left(&self) -> u64 {
        self.progress.total.get().saturating_sub(self.progress.done.get())
    }
}

/// The slowest and the fastest stretch, in thousandths a second.
#[derive(Debug, Clone, Copy)]
struct Range {
    slowest: u64,
    fastest: u64,
}

impl Range {
    /// How long so much still takes, in seconds.
    fn eta(self, left: u64) -> Eta {
        let left = left.saturating_mul(SCALE);
        Eta { earliest_s: left / self.fastest.max(1), latest_s: left.div_ceil(self.slowest.max(1)) }
    }
}

/// A count that grows, and how fast it has. A stretch ends when something has come of it: work that is done by the lot would
/// seem to be as fast as the moment in which a lot ends.
#[derive(Debug, Clone, Copy, Default)]
struct Speed {
    begun: Option<(Instant, u64)>,
    range: Option<Range>,
}

impl Speed {
    fn sample(&mut self, now: Instant, count: u64) {
        let Some((at, before)) = self.begun else {
            self.begun = Some((now, count));
            return;
        };
        let millis = u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX);
        if now.since(at) < SAMPLE_MIN || count <= before {
            return;
        }
        let speed = (count - before).saturating_mul(1000 * SCALE).checked_div(millis).unwrap_or(0);
        let range = self.range.get_or_insert(Range { slowest: speed, fastest: speed });
        (range.slowest, range.fastest) = (range.slowest.min(speed), range.fastest.max(speed));
        self.begun = Some((now, count));
    }
}

/// How fast a job has been.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct JobRate {
    last: Option<(Instant, u64)>,
    rows: Speed,
    bytes: Speed,
    /// Bytes a second, lately.
    rate: u64,
}

impl JobRate {
    /// Looks at a job that runs.
    pub(crate) fn sample(&mut self, now: Instant, progress: &Progress) {
        let (rows, bytes) = (progress.done.get(), progress.bytes.get());
        self.rows.sample(now, rows);
        self.bytes.sample(now, bytes);
        if let Some((at, before)) = self.last {
            if now.since(at) < SAMPLE_MIN {
                return;
            }
            let millis = u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX);
            let rate = bytes.saturating_sub(before).saturating_mul(1000).checked_div(millis);
            self.rate = rate.unwrap_or(0);
        }
        self.last = Some((now, bytes));
    }

    /// Begins again behind a pause: that is no slow period.
    pub(crate) fn pause(&mut self) {
        (self.last, self.rows.begun, self.bytes.begun, self.rate) = (None, None, None, 0);
    }

    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    /// How long it may still take: by bytes where they are known, else by rows.
    pub(crate) fn eta(&self, course: &Course) -> Option<Eta> {
        match self.bytes.range.filter(|_| course.bytes_max.get() > 0) {
            Some(range) => Some(range.eta(course.bytes_left())),
            None => self.rows.range.map(|range| range.eta(course.rows_left())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant(0) + Duration::from_millis(millis)
    }

    /// Rows that are done by the lot, all of them in the moment in which it ends, and bytes that are copied all the time: what
    /// is left is reckoned from these.
    #[test]
    fn what_is_left_is_reckoned_from_bytes_whatever_becomes_of_rows_at_once() {
        let (course, mut rate) = (Course::default(), JobRate::default());
        course.bytes_max.set(128 << 20);
        course.progress.total.set(64);
        for second in 0..=20 {
            course.progress.bytes.set(second << 20);
            course.progress.done.set(if second == 20 { 32 } else { 0 });
            rate.sample(at(1000 * second), &course.progress);
        }
        // 20 MiB in 32 rows, at 1 MiB a second: as much again, and not the 108 MiB that they might hold.
        assert_eq!(rate.eta(&course), Some(Eta { earliest_s: 20, latest_s: 20 }));
        assert_eq!(rate.rate(), 1 << 20);
    }

    #[test]
    fn without_bytes_a_lot_of_rows_is_as_fast_as_the_time_that_it_took() {
        let (course, mut rate) = (Course::default(), JobRate::default());
        course.progress.total.set(64);
        for second in 0..=40 {
            course.progress.done.set(second / 20 * 16);
            rate.sample(at(1000 * second), &course.progress);
        }
        assert_eq!(rate.eta(&course), Some(Eta { earliest_s: 40, latest_s: 40 }));
    }

    #[test]
    fn a_pause_does_not_count_as_slow() {
        let (course, mut rate) = (Course::default(), JobRate::default());
        course.bytes_max.set(100);
        for (instant, bytes) in [(0, 0), (1000, 10), (2000, 20)] {
            course.progress.bytes.set(bytes);
            rate.sample(at(instant), &course.progress);
        }
        rate.pause();
        assert_eq!(rate.rate(), 0);
        rate.sample(at(1_000_000), &course.progress);
        course.progress.bytes.set(30);
        rate.sample(at(1_001_000), &course.progress);
        assert_eq!(rate.eta(&course), Some(Eta { earliest_s: 7, latest_s: 7 }));
    }
}
