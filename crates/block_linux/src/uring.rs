//! The io_uring driver: one ring, a sparse table of files, registered memory.
//!
//! Requests are queued in the ring's own memory and handed over with the next `poll_once`, together with the wait, in one
//! `io_uring_enter`. When tasks are ready and nothing is queued, no system call is made at all: answers are read from
//! the ring's memory.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};

use crate::driver::{
    BATCH_MAX, Driver, DriverCounters, Memory, Registration, Request, RequestKey, Sync, Target, Wait, negated,
};
use crate::park::Parker;

/// Files that the ring's table holds; further files work, at the cost of a look-up per request.
const FILES_MAX: u32 = 1024;
/// Answers that the kernel can leave before the next `poll_once`; beyond it keeps them aside, and nothing is lost.
const ANSWERS_MAX: u32 = 8 * BATCH_MAX;
/// `BLOCK_URING_CMD_DISCARD` of `linux/blkdev.h`: a discard of a block device without a thread, from Linux 6.12 on.
const URING_CMD_DISCARD: u32 = 0x12 << 8;
/// User data of the poll on the eventfd; no key has it, because the use count of a slot starts at one.
const WAKE: u64 = 0;
/// User data of a cancellation, whose own answer says nothing.
const CANCEL: u64 = 1;

const _: () = assert!(ANSWERS_MAX >= BATCH_MAX, "one batch of answers fits the ring");

pub(crate) struct Uring {
    ring: IoUring,
    parker: Arc<Parker>,
    /// Requests that did not fit the ring.
    overflow: VecDeque<squeue::Entry>,
    free_slots: Vec<u32>,
    /// Whether a poll on the eventfd is under way.
    armed: bool,
    counters: DriverCounters,
}

impl Uring {
    /// A ring, if the kernel grants one that can do what is needed.
    pub(crate) fn new(parker: Arc<Parker>) -> io::Result<Self> {
        let ring = build()?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::ReadFixed::CODE,
            opcode::WriteFixed::CODE,
            opcode::Fsync::CODE,
            opcode::Fallocate::CODE,
            opcode::Accept::CODE,
            opcode::Recv::CODE,
            opcode::SendMsg::CODE,
            opcode::PollAdd::CODE,
            opcode::AsyncCancel::CODE,
        ];
        let complete =
            needed.iter().all(|code| probe.is_supported(*code)) && ring.params().is_feature_ext_arg();
        if !complete || !ring.params().is_feature_nodrop() {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        let free_slots = match ring.submitter().register_files_sparse(FILES_MAX) {
            Ok(()) => (0..FILES_MAX).rev().collect(),
            Err(error) => {
                tracing::warn!(%error, "no table of files in the ring; each request looks its file up");
                Vec::new()
            }
        };
        let counters = DriverCounters::default();
        Ok(Self { ring, parker, overflow: VecDeque::new(), free_slots, armed: false, counters })
    }

    fn queue(&mut self, entry: squeue::Entry) {
        if !self.overflow.is_empty() || !self.try_queue(&entry) {
            self.overflow.push_back(entry);
        }
    }

    fn try_queue(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: memory and file of a request stay valid until its answer: `Driver::push` asks its caller for that.
        // The poll on the eventfd points to no memory, and its file lives as long as this driver.
        unsafe { self.ring.submission().push(entry).is_ok() }
    }

    fn refill(&mut self) {
        while let Some(entry) = self.overflow.pop_front() {
            if !self.try_queue(&entry) {
                self.overflow.push_front(entry);
                return;
            }
        }
    }

    fn arm(&mut self) {
        if !self.armed {
            let file = types::Fd(self.parker.event().as_raw_fd());
            let events = u32::from(libc::POLLIN.unsigned_abs());
            self.queue(opcode::PollAdd::new(file, events).build().user_data(WAKE));
            self.armed = true;
        }
    }

    fn enter(&mut self, wait: Wait) {
        self.counters.enters += 1;
        let submitter = self.ring.submitter();
        let result = match wait {
            Wait::Never => submitter.submit(),
            Wait::Forever => submitter.submit_and_wait(1),
            Wait::AtMost(limit) => {
                let limit = types::Timespec::from(limit);
                submitter.submit_with_args(1, &types::SubmitArgs::new().timespec(&limit))
            }
        };
        if let Err(error) = result {
            // Time ran out, a signal came, or answers must be taken before more requests are: all mend themselves at the
            // next turn. Anything else means that this driver has handed the kernel a malformed ring.
            let errno = error.raw_os_error().unwrap_or(0);
            let passing =
                [libc::ETIME, libc::EINTR, libc::EBUSY, libc::EAGAIN, libc::ENOMEM].contains(&errno);
            assert!(passing, "io_uring_enter accepts the ring, but said: {error}");
        }
    }

    fn reap(&mut self, answers: &mut Vec<(RequestKey, i32)>) {
        let mut woken = false;
        for answer in self.ring.completion() {
            match answer.user_data() {
                WAKE => woken = true,
                CANCEL => {}
                key => answers.push((RequestKey(key), cqueue::Entry::result(&answer))),
            }
        }
        if woken {
            self.armed = false;
            self.parker.drain();
        }
    }
}

fn build() -> io::Result<IoUring> {
    // A ring with one issuer spares the kernel some locking; kernels before 6.0 do not know the flag.
    let tuned = IoUring::builder()
        .setup_cqsize(ANSWERS_MAX)
        .setup_single_issuer()
        .setup_submit_all()
        .build(BATCH_MAX);
    match tuned {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            IoUring::builder().setup_cqsize(ANSWERS_MAX).build(BATCH_MAX)
        }
        other => other,
    }
}

/// Evaluates the builder with a file from the table where it has a place there.
macro_rules! on_file {
    ($file:expr, $target:ident => $build:expr) => {
        match $file.slot {
            Some(slot) => {
                let $target = types::Fixed(slot);
                $build
            }
            None => {
                let $target = types::Fd($file.fd);
                $build
            }
        }
    };
}

fn entry(request: Request) -> squeue::Entry {
    match request {
        Request::Read { file, at, memory } => read(file, at, memory),
        Request::Write { file, at, memory, sync } => write(file, at, memory, sync),
        Request::Flush { file } => {
            on_file!(file, target => opcode::Fsync::new(target).flags(types::FsyncFlags::DATASYNC).build())
        }
        Request::Allocate { file, how, at, length } => {
            on_file!(file, target => opcode::Fallocate::new(target, length).offset(at).mode(how.mode()).build())
        }
        Request::Discard { file, at, length } => {
            let mut tail = [0; 16];
            for (to, from) in tail.iter_mut().zip(length.to_ne_bytes()) {
                *to = from;
            }
            on_file!(file, target =>
                opcode::UringCmd16::new(target, URING_CMD_DISCARD).addr(Some(at)).cmd(tail).build())
        }
        Request::Accept { file } => on_file!(file, target => {
            opcode::Accept::new(target, std::ptr::null_mut(), std::ptr::null_mut()).flags(libc::SOCK_CLOEXEC).build()
        }),
        Request::Receive { file, memory } => {
            on_file!(file, target => opcode::Recv::new(target, memory.address, memory.len).build())
        }
        Request::Send { file, message } => {
            let flags = libc::MSG_NOSIGNAL.unsigned_abs();
            on_file!(file, target => opcode::SendMsg::new(target, message).flags(flags).build())
        }
    }
}

fn read(file: Target, at: u64, memory: Memory) -> squeue::Entry {
    let Memory { address, len, region } = memory;
    match region {
        Some(region) => on_file!(file, target =>
            opcode::ReadFixed::new(target, address, len, region).offset(at).build()),
        None => on_file!(file, target => opcode::Read::new(target, address, len).offset(at).build()),
    }
}

fn write(file: Target, at: u64, memory: Memory, sync: Sync) -> squeue::Entry {
    let Memory { address, len, region } = memory;
    let flags = match sync {
        Sync::No => 0,
        Sync::Data => libc::RWF_DSYNC,
    };
    match region {
        Some(region) => on_file!(file, target =>
            opcode::WriteFixed::new(target, address, len, region).offset(at).rw_flags(flags).build()),
        None => {
            on_file!(file, target => opcode::Write::new(target, address, len).offset(at).rw_flags(flags).build())
        }
    }
}

impl Driver for Uring {
    fn name(&self) -> &'static str {
        "io_uring"
    }

    fn push(&mut self, key: RequestKey, request: Request) {
        self.counters.submissions += 1;
        self.queue(entry(request).user_data(key.0));
    }

    fn cancel(&mut self, key: RequestKey) {
        self.queue(opcode::AsyncCancel::new(key.0).build().user_data(CANCEL));
    }

    fn poll_once(&mut self, wait: Wait, answers: &mut Vec<(RequestKey, i32)>) {
        let before = answers.len();
        if wait != Wait::Never {
            self.arm();
        }
        self.refill();
        loop {
            let queued = !self.ring.submission().is_empty();
            // What has arrived meanwhile is as good as what a wait would bring.
            let wait = if self.ring.completion().is_empty() { wait } else { Wait::Never };
            let kept_aside = self.ring.submission().cq_overflow();
            if queued || kept_aside || wait != Wait::Never {
                self.enter(if self.overflow.is_empty() { wait } else { Wait::Never });
            }
            let waiting = self.overflow.len();
            self.reap(answers);
            self.refill();
            if self.overflow.len() == waiting {
                break;
            }
        }
        self.counters.completions += (answers.len() - before) as u64;
    }

    fn adopt(&mut self, file: BorrowedFd<'_>) -> Option<u32> {
        // With the flag set, the ring would answer "try again" where it is meant to wait.
        if let Ok(flags) = rustix::fs::fcntl_getfl(file) {
            let _ = rustix::fs::fcntl_setfl(file, flags - rustix::fs::OFlags::NONBLOCK);
        }
        let slot = self.free_slots.pop()?;
        if let Err(error) = self.ring.submitter().register_files_update(slot, &[file.as_raw_fd()]) {
            tracing::debug!(%error, "a file was not taken into the ring's table");
            self.free_slots.push(slot);
            return None;
        }
        Some(slot)
    }

    fn forget(&mut self, slot: u32) {
        if let Err(error) = self.ring.submitter().register_files_update(slot, &[-1]) {
            // The place is abandoned rather than lent again with another file still in it.
            tracing::warn!(%error, slot, "a file stays in the ring's table and is closed with the ring");
            return;
        }
        self.free_slots.push(slot);
    }

    fn register(&mut self, regions: &[(*mut u8, usize)]) -> Registration {
        let vectors: Vec<libc::iovec> = regions
            .iter()
            .map(|(address, len)| libc::iovec { iov_base: address.cast(), iov_len: *len })
            .collect();
        // SAFETY: the caller keeps the regions for this driver's life, and nobody else registers buffers.
        match unsafe { self.ring.submitter().register_buffers(&vectors) } {
            Ok(()) => Registration::Done,
            Err(error) => Registration::Refused(-negated(&error)),
        }
    }

    fn counters(&self) -> DriverCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    /// A driver and a file, unless the system grants no ring.
    fn ring() -> Option<(Uring, OwnedFd)> {
        match Uring::new(Parker::new().unwrap()) {
            Ok(driver) => Some((driver, tempfile::tempfile().unwrap().into())),
            Err(error) => {
                println!("skipped: {error}");
                None
            }
        }
    }

    fn flushes(driver: &mut Uring, file: &OwnedFd, count: u64) {
        let target = Target { fd: file.as_raw_fd(), slot: None };
        for number in 0..count {
            driver.push(RequestKey(1 << 32 | number), Request::Flush { file: target });
        }
    }

    #[test]
    fn a_batch_costs_one_call() {
        let Some((mut driver, file)) = ring() else { return };
        let mut answers = Vec::new();
        flushes(&mut driver, &file, u64::from(BATCH_MAX));
        driver.poll_once(Wait::Never, &mut answers);
        assert_eq!(driver.counters().enters, 1);
        while answers.len() < BATCH_MAX as usize {
            driver.poll_once(Wait::Forever, &mut answers);
        }
        driver.poll_once(Wait::Never, &mut answers);
        let enters = driver.counters().enters;
        driver.poll_once(Wait::Never, &mut answers);
        assert_eq!(driver.counters().enters, enters, "nothing to hand over and nothing to wait for: no call");
    }

    #[test]
    fn more_requests_than_the_ring_holds_are_all_answered_once() {
        // Scenario: ten times what the ring takes and more than it keeps answers for, queued before the first look.
        let Some((mut driver, file)) = ring() else { return };
        let count = 10 * u64::from(BATCH_MAX);
        flushes(&mut driver, &file, count);
        let mut answers = Vec::new();
        while answers.len() < usize::try_from(count).unwrap() {
            driver.poll_once(Wait::Forever, &mut answers);
        }
        let mut keys: Vec<_> = answers.iter().map(|(key, answer)| (key.0 & 0xffff_ffff, *answer)).collect();
        keys.sort_unstable();
        assert!(keys.into_iter().eq((0..count).map(|number| (number, 0))));
        assert_eq!((driver.counters().submissions, driver.counters().completions), (count, count));
    }

    #[test]
    fn an_unpark_ends_a_wait() {
        let Some((mut driver, _file)) = ring() else { return };
        let parker = Arc::clone(&driver.parker);
        for round in 1..=3 {
            parker.park();
            let other = Arc::clone(&parker);
            let thread = std::thread::Builder::new().spawn(move || other.unpark()).unwrap();
            driver.poll_once(Wait::Forever, &mut Vec::new());
            thread.join().unwrap();
            assert_eq!(parker.unparks(), round);
        }
    }
}
