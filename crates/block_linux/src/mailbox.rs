//! Messages from other threads to the runtime's, and the answers on their way back.
//!
//! A post takes a lock for as long as it takes to append to a queue, and wakes the runtime only if it rests. Messages
//! are counted: each is a crossing between cores, and the path of a client's I/O should have none.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::cores::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use super::park::Parker;
use super::runtime::Handle;

/// Messages that wait in one mailbox, at most: a runtime that falls behind slows its clients, and does not collect
/// their requests.
pub const MAILBOX_MESSAGES_MAX: usize = 4608;

struct Queue<T> {
    messages: VecDeque<T>,
    waker: Option<Waker>,
    senders: usize,
    open: bool,
}

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    parker: Arc<Parker>,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a message was not taken; it comes back.
#[derive(thiserror::Error)]
pub enum PostError<T> {
    /// [`MAILBOX_MESSAGES_MAX`] messages wait already.
    #[error("posting a message: {MAILBOX_MESSAGES_MAX} wait already; try again when some were taken")]
    Full(T),
    /// The inbox is gone: the runtime has ended or does not serve these messages any more.
    #[error("posting a message: nobody takes messages here any more")]
    Closed(T),
}

impl<T> fmt::Debug for PostError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full",
            Self::Closed(_) => "Closed",
        })
    }
}

/// The end that other threads hold.
pub struct Mailbox<T> {
    shared: Arc<Shared<T>>,
}

/// The runtime's end.
pub struct Inbox<T> {
    shared: Arc<Shared<T>>,
}

impl Handle {
    /// A mailbox to this runtime.
    #[must_use]
    pub fn mailbox<T: Send>(&self) -> (Mailbox<T>, Inbox<T>) {
        let messages = VecDeque::new();
        let queue = Mutex::new(Queue { messages, waker: None, senders: 1, open: true });
        let shared = Arc::new(Shared { queue, parker: Arc::clone(&self.parker) });
        (Mailbox { shared: Arc::clone(&shared) }, Inbox { shared })
    }
}

impl<T: Send> Mailbox<T> {
    /// Leaves a message. Never blocks for longer than an append takes.
    ///
    /// # Errors
    /// [`PostError`], with the message.
    pub fn post(&self, message: T) -> Result<(), PostError<T>> {
        let waker = {
            let mut queue = self.shared.lock();
            if !queue.open {
                return Err(PostError::Closed(message));
            }
            if queue.messages.len() >= MAILBOX_MESSAGES_MAX {
                return Err(PostError::Full(message));
            }
            queue.messages.push_back(message);
            queue.waker.take()
        };
        self.shared.parker.note_message();
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Leaves a message that carries the way back, as `make` puts it together, and returns where the answer arrives.
    ///
    /// # Errors
    /// [`PostError`], with the message.
    pub fn ask<R: Send>(&self, make: impl FnOnce(Reply<R>) -> T) -> Result<Awaited<R>, PostError<T>> {
        let (reply, awaited) = reply();
        self.post(make(reply)).map(|()| awaited)
    }
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        self.shared.lock().senders += 1;
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Mailbox<T> {
    fn drop(&mut self) {
        let waker = {
            let mut queue = self.shared.lock();
            queue.senders -= 1;
            if queue.senders == 0 { queue.waker.take() } else { None }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Inbox<T> {
    /// The next message; `None` when there is none and no mailbox is left to post one.
    pub fn receive(&mut self) -> impl Future<Output = Option<T>> + '_ {
        poll_fn(|cx| {
            let mut queue = self.shared.lock();
            if let Some(message) = queue.messages.pop_front() {
                return Poll::Ready(Some(message));
            }
            if queue.senders == 0 {
                return Poll::Ready(None);
            }
            queue.waker = Some(cx.waker().clone());
            Poll::Pending
        })
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        let left = {
            let mut queue = self.shared.lock();
            queue.open = false;
            std::mem::take(&mut queue.messages)
        };
        // Outside the lock: messages carry replies, whose loss wakes whoever waits for them.
        drop(left);
    }
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mailbox({} waiting)", self.shared.lock().messages.len())
    }
}

impl<T> fmt::Debug for Inbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inbox({} waiting)", self.shared.lock().messages.len())
    }
}

/// The message was dropped without an answer: its task ended, or the runtime did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("waiting for an answer: the runtime dropped the message without one")]
pub struct NoReply;

enum Place<R> {
    Empty(Option<Waker>),
    Full(R),
    Lost,
}

struct Slot<R> {
    place: Mutex<Place<R>>,
    notify: Condvar,
}

/// The way back for one answer.
pub struct Reply<R> {
    slot: Option<Arc<Slot<R>>>,
}

/// Where one answer arrives: block on it, or await it on any executor.
pub struct Awaited<R> {
    slot: Arc<Slot<R>>,
}

/// A way back, and where it ends.
#[must_use]
pub fn reply<R: Send>() -> (Reply<R>, Awaited<R>) {
    let slot = Arc::new(Slot { place: Mutex::new(Place::Empty(None)), notify: Condvar::new() });
    (Reply { slot: Some(Arc::clone(&slot)) }, Awaited { slot })
}

impl<R> Slot<R> {
    fn fill(&self, with: Place<R>) {
        let before = std::mem::replace(&mut *self.place.lock().unwrap_or_else(PoisonError::into_inner), with);
        self.notify.notify_all();
        if let Place::Empty(Some(waker)) = before {
            waker.wake();
        }
    }

    fn take(place: &mut Place<R>) -> Option<Result<R, NoReply>> {
        match std::mem::replace(place, Place::Lost) {
            Place::Full(value) => Some(Ok(value)),
            Place::Lost => Some(Err(NoReply)),
            empty @ Place::Empty(_) => {
                *place = empty;
                None
            }
        }
    }
}

impl<R> Reply<R> {
    /// Whether the other end is still there to take an answer.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.slot.as_ref().is_some_and(|slot| Arc::strong_count(slot) > 1)
    }

    /// Gives the answer.
    pub fn send(mut self, value: R) {
        if let Some(slot) = self.slot.take() {
            slot.fill(Place::Full(value));
        }
    }
}

impl<R> Drop for Reply<R> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.fill(Place::Lost);
        }
    }
}

impl<R> Awaited<R> {
    /// Blocks the calling thread until the answer is there. Never to be called on a runtime's own thread, which would
    /// then wait for itself.
    ///
    /// # Errors
    /// [`NoReply`].
    pub fn wait(self) -> Result<R, NoReply> {
        let mut place = self.slot.place.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(answer) = Slot::take(&mut place) {
                return answer;
            }
            place = self.slot.notify.wait(place).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As [`wait`](Self::wait), for `limit` at most.
    ///
    /// # Errors
    /// The wait itself, unchanged, when there is no answer yet.
    pub fn wait_at_most(self, limit: Duration) -> Result<Result<R, NoReply>, Self> {
        let place = self.slot.place.lock().unwrap_or_else(PoisonError::into_inner);
        let is_empty = |place: &mut Place<R>| matches!(place, Place::Empty(_));
        let waited = self.slot.notify.wait_timeout_while(place, limit, is_empty);
        let mut place = waited.unwrap_or_else(PoisonError::into_inner).0;
        let answer = Slot::take(&mut place);
        drop(place);
        answer.ok_or(self)
    }
}

impl<R> Future for Awaited<R> {
    type Output = Result<R, NoReply>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut place = self.slot.place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = Slot::take(&mut place) {
            return Poll::Ready(answer);
        }
        *place = Place::Empty(Some(cx.waker().clone()));
        Poll::Pending
    }
}

impl<R> fmt::Debug for Reply<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

impl<R> fmt::Debug for Awaited<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Awaited")
    }
}
