//! Shares of the frames for metadata, of which each kind of work keeps to its own.

use dolmen_block_io::sync::{Permit, Semaphore};

/// A part of the small frames, which some kind of work keeps to.
pub(crate) struct Share {
    permits: Semaphore,
    all: u64,
}

impl Share {
    pub(crate) fn of(frames: u64) -> Self {
        let all = frames.max(1);
        Self { permits: Semaphore::new(all), all }
    }

    /// How many there are.
    pub(crate) fn all(&self) -> u64 {
        self.all
    }

    /// Takes so many, or all where there are fewer.
    pub(crate) async fn take(&self, count: u64) -> Permit<'_> {
        self.permits.acquire(count.min(self.all)).await
    }
}
