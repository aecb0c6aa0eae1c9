//! The guard of a connection: ends it when its client takes too long.
//!
//! Every other task of a session waits for the connection without a limit. The guard closes the connection, which makes
//! them all wake up with an error; so no task has a timer of its own, and the path of a request arms none.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use dolmen_block_io::sync::Notify;
use dolmen_block_io::{Clock, Instant, within};

use crate::connection::Connection;
use crate::outbox::Sending;

/// How long a client may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From the start of the connection to the end of the handshake.
    pub handshake: Duration,
    /// To send one piece of a payload after its request. A client that begins a write and goes to sleep holds memory.
    pub payload: Duration,
    /// To take one batch of replies. A client that asks and does not listen holds memory.
    pub send: Duration,
    /// From the server's wish to stop to the closing of the connection. Meanwhile new requests are refused.
    pub stop: Duration,
    /// Without any request, after that wish, for the connection to be closed earlier.
    pub stop_quiet: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            payload: Duration::from_secs(60),
            send: Duration::from_secs(60),
            stop: Duration::from_secs(5),
            stop_quiet: Duration::from_millis(200),
        }
    }
}

/// Why the guard closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Cut {
    /// The handshake took too long.
    #[error("the client did not finish its handshake within {limit:?}")]
    SlowHandshake {
        /// What it had.
        limit: Duration,
    },
    /// The payload of a write did not come.
    #[error("the client did not send the payload of a write within {limit:?}")]
    SlowPayload {
        /// What it had.
        limit: Duration,
    },
    /// Replies were not taken.
    #[error("the client did not take its replies within {limit:?}")]
    DeafClient {
        /// What it had.
        limit: Duration,
    },
    /// The server stops.
    #[error("the server is stopping")]
    Stopping,
}

/// The server's wish to stop, seen by all its connections.
#[derive(Debug, Default)]
pub(crate) struct StopSign {
    since: Cell<Option<Instant>>,
    pub(crate) notify: Notify,
}

impl StopSign {
    pub(crate) fn raise(&self, now: Instant) {
        if self.since.get().is_none() {
            self.since.set(Some(now));
        }
        self.notify.notify_all();
    }

    pub(crate) fn is_up(&self) -> bool {
        self.since.get().is_some()
    }
}

/// What the guard sees of a session.
pub(crate) struct Watch {
    stop: Rc<StopSign>,
    clock: Rc<dyn Clock>,
    timeouts: Timeouts,
    began: Instant,
    /// Absent during transmission.
    handshake: Cell<Option<Instant>>,
    receiving_since: Cell<Option<Instant>>,
    sending_since: Cell<Option<Instant>>,
    /// When the last option or request came.
    active: Cell<Instant>,
    /// Requests that came and are not answered yet.
    busy: Cell<usize>,
    cut: Cell<Option<Cut>>,
    ended: Cell<bool>,
    pub(crate) notify: Notify,
}

/// What the guard does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Cut(Cut),
    LookAgain(Instant),
}

impl Watch {
    pub(crate) fn new(clock: Rc<dyn Clock>, timeouts: Timeouts, stop: Rc<StopSign>) -> Self {
        let began = clock.now();
        Self {
            stop,
            clock,
            timeouts,
            began,
            handshake: Cell::new(Some(began)),
            receiving_since: Cell::default(),
            sending_since: Cell::default(),
            active: Cell::new(began),
            busy: Cell::default(),
            cut: Cell::default(),
            ended: Cell::default(),
            notify: Notify::new(),
        }
    }

    /// The end of the time for the handshake.
    pub(crate) fn handshake_limit(&self) -> Instant {
        self.began + self.timeouts.handshake
    }

    pub(crate) fn transmission_began(&self) {
        self.handshake.set(None);
    }

    pub(crate) fn option_came(&self) {
        self.active.set(self.clock.now());
    }

    pub(crate) fn request_came(&self) {
        self.active.set(self.clock.now());
        self.busy.set(self.busy.get() + 1);
    }

    pub(crate) fn requests_answered(&self, count: usize) {
        let busy = self.busy.get();
        assert!(busy >= count, "no request is answered twice");
        self.busy.set(busy - count);
        // Only while stopping does the guard wait for this; otherwise it would wake up for every batch of replies.
        if self.stop.is_up() && self.busy.get() == 0 {
            self.notify.notify_all();
        }
    }

    /// Whether new requests are to be refused.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.is_up()
    }

    pub(crate) fn busy(&self) -> usize {
        self.busy.get()
    }

    pub(crate) fn sending(&self, sending: Sending) {
        match sending {
            Sending::Began => self.sending_since.set(Some(self.clock.now())),
            Sending::Ended => self.sending_since.set(None),
        }
    }

    pub(crate) fn payload_began(&self) {
        self.receiving_since.set(Some(self.clock.now()));
    }

    pub(crate) fn payload_came(&self) {
        self.receiving_since.set(None);
    }

    pub(crate) fn cut(&self) -> Option<Cut> {
        self.cut.get()
    }

    pub(crate) fn end(&self) {
        self.ended.set(true);
        self.notify.notify_all();
    }

    fn verdict(&self) -> Verdict {
        let now = self.clock.now();
        let limits = [
            self.handshake.get().map(|since| {
                let limit = self.timeouts.handshake;
                (since + limit, Cut::SlowHandshake { limit })
            }),
            self.receiving_since.get().map(|since| {
                let limit = self.timeouts.payload;
                (since + limit, Cut::SlowPayload { limit })
            }),
            self.sending_since.get().map(|since| {
                let limit = self.timeouts.send;
                (since + limit, Cut::DeafClient { limit })
            }),
            self.stop.since.get().map(|since| (self.stop_limit(since), Cut::Stopping)),
        ];
        // Payloads and batches begin and end without a word to the guard, so it looks again in time to notice.
        let idle = now + self.timeouts.send.min(self.timeouts.payload);
        let first = limits.into_iter().flatten().min_by_key(|(instant, _)| *instant);
        match first {
            Some((instant, cut)) if instant <= now => Verdict::Cut(cut),
            Some((instant, _)) => Verdict::LookAgain(instant.min(idle)),
            None => Verdict::LookAgain(idle),
        }
    }

    fn stop_limit(&self, since: Instant) -> Instant {
        let last = since + self.timeouts.stop;
        if self.busy.get() > 0 {
            return last;
        }
        last.min(self.active.get().max(since) + self.timeouts.stop_quiet)
    }
}

/// Closes the connection when its client has taken too long; ends with the session.
pub(crate) async fn guard<C: Connection>(watch: Rc<Watch>, connection: Rc<C>) {
    while !watch.ended.get() {
        let notified = either(watch.notify.wait(), watch.stop.notify.wait());
        match watch.verdict() {
            Verdict::Cut(cut) => {
                watch.cut.set(Some(cut));
                connection.close();
                return;
            }
            Verdict::LookAgain(instant) => {
                let _ = within(watch.clock.as_ref(), instant, notified).await;
            }
        }
    }
}

/// Waits for the first of two.
async fn either(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(|cx| {
        let first = a.as_mut().poll(cx);
        let second = b.as_mut().poll(cx);
        if first.is_ready() || second.is_ready() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
