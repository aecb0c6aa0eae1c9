//! A single-threaded executor whose order of running tasks is somebody else's choice.
//!
//! The EDGE runtime runs ready tasks first come, first served; the simulator draws the next one from its seed. Both use
//! this set of tasks, so a schedule that the simulator finds is one that could happen.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::queued::Queued;
use crate::ranks::{Scope, poll_in};

/// The seam to tasks.
pub trait Spawner {
    /// Runs `task` beside the others on this thread until it ends. `name` says what it is for.
    fn spawn(&self, name: &'static str, task: Pin<Box<dyn Future<Output = ()>>>);
}

/// What a waker of another thread calls so that a sleeping runtime looks at its tasks again.
type Unpark = Box<dyn Fn() + Send + Sync>;

/// Tasks that were woken. Wakers must be `Send`, so this is the one place here with a lock; on the path of an I/O it is
/// taken by its own thread alone.
struct Ready {
    queue: Mutex<Queue>,
    unpark: Option<Unpark>,
}

struct Queue {
    tasks: VecDeque<usize>,
    /// Times that it was locked.
    locks: u64,
}

impl Ready {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.locks += 1;
        queue
    }
}

struct TaskWaker {
    index: usize,
    queued: Queued,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.ask() {
            return;
        }
        let was_empty = {
            let mut queue = self.ready.lock();
            queue.tasks.push_back(self.index);
            queue.tasks.len() == 1
        };
        if let Some(unpark) = self.ready.unpark.as_ref().filter(|_| was_empty) {
            unpark();
        }
    }
}

struct Task {
    name: &'static str,
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
    shared: Arc<TaskWaker>,
    /// The ranks of the locks that it holds.
    scope: Option<Rc<Scope>>,
}

enum TaskSlot {
    Free,
    Resting(Task),
    /// Taken out while it runs, so that it can spawn others.
    Running,
}

/// A set of tasks on one thread.
pub struct Executor {
    tasks: RefCell<Vec<TaskSlot>>,
    free: RefCell<Vec<usize>>,
    ready: Arc<Ready>,
    polls: Cell<u64>,
}

impl Executor {
    /// An empty set.
    #[must_use]
    pub fn new() -> Rc<Self> {
        Self::with_unpark(None)
    }

    /// An empty set that calls `unpark`, from whatever thread, when a task becomes ready while none was.
    #[must_use]
    pub fn with_unpark(unpark: Option<Unpark>) -> Rc<Self> {
        let queue = Queue { tasks: VecDeque::with_capacity(256), locks: 0 };
        let ready = Arc::new(Ready { queue: Mutex::new(queue), unpark });
        Rc::new(Self { tasks: RefCell::default(), free: RefCell::default(), ready, polls: Cell::new(0) })
    }

    /// Runs one ready task until it waits again. `pick` chooses among so many ready ones by index; an index out of range
    /// means the first. Returns whether there was one.
    pub fn run_one(&self, pick: impl FnOnce(usize) -> usize) -> bool {
        let index = {
            let queue = &mut self.ready.lock().tasks;
            match queue.len() {
                0 => return false,
                1 => queue.pop_front(),
                ready => {
                    let chosen = pick(ready);
                    if chosen == 0 {
                        queue.pop_front()
                    } else {
                        queue.remove(chosen).or_else(|| queue.pop_front())
                    }
                }
            }
        };
        if let Some(index) = index {
            self.poll_task(index);
        }
        true
    }

    /// Runs ready tasks, first come, first served, until none is ready or `max` were run. Returns how many ran.
    pub fn run_ready(&self, max: usize) -> usize {
        (0..max).take_while(|_| self.run_one(|_| 0)).count()
    }

    fn poll_task(&self, index: usize) {
        let slot =
            self.tasks.borrow_mut().get_mut(index).map(|slot| std::mem::replace(slot, TaskSlot::Running));
        let Some(TaskSlot::Resting(mut task)) = slot else {
            // A wake for a task that has ended meanwhile: put back what was there.
            if let (Some(old), Some(place)) = (slot, self.tasks.borrow_mut().get_mut(index)) {
                *place = old;
            }
            return;
        };
        task.shared.queued.begin();
        self.polls.set(self.polls.get() + 1);
        let Task { future, waker, scope, .. } = &mut task;
        let state = poll_in(scope, || future.as_mut().poll(&mut Context::from_waker(waker)));
        let after = match state {
            Poll::Ready(()) => TaskSlot::Free,
            Poll::Pending => TaskSlot::Resting(task),
        };
        if matches!(after, TaskSlot::Free) {
            self.free.borrow_mut().push(index);
        }
        if let Some(slot) = self.tasks.borrow_mut().get_mut(index) {
            *slot = after;
        }
    }

    /// Whether some task could run now.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.lock().tasks.is_empty()
    }

    /// Names of the tasks that have not ended, for finding out why nothing moves.
    #[must_use]
    pub fn waiting(&self) -> Vec<&'static str> {
        let tasks = self.tasks.borrow();
        tasks
            .iter()
            .filter_map(|slot| if let TaskSlot::Resting(task) = slot { Some(task.name) } else { None })
            .collect()
    }

    /// How often a task was polled: what scheduling costs per I/O.
    #[must_use]
    pub fn poll_count(&self) -> u64 {
        self.polls.get()
    }

    /// How often the list of ready tasks was locked: at each wake-up, and each time that somebody looks for a task to run.
    #[must_use]
    pub fn lock_count(&self) -> u64 {
        self.ready.lock().locks
    }

    /// Drops every task, as the death of a process does. Commands under way stay with their devices.
    pub fn abandon(&self) {
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        self.free.borrow_mut().clear();
        self.ready.lock().tasks.clear();
        drop(tasks);
    }

    /// Runs `future` beside the other tasks until it ends or nothing is ready any more; `None` in the latter case, when
    /// something outside (a disk, a clock) would have to move first.
    pub fn block_on<T: 'static>(self: &Rc<Self>, future: impl Future<Output = T> + 'static) -> Option<T> {
        let result = Rc::new(Cell::new(None));
        let into = Rc::clone(&result);
        self.spawn("block_on", Box::pin(async move { into.set(Some(future.await)) }));
        loop {
            if let Some(value) = result.take() {
                return Some(value);
            }
            if !self.run_one(|_| 0) {
                return None;
            }
        }
    }
}

impl Spawner for Executor {
    fn spawn(&self, name: &'static str, future: Pin<Box<dyn Future<Output = ()>>>) {
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let mut tasks = self.tasks.borrow_mut();
            tasks.push(TaskSlot::Free);
            tasks.len() - 1
        });
        let shared = Arc::new(TaskWaker { index, queued: Queued::default(), ready: Arc::clone(&self.ready) });
        let waker = Waker::from(Arc::clone(&shared));
        waker.wake_by_ref();
        if let Some(slot) = self.tasks.borrow_mut().get_mut(index) {
            *slot = TaskSlot::Resting(Task { name, future, waker, shared, scope: None });
        }
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Notify;

    #[test]
    fn tasks_wake_each_other_and_may_spawn() {
        let executor = Executor::new();
        let notify = Rc::new(Notify::new());
        let (ring, inner) = (Rc::clone(&notify), Rc::clone(&executor));
        let value = executor.block_on(async move {
            let ring_too = Rc::clone(&ring);
            inner.spawn("ringer", Box::pin(async move { ring_too.notify_all() }));
            ring.wait().await;
            7
        });
        assert_eq!(value, Some(7));
        assert!(executor.waiting().is_empty());
    }

    #[test]
    fn what_waits_for_the_world_is_reported_as_such() {
        let executor = Executor::new();
        assert_eq!(executor.block_on(std::future::pending::<()>()), None);
        assert_eq!(executor.waiting(), vec!["block_on"]);
    }

    #[test]
    fn the_order_is_the_pickers() {
        let executor = Executor::new();
        let order = Rc::new(RefCell::new(Vec::new()));
        for number in 0..3 {
            let order = Rc::clone(&order);
            executor.spawn("numbered", Box::pin(async move { order.borrow_mut().push(number) }));
        }
        while executor.run_one(|ready| ready - 1) {}
        assert_eq!(*order.borrow(), vec![2, 1, 0]);
    }
}
