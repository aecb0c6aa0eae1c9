//! Tickets: which writes began before a point, and when the last of them has ended.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use dolmen_block_io::sync::Notify;
use dolmen_units::Lsn;

/// The number of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Ticket(pub(crate) u64);

/// Hands out tickets.
#[derive(Default)]
pub(crate) struct Tickets {
    first: Cell<u64>,
    /// Whether the ticket `first + index` has ended.
    ended: RefCell<VecDeque<bool>>,
    notify: Notify,
    /// Counts the flushes that have begun.
    interval: Cell<u64>,
}

impl Tickets {
    /// A new ticket; it ends when it is dropped.
    pub(crate) fn begin(self: &Rc<Self>) -> Held {
        let ticket = self.next();
        self.ended.borrow_mut().push_back(false);
        Held { tickets: Rc::clone(self), ticket, interval: self.interval.get() }
    }

    /// Notes that a flush begins, which waits for all tickets until now; the number of the interval that it ends.
    pub(crate) fn next_interval(&self) -> u64 {
        let ended = self.interval.get();
        self.interval.set(ended + 1);
        ended
    }

    /// The ticket that will be handed out next.
    pub(crate) fn next(&self) -> Ticket {
        Ticket(self.first.get() + self.ended.borrow().len() as u64)
    }

    /// Returns whether every ticket below `limit` has ended.
    pub(crate) fn have_ended_below(&self, limit: Ticket) -> bool {
        self.first.get() >= limit.0
    }

    /// Waits until every ticket below `limit` has ended.
    pub(crate) async fn wait_below(&self, limit: Ticket) {
        self.notify.wait_for(|| self.have_ended_below(limit).then_some(())).await;
    }
}

/// A ticket in use.
pub(crate) struct Held {
    tickets: Rc<Tickets>,
    ticket: Ticket,
    interval: u64,
}

impl Held {
    /// The flush interval in which it was given.
    pub(crate) fn interval(&self) -> u64 {
        self.interval
    }

    /// Its number.
    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut ended = self.tickets.ended.borrow_mut();
        let first = self.tickets.first.get();
        let index = usize::try_from(self.ticket.0 - first).unwrap_or(0);
        if let Some(place) = ended.get_mut(index) {
            *place = true;
        }
        let mut done = 0;
        while ended.front() == Some(&true) {
            ended.pop_front();
            done += 1;
        }
        drop(ended);
        if done > 0 {
            self.tickets.first.set(first + done);
            self.tickets.notify.notify_all();
        }
    }
}

/// A point in the order of writes, and of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FlushPoint {
    pub(crate) ticket: Ticket,
    pub(crate) lsn: Lsn,
}

impl FlushPoint {
    /// Behind a write and its record.
    pub(crate) fn after(ticket: Ticket, lsn: Lsn) -> Self {
        Self { ticket: Ticket(ticket.0 + 1), lsn: lsn.next() }
    }
}
