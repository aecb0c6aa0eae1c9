//! The tasks that carry the kernel's requests out: each is made when it is first needed and then stays, so that in the
//! steady state a request makes no task and takes no memory for one.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// A worker's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkerIndex(usize);

#[derive(Debug)]
struct Station<J> {
    job: Option<J>,
    waker: Option<Waker>,
}

/// The workers. There are as many as jobs were ever outstanding together, which those who make jobs bound.
#[derive(Debug)]
pub(crate) struct WorkerPool<J> {
    stations: RefCell<Vec<Station<J>>>,
    idle: RefCell<Vec<WorkerIndex>>,
}

impl<J> WorkerPool<J> {
    pub(crate) fn new() -> Self {
        Self { stations: RefCell::default(), idle: RefCell::default() }
    }

    /// Gives the job to an idle worker, or to one that `spawn` starts.
    pub(crate) fn assign(&self, job: J, spawn: impl FnOnce(WorkerIndex)) {
        let idle = self.idle.borrow_mut().pop();
        let is_new = idle.is_none();
        let mut stations = self.stations.borrow_mut();
        let worker = idle.unwrap_or_else(|| {
            stations.push(Station { job: None, waker: None });
            WorkerIndex(stations.len() - 1)
        });
        let waker = stations.get_mut(worker.0).and_then(|station| {
            assert!(station.job.is_none(), "an idle worker has no job");
            station.job = Some(job);
            station.waker.take()
        });
        drop(stations);
        if let Some(waker) = waker {
            waker.wake();
        }
        if is_new {
            spawn(worker);
        }
    }

    /// The next job of a worker.
    pub(crate) async fn next_job(&self, worker: WorkerIndex) -> J {
        poll_fn(|cx| {
            let mut stations = self.stations.borrow_mut();
            let Some(station) = stations.get_mut(worker.0) else { return Poll::Pending };
            match station.job.take() {
                Some(job) => Poll::Ready(job),
                None => {
                    station.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Says that a worker's job is done.
    pub(crate) fn rest(&self, worker: WorkerIndex) {
        self.idle.borrow_mut().push(worker);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    #[test]
    fn a_worker_is_spawned_only_where_none_is_idle() {
        // Scenario: two jobs at once, then one after another; a poll without a job takes none.
        let worker_pool = WorkerPool::new();
        let spawned = RefCell::new(Vec::new());
        let assign = |job: u32| worker_pool.assign(job, |worker| spawned.borrow_mut().push(worker));
        let next = |worker| {
            let mut polled = pin!(worker_pool.next_job(worker));
            match polled.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(job) => Some(job),
                Poll::Pending => None,
            }
        };
        assign(1);
        assign(2);
        let (first, second) = (WorkerIndex(0), WorkerIndex(1));
        assert_eq!(*spawned.borrow(), [first, second]);
        assert_eq!((next(first), next(second), next(first)), (Some(1), Some(2), None));
        worker_pool.rest(second);
        assign(3);
        assert_eq!((next(first), next(second)), (None, Some(3)));
        assert_eq!(spawned.borrow().len(), 2);
    }
}
