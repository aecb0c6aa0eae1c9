//! Waiting for each other on one thread: a notification, a mutex across awaits, and counted permits. None of it locks anything
//! that another core could hold.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use crate::ranks::{Branch, HeldRank, LockRank};

/// A bell: wakes whoever waits at the time it is rung.
#[derive(Default)]
pub struct Notify {
    rings: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
}

impl Notify {
    /// A bell that was not rung yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes everybody who waits now.
    pub fn notify_all(&self) {
        self.rings.set(self.rings.get() + 1);
        // The vector is drained, not replaced, so that its memory is kept.
        let mut waiting = self.waiting.borrow_mut();
        for waker in waiting.drain(..) {
            waker.wake();
        }
    }

    /// Waits for the next ring after this call. The count is taken at the call, so a ring between the check of a
    /// condition and the first poll is not missed.
    pub fn wait(&self) -> impl Future<Output = ()> + '_ {
        let seen = self.rings.get();
        poll_fn(move |cx| {
            if self.rings.get() != seen {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
    }

    /// Waits until `ready` gives a value, asking again after each ring.
    pub async fn wait_for<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        loop {
            let next = self.wait();
            if let Some(value) = ready() {
                return value;
            }
            next.await;
        }
    }
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Notify({} waiting)", self.waiting.borrow().len())
    }
}

/// Runs futures beside each other within one task, and gives their values in their order. Each has its own
/// [scope](crate::ranks) of held locks.
pub async fn join_all<T>(futures: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut slots: Vec<(Pin<Box<_>>, Branch, Option<T>)> =
        futures.into_iter().map(|future| (Box::pin(future), Branch::default(), None)).collect();
    poll_fn(|cx| {
        let mut waiting = false;
        for (future, branch, value) in &mut slots {
            if value.is_none() {
                match branch.poll(|| future.as_mut().poll(cx)) {
                    Poll::Ready(ready) => *value = Some(ready),
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    slots.into_iter().filter_map(|(_, _, value)| value).collect()
}

/// Lets every other task of this thread that is ready run first.
pub async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Which of two futures was ready first, with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first one, also where both were.
    First(A),
    /// The second one.
    Second(B),
}

/// Waits for the first of two futures, within one task; the other one is dropped. Each has its own [scope](crate::ranks) of
/// held locks.
pub async fn either<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> Either<A, B> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut of_a, mut of_b) = (Branch::default(), Branch::default());
    poll_fn(|cx| {
        if let Poll::Ready(value) = of_a.poll(|| a.as_mut().poll(cx)) {
            return Poll::Ready(Either::First(value));
        }
        of_b.poll(|| b.as_mut().poll(cx)).map(Either::Second)
    })
    .await
}

/// Counted permits, given out in the order they were asked for.
///
/// A release wakes the first waiter alone, so its cost does not grow with the number of waiters.
pub struct Semaphore {
    permits: Cell<u64>,
    /// Waiters by ticket, which ascend.
    queue: RefCell<VecDeque<Waiter>>,
    next_ticket: Cell<u64>,
    rank: Option<LockRank>,
}

/// A waiter of a semaphore.
struct Waiter {
    ticket: u64,
    /// Permits that it waits for.
    count: u64,
    /// Its task; `None` until it was polled.
    waker: Option<Waker>,
}

impl Semaphore {
    /// So many permits, which have no place in the order of locks.
    #[must_use]
    pub fn new(permits: u64) -> Self {
        let queue = RefCell::new(VecDeque::new());
        Self { permits: Cell::new(permits), queue, next_ticket: Cell::new(0), rank: None }
    }

    /// So many permits, taken in the order of locks.
    #[must_use]
    pub fn ranked(permits: u64, rank: LockRank) -> Self {
        Self { rank: Some(rank), ..Self::new(permits) }
    }

    /// Takes `count` permits when all who asked before have theirs.
    ///
    /// A waiter whose future is dropped releases its place.
    ///
    /// # Aborts
    /// The process, where the task holds a lock of the same rank or of a higher one.
    #[track_caller]
    pub fn acquire(&self, count: u64) -> impl Future<Output = Permit<'_>> {
        self.acquire_from(count, Location::caller())
    }

    async fn acquire_from(&self, count: u64, place: &'static Location<'static>) -> Permit<'_> {
        let held = self.rank.map(|rank| rank.take(place));
        let ticket = self.next_ticket.get();
        self.next_ticket.set(ticket + 1);
        self.queue.borrow_mut().push_back(Waiter { ticket, count, waker: None });
        let waiting = Place { semaphore: self, ticket };
        poll_fn(|cx| self.poll_first(ticket, cx)).await;
        self.permits.set(self.permits.get() - count);
        drop(waiting);
        Permit { semaphore: self, count, _held: held }
    }

    /// Takes `count` permits if they are free and no other task waits for some. Nothing waits here, so the order of locks does
    /// not matter.
    #[track_caller]
    pub fn try_acquire(&self, count: u64) -> Option<Permit<'_>> {
        if !self.queue.borrow().is_empty() || self.permits.get() < count {
            return None;
        }
        self.permits.set(self.permits.get() - count);
        let held = self.rank.map(|rank| rank.hold(Location::caller()));
        Some(Permit { semaphore: self, count, _held: held })
    }

    /// Returns ready when the waiter is the first and its permits are free.
    fn poll_first(&self, ticket: u64, cx: &Context<'_>) -> Poll<()> {
        let mut queue = self.queue.borrow_mut();
        let is_served = |first: &Waiter| first.ticket == ticket && first.count <= self.permits.get();
        if queue.front().is_some_and(is_served) {
            return Poll::Ready(());
        }
        let at = queue.partition_point(|waiter| waiter.ticket < ticket);
        if let Some(waiter) = queue.get_mut(at) {
            match &mut waiter.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
        }
        Poll::Pending
    }

    /// Wakes the first waiter if its permits are free. It wakes the next one when it leaves the queue.
    fn wake_first(&self) {
        // The waker is taken out before it runs: it may come back to this semaphore.
        let mut queue = self.queue.borrow_mut();
        let first = queue.front_mut().filter(|first| first.count <= self.permits.get());
        let waker = first.and_then(|first| first.waker.take());
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Permits that nobody holds.
    #[must_use]
    pub fn available(&self) -> u64 {
        self.permits.get()
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Semaphore({} free, {} waiting)", self.permits.get(), self.queue.borrow().len())
    }
}

/// A place in a semaphore's queue, left on success and on cancellation alike.
struct Place<'a> {
    semaphore: &'a Semaphore,
    ticket: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queue = self.semaphore.queue.borrow_mut();
        let at = queue.partition_point(|waiter| waiter.ticket < self.ticket);
        let left = queue.remove(at);
        drop(queue);
        drop(left);
        self.semaphore.wake_first();
    }
}

/// Permits in hand; given back when dropped.
#[derive(Debug)]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    count: u64,
    _held: Option<HeldRank>,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.semaphore.permits.set(self.semaphore.permits.get() + self.count);
        self.semaphore.wake_first();
    }
}

/// One at a time, across awaits.
#[derive(Debug)]
pub struct AsyncMutex {
    semaphore: Semaphore,
}

impl AsyncMutex {
    /// A mutex with its place in the order of locks.
    #[must_use]
    pub fn ranked(rank: LockRank) -> Self {
        Self { semaphore: Semaphore::ranked(1, rank) }
    }

    /// A mutex without a place in the order of locks; `reason` says why it needs none.
    #[must_use]
    pub fn unranked(reason: &'static str) -> Self {
        debug_assert!(!reason.is_empty(), "a lock without a rank has a reason");
        Self { semaphore: Semaphore::new(1) }
    }

    /// Takes the mutex if no other task holds it or waits for it.
    #[track_caller]
    pub fn try_take(&self) -> Option<Permit<'_>> {
        self.semaphore.try_acquire(1)
    }

    /// Waits until no other task holds the mutex; dropping the permit releases it.
    ///
    /// # Aborts
    /// The process, where the task holds a lock of the same rank or of a higher one.
    #[track_caller]
    pub fn take(&self) -> impl Future<Output = Permit<'_>> {
        self.semaphore.acquire(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::{Executor, Spawner};
    use std::rc::Rc;

    #[test]
    fn an_async_mutex_is_fair_and_a_cancelled_waiter_blocks_no_other() {
        let executor = Executor::new();
        let mutex = Rc::new(AsyncMutex::unranked("the only lock of the test"));
        let order = Rc::new(RefCell::new(Vec::new()));
        let done = executor.block_on({
            let (mutex, order, executor) = (Rc::clone(&mutex), Rc::clone(&order), Rc::clone(&executor));
            async move {
                let held = mutex.take().await;
                let mut cancelled = Box::pin(mutex.take());
                assert!(futures_poll_once(&mut cancelled).await.is_none());
                for number in 0..3 {
                    let (mutex, order) = (Rc::clone(&mutex), Rc::clone(&order));
                    executor.spawn(
                        "turn",
                        Box::pin(async move {
                            let _exclusive = mutex.take().await;
                            order.borrow_mut().push(number);
                        }),
                    );
                }
                drop(cancelled);
                drop(held);
            }
        });
        assert_eq!(done, Some(()));
        while executor.run_one(|_| 0) {}
        assert_eq!(*order.borrow(), vec![0, 1, 2]);
    }

    /// With a thousand waiters, each is polled twice: when it asks, and when it is served.
    #[test]
    fn a_release_wakes_one_waiter() {
        let executor = Executor::new();
        let (semaphore, polls) = (Rc::new(Semaphore::new(1)), Rc::new(Cell::new(0)));
        let held = semaphore.try_acquire(1);
        for _ in 0..1000 {
            let (semaphore, polls) = (Rc::clone(&semaphore), Rc::clone(&polls));
            executor.spawn(
                "waiter",
                Box::pin(async move {
                    let mut permit = pin!(semaphore.acquire(1));
                    let permit = poll_fn(|cx| {
                        polls.set(polls.get() + 1);
                        permit.as_mut().poll(cx)
                    });
                    drop(permit.await);
                }),
            );
        }
        while executor.run_one(|_| 0) {}
        drop(held);
        while executor.run_one(|_| 0) {}
        assert_eq!((semaphore.available(), polls.get()), (1, 2000));
    }

    /// One waiter of the property below.
    struct Asked {
        count: u64,
        state: Rc<Cell<State>>,
        /// Rung when the waiter is to release what it has, or to go without it.
        end: Rc<Notify>,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum State {
        Waits,
        Holds,
        Gone,
    }

    /// Waiters come, release and are cancelled in a drawn order. After each step, exactly those hold permits that a queue served
    /// strictly in order would have served.
    #[test]
    fn permits_are_given_as_a_queue_gives_them() {
        for seed in 0..200_u64 {
            let executor = Executor::new();
            let semaphore = Rc::new(Semaphore::new(4));
            let mut asked: Vec<Asked> = Vec::new();
            let mut draw = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            for _ in 0..60 {
                draw ^= draw << 13;
                draw ^= draw >> 7;
                draw ^= draw << 17;
                let alive: Vec<&Asked> = asked.iter().filter(|one| one.state.get() != State::Gone).collect();
                if draw.is_multiple_of(2) && !alive.is_empty() {
                    let at = usize::try_from(draw >> 32).unwrap() % alive.len();
                    alive[at].end.notify_all();
                } else {
                    let one = Asked {
                        count: 1 + (draw >> 8) % 4,
                        state: Rc::new(Cell::new(State::Waits)),
                        end: Rc::default(),
                    };
                    let (semaphore, count) = (Rc::clone(&semaphore), one.count);
                    let (state, end) = (Rc::clone(&one.state), Rc::clone(&one.end));
                    executor.spawn(
                        "waiter",
                        Box::pin(async move {
                            let rung = end.wait();
                            let mut rung = pin!(rung);
                            if let Either::Second(permit) =
                                either(rung.as_mut(), semaphore.acquire(count)).await
                            {
                                state.set(State::Holds);
                                rung.await;
                                drop(permit);
                            }
                            state.set(State::Gone);
                        }),
                    );
                    asked.push(one);
                }
                while executor.run_one(|_| 0) {}
                let held = asked
                    .iter()
                    .filter(|one| one.state.get() == State::Holds)
                    .map(|one| one.count)
                    .sum::<u64>();
                let first = asked.iter().find(|one| one.state.get() == State::Waits).map(|one| one.count);
                assert_eq!(semaphore.available() + held, 4, "seed {seed}");
                assert!(
                    first.is_none_or(|count| count > semaphore.available()),
                    "seed {seed}: the first waiter has room"
                );
                let last_held = asked.iter().rposition(|one| one.state.get() == State::Holds);
                let first_waits = asked.iter().position(|one| one.state.get() == State::Waits);
                assert!(
                    last_held.zip(first_waits).is_none_or(|(held, waits)| held < waits),
                    "seed {seed}: out of order"
                );
            }
        }
    }

    async fn futures_poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        poll_fn(|cx| match std::pin::Pin::new(&mut *future).poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    #[test]
    fn of_two_that_are_ready_the_first_is_taken_and_the_other_is_not_asked() {
        let executor = Executor::new();
        executor
            .block_on(async {
                let both = either(std::future::ready(1), poll_fn(|_| -> Poll<()> { panic!("asked") })).await;
                assert_eq!(both, Either::First(1));
                let second = either(std::future::pending::<()>(), std::future::ready(2)).await;
                assert_eq!(second, Either::Second(2));
            })
            .unwrap();
    }
}
