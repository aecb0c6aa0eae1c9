//! A world in one thread: an executor with a seeded order, a clock that jumps, and pipes.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io::Read;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sync::Notify;
use dolmen_block_io::{Clock, Executor, Instant, MemoryClock, Spawner};
use dolmen_buffer::{Arena, ArenaConfig, Buffer, Shared};
use dolmen_nbd::{
    Connection, ConnectionError, Entrance, Farewell, Limits, Means, Receive, Server, SessionError,
};

use crate::client::Client;
use crate::export::{MemoryExports, Visitor};

/// Seeded choices (SplitMix64).
#[derive(Debug)]
pub(crate) struct Dice(Cell<u64>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    pub(crate) fn roll(&self, sides: usize) -> usize {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mut z = self.0.get();
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % sides as u64).unwrap()
    }
}

/// Bytes on their way, in one direction.
#[derive(Default)]
pub(crate) struct Pipe {
    bytes: RefCell<VecDeque<u8>>,
    closed: Cell<bool>,
    notify: Notify,
}

pub(crate) const PIPE_BYTES_MAX: usize = 128 * 1024;

impl Pipe {
    pub(crate) async fn write(&self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let space = || (PIPE_BYTES_MAX - self.bytes.borrow().len()).min(bytes.len());
            self.notify.wait_for(|| (self.closed.get() || space() > 0).then_some(())).await;
            if self.closed.get() {
                return false;
            }
            let (now, later) = bytes.split_at(space());
            self.bytes.borrow_mut().extend(now);
            self.notify.notify_all();
            bytes = later;
        }
        true
    }

    /// Takes `least` to `into.len()` bytes, or fewer at the end of the stream.
    pub(crate) async fn read(&self, into: &mut [u8], least: usize) -> usize {
        self.notify
            .wait_for(|| {
                (self.closed.get() || self.bytes.borrow().len() >= least.min(PIPE_BYTES_MAX)).then_some(())
            })
            .await;
        let mut bytes = self.bytes.borrow_mut();
        let mut count = 0;
        // A deque is read in two parts at most.
        for _ in 0..2 {
            count += bytes.read(&mut into[count..]).unwrap();
        }
        self.notify.notify_all();
        count
    }

    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.notify.notify_all();
    }
}

/// The server's end of two pipes.
pub(crate) struct MemoryConnection {
    pub(crate) to_server: Rc<Pipe>,
    pub(crate) to_client: Rc<Pipe>,
    /// Whether to hand over as little or as much as is allowed.
    dice: Rc<Dice>,
    receiving: Cell<bool>,
    sending: Cell<bool>,
    pub(crate) sends: Cell<usize>,
    pub(crate) receives: Cell<usize>,
    /// Sends after which the connection breaks.
    pub(crate) sends_max: Cell<usize>,
}

impl Connection for MemoryConnection {
    async fn receive(&self, receive: Receive) -> (Buffer, Result<usize, ConnectionError>) {
        let Receive { mut into, range, least } = receive;
        assert!(
            !range.is_empty() && range.end <= into.len() && (1..=range.len()).contains(&least),
            "{range:?} {least}"
        );
        assert!(!self.receiving.replace(true), "one receive at a time");
        self.receives.set(self.receives.get() + 1);
        let most = if self.dice.roll(2) == 0 { least } else { range.len() };
        let part = &mut into[range.start..range.start + most];
        let mut filled = 0;
        while filled < least {
            // What is longer than the pipe comes in several parts.
            let want = (least - filled).min(PIPE_BYTES_MAX / 2);
            let came = self.to_server.read(&mut part[filled..], want).await;
            filled += came;
            if came < want {
                break;
            }
        }
        self.receiving.set(false);
        (into, Ok(filled))
    }

    async fn send(&self, parts: Vec<Shared>) -> (Vec<Shared>, Result<(), ConnectionError>) {
        assert!(!self.sending.replace(true), "one send at a time");
        assert!(!parts.is_empty(), "nothing to send");
        self.sends.set(self.sends.get() + 1);
        if self.sends.get() > self.sends_max.get() {
            self.close();
        }
        let mut result = Ok(());
        for part in &parts {
            if !self.to_client.write(part).await {
                result = Err(ConnectionError::Reset);
                break;
            }
        }
        self.sending.set(false);
        (parts, result)
    }

    fn close(&self) {
        self.to_server.close();
        self.to_client.close();
    }
}

pub(crate) type Ending = Result<Farewell, SessionError>;

/// Everything that a test stands on.
pub(crate) struct World {
    pub(crate) executor: Rc<Executor>,
    pub(crate) clock: Rc<MemoryClock>,
    pub(crate) arena: Arena,
    pub(crate) server: Rc<Server<MemoryExports>>,
    pub(crate) dice: Rc<Dice>,
}

/// A client's connection and how its session ended.
pub(crate) struct Session {
    pub(crate) connection: Rc<MemoryConnection>,
    ending: Rc<RefCell<Option<Ending>>>,
    notify: Rc<Notify>,
}

impl Session {
    pub(crate) async fn ended(&self) -> Ending {
        self.notify.wait_for(|| *self.ending.borrow()).await
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> Rc<Self> {
        Self::with_limits(seed, Limits::default())
    }

    pub(crate) fn with_limits(seed: u64, limits: Limits) -> Rc<Self> {
        let config = ArenaConfig { small_count: 64, medium_count: 16, large_count: 4 };
        Self::with_arena(seed, limits, config)
    }

    pub(crate) fn with_arena(seed: u64, limits: Limits, config: ArenaConfig) -> Rc<Self> {
        let (executor, clock, arena) = (Executor::new(), MemoryClock::new(), Arena::new(config));
        let dice = Rc::new(Dice::new(seed));
        let exports = MemoryExports::new(&arena, &dice);
        let means = Means { clock: clock.clone(), spawner: executor.clone(), arena: arena.clone() };
        let server = Server::new(exports, means, limits);
        Rc::new(Self { executor, clock, arena, server, dice })
    }

    /// The two ends of a stream.
    pub(crate) fn stream(&self) -> [Rc<MemoryConnection>; 2] {
        let pipes = [Rc::<Pipe>::default(), Rc::<Pipe>::default()];
        [0, 1].map(|end| self.end(Rc::clone(&pipes[end]), Rc::clone(&pipes[1 - end])))
    }

    fn end(&self, to_server: Rc<Pipe>, to_client: Rc<Pipe>) -> Rc<MemoryConnection> {
        Rc::new(MemoryConnection {
            to_server,
            to_client,
            dice: Rc::clone(&self.dice),
            receiving: Cell::default(),
            sending: Cell::default(),
            sends: Cell::default(),
            receives: Cell::default(),
            sends_max: Cell::new(usize::MAX),
        })
    }

    /// Begins a session.
    pub(crate) fn connect(&self) -> Session {
        self.connect_at(Entrance::Greeting)
    }

    /// Begins a session of a client that has come so far.
    pub(crate) fn connect_at(&self, entrance: Entrance) -> Session {
        let connection = self.end(Rc::default(), Rc::default());
        let ending = Rc::new(RefCell::new(None));
        let notify = Rc::new(Notify::new());
        let (server, into, ring, served) =
            (Rc::clone(&self.server), Rc::clone(&ending), Rc::clone(&notify), Rc::clone(&connection));
        self.executor.spawn(
            "serve",
            Box::pin(async move {
                let result = server.serve(served, Visitor, entrance).await;
                *into.borrow_mut() = Some(result);
                ring.notify_all();
            }),
        );
        Session { connection, ending, notify }
    }

    /// A client that has not said anything yet.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.connect())
    }

    /// Runs until `future` is ready; time passes when nothing else happens.
    pub(crate) fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let result = Rc::new(RefCell::new(None));
        let into = Rc::clone(&result);
        self.executor.spawn("test", Box::pin(async move { *into.borrow_mut() = Some(future.await) }));
        let mut jumps = 0;
        loop {
            if let Some(value) = result.borrow_mut().take() {
                return value;
            }
            if self.executor.run_one(|ready| self.dice.roll(ready)) {
                continue;
            }
            jumps += 1;
            let moved = self.clock.jump() && jumps < 10_000;
            assert!(moved, "everything waits: {:?}", self.executor.waiting());
        }
    }

    /// Runs until nothing moves, without letting time pass.
    pub(crate) fn release(&self) {
        while self.executor.run_one(|ready| self.dice.roll(ready)) {}
    }

    /// Every session has ended, and everything that was lent is back.
    pub(crate) fn assert_at_rest(&self) {
        self.release();
        assert_eq!(self.server.session_count(), 0, "sessions left: {:?}", self.executor.waiting());
        let zeros = usize::from(self.arena.counters().takes > 0);
        assert!(self.arena.lent_count() <= zeros, "{} buffers are lent still", self.arena.lent_count());
        assert!(self.executor.waiting().is_empty(), "tasks left: {:?}", self.executor.waiting());
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.now().since(Instant(0))
    }
}
