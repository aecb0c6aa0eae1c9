//! The turn of a pool's jobs: one is at work at a time, and what can wait makes way for what restores redundancy
//! (docs/design/0011, *Holding a job*).
//!
//! A purge works beside the others, without a turn.
//!
//! Invariant: while a job waits for which the one at work makes way, that one is held, or is about to be. Between the change of a pool that
//! an urgent job is begun for and that job's asking for its turn, it is announced.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use dolmen_api::JobKind;
use dolmen_block_io::sync::{Notify, Permit, Turn};

use crate::pace::Course;

/// Who makes way for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Redundancy is not whole before it has ended, or a disk cannot leave: patient ones make way for it.
    Urgent,
    /// Redundancy is whole, and at risk, or a part of it comes back: patient ones make way for it, and it does for urgent ones. Of
    /// two, the second waits for its turn.
    Pressing,
    /// It waits for its turn, and keeps it.
    Usual,
    /// Nothing is at risk while it waits.
    Patient,
    /// It reads and writes no slabs, and takes no turn: a full pool does not wait to be given room.
    Beside,
}

impl Rank {
    pub(crate) fn of(kind: JobKind) -> Self {
        match kind {
            JobKind::Resync | JobKind::Replace | JobKind::Drain => Self::Urgent,
            JobKind::WriteCache => Self::Usual,
            JobKind::Scrub | JobKind::Rebalance | JobKind::Convert => Self::Patient,
            JobKind::Purge => Self::Beside,
            JobKind::Empty => Self::Pressing,
        }
    }
}

/// The turn.
#[derive(Default)]
pub(crate) struct JobTurn {
    turn: Turn,
    /// Urgent jobs that wait for it.
    urgent: Cell<usize>,
    /// Pressing ones that do.
    pressing: Cell<usize>,
    coming: Rc<Announced>,
    /// The job that has it.
    at_work: RefCell<Option<(Rank, Rc<Course>)>>,
}

/// A job that waits, and that others make way for.
struct Waiting<'a>(&'a Cell<usize>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Urgent jobs that somebody is about to begin.
#[derive(Default)]
struct Announced {
    count: Cell<usize>,
    /// Rings when one of them asks for its turn, or does not come after all.
    bell: Notify,
}

/// An urgent job that somebody is about to begin.
pub(crate) struct Coming(Rc<Announced>);

impl Drop for Coming {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get().saturating_sub(1));
        self.0.bell.notify_all();
    }
}

impl JobTurn {
    /// Announces an urgent job, before anything of the pool is changed for it and until it asks for its turn: no patient one takes
    /// that change for the end of its work. Whoever announces waits for no job meanwhile.
    pub(crate) fn announce(&self) -> Coming {
        self.coming.count.set(self.coming.count.get() + 1);
        Coming(Rc::clone(&self.coming))
    }

    /// Waits until none is announced.
    pub(crate) async fn nobody_comes(&self) {
        self.coming.bell.wait_for(|| (self.coming.count.get() == 0).then_some(())).await;
    }

    /// Waits for the turn; it ends when the permit is dropped.
    pub(crate) async fn take(&self, rank: Rank) -> Permit<'_> {
        let waiting = match rank {
            Rank::Urgent => Some(&self.urgent),
            Rank::Pressing => Some(&self.pressing),
            Rank::Usual | Rank::Patient | Rank::Beside => None,
        };
        let _waiting = waiting.map(|count| {
            count.set(count.get() + 1);
            self.make_way();
            Waiting(count)
        });
        self.turn.take().await
    }

    /// Whoever has the turn begins, or goes on.
    pub(crate) fn begin(&self, rank: Rank, course: &Rc<Course>) {
        course.go_on();
        self.at_work.replace(Some((rank, Rc::clone(course))));
        // It may have come before one that asked later than others.
        self.make_way();
    }

    /// Has the job at work make way, if one waits for which it does.
    fn make_way(&self) {
        let at_work = self.at_work.borrow();
        let Some((rank, course)) = at_work.as_ref() else { return };
        let is_in_the_way = match rank {
            Rank::Patient => self.urgent.get() + self.pressing.get() > 0,
            Rank::Pressing => self.urgent.get() > 0,
            Rank::Urgent | Rank::Usual | Rank::Beside => false,
        };
        if is_in_the_way {
            course.make_way();
        }
    }

    /// Whoever had the turn gives it up.
    pub(crate) fn end(&self) {
        self.at_work.replace(None);
    }
}
