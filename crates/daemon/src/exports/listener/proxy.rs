//! The proxy: a thread that deciphers what clients of TLS listeners send, and enciphers what they are answered.
//!
//! Each connection is a TLS stream on one side and a socket pair on the other, whose far end the engine serves like any
//! client's socket. Nothing is kept here but what is on its way: a side that takes nothing makes the other one wait.
//!
//! Invariant: a connection holds at most [`PART_BYTES`] each way beside what the TLS library bounds itself.

use std::io::{self, BufRead, Write};
use std::net::{self, SocketAddr};
use std::os::unix::net::UnixStream as PairEnd;
use std::time::Duration;

use dolmen_block_linux::{Awaited, Mailbox, reply};
use dolmen_nbd::option::ClientFlags;
use rustls::ServerConnection;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::task::{JoinSet, yield_now};
use tokio::time::timeout;

use crate::error::DaemonError;
use crate::exports::listener::thread::run_on_thread;

/// What is moved at a time: four records.
const PART_BYTES: usize = 64 * 1024;
/// Connections that wait to be taken from the TLS acceptor.
const HANDED_MAX: usize = 256;
/// How long a client may take nothing, behind the time that its session gives it.
const DEAF_LIMIT: Duration = Duration::from_secs(75);
/// How long a client may take for the last words of a session that has ended.
const FAREWELL_LIMIT: Duration = Duration::from_secs(5);
/// How long connections have to end once the daemon wants to.
const END_LIMIT: Duration = Duration::from_secs(2);
/// Turns after which other connections get theirs.
const ROUNDS_MAX: u32 = 16;

/// A client that has proved who it is.
pub(crate) struct Admitted {
    pub(crate) stream: net::TcpStream,
    pub(crate) tls: ServerConnection,
    pub(crate) flags: ClientFlags,
    pub(crate) endpoint: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) names: Vec<String>,
}

/// The same client, as the engine sees it.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// What it says, deciphered.
    pub(crate) stream: PairEnd,
    pub(crate) flags: ClientFlags,
    pub(crate) endpoint: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) names: Vec<String>,
}

/// The channel to the proxy. Its thread ends when this is gone, and the connections have ended or had the time to.
pub(crate) struct ProxyOrders {
    admitted: mpsc::Sender<Admitted>,
}

impl ProxyOrders {
    /// Hands a client over; it is closed when the proxy cannot take it.
    pub(crate) fn hand(&self, client: Admitted) -> Result<(), ()> {
        self.admitted.try_send(client).map_err(drop)
    }
}

/// Starts the thread. What is awaited is its end.
pub(crate) fn start(engine: Mailbox<Arrival>) -> Result<(ProxyOrders, Awaited<()>), DaemonError> {
    let (admitted, inbox) = mpsc::channel(HANDED_MAX);
    let (ended, awaited) = reply();
    run_on_thread("tls proxy", move || async move {
        serve(engine, inbox).await;
        ended.send(());
    })?;
    Ok((ProxyOrders { admitted }, awaited))
}

async fn serve(engine: Mailbox<Arrival>, mut inbox: mpsc::Receiver<Admitted>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            client = inbox.recv() => match client {
                Some(client) => {
                    connections.spawn_local(take(client, engine.clone()));
                }
                None => break,
            },
            Some(_) = connections.join_next() => {}
        }
    }
    let _ = timeout(END_LIMIT, async { while connections.join_next().await.is_some() {} }).await;
}

/// Tells the engine of a client, and carries its bytes until the end.
async fn take(client: Admitted, engine: Mailbox<Arrival>) {
    let Admitted { stream, tls, flags, endpoint, peer, names } = client;
    let pair = PairEnd::pair().and_then(|(ours, theirs)| {
        // The engine's end stays as it is: its driver waits by itself.
        ours.set_nonblocking(true)?;
        Ok((UnixStream::from_std(ours)?, theirs, TcpStream::from_std(stream)?))
    });
    let (pair, theirs, tcp) = match pair {
        Ok(pair) => pair,
        Err(error) => {
            tracing::warn!(%endpoint, %peer, %error, "a client cannot be carried");
            return;
        }
    };
    tracing::info!(%endpoint, %peer, ?names, "a client was let in");
    if engine.post(Arrival { stream: theirs, flags, endpoint, peer, names }).is_err() {
        tracing::warn!(%endpoint, %peer, "the engine takes no more clients at the moment");
        return;
    }
    drop(engine);
    let mut carried = ProxiedConnection {
        tls,
        tcp,
        pair,
        in_part: Part::new(),
        out_part: Part::new(),
        state: State::default(),
    };
    if let Err(error) = carried.run().await {
        let error = dolmen_causes::in_one_line(&error);
        tracing::debug!(%endpoint, %peer, error, "a connection has ended");
    }
}

/// Why a connection has ended before both sides were through with it.
#[derive(Debug, thiserror::Error)]
enum ProxyError {
    #[error("the socket failed")]
    Socket(#[from] io::Error),
    #[error("the client broke TLS")]
    Tls(#[from] rustls::Error),
    #[error("the client takes nothing any more")]
    Deaf,
}

/// Bytes on their way.
struct Part {
    memory: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Part {
    fn new() -> Self {
        Self { memory: vec![0; PART_BYTES].into_boxed_slice(), start: 0, end: 0 }
    }

    fn bytes(&self) -> &[u8] {
        self.memory.get(self.start..self.end).unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Fills the empty part by `read`. `None` when there is nothing yet, 0 at the end of the stream.
    fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<Option<usize>> {
        (self.start, self.end) = (0, 0);
        let came = unless_blocked(read(&mut self.memory))?;
        self.end = came.unwrap_or(0);
        Ok(came)
    }
}

/// What the system says it would have to wait for is nothing, and no error.
fn unless_blocked<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Which directions are over.
#[derive(Debug, Default)]
struct State {
    /// The client sends no more.
    client_ended: bool,
    /// The engine knows.
    engine_notified: bool,
    /// The engine sends no more: the session has ended.
    engine_ended: bool,
}

/// A connection under way.
struct ProxiedConnection {
    tls: ServerConnection,
    tcp: TcpStream,
    pair: UnixStream,
    /// Ciphertext of the client.
    in_part: Part,
    /// Plain text of the engine.
    out_part: Part,
    state: State,
}

impl ProxiedConnection {
    async fn run(&mut self) -> Result<(), ProxyError> {
        let mut attempts = 0;
        loop {
            let moved = self.send_cipher()? | self.give_plain()? | self.take_cipher()? | self.take_plain()?;
            if self.state.engine_ended && self.out_part.is_empty() && !self.tls.wants_write() {
                return Ok(());
            }
            if moved {
                attempts += 1;
                if attempts % ROUNDS_MAX == 0 {
                    yield_now().await;
                }
                continue;
            }
            self.wait().await?;
        }
    }

    /// Ciphertext to the client.
    fn send_cipher(&mut self) -> Result<bool, ProxyError> {
        let mut moved = false;
        while self.tls.wants_write() {
            match unless_blocked(self.tls.write_tls(&mut TrySend(&self.tcp)))? {
                Some(_) => moved = true,
                None => break,
            }
        }
        Ok(moved)
    }

    /// Plain text to the engine.
    fn give_plain(&mut self) -> Result<bool, ProxyError> {
        let mut moved = false;
        loop {
            let mut reader = self.tls.reader();
            let plain = match unless_blocked(reader.fill_buf()) {
                Ok(Some(plain)) if !plain.is_empty() => plain,
                Ok(None) => return Ok(moved),
                // The end, with or without the words for it: what is missing is the session's to judge.
                Ok(Some(_)) | Err(_) => {
                    self.state.client_ended = true;
                    return Ok(self.notify_engine_of_end() | moved);
                }
            };
            match unless_blocked(self.pair.try_write(plain)) {
                Ok(Some(count)) => {
                    reader.consume(count);
                    moved = true;
                }
                Ok(None) => return Ok(moved),
                // The session has ended and takes nothing more; its last words are still to be read.
                Err(_) => {
                    let rest = plain.len();
                    reader.consume(rest);
                    self.state.client_ended = true;
                    self.state.engine_notified = true;
                }
            }
        }
    }

    fn notify_engine_of_end(&mut self) -> bool {
        if self.state.engine_notified {
            return false;
        }
        self.state.engine_notified = true;
        let _ = rustix::net::shutdown(&self.pair, rustix::net::Shutdown::Write);
        true
    }

    /// Ciphertext of the client, once all plain text before it was given on.
    fn take_cipher(&mut self) -> Result<bool, ProxyError> {
        if self.state.client_ended || self.has_plain() {
            return Ok(false);
        }
        let mut moved = false;
        if self.in_part.is_empty() {
            let tcp = &self.tcp;
            match self.in_part.fill(|memory| tcp.try_read(memory))? {
                None => return Ok(false),
                Some(0) => {
                    self.tls.read_tls(&mut io::empty())?;
                    self.state.client_ended = true;
                    self.notify_engine_of_end();
                    return Ok(true);
                }
                Some(_) => moved = true,
            }
        }
        while !self.in_part.is_empty() && !self.has_plain() {
            let mut bytes = self.in_part.memory.get(self.in_part.start..self.in_part.end).unwrap_or_default();
            let taken = self.tls.read_tls(&mut bytes)?;
            self.in_part.start += taken;
            if let Err(error) = self.tls.process_new_packets() {
                // The alert is sent as far as the socket takes it at once.
                let _ = self.send_cipher();
                return Err(error.into());
            }
            moved = true;
        }
        Ok(moved)
    }

    fn has_plain(&mut self) -> bool {
        self.tls.reader().fill_buf().is_ok_and(|plain| !plain.is_empty())
    }

    /// Plain text of the engine, once all ciphertext before it has left.
    fn take_plain(&mut self) -> Result<bool, ProxyError> {
        if self.tls.wants_write() {
            return Ok(false);
        }
        let mut moved = false;
        if self.out_part.is_empty() && !self.state.engine_ended {
            let pair = &self.pair;
            match unless_reset(self.out_part.fill(|memory| pair.try_read(memory)))? {
                None => return Ok(false),
                Some(0) => {
                    self.state.engine_ended = true;
                    self.tls.send_close_notify();
                }
                Some(_) => {}
            }
            moved = true;
        }
        if !self.out_part.is_empty() {
            let written = self.tls.writer().write(self.out_part.bytes())?;
            self.out_part.start += written;
            moved = true;
        }
        Ok(moved)
    }

    /// Waits until one of the sockets has, or takes, what the connection stands still for.
    async fn wait(&mut self) -> Result<(), ProxyError> {
        let has_plain = self.has_plain();
        let wants_write = self.tls.wants_write();
        let of_client = match (wants_write, !self.state.client_ended && !has_plain) {
            (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
            (true, false) => Some(Interest::WRITABLE),
            (false, true) => Some(Interest::READABLE),
            (false, false) => None,
        };
        let of_engine = match (has_plain, !wants_write && !self.state.engine_ended) {
            (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
            (true, false) => Some(Interest::WRITABLE),
            (false, true) => Some(Interest::READABLE),
            (false, false) => None,
        };
        let (tcp, pair) = (&self.tcp, &self.pair);
        let client = async {
            match of_client {
                Some(interest) => tcp.ready(interest).await.map(drop),
                None => std::future::pending().await,
            }
        };
        let engine = async {
            match of_engine {
                Some(interest) => pair.ready(interest).await.map(drop),
                None => std::future::pending().await,
            }
        };
        let either = async {
            tokio::select! {
                ready = client => ready,
                ready = engine => ready,
            }
        };
        if !wants_write {
            return Ok(either.await?);
        }
        let limit = if self.state.engine_ended { FAREWELL_LIMIT } else { DEAF_LIMIT };
        timeout(limit, either).await.map_err(|_| ProxyError::Deaf)?.map_err(ProxyError::from)
    }
}

/// A session that was cut leaves a reset instead of an end when bytes to it were unread: its end all the same.
fn unless_reset(result: io::Result<Option<usize>>) -> io::Result<Option<usize>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(Some(0)),
        result => result,
    }
}

/// The client's socket, as the TLS library writes to it.
struct TrySend<'a>(&'a TcpStream);

impl Write for TrySend<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
