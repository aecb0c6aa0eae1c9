//! The TLS acceptor: a thread that receives connections on TLS listeners, hears their prelude, and shakes hands.
//!
//! A client that proves its identity is handed to the proxy; no other gets further than this thread, which holds no data of a
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

use crate::error::DaemonError;
use crate::exports::listener::der::common_names;
use crate::exports::listener::keys::{Keys, Stamps, load};
use crate::exports::listener::pending::{ConnectionId, Origin, PendingConnections};
use crate::exports::listener::proxy::{self, Admitted, Arrival, ProxyOrders};
use crate::exports::listener::thread::run_on_thread;

/// From accept to the end of the TLS handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// How long a listener rests when the system has no room for another connection.
const REST: Duration = Duration::from_millis(200);
/// How often the files of a listener are looked at, while connections come.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Lines that a listener logs of its connections in a second; the rest is counted.
const LINES_MAX: u32 = 10;
/// Orders that wait: listeners are opened and closed by people, one at a time.
const ORDERS_MAX: usize = 64;
/// What is received of a connection at a time.
const CONNECTION_READ_BYTES: usize = 4096;
/// How much less of the processor the TLS acceptor gets than threads with data.
const NICER: i32 = 5;
/// Names that one certificate may carry and that are looked at.
const NAMES_MAX: usize = 64;

/// A message to the TLS acceptor.
pub(crate) enum Order {
    /// Take connections there, with these keys.
    Open { at: SocketAddr, listener: net::TcpListener, files: TlsFiles, keys: Keys },
    /// Use these keys from the next connection on.
    Renew { at: SocketAddr, keys: Keys },
    /// Take no more connections there. Those who are in stay.
    Close { at: SocketAddr },
}

/// The way to the TLS acceptor.
#[derive(Debug, Clone)]
pub(crate) struct TlsAcceptor {
    orders: mpsc::Sender<Order>,
}

impl TlsAcceptor {
    /// Starts the TLS acceptor and the proxy. Both end when the TLS acceptor is gone and connections have ended; what is awaited
    /// is that end.
    pub(crate) fn start(engine: Mailbox<Arrival>) -> Result<(Self, Awaited<()>), DaemonError> {
        let (proxy, ended) = proxy::start(engine)?;
        let (orders, inbox) = mpsc::channel(ORDERS_MAX);
        run_on_thread("tls acceptor", move || async move {
            let _ = rustix::process::nice(NICER);
            Hall::new(proxy).serve(inbox).await;
        })?;
        Ok((Self { orders }, ended))
    }

    /// Leaves an order; `false` when the TLS acceptor has too many already, or is gone.
    #[must_use]
    pub(crate) fn report(&self, order: Order) -> bool {
        self.orders.try_send(order).is_ok()
    }
}

/// A listener, as the TLS acceptor sees it.
struct OpenListener {
    at: SocketAddr,
    files: TlsFiles,
    config: RefCell<Arc<ServerConfig>>,
    stamps: Cell<Stamps>,
    looked: Cell<Instant>,
    lines: Cell<(Instant, u32)>,
}

impl OpenListener {
    fn new(at: SocketAddr, files: TlsFiles, keys: Keys) -> Rc<Self> {
        let now = Instant::now();
        let (config, stamps) = (RefCell::new(keys.config), Cell::new(keys.stamps));
        Rc::new(Self { at, files, config, stamps, looked: Cell::new(now), lines: Cell::new((now, 0)) })
    }

    fn renew(&self, keys: Keys) {
        self.stamps.set(keys.stamps);
        *self.config.borrow_mut() = keys.config;
        for warning in keys.warnings {
            tracing::warn!(endpoint = %self.at, "{warning}");
        }
    }

    /// The keys for the next connection; read again if the files have changed.
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
                tracing::info!(endpoint = %self.at, "the certificates have changed; the new ones are in use");
                self.renew(keys);
            }
            Err(error) => {
                // Logged once for this content of the files.
                self.stamps.set(stamps);
                let error = dolmen_causes::in_one_line(&error);
                tracing::error!(endpoint = %self.at, error, "the certificates have changed and cannot be used; the ones before stay in use");
            }
        }
    }

    /// Logs why a connection was not let in, unless too many are.
    fn report(&self, peer: SocketAddr, error: &AdmissionError) {
        let (since, count) = self.lines.get();
        let is_new = since.elapsed() >= Duration::from_secs(1);
        if is_new && count > LINES_MAX {
            tracing::info!(endpoint = %self.at, count = count - LINES_MAX, "further connections were not let in");
        }
        let (since, count) = if is_new { (Instant::now(), 1) } else { (since, count + 1) };
        self.lines.set((since, count));
        if count <= LINES_MAX {
            let error = dolmen_causes::in_one_line(error);
            tracing::info!(endpoint = %self.at, %peer, error, "a connection was not let in");
        }
    }
}

/// Why a connection was not let in.
#[derive(Debug, thiserror::Error)]
enum AdmissionError {
    #[error("the connection failed")]
    Socket(#[from] io::Error),
    #[error("the connection left before TLS")]
    Left,
    #[error("before TLS")]
    Prelude(#[from] HandshakeError),
    #[error("in the TLS handshake")]
    Tls(#[from] rustls::Error),
    #[error("not done within {HANDSHAKE_LIMIT:?}")]
    Slow,
    #[error("there were too many connections from there")]
    BackingFull,
    #[error("the TLS proxy is full")]
    NoProxy,
}

/// All that the TLS acceptor knows.
struct Hall {
    proxy: ProxyOrders,
    listeners: RefCell<BTreeMap<SocketAddr, (Rc<OpenListener>, AbortHandle)>>,
    pending: RefCell<PendingConnections>,
    /// How a connection is told to go.
    notifies: RefCell<BTreeMap<ConnectionId, Rc<Notify>>>,
}

impl Hall {
    fn new(proxy: ProxyOrders) -> Rc<Self> {
        let (listeners, pending, notifies) = Default::default();
        Rc::new(Self { proxy, listeners, pending, notifies })
    }

    async fn serve(self: Rc<Self>, mut inbox: mpsc::Receiver<Order>) {
        while let Some(order) = inbox.recv().await {
            match order {
                Order::Open { at, listener, files, keys } => match TcpListener::from_std(listener) {
                    Ok(listener) => {
                        let endpoint = OpenListener::new(at, files, keys);
                        let task = spawn_local(Rc::clone(&self).listen(Rc::clone(&endpoint), listener));
                        self.listeners.borrow_mut().insert(at, (endpoint, task.abort_handle()));
                    }
                    Err(error) => tracing::error!(endpoint = %at, %error, "connections cannot be taken"),
                },
                Order::Renew { at, keys } => {
                    if let Some((endpoint, _)) = self.listeners.borrow().get(&at) {
                        endpoint.renew(keys);
                    }
                }
                Order::Close { at } => {
                    if let Some((_, task)) = self.listeners.borrow_mut().remove(&at) {
                        task.abort();
                    }
                }
            }
        }
    }

    async fn listen(self: Rc<Self>, endpoint: Rc<OpenListener>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    self.take(&endpoint, stream, peer);
                    // Whoever had to go for it goes before the next one comes.
                    yield_now().await;
                }
                // The engine has shut the socket down: the listener is closed.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return,
                Err(error) => {
                    tracing::warn!(endpoint = %endpoint.at, %error, "a connection could not be taken");
                    sleep(REST).await;
                }
            }
        }
    }

    /// Makes place for a connection, and receives it in a task of its own.
    fn take(self: &Rc<Self>, endpoint: &Rc<OpenListener>, stream: TcpStream, peer: SocketAddr) {
        let origin = Origin::of(peer.ip());
        let (id, out) = self.pending.borrow_mut().enter(origin);
        if let Some(notify) = out.and_then(|out| self.notifies.borrow_mut().remove(&out)) {
            notify.notify_one();
        }
        let notify = Rc::new(Notify::new());
        self.notifies.borrow_mut().insert(id, Rc::clone(&notify));
        let (hall, endpoint) = (Rc::clone(self), Rc::clone(endpoint));
        spawn_local(async move {
            let received = tokio::select! {
                biased;
                () = notify.notified() => Err(AdmissionError::BackingFull),
                received = timeout(HANDSHAKE_LIMIT, receive(&endpoint, stream, peer)) => {
                    received.unwrap_or(Err(AdmissionError::Slow))
                }
            };
            let handed = received
                .and_then(|connection| hall.proxy.hand(connection).map_err(|()| AdmissionError::NoProxy));
            if let Err(error) = handed {
                endpoint.report(peer, &error);
            }
            hall.pending.borrow_mut().leave(origin, id);
            hall.notifies.borrow_mut().remove(&id);
        });
    }
}

/// Hears a connection until it has proved who it is.
async fn receive(
    endpoint: &OpenListener,
    mut stream: TcpStream,
    peer: SocketAddr,
) -> Result<Admitted, AdmissionError> {
    let _ = stream.set_nodelay(true);
    let mut buffer = vec![0; CONNECTION_READ_BYTES];
    let (flags, start, end) = hear_prelude(&mut stream, &mut buffer).await?;
    let mut tls = ServerConnection::new(endpoint.config())?;
    let mut left = buffer.get(start..end).unwrap_or_default();
    let shaken = shake_hands(&mut stream, &mut tls, &mut left).await;
    drop(buffer);
    shaken?;
    let names = names_of(&tls);
    let stream = stream.into_std()?;
    Ok(Admitted { stream, tls, flags, endpoint: endpoint.at, peer, names })
}

/// Hears what is said before TLS. Returns the client's flags, and which part of the buffer is TLS already.
async fn hear_prelude(
    stream: &mut TcpStream,
    buffer: &mut [u8],
) -> Result<(ClientFlags, usize, usize), AdmissionError> {
    let mut prelude = Prelude::before_tls();
    stream.write_all(&greeting()).await?;
    let mut replies = Vec::new();
    loop {
        let came = stream.read(buffer).await?;
        if came == 0 {
            return Err(AdmissionError::Left);
        }
        let taken = prelude.take(buffer.get(..came).unwrap_or_default(), &mut replies);
        stream.write_all(&replies).await?;
        replies.clear();
        match taken? {
            (_, PreludeStep::More) => {}
            (_, PreludeStep::Left) => return Err(AdmissionError::Left),
            (taken, PreludeStep::StartTls(flags)) => return Ok((flags, taken, came)),
        }
    }
}

/// Carries the TLS handshake to its end: the client's certificate is verified then. `left` came with the prelude.
async fn shake_hands(
    stream: &mut TcpStream,
    tls: &mut ServerConnection,
    left: &mut &[u8],
) -> Result<(), AdmissionError> {
    let mut buffer = vec![0; CONNECTION_READ_BYTES];
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
                return Err(AdmissionError::Left);
            }
            let mut bytes = buffer.get(..came).unwrap_or_default();
            feed_library(stream, tls, &mut bytes).await?;
        } else {
            feed_library(stream, tls, left).await?;
        }
        // A handshake is arithmetic; others get their turn between its steps.
        yield_now().await;
    }
}

/// Gives all bytes to the library. When it refuses them, the connection is sent its alert.
async fn feed_library(
    stream: &mut TcpStream,
    tls: &mut ServerConnection,
    bytes: &mut &[u8],
) -> Result<(), AdmissionError> {
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
