//! Ranks of locks: the order in which a task takes them, checked whenever one is taken, in release builds too.
//!
//! Two tasks that take two locks in different orders wait for each other for ever, on a schedule that no test may meet. Each
//! lock therefore has a [`Rank`], and a task takes a lock only above all that it holds. A breach aborts the process: it needs
//! no second task to be seen.
//!
//! A [`Scope`] is the list of the ranks that are held. The [`Executor`](crate::Executor) gives each task one.
//! [`join_all`](crate::sync::join_all) and [`either`](crate::sync::either) give each branch one of its own, which sees what its
//! parent holds and not what the other branches hold. A future that is polled from changing places is wrapped in [`scoped`].
//!
//! Invariant: a lock that is taken without waiting is held with its rank and not compared, because it cannot be waited for.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::Write as _;
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The place of a kind of lock in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    number: u8,
    name: &'static str,
}

impl Rank {
    /// A rank; locks of larger numbers are taken after those of smaller ones.
    #[must_use]
    pub const fn new(number: u8, name: &'static str) -> Self {
        Self { number, name }
    }

    /// Returns the rank of one lock among several of this kind, which are taken in ascending order.
    #[must_use]
    pub const fn nth(self, order: (u64, u64)) -> LockRank {
        LockRank { rank: self, order }
    }

    /// Returns the rank of the only lock of this kind that a task holds at a time.
    #[must_use]
    pub const fn single(self) -> LockRank {
        self.nth((0, 0))
    }
}

/// The rank of one lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockRank {
    rank: Rank,
    order: (u64, u64),
}

impl LockRank {
    /// Checks that the lock is above all that the scope holds, and notes it as held.
    ///
    /// # Aborts
    /// The process, where it is not.
    #[must_use]
    pub fn take(self, place: &'static Location<'static>) -> HeldRank {
        with_scope(|scope| {
            if let Some(held) = self.breach(scope) {
                abort(self, place, held);
            }
            scope.hold(self, place)
        })
    }

    /// Notes a lock as held that was taken without waiting.
    #[must_use]
    pub fn hold(self, place: &'static Location<'static>) -> HeldRank {
        with_scope(|scope| scope.hold(self, place))
    }

    /// Returns what the scope holds that has this rank or a higher one.
    fn breach(self, scope: &Scope) -> Option<Entry> {
        scope.highest().filter(|held| self.key() <= held.lock.key())
    }

    fn key(self) -> (u8, (u64, u64)) {
        (self.rank.number, self.order)
    }
}

impl fmt::Display for LockRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank: Rank { number, name }, order } = self;
        match order {
            (0, 0) => write!(f, "{name} (rank {number})"),
            (first, second) => write!(f, "{name} {first}.{second} (rank {number})"),
        }
    }
}

#[derive(Clone, Copy)]
struct Entry {
    token: u64,
    lock: LockRank,
    place: &'static Location<'static>,
}

/// The ranks that a task, or a branch of it, holds.
#[derive(Default)]
pub struct Scope {
    parent: Option<Rc<Self>>,
    held: RefCell<Vec<Entry>>,
    next: Cell<u64>,
}

impl Scope {
    fn hold(self: &Rc<Self>, lock: LockRank, place: &'static Location<'static>) -> HeldRank {
        let token = self.next.get();
        self.next.set(token + 1);
        self.held.borrow_mut().push(Entry { token, lock, place });
        HeldRank { scope: Rc::clone(self), token }
    }

    /// Returns the highest rank that it or one of its parents holds.
    fn highest(&self) -> Option<Entry> {
        let own = self.held.borrow().iter().max_by_key(|entry| entry.lock.key()).copied();
        let above = self.parent.as_ref().and_then(|parent| parent.highest());
        own.into_iter().chain(above).max_by_key(|entry| entry.lock.key())
    }

    fn holds_any(&self) -> bool {
        !self.held.borrow().is_empty() || self.parent.as_ref().is_some_and(|parent| parent.holds_any())
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.held.borrow().iter().map(|entry| entry.lock.rank)).finish()
    }
}

/// A rank that is held, until this is dropped, wherever that is.
pub struct HeldRank {
    scope: Rc<Scope>,
    token: u64,
}

impl Drop for HeldRank {
    fn drop(&mut self) {
        let mut held = self.scope.held.borrow_mut();
        // The lock that was taken last is mostly the first to go.
        if let Some(at) = held.iter().rposition(|entry| entry.token == self.token) {
            held.remove(at);
        }
    }
}

impl fmt::Debug for HeldRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeldRank({:?})", self.scope)
    }
}

thread_local! {
    /// The scope of what is polled now; none until it takes its first lock.
    static CURRENT: Cell<Option<Rc<Scope>>> = const { Cell::new(None) };
}

fn with_scope<T>(action: impl FnOnce(&Rc<Scope>) -> T) -> T {
    let scope = CURRENT.take().unwrap_or_default();
    let done = action(&scope);
    CURRENT.set(Some(scope));
    done
}

/// Polls with a scope in force, which is left in `scope` for the next poll.
pub(crate) fn poll_in<T>(scope: &mut Option<Rc<Scope>>, poll: impl FnOnce() -> T) -> T {
    let outer = CURRENT.replace(scope.take());
    let polled = poll();
    *scope = CURRENT.replace(outer);
    polled
}

/// The scope of a branch of a task, from its first poll on.
#[derive(Debug, Default)]
pub(crate) struct Branch {
    has_begun: bool,
    scope: Option<Rc<Scope>>,
}

impl Branch {
    /// Polls the branch; it sees what the task held when it was polled first.
    pub(crate) fn poll<T>(&mut self, poll: impl FnOnce() -> T) -> T {
        if !std::mem::replace(&mut self.has_begun, true) {
            let parent = CURRENT.take();
            let of_branch =
                |parent: &Rc<Scope>| Rc::new(Scope { parent: Some(Rc::clone(parent)), ..Scope::default() });
            self.scope = parent.as_ref().filter(|parent| parent.holds_any()).map(of_branch);
            CURRENT.set(parent);
        }
        poll_in(&mut self.scope, poll)
    }
}

/// A future with a scope of its own.
#[derive(Debug)]
struct Scoped<F> {
    branch: Branch,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { branch, future } = &mut *self;
        branch.poll(|| future.as_mut().poll(cx))
    }
}

/// Returns the future with a scope of its own: for one that a task polls beside others, or in turn with them.
pub fn scoped<F: Future>(future: F) -> impl Future<Output = F::Output> {
    Scoped { branch: Branch::default(), future: Box::pin(future) }
}

/// Ends the process: the order of locks is broken, and another schedule would stand still for ever.
#[cold]
fn abort(lock: LockRank, place: &Location<'_>, held: Entry) -> ! {
    // Straight to the descriptor: a test harness that collects output would lose it with the process.
    let _ = writeln!(
        std::io::stderr(),
        "lock out of order: {lock}, taken at {place}, is not above {}, held since {}; two tasks that take them in different \
         orders would wait for each other for ever, so the process ends",
        held.lock,
        held.place,
    );
    std::process::abort()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::executor::{Executor, Spawner};
    use crate::sync::{AsyncMutex, Either, either, join_all};

    const LOW: Rank = Rank::new(1, "low");
    const HIGH: Rank = Rank::new(2, "high");

    fn would_abort(rank: LockRank) -> bool {
        with_scope(|scope| rank.breach(scope).is_some())
    }

    fn run(test: impl Future<Output = ()> + 'static) {
        assert_eq!(Executor::new().block_on(test), Some(()));
    }

    async fn pause() {
        let mut has_paused = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut has_paused, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    #[test]
    fn a_rank_is_free_again_when_its_lock_is() {
        // Scenario: a high lock forbids equal and lower ones until it is dropped; among equals the order counts.
        run(async {
            let high = AsyncMutex::ranked(HIGH.nth((3, 5)));
            let held = high.take().await;
            pause().await;
            assert!(
                would_abort(LOW.single()) && would_abort(HIGH.nth((3, 5))) && would_abort(HIGH.nth((2, 9)))
            );
            assert!(!would_abort(HIGH.nth((3, 6))));
            drop(held);
            assert!(!would_abort(LOW.single()));
        });
    }

    #[test]
    fn a_task_does_not_hold_what_another_task_holds() {
        let executor = Executor::new();
        let high = Rc::new(AsyncMutex::ranked(HIGH.single()));
        let seen = Rc::new(Cell::new(None));
        let (locked, into) = (Rc::clone(&high), Rc::clone(&seen));
        executor.spawn(
            "other",
            Box::pin(async move {
                let _held = locked.take().await;
                pause().await;
                pause().await;
            }),
        );
        executor.spawn("looks", Box::pin(async move { into.set(Some(would_abort(LOW.single()))) }));
        while executor.run_one(|_| 0) {}
        assert_eq!(seen.get(), Some(false));
    }

    #[test]
    fn branches_see_what_their_task_holds_and_not_what_the_others_hold() {
        // Scenario: of two branches of a task that holds a low lock, one holds a high one; the other may take that rank.
        run(async {
            let (low, high) = (AsyncMutex::ranked(LOW.single()), AsyncMutex::ranked(HIGH.single()));
            let _low = low.take().await;
            let branches = [true, false].map(|takes| {
                let high = &high;
                async move {
                    let held = if takes { Some(high.take().await) } else { None };
                    pause().await;
                    let seen = (would_abort(LOW.single()), would_abort(HIGH.single()));
                    drop(held);
                    seen
                }
            });
            assert_eq!(join_all(branches).await, [(true, true), (true, false)]);
            let looks = async { would_abort(HIGH.single()) };
            let holds = async {
                let _held = high.take().await;
                std::future::pending::<()>().await;
            };
            assert_eq!(
                either(holds, async {
                    pause().await;
                    looks.await
                })
                .await,
                Either::Second(false)
            );
        });
    }

    #[test]
    fn a_guard_may_be_dropped_by_another_task() {
        // Scenario: a guard survives the task that took it, and goes to one that holds nothing.
        let executor = Executor::new();
        let high: &'static AsyncMutex = Box::leak(Box::new(AsyncMutex::ranked(HIGH.single())));
        let held = executor.block_on(async { high.take().await }).unwrap();
        let ended = executor.block_on(async move {
            assert!(!would_abort(LOW.single()));
            drop(held);
            let _again = high.take().await;
            assert!(would_abort(HIGH.single()));
        });
        assert_eq!(ended, Some(()));
    }

    #[test]
    fn a_lock_that_is_taken_without_waiting_is_held_and_not_compared() {
        run(async {
            let (low, high) = (AsyncMutex::ranked(LOW.single()), AsyncMutex::ranked(HIGH.single()));
            let _high = high.take().await;
            let low_held = low.try_take().unwrap();
            assert!(low.try_take().is_none());
            drop(low_held);
            assert!(low.try_take().is_some());
        });
    }

    #[test]
    fn a_wrapped_future_keeps_its_ranks_across_the_places_that_poll_it() {
        run(async {
            let high = AsyncMutex::ranked(HIGH.single());
            let mut work = Box::pin(scoped(async {
                let _held = high.take().await;
                pause().await;
                would_abort(HIGH.single())
            }));
            assert_eq!(either(work.as_mut(), async {}).await, Either::Second(()));
            assert!(!would_abort(LOW.single()));
            assert!(work.await);
        });
    }
}
