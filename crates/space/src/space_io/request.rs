//! Requests of clients, from their beginning to their end: held back where the space, or another one, has limits; counted
//! (docs/design/0017); and noted for jobs that share the disks with them (`throttle`).
//!
//! Invariant: nobody waits here with a lock, a ticket or room in hand.

use std::cell::Cell;

use dolmen_block_io::{Figures, Instant, IoKind, Started};
use dolmen_future_pool::pooled;

use crate::format::error::SpaceError;
use crate::format::limits::Limits;
use crate::resolution::space_doubt::SpaceDoubt;
use crate::resources::bucket::reached;
use crate::table::space::SpaceRows;

/// A request of a client that has begun. Dropped without an end, it counts as one that failed.
pub struct Request<'a> {
    space: &'a SpaceRows,
    started: Started,
    is_good: Cell<bool>,
    /// When jobs began to see it, as long as they do.
    throttled: Cell<Option<Instant>>,
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let now = self.space.terms.meter.end(self.started, self.is_good.get());
        let shared = &self.space.shared;
        if let Some(began) = self.throttled.take() {
            shared.throttle.end(began, now);
        }
        if self.space.list.minimum_rates.is_on() {
            self.space.list.minimum_rates.look(now, &shared.throttle);
        }
    }
}

impl Request<'_> {
    /// It waits no more for limits: from this moment on jobs see it.
    fn go_on(&self, kind: IoKind, now: Instant) {
        if matches!(kind, IoKind::Read | IoKind::Write) {
            self.space.shared.throttle.begin();
            self.throttled.set(Some(now));
        }
    }

    /// What of it says how busy disks are has ended; what comes yet is a flush, which says much of how much was written.
    pub(crate) fn is_stored(&self) {
        let shared = &self.space.shared;
        if let Some(began) = self.throttled.take() {
            shared.throttle.end(began, shared.pool.seams().clock.now());
        }
    }

    /// How it ended.
    pub(crate) fn ended<T>(self, result: Result<T, SpaceError>) -> Result<T, SpaceError> {
        self.is_good.set(result.is_ok());
        if let Err(error) = &result {
            self.space.failed_reads.note(error);
        }
        result
    }
}

/// Requests of clients: counts them, and holds them to the limits.
#[derive(Clone, Copy)]
pub(crate) struct Requests<'a> {
    space: &'a SpaceRows,
}

impl<'a> Requests<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl<'s> Requests<'s> {
    /// A request of a client begins, as soon as it may.
    pub(crate) async fn asked(self, kind: IoKind, bytes: u64) -> Request<'s> {
        let request = self.counted(kind, bytes);
        let mut now = request.started.began();
        if kind != IoKind::Flush && self.may_have_to_wait() {
            now = self.wait_for_limits(kind, bytes, now).await;
        }
        request.go_on(kind, now);
        request
    }

    /// A request that has waited already, or does not have to, begins.
    pub(crate) fn asked_after_wait(self, kind: IoKind, bytes: u64) -> Request<'s> {
        let request = self.counted(kind, bytes);
        request.go_on(kind, request.started.began());
        request
    }

    fn counted(self, kind: IoKind, bytes: u64) -> Request<'s> {
        let started = self.space.terms.meter.begin(kind, bytes);
        Request { space: self.space, started, is_good: Cell::new(false), throttled: Cell::default() }
    }

    fn may_have_to_wait(self) -> bool {
        self.space.terms.has_max() || self.space.list.minimum_rates.is_on()
    }

    /// Waits as long as the limits of the space ask for, then as long as those of others do; the time behind that.
    async fn wait_for_limits(self, kind: IoKind, bytes: u64, now: Instant) -> Instant {
        let (terms, shared) = (&self.space.terms, &self.space.shared);
        let clock = shared.pool.seams().clock.as_ref();
        // What is discarded moves no data.
        let bytes = if kind == IoKind::Discard { 0 } else { bytes };
        if terms.has_max() {
            let places = [(&terms.requests, 1), (&terms.bytes, bytes)];
            reached(clock, &places.map(|(bucket, cost)| (bucket, bucket.ask(cost, now))), || false).await;
        }
        if self.space.list.minimum_rates.is_on() {
            self.space.list.minimum_rates.look(clock.now(), &shared.throttle);
            self.space.list.minimum_rates.wait(&self.space.terms, bytes, clock).await;
        }
        clock.now()
    }

    /// Waits until the limits let a write of so much through, which [`write_waited`](crate::Space::write_waited) then does: for ways in
    /// that cannot hold a request while they take in what is to be written.
    #[pooled]
    pub(crate) async fn wait_to_write(self, length: u64) {
        if self.may_have_to_wait() {
            let now = self.space.shared.pool.seams().clock.now();
            self.wait_for_limits(IoKind::Write, length, now).await;
        }
    }

    /// What it may have of its pool's disks, and what it is to get.
    #[must_use]
    pub(crate) fn limits(self) -> Limits {
        self.space.terms.limits()
    }

    /// A request to write so much begins, as soon as the limits of the space let it: for [`write_admitted`](crate::Space::write_admitted).
    /// Whoever takes memory for what is to be written takes it behind this, so that a space that has to wait holds none that others
    /// need.
    #[pooled]
    pub(crate) async fn admit_write(self, length: u64) -> Request<'s> {
        self.asked(IoKind::Write, length).await
    }

    /// What clients asked of it since the pool was opened, or it was made, and how long that took.
    #[must_use]
    pub(crate) fn figures(self) -> Figures {
        self.space.terms.meter.look()
    }

    /// Makes everything that was acknowledged before durable.
    #[pooled]
    pub(crate) async fn flush(self) -> Result<(), SpaceError> {
        let request = self.asked(IoKind::Flush, 0).await;
        let flushed = SpaceDoubt::of(self.space).flush_all().await;
        request.ended(flushed)
    }
}
