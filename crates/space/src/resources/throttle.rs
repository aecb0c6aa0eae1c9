//! How hard jobs work while clients do (docs/design/0014).
//!
//! Whoever copies or verifies for a job rests after each run, in proportion to the time that the run took. How long is found out
//! by what clients get: requests that take longer than the job's limit double the rests, others shorten them. Nobody rests while
//! no client wants anything.
//!
//! Invariant: nobody rests with a lock on blocks, or with memory that others wait for.

use std::cell::Cell;
use std::time::Duration;

use dolmen_block_io::{Clock, Instant, sleep};

/// How much of the disks' time a job takes at most while clients use the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// An eighth.
    Low,
    /// Half.
    Normal,
    /// All that it can get.
    #[default]
    High,
}

impl Priority {
    /// The shortest rest, as a multiple of the time for which was worked.
    fn least_rest(self) -> f64 {
        match self {
            Self::Low => 7.0,
            Self::Normal => 1.0,
            Self::High => 0.0,
        }
    }
}

/// How a job shares the disks with clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JobShare {
    /// How much it takes at most while they want anything.
    pub priority: Priority,
    /// How long one in twenty of their reads and writes may take. What takes longer for other reasons slows the job down too, as
    /// far as to a sixty-fourth.
    pub latency_limit: Option<Duration>,
}

/// For how long clients are looked at, at least, before rests are made longer or shorter; and at most, where they ask for little.
const WINDOW: Duration = Duration::from_millis(100);
const WINDOW_MAX: Duration = Duration::from_millis(500);
/// Requests that say enough.
const SAMPLE: u32 = 40;
/// After so long without a request, clients want nothing.
const IDLE: Duration = Duration::from_millis(500);
/// Of requests, one in so many may take longer than the limit.
const SLOW_ONE_IN: u32 = 20;
/// The longest rest, as a multiple of the time for which was worked; and as a time.
const REST_MAX: f64 = 63.0;
const REST_TIME_MAX: Duration = Duration::from_secs(1);
/// The shortest one that is kept to because of the limit.
const REST_MIN: f64 = 0.25;
/// What becomes of a rest when all went well.
const SHORTER: f64 = 0.85;

/// A job that rested so lately is at work still: the longest rest, and a run.
const AT_WORK: Duration = Duration::from_secs(2);
/// What becomes of the rests at a time, and at first, where a space lacks what it is to get.
const LONGER: f64 = 4.0;

/// What clients got lately, and what that leaves to jobs.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    job_share: Cell<JobShare>,
    /// Requests of clients that are under way.
    under_way: Cell<u32>,
    last: Cell<Option<Instant>>,
    window_began: Cell<Instant>,
    ended: Cell<u32>,
    slow: Cell<u32>,
    rest: Cell<f64>,
    /// Rests that leave spaces what they are to get (`minimum_rate`).
    left: Cell<f64>,
    /// When a job rested last.
    rested: Cell<Option<Instant>>,
}

impl Throttle {
    /// Gives the jobs of the pool another effort.
    pub(crate) fn set(&self, job_share: JobShare) {
        self.job_share.set(job_share);
        self.rest.set(0.0);
    }

    pub(crate) fn job_share(&self) -> JobShare {
        self.job_share.get()
    }

    /// A request of a client begins; whoever says so says when it has ended.
    pub(crate) fn begin(&self) {
        self.under_way.set(self.under_way.get() + 1);
    }

    /// A request that began then has ended.
    pub(crate) fn end(&self, began: Instant, now: Instant) {
        self.under_way.set(self.under_way.get().saturating_sub(1));
        self.last.set(Some(now));
        self.note(now.since(began), now);
    }

    /// A space lacks what it is to get: jobs rest longer from now on. Whether that can be of help: one is at work, and does not
    /// rest as long as it can already.
    pub(crate) fn give_way(&self, now: Instant) -> bool {
        let is_at_work = self.rested.get().is_some_and(|rested| now.since(rested) < AT_WORK);
        let (before, least) = (self.left.get(), self.job_share.get().priority.least_rest().max(1.0));
        if !is_at_work || before >= REST_MAX {
            return false;
        }
        self.left.set((before.max(least) * LONGER).min(REST_MAX));
        true
    }

    /// Spaces have what they are to get: jobs rest less long again.
    pub(crate) fn take_back(&self) {
        self.left.set(Some(self.left.get() * SHORTER).filter(|left| *left >= REST_MIN).unwrap_or(0.0));
    }

    fn note(&self, took: Duration, now: Instant) {
        let Some(limit) = self.job_share.get().latency_limit else { return };
        self.ended.set(self.ended.get() + 1);
        self.slow.set(self.slow.get() + u32::from(took > limit));
        let window = now.since(self.window_began.get());
        if window < WINDOW || (window < WINDOW_MAX && self.ended.get() < SAMPLE) {
            return;
        }
        let is_slow = self.slow.get().saturating_mul(SLOW_ONE_IN) > self.ended.get();
        self.rest.set(match is_slow {
            true => (self.rest.get() * 2.0).clamp(REST_MIN, REST_MAX),
            false => Some(self.rest.get() * SHORTER).filter(|rest| *rest >= REST_MIN).unwrap_or(0.0),
        });
        self.window_began.set(now);
        self.ended.set(0);
        self.slow.set(0);
    }

    fn are_clients_there(&self, now: Instant) -> bool {
        self.under_way.get() > 0 || self.last.get().is_some_and(|last| now.since(last) < IDLE)
    }

    /// How long to rest after having worked for so long.
    fn rest_after(&self, worked: Duration, now: Instant) -> Duration {
        if !self.are_clients_there(now) {
            return Duration::ZERO;
        }
        let rest = self.rest.get().max(self.left.get()).max(self.job_share.get().priority.least_rest());
        worked.mul_f64(rest).min(REST_TIME_MAX)
    }

    /// Rests after having worked since a moment, as long as is due.
    pub(crate) async fn rest(&self, clock: &dyn Clock, since: Instant) {
        let now = clock.now();
        self.rested.set(Some(now));
        let due = self.rest_after(now.since(since), now);
        if due > Duration::ZERO {
            sleep(clock, due).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    fn with_limit(millis: u64) -> Throttle {
        let throttle = Throttle::default();
        throttle
            .set(JobShare { priority: Priority::High, latency_limit: Some(Duration::from_millis(millis)) });
        throttle
    }

    /// A client that makes a request after another, each of which takes so long; the time afterwards.
    fn requests(throttle: &Throttle, from: Instant, took: Duration, count: u32) -> Instant {
        (0..count).fold(from, |now, _| {
            let now = now + took;
            throttle.last.set(Some(now));
            throttle.note(took, now);
            now
        })
    }

    #[test]
    fn rests_grow_while_clients_wait_too_long_and_end_when_they_do_not() {
        let (throttle, worked) = (with_limit(10), Duration::from_millis(4));
        let fast = requests(&throttle, Instant(0), Duration::from_millis(5), 100);
        assert_eq!(throttle.rest_after(worked, fast), Duration::ZERO);
        let slow = requests(&throttle, fast, Duration::from_millis(20), 400);
        let rest = throttle.rest_after(worked, slow);
        assert!(rest >= worked * 60, "{rest:?} after eight seconds of slow requests");
        let fast = requests(&throttle, slow, Duration::from_millis(5), 3000);
        assert_eq!(throttle.rest_after(worked, fast), Duration::ZERO);
    }

    #[test]
    fn one_slow_request_in_twenty_is_no_reason_to_rest() {
        let (throttle, mut now) = (with_limit(10), Instant(0));
        for _ in 0..200 {
            now = requests(&throttle, now, Duration::from_millis(12), 1);
            now = requests(&throttle, now, Duration::from_millis(5), 20);
        }
        assert!(throttle.rest.get() < 1.0, "{}", throttle.rest.get());
    }

    #[test]
    fn jobs_rest_longer_while_a_space_lacks_something_and_less_when_it_does_not() {
        let (throttle, worked) = (Throttle::default(), Duration::from_millis(4));
        assert!(!throttle.give_way(Instant(0)), "no job is at work");
        let now = requests(&throttle, Instant(0), Duration::from_millis(1), 1);
        throttle.rested.set(Some(now));
        let steps = (0..10).take_while(|_| throttle.give_way(now)).count();
        assert_eq!((steps, throttle.rest_after(worked, now)), (3, worked * 63), "4, 16 and 63 times as long");
        (0..40).for_each(|_| throttle.take_back());
        assert_eq!(throttle.rest_after(worked, now), Duration::ZERO);
        assert!(!throttle.give_way(now + Duration::from_secs(3)), "none is at work any more");
    }

    #[test]
    fn nobody_rests_while_no_client_wants_anything() {
        let throttle = Throttle::default();
        throttle.set(JobShare { priority: Priority::Low, latency_limit: None });
        let worked = Duration::from_millis(4);
        assert_eq!(throttle.rest_after(worked, Instant(0)), Duration::ZERO);
        let busy = requests(&throttle, Instant(0), Duration::from_millis(1), 1);
        assert_eq!(throttle.rest_after(worked, busy), worked * 7);
        assert_eq!(throttle.rest_after(worked, Instant(busy.0 + 501 * MILLI)), Duration::ZERO);
        throttle.under_way.set(1);
        assert_eq!(throttle.rest_after(worked, Instant(busy.0 + 501 * MILLI)), worked * 7, "one that hangs");
    }
}
