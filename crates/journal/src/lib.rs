//! The pool's log: a ring of batches, the same on every voter, that repeats what the pool did since its checkpoint.
//!
//! Records are collected into a *batch*, which goes to all copies at once; what arrives meanwhile forms the next. A
//! batch is *written* when every copy completed it, *durable* when it was written as a durable write. One order, the
//! [`Lsn`], covers everything.
//!
//! ```text
//! ring  │ trimmed │ tail … durable mark │ … last durable batch │ cached batches, may be lost │ free │
//!                   nothing may be missing  this batch exists      a missing one is a hole
//! ```
//!
//! Order of writes, and what a crash leaves:
//!
//! | step | after a crash here |
//! |---|---|
//! | batch *n* goes to every copy | some copies have it: the union takes it; or none has it, and it was not acknowledged |
//! | every copy completed it | cached: it may be lost although *n* + 1 survives, a *hole*; durable: no loss of fewer than all copies removes it |
//! | batch *n* + 1 goes out | it names the last durable LSN before it and the durable mark: what they cover and no copy has is *damage* |
//! | [`recover`] reads every copy, [`Recovered::heal`] writes the union to all, flushes | repeated; nothing was served yet |
//! | the opener's first batch lists the holes, durable | they stay holes, whichever copy comes back with one of them |
//!
//! A batch counts only if its epoch is the one that owned its LSN, its LSN and position are not below the tail, and
//! it stands at the address that it names. So neither an earlier lap, nor an opener that never came to be in force,
//! nor a misdirected write counts.
//!
//! Invariants: one batch is under way at a time; LSNs and positions grow together; no live batch is overwritten; no
//! batch straddles the ring's end; a batch is acknowledged only when every copy of the log has it.
//!
//! Left to others: what records mean, who may write (epochs and labels), when to trim.

pub mod format;
mod heal;
mod log;
mod ranges;
mod recover;
mod ring;
mod state;
mod wait_queue;
mod writer;

#[cfg(test)]
mod tests;

use std::fmt;
use std::rc::Rc;

use dolmen_block_io::{BlockDevice, DeviceError};
use dolmen_units::{DiskId, EpochId, Lsn};

pub use format::Record;
pub use heal::{CopyError, HealError, Healed};
pub use log::{Counters, Log, LogError, Start, Usage, Wait};
pub use recover::{Damage, RecoverError, Recovered, recover};
pub use ring::{BATCH_BYTES_MAX, Class, Place, RING_BYTES_MIN, Ring, RingError};

/// Copies of one log, at most.
pub const COPIES_MAX: usize = 16;

/// A disk that holds the log.
#[derive(Clone)]
pub struct LogCopy {
    /// Which one.
    pub disk: DiskId,
    /// How to reach it.
    pub device: Rc<dyn BlockDevice>,
}

impl LogCopy {
    /// Whether both are the same disk, reached through the same object.
    fn is(&self, other: &Self) -> bool {
        self.disk == other.disk && std::ptr::addr_eq(Rc::as_ptr(&self.device), Rc::as_ptr(&other.device))
    }
}

impl fmt::Debug for LogCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogCopy({}, {})", self.disk, self.device.name())
    }
}

/// Who wrote a stretch of the log: `epoch` from `first` on, up to the next owner's first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The epoch.
    pub epoch: EpochId,
    /// Its first LSN.
    pub first: Lsn,
}

/// A copy of the log that did not do what it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the copy of the log on disk {disk} failed: {error}")]
pub struct CopyFailure {
    /// Which one.
    pub disk: DiskId,
    /// Why.
    #[source]
    pub error: DeviceError,
}

fn list(failures: &[CopyFailure]) -> String {
    failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
