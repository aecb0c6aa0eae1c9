//! What is asked of a device, and what it answers.

use crate::time::Time;

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// Bytes from the device.
    Read,
    /// Bytes to the device, which may answer as soon as its cache holds them.
    Write,
    /// Bytes to the device, which answers when they are on the medium (forced unit access).
    WriteThrough,
    /// Everything written and answered before goes to the medium. Place and length mean nothing.
    Flush,
}

/// A command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// What to do.
    pub op: Op,
    /// Where, in bytes.
    pub at: u64,
    /// How much, in bytes.
    pub length: u64,
}

impl Request {
    /// A read.
    #[must_use]
    pub const fn read(at: u64, length: u64) -> Self {
        Self { op: Op::Read, at, length }
    }

    /// A write that a cache may hold.
    #[must_use]
    pub const fn write(at: u64, length: u64) -> Self {
        Self { op: Op::Write, at, length }
    }

    /// A write that no volatile cache may hold.
    #[must_use]
    pub const fn write_through(at: u64, length: u64) -> Self {
        Self { op: Op::WriteThrough, at, length }
    }

    /// A flush.
    #[must_use]
    pub const fn flush() -> Self {
        Self { op: Op::Flush, at: 0, length: 0 }
    }

    /// Where it ends, in bytes.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.at.saturating_add(self.length)
    }
}

/// Names a command of one device from its submission to its completion. Later commands have larger tickets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A command that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Which.
    pub ticket: Ticket,
    /// What it was.
    pub request: Request,
    /// When it was submitted.
    pub submitted: Time,
    /// When it was done.
    pub completed: Time,
}

impl Completion {
    /// From submission to completion, in nanoseconds.
    #[must_use]
    pub const fn response_ns(&self) -> u64 {
        self.completed.since(self.submitted)
    }
}

/// Why a command is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// It moves nothing.
    #[error("a {op:?} at byte {at} has no length: ask for at least one byte")]
    Empty {
        /// What it was.
        op: Op,
        /// Where.
        at: u64,
    },
    /// It reaches past the end.
    #[error("a {op:?} of {length} bytes at byte {at} passes the end of a device of {capacity_bytes} bytes")]
    PastEnd {
        /// What it was.
        op: Op,
        /// Where.
        at: u64,
        /// How long.
        length: u64,
        /// Where the device ends.
        capacity_bytes: u64,
    },
    /// Virtual time only goes forward.
    #[error("a command was submitted at {now}, but the device was already asked about {latest}")]
    TimeWentBack {
        /// The time of the call.
        now: Time,
        /// The latest time of an earlier call.
        latest: Time,
    },
}

/// Checks a command against the device's end and clock.
pub(crate) fn check(
    request: &Request,
    capacity_bytes: u64,
    now: Time,
    latest: Time,
) -> Result<(), SubmitError> {
    let Request { op, at, length } = *request;
    if now < latest {
        return Err(SubmitError::TimeWentBack { now, latest });
    }
    if op == Op::Flush {
        return Ok(());
    }
    if length == 0 {
        return Err(SubmitError::Empty { op, at });
    }
    match at.checked_add(length) {
        Some(end) if end <= capacity_bytes => Ok(()),
        Some(_) | None => Err(SubmitError::PastEnd { op, at, length, capacity_bytes }),
    }
}
