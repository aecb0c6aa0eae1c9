//! Shares of the frames for metadata, of which each kind of work keeps to its own.

use dolmen_block_io::ranks::LockRank;
use dolmen_block_io::sync::{Permit, Semaphore};

/// A part of the small frames, which some kind of work keeps to.
pub(crate) struct Share {
    permits: Semaphore,
    all: u64,
}

impl Share {
    /// A part that is taken in the order of locks.
    pub(crate) fn of(frames: u64, rank: LockRank) -> Self {
        let all = frames.max(1);
        Self { permits: Semaphore::ranked(all, rank), all }
    }

    /// The part of recovery's looks at blocks, which end by themselves, whatever locks the task holds.
    pub(crate) fn of_looks(frames: u64) -> Self {
        let all = frames.max(1);
        Self { permits: Semaphore::new(all), all }
    }

    /// How many there are.
    pub(crate) fn all(&self) -> u64 {
        self.all
    }

    /// Takes so many, or all where there are fewer.
    #[track_caller]
    pub(crate) fn take(&self, count: u64) -> impl Future<Output = Permit<'_>> {
        self.permits.acquire(count.min(self.all))
    }
}
