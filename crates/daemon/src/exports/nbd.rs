//! Spaces served over NBD, on one Unix socket for all of them, and on the listeners that `listeners` opens.
//!
//! The clients' bytes go from the socket into buffers of the arena and from there to the disks, on the engine's thread
//! and its ring; no other thread is involved, but for those of listeners with TLS, which have one in front.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{Shutdown, SocketAddr};
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{Clock, Durability, Seams, sleep};
use dolmen_block_linux::{Listener, Socket, SocketError};
use dolmen_buffer::{Buffer, Shared};
use dolmen_nbd::{
    Access, BlockState, Connection, ConnectionError, EXTENTS_MAX, Entrance, Export, ExportError, Exports,
    Extents, Farewell, Holes, Limits, Listed, Means, Medium, PIECE_BYTES_MAX, Profile, ReadError, Receive,
    Refusal, Segments, Server, SessionError, ZeroMode, Zeroing,
};
use dolmen_pool::PoolError;
use dolmen_space::{READ_BYTES_MAX, Segment, Space, SpaceError, Spaces};
use dolmen_units::{PoolId, SpaceId};

use crate::exports::network::Network;

const _: () = assert!(PIECE_BYTES_MAX <= READ_BYTES_MAX as u64, "a piece is one read of a space");

/// How often a client that may just have hung up is looked for again, and the pause between.
const LOOKS_MAX: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);
/// How long the listener rests when the system has no room for another connection.
const REST: Duration = Duration::from_millis(200);

/// A space that is served.
pub(crate) struct Served {
    pub(crate) pool: PoolId,
    pub(crate) name: String,
    pub(crate) access: Access,
    spaces: Rc<Spaces>,
    pub(crate) space: Space,
    /// The listener on which it is served as well.
    pub(crate) network: RefCell<Option<Network>>,
    clients: Cell<u64>,
}

/// Who a connection is from.
#[derive(Debug)]
pub(crate) enum Visitor {
    /// Who may use the Unix socket.
    Local,
    /// Who came through a listener, with the names of its certificate where one is asked for.
    OpenListener { at: SocketAddr, names: Vec<String> },
}

impl Served {
    pub(crate) fn is_writable(&self) -> bool {
        self.access == Access::ReadWrite
    }

    pub(crate) fn client_count(&self) -> u64 {
        self.clients.get()
    }

    /// How many clients there are, once those that have just hung up are seen to have.
    pub(crate) async fn lasting_clients(&self, clock: &dyn Clock) -> u64 {
        for _ in 0..LOOKS_MAX {
            if self.clients.get() == 0 {
                break;
            }
            sleep(clock, PAUSE).await;
        }
        self.clients.get()
    }

    /// Whether a visitor may open it. Behind a listener on which it is not served, it does not exist.
    fn admit(&self, visitor: &Visitor) -> Result<(), Refusal> {
        let Visitor::OpenListener { at, names } = visitor else { return Ok(()) };
        let network = self.network.borrow();
        let network = network.as_ref().filter(|network| network.listen == *at).ok_or(Refusal::Unknown)?;
        let is_meant = |name: &String| network.allow.iter().any(|allowed| allowed.eq_ignore_ascii_case(name));
        if network.allow.is_empty() || names.iter().any(is_meant) {
            return Ok(());
        }
        Err(Refusal::NotAllowed)
    }

    fn profile(&self) -> Profile {
        let spec = self.space.spec();
        let rotational =
            self.spaces.pool().disks().iter().filter_map(|disk| disk.geometry()).any(|g| g.rotational);
        Profile {
            name: self.name.clone(),
            description: format!("{}, {}", spec.resiliency, spec.size),
            size: spec.size,
            block_bytes_min: u32::try_from(spec.sector.0).unwrap_or(4096),
            block_bytes_preferred: u32::try_from(spec.interleave.0).unwrap_or(4096).clamp(4096, 1 << 20),
            access: self.access,
            medium: if rotational { Medium::Rotational } else { Medium::Flash },
        }
    }
}

/// What is served, by name.
#[derive(Default)]
pub(crate) struct Catalog {
    served: RefCell<BTreeMap<String, Rc<Served>>>,
}

impl Exports for Catalog {
    type Export = SpaceExport;
    type Visitor = Visitor;

    async fn open(&self, visitor: &Visitor, name: &str) -> Result<Rc<SpaceExport>, Refusal> {
        let served = self.served.borrow();
        let found = if name.is_empty() {
            // The default export: there is one when there is no choice.
            let mut admitted = served.values().filter(|served| served.admit(visitor).is_ok());
            admitted.next().filter(|_| admitted.next().is_none()).cloned()
        } else {
            served.get(name).cloned()
        };
        let served = found.ok_or(Refusal::Unknown)?;
        if let Err(refusal) = served.admit(visitor) {
            tracing::info!(space = name, ?visitor, %refusal, "a client may not open a space");
            return Err(refusal);
        }
        served.clients.set(served.clients.get() + 1);
        let profile = served.profile();
        Ok(Rc::new(SpaceExport { served, profile }))
    }

    async fn list(&self, visitor: &Visitor) -> Result<Vec<Listed>, Refusal> {
        let served = self.served.borrow();
        let line = |served: &Rc<Served>| Listed {
            name: served.name.clone(),
            description: served.profile().description,
        };
        Ok(served.values().filter(|served| served.admit(visitor).is_ok()).map(line).collect())
    }
}

/// A space, open for one client.
pub(crate) struct SpaceExport {
    served: Rc<Served>,
    profile: Profile,
}

impl Drop for SpaceExport {
    fn drop(&mut self) {
        self.served.clients.set(self.served.clients.get() - 1);
    }
}

fn reported(error: &SpaceError) -> ExportError {
    let answer = match error {
        SpaceError::NoSpaceBelow { .. } => ExportError::NoSpace,
        SpaceError::Pool(
            PoolError::NoSpace { .. }
            | PoolError::Fragmented { .. }
            | PoolError::MetadataFull { .. }
            | PoolError::LogOccupied { .. },
        ) => ExportError::NoSpace,
        SpaceError::Pool(PoolError::ReadOnly { .. }) => ExportError::ReadOnly,
        SpaceError::Range { .. } => ExportError::OutOfRange,
        SpaceError::Deleted { .. } => ExportError::Stopping,
        _ => ExportError::Failed,
    };
    tracing::warn!(%error, "a client's request failed");
    answer
}

impl SpaceExport {
    fn check_writable(&self) -> Result<(), ExportError> {
        if self.served.access == Access::ReadOnly { Err(ExportError::ReadOnly) } else { Ok(()) }
    }

    async fn conclude(&self, durability: Durability) -> Result<(), ExportError> {
        match durability {
            Durability::Cached => Ok(()),
            Durability::Durable => self.flush().await,
        }
    }
}

impl Export for SpaceExport {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn read(&self, range: Range<u64>, into: &mut Segments) -> Result<(), ReadError> {
        let length = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let read = self.served.space.read(range.start, length).await;
        let segments = read.map_err(|error| ReadError { at: range.start, error: reported(&error) })?;
        for segment in segments {
            match segment {
                Segment::Zeros(length) => into.push_zeros(length as u64),
                Segment::Data(bytes) => into.push_data(bytes),
            }
        }
        Ok(())
    }

    async fn admit(&self, bytes: u64) {
        if self.check_writable().is_ok() {
            self.served.space.wait_to_write(bytes).await;
        }
    }

    async fn write(&self, at: u64, from: Shared, durability: Durability) -> Result<(), ExportError> {
        self.check_writable()?;
        self.served.space.write_waited(at, &from, durability).await.map_err(|error| reported(&error))
    }

    async fn flush(&self) -> Result<(), ExportError> {
        self.served.space.flush().await.map_err(|error| reported(&error))
    }

    async fn discard(&self, range: Range<u64>, durability: Durability) -> Result<(), ExportError> {
        self.check_writable()?;
        let length = range.end - range.start;
        self.served.space.discard(range.start, length).await.map_err(|error| reported(&error))?;
        self.conclude(durability).await
    }

    async fn write_zeroes(&self, zeroing: Zeroing) -> Result<(), ExportError> {
        self.check_writable()?;
        let Zeroing { range, holes, zero_mode, durability } = zeroing;
        // A fixed space keeps its rows when they are forgotten, so nothing is lost by a hole there.
        match holes {
            Holes::Forbidden if self.served.space.is_thin() => match zero_mode {
                ZeroMode::OnlyFast => return Err(ExportError::NotFast),
                ZeroMode::Any => {
                    let space = &self.served.space;
                    let written = space.write_allocated_zeroes(range.start, range.end - range.start).await;
                    written.map_err(|error| reported(&error))?;
                }
            },
            Holes::Forbidden | Holes::Allowed => {
                let length = range.end - range.start;
                self.served
                    .space
                    .write_zeroes(range.start, length)
                    .await
                    .map_err(|error| reported(&error))?;
            }
        }
        self.conclude(durability).await
    }

    async fn block_status(&self, range: Range<u64>, into: &mut Extents) -> Result<(), ExportError> {
        let length = range.end - range.start;
        let found = self.served.space.block_status(range.start, length, EXTENTS_MAX).await;
        for extent in found.map_err(|error| reported(&error))? {
            let state = if extent.is_data { BlockState::Data } else { BlockState::Hole };
            if into.push(extent.length.0, state) == 0 {
                break;
            }
        }
        Ok(())
    }

    async fn cache(&self, _range: Range<u64>) -> Result<(), ExportError> {
        // Payloads are not cached here: reading ahead would only move bytes that nobody keeps.
        Ok(())
    }
}

/// A client's socket.
pub(crate) struct Client {
    pub(crate) socket: Socket,
}

fn connection_error(error: SocketError) -> ConnectionError {
    match error {
        SocketError::Closed => ConnectionError::Reset,
        SocketError::Stopped => ConnectionError::Closed,
        SocketError::NoRoom { errno } | SocketError::Failed { errno } => ConnectionError::System { errno },
    }
}

impl Connection for Client {
    async fn receive(&self, receive: Receive) -> (Buffer, Result<usize, ConnectionError>) {
        let Receive { into, range, least } = receive;
        let (buffer, result) = self.socket.receive_part(into, range, least).await;
        (buffer, result.map_err(connection_error))
    }

    async fn send(&self, mut parts: Vec<Shared>) -> (Vec<Shared>, Result<(), ConnectionError>) {
        let result = self.socket.send(&parts).await.map_err(connection_error);
        parts.clear();
        (parts, result)
    }

    fn close(&self) {
        self.socket.shutdown(Shutdown::Both);
    }
}

/// Logs how a session has ended.
pub(crate) fn report_end(end: Result<Farewell, SessionError>) {
    match end {
        Ok(farewell) => tracing::debug!(?farewell, "an NBD client has left"),
        Err(error) => {
            let error = dolmen_causes::in_one_line(&error);
            tracing::warn!(error, "an NBD session ended");
        }
    }
}

/// The server.
pub(crate) struct NbdServer {
    server: Rc<Server<Catalog>>,
    pub(crate) socket: PathBuf,
}

impl NbdServer {
    pub(crate) fn new(seams: &Seams, socket: PathBuf) -> Self {
        let means = Means {
            clock: Rc::clone(&seams.clock),
            spawner: Rc::clone(&seams.spawner),
            arena: seams.data.clone(),
        };
        Self { server: Server::new(Catalog::default(), means, Limits::default()), socket }
    }

    /// Serves whoever comes to the Unix socket, until the runtime ends.
    pub(crate) async fn listen(server: Rc<Server<Catalog>>, listener: Listener, seams: Seams) {
        let welcome = |socket| {
            let (server, client) = (Rc::clone(&server), Rc::new(Client { socket }));
            let session = async move {
                report_end(server.serve(client, Visitor::Local, Entrance::Greeting).await);
            };
            seams.spawner.spawn("nbd session", Box::pin(session));
        };
        Self::take_clients(&listener, seams.clock.as_ref(), welcome).await;
    }

    /// Takes clients, until the runtime ends.
    pub(crate) async fn take_clients(listener: &Listener, clock: &dyn Clock, welcome: impl Fn(Socket)) {
        loop {
            match listener.accept().await {
                Ok(socket) => welcome(socket),
                Err(SocketError::Stopped) => return,
                Err(error) => {
                    tracing::warn!(%error, "an NBD client could not be taken");
                    sleep(clock, REST).await;
                }
            }
        }
    }

    pub(crate) fn server(&self) -> Rc<Server<Catalog>> {
        Rc::clone(&self.server)
    }

    /// Serves a space under a name.
    pub(crate) fn add(&self, name: String, spaces: &Rc<Spaces>, space: &Space, access: Access) -> Rc<Served> {
        let (spaces, space) = (Rc::clone(spaces), space.clone());
        let pool = spaces.pool().id();
        let (clients, network) = (Cell::new(0), RefCell::default());
        let served = Rc::new(Served { pool, name: name.clone(), access, spaces, space, network, clients });
        self.server.exports().served.borrow_mut().insert(name, Rc::clone(&served));
        served
    }

    /// Serves it no more. The caller has made sure that no client has it open.
    pub(crate) fn remove(&self, name: &str) {
        self.server.exports().served.borrow_mut().remove(name);
    }

    /// How a space is served, if it is.
    pub(crate) fn find(&self, pool: PoolId, space: SpaceId) -> Option<Rc<Served>> {
        let served = self.server.exports().served.borrow();
        served.values().find(|served| served.pool == pool && served.space.id() == space).cloned()
    }

    /// Everything that is served, by name.
    pub(crate) fn list(&self) -> Vec<Rc<Served>> {
        self.server.exports().served.borrow().values().cloned().collect()
    }
}
