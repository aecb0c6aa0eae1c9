//! The receiving side of a connection: exact counts of bytes out of a stream.
//!
//! Payloads are received straight into the memory that the export gets. Heads of requests may be received several at a
//! time, because at a deep queue of reads that saves most of the system calls; the price is that up to
//! [`AHEAD_BYTES`] of a payload that follows may have come along and are copied, and counted, then. After a write,
//! heads are received one by one, so a stream of writes copies nothing.

use std::rc::Rc;

use dolmen_buffer::{Arena, Buffer};

use crate::connection::{Connection, ConnectionError, Receive};

/// Memory for heads: one small frame.
pub(crate) const INTAKE_BYTES: usize = 4096;
/// The most that is received beyond what was asked for.
const AHEAD_BYTES: usize = 15 * crate::request::REQUEST_BYTES;

const _: () =
    assert!(AHEAD_BYTES + crate::request::EXTENDED_REQUEST_BYTES <= INTAKE_BYTES, "heads fit their memory");

/// How the stream came to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamEnd {
    /// Between two messages.
    #[error("the client closed the connection")]
    Between,
    /// Inside a message.
    #[error("the client closed the connection after {received} of {expected} bytes of a message")]
    Inside {
        /// Bytes that came.
        received: u64,
        /// Bytes of the part of the message that was being received.
        expected: u64,
    },
    /// By an error.
    #[error("receiving from the client failed")]
    Failed(#[from] ConnectionError),
}

/// Whether more may be received than was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// Nothing. In the handshake always, so that what follows can be received by another protocol such as TLS.
    Nothing,
    /// Some heads of requests.
    Heads,
}

/// The receiving side of a connection.
pub(crate) struct Intake<C> {
    connection: Rc<C>,
    arena: Arena,
    /// Absent while the driver has it.
    memory: Option<Buffer>,
    start: usize,
    end: usize,
}

impl<C: Connection> Intake<C> {
    pub(crate) async fn new(connection: Rc<C>, arena: &Arena) -> Self {
        let memory = arena.take(INTAKE_BYTES).await;
        Self { connection, arena: arena.clone(), memory: Some(memory), start: 0, end: 0 }
    }

    fn buffered(&self) -> &[u8] {
        self.memory.as_ref().and_then(|memory| memory.get(self.start..self.end)).unwrap_or_default()
    }

    /// `N` bytes of a head.
    pub(crate) async fn head<const N: usize>(&mut self, ahead: Ahead) -> Result<[u8; N], StreamEnd> {
        const { assert!(N <= INTAKE_BYTES - AHEAD_BYTES, "a head fits the memory for heads") }
        loop {
            if let Some(bytes) = self.buffered().first_chunk::<N>() {
                let bytes = *bytes;
                self.start += N;
                return Ok(bytes);
            }
            let missing = N - (self.end - self.start);
            let more = if ahead == Ahead::Heads { AHEAD_BYTES } else { 0 };
            let came = self.more(missing, missing + more).await?;
            let have = self.end - self.start;
            if have < N {
                let inside = StreamEnd::Inside { received: have as u64, expected: N as u64 };
                return Err(if have == 0 && came == 0 { StreamEnd::Between } else { inside });
            }
        }
    }

    /// Receives `least` to `most` bytes behind what is buffered, which is first moved to the front.
    async fn more(&mut self, least: usize, most: usize) -> Result<usize, StreamEnd> {
        let mut memory = match self.memory.take() {
            Some(memory) => memory,
            // The future of an earlier receive was dropped and the driver has kept its memory.
            None => self.arena.take(INTAKE_BYTES).await,
        };
        memory.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let range = self.end..self.end + most;
        let (memory, result) = self.connection.receive(Receive { into: memory, range, least }).await;
        self.memory = Some(memory);
        let came = result?;
        self.end += came;
        Ok(came)
    }

    /// Fills `into` with what comes next, straight from the connection but for what is buffered already.
    pub(crate) async fn payload(&mut self, mut into: Buffer) -> Result<Buffer, StreamEnd> {
        let len = into.len();
        let ready = self.buffered();
        let ready = ready.get(..len).unwrap_or(ready);
        let ready_len = ready.len();
        into.copy_in(ready);
        self.start += ready_len;
        if ready_len == len {
            return Ok(into);
        }
        let range = ready_len..len;
        let least = len - ready_len;
        let (into, result) = self.connection.receive(Receive { into, range, least }).await;
        let came = result?;
        if came < least {
            return Err(StreamEnd::Inside { received: (ready_len + came) as u64, expected: len as u64 });
        }
        Ok(into)
    }

    /// Receives `length` bytes and throws them away.
    pub(crate) async fn skip(&mut self, length: u64) -> Result<(), StreamEnd> {
        let mut left = length;
        while left > 0 {
            let buffered = self.end - self.start;
            let now = usize::try_from(left).unwrap_or(usize::MAX).min(buffered);
            self.start += now;
            left -= now as u64;
            if left == 0 {
                break;
            }
            let wish = usize::try_from(left).unwrap_or(usize::MAX).min(INTAKE_BYTES);
            if self.more(1, wish).await? == 0 {
                return Err(StreamEnd::Inside { received: length - left, expected: length });
            }
        }
        Ok(())
    }

    /// Appends `length` bytes to `into`. The caller has bounded the length.
    pub(crate) async fn append(&mut self, into: &mut Vec<u8>, length: u32) -> Result<(), StreamEnd> {
        let mut left = usize::try_from(length).unwrap_or(usize::MAX);
        while left > 0 {
            let ready = self.buffered();
            let ready = ready.get(..left).unwrap_or(ready);
            let ready_len = ready.len();
            into.extend_from_slice(ready);
            self.start += ready_len;
            left -= ready_len;
            if left > 0 && self.more(1, left.min(INTAKE_BYTES)).await? == 0 {
                let expected = u64::from(length);
                return Err(StreamEnd::Inside { received: expected - left as u64, expected });
            }
        }
        Ok(())
    }
}
