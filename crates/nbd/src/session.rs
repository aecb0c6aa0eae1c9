//! A server's sessions: one per connection, from the greeting to the closing.
//!
//! The tasks of a session are the one that called [`Server::serve`], which reads requests; a crew of workers; one that
//! sends; and a guard with the clock. They end together: the reader stops, the workers finish what they have, the sender
//! sends what is left, the connection is closed, and only then does `serve` return. So whoever stops a server and waits
//! for its sessions knows that no request is under way any more and that every buffer is back in the arena.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;

use dolmen_block_io::sync::Notify;
use dolmen_block_io::{Clock, Durability, Spawner, within};
use dolmen_buffer::{Arena, Shared};

use crate::IN_FLIGHT_MAX;
use crate::budget::{Budget, Gate};
use crate::connection::{Connection, ConnectionError, Receive};
use crate::export::{Export, Exports, PIECE_BYTES_MAX, ReadError};
use crate::guard::{Cut, StopSign, Timeouts, Watch, guard};
use crate::handshake::{Entrance, Handshake, Next, REPLY_BYTES, send_bytes};
use crate::intake::{Ahead, Intake, StreamEnd};
use crate::option::{GREETING_BYTES, HandshakeError, RefusedOption, greeting};
use crate::outbox::{Outbox, Sender, ZEROS_BYTES};
use crate::perform::{Transmission, first_piece, piece_count};
use crate::prelude::{Prelude, PreludeStep};
use crate::reply::To;
use crate::request::{
    Command, EXTENDED_REQUEST_BYTES, REQUEST_BYTES, RefusedRequest, ReplyForm, RequestError, RequestHeader,
    check,
};
use crate::worker_pool::{Job, Tallies, WorkerPool};

/// What bounds a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time; one more is told so, and closed.
    pub connections_max: usize,
    /// Bytes of payload that one connection may hold; at least [`PIECE_BYTES_MAX`].
    pub payload_bytes_max: u64,
    /// How long clients may take.
    pub timeouts: Timeouts,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections_max: 256, payload_bytes_max: 16 << 20, timeouts: Timeouts::default() }
    }
}

/// What a server uses of the world.
#[derive(Clone)]
pub struct Means {
    /// Time.
    pub clock: Rc<dyn Clock>,
    /// Tasks.
    pub spawner: Rc<dyn Spawner>,
    /// Memory for payloads, heads and replies. A connection keeps two small frames for its life.
    pub arena: Arena,
}

impl fmt::Debug for Means {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Means").field("arena", &self.arena).finish_non_exhaustive()
    }
}

/// How a session ended in good order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    /// The client said that it was leaving.
    Left,
    /// The client closed the connection between two messages.
    Closed,
    /// The server stopped.
    Stopped,
}

/// How a session ended otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// No place for another connection. The client was told, unless too many were being told.
    #[error("turning a client away")]
    Refused(#[source] RefusedOption),
    /// The client broke the protocol of the handshake.
    #[error("in the handshake")]
    Handshake(#[from] HandshakeError),
    /// The client broke the protocol of requests.
    #[error("in transmission")]
    Request(#[from] RequestError),
    /// The stream from the client ended too early.
    #[error("receiving from the client")]
    Receive(#[from] StreamEnd),
    /// The stream to the client broke.
    #[error("sending to the client")]
    Send(#[source] ConnectionError),
    /// A simple reply had begun to leave when the rest could not be read; the protocol has no way to say so.
    #[error("sending a long simple reply that cannot be finished; closing")]
    BrokenOff(#[source] ReadError),
    /// The client took too long.
    #[error("waiting for the client")]
    Cut(#[source] Cut),
}

/// A server: what its sessions share.
pub struct Server<S> {
    exports: S,
    means: Means,
    limits: Limits,
    stop: Rc<StopSign>,
    session_count: Cell<usize>,
    refused_count: Cell<usize>,
    zeros: RefCell<Option<Shared>>,
    /// Rung when a session ends.
    notify: Notify,
}

impl<S> fmt::Debug for Server<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("limits", &self.limits)
            .field("sessions", &self.session_count)
            .finish_non_exhaustive()
    }
}

/// One session in the server's count.
struct Counted<'a> {
    count: &'a Cell<usize>,
    notify: &'a Notify,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
        self.notify.notify_all();
    }
}

impl<S: Exports + 'static> Server<S> {
    /// A server for these exports.
    ///
    /// # Panics
    /// When the limit of payload is below [`PIECE_BYTES_MAX`]: no long request could ever be served.
    #[must_use]
    pub fn new(exports: S, means: Means, limits: Limits) -> Rc<Self> {
        assert!(limits.payload_bytes_max >= PIECE_BYTES_MAX, "a connection may hold a piece of payload");
        Rc::new(Self {
            exports,
            means,
            limits,
            stop: Rc::default(),
            session_count: Cell::default(),
            refused_count: Cell::default(),
            zeros: RefCell::default(),
            notify: Notify::new(),
        })
    }

    /// The exports.
    pub fn exports(&self) -> &S {
        &self.exports
    }

    /// Connections now.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.session_count.get()
    }

    /// Stops: requests under way are finished, new ones refused, and connections closed when their clients have left,
    /// have been quiet for a moment or have used up their time. Returns when no session is left; bounded by
    /// [`Timeouts::stop`] and by the export's own time for what is under way.
    pub async fn stop(&self) {
        self.stop.raise(self.means.clock.now());
        let all_gone = || self.session_count.get() == 0 && self.refused_count.get() == 0;
        self.notify.wait_for(|| all_gone().then_some(())).await;
    }

    /// Serves one client until the end. The connection is closed when this returns, and no task of the session is left.
    /// The future is not to be dropped before.
    ///
    /// # Errors
    /// What the client or the connection did wrong. The export is in order in any case.
    pub async fn serve<C: Connection + 'static>(
        &self,
        connection: Rc<C>,
        visitor: S::Visitor,
        entrance: Entrance,
    ) -> Result<Farewell, SessionError> {
        let connections_max = self.limits.connections_max;
        if self.session_count.get() >= connections_max || self.stop.is_up() {
            return self.refuse_client(connection, entrance, RefusedOption::Full { connections_max }).await;
        }
        self.session_count.set(self.session_count.get() + 1);
        let _counted = Counted { count: &self.session_count, notify: &self.notify };
        let watch = self.watch();
        let session = self.session(&connection, &watch, &visitor, entrance);
        self.guarded(&connection, &watch, session).await
    }

    /// Tells a client, in answer to whatever it asks for, why it is not served, until it leaves or its time for the
    /// handshake is over. Beyond [`REFUSED_MAX`](crate::REFUSED_MAX) at a time, clients are closed without a word.
    ///
    /// # Errors
    /// [`SessionError::Refused`], unless the server stops.
    pub async fn refuse_client<C: Connection + 'static>(
        &self,
        connection: Rc<C>,
        entrance: Entrance,
        refusal: RefusedOption,
    ) -> Result<Farewell, SessionError> {
        let count = self.refused_count.get();
        if self.stop.is_up() || count >= crate::REFUSED_MAX {
            connection.close();
        } else {
            self.refused_count.set(count + 1);
            let _counted = Counted { count: &self.refused_count, notify: &self.notify };
            let watch = self.watch();
            let told = self.notify(&connection, entrance, refusal);
            // Whether the client has listened changes nothing.
            let _ = self.guarded(&connection, &watch, told).await;
        }
        if self.stop.is_up() { Ok(Farewell::Stopped) } else { Err(SessionError::Refused(refusal)) }
    }

    fn watch(&self) -> Rc<Watch> {
        let clock = Rc::clone(&self.means.clock);
        Rc::new(Watch::new(clock, self.limits.timeouts, Rc::clone(&self.stop)))
    }

    /// Runs a session beside its guard, and closes the connection behind it.
    async fn guarded<C: Connection + 'static>(
        &self,
        connection: &Rc<C>,
        watch: &Rc<Watch>,
        session: impl Future<Output = Result<Farewell, SessionError>>,
    ) -> Result<Farewell, SessionError> {
        let guard = self.spawn("nbd guard", guard(Rc::clone(watch), Rc::clone(connection)));
        let result = session.await;
        connection.close();
        watch.end();
        guard.ended().await;
        match (result, watch.cut()) {
            (Ok(farewell), _) => Ok(farewell),
            (Err(_), Some(Cut::Stopping)) => Ok(Farewell::Stopped),
            (Err(_), Some(cut)) => Err(SessionError::Cut(cut)),
            (Err(SessionError::Receive(StreamEnd::Between)), None) => Ok(Farewell::Closed),
            (Err(error), None) => Err(error),
        }
    }

    async fn notify<C: Connection + 'static>(
        &self,
        connection: &Rc<C>,
        entrance: Entrance,
        refusal: RefusedOption,
    ) -> Result<Farewell, SessionError> {
        let arena = &self.means.arena;
        // Without memory there is nothing to say it with; nobody waits for it who is not served.
        let (Some(mut into), frame) = (arena.try_take(REPLY_BYTES), arena.try_take(REPLY_BYTES)) else {
            return Ok(Farewell::Stopped);
        };
        let frame = Cell::new(frame);
        let mut prelude = Prelude::turning_away(entrance, refusal);
        let mut replies = Vec::with_capacity(GREETING_BYTES);
        if entrance == Entrance::Greeting {
            replies.extend_from_slice(&greeting());
        }
        loop {
            send_bytes(connection.as_ref(), arena, &frame, &replies).await?;
            replies.clear();
            let range = 0..into.len();
            let (buffer, result) = connection.receive(Receive { into, range, least: 1 }).await;
            into = buffer;
            let came = result.map_err(StreamEnd::from)?;
            let bytes = into.get(..came).unwrap_or_default();
            if bytes.is_empty() {
                return Ok(Farewell::Closed);
            }
            let taken = prelude.take(bytes, &mut replies);
            if !matches!(taken, Ok((_, PreludeStep::More))) {
                send_bytes(connection.as_ref(), arena, &frame, &replies).await?;
                return taken.map(|_| Farewell::Left).map_err(SessionError::from);
            }
        }
    }

    async fn session<C: Connection + 'static>(
        &self,
        connection: &Rc<C>,
        watch: &Rc<Watch>,
        visitor: &S::Visitor,
        entrance: Entrance,
    ) -> Result<Farewell, SessionError> {
        let arena = &self.means.arena;
        let memory = async {
            let intake = Intake::new(Rc::clone(connection), arena).await;
            (intake, arena.take(REPLY_BYTES).await, self.zeros().await)
        };
        let limit = watch.handshake_limit();
        let Some((mut intake, memory, zeros)) = within(self.means.clock.as_ref(), limit, memory).await else {
            let limit = self.limits.timeouts.handshake;
            return Err(SessionError::Cut(Cut::SlowHandshake { limit }));
        };
        let memory = Cell::new(Some(memory));
        let (connection_, exports) = (connection.as_ref(), &self.exports);
        let handshake =
            Handshake { connection: connection_, exports, visitor, entrance, arena, memory, watch };
        let (export, agreed) = match handshake.run(&mut intake).await? {
            Next::Left => return Ok(Farewell::Left),
            Next::Transmission(export, agreed) => (export, agreed),
        };
        watch.transmission_began();
        let transmission = Rc::new(Transmission {
            connection: Rc::clone(connection),
            export,
            agreed,
            arena: arena.clone(),
            watch: Rc::clone(watch),
            outbox: Outbox::new(),
            worker_pool: WorkerPool::default(),
            tallies: Tallies::new(),
            budget: Budget::new(self.limits.payload_bytes_max),
            gate: Gate::default(),
            broken_off: Cell::default(),
            notify: Notify::new(),
        });
        let sender = Sender {
            connection: Rc::clone(connection),
            arena: arena.clone(),
            zeros,
            heads: handshake.memory.take(),
        };
        self.transmit(&transmission, intake, sender).await
    }

    async fn transmit<C: Connection + 'static>(
        &self,
        transmission: &Rc<Transmission<C, S::Export>>,
        mut intake: Intake<C>,
        sender: Sender<C>,
    ) -> Result<Farewell, SessionError> {
        let shared = Rc::clone(transmission);
        let sending = self.spawn("nbd sender", async move {
            let watch = |sending| shared.watch.sending(sending);
            sender.run(&shared.outbox, watch, |after| shared.release(after)).await;
            // The reader would otherwise go on waiting for requests whose answers cannot be sent.
            if shared.outbox.failure().is_some() {
                shared.connection.close();
            }
        });
        let result = self.receive_requests(transmission, &mut intake).await;
        // What fails later only follows from the end that the client has made.
        let failure = transmission.outbox.failure();
        drop(intake);
        transmission.worker_pool.dismiss().await;
        transmission.outbox.finish();
        sending.ended().await;
        let free_bytes = transmission.budget.free_bytes();
        assert!(
            free_bytes == self.limits.payload_bytes_max,
            "all payload is given back, not just {free_bytes}"
        );
        match (result, transmission.broken_off.get(), failure) {
            (Err(SessionError::Receive(_)), Some(cause), _) => Err(SessionError::BrokenOff(cause)),
            (Err(SessionError::Receive(_)), None, Some(error)) => Err(SessionError::Send(error)),
            (result, _, _) => result.map(|()| Farewell::Left),
        }
    }

    /// Takes requests until the client leaves.
    async fn receive_requests<C: Connection + 'static>(
        &self,
        transmission: &Rc<Transmission<C, S::Export>>,
        intake: &mut Intake<C>,
    ) -> Result<(), SessionError> {
        let profile = transmission.export.profile().clone();
        let watch = &transmission.watch;
        let mut ahead = Ahead::Heads;
        loop {
            transmission.notify.wait_for(|| (watch.busy() < IN_FLIGHT_MAX).then_some(())).await;
            let header = match transmission.agreed.form {
                ReplyForm::Simple | ReplyForm::Structured => {
                    RequestHeader::parse(&intake.head::<REQUEST_BYTES>(ahead).await?)?
                }
                ReplyForm::Extended => {
                    RequestHeader::parse_extended(&intake.head::<EXTENDED_REQUEST_BYTES>(ahead).await?)?
                }
            };
            let RequestHeader { cookie, offset, length, .. } = header;
            let to = To { cookie, offset, form: transmission.agreed.form };
            let payload_bytes = header.payload_bytes();
            ahead = if payload_bytes > 0 { Ahead::Nothing } else { Ahead::Heads };
            let checked = check(&header, &profile, transmission.agreed);
            if checked == Ok(Command::Disconnect) {
                return Ok(());
            }
            watch.request_came();
            let checked = if watch.is_stopping() { Err(RefusedRequest::Stopping) } else { checked };
            match checked {
                Ok(Command::Write { range, durability }) => {
                    self.receive_write(transmission, intake, to, range, durability).await?;
                }
                Ok(command) => {
                    let job = Job { to, command, payload: None, tally: None };
                    self.assign(transmission, job).await;
                }
                Err(refusal) => {
                    if payload_bytes > header.headers.drain_bytes_max() {
                        transmission.refuse(to, refusal);
                        return Err(RequestError::PayloadTooLong { offset, length }.into());
                    }
                    intake.skip(payload_bytes).await?;
                    transmission.refuse(to, refusal);
                }
            }
        }
    }

    /// Takes the payload of a write in pieces, each of which is written while the next is received.
    async fn receive_write<C: Connection + 'static>(
        &self,
        transmission: &Rc<Transmission<C, S::Export>>,
        intake: &mut Intake<C>,
        to: To,
        range: Range<u64>,
        durability: Durability,
    ) -> Result<(), SessionError> {
        let pieces = piece_count(&range);
        let tally = (pieces > 1).then(|| transmission.tallies.begin(pieces));
        let mut left = range;
        while !left.is_empty() {
            let range = first_piece(&left);
            left.start = range.end;
            let length = range.end - range.start;
            transmission.export.admit(length).await;
            transmission.budget.acquire(length).await;
            // A piece fits a frame, and so any `usize`.
            let memory = transmission.arena.take(usize::try_from(length).unwrap_or(0)).await;
            transmission.watch.payload_began();
            let received = intake.payload(memory).await;
            transmission.watch.payload_came();
            let payload = match received {
                Ok(payload) => Some(payload.freeze()),
                Err(error) => {
                    transmission.budget.release(length);
                    return Err(error.into());
                }
            };
            self.assign(
                transmission,
                Job { to, command: Command::Write { range, durability }, payload, tally },
            )
            .await;
        }
        Ok(())
    }

    async fn assign<C: Connection + 'static>(&self, transmission: &Rc<Transmission<C, S::Export>>, job: Job) {
        let spawn = |worker| {
            let shared = Rc::clone(transmission);
            self.means.spawner.spawn("nbd worker", Box::pin(async move { shared.work(worker).await }));
        };
        transmission.worker_pool.assign(job, spawn).await;
    }

    /// The zeros that all sessions send from.
    async fn zeros(&self) -> Shared {
        let made = self.zeros.borrow().clone();
        if let Some(zeros) = made {
            return zeros;
        }
        let mut memory = self.means.arena.take(ZEROS_BYTES).await;
        memory.fill(0);
        let zeros = memory.freeze();
        self.zeros.borrow_mut().get_or_insert(zeros).clone()
    }

    fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + 'static) -> Spawned {
        let end = Rc::new(End::default());
        let ring = Rc::clone(&end);
        let task: Pin<Box<dyn Future<Output = ()>>> = Box::pin(async move {
            task.await;
            ring.reached.set(true);
            ring.notify.notify_all();
        });
        self.means.spawner.spawn(name, task);
        Spawned { end }
    }
}

#[derive(Default)]
struct End {
    reached: Cell<bool>,
    notify: Notify,
}

/// A task that can be waited for.
struct Spawned {
    end: Rc<End>,
}

impl Spawned {
    async fn ended(&self) {
        self.end.notify.wait_for(|| self.end.reached.get().then_some(())).await;
    }
}
