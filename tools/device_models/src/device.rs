//! What every model of a device offers, and the two pieces that all are built of: a resource that serves one thing at
//! a time, and the list of answers that are due.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::request::{Completion, Request, SubmitError, Ticket};
use crate::time::Time;

/// A device in virtual time.
///
/// The contract: a model does nothing by itself; each call brings it up to the time that is named. Times never go back
/// from call to call. Everything depends on the parameters, the seed and the calls alone, so a run repeats. A caller
/// need not ask at each event: a model that is asked late has done everything in its order meanwhile.
pub trait Device {
    /// Where the device ends, in bytes.
    fn capacity_bytes(&self) -> u64;

    /// Hands a command over.
    ///
    /// # Errors
    /// When the command is empty or passes the end, or when the clock went back. Nothing has changed then.
    fn submit(&mut self, now: Time, request: Request) -> Result<Ticket, SubmitError>;

    /// When something happens next: a completion, or work inside that leads to one. `None` when nothing is under way,
    /// neither for a caller nor behind its back.
    fn next_event(&self) -> Option<Time>;

    /// The next command that was done at `now` or before, in the order of completion.
    fn poll(&mut self, now: Time) -> Option<Completion>;

    /// Commands that were submitted and not yet answered by [`Device::poll`].
    fn under_way(&self) -> usize;
}

/// A resource that serves one thing at a time, in the order of the calls.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Server {
    free_at: Time,
}

impl Server {
    /// Serves something that is there at `from` and takes `span_ns`; says when it is done.
    pub(crate) fn serve(&mut self, from: Time, span_ns: u64) -> Time {
        self.free_at = self.free_at.max(from).after(span_ns);
        self.free_at
    }

    /// When everything asked so far is done.
    pub(crate) const fn free_at(&self) -> Time {
        self.free_at
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Due {
    completion: Completion,
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |due: &Self| (due.completion.completed, due.completion.ticket);
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Answers, the earliest first; at one time, those of older commands first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers {
    heap: BinaryHeap<Reverse<Due>>,
}

impl Answers {
    pub(crate) fn push(&mut self, completion: Completion) {
        self.heap.push(Reverse(Due { completion }));
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(due)| due.completion.completed)
    }

    pub(crate) fn due(&mut self, now: Time) -> Option<Completion> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(due)| due.completion)
    }
}

/// The earlier of two times that may not exist.
pub(crate) fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
