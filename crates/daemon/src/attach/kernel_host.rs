//! Requests of the kernel for attached spaces, carried out.

use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use dolmen_attach::{Fault, SpaceKey};
use dolmen_block_io::Durability;
use dolmen_block_linux::{MAILBOX_MESSAGES_MAX, Mailbox};
use dolmen_fuse::{ENTRIES_MAX, FlushRequest, Host, RangeRequest, ReadRequest, SLOTS_MAX, WriteRequest};
use dolmen_pool::PoolError;
use dolmen_space::{Segment, Space, SpaceError, Spaces};
use dolmen_ublk::{DEPTH, DEVICES_MAX, Operation};
use dolmen_units::Bytes;

/// Zeros that are written at a time where a range has to stay allocated.
pub(crate) const ZEROS_BYTES: usize = 64 * 1024;

// A request that finds no room would fail, and a file system with it.
const _: () = assert!(
    SLOTS_MAX + ENTRIES_MAX + DEVICES_MAX * DEPTH as usize <= MAILBOX_MESSAGES_MAX,
    "all requests that the kernel can have outstanding find room in the mailbox"
);

/// A request of the kernel's.
#[derive(Debug)]
pub(crate) enum Asked {
    Read(ReadRequest),
    Write(WriteRequest),
    Flush(FlushRequest),
    Discard(RangeRequest),
    WriteZeroes(RangeRequest),
    /// Anything of a ublk device's.
    Ublk(dolmen_ublk::Request),
}

impl Asked {
    pub(crate) fn space(&self) -> SpaceKey {
        match self {
            Self::Read(request) => request.space(),
            Self::Write(request) => request.space(),
            Self::Flush(request) => request.space(),
            Self::Discard(request) | Self::WriteZeroes(request) => request.space(),
            Self::Ublk(request) => request.space(),
        }
    }

    pub(crate) fn fail(self, fault: Fault) {
        match self {
            Self::Read(request) => request.fail(fault),
            Self::Write(request) => request.fail(fault),
            Self::Flush(request) => request.fail(fault),
            Self::Discard(request) | Self::WriteZeroes(request) => request.fail(fault),
            Self::Ublk(request) => request.fail(fault),
        }
    }
}

/// What the threads that talk with the kernel see of the engine.
pub(crate) struct EngineHost {
    pub(crate) mailbox: Mailbox<Asked>,
    pub(crate) sizes: Mutex<BTreeMap<SpaceKey, Bytes>>,
}

impl EngineHost {
    pub(crate) fn new(mailbox: Mailbox<Asked>) -> Arc<Self> {
        Arc::new(Self { mailbox, sizes: Mutex::default() })
    }

    pub(crate) fn post(&self, asked: Asked) {
        // The mailbox has a place for each; when the engine is gone, dropping the request leaves it to the next daemon.
        if let Err(error) = self.mailbox.post(asked) {
            tracing::warn!(%error, "a request of an attached space could not be given to the engine");
        }
    }
}

impl Host for EngineHost {
    fn size(&self, space: SpaceKey) -> Option<Bytes> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).get(&space).copied()
    }

    fn read(&self, request: ReadRequest) {
        self.post(Asked::Read(request));
    }

    fn write(&self, request: WriteRequest) {
        self.post(Asked::Write(request));
    }

    fn flush(&self, request: FlushRequest) {
        self.post(Asked::Flush(request));
    }

    fn discard(&self, request: RangeRequest) {
        self.post(Asked::Discard(request));
    }

    fn write_zeroes(&self, request: RangeRequest) {
        self.post(Asked::WriteZeroes(request));
    }
}

impl dolmen_ublk::Host for EngineHost {
    fn size(&self, space: SpaceKey) -> Option<Bytes> {
        Host::size(self, space)
    }

    fn take(&self, request: dolmen_ublk::Request) {
        self.post(Asked::Ublk(request));
    }
}

pub(crate) fn fault_of(error: &SpaceError) -> Fault {
    tracing::warn!(%error, "a request of an attached space failed");
    match error {
        SpaceError::NoSpaceBelow { .. }
        | SpaceError::Pool(
            PoolError::NoSpace { .. }
            | PoolError::Fragmented { .. }
            | PoolError::MetadataFull { .. }
            | PoolError::LogOccupied { .. },
        ) => Fault::NoRoom,
        SpaceError::Pool(PoolError::ReadOnly { .. }) => Fault::ReadOnly,
        SpaceError::Range { .. } | SpaceError::Deleted { .. } => Fault::Invalid,
        _ => Fault::Io,
    }
}

pub(crate) async fn read(space: &Space, request: ReadRequest, zeros: &[u8]) {
    let length = usize::try_from(request.len().0).unwrap_or(usize::MAX);
    match space.read(request.at().0, length).await {
        Ok(segments) => {
            let pieces: Vec<&[u8]> = pieces(&segments, zeros).collect();
            request.answer(&pieces);
        }
        Err(error) => request.fail(fault_of(&error)),
    }
}

pub(crate) async fn write(spaces: &Spaces, space: &Space, request: WriteRequest) {
    let payload = request.payload();
    // A space that has to wait for its limits holds no memory meanwhile.
    let admitted = space.admit_write(payload.len() as u64).await;
    // The one copy between the kernel's buffer and the engine's: what the engine writes must not change meanwhile.
    let mut buffer = spaces.pool().seams().data.take(payload.len()).await;
    buffer.copy_in(payload);
    match space.write_admitted(admitted, request.at().0, &buffer.freeze(), Durability::Cached).await {
        Ok(()) => request.answer(),
        Err(error) => request.fail(fault_of(&error)),
    }
}

pub(crate) async fn finish(request: RangeRequest, done: impl Future<Output = Result<(), SpaceError>>) {
    match done.await {
        Ok(()) => request.answer(),
        Err(error) => request.fail(fault_of(&error)),
    }
}

/// The pieces that content lies in.
pub(crate) fn pieces<'a>(segments: &'a [Segment], zeros: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    segments.iter().flat_map(move |segment| {
        let (data, mut left): (&[u8], usize) = match segment {
            Segment::Data(bytes) => (bytes, 0),
            Segment::Zeros(length) => (&[], *length),
        };
        let filling = std::iter::from_fn(move || {
            let part = zeros.get(..left.min(zeros.len())).filter(|part| !part.is_empty())?;
            left -= part.len();
            Some(part)
        });
        std::iter::once(data).filter(|data| !data.is_empty()).chain(filling)
    })
}

pub(crate) async fn carry_out_of_ublk(
    spaces: &Spaces,
    space: &Space,
    request: dolmen_ublk::Request,
    zeros: &[u8],
) {
    let (at, length) = (request.at().0, request.len().0);
    let size = usize::try_from(length).unwrap_or(usize::MAX);
    let done = match request.operation() {
        Operation::Read => match space.read(at, size).await {
            Ok(segments) => return request.answer_read(pieces(&segments, zeros)),
            Err(error) => Err(error),
        },
        Operation::Write(durability) => {
            // A space that has to wait for its limits holds no memory meanwhile.
            let admitted = space.admit_write(length).await;
            // The one copy between the kernel's pages and the engine's: what the engine writes must not change meanwhile.
            let mut buffer = spaces.pool().seams().data.take(size).await;
            if let Err(fault) = request.copy_payload(&mut buffer) {
                return request.fail(fault);
            }
            space.write_admitted(admitted, at, &buffer.freeze(), durability).await
        }
        Operation::Flush => space.flush().await,
        Operation::Discard => space.discard(at, length).await,
        // As with loop devices: what reads as zeros takes no room, whether the kernel allows that or not.
        Operation::WriteZeroes => space.write_zeroes(at, length).await,
    };
    match done {
        Ok(()) => request.answer(),
        Err(error) => request.fail(fault_of(&error)),
    }
}

pub(crate) async fn carry_out(spaces: &Spaces, space: &Space, asked: Asked, zeros: &[u8]) {
    match asked {
        Asked::Read(request) => read(space, request, zeros).await,
        Asked::Write(request) => write(spaces, space, request).await,
        Asked::Flush(request) => match space.flush().await {
            Ok(()) => request.answer(),
            Err(error) => request.fail(fault_of(&error)),
        },
        // Also the parts of blocks at the ends have to read as zeros. File systems zero their journals where they could
        // discard, so a thin space takes room for zeros only when they are asked for by a way in that can say so.
        Asked::Discard(request) | Asked::WriteZeroes(request) => {
            let (at, length) = (request.at().0, request.len().0);
            finish(request, space.write_zeroes(at, length)).await;
        }
        Asked::Ublk(request) => carry_out_of_ublk(spaces, space, request, zeros).await,
    }
}

/// A request, with the space that it is for.
pub(crate) struct Job {
    pub(crate) spaces: Rc<Spaces>,
    pub(crate) space: Space,
    pub(crate) asked: Asked,
}
