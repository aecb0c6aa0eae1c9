//! A line of waiters: served in the order in which they came, and only the first is woken.
//!
//! A bell that wakes everybody would cost a poll of every waiter for every one that is served.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

#[derive(Default)]
pub(crate) struct WaitQueue {
    waiting: RefCell<VecDeque<(u64, Waker)>>,
    next_ticket: Cell<u64>,
}

impl WaitQueue {
    /// Waits until nobody is in front and `ready` gives a value. When that is so at once, it does not wait at all.
    /// A waiter whose future is dropped leaves the line.
    pub(crate) async fn pass<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        let mut entry = QueueEntry { queue: self, ticket: None };
        poll_fn(|cx| entry.poll(cx, &mut ready)).await
    }

    /// Lets the first in the line look again.
    pub(crate) fn wake(&self) {
        if let Some((_, waker)) = self.waiting.borrow().front() {
            waker.wake_by_ref();
        }
    }
}

/// A place in the line, left on success and on cancellation alike.
struct QueueEntry<'a> {
    queue: &'a WaitQueue,
    ticket: Option<u64>,
}

impl QueueEntry<'_> {
    fn poll<T>(&mut self, cx: &mut Context<'_>, ready: &mut impl FnMut() -> Option<T>) -> Poll<T> {
        let in_front = self.queue.waiting.borrow().front().map(|(ticket, _)| *ticket);
        if in_front == self.ticket
            && let Some(value) = ready()
        {
            self.leave();
            return Poll::Ready(value);
        }
        let mut waiting = self.queue.waiting.borrow_mut();
        match waiting.iter_mut().find(|(ticket, _)| Some(*ticket) == self.ticket) {
            Some((_, waker)) => waker.clone_from(cx.waker()),
            None => {
                let ticket = self.queue.next_ticket.get();
                self.queue.next_ticket.set(ticket + 1);
                waiting.push_back((ticket, cx.waker().clone()));
                self.ticket = Some(ticket);
            }
        }
        Poll::Pending
    }

    fn leave(&mut self) {
        if let Some(mine) = self.ticket.take() {
            self.queue.waiting.borrow_mut().retain(|(ticket, _)| *ticket != mine);
            self.queue.wake();
        }
    }
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
