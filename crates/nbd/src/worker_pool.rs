//! The workers of a connection: tasks that are made when they are first needed and then stay, so that in the steady
//! state a request makes no task and takes no memory for one.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use dolmen_block_io::sync::Notify;
use dolmen_buffer::Shared;

use crate::IN_FLIGHT_MAX;
use crate::reply::To;
use crate::request::Command;

/// One piece of work: a request, or a piece of a long write.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) to: To,
    pub(crate) command: Command,
    /// The payload of a write.
    pub(crate) payload: Option<Shared>,
    /// The write that this is a piece of.
    pub(crate) tally: Option<TallyIndex>,
}

/// A worker's number in its crew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkerIndex(usize);

#[derive(Debug, Default)]
struct Station {
    job: Option<Job>,
    waker: Option<Waker>,
}

/// The workers of a connection.
#[derive(Debug, Default)]
pub(crate) struct WorkerPool {
    stations: RefCell<Vec<Station>>,
    idle: RefCell<Vec<WorkerIndex>>,
    dismissed: Cell<bool>,
    left_count: Cell<usize>,
    notify: Notify,
}

impl WorkerPool {
    /// Gives the job to an idle worker, hires one by `spawn`, or waits for one.
    pub(crate) async fn assign(&self, job: Job, spawn: impl FnOnce(WorkerIndex)) {
        let idle = self.idle.borrow_mut().pop();
        let worker = match idle.or_else(|| self.open_station(spawn)) {
            Some(worker) => worker,
            None => self.notify.wait_for(|| self.idle.borrow_mut().pop()).await,
        };
        if let Some(station) = self.stations.borrow_mut().get_mut(worker.0) {
            station.job = Some(job);
            if let Some(waker) = station.waker.take() {
                waker.wake();
            }
        }
    }

    fn open_station(&self, spawn: impl FnOnce(WorkerIndex)) -> Option<WorkerIndex> {
        let worker = {
            let mut stations = self.stations.borrow_mut();
            if stations.len() >= IN_FLIGHT_MAX {
                return None;
            }
            stations.push(Station::default());
            WorkerIndex(stations.len() - 1)
        };
        spawn(worker);
        Some(worker)
    }

    /// The next job of a worker; `None` when the crew is dismissed.
    pub(crate) async fn next_job(&self, worker: WorkerIndex) -> Option<Job> {
        poll_fn(|cx| {
            let mut stations = self.stations.borrow_mut();
            let Some(station) = stations.get_mut(worker.0) else { return Poll::Ready(None) };
            if let Some(job) = station.job.take() {
                return Poll::Ready(Some(job));
            }
            if self.dismissed.get() {
                return Poll::Ready(None);
            }
            station.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Says that a worker's job is done.
    pub(crate) fn rest(&self, worker: WorkerIndex) {
        self.idle.borrow_mut().push(worker);
        self.notify.notify_all();
    }

    /// Says that a worker ends.
    pub(crate) fn leave(&self) {
        self.left_count.set(self.left_count.get() + 1);
        self.notify.notify_all();
    }

    /// Waits until no worker has a job, lets all of them end, and waits for that.
    pub(crate) async fn dismiss(&self) {
        let all_idle = || self.idle.borrow().len() == self.stations.borrow().len();
        self.notify.wait_for(|| all_idle().then_some(())).await;
        self.dismissed.set(true);
        for station in self.stations.borrow_mut().iter_mut() {
            if let Some(waker) = station.waker.take() {
                waker.wake();
            }
        }
        let all_left = || self.left_count.get() == self.stations.borrow().len();
        self.notify.wait_for(|| all_left().then_some(())).await;
    }
}

/// A long write's place in the list of those under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TallyIndex(usize);

/// How far a long write has come.
#[derive(Debug, Clone, Copy, Default)]
struct Tally<E> {
    pieces_left: u64,
    error: Option<E>,
}

/// Long writes under way, each answered once all its pieces are done. Places are used again.
#[derive(Debug)]
pub(crate) struct Tallies<E> {
    entries: RefCell<Vec<Tally<E>>>,
    free: RefCell<Vec<TallyIndex>>,
}

impl<E: Copy> Tallies<E> {
    pub(crate) fn new() -> Self {
        Self { entries: RefCell::new(Vec::new()), free: RefCell::new(Vec::new()) }
    }

    /// A place for a write of so many pieces.
    pub(crate) fn begin(&self, pieces: u64) -> TallyIndex {
        assert!(pieces > 0, "a write has a piece");
        let fresh = Tally { pieces_left: pieces, error: None };
        let mut entries = self.entries.borrow_mut();
        if let Some(index) = self.free.borrow_mut().pop() {
            if let Some(entry) = entries.get_mut(index.0) {
                *entry = fresh;
            }
            return index;
        }
        entries.push(fresh);
        TallyIndex(entries.len() - 1)
    }

    /// Counts a piece. After the last, the outcome of the whole: the first error that came up.
    pub(crate) fn count(&self, index: TallyIndex, result: Result<(), E>) -> Option<Result<(), E>> {
        let mut entries = self.entries.borrow_mut();
        let entry = entries.get_mut(index.0)?;
        assert!(entry.pieces_left > 0, "a piece is counted once");
        entry.pieces_left -= 1;
        entry.error = entry.error.or(result.err());
        if entry.pieces_left > 0 {
            return None;
        }
        self.free.borrow_mut().push(index);
        Some(entry.error.map_or(Ok(()), Err))
    }
}
