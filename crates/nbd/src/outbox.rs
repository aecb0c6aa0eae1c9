//! The sending side of a connection: messages leave whole, in batches, in the order in which they were pushed.
//!
//! One task sends. Messages that are pushed while it waits for the connection leave together at its next turn, so a
//! deep queue costs few system calls. A message is never mixed with another; the parts of a long simple reply, which
//! must not have other messages between them either, go through a second queue that for as long holds the first back.
//!
//! Invariant: whatever happens to the connection, the [`After`] of every message pushed is settled exactly once.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use dolmen_block_io::sync::Notify;
use dolmen_buffer::{Arena, Buffer, Shared};

use crate::connection::{Connection, ConnectionError};
use crate::export::PIECE_BYTES_MAX;
use crate::reply::{After, Body, HEAD_BYTES_MAX, Message};

/// Messages in one batch.
pub(crate) const BATCH_MESSAGES_MAX: usize = 24;
/// Parts in one batch, far below what a system takes in one call.
const BATCH_PARTS_MAX: usize = 96;
/// Memory for the heads of a batch: one small frame.
pub(crate) const HEADS_BYTES: usize = 4096;
/// Zeros that a part can refer to at a time.
pub(crate) const ZEROS_BYTES: usize = 64 * 1024;
/// Parts of the longest message: a piece of zeros, and its head.
const MESSAGE_PARTS_MAX: u64 = 1 + PIECE_BYTES_MAX.div_ceil(ZEROS_BYTES as u64);

const _: () =
    assert!(BATCH_MESSAGES_MAX * HEAD_BYTES_MAX <= HEADS_BYTES, "the heads of a batch fit their memory");
const _: () = assert!(MESSAGE_PARTS_MAX <= BATCH_PARTS_MAX as u64, "every message fits an empty batch");

/// Which queue leaves now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Ordinary messages.
    Ordinary,
    /// The parts of one long simple reply, until its last.
    Stream,
}

/// Whether messages can still leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// They can.
    Open,
    /// Those that are queued can; the session pushes no more.
    Finishing,
    /// They cannot; they are settled without having been sent.
    Broken(ConnectionError),
}

/// Messages that wait for the connection.
#[derive(Debug)]
pub(crate) struct Outbox {
    ordinary: RefCell<VecDeque<Message>>,
    stream: RefCell<VecDeque<Message>>,
    next: Cell<Next>,
    state: Cell<State>,
    notify: Notify,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self {
            ordinary: RefCell::default(),
            stream: RefCell::default(),
            next: Cell::new(Next::Ordinary),
            state: Cell::new(State::Open),
            notify: Notify::new(),
        }
    }

    /// Queues a message. Messages pushed one after the other without an await between stay together.
    pub(crate) fn push(&self, message: Message) {
        self.ordinary.borrow_mut().push_back(message);
        self.notify.notify_all();
    }

    /// Queues a part of a long simple reply, which nothing else may interrupt. The stream ends with the part whose
    /// [`After`] answers the request.
    pub(crate) fn push_stream(&self, message: Message) {
        self.next.set(Next::Stream);
        self.stream.borrow_mut().push_back(message);
        self.notify.notify_all();
    }

    /// Lets the sender end once everything has left.
    pub(crate) fn finish(&self) {
        if self.state.get() == State::Open {
            self.state.set(State::Finishing);
        }
        self.notify.notify_all();
    }

    /// Settles everything without sending it.
    pub(crate) fn abandon(&self, error: ConnectionError) {
        if !matches!(self.state.get(), State::Broken(_)) {
            self.state.set(State::Broken(error));
        }
        self.notify.notify_all();
    }

    /// Why nothing leaves any more.
    pub(crate) fn failure(&self) -> Option<ConnectionError> {
        match self.state.get() {
            State::Broken(error) => Some(error),
            State::Open | State::Finishing => None,
        }
    }

    fn pop(&self, parts_max: usize) -> Option<Message> {
        let next = self.next.get();
        let queue = match next {
            Next::Ordinary => &self.ordinary,
            Next::Stream => &self.stream,
        };
        let mut queue = queue.borrow_mut();
        queue.front().filter(|message| parts_count(message) <= parts_max)?;
        let message = queue.pop_front()?;
        if next == Next::Stream && message.after.requests > 0 {
            self.next.set(Next::Ordinary);
        }
        Some(message)
    }

    /// Whether the sender has something to do, or has to end.
    fn ready(&self) -> Option<()> {
        let waiting = match self.next.get() {
            Next::Ordinary => !self.ordinary.borrow().is_empty(),
            Next::Stream => !self.stream.borrow().is_empty(),
        };
        (waiting || self.state.get() != State::Open).then_some(())
    }

    /// Settles what is queued, in both queues.
    fn release_all(&self, release: &impl Fn(After)) {
        loop {
            let message =
                self.stream.borrow_mut().pop_front().or_else(|| self.ordinary.borrow_mut().pop_front());
            let Some(message) = message else { return };
            release(message.after);
        }
    }
}

/// The most parts that a message is sent as.
fn parts_count(message: &Message) -> usize {
    1 + match message.body {
        Body::None => 0,
        Body::Data(_) => 1,
        Body::Zeros(length) => usize::try_from(length).unwrap_or(usize::MAX).div_ceil(ZEROS_BYTES),
    }
}

/// What the sending task works with.
pub(crate) struct Sender<C> {
    pub(crate) connection: Rc<C>,
    pub(crate) arena: Arena,
    /// [`ZEROS_BYTES`] zeros.
    pub(crate) zeros: Shared,
    /// Memory for heads, of [`HEADS_BYTES`]; taken again if the driver has kept it.
    pub(crate) heads: Option<Buffer>,
}

/// A batch as it is put together.
#[derive(Default)]
struct Batch {
    /// Where each message's head is in the memory for heads.
    plan: Vec<(Range<usize>, Body)>,
    after: After,
}

impl<C: Connection> Sender<C> {
    /// Sends until the outbox is finished or broken and empty. `watch` is told when a batch is handed over and when it
    /// has left; `release` what became free.
    pub(crate) async fn run(mut self, outbox: &Outbox, watch: impl Fn(Sending), release: impl Fn(After)) {
        let mut parts = Vec::with_capacity(BATCH_PARTS_MAX);
        let mut batch = Batch { plan: Vec::with_capacity(BATCH_MESSAGES_MAX), after: After::default() };
        loop {
            outbox.notify.wait_for(|| outbox.ready()).await;
            if outbox.failure().is_some() {
                return outbox.release_all(&release);
            }
            let mut memory = match self.heads.take() {
                Some(memory) => memory,
                None => self.arena.take(HEADS_BYTES).await,
            };
            if !fill(&mut batch, outbox, &mut memory) {
                return;
            }
            let frozen = memory.freeze();
            self.lay_out(&mut batch, &frozen, &mut parts);
            watch(Sending::Began);
            let (returned, result) = self.connection.send(parts).await;
            watch(Sending::Ended);
            parts = returned;
            parts.clear();
            self.heads = frozen.thaw().ok();
            release(std::mem::take(&mut batch.after));
            if let Err(error) = result {
                outbox.abandon(error);
            }
        }
    }

    /// Turns the plan into parts. Heads without payload between them are one part.
    fn lay_out(&self, batch: &mut Batch, heads: &Shared, parts: &mut Vec<Shared>) {
        let mut run = 0..0;
        for (head, body) in batch.plan.drain(..) {
            run.end = head.end;
            if matches!(body, Body::None) {
                continue;
            }
            if !run.is_empty() {
                parts.push(heads.slice(run.clone()));
            }
            run.start = run.end;
            match body {
                Body::None => {}
                Body::Data(bytes) => parts.push(bytes),
                Body::Zeros(length) => self.push_zeros(parts, length),
            }
        }
        if !run.is_empty() {
            parts.push(heads.slice(run));
        }
    }

    fn push_zeros(&self, parts: &mut Vec<Shared>, length: u64) {
        let mut left = length;
        while left > 0 {
            let now = usize::try_from(left).unwrap_or(usize::MAX).min(ZEROS_BYTES);
            parts.push(self.zeros.slice(0..now));
            left -= now as u64;
        }
    }
}

/// Moves messages into the batch, and their heads into the memory. Returns whether there were any.
fn fill(batch: &mut Batch, outbox: &Outbox, memory: &mut Buffer) -> bool {
    let mut used = 0;
    let mut parts_left = BATCH_PARTS_MAX;
    while batch.plan.len() < BATCH_MESSAGES_MAX {
        let Some(message) = outbox.pop(parts_left) else { break };
        parts_left -= parts_count(&message);
        let len = message.head.write(memory.get_mut(used..).unwrap_or_default());
        batch.plan.push((used..used + len, message.body));
        used += len;
        batch.after.add(message.after);
    }
    !batch.plan.is_empty()
}

impl After {
    fn add(&mut self, other: Self) {
        self.payload_bytes += other.payload_bytes;
        self.requests += other.requests;
        self.holds += other.holds;
        self.holds_alone += other.holds_alone;
    }
}

/// What the sending task tells the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// A batch was handed to the connection.
    Began,
    /// The connection has finished with it.
    Ended,
}
