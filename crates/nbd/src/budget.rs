//! What bounds the memory and the concurrency of one connection.

use std::cell::Cell;

use dolmen_block_io::sync::{AsyncMutex, Notify};

/// Bytes of payload that a connection may hold, given out in the order in which they were asked for.
#[derive(Debug)]
pub(crate) struct Budget {
    free_bytes: Cell<u64>,
    waiting_count: Cell<usize>,
    next: AsyncMutex,
    notify: Notify,
}

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self {
            free_bytes: Cell::new(bytes),
            waiting_count: Cell::default(),
            next: AsyncMutex::unranked(
                "its holder waits for memory alone, which requests return without a lock",
            ),
            notify: Notify::new(),
        }
    }

    /// Takes `bytes`, which come back by [`release`](Self::release). Its future is not dropped before it is ready.
    pub(crate) async fn acquire(&self, bytes: u64) {
        if self.waiting_count.get() > 0 || self.free_bytes.get() < bytes {
            self.waiting_count.set(self.waiting_count.get() + 1);
            let next = self.next.take().await;
            self.notify.wait_for(|| (self.free_bytes.get() >= bytes).then_some(())).await;
            drop(next);
            self.waiting_count.set(self.waiting_count.get() - 1);
        }
        self.free_bytes.set(self.free_bytes.get() - bytes);
    }

    pub(crate) fn release(&self, bytes: u64) {
        if bytes > 0 {
            self.free_bytes.set(self.free_bytes.get() + bytes);
            self.notify.notify_all();
        }
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_bytes.get()
    }
}

/// Keeps short simple reads and long ones apart.
///
/// A long simple read is sent while it is still being read, and nothing may come between its parts. If other reads of
/// the connection waited behind it with their memory, it could itself be waiting for that memory, for ever. So it begins
/// once they have left, and they begin once it has.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    holds: Cell<usize>,
    alone: Cell<bool>,
    notify: Notify,
}

impl Gate {
    /// Waits until no long read is under way.
    pub(crate) async fn enter(&self) {
        self.notify.wait_for(|| (!self.alone.get()).then_some(())).await;
        self.holds.set(self.holds.get() + 1);
    }

    /// Waits until no other read is under way.
    pub(crate) async fn enter_alone(&self) {
        self.notify.wait_for(|| (!self.alone.replace(true)).then_some(())).await;
        self.notify.wait_for(|| (self.holds.get() == 0).then_some(())).await;
    }

    /// Gives up so many holds taken by [`enter`](Self::enter).
    pub(crate) fn leave(&self, count: usize) {
        let holds = self.holds.get();
        assert!(holds >= count, "a hold of the gate ends once");
        self.holds.set(holds - count);
        if count > 0 {
            self.notify.notify_all();
        }
    }

    /// Gives up a hold taken by [`enter_alone`](Self::enter_alone).
    pub(crate) fn leave_alone(&self) {
        assert!(self.alone.replace(false), "a hold of the gate ends once");
        self.notify.notify_all();
    }
}
