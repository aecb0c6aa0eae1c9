//! What the engine offers to attached spaces, and the requests that it is given.

use dolmen_attach::{Fault, SpaceKey};
use dolmen_units::Bytes;

use crate::session::Ticket;

/// The engine, as attached spaces see it.
///
/// The methods are called on the threads that read requests from the kernel. They must not block, and must not allocate
/// memory without bound: at most [`SLOTS_MAX`](crate::SLOTS_MAX) requests are outstanding at any time. Each request is
/// answered once, from any thread, at any time; requests may be answered in any order, and overlapping ones that are
/// outstanding together may be carried out in any order.
///
/// What a caller has checked: the space is attached, the range is not empty, lies inside the space (by the size last
/// told by [`size`](Self::size)), and nothing is written to an attachment that is read-only. A range may begin and end at
/// any byte: a loop device keeps to the space's sectors, and whoever opens the file does not have to.
///
/// What an implementor must keep: a write, discard or zeroing that was answered survives the death of the daemon; what
/// was answered before a flush began survives loss of power once that flush is answered. After a restart a request may be
/// given that the daemon before had carried out without answering it; carrying it out again must do the same, which holds
/// by itself for all of them.
pub trait Host: Send + Sync + 'static {
    /// The space's length now, from memory; `None` when there is no such space.
    fn size(&self, space: SpaceKey) -> Option<Bytes>;
    /// Reads.
    fn read(&self, request: ReadRequest);
    /// Writes; the payload is borrowed from the request until it is answered.
    fn write(&self, request: WriteRequest);
    /// Makes durable what was answered before.
    fn flush(&self, request: FlushRequest);
    /// Gives back what the range occupies. *The range reads as zeros afterwards*, also the parts that cannot be given
    /// back: a loop device sends the same request for "discard" and for "write zeroes, and unmap if you can".
    fn discard(&self, request: RangeRequest);
    /// Makes the range read as zeros without giving back what it occupies.
    fn write_zeroes(&self, request: RangeRequest);
}

/// Where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) space: SpaceKey,
    pub(crate) at: u64,
    pub(crate) len: u64,
}

macro_rules! request {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Dropped without an answer, it fails with [`Fault::Io`]; unless the session was let go, when it is left for
        /// the next daemon.
        #[derive(Debug)]
        #[must_use = "whoever sent the request waits for its answer"]
        pub struct $name {
            pub(crate) ticket: Ticket,
            pub(crate) place: Place,
        }

        impl $name {
            /// The space.
            #[must_use]
            pub fn space(&self) -> SpaceKey {
                self.place.space
            }

            /// Answers that it failed.
            pub fn fail(self, fault: Fault) {
                self.ticket.fail(fault.errno());
            }
        }
    };
}

macro_rules! ranged {
    ($name:ident) => {
        impl $name {
            /// The first byte.
            #[must_use]
            pub fn at(&self) -> Bytes {
                Bytes(self.place.at)
            }

            /// The length, which is not zero.
            #[must_use]
            pub fn len(&self) -> Bytes {
                Bytes(self.place.len)
            }

            /// False: nobody is asked to do nothing.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.place.len == 0
            }
        }
    };
}

request! {
    /// A read of at most 1 MiB.
    ReadRequest
}
request! {
    /// A write, with its payload.
    WriteRequest
}
request! {
    /// A flush.
    FlushRequest
}
request! {
    /// A discard or a zeroing of a range, which may be as long as the space.
    RangeRequest
}
ranged!(ReadRequest);
ranged!(WriteRequest);
ranged!(RangeRequest);

impl ReadRequest {
    /// Answers with the content, in as many pieces as it lies in. They are copied by the kernel, from here to its
    /// reader, before this returns. Pieces that do not make up the length asked for fail the request.
    pub fn answer(self, pieces: &[&[u8]]) {
        let found: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        if found != self.place.len {
            tracing::error!(
                space = %self.place.space, at = self.place.at, expected = self.place.len, found,
                "answering a read: the content has the wrong length; the read fails"
            );
            return self.fail(Fault::Io);
        }
        self.ticket.answer(pieces);
    }
}

impl WriteRequest {
    /// What is to be written; as long as [`len`](Self::len), at an address that is a multiple of 4096.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        let len = usize::try_from(self.place.len).unwrap_or(0);
        self.ticket.payload(len)
    }

    /// Answers that it is done.
    pub fn answer(self) {
        let size = u32::try_from(self.place.len).unwrap_or(0);
        self.ticket.answer_write(size);
    }
}

impl FlushRequest {
    /// Answers that it is done.
    pub fn answer(self) {
        self.ticket.answer(&[]);
    }
}

impl RangeRequest {
    /// Answers that it is done.
    pub fn answer(self) {
        self.ticket.answer(&[]);
    }
}
