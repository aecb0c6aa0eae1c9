//! Stream sockets on the runtime's driver, with payloads in the arena's buffers.
//!
//! Bytes are received straight into a [`Buffer`] and sent straight from any number of [`Shared`] pieces: nothing is
//! copied between the kernel's socket buffer and the memory that a disk is given. As with disks, the driver owns the
//! memory until the kernel has answered, whatever becomes of the future.

use std::fmt;
use std::future::Future;
use std::io;
use std::net;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net as unix;
use std::path::Path;
use std::rc::Rc;

use dolmen_buffer::{Buffer, Shared};

use crate::reactor::OpenFile;
use crate::runtime::Handle;
use crate::work::{SEND_PARTS_MAX, Work};

/// Why a socket did not carry out a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SocketError {
    /// The other side is gone.
    #[error("the connection was closed by the other side")]
    Closed,
    /// The runtime ends.
    #[error("the runtime ends, and its sockets with it")]
    Stopped,
    /// The system has no file, memory or process room for another connection; it may have later.
    #[error("the system has no room for another connection (errno {errno})")]
    NoRoom {
        /// The system's error number.
        errno: i32,
    },
    /// Something else.
    #[error("the socket failed (errno {errno})")]
    Failed {
        /// The system's error number.
        errno: i32,
    },
}

impl SocketError {
    fn from_answer(answer: i32) -> Result<usize, Self> {
        usize::try_from(answer).map_err(|_| match -answer {
            libc::EPIPE | libc::ECONNRESET | libc::ECONNABORTED | libc::ENOTCONN => Self::Closed,
            libc::ECANCELED => Self::Stopped,
            errno @ (libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => Self::NoRoom { errno },
            errno => Self::Failed { errno },
        })
    }
}

/// Which kind of stream a socket carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// A Unix socket: the other side is on this machine.
    Unix,
    /// TCP: the other side may be anywhere.
    Tcp,
}

/// A socket that waits for connections.
pub struct Listener {
    handle: Handle,
    file: Rc<OpenFile>,
    family: Family,
}

impl Listener {
    /// Listens on a path, which must not exist yet.
    ///
    /// # Errors
    /// What the system says.
    pub fn bind_unix(handle: &Handle, path: &Path) -> io::Result<Self> {
        Ok(Self::from_unix(handle, unix::UnixListener::bind(path)?))
    }

    /// Listens on an address.
    ///
    /// # Errors
    /// What the system says.
    pub fn bind_tcp(handle: &Handle, address: net::SocketAddr) -> io::Result<Self> {
        Ok(Self::from_tcp(handle, net::TcpListener::bind(address)?))
    }

    /// Takes a listener over that was made elsewhere, for instance by the service manager.
    #[must_use]
    pub fn from_unix(handle: &Handle, listener: unix::UnixListener) -> Self {
        Self::adopt(handle, listener.into(), Family::Unix)
    }

    /// Takes a listener over that was made elsewhere.
    #[must_use]
    pub fn from_tcp(handle: &Handle, listener: net::TcpListener) -> Self {
        Self::adopt(handle, listener.into(), Family::Tcp)
    }

    fn adopt(handle: &Handle, fd: OwnedFd, family: Family) -> Self {
        Self { handle: handle.clone(), file: OpenFile::stream(&handle.reactor, fd), family }
    }

    /// Waits for a connection. Begun at the call; a wait that is dropped gives the place back, and a connection that
    /// arrived in that very moment is closed.
    pub fn accept(&self) -> impl Future<Output = Result<Socket, SocketError>> + use<> {
        let answer = self.handle.reactor.request(&self.file, Work::Accept);
        let (handle, family) = (self.handle.clone(), self.family);
        async move {
            let (_, last) = answer.await;
            SocketError::from_answer(last)?;
            // SAFETY: the kernel has just made this descriptor, and the answer that names it comes once.
            let fd = unsafe { OwnedFd::from_raw_fd(last) };
            Ok(Socket::adopt(&handle, fd, family))
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.fd().as_fd()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener({:?})", self.family)
    }
}

/// A connection. It is closed when the last request on it has been answered after its handle was dropped.
pub struct Socket {
    file: Rc<OpenFile>,
    family: Family,
}

impl Socket {
    /// Takes a connection over that was made elsewhere.
    #[must_use]
    pub fn from_unix(handle: &Handle, stream: unix::UnixStream) -> Self {
        Self::adopt(handle, stream.into(), Family::Unix)
    }

    /// Takes a connection over that was made elsewhere.
    #[must_use]
    pub fn from_tcp(handle: &Handle, stream: net::TcpStream) -> Self {
        Self::adopt(handle, stream.into(), Family::Tcp)
    }

    fn adopt(handle: &Handle, fd: OwnedFd, family: Family) -> Self {
        if family == Family::Tcp {
            // Replies are sent whole; waiting for more to fill a segment would only delay them.
            let _ = rustix::net::sockopt::set_tcp_nodelay(&fd, true);
        }
        Self { file: OpenFile::stream(&handle.reactor, fd), family }
    }

    /// Which kind of stream this is.
    #[must_use]
    pub fn family(&self) -> Family {
        self.family
    }

    /// Receives some bytes: at least one, at most the length of `into`, or none when the other side has ended its
    /// stream. Begun at the call.
    ///
    /// A receive that is dropped is recalled; bytes that arrived meanwhile are lost with it, so the connection is then
    /// good for nothing but its end.
    pub fn receive(
        &self,
        into: Buffer,
    ) -> impl Future<Output = (Buffer, Result<usize, SocketError>)> + use<> {
        let part = 0..into.len();
        self.receive_part(into, part, 1)
    }

    /// Receives until `into` is full, or the other side has ended its stream: fewer bytes are received only then.
    pub fn receive_all(
        &self,
        into: Buffer,
    ) -> impl Future<Output = (Buffer, Result<usize, SocketError>)> + use<> {
        let (part, least) = (0..into.len(), into.len());
        self.receive_part(into, part, least)
    }

    /// Receives into a part of the buffer, until at least `least` bytes have come or the other side has ended its
    /// stream; the count is of bytes from the start of the part on.
    ///
    /// # Panics
    /// When the part is empty or not inside the buffer, or `least` is not between one and its length.
    pub fn receive_part(
        &self,
        into: Buffer,
        part: Range<usize>,
        least: usize,
    ) -> impl Future<Output = (Buffer, Result<usize, SocketError>)> + use<> {
        assert!(
            part.start < part.end && part.end <= into.len(),
            "{part:?} is no part of {} bytes",
            into.len()
        );
        assert!(least > 0 && least <= part.len(), "at least {least} bytes cannot come to {part:?}");
        let answer = self.file.reactor().request(&self.file, Work::Receive { into, part, least });
        async move {
            let (work, last) = answer.await;
            let Work::Receive { into, .. } = work else { unreachable!("a receive returns its buffer") };
            (into, SocketError::from_answer(last))
        }
    }

    /// Sends all pieces, in order. Two sends at the same time would mingle: the caller awaits one before the next.
    ///
    /// A send that is dropped goes on with the pieces that the kernel was given, at most [`SEND_PIECES_MAX`] of them, so
    /// the stream may end in the middle.
    ///
    /// # Errors
    /// [`SocketError`]; some of the bytes may have been sent.
    pub async fn send(&self, pieces: &[Shared]) -> Result<(), SocketError> {
        let reactor = self.file.reactor();
        for pieces in pieces.chunks(SEND_PARTS_MAX) {
            let message = reactor.message(pieces);
            let (work, last) = reactor.request(&self.file, Work::Send { message }).await;
            if let Work::Send { message } = work {
                reactor.keep_message(message);
            }
            SocketError::from_answer(last)?;
        }
        Ok(())
    }

    /// Ends one or both directions now. Requests under way are answered.
    pub fn shutdown(&self, how: net::Shutdown) {
        let how = match how {
            net::Shutdown::Read => rustix::net::Shutdown::Read,
            net::Shutdown::Write => rustix::net::Shutdown::Write,
            net::Shutdown::Both => rustix::net::Shutdown::Both,
        };
        // A connection that the other side has ended already cannot be ended again, which is what was wanted.
        let _ = rustix::net::shutdown(self.file.fd(), how);
    }

    /// Requests that the kernel still holds.
    #[must_use]
    pub fn outstanding_count(&self) -> usize {
        self.file.outstanding_count()
    }
}

/// Pieces that the kernel is given at a time.
pub const SEND_PIECES_MAX: usize = SEND_PARTS_MAX;

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.fd().as_fd()
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Socket({:?}, {} under way)", self.family, self.file.outstanding_count())
    }
}
