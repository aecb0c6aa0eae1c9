//! The seam to time. Durations only: nothing in the engine is ordered by a wall clock.

use std::future::Future;
use std::ops::Add;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::completion::Submission;

/// A point in time since some start that only the clock knows, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// The time from `earlier` to this, or zero.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// A monotonic clock with an alarm.
pub trait Clock {
    /// The time now. Never goes back.
    fn now(&self) -> Instant;

    /// Completes, successfully and without payload, not before `instant`.
    fn wake_at(&self, instant: Instant) -> Submission;
}

/// Waits for `duration`.
pub async fn sleep(clock: &dyn Clock, duration: Duration) {
    let _ = clock.wake_at(clock.now() + duration).await;
}

/// Waits for `future`, but not past `instant`; `None` when time ran out. The future is then dropped.
pub async fn within<T>(clock: &dyn Clock, instant: Instant, future: impl Future<Output = T>) -> Option<T> {
    let mut alarm = pin!(clock.wake_at(instant));
    let mut future = pin!(future);
    std::future::poll_fn(move |cx| poll_either(future.as_mut(), alarm.as_mut(), cx)).await
}

fn poll_either<T>(
    future: Pin<&mut impl Future<Output = T>>,
    alarm: Pin<&mut Submission>,
    cx: &mut Context<'_>,
) -> Poll<Option<T>> {
    if let Poll::Ready(value) = future.poll(cx) {
        return Poll::Ready(Some(value));
    }
    alarm.poll(cx).map(|_| None)
}
