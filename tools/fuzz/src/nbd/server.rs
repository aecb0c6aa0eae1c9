//! A server with one export in memory, and both ends of its connection.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use dolmen_block_io::sync::Notify;
use dolmen_block_io::{Durability, Executor, MemoryClock, Spawner};
use dolmen_buffer::{Arena, ArenaConfig, Buffer, Shared};
use dolmen_nbd::{
    Access, BlockState, Connection, ConnectionError, Entrance, Export, ExportError, Exports, Extents, Holes,
    Limits, Listed, Means, Medium, PIECE_BYTES_MAX, Profile, ReadError, Receive, Refusal, Segments, Server,
    ZeroMode, Zeroing,
};
use dolmen_units::Bytes;

/// Bytes of the export.
pub(super) const DISK_BYTES: u64 = 256 << 10;
/// Bytes of its sectors.
pub(super) const SECTOR: u64 = 512;
/// Its name; the empty one stands for it.
pub(super) const NAME: &str = "disk";
/// What it says of itself.
pub(super) const DESCRIPTION: &str = "in memory";
/// A name that nobody may open.
pub(super) const SECRET: &str = "secret";
/// Steps of the executor between two messages, at most: far more than any takes.
const STEPS_MAX: usize = 200_000;

fn place(range: &Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// The export.
pub(super) struct Disk {
    profile: Profile,
    arena: Arena,
    pub(super) content: RefCell<Vec<u8>>,
    pub(super) allocated: RefCell<Vec<bool>>,
}

impl Disk {
    /// Whatever comes through was checked.
    fn expect(&self, range: &Range<u64>) {
        assert!(range.start < range.end && range.end <= DISK_BYTES, "{range:?} was not checked");
    }

    fn zero(&self, range: &Range<u64>, is_allocated: bool) {
        self.expect(range);
        self.content.borrow_mut()[place(range)].fill(0);
        self.allocated.borrow_mut()[place(range)].fill(is_allocated);
    }
}

impl Export for Disk {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn read(&self, range: Range<u64>, into: &mut Segments) -> Result<(), ReadError> {
        self.expect(&range);
        assert!(range.end - range.start <= PIECE_BYTES_MAX, "a piece is no longer than that");
        let mut buffer = self.arena.take((range.end - range.start) as usize).await;
        buffer.copy_in(&self.content.borrow()[place(&range)]);
        into.push_data(buffer.freeze());
        Ok(())
    }

    async fn write(&self, at: u64, from: Shared, _durability: Durability) -> Result<(), ExportError> {
        let range = at..at + from.len() as u64;
        self.expect(&range);
        self.content.borrow_mut()[place(&range)].copy_from_slice(&from);
        self.allocated.borrow_mut()[place(&range)].fill(true);
        Ok(())
    }

    async fn flush(&self) -> Result<(), ExportError> {
        Ok(())
    }

    async fn discard(&self, range: Range<u64>, _durability: Durability) -> Result<(), ExportError> {
        self.zero(&range, false);
        Ok(())
    }

    async fn write_zeroes(&self, zeroing: Zeroing) -> Result<(), ExportError> {
        if zeroing.zero_mode == ZeroMode::OnlyFast && zeroing.holes == Holes::Forbidden {
            return Err(ExportError::NotFast);
        }
        self.zero(&zeroing.range, zeroing.holes == Holes::Forbidden);
        Ok(())
    }

    async fn block_status(&self, range: Range<u64>, into: &mut Extents) -> Result<(), ExportError> {
        self.expect(&range);
        for run in self.allocated.borrow()[place(&range)].chunk_by(|one, next| one == next) {
            let state = if run[0] { BlockState::Data } else { BlockState::Hole };
            if into.push(run.len() as u64, state) == 0 {
                break;
            }
        }
        Ok(())
    }

    async fn cache(&self, range: Range<u64>) -> Result<(), ExportError> {
        self.expect(&range);
        Ok(())
    }
}

/// What there is.
pub(super) struct Shelf(pub(super) Rc<Disk>);

impl Exports for Shelf {
    type Export = Disk;
    type Visitor = ();

    async fn open(&self, _visitor: &(), name: &str) -> Result<Rc<Disk>, Refusal> {
        match name {
            "" | NAME => Ok(Rc::clone(&self.0)),
            SECRET => Err(Refusal::NotAllowed),
            _ => Err(Refusal::Unknown),
        }
    }

    async fn list(&self, _visitor: &()) -> Result<Vec<Listed>, Refusal> {
        Ok(vec![Listed { name: NAME.to_owned(), description: DESCRIPTION.to_owned() }])
    }
}

/// Both directions of a stream, as long as it is open.
#[derive(Default)]
struct Wire {
    to_server: RefCell<VecDeque<u8>>,
    to_client: RefCell<Vec<u8>>,
    /// The client sends no more.
    is_over: Cell<bool>,
    /// Nothing is taken any more.
    is_closed: Cell<bool>,
    notify: Notify,
}

impl Connection for Wire {
    async fn receive(&self, receive: Receive) -> (Buffer, Result<usize, ConnectionError>) {
        let Receive { mut into, range, least } = receive;
        let is_enough = || {
            let there = self.to_server.borrow().len() >= least;
            (there || self.is_over.get() || self.is_closed.get()).then_some(())
        };
        self.notify.wait_for(is_enough).await;
        let mut queue = self.to_server.borrow_mut();
        let count = queue.len().min(range.len());
        for (to, from) in into[range].iter_mut().zip(queue.drain(..count)) {
            *to = from;
        }
        (into, Ok(count))
    }

    async fn send(&self, parts: Vec<Shared>) -> (Vec<Shared>, Result<(), ConnectionError>) {
        if self.is_closed.get() {
            return (parts, Err(ConnectionError::Closed));
        }
        parts.iter().for_each(|part| self.to_client.borrow_mut().extend_from_slice(part));
        (parts, Ok(()))
    }

    fn close(&self) {
        self.is_closed.set(true);
        self.notify.notify_all();
    }
}

/// A server and one client of it.
pub(super) struct Session {
    executor: Rc<Executor>,
    arena: Arena,
    server: Rc<Server<Shelf>>,
    wire: Rc<Wire>,
    pub(super) disk: Rc<Disk>,
    has_ended: Rc<Cell<bool>>,
}

impl Session {
    /// A client has connected.
    pub(super) fn new() -> Self {
        let (executor, clock) = (Executor::new(), MemoryClock::new());
        let arena = Arena::new(ArenaConfig { small_count: 32, medium_count: 8, large_count: 4 });
        let profile = Profile {
            name: NAME.to_owned(),
            description: DESCRIPTION.to_owned(),
            size: Bytes(DISK_BYTES),
            block_bytes_min: 512,
            block_bytes_preferred: 4096,
            access: Access::ReadWrite,
            medium: Medium::Flash,
        };
        let disk = Rc::new(Disk {
            profile,
            arena: arena.clone(),
            content: RefCell::new(vec![0; DISK_BYTES as usize]),
            allocated: RefCell::new(vec![false; DISK_BYTES as usize]),
        });
        let means = Means { clock, spawner: executor.clone(), arena: arena.clone() };
        let limits = Limits { payload_bytes_max: PIECE_BYTES_MAX, ..Limits::default() };
        let server = Server::new(Shelf(Rc::clone(&disk)), means, limits);
        let (wire, has_ended) = (Rc::new(Wire::default()), Rc::new(Cell::new(false)));
        let (serving, served, ended) = (Rc::clone(&server), Rc::clone(&wire), Rc::clone(&has_ended));
        executor.spawn(
            "serve",
            Box::pin(async move {
                let _ = serving.serve(served, (), Entrance::Greeting).await;
                ended.set(true);
            }),
        );
        Self { executor, arena, server, wire, disk, has_ended }
    }

    /// Sends bytes, and returns all that comes back until the server waits for more.
    pub(super) fn send(&self, bytes: &[u8]) -> Vec<u8> {
        self.wire.to_server.borrow_mut().extend(bytes);
        self.wire.notify.notify_all();
        self.resolve();
        self.wire.to_client.take()
    }

    fn resolve(&self) {
        let mut steps = 0;
        while self.executor.run_one(|_| 0) {
            steps += 1;
            assert!(steps < STEPS_MAX, "the server does not come to rest: {:?}", self.executor.waiting());
        }
    }

    /// Whether the server has closed the connection.
    pub(super) fn is_closed(&self) -> bool {
        self.has_ended.get()
    }

    /// The client goes: the session ends, and everything that was lent is back.
    pub(super) fn end(self) -> Vec<u8> {
        self.wire.is_over.set(true);
        let last = self.send(&[]);
        assert!(self.has_ended.get(), "the session does not end: {:?}", self.executor.waiting());
        assert_eq!(self.server.session_count(), 0, "a session is left");
        let zeros = usize::from(self.arena.counters().takes > 0);
        assert!(self.arena.lent_count() <= zeros, "{} buffers are lent still", self.arena.lent_count());
        assert!(self.executor.waiting().is_empty(), "tasks are left: {:?}", self.executor.waiting());
        last
    }
}
