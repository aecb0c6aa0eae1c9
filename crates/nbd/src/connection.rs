//! The seam to a client: a stream of bytes in both directions.

use std::future::Future;
use std::ops::Range;

use dolmen_buffer::{Buffer, Shared};

/// Why a connection brings or takes no more bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionError {
    /// [`Connection::close`] was called.
    #[error("the connection was closed here")]
    Closed,
    /// The peer has closed or reset the connection.
    #[error("the peer closed the connection")]
    Reset,
    /// The system failed.
    #[error("the connection failed (errno {errno})")]
    System {
        /// The system's error number.
        errno: i32,
    },
}

/// What to receive, and where to put it.
#[derive(Debug)]
pub struct Receive {
    /// The memory. The driver owns it until completion.
    pub into: Buffer,
    /// The part of the memory to fill, from its start on. Not empty.
    pub range: Range<usize>,
    /// How many bytes must have come; at most as many as the range has. More may come, if they are there.
    pub least: usize,
}

/// A connection to a client.
///
/// The contract:
/// - A call begins at its first poll. There is at most one `receive` and one `send` at a time, side by side.
/// - `receive` completes once `least` bytes have come, and fills the range from its start. `Ok` with fewer says that the
///   peer will send no more. The buffer comes back in any case.
/// - `send` completes once every byte was handed to the system in order, or an error came up; from then on the driver
///   holds none of the parts. The list comes back in any case, with or without its parts: its memory is used again.
/// - Dropping a future cancels nothing; the driver owns the memory until completion.
/// - `close` ends both directions: what is pending completes soon, with an error or fewer bytes, and later calls
///   complete at once. Bytes handed over before are still delivered, as far as the peer takes them.
///
/// Payloads are received straight into the memory that the export is given, and sent straight from the memory that it
/// returned; a driver with registered buffers finds both in the arena.
pub trait Connection {
    /// Receives.
    fn receive(&self, receive: Receive) -> impl Future<Output = (Buffer, Result<usize, ConnectionError>)>;

    /// Sends the parts, one after the other.
    fn send(&self, parts: Vec<Shared>) -> impl Future<Output = (Vec<Shared>, Result<(), ConnectionError>)>;

    /// Ends both directions.
    fn close(&self);
}
