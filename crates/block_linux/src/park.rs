//! Waking a runtime that rests in the kernel.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use super::cores::{Arc, AtomicBool, AtomicU64, Ordering};

/// What other threads hold to wake the runtime. The eventfd is written only while the runtime rests, so that a burst
/// of messages costs one system call, and a wake-up by the runtime's own thread none.
#[derive(Debug)]
pub(crate) struct Parker {
    event: OwnedFd,
    parked: AtomicBool,
    unparks: AtomicU64,
    messages: AtomicU64,
}

impl Parker {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self {
            event,
            parked: AtomicBool::new(false),
            unparks: AtomicU64::new(0),
            messages: AtomicU64::new(0),
        }))
    }

    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Says that the runtime is about to rest. It must look for work once more before it does: whoever made work
    /// before this call saw no reason to wake it.
    pub(crate) fn park(&self) {
        self.parked.store(true, Ordering::SeqCst);
    }

    /// Says that the runtime is awake.
    pub(crate) fn awake(&self) {
        self.parked.store(false, Ordering::SeqCst);
    }

    /// Wakes the runtime if it rests. The work was published before this call, under a lock that the runtime takes
    /// after `park` to look for it: so either the runtime sees the work, or this sees it parked.
    pub(crate) fn unpark(&self) {
        if self.parked.swap(false, Ordering::SeqCst) {
            self.unparks.fetch_add(1, Ordering::Relaxed);
            // The counter of an eventfd overflows after 2^64 wake-ups without one rest; a full one wakes as well.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Empties the eventfd, so that it does not wake the runtime again.
    pub(crate) fn drain(&self) {
        let mut count = [0; 8];
        // Nothing to read means that nobody wrote: the state that is wanted.
        let _ = rustix::io::read(&self.event, &mut count);
    }

    pub(crate) fn note_message(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unparks(&self) -> u64 {
        self.unparks.load(Ordering::Relaxed)
    }

    pub(crate) fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }
}
