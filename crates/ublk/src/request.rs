//! What the engine offers to ublk devices, and the requests that it is given.

use std::io::IoSlice;

use dolmen_attach::{Fault, SpaceKey};
use dolmen_block_io::Durability;
use dolmen_units::Bytes;
use rustix::io::Errno;

use crate::queue::Ticket;
use crate::wire::content_at;

/// The longest read or write.
pub const IO_BYTES_MAX: u32 = 512 * 1024;
/// Pieces of a read that are handed to the kernel together: all of the longest, where each is a block of 4 KiB.
const PIECES_MAX: usize = 128;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// The content.
    Read,
    /// New content, which is to be as durable as this says when it is answered.
    Write(Durability),
    /// That what was answered before be durable.
    Flush,
    /// What the range occupies may be given back; what it reads as afterwards is not said.
    Discard,
    /// The range is to read as zeros.
    WriteZeroes,
}

/// The engine, as ublk devices see it.
pub trait Host: Send + Sync + 'static {
    /// The space's length now, from memory; `None` when there is no such space.
    fn size(&self, space: SpaceKey) -> Option<Bytes>;

    /// Takes a request, which is answered once, from any thread, at any time.
    ///
    /// Called on the queue's thread: it must not block, and at most [`DEPTH`](crate::DEPTH) requests of a space are
    /// outstanding at any time. What the queue has checked: a read or write has at most [`IO_BYTES_MAX`], a range is
    /// not empty, lies inside the space and is aligned to its sectors, nothing changes an attachment that is read-only.
    ///
    /// What an implementor must keep is what `Host` of crate `fuse` asks for: what was answered survives the death of
    /// the daemon, what a flush covers the loss of power; and a request may be given a second time, to the next daemon.
    fn take(&self, request: Request);
}

/// A request of the kernel's.
///
/// Dropped without an answer it fails; unless the device was let go, when it is left for the next daemon.
#[derive(Debug)]
#[must_use = "whoever sent the request waits for its answer"]
pub struct Request {
    pub(crate) ticket: Ticket,
    pub(crate) operation: Operation,
    pub(crate) at: u64,
    pub(crate) len: u64,
}

impl Request {
    /// The space.
    #[must_use]
    pub fn space(&self) -> SpaceKey {
        self.ticket.space()
    }

    /// What is asked for.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The first byte; zero for a flush.
    #[must_use]
    pub fn at(&self) -> Bytes {
        Bytes(self.at)
    }

    /// The length; zero for a flush.
    #[must_use]
    pub fn len(&self) -> Bytes {
        Bytes(self.len)
    }

    /// Whether it has no range: a flush.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies what is to be written out of the writer's pages, which may change while it does and after.
    ///
    /// # Errors
    /// [`Fault::Io`] when the kernel does not give all of it; `into` must be as long as the request.
    pub fn copy_payload(&self, into: &mut [u8]) -> Result<(), Fault> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pread(self.ticket.channel(), rest, content_at(self.ticket.tag()) + done as u64)
            {
                Ok(count) if count > 0 => done += count,
                Err(Errno::INTR) => {}
                other => return Err(self.lost("copying what is to be written", other)),
            }
        }
        Ok(())
    }

    /// Answers a read with the content, in as many pieces as it lies in. They are copied to the reader's pages before
    /// this returns. Pieces that do not make up the length fail the request.
    pub fn answer_read<'a>(self, pieces: impl Iterator<Item = &'a [u8]>) {
        let mut pieces = pieces.filter(|piece| !piece.is_empty());
        let mut done = 0;
        loop {
            let mut batch = [IoSlice::new(&[]); PIECES_MAX];
            let mut count = 0;
            for (place, piece) in batch.iter_mut().zip(&mut pieces) {
                *place = IoSlice::new(piece);
                count += 1;
            }
            let batch = batch.get(..count).unwrap_or_default();
            let bytes: u64 = batch.iter().map(|piece| piece.len() as u64).sum();
            if bytes == 0 {
                break;
            }
            let at = content_at(self.ticket.tag()) + done;
            let copied = rustix::io::retry_on_intr(|| rustix::io::pwritev(self.ticket.channel(), batch, at));
            if copied.is_ok_and(|copied| copied as u64 == bytes) && done + bytes <= self.len {
                done += bytes;
            } else {
                let fault = self.lost("copying what was read", copied);
                return self.fail(fault);
            }
        }
        if done != self.len {
            tracing::error!(space = %self.space(), at = self.at, expected = self.len, found = done, "answering a read: the content has the wrong length; the read fails");
            return self.fail(Fault::Io);
        }
        self.answer();
    }

    /// Answers that it is done.
    pub fn answer(self) {
        let bytes = match self.operation {
            Operation::Read | Operation::Write(_) => i32::try_from(self.len).unwrap_or(-libc::EIO),
            Operation::Flush | Operation::Discard | Operation::WriteZeroes => 0,
        };
        self.ticket.finish(bytes);
    }

    /// Answers that it failed.
    pub fn fail(self, fault: Fault) {
        self.ticket.finish(-fault.errno());
    }

    fn lost(&self, doing: &str, result: Result<usize, Errno>) -> Fault {
        tracing::error!(space = %self.space(), at = self.at, len = self.len, ?result, "{doing} through the device's channel failed; the request fails");
        Fault::Io
    }
}
