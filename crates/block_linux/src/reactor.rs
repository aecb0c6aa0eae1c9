//! The table of requests under way, which owns their memory and their files until the driver has reported the answer.
//!
//! A caller that stops waiting changes nothing about that: its entry stays, memory included, and is cleared by the
//! answer. A command of a disk that is not answered in time is answered here, with [`DeviceError::TimedOut`], while the
//! entry stays until the kernel lets go of it.
//!
//! A request under way holds its file, and a file holds the reactor. So a reactor is not dropped, nor the memory that
//! the kernel may still write to, before the last answer has come; when one never comes, that memory is leaked.
//!
//! Invariant: no waker, no buffer and no file is dropped while the table or the driver is borrowed, because each of
//! them may call back.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::fs;
use std::future::Future;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dolmen_block_io::{Clock, Completions, DeviceError, Instant, IoCounters, Outcome, Submission};
use dolmen_buffer::{Arena, Shared};

use crate::clock::MonotonicClock;
use crate::driver::{Driver, DriverCounters, Registration, RequestKey, Target, Wait};
use crate::park::Parker;
use crate::table::{Finished, Operation, State, Table, Waiter};
use crate::work::{Message, Step, Work, device_result};

/// A registered region has 1 GiB at most: the kernel accepts no more in one piece.
const REGION_BYTES_MAX: usize = 1 << 30;
/// How often a request that makes no progress is asked again.
const AGAIN_MAX: u32 = 64;

/// A file that requests go to. It is closed when the last request for it has been answered.
pub(crate) struct OpenFile {
    reactor: Rc<Reactor>,
    fd: OwnedFd,
    slot: Option<u32>,
    /// What a transfer that stopped in the middle may be continued at.
    unit_bytes: usize,
    /// A path that exists as long as the device does; `None` for what cannot be unplugged.
    presence: Option<PathBuf>,
    /// The mark beside its lock, to which no request goes.
    _mark: Option<OwnedFd>,
    outstanding: Cell<usize>,
    counters: Cell<IoCounters>,
}

impl OpenFile {
    /// A file without blocks: a socket.
    pub(crate) fn stream(reactor: &Rc<Reactor>, fd: OwnedFd) -> Rc<Self> {
        Self::new(reactor, fd, 1, None, None)
    }

    pub(crate) fn new(
        reactor: &Rc<Reactor>,
        fd: OwnedFd,
        unit_bytes: usize,
        presence: Option<PathBuf>,
        mark: Option<OwnedFd>,
    ) -> Rc<Self> {
        let slot = reactor.driver.borrow_mut().adopt(fd.as_fd());
        Rc::new(Self {
            reactor: Rc::clone(reactor),
            fd,
            slot,
            unit_bytes,
            presence,
            _mark: mark,
            outstanding: Cell::new(0),
            counters: Cell::default(),
        })
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(crate) fn reactor(&self) -> &Rc<Reactor> {
        &self.reactor
    }

    /// Requests that the kernel still holds.
    pub(crate) fn outstanding_count(&self) -> usize {
        self.outstanding.get()
    }

    pub(crate) fn counters(&self) -> &Cell<IoCounters> {
        &self.counters
    }

    /// Counts a request that the kernel has let go of.
    pub(crate) fn note_answer(&self) {
        self.outstanding.set(self.outstanding.get() - 1);
    }

    fn target(&self) -> Target {
        Target { fd: self.fd.as_raw_fd(), slot: self.slot }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // Older kernels take their time to close a file that was in the ring's table; the lock need not wait for that,
        // because no request is under way any more. What was never locked is none the worse for it.
        let _ = rustix::fs::flock(&self.fd, rustix::fs::FlockOperation::Unlock);
        if let Some(slot) = self.slot {
            self.reactor.driver.borrow_mut().forget(slot);
        }
    }
}

/// Requests, their owner, and the driver that carries them out.
pub(crate) struct Reactor {
    table: RefCell<Table>,
    driver: RefCell<Box<dyn Driver>>,
    completions: Rc<Completions>,
    clock: Rc<MonotonicClock>,
    parker: Arc<Parker>,
    arena: Arena,
    /// Held so that what is registered with the kernel survives the driver.
    _registered: [Arena; 2],
    /// Start and end of the registered regions.
    regions: Vec<(usize, usize)>,
    answers: RefCell<Vec<(RequestKey, i32)>>,
    /// Kept for later sends; boxed because the kernel is given their addresses.
    #[allow(clippy::vec_box)]
    messages: RefCell<Vec<Box<Message>>>,
    /// No deadline lies before this.
    next_expiry: Cell<Option<Instant>>,
    closed: Cell<bool>,
}

impl Reactor {
    pub(crate) fn new(
        mut driver: Box<dyn Driver>,
        clock: Rc<MonotonicClock>,
        parker: Arc<Parker>,
        arenas: [Arena; 2],
    ) -> Rc<Self> {
        let pieces: Vec<_> = arenas.iter().flat_map(|arena| pieces(arena.region())).collect();
        let regions = match driver.register(&pieces) {
            Registration::Done => {
                pieces.iter().map(|(start, len)| (start.addr(), start.addr() + len)).collect()
            }
            Registration::NotNeeded => Vec::new(),
            Registration::Refused(errno) => {
                let bytes: usize = pieces.iter().map(|(_, len)| len).sum();
                tracing::warn!(
                    errno,
                    bytes,
                    "buffers are not registered with the kernel, so each request looks its memory up; \
                     raise LimitMEMLOCK above their size to avoid that"
                );
                Vec::new()
            }
        };
        let [data, _] = &arenas;
        Rc::new(Self {
            table: RefCell::default(),
            driver: RefCell::new(driver),
            completions: Completions::new(),
            clock,
            parker,
            arena: data.clone(),
            _registered: arenas,
            regions,
            answers: RefCell::default(),
            messages: RefCell::default(),
            next_expiry: Cell::new(None),
            closed: Cell::new(false),
        })
    }

    fn region_of(&self, start: usize, len: usize) -> Option<u16> {
        let holds = |(from, to): &(usize, usize)| *from <= start && start + len <= *to;
        self.regions.iter().position(holds).and_then(|index| u16::try_from(index).ok())
    }

    pub(crate) fn is_registered(&self) -> bool {
        !self.regions.is_empty()
    }

    pub(crate) fn driver_name(&self) -> &'static str {
        self.driver.borrow().name()
    }

    pub(crate) fn driver_counters(&self) -> DriverCounters {
        self.driver.borrow().counters()
    }

    pub(crate) fn outstanding_count(&self) -> usize {
        self.table.borrow().under_way().count()
    }

    /// Begins a command of a disk, which has to be answered within `limit`.
    pub(crate) fn command(&self, file: &Rc<OpenFile>, work: Work, limit: Duration) -> Submission {
        if self.closed.get() {
            return self.refuse(DeviceError::Detached, work);
        }
        let (key, submission) = self.completions.begin();
        let deadline = self.clock.now() + limit;
        if self.next_expiry.get().is_none_or(|next| deadline < next) {
            self.next_expiry.set(Some(deadline));
        }
        self.begin(file, work, Waiter::Device(key), Some(deadline));
        submission
    }

    /// Answers a command without asking the kernel.
    pub(crate) fn refuse(&self, error: DeviceError, work: Work) -> Submission {
        self.completions.ready(Outcome { result: Err(error), payload: work.into_payload() })
    }

    /// Begins a request whose answer a future takes.
    pub(crate) fn request(self: &Rc<Self>, file: &Rc<OpenFile>, work: Work) -> Answer {
        let key = if self.closed.get() {
            self.table.borrow_mut().insert(State::Done(work, -libc::ECANCELED))
        } else {
            self.begin(file, work, Waiter::Future(None), None)
        };
        Answer { reactor: Rc::clone(self), key, finished: false }
    }

    fn begin(
        &self,
        file: &Rc<OpenFile>,
        work: Work,
        waiter: Waiter,
        deadline: Option<Instant>,
    ) -> RequestKey {
        file.outstanding.set(file.outstanding.get() + 1);
        let operation = Operation { file: Rc::clone(file), work, done: 0, again: 0, deadline, waiter };
        let mut table = self.table.borrow_mut();
        let key = table.insert(State::UnderWay(operation));
        self.push(key, table.operation(key));
        key
    }

    fn push(&self, key: RequestKey, operation: &mut Operation) {
        let target = operation.file.target();
        let request = operation.work.request(target, operation.done, |start, len| self.region_of(start, len));
        self.driver.borrow_mut().push(key, request);
    }

    /// A message to send, with handles to `parts`.
    pub(crate) fn message(&self, parts: &[Shared]) -> Box<Message> {
        let mut message = self.messages.borrow_mut().pop().unwrap_or_else(Message::new);
        message.load(parts);
        message
    }

    /// Takes a message back for a later send.
    pub(crate) fn keep_message(&self, mut message: Box<Message>) {
        message.unload();
        self.messages.borrow_mut().push(message);
    }

    /// Lets the driver work, and tells those whose requests were answered.
    pub(crate) fn poll_once(&self, wait: Wait) {
        let mut answers = self.answers.take();
        self.driver.borrow_mut().poll_once(wait, &mut answers);
        // Before any waker is called: a wake-up by this very thread need not go through the kernel.
        self.parker.awake();
        for (key, answer) in answers.drain(..) {
            self.take_answer(key, answer);
        }
        self.answers.replace(answers);
    }

    fn take_answer(&self, key: RequestKey, answer: i32) {
        let (finished, last) = {
            let mut table = self.table.borrow_mut();
            let operation = table.operation(key);
            let before = operation.done;
            let mut step = operation.work.advance(&mut operation.done, answer, operation.file.unit_bytes);
            operation.again = if operation.done == before { operation.again + 1 } else { 0 };
            if step == Step::Again && (operation.again > AGAIN_MAX || self.closed.get()) {
                step = Step::Over(if answer < 0 { answer } else { -libc::ECANCELED });
            }
            match step {
                Step::Again => return self.push(key, operation),
                Step::Over(last) => (table.finish(key, last), last),
            }
        };
        self.notify(finished, last);
    }

    fn notify(&self, finished: Finished, last: i32) {
        let Finished { file, waker, reported } = finished;
        if let Some(waker) = waker {
            waker.wake();
        }
        match reported {
            Some((Some(key), work)) => {
                let result = device_result(last).map_err(|error| seen_again(error, file.presence.as_deref()));
                note_error(&file, result);
                self.completions.complete(key, Outcome { result, payload: work.into_payload() });
            }
            Some((None, work)) => self.discard(work, last),
            None => {}
        }
    }

    /// Clears up after an answer that nobody waits for.
    fn discard(&self, work: Work, last: i32) {
        match work {
            Work::Accept if last >= 0 => {
                // SAFETY: the kernel has just made this descriptor for us, and nobody else knows of it.
                drop(unsafe { OwnedFd::from_raw_fd(last) });
            }
            Work::Send { message } => self.keep_message(message),
            other => drop(other),
        }
    }

    /// When `expire` has to be called next.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.next_expiry.get()
    }

    /// Answers the commands whose time is over. The kernel keeps their memory until it answers them as well.
    ///
    /// The table is gone through only when the earliest deadline known has passed; disks that answer never cause it
    /// more often than once per time limit.
    pub(crate) fn expire(&self, now: Instant) {
        if self.next_expiry.get().is_none_or(|next| now < next) {
            return;
        }
        let (mut overdue, mut next) = (Vec::new(), None::<Instant>);
        for (key, operation) in self.table.borrow().under_way() {
            match operation.deadline {
                Some(deadline) if deadline <= now => overdue.push(key),
                Some(deadline) => next = Some(next.map_or(deadline, |next| next.min(deadline))),
                None => {}
            }
        }
        self.next_expiry.set(next);
        for key in overdue {
            self.time_out(key);
        }
    }

    fn time_out(&self, key: RequestKey) {
        let (reported, payload) = {
            let mut table = self.table.borrow_mut();
            let operation = table.operation(key);
            operation.deadline = None;
            let waiter = std::mem::replace(&mut operation.waiter, Waiter::Abandoned);
            note_error(&operation.file, Err(DeviceError::TimedOut));
            (waiter, operation.work.replacement_memory(&self.arena))
        };
        if let Waiter::Device(key) = reported {
            self.completions.complete(key, Outcome { result: Err(DeviceError::TimedOut), payload });
        }
    }

    /// Takes no more requests, cancels those on sockets, and waits until the kernel has let go of the rest, but not
    /// longer than `limit`. Returns how many it still holds.
    pub(crate) fn close(&self, limit: Duration) -> usize {
        self.closed.set(true);
        let recallable = |(key, operation): (RequestKey, &Operation)| {
            let on_socket = operation.work.is_recallable() || matches!(operation.work, Work::Send { .. });
            on_socket.then_some(key)
        };
        let keys: Vec<_> = self.table.borrow().under_way().filter_map(recallable).collect();
        for key in keys {
            self.driver.borrow_mut().cancel(key);
        }
        let end = self.clock.now() + limit;
        loop {
            let now = self.clock.now();
            let left = self.outstanding_count();
            if left == 0 || now >= end {
                return left;
            }
            self.parker.park();
            self.poll_once(Wait::AtMost(end.since(now)));
        }
    }
}

impl fmt::Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reactor({}, {} under way)", self.driver_name(), self.outstanding_count())
    }
}

fn note_error(file: &OpenFile, result: Result<(), DeviceError>) {
    let mut counters = file.counters.get();
    counters.errors += u64::from(result.is_err());
    file.counters.set(counters);
}

/// Tells what a device in use answers from what one answers that was unplugged. Many drivers say EIO to both. And the
/// kernel makes a device that it takes away empty at first, while its folder is still there: writes then find no space,
/// and ranges lie outside.
fn seen_again(error: DeviceError, presence: Option<&Path>) -> DeviceError {
    let is_reported_by_both = match error {
        DeviceError::Medium { .. }
        | DeviceError::NoSpace
        | DeviceError::Misaligned
        | DeviceError::OutOfRange => true,
        DeviceError::Detached
        | DeviceError::Fenced
        | DeviceError::TimedOut
        | DeviceError::ReadOnly
        | DeviceError::Unsupported
        | DeviceError::CacheLost => false,
    };
    match presence {
        Some(folder) if is_reported_by_both && is_unplugged(folder) => DeviceError::Detached,
        _ => error,
    }
}

/// Whether the device with this folder in sysfs is gone, or on its way.
fn is_unplugged(folder: &Path) -> bool {
    match fs::read_to_string(folder.join("size")) {
        Ok(sectors) => sectors.trim() == "0",
        Err(_) => !folder.exists(),
    }
}

/// A region in pieces that the kernel accepts.
fn pieces((address, len): (*mut u8, usize)) -> impl Iterator<Item = (*mut u8, usize)> {
    (0..len)
        .step_by(REGION_BYTES_MAX)
        .map(move |start| (address.wrapping_add(start), REGION_BYTES_MAX.min(len - start)))
}

/// The wait for a request's answer. Dropping it cancels a request that may be recalled, and lets any other go on; the
/// memory stays with the request in both cases.
pub(crate) struct Answer {
    reactor: Rc<Reactor>,
    key: RequestKey,
    finished: bool,
}

impl Future for Answer {
    type Output = (Work, i32);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(Work, i32)> {
        let done = {
            let mut table = self.reactor.table.borrow_mut();
            if let State::UnderWay(operation) = &mut table.entry(self.key).state {
                if let Waiter::Future(waker) = &mut operation.waiter {
                    match waker {
                        Some(waker) => waker.clone_from(cx.waker()),
                        None => *waker = Some(cx.waker().clone()),
                    }
                }
                return Poll::Pending;
            }
            table.take(self.key)
        };
        self.finished = true;
        let State::Done(work, last) = done else { panic!("an answer is not polled after it was ready") };
        Poll::Ready((work, last))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        let (state, waker) = {
            let mut table = self.reactor.table.borrow_mut();
            match &mut table.entry(self.key).state {
                State::UnderWay(operation) => {
                    let waker = std::mem::replace(&mut operation.waiter, Waiter::Abandoned);
                    if operation.work.is_recallable() {
                        self.reactor.driver.borrow_mut().cancel(self.key);
                    }
                    (None, Some(waker))
                }
                State::Free | State::Done(..) => (Some(table.take(self.key)), None),
            }
        };
        drop(waker);
        if let Some(State::Done(work, last)) = state {
            self.reactor.discard(work, last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_medium_differs_from_an_unplugged_disk() {
        let failed = DeviceError::Medium { errno: libc::EIO };
        assert_eq!(seen_again(failed, None), failed);
        assert_eq!(seen_again(failed, Some(Path::new("/sys"))), failed);
        assert_eq!(seen_again(failed, Some(Path::new("/sys/dev/block/none"))), DeviceError::Detached);
        assert_eq!(seen_again(DeviceError::ReadOnly, Some(Path::new("/none"))), DeviceError::ReadOnly);
    }

    #[test]
    fn a_device_that_is_being_removed_is_detached_and_not_full() {
        // Scenario: the kernel has taken a disk's size already, and its folder not yet. What a write says then is what a
        // full file system says, which would be handed to the client instead of excluding the disk.
        let folder = tempfile::tempdir().unwrap();
        let seen = |error, sectors: &str| {
            fs::write(folder.path().join("size"), sectors).unwrap();
            seen_again(error, Some(folder.path()))
        };
        for error in [DeviceError::NoSpace, DeviceError::Misaligned, DeviceError::Medium { errno: libc::EIO }]
        {
            assert_eq!(seen(error, "0\n"), DeviceError::Detached);
            assert_eq!(seen(error, "2048\n"), error);
            assert_eq!(seen_again(error, None), error);
        }
    }

    #[test]
    fn regions_are_cut_where_the_kernel_demands_it() {
        let start = std::ptr::without_provenance_mut::<u8>(4096);
        let cut: Vec<_> =
            pieces((start, REGION_BYTES_MAX + 4096)).map(|(at, len)| (at.addr(), len)).collect();
        assert_eq!(cut, vec![(4096, REGION_BYTES_MAX), (4096 + REGION_BYTES_MAX, 4096)]);
    }
}
