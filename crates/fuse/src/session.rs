//! The conversation with the kernel: threads that read requests into slots and hand them on, and the answers.
//!
//! No thread waits for a request to be carried out. An answer is written by whichever thread has it, straight from where
//! the content lies; writing to `/dev/fuse` copies and does not block.
//!
//! All threads of a session use the one descriptor that the descriptor holder holds too. Cloned ones (one queue per core) are not
//! for us: requests read through a clone fail when the process that holds it dies. Nor is FUSE over io_uring, where nobody
//! asked for it by name: what was given to a ring hangs when its process dies, because the kernel resends no request of a
//! ring. A session that was asked for it has [entries](Entries), which no descriptor holder holds, and in which all requests come
//! but those that the kernel sends by no ring.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::dispatch;
use crate::entries::Entries;
use crate::host::Host;
use crate::nodes::Nodes;
use crate::region::{Found, Region};
use crate::slots::Slots;
use crate::wire::{FRONT_BYTES, InHead, NOTIFY_RESEND, OutHead, UNIQUE_RESEND, WriteIn, WriteOut, op};

/// Pieces of an answer that are written without being copied together first: a 256 KiB read in 4 KiB pieces.
const PIECES_MAX: usize = 64;
/// The longest body that is looked at: a name of 255 bytes.
const BODY_BYTES_MAX: usize = 512;

/// What was done since the session began.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct SessionCounters {
    /// Requests that the kernel gave.
    pub requests: u64,
    /// Of these, those that a daemon before had read and not answered.
    pub resent: u64,
    /// Requests found in the slots of a daemon before and served again.
    pub replayed: u64,
    /// Answers given.
    pub answers: u64,
    /// Answers to requests that were not waiting any more.
    pub stale_answers: u64,
}

#[derive(Default)]
struct Counters {
    requests: AtomicU64,
    resent: AtomicU64,
    replayed: AtomicU64,
    answers: AtomicU64,
    stale_answers: AtomicU64,
}

/// Where a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    Serving = 0,
    /// What is not answered is left for the next daemon.
    LetGo = 1,
    /// The folder was unmounted.
    Ended = 2,
}

/// What the threads of a session, and requests on their way through the engine, share.
pub(crate) struct Shared {
    fuse: OwnedFd,
    pub(crate) region: Region,
    slots: Slots,
    /// Where the session goes over rings: what they carry.
    pub(crate) entries: Option<Entries>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) nodes: Nodes,
    stop: OwnedFd,
    phase: AtomicU8,
    counters: Counters,
    negotiated: Mutex<bool>,
    negotiated_notify: Condvar,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(
        fuse: OwnedFd,
        region: Region,
        entries: Option<Entries>,
        nodes: Nodes,
        host: Arc<dyn Host>,
    ) -> Result<Self, Errno> {
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // The flag lives in the open file, which the descriptor holder and a daemon before share: both want it the same.
        rustix::fs::fcntl_setfl(&fuse, rustix::fs::OFlags::NONBLOCK)?;
        let slots = Slots::new(region.shape().slot_count);
        let negotiated = Mutex::new(region.negotiated().is_some());
        Ok(Self {
            fuse,
            region,
            slots,
            entries,
            host,
            nodes,
            stop,
            phase: AtomicU8::new(Phase::Serving as u8),
            counters: Counters::default(),
            negotiated,
            negotiated_notify: Condvar::new(),
        })
    }

    pub(crate) fn counters(&self) -> SessionCounters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SessionCounters {
            requests: get(&self.counters.requests),
            resent: get(&self.counters.resent),
            replayed: get(&self.counters.replayed),
            answers: get(&self.counters.answers),
            stale_answers: get(&self.counters.stale_answers),
        }
    }

    pub(crate) fn fuse(&self) -> BorrowedFd<'_> {
        self.fuse.as_fd()
    }

    fn entries(&self) -> &Entries {
        let Some(entries) = &self.entries else { panic!("a request came by a ring that is none of ours") };
        entries
    }

    /// Whether the kernel still sends requests.
    pub(crate) fn is_alive(&self) -> bool {
        self.phase.load(Ordering::SeqCst) != Phase::Ended as u8
    }

    /// Records what was negotiated, for this daemon and the next.
    pub(crate) fn set_negotiated(&self, minor: u32, resends: bool) {
        self.region.set_negotiated(minor, resends);
        *self.negotiated.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.negotiated_notify.notify_all();
    }

    /// Waits until the kernel and we have agreed on a version.
    pub(crate) fn wait_negotiated(&self, limit: Duration) -> bool {
        let guard = self.negotiated.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.negotiated_notify.wait_timeout_while(guard, limit, |done| !*done);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Asks the kernel to hand out again all that the daemon before had read and not answered.
    ///
    /// Nothing may have been read by this daemon yet: it would be handed out twice, and carried out twice.
    pub(crate) fn ask_to_resend(&self) -> Result<(), Errno> {
        for index in 0..self.region.shape().slot_count {
            self.region.release(index);
        }
        let head = OutHead { len: 16, error: NOTIFY_RESEND, unique: 0 };
        rustix::io::write(&self.fuse, head.as_bytes()).map(|_| ())
    }

    /// Serves what the daemon before left in the slots.
    pub(crate) fn replay(self: &Arc<Self>) {
        for index in 0..self.region.shape().slot_count {
            let found = self.region.found(index);
            if found == Found::Nothing {
                self.region.release(index);
                continue;
            }
            self.slots.take_one(index);
            let ticket = Ticket::new(self, RequestSource::Slot(index));
            self.counters.replayed.fetch_add(1, Ordering::Relaxed);
            match found {
                Found::Answering { error } if error < 0 => ticket.fail(-error),
                Found::Answering { .. } if ticket.is_change() => ticket.answer_again(),
                Found::Answering { .. } | Found::Unanswered | Found::Nothing => dispatch::dispatch(ticket),
            }
        }
    }

    fn read_loop(self: &Arc<Self>) {
        while let Some(index) = self.slots.take() {
            let ticket = Ticket::new(self, RequestSource::Slot(index));
            match self.receive(index) {
                Ok(()) => {
                    self.counters.requests.fetch_add(1, Ordering::Relaxed);
                    if ticket.head().unique & UNIQUE_RESEND != 0 {
                        self.counters.resent.fetch_add(1, Ordering::Relaxed);
                    }
                    dispatch::dispatch(ticket);
                }
                Err(end) => {
                    ticket.forget();
                    self.end(end);
                    return;
                }
            }
        }
    }

    /// A request has come into an entry of a ring.
    pub(crate) fn take_from_ring(self: &Arc<Self>, tag: u16) {
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        let ticket = Ticket::new(self, RequestSource::Entry(tag));
        if self.phase.load(Ordering::SeqCst) == Phase::LetGo as u8 {
            // Nobody takes over what comes by a ring.
            return ticket.fail(libc::EIO);
        }
        dispatch::dispatch(ticket);
    }

    /// Records that the kernel has ended the connection.
    pub(crate) fn note_ended(&self) {
        self.phase.store(Phase::Ended as u8, Ordering::SeqCst);
        self.close();
    }

    fn end(&self, why: Errno) {
        if why == Errno::NODEV {
            self.note_ended();
        } else if why != Errno::CANCELED {
            tracing::error!(error = %why, "reading from /dev/fuse failed; attached spaces stand still until the daemon is restarted");
            self.close();
        }
    }

    /// Receives one request into an armed slot; [`Errno::CANCELED`] when the session is let go.
    fn receive(&self, index: usize) -> Result<(), Errno> {
        self.region.arm(index);
        let payload_bytes = self.region.shape().payload_bytes;
        loop {
            if self.phase.load(Ordering::SeqCst) != Phase::Serving as u8 {
                return Err(Errno::CANCELED);
            }
            // SAFETY: the slot is held by this thread alone, its memory is mapped, and the two parts are disjoint.
            let (front, payload) = unsafe {
                (
                    &mut *self.region.front(index),
                    std::slice::from_raw_parts_mut(self.region.payload(index), payload_bytes),
                )
            };
            let mut parts = [IoSliceMut::new(front), IoSliceMut::new(payload)];
            match rustix::io::readv(&self.fuse, &mut parts) {
                Ok(_) => return Ok(()),
                // The sender gave up between our being woken and our reading.
                Err(Errno::NOENT | Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait_readable(),
                Err(error) => return Err(error),
            }
        }
    }

    fn wait_readable(&self) {
        let mut fds = [PollFd::new(&self.fuse, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
        // Whatever wakes it, the loop above looks again.
        let _ = rustix::event::poll(&mut fds, None);
    }

    /// Records that the folder is unmounted, as the reading threads do when the kernel tells them: they may be asked to let go
    /// before they have heard it.
    pub(crate) fn note_unmounted(&self) {
        self.phase.store(Phase::Ended as u8, Ordering::SeqCst);
    }

    /// Ends the reading threads. What was read and is not answered yet may still be answered; what is dropped is left
    /// for the next daemon.
    pub(crate) fn let_go(&self) {
        // An ended session stays ended.
        let (from, to) = (Phase::Serving as u8, Phase::LetGo as u8);
        let _ = self.phase.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst);
        self.close();
    }

    fn close(&self) {
        self.slots.close();
        // A full counter wakes as well.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }

    /// Gives a slot back.
    fn leave(&self, index: usize) {
        self.region.release(index);
        self.slots.return_slot(index);
    }

    fn send(&self, unique: u64, error: i32, pieces: &[IoSlice<'_>]) {
        self.counters.answers.fetch_add(1, Ordering::Relaxed);
        match rustix::io::writev(&self.fuse, pieces) {
            Ok(_) => {}
            Err(Errno::NOENT | Errno::NODEV) => {
                self.counters.stale_answers.fetch_add(1, Ordering::Relaxed);
            }
            Err(failure) => {
                tracing::error!(unique, error, %failure, "answering a request of an attached space failed; the kernel fails the request");
            }
        }
    }
}

/// The threads of a session.
pub(crate) struct Readers {
    threads: Vec<JoinHandle<()>>,
}

/// Ends the process when a reading thread panics: the requests that it would have served would wait for ever, while a
/// new daemon takes them up.
pub(crate) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a thread that serves attached spaces panicked; the daemon ends");
            std::process::abort();
        }
    }
}

impl Readers {
    pub(crate) fn start(shared: &Arc<Shared>, count: usize) -> std::io::Result<Self> {
        let mut threads = Vec::with_capacity(count);
        for index in 0..count {
            let session = Arc::clone(shared);
            let builder = std::thread::Builder::new().name(format!("fuse-{index}"));
            threads.push(builder.spawn(move || {
                let _guard = AbortOnPanic;
                // Allocations of the kernel on this thread's behalf must not wait for our own device. Without the
                // privilege the daemon has warned already, for its engine's thread needs the same.
                let _ = rustix::process::configure_io_flusher_behavior(true);
                session.read_loop();
            })?);
        }
        Ok(Self { threads })
    }

    pub(crate) fn join(self) {
        for thread in self.threads {
            // A panic has aborted the process.
            let _ = thread.join();
        }
    }
}

/// Where a request lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestSource {
    /// In a slot, read from `/dev/fuse`.
    Slot(usize),
    /// In an entry of a ring, by its tag.
    Entry(u16),
}

/// The right and the duty to answer one request, and the hold on where it lies.
#[must_use]
pub(crate) struct Ticket {
    shared: Arc<Shared>,
    source: RequestSource,
    answered: bool,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = self.head();
        write!(f, "Ticket({:?}, operation {}, unique {:x})", self.source, head.opcode, head.unique)
    }
}

impl Ticket {
    fn new(shared: &Arc<Shared>, source: RequestSource) -> Self {
        Self { shared: Arc::clone(shared), source, answered: false }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn front(&self) -> [u8; FRONT_BYTES] {
        match self.source {
            // SAFETY: the ticket holds the slot; the kernel wrote it before the ticket was handed on.
            RequestSource::Slot(index) => unsafe { self.shared.region.front(index).read() },
            RequestSource::Entry(tag) => self.shared.entries().front(tag),
        }
    }

    pub(crate) fn head(&self) -> InHead {
        InHead::read_from_prefix(&self.front()).map(|(head, _)| head).unwrap_or_default()
    }

    /// The fixed body of the request; zeros stand for what is missing.
    pub(crate) fn body<T: FromBytes>(&self) -> Option<T> {
        let front = self.front();
        T::read_from_prefix(front.get(size_of::<InHead>()..)?).map(|(body, _)| body).ok()
    }

    /// Copies the body out whole, for the requests whose body is no fixed struct; its length is the second result.
    pub(crate) fn body_bytes(&self) -> ([u8; BODY_BYTES_MAX], usize) {
        let front = self.front();
        let (begin, len) = match self.source {
            RequestSource::Slot(_) => {
                let len = (self.head().len as usize).saturating_sub(size_of::<InHead>());
                (front.get(size_of::<InHead>()..).unwrap_or_default(), len)
            }
            // What is no fixed struct is all in the payload.
            RequestSource::Entry(tag) => (Default::default(), self.shared.entries().payload_len(tag)),
        };
        let rest = self.payload(BODY_BYTES_MAX - begin.len());
        let mut body = [0; BODY_BYTES_MAX];
        body.iter_mut().zip(begin.iter().chain(rest)).for_each(|(to, from)| *to = *from);
        (body, len.min(BODY_BYTES_MAX))
    }

    /// The first bytes of the payload.
    pub(crate) fn payload(&self, len: usize) -> &[u8] {
        // That of a slot and that of an entry are of one length.
        assert!(
            len <= self.shared.region.shape().payload_bytes,
            "{len} bytes are more than a request carries"
        );
        // SAFETY: the ticket holds the slot or the entry, so nobody writes to it while the ticket is borrowed.
        unsafe { std::slice::from_raw_parts(self.payload_at(), len) }
    }

    fn payload_at(&self) -> *mut u8 {
        match self.source {
            RequestSource::Slot(index) => self.shared.region.payload(index),
            RequestSource::Entry(tag) => self.shared.entries().payload(tag),
        }
    }

    /// Whether the request changes something, so that it must not be carried out again once it may have been answered.
    fn is_change(&self) -> bool {
        matches!(self.head().opcode, op::WRITE | op::FALLOCATE | op::FSYNC)
    }

    /// Answers a change that the daemon before had carried out.
    fn answer_again(self) {
        match self.head().opcode {
            op::WRITE => {
                let size = self.body::<WriteIn>().map_or(0, |body| body.size);
                self.answer_write(size);
            }
            _ => self.answer(&[]),
        }
    }

    /// Answers with content, or with nothing where nothing is expected.
    pub(crate) fn answer(self, pieces: &[&[u8]]) {
        match self.source {
            RequestSource::Slot(_) if pieces.len() > PIECES_MAX => self.answer_gathered(pieces),
            RequestSource::Slot(_) | RequestSource::Entry(_) => self.finish(0, pieces),
        }
    }

    pub(crate) fn answer_write(self, size: u32) {
        self.finish(0, &[WriteOut { size, padding: 0 }.as_bytes()]);
    }

    /// Answers with an error number, which is positive.
    pub(crate) fn fail(self, errno: i32) {
        assert!(errno > 0, "{errno} is no error number");
        self.finish(-errno, &[]);
    }

    /// Copies very many pieces together, in the slot's own payload, which a read leaves unused.
    fn answer_gathered(self, pieces: &[&[u8]]) {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        assert!(len <= self.shared.region.shape().payload_bytes, "{len} bytes are more than a slot holds");
        // SAFETY: the ticket holds the slot and is consumed here, so there is no other reference to its payload.
        let to = unsafe { std::slice::from_raw_parts_mut(self.payload_at(), len) };
        let mut rest = &mut *to;
        for piece in pieces {
            let (part, tail) = std::mem::take(&mut rest).split_at_mut(piece.len());
            part.copy_from_slice(piece);
            rest = tail;
        }
        self.finish(0, &[to]);
    }

    fn finish(mut self, error: i32, pieces: &[&[u8]]) {
        self.answered = true;
        match self.source {
            RequestSource::Slot(index) => self.finish_slot(index, error, pieces),
            RequestSource::Entry(tag) => {
                self.shared.counters.answers.fetch_add(1, Ordering::Relaxed);
                self.shared.entries().answer(tag, error, pieces);
            }
        }
    }

    fn finish_slot(&self, index: usize, error: i32, pieces: &[&[u8]]) {
        self.shared.region.note_answer(index, error);
        let unique = self.head().unique;
        let content: usize = pieces.iter().map(|piece| piece.len()).sum();
        let len = u32::try_from(size_of::<OutHead>() + content).unwrap_or(u32::MAX);
        let head = OutHead { len, error, unique };
        let mut parts = [IoSlice::new(&[]); PIECES_MAX + 1];
        let all = std::iter::once(head.as_bytes()).chain(pieces.iter().copied());
        parts.iter_mut().zip(all).for_each(|(part, piece)| *part = IoSlice::new(piece));
        let parts = parts.get(..=pieces.len()).unwrap_or_default();
        self.shared.send(unique, error, parts);
        self.shared.leave(index);
    }

    /// For what expects no answer: gives the slot back without one. An entry of a ring comes back no other way.
    pub(crate) fn forget(mut self) {
        match self.source {
            RequestSource::Slot(index) => {
                self.answered = true;
                self.shared.leave(index);
            }
            RequestSource::Entry(_) => self.finish(0, &[]),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let is_let_go = self.shared.phase.load(Ordering::SeqCst) == Phase::LetGo as u8;
        match self.source {
            // The slot stays as it is: armed, with its request.
            RequestSource::Slot(_) if is_let_go => return,
            RequestSource::Entry(_) if is_let_go => {}
            RequestSource::Slot(_) | RequestSource::Entry(_) => {
                tracing::error!(request = ?self, "a request of an attached space was dropped without an answer; it fails");
            }
        }
        let again = Self { shared: Arc::clone(&self.shared), source: self.source, answered: true };
        again.finish(-libc::EIO, &[]);
    }
}
