//! The slot of a pool's jobs: one is at work at a time, in the order of their ranks, and a job yields to one of a higher rank
//! (docs/design/0011, *Order of jobs*).
//!
//! A purge works concurrently with the others, without the slot.
//!
//! Invariant: while a job waits to which the one at work yields, that one is held, or is about to be. Between the change of a pool that
//! an urgent job is begun for and that job's request for the slot, it is announced.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_block_io::sync::Notify;
use dolmen_space::{JobShare, Spaces};

use crate::jobs::course::Course;
use crate::jobs::kind::{Kind, Rank};

/// The slot.
pub(crate) struct JobSlot {
    /// The spaces of the pool, which share its disks with the job at work.
    spaces: Rc<Spaces>,
    is_taken: Cell<bool>,
    /// Jobs that wait for it: those of the highest rank first, and of those the one that came first.
    waiting: RefCell<BTreeSet<(Reverse<Rank>, u64)>>,
    tickets: Cell<u64>,
    notify: Notify,
    coming: Rc<Announced>,
    /// The job that has it.
    at_work: RefCell<Option<Running>>,
}

/// The job that has the slot.
struct Running {
    kind: &'static dyn Kind,
    rank: Rank,
    course: Rc<Course>,
}

/// The slot, held until dropped.
pub(crate) struct SlotGuard<'a>(&'a JobSlot);

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        self.0.at_work.replace(None);
        self.0.is_taken.set(false);
        self.0.notify.notify_all();
    }
}

/// A job that waits for the slot.
struct Waiting<'a> {
    slot: &'a JobSlot,
    place: (Reverse<Rank>, u64),
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.slot.waiting.borrow_mut().remove(&self.place);
        self.slot.notify.notify_all();
    }
}

/// Urgent jobs that somebody is about to begin.
#[derive(Default)]
struct Announced {
    count: Cell<usize>,
    /// Rings when one of them asks for the slot, or does not come after all.
    notify: Notify,
}

/// An urgent job that somebody is about to begin.
pub(crate) struct Coming(Rc<Announced>);

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get().saturating_sub(1));
        self.0.notify.notify_all();
    }
}

impl JobSlot {
    /// The slot of a pool.
    pub(crate) fn new(spaces: Rc<Spaces>) -> Self {
        Self {
            spaces,
            is_taken: Cell::default(),
            waiting: RefCell::default(),
            tickets: Cell::default(),
            notify: Notify::new(),
            coming: Rc::default(),
            at_work: RefCell::default(),
        }
    }

    /// Sets how the pool shares its disks between jobs and clients.
    pub(crate) fn set_job_share(&self, job_share: JobShare) {
        self.spaces.set_job_share(job_share);
    }

    /// Announces an urgent job, before anything of the pool is changed for it and until it asks for the slot: no patient one takes
    /// that change for the end of its work. Whoever announces waits for no job meanwhile.
    pub(crate) fn announce(&self) -> Coming {
        self.coming.count.set(self.coming.count.get() + 1);
        Coming(Rc::clone(&self.coming))
    }

    /// Waits until none is announced.
    pub(crate) async fn nobody_comes(&self) {
        self.coming.notify.wait_for(|| (self.coming.count.get() == 0).then_some(())).await;
    }

    /// Waits for the turn; it ends when what is returned is dropped.
    pub(crate) async fn take(&self, rank: Rank) -> SlotGuard<'_> {
        let ticket = self.tickets.get();
        self.tickets.set(ticket + 1);
        let place = (Reverse(rank), ticket);
        self.waiting.borrow_mut().insert(place);
        let waiting = Waiting { slot: self, place };
        self.yield_if_asked();
        let is_next = || !self.is_taken.get() && self.waiting.borrow().first() == Some(&place);
        self.notify.wait_for(|| is_next().then_some(())).await;
        self.is_taken.set(true);
        drop(waiting);
        SlotGuard(self)
    }

    /// The job that has the turn begins, or goes on.
    pub(crate) fn begin(&self, kind: &'static dyn Kind, rank: Rank, course: &Rc<Course>) {
        course.go_on();
        self.at_work.replace(Some(Running { kind, rank, course: Rc::clone(course) }));
        // Another may have asked between its taking the turn and this.
        self.yield_if_asked();
    }

    /// Holds the job at work, if one of a higher rank waits.
    fn yield_if_asked(&self) {
        let at_work = self.at_work.borrow();
        let Some(Running { kind, rank, course }) = at_work.as_ref() else { return };
        let highest = self.waiting.borrow().first().map(|(rank, _)| rank.0);
        if kind.yields() && highest.is_some_and(|highest| highest > *rank) {
            course.yield_slot();
        }
    }
}
