//! What checkpoints say of the log, and what they leave in it.

use dolmen_journal::Place;
use dolmen_store::Anchor;
use dolmen_units::{Epoch, Lsn};

use crate::arbiter::LocalFuture;
use crate::error::PoolError;

/// Whoever keeps in memory what records of blocks in the log say.
pub trait TableOwner {
    /// Writes back and flushes everything that records below `below` changed, so that the log need not keep them. What has
    /// no home but the log it appends again; it may call [`Checkpoints::trim_log`](crate::Checkpoints::trim_log) on the way. How many bytes it has appended again.
    fn write_back(&self, below: Lsn) -> LocalFuture<'_, Result<u64, PoolError>>;
}

/// What a checkpoint says of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogNeed {
    /// The place from which it is needed.
    pub from: Place,
    /// Changes of the map in batches before this one are in the checkpoint.
    pub applied: Lsn,
}

/// What the last checkpoint has left in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Left {
    /// Bytes that it had to append again.
    pub(crate) relogged: u64,
    /// Bytes that were in use at its end: these, and what others had written meanwhile.
    pub(crate) used: u64,
    /// The epoch in which it began.
    pub(crate) epoch: Epoch,
}

impl LogNeed {
    /// A log of which nothing was written.
    pub const ALL: Self = Self { from: Place::FIRST, applied: Place::FIRST.lsn };

    /// As the checkpoint keeps it.
    #[must_use]
    pub fn to_anchor(self) -> Anchor {
        let mut anchor = [0; 64];
        let bytes = self.from.to_bytes().into_iter().chain(self.applied.0.to_le_bytes());
        anchor.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        Anchor(anchor)
    }

    /// What a checkpoint kept.
    #[must_use]
    pub fn from_anchor(Anchor(anchor): Anchor) -> Self {
        let place = anchor.first_chunk().copied().unwrap_or_default();
        let (_, after) = anchor.split_at(place.len());
        let applied = after.first_chunk().copied().unwrap_or_default();
        Self { from: Place::from_bytes(place), applied: Lsn(u64::from_le_bytes(applied)) }
    }
}
