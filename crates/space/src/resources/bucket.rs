//! A rate that is kept to, whoever asks how much (docs/design/0017).
//!
//! A bucket gives out so much in a second, and holds what it gives in a tenth of a second, full at first. Who wants more than it
//! holds goes when it is full, and what is missing is owed: those behind wait for it. Each asks once and gets its place in all
//! that was ever asked for; when its turn comes follows from that and the rate, so nobody waits for anybody in front, and another
//! rate counts at once for all that wait.
//!
//! Invariant: of any extent of time, no more goes than the rate gives in it, what the bucket holds, and one request.
//!
//! Invariant: who asks first goes first.

use std::cell::Cell;
use std::time::Duration;

use dolmen_block_io::{Clock, Instant, sleep};

/// What a bucket holds is what it gives in this part of a second.
const HELD_PARTS: u64 = 10;
/// Who waits looks after so long whether the rate is another one, or none.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const NANOS: u128 = 1_000_000_000;

/// A place in all that was ever asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u64);

/// See the top of the file.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    /// In a second; zero for as much as anybody wants.
    rate: Cell<u64>,
    /// At this moment so much had been given out in all.
    from: Cell<Instant>,
    given: Cell<u64>,
    asked: Cell<u64>,
}

impl Bucket {
    /// Whether there is a rate to keep to.
    pub(crate) fn is_on(&self) -> bool {
        self.rate.get() > 0
    }

    /// What it gives in a second; zero for as much as anybody wants.
    pub(crate) fn rate(&self) -> u64 {
        self.rate.get()
    }

    /// Gives out so much in a second from now on; zero for as much as anybody wants. Who waits keeps its place.
    pub(crate) fn set(&self, rate: u64, now: Instant) {
        let given = match self.is_on() {
            true => self.given_at(now),
            false => self.asked.get() + held(rate),
        };
        self.given.set(given);
        self.from.set(now);
        self.rate.set(rate);
    }

    /// What has been given out by then.
    fn given_at(&self, now: Instant) -> u64 {
        let passed = now.since(self.from.get()).as_nanos();
        let more = passed.saturating_mul(u128::from(self.rate.get())) / NANOS;
        self.given.get().saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
    }

    /// Whether it holds nothing, so that whoever asks has to wait.
    pub(crate) fn is_empty(&self, now: Instant) -> bool {
        self.is_on() && self.asked.get() >= self.given_at(now)
    }

    /// Asks for so much; the place to go at.
    pub(crate) fn ask(&self, cost: u64, now: Instant) -> Place {
        let held = held(self.rate.get());
        // What was given and not asked for is lost, but for what the bucket holds.
        let asked = self.asked.get().max(self.given_at(now).saturating_sub(held));
        self.asked.set(asked.saturating_add(cost));
        Place(asked.saturating_add(cost.min(held)))
    }

    /// How long it takes until this place is reached, at the rate of now.
    pub(crate) fn due(&self, place: Place, now: Instant) -> Duration {
        if !self.is_on() {
            return Duration::ZERO;
        }
        let missing = u128::from(place.0.saturating_sub(self.given.get()));
        let nanos = (missing * NANOS).div_ceil(u128::from(self.rate.get()));
        let at = Instant(self.from.get().0.saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX)));
        at.since(now)
    }
}

/// What a bucket of this rate holds.
fn held(rate: u64) -> u64 {
    (rate / HELD_PARTS).max(1)
}

/// Waits until some places of buckets are all reached, or that is not asked for any more.
pub(crate) async fn reached(clock: &dyn Clock, places: &[(&Bucket, Place)], may_go: impl Fn() -> bool) {
    while !may_go() {
        let now = clock.now();
        let due = places.iter().map(|(bucket, place)| bucket.due(*place, now)).max().unwrap_or_default();
        if due.is_zero() {
            return;
        }
        sleep(clock, due.min(LOOK_EVERY)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    /// When each goes that asks at these moments for so much, at one rate from the start on.
    fn freed(rate: u64, asked: &[(u64, u64)]) -> Vec<u64> {
        let bucket = Bucket::default();
        bucket.set(rate, Instant(0));
        let mut now = 0;
        let mut all = Vec::new();
        for (pause, cost) in asked {
            now += pause;
            let place = bucket.ask(*cost, Instant(now));
            all.push(now + u64::try_from(bucket.due(place, Instant(now)).as_nanos()).unwrap());
        }
        all
    }

    fn asked() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let pause = prop_oneof![4 => Just(0), 4 => 0..SECOND / 50, 1 => 0..3 * SECOND];
        proptest::collection::vec((pause, 1..300_u64), 1..200)
    }

    proptest! {
        /// Whoever asks when for how much: of no extent of time does more go than its rate, the bucket and one request; all go
        /// in turn, and none later than it has to.
        #[test]
        fn no_period_gets_more_than_rate_bucket_and_one_request(rate in 1..5000_u64, asked in asked()) {
            let freed = freed(rate, &asked);
            prop_assert!(freed.is_sorted());
            for first in 0..freed.len() {
                let mut sum = 0;
                for last in first..freed.len() {
                    sum += asked[last].1;
                    let given = u128::from(freed[last] - freed[first]) * u128::from(rate) / u128::from(SECOND);
                    let most = u64::try_from(given).unwrap() + 1 + held(rate) + asked[last].1;
                    prop_assert!(sum <= most, "{sum} of at most {most}");
                }
            }
            let total: u64 = asked.iter().map(|(_, cost)| *cost).sum();
            let last_came: u64 = asked.iter().map(|(pause, _)| *pause).sum();
            let latest = last_came + total * SECOND / rate + 1;
            prop_assert!(*freed.last().unwrap() <= latest, "nobody waits for nothing");
        }
    }

    #[test]
    fn an_even_stream_gets_exactly_its_rate() {
        // The bucket holds ten; from then on one each hundredth of a second.
        let freed = freed(100, &vec![(0, 1); 60]);
        assert!(freed[..10].iter().all(|at| *at == 0), "{freed:?}");
        let expected: Vec<u64> = (1..=50).map(|nth| nth * SECOND / 100).collect();
        assert_eq!(freed[10..], expected);
    }

    #[test]
    fn a_request_longer_than_the_bucket_goes_and_owes() {
        assert_eq!(freed(100, &[(0, 1000), (0, 1)]), [0, 991 * SECOND / 100]);
    }

    /// Another rate counts at once for those that wait, and none lets them go.
    #[test]
    fn another_rate_counts_for_those_that_wait() {
        let bucket = Bucket::default();
        bucket.set(10, Instant(0));
        bucket.ask(1, Instant(0));
        let place = bucket.ask(100, Instant(0));
        let after = bucket.ask(10, Instant(0));
        let due = |place, at| bucket.due(place, Instant(at)).as_millis();
        assert_eq!((due(place, 0), due(after, 0)), (100, 10_100));
        bucket.set(1000, Instant(SECOND));
        assert_eq!((due(place, SECOND), due(after, SECOND)), (0, 91));
        bucket.set(0, Instant(SECOND));
        assert_eq!((due(after, SECOND), bucket.is_on()), (0, false));
    }
}
