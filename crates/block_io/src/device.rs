//! The seam to a disk.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use dolmen_buffer::{Buffer, Shared};
use dolmen_units::{Bytes, Epoch};

use crate::completion::{Payload, Submission};
use crate::meter::Meter;

/// How long whoever can ask somebody else waits for a read (docs/design/0021).
pub const READ_HEDGE_DELAY: Duration = Duration::from_millis(500);

/// How a disk wants to be addressed, and what it promises when power fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Size of the whole device.
    pub capacity: Bytes,
    /// The smallest unit that a command may address, in bytes: 512 or 4096.
    pub logical_block_bytes: u32,
    /// The unit that the medium writes, in bytes; a smaller write costs a read.
    pub physical_block_bytes: u32,
    /// The length from which on larger transfers bring nothing, in bytes; 0 when unknown.
    pub optimal_io_bytes: u32,
    /// Bytes that are written wholly or not at all when power fails, at addresses that are multiples of it.
    pub atomic_write_bytes: u32,
    /// Whether a completed write may be lost at a power failure until a flush.
    pub volatile_cache: bool,
    /// Whether [`Durability::Durable`] costs less than a write and a flush.
    pub fua: bool,
    /// The unit in which the device can forget content, in bytes; `None` when it cannot.
    pub discard_granularity_bytes: Option<u32>,
    /// Whether a write to a place that was never written, or was discarded, may find no room below
    /// ([`DeviceError::NoSpace`]): a file takes its room as it is written.
    pub thin: bool,
    /// Whether seeks cost time.
    pub rotational: bool,
    /// What order of writes the device demands.
    pub zoning: Zoning,
    /// Whether another machine may reach the same medium. When in doubt, yes.
    pub shareable: bool,
}

/// What order of writes a device demands or prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zoning {
    /// Any order.
    None,
    /// Any order, but random writes are very slow after a while: a shingled disk that hides it.
    DriveManaged,
    /// Only appends within a zone; cannot be used.
    HostManaged,
}

/// Whether a write must survive a power failure by the time it completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It may rest in the device's cache; the next flush makes it durable.
    Cached,
    /// It is on the medium when it completes (forced unit access). Earlier cached writes need not be.
    Durable,
}

/// Why a device did not carry out a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The medium could not be read or written there. Other addresses may work.
    #[error("the medium failed (errno {errno})")]
    Medium {
        /// The system's error number.
        errno: i32,
    },
    /// The device is not there any more, or answers nothing.
    #[error("the device is gone")]
    Detached,
    /// A later epoch has forbidden commands with this token.
    #[error("a later epoch fenced this writer off")]
    Fenced,
    /// A file-backed device's file system is full.
    #[error("no space left under the file that backs the device")]
    NoSpace,
    /// No answer within the limit; the command may still take effect.
    #[error("no answer within the time limit")]
    TimedOut,
    /// The device does not accept writes.
    #[error("the device is read-only")]
    ReadOnly,
    /// A range beyond the end.
    #[error("the range lies beyond the end of the device")]
    OutOfRange,
    /// An address or length that is no multiple of the logical block.
    #[error("the range is not aligned to the logical block")]
    Misaligned,
    /// The device was reset: completed writes since the last flush may be gone.
    #[error("the device was reset and may have lost cached writes")]
    CacheLost,
    /// The device does not know the command.
    #[error("the device does not support the command")]
    Unsupported,
}

/// What to do.
#[derive(Debug)]
pub enum Action {
    /// Fill the buffer from byte `at` on. The buffer comes back in any case.
    Read {
        /// Offset on the device, in bytes.
        at: u64,
        /// Filled whole, or with undefined content after an error.
        into: Buffer,
    },
    /// Write the bytes to byte `at` on.
    Write {
        /// Offset on the device, in bytes.
        at: u64,
        /// What to write. The device holds the memory until completion.
        from: Shared,
        /// What completion promises.
        durability: Durability,
    },
    /// Make every write that completed before this was submitted durable.
    Flush,
    /// The content of the range is not needed any more; what it reads as afterwards is undefined.
    Discard {
        /// Offset on the device, in bytes.
        at: u64,
        /// Length in bytes.
        length: u64,
    },
    /// The range reads as zeros afterwards, as durable as a cached write.
    WriteZeroes {
        /// Offset on the device, in bytes.
        at: u64,
        /// Length in bytes.
        length: u64,
    },
}

/// An action and the epoch in whose name it is asked for.
#[derive(Debug)]
pub struct Command {
    /// A device that has been fenced at a later epoch answers [`DeviceError::Fenced`].
    pub token: Epoch,
    /// How long a read may take before it is answered with [`DeviceError::TimedOut`] and another buffer, if the device has no
    /// shorter limit of its own. Commands that change something have the device's limit alone.
    pub within: Option<Duration>,
    /// What to do.
    pub action: Action,
}

/// Commands that a device was given, for the tables of I/O per client write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoCounters {
    /// Reads.
    pub reads: u64,
    /// Bytes of reads.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of writes.
    pub write_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Writes that had to be durable by themselves.
    pub durable_writes: u64,
    /// Discards and zeroings.
    pub discards: u64,
    /// Commands that failed.
    pub errors: u64,
}

/// A disk, or anything that behaves like one.
///
/// The contract, which `conformance` tests of every implementor:
/// - `submit` never blocks and never fails by itself; the completion reports whatever is wrong.
/// - The command takes effect whether or not the returned [`Submission`] is polled or dropped. Dropping it does not
///   cancel anything; the device owns the memory until completion.
/// - Commands that are under way at the same time take effect in any order, in units of
///   [`Geometry::atomic_write_bytes`]. Whoever needs an order waits for the completion.
/// - A completed write is seen by every later read. It survives a power failure once a flush submitted after its
///   completion has completed without error, or by itself if it was asked to be durable.
/// - A flush that failed says that any write since the last good flush may be lost, and a later good flush does not
///   take that back.
/// - The callee checks range and alignment, and answers [`DeviceError::OutOfRange`] or [`DeviceError::Misaligned`]
///   without touching the medium.
pub trait BlockDevice {
    /// Size and promises. Constant for the life of the object, but for a size that [`extend`](Self::extend) raised.
    fn geometry(&self) -> Geometry;

    /// Size that the medium has now. It may have grown since the device was opened; commands reach no further than
    /// [`geometry`](Self::geometry) says.
    fn size_now(&self) -> Bytes {
        self.geometry().capacity
    }

    /// Has commands reach all of a medium that has grown. The size never becomes less.
    fn extend(&self) {}

    /// What a person calls it: a path, or the name a simulation gave it. Never an identity.
    fn name(&self) -> String;

    /// Begins a command.
    fn submit(&self, command: Command) -> Submission;

    /// Refuses commands with a token below `epoch` from now on. Commands under way are not recalled.
    fn fence(&self, epoch: Epoch);

    /// What was asked of the device since it was opened.
    fn counters(&self) -> IoCounters;

    /// How long what was asked of it took, where that is measured: of every command, from `submit` to its completion.
    fn meter(&self) -> Option<Rc<Meter>> {
        None
    }
}

impl Geometry {
    /// Checks a range against size and alignment, for implementors.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`] or [`DeviceError::Misaligned`].
    pub fn check(&self, at: u64, length: u64) -> Result<(), DeviceError> {
        let unit = u64::from(self.logical_block_bytes);
        if !at.is_multiple_of(unit) || !length.is_multiple_of(unit) || length == 0 {
            return Err(DeviceError::Misaligned);
        }
        match at.checked_add(length) {
            Some(end) if end <= self.capacity.0 => Ok(()),
            _ => Err(DeviceError::OutOfRange),
        }
    }

    /// Checks a whole command, for implementors.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_action(&self, action: &Action) -> Result<(), DeviceError> {
        match action {
            Action::Read { at, into } => self.check(*at, into.len() as u64),
            Action::Write { at, from, .. } => self.check(*at, from.len() as u64),
            Action::Discard { at, length } | Action::WriteZeroes { at, length } => self.check(*at, *length),
            Action::Flush => Ok(()),
        }
    }
}

impl IoCounters {
    /// Counts a command as it is submitted, for implementors.
    pub fn note(counters: &Cell<Self>, action: &Action) {
        let mut now = counters.get();
        match action {
            Action::Read { into, .. } => {
                now.reads += 1;
                now.read_bytes += into.len() as u64;
            }
            Action::Write { from, durability, .. } => {
                now.writes += 1;
                now.write_bytes += from.len() as u64;
                now.durable_writes += u64::from(*durability == Durability::Durable);
            }
            Action::Flush => now.flushes += 1,
            Action::Discard { .. } | Action::WriteZeroes { .. } => now.discards += 1,
        }
        counters.set(now);
    }
}

/// Reads into `into` from byte `at`; the buffer comes back in any case.
///
/// The command is submitted at the call, not at the first poll, so that several can be started and then awaited.
pub fn read(
    device: &dyn BlockDevice,
    token: Epoch,
    at: u64,
    into: Buffer,
) -> impl Future<Output = (Buffer, Result<(), DeviceError>)> + use<> {
    read_within(device, token, (at, None), into)
}

/// As [`read`], but does not wait for longer than that, if there is a limit.
pub fn read_within(
    device: &dyn BlockDevice,
    token: Epoch,
    (at, within): (u64, Option<Duration>),
    into: Buffer,
) -> impl Future<Output = (Buffer, Result<(), DeviceError>)> + use<> {
    let submission = device.submit(Command { token, within, action: Action::Read { at, into } });
    async move {
        let outcome = submission.await;
        match outcome.payload {
            Payload::Buffer(buffer) => (buffer, outcome.result),
            Payload::None | Payload::Shared(_) => unreachable!("a device returns the buffer of a read"),
        }
    }
}

/// Writes `from` to byte `at`. Submitted at the call.
pub fn write(
    device: &dyn BlockDevice,
    token: Epoch,
    at: u64,
    from: Shared,
    durability: Durability,
) -> impl Future<Output = Result<(), DeviceError>> + use<> {
    finish(device.submit(Command { token, within: None, action: Action::Write { at, from, durability } }))
}

/// Makes completed writes durable. Submitted at the call.
pub fn flush(
    device: &dyn BlockDevice,
    token: Epoch,
) -> impl Future<Output = Result<(), DeviceError>> + use<> {
    finish(device.submit(Command { token, within: None, action: Action::Flush }))
}

/// Forgets a range. Submitted at the call.
pub fn discard(
    device: &dyn BlockDevice,
    token: Epoch,
    at: u64,
    length: u64,
) -> impl Future<Output = Result<(), DeviceError>> + use<> {
    finish(device.submit(Command { token, within: None, action: Action::Discard { at, length } }))
}

/// Makes a range read as zeros. Submitted at the call.
pub fn write_zeroes(
    device: &dyn BlockDevice,
    token: Epoch,
    at: u64,
    length: u64,
) -> impl Future<Output = Result<(), DeviceError>> + use<> {
    finish(device.submit(Command { token, within: None, action: Action::WriteZeroes { at, length } }))
}

async fn finish(submission: Submission) -> Result<(), DeviceError> {
    submission.await.result
}
