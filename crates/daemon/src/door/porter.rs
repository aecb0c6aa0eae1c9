//! The porter: a thread that receives guests on TLS doors, hears their prelude, and shakes hands.
//!
//! Who proves who it is is handed to the carrier; nobody else gets further than this thread, which holds no data of a
//! space. It runs at a lower priority than those who carry data: a handshake costs arithmetic, and anybody may ask for
//! one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::{self, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dolmen_api::TlsFiles;
use dolmen_block_linux::{Awaited, Mailbox};
use dolmen_nbd::option::{ClientFlags, HandshakeError, greeting};
use dolmen_nbd::{Prelude, PreludeStep};
use rustls::{ServerConfig, ServerConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, spawn_local, yield_now};
use tokio::time::{Instant, sleep, timeout};

use crate::door::carrier::{self, Admitted, Arrival, CarrierOrders};
use crate::door::der::common_names;
use crate::door::keys::{Keys, Stamps, load};
use crate::door::lobby::{GuestId, Lobby, Origin};
use crate::door::thread::run_on_thread;
use crate::error::DaemonError;

/// From accept to the end of the TLS handshake.
const GUEST_LIMIT: Duration = Duration::from_secs(10);
/// How long a door rests when the system has no room for another connection.
const REST: Duration = Duration::from_millis(200);
/// How often the files of a door are looked at, while guests come.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Lines that a door logs of its guests in a second; the rest is counted.
const LINES_MAX: u32 = 10;
/// Orders that wait: doors are opened and closed by people, one at a time.
const ORDERS_MAX: usize = 64;
/// What is received of a guest at a time.
const GUEST_READ_BYTES: usize = 4096;
/// How much less of the processor the porter gets than threads with data.
const NICER: i32 = 5;
/// Names that one certificate may carry and that are looked at.
const NAMES_MAX: usize = 64;

/// What the porter is told.
pub(crate) enum Order {
    /// Take guests there, with these keys.
    Open { at: SocketAddr, listener: net::TcpListener, files: TlsFiles, keys: Keys },
    /// Use these keys from the next guest on.
    Renew { at: SocketAddr, keys: Keys },
    /// Take no more guests there. Those who are in stay.
    Close { at: SocketAddr },
}

/// The way to the porter.
#[derive(Debug, Clone)]
pub(crate) struct Porter {
    orders: mpsc::Sender<Order>,
}

impl Porter {
    /// Starts the porter and the carrier. Both end when the porter is gone and connections have ended; what is awaited is
    /// that end.
    pub(crate) fn start(engine: Mailbox<Arrival>) -> Result<(Self, Awaited<()>), DaemonError> {
        let (carrier, ended) = carrier::start(engine)?;
        let (orders, inbox) = mpsc::channel(ORDERS_MAX);
        run_on_thread("porter", move || async move {
            let _ = rustix::process::nice(NICER);
            Hall::new(carrier).serve(inbox).await;
        })?;
        Ok((Self { orders }, ended))
    }

    /// Leaves an order; `false` when the porter has too many already, or is gone.
    #[must_use]
    pub(crate) fn tell(&self, order: Order) -> bool {
        self.orders.try_send(order).is_ok()
    }
}

/// A door, as the porter sees it.
struct Door {
    at: SocketAddr,
    files: TlsFiles,
    config: RefCell<Arc<ServerConfig>>,
    stamps: Cell<Stamps>,
    looked: Cell<Instant>,
    lines: Cell<(Instant, u32)>,
}

impl Door {
    fn new(at: SocketAddr, files: TlsFiles, keys: Keys) -> Rc<Self> {
        let now = Instant::now();
        let (config, stamps) = (RefCell::new(keys.config), Cell::new(keys.stamps));
        Rc::new(Self { at, files, config, stamps, looked: Cell::new(now), lines: Cell::new((now, 0)) })
    }

    fn renew(&self, keys: Keys) {
        self.stamps.set(keys.stamps);
        *self.config.borrow_mut() = keys.config;
        for warning in keys.warnings {
            tracing::warn!(door = %self.at, "{warning}");
        }
    }

    /// The keys for the next guest; read anew if the files have changed.
    fn config(&self) -> Arc<ServerConfig> {
        if self.looked.get().elapsed() >= LOOK_AGAIN {
            self.look_again();
            self.looked.set(Instant::now());
        }
        Arc::clone(&self.config.borrow())
    }

    fn look_again(&self) {
        let stamps = Stamps::now(&self.files);
        if stamps == self.stamps.get() {
            return;
        }
        match load(&self.files) {
            Ok(keys) => {
                tracing::info!(door = %self.at, "the certificates have changed; the new ones are in use");
                self.renew(keys);
            }
            Err(error) => {
                // Told once for this content of the files.
                self.stamps.set(stamps);
                let error = dolmen_causes::in_one_line(&error);
                tracing::error!(door = %self.at, error, "the certificates have changed and cannot be used; the ones before stay in use");
            }
        }
    }

    /// Logs why a guest was not let in, unless too many are.
    fn tell(&self, peer: SocketAddr, error: &GuestError) {
        let (since, count) = self.lines.get();
        let is_new = since.elapsed() >= Duration::from_secs(1);
        if is_new && count > LINES_MAX {
            tracing::info!(door = %self.at, count = count - LINES_MAX, "further guests were not let in");
        }
        let (since, count) = if is_new { (Instant::now(), 1) } else { (since, count + 1) };
        self.lines.set((since, count));
        if count <= LINES_MAX {
            let error = dolmen_causes::in_one_line(error);
            tracing::info!(door = %self.at, %peer, error, "a guest was not let in");
        }
    }
}

/// Why a guest was not let in.
#[derive(Debug, thiserror::Error)]
enum GuestError {
    #[error("the connection failed")]
    Socket(#[from] io::Error),
    #[error("the guest left before TLS")]
    Left,
    #[error("before TLS")]
    Prelude(#[from] HandshakeError),
    #[error("in the TLS handshake")]
    Tls(#[from] rustls::Error),
    #[error("not done within {GUEST_LIMIT:?}")]
    Slow,
    #[error("there were too many guests from there")]
    Crowded,
    #[error("the carrier takes no more connections at the moment")]
    NoCarrier,
}

/// All that the porter knows.
struct Hall {
    carrier: CarrierOrders,
    doors: RefCell<BTreeMap<SocketAddr, (Rc<Door>, AbortHandle)>>,
    lobby: RefCell<Lobby>,
    /// How a guest is told to go.
    bells: RefCell<BTreeMap<GuestId, Rc<Notify>>>,
}

impl Hall {
    fn new(carrier: CarrierOrders) -> Rc<Self> {
        let (doors, lobby, bells) = Default::default();
        Rc::new(Self { carrier, doors, lobby, bells })
    }

    async fn serve(self: Rc<Self>, mut inbox: mpsc::Receiver<Order>) {
        while let Some(order) = inbox.recv().await {
            match order {
                Order::Open { at, listener, files, keys } => match TcpListener::from_std(listener) {
                    Ok(listener) => {
                        let door = Door::new(at, files, keys);
                        let task = spawn_local(Rc::clone(&self).listen(Rc::clone(&door), listener));
                        self.doors.borrow_mut().insert(at, (door, task.abort_handle()));
                    }
                    Err(error) => tracing::error!(door = %at, %error, "guests cannot be taken"),
                },
                Order::Renew { at, keys } => {
                    if let Some((door, _)) = self.doors.borrow().get(&at) {
                        door.renew(keys);
                    }
                }
                Order::Close { at } => {
                    if let Some((_, task)) = self.doors.borrow_mut().remove(&at) {
                        task.abort();
                    }
                }
            }
        }
    }

    async fn listen(self: Rc<Self>, door: Rc<Door>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    self.take(&door, stream, peer);
                    // Whoever had to go for it goes before the next one comes.
                    yield_now().await;
                }
                // The engine has shut the socket down: the door is closed.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return,
                Err(error) => {
                    tracing::warn!(door = %door.at, %error, "a guest could not be taken");
                    sleep(REST).await;
                }
            }
        }
    }

    /// Makes place for a guest, and receives it in a task of its own.
    fn take(self: &Rc<Self>, door: &Rc<Door>, stream: TcpStream, peer: SocketAddr) {
        let origin = Origin::of(peer.ip());
        let (id, out) = self.lobby.borrow_mut().enter(origin);
        if let Some(bell) = out.and_then(|out| self.bells.borrow_mut().remove(&out)) {
            bell.notify_one();
        }
        let bell = Rc::new(Notify::new());
        self.bells.borrow_mut().insert(id, Rc::clone(&bell));
        let (hall, door) = (Rc::clone(self), Rc::clone(door));
        spawn_local(async move {
            let received = tokio::select! {
                biased;
                () = bell.notified() => Err(GuestError::Crowded),
                received = timeout(GUEST_LIMIT, receive(&door, stream, peer)) => {
                    received.unwrap_or(Err(GuestError::Slow))
                }
            };
            let handed =
                received.and_then(|guest| hall.carrier.hand(guest).map_err(|()| GuestError::NoCarrier));
            if let Err(error) = handed {
                door.tell(peer, &error);
            }
            hall.lobby.borrow_mut().leave(origin, id);
            hall.bells.borrow_mut().remove(&id);
        });
    }
}

/// Hears a guest until it has proved who it is.
async fn receive(door: &Door, mut stream: TcpStream, peer: SocketAddr) -> Result<Admitted, GuestError> {
    let _ = stream.set_nodelay(true);
    let mut buffer = vec![0; GUEST_READ_BYTES];
    let (flags, start, end) = hear_prelude(&mut stream, &mut buffer).await?;
    let mut tls = ServerConnection::new(door.config())?;
    let mut left = buffer.get(start..end).unwrap_or_default();
    let shaken = shake_hands(&mut stream, &mut tls, &mut left).await;
    drop(buffer);
    shaken?;
    let names = names_of(&tls);
    let stream = stream.into_std()?;
    Ok(Admitted { stream, tls, flags, door: door.at, peer, names })
}

/// Hears what is said before TLS. Returns the client's flags, and which part of the buffer is TLS already.
async fn hear_prelude(
    stream: &mut TcpStream,
    buffer: &mut [u8],
) -> Result<(ClientFlags, usize, usize), GuestError> {
    let mut prelude = Prelude::before_tls();
    stream.write_all(&greeting()).await?;
    let mut replies = Vec::new();
    loop {
        let came = stream.read(buffer).await?;
        if came == 0 {
            return Err(GuestError::Left);
        }
        let taken = prelude.take(buffer.get(..came).unwrap_or_default(), &mut replies);
        stream.write_all(&replies).await?;
        replies.clear();
        match taken? {
            (_, PreludeStep::More) => {}
            (_, PreludeStep::Left) => return Err(GuestError::Left),
            (taken, PreludeStep::StartTls(flags)) => return Ok((flags, taken, came)),
        }
    }
}

/// Carries the TLS handshake to its end: the client's certificate is verified then. `left` came with the prelude.
async fn shake_hands(
    stream: &mut TcpStream,
    tls: &mut ServerConnection,
    left: &mut &[u8],
) -> Result<(), GuestError> {
    let mut buffer = vec![0; GUEST_READ_BYTES];
    loop {
        while tls.wants_write() {
            let mut out = Vec::new();
            tls.write_tls(&mut out)?;
            stream.write_all(&out).await?;
        }
        if !tls.is_handshaking() && left.is_empty() {
            return Ok(());
        }
        if left.is_empty() {
            let came = stream.read(&mut buffer).await?;
            if came == 0 {
                return Err(GuestError::Left);
            }
            let mut bytes = buffer.get(..came).unwrap_or_default();
            tell_library(stream, tls, &mut bytes).await?;
        } else {
            tell_library(stream, tls, left).await?;
        }
        // A handshake is arithmetic; others get their turn between its steps.
        yield_now().await;
    }
}

/// Gives all bytes to the library. When it refuses them, the guest is sent its alert.
async fn tell_library(
    stream: &mut TcpStream,
    tls: &mut ServerConnection,
    bytes: &mut &[u8],
) -> Result<(), GuestError> {
    while !bytes.is_empty() {
        tls.read_tls(bytes)?;
        if let Err(error) = tls.process_new_packets() {
            let mut out = Vec::new();
            let _ = tls.write_tls(&mut out);
            let _ = stream.write_all(&out).await;
            return Err(error.into());
        }
    }
    Ok(())
}

/// The names that the client's certificate, which was verified, speaks for.
fn names_of(tls: &ServerConnection) -> Vec<String> {
    let Some(own) = tls.peer_certificates().and_then(|chain| chain.first()) else { return Vec::new() };
    let Ok(parsed) = webpki::EndEntityCert::try_from(own) else { return Vec::new() };
    let mut names = common_names(parsed.subject());
    names.extend(parsed.valid_dns_names().map(str::to_owned));
    names.truncate(NAMES_MAX);
    names
}
