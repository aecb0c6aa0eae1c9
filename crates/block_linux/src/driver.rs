//! What the kernel is asked, and by whom: one table of requests above, two ways to carry them out below.
//!
//! A driver knows no buffers, only addresses. Whoever hands it a request owns the memory and the file behind it, and
//! keeps both until the driver has reported the answer; see `reactor`.

use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

/// Requests a driver passes to the kernel in one go, at most; more wait for the next.
pub(crate) const BATCH_MAX: u32 = 256;

/// Names a request to the driver. The upper half counts the uses of the lower half's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestKey(pub(crate) u64);

/// A file as a driver knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) fd: RawFd,
    /// Its place in the ring's file table, which spares the kernel a look-up; `None` without one.
    pub(crate) slot: Option<u32>,
}

/// Memory that a request reads or fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) address: *mut u8,
    pub(crate) len: u32,
    /// The registered region it lies in; `None` when there is none.
    pub(crate) region: Option<u16>,
}

/// Whether a request must reach the medium before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    No,
    Data,
}

/// How a range of a file is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allocate {
    /// It reads as zeros and keeps its space.
    Zero,
    /// It reads as zeros and loses its space.
    Punch,
}

impl Allocate {
    pub(crate) const fn mode(self) -> i32 {
        match self {
            Self::Zero => libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE,
            Self::Punch => libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
        }
    }
}

/// One thing for the kernel to do. The answer is a count or a negated error number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Request {
    Read {
        file: Target,
        at: u64,
        memory: Memory,
    },
    Write {
        file: Target,
        at: u64,
        memory: Memory,
        sync: Sync,
    },
    Flush {
        file: Target,
    },
    Allocate {
        file: Target,
        how: Allocate,
        at: u64,
        length: u64,
    },
    /// `BLKDISCARD`.
    Discard {
        file: Target,
        at: u64,
        length: u64,
    },
    Accept {
        file: Target,
    },
    Receive {
        file: Target,
        memory: Memory,
    },
    /// The header and all it points to stay in place until the answer.
    Send {
        file: Target,
        message: *const libc::msghdr,
    },
}

/// Counts of what crossed into the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DriverCounters {
    /// Calls that submit requests or wait for answers: `io_uring_enter`, or `poll` for the thread pool.
    pub enters: u64,
    /// Requests handed over.
    pub submissions: u64,
    /// Answers taken.
    pub completions: u64,
}

/// How long a driver may rest when it has nothing to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Not at all: tasks are ready.
    Never,
    /// Until an answer, or an unpark.
    Forever,
    /// Until an answer, an unpark, or for so long.
    AtMost(Duration),
}

/// A way to have requests carried out.
pub(crate) trait Driver {
    /// What a person calls it.
    fn name(&self) -> &'static str;

    /// Queues a request. Its memory and its file stay valid until `poll_once` has reported its key.
    fn push(&mut self, key: RequestKey, request: Request);

    /// Asks for a request to be cancelled, if that is possible; its answer comes in any case.
    fn cancel(&mut self, key: RequestKey);

    /// Hands over what is queued, waits as requested, and appends the answers that are there.
    fn poll_once(&mut self, wait: Wait, answers: &mut Vec<(RequestKey, i32)>);

    /// Makes a file known; the place in the driver's table, if it has one and it is not full.
    fn adopt(&mut self, file: BorrowedFd<'_>) -> Option<u32>;

    /// Undoes `adopt`. No request for the file is under way.
    fn forget(&mut self, slot: u32);

    /// Makes memory known, so that the kernel need not look it up per request; whether it could be done. The memory
    /// stays valid for the driver's life.
    fn register(&mut self, regions: &[(*mut u8, usize)]) -> Registration;

    fn counters(&self) -> DriverCounters;
}

/// Whether memory is known to the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Registration {
    Done,
    /// The driver has no use for it.
    NotNeeded,
    /// The system refused, with this error number.
    Refused(i32),
}

/// The negated error number that a system call's failure is reported as.
pub(crate) fn negated(error: &std::io::Error) -> i32 {
    -error.raw_os_error().unwrap_or(libc::EIO)
}
