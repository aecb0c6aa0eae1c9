//! The driver for systems that forbid io_uring: disks are served by a bounded set of threads, sockets by the runtime's
//! own thread with `poll`.
//!
//! A thread that hangs in a dead disk stays there, and the request's memory with it; the others go on, because no disk
//! may occupy more than a few.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::driver::{
    Driver, DriverCounters, Memory, Registration, Request, RequestKey, Sync, Target, Wait, negated,
};
use crate::park::Parker;

/// Threads for disks, at most: enough to keep a shelf of disks busy, few enough to be started without a thought.
const THREADS_MAX: usize = 64;
/// Threads that serve one disk at the same time, at most, so that disks that hang leave some for the others.
const DISK_THREADS_MAX: usize = 8;

const _: () = assert!(THREADS_MAX >= 4 * DISK_THREADS_MAX, "three hanging disks do not stop the fourth");

/// `BLKDISCARD` of `linux/fs.h`.
const BLKDISCARD: libc::c_ulong = 0x1277;

/// A request on its way to a thread.
struct Task {
    key: RequestKey,
    request: Request,
}

// SAFETY: the pointers in a request stay valid until its answer is reported (`Driver::push`), and between those two
// events nobody but the thread that carries the request out reads or writes what they point to.
unsafe impl Send for Task {}

#[derive(Default)]
struct Work {
    tasks: VecDeque<Task>,
    /// Threads by the file that they serve now.
    busy: BTreeMap<RawFd, usize>,
    idle: usize,
    closed: bool,
}

/// What the threads and the runtime share.
struct Shared {
    work: Mutex<Work>,
    notify: Condvar,
    answers: Mutex<Vec<(RequestKey, i32)>>,
    parker: Arc<Parker>,
    threads: AtomicUsize,
}

pub(crate) struct Threads {
    shared: Arc<Shared>,
    /// Requests on sockets that wait for readiness.
    sockets: Vec<(RequestKey, Request)>,
    /// Answers that were known at once.
    early: Vec<(RequestKey, i32)>,
    polled: Vec<libc::pollfd>,
    counters: DriverCounters,
}

impl Threads {
    pub(crate) fn new(parker: Arc<Parker>) -> Self {
        let shared = Arc::new(Shared {
            work: Mutex::default(),
            notify: Condvar::new(),
            answers: Mutex::default(),
            parker,
            threads: AtomicUsize::new(0),
        });
        let counters = DriverCounters::default();
        Self { shared, sockets: Vec::new(), early: Vec::new(), polled: Vec::new(), counters }
    }

    fn hand_over(&mut self, task: Task) {
        let mut work = self.shared.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.tasks.push_back(task);
        let short = work.idle < work.tasks.len();
        drop(work);
        if short && self.shared.threads.load(Ordering::Relaxed) < THREADS_MAX {
            self.start_thread();
        }
        self.shared.notify.notify_one();
    }

    fn start_thread(&mut self) {
        let shared = Arc::clone(&self.shared);
        let number = self.shared.threads.fetch_add(1, Ordering::Relaxed);
        let started =
            std::thread::Builder::new().name(format!("dolmen-io-{number}")).spawn(move || serve(&shared));
        let Err(error) = started else { return };
        if self.shared.threads.fetch_sub(1, Ordering::Relaxed) > 1 {
            tracing::warn!(%error, "no further thread for disk requests; those that run go on");
            return;
        }
        let mut work = self.shared.work.lock().unwrap_or_else(PoisonError::into_inner);
        tracing::error!(%error, "no thread at all for disk requests; they fail");
        self.early.extend(work.tasks.drain(..).map(|task| (task.key, negated(&error))));
    }

    /// Rests until a socket or the eventfd has something, then serves the sockets that are ready.
    fn poll(&mut self, wait: Wait) {
        if wait == Wait::Never && self.sockets.is_empty() {
            return;
        }
        self.polled.clear();
        let event = self.shared.parker.event().as_raw_fd();
        self.polled.push(libc::pollfd { fd: event, events: libc::POLLIN, revents: 0 });
        for (_, request) in &self.sockets {
            let (fd, events) = interest(request);
            self.polled.push(libc::pollfd { fd, events, revents: 0 });
        }
        self.counters.enters += 1;
        let count = self.polled.len() as libc::nfds_t;
        // SAFETY: the pointer and the count describe one vector, which nobody else touches.
        let ready = unsafe { libc::poll(self.polled.as_mut_ptr(), count, milliseconds(wait)) };
        if ready <= 0 {
            return;
        }
        if self.polled.first().is_some_and(|event| event.revents != 0) {
            self.shared.parker.drain();
        }
        self.serve_ready();
    }

    fn serve_ready(&mut self) {
        let Self { sockets, early, polled, .. } = self;
        // The eventfd stands first, then the sockets in their order.
        let mut states = polled.iter().skip(1);
        sockets.retain(|(key, request)| {
            if states.next().is_none_or(|state| state.revents == 0) {
                return true;
            }
            let answer = perform(request);
            if answer == -libc::EAGAIN {
                return true;
            }
            early.push((*key, answer));
            false
        });
    }
}

impl Driver for Threads {
    fn name(&self) -> &'static str {
        "threads"
    }

    fn push(&mut self, key: RequestKey, request: Request) {
        self.counters.submissions += 1;
        match request {
            Request::Accept { .. } | Request::Receive { .. } | Request::Send { .. } => {
                match perform(&request) {
                    answer if answer == -libc::EAGAIN => self.sockets.push((key, request)),
                    answer => self.early.push((key, answer)),
                }
            }
            Request::Read { .. }
            | Request::Write { .. }
            | Request::Flush { .. }
            | Request::Allocate { .. }
            | Request::Discard { .. } => self.hand_over(Task { key, request }),
        }
    }

    fn cancel(&mut self, key: RequestKey) {
        let before = self.sockets.len();
        self.sockets.retain(|(waiting, _)| *waiting != key);
        if self.sockets.len() < before {
            self.early.push((key, -libc::ECANCELED));
        }
    }

    fn poll_once(&mut self, wait: Wait, answers: &mut Vec<(RequestKey, i32)>) {
        let before = answers.len();
        let arrived = !self.shared.answers.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        let wait = if arrived || !self.early.is_empty() { Wait::Never } else { wait };
        self.poll(wait);
        answers.append(&mut self.early);
        answers.append(&mut self.shared.answers.lock().unwrap_or_else(PoisonError::into_inner));
        self.counters.completions += (answers.len() - before) as u64;
    }

    fn adopt(&mut self, file: BorrowedFd<'_>) -> Option<u32> {
        // Sockets must not block the runtime's thread. For disks and files the flag means nothing.
        if let Ok(flags) = rustix::fs::fcntl_getfl(file) {
            let _ = rustix::fs::fcntl_setfl(file, flags | rustix::fs::OFlags::NONBLOCK);
        }
        None
    }

    fn forget(&mut self, _slot: u32) {}

    fn register(&mut self, _regions: &[(*mut u8, usize)]) -> Registration {
        Registration::NotNeeded
    }

    fn counters(&self) -> DriverCounters {
        self.counters
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.work.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.shared.notify.notify_all();
    }
}

impl Work {
    /// The first task whose disk has a thread to spare.
    fn take(&mut self) -> Option<Task> {
        let Self { tasks, busy, .. } = self;
        let has_room =
            |task: &Task| busy.get(&descriptor(&task.request)).is_none_or(|count| *count < DISK_THREADS_MAX);
        let task = tasks.iter().position(has_room).and_then(|index| tasks.remove(index))?;
        *busy.entry(descriptor(&task.request)).or_default() += 1;
        Some(task)
    }

    fn done(&mut self, file: RawFd) {
        let count = self.busy.entry(file).or_insert(1);
        *count -= 1;
        if *count == 0 {
            self.busy.remove(&file);
        }
    }
}

/// A thread's life: requests, one after the other.
fn serve(shared: &Shared) {
    while let Some(task) = next_task(shared) {
        let answer = perform(&task.request);
        // Before the answer: after it the descriptor may be closed, and stand for another file.
        shared.work.lock().unwrap_or_else(PoisonError::into_inner).done(descriptor(&task.request));
        shared.answers.lock().unwrap_or_else(PoisonError::into_inner).push((task.key, answer));
        shared.parker.unpark();
    }
}

fn next_task(shared: &Shared) -> Option<Task> {
    let mut work = shared.work.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(task) = work.take() {
            return Some(task);
        }
        if work.closed {
            return None;
        }
        work.idle += 1;
        work = shared.notify.wait(work).unwrap_or_else(PoisonError::into_inner);
        work.idle -= 1;
    }
}

fn descriptor(request: &Request) -> RawFd {
    interest(request).0
}

/// The file of a request, and what a socket must be ready for.
fn interest(request: &Request) -> (RawFd, i16) {
    match request {
        Request::Send { file, .. } => (file.fd, libc::POLLOUT),
        Request::Read { file, .. }
        | Request::Write { file, .. }
        | Request::Flush { file }
        | Request::Allocate { file, .. }
        | Request::Discard { file, .. }
        | Request::Accept { file }
        | Request::Receive { file, .. } => (file.fd, libc::POLLIN),
    }
}

fn milliseconds(wait: Wait) -> i32 {
    match wait {
        Wait::Never => 0,
        Wait::Forever => -1,
        // Rounded up: to wake early would spin until the moment has come.
        Wait::AtMost(limit) => {
            i32::try_from(limit.saturating_add(Duration::from_micros(999)).as_millis()).unwrap_or(i32::MAX)
        }
    }
}

/// Carries a request out by the plain system call.
fn perform(request: &Request) -> i32 {
    match *request {
        Request::Read { file, at, memory } => read(file, at, memory),
        Request::Write { file, at, memory, sync } => write(file, at, memory, sync),
        // SAFETY: no memory is passed; the descriptor is open until the answer.
        Request::Flush { file } => answer(unsafe { libc::fdatasync(file.fd) } as isize),
        Request::Allocate { file, how, at, length } => {
            let (Ok(at), Ok(length)) = (i64::try_from(at), i64::try_from(length)) else {
                return -libc::EFBIG;
            };
            // SAFETY: no memory is passed; the descriptor is open until the answer.
            let result = unsafe { libc::fallocate64(file.fd, how.mode(), at, length) };
            answer(result as isize)
        }
        Request::Discard { file, at, length } => {
            let range = [at, length];
            // SAFETY: BLKDISCARD reads two 64-bit numbers, which live on this stack for the call.
            let result = unsafe { libc::ioctl(file.fd, BLKDISCARD, range.as_ptr()) };
            answer(result as isize)
        }
        Request::Accept { file } => {
            // SAFETY: null says that the peer's address is not wanted, so no memory is passed.
            let socket = unsafe {
                libc::accept4(file.fd, std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC)
            };
            answer(socket as isize)
        }
        Request::Receive { file, memory } => {
            // SAFETY: the memory is the request's until its answer (`Driver::push`).
            let result = unsafe {
                libc::recv(file.fd, memory.address.cast(), memory.len as usize, libc::MSG_DONTWAIT)
            };
            answer(result)
        }
        Request::Send { file, message } => {
            // SAFETY: the header and all it points to are the request's until its answer (`Driver::push`).
            let result = unsafe { libc::sendmsg(file.fd, message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
            answer(result)
        }
    }
}

fn read(file: Target, at: u64, memory: Memory) -> i32 {
    let Ok(at) = i64::try_from(at) else { return -libc::EFBIG };
    // SAFETY: the memory is the request's until its answer (`Driver::push`), and nobody else touches it meanwhile.
    answer(unsafe { libc::pread64(file.fd, memory.address.cast(), memory.len as usize, at) })
}

fn write(file: Target, at: u64, memory: Memory, sync: Sync) -> i32 {
    let Ok(at) = i64::try_from(at) else { return -libc::EFBIG };
    let vector = libc::iovec { iov_base: memory.address.cast(), iov_len: memory.len as usize };
    let flags = match sync {
        Sync::No => 0,
        Sync::Data => libc::RWF_DSYNC,
    };
    // SAFETY: the memory is the request's until its answer (`Driver::push`); the one vector lives on this stack.
    answer(unsafe { libc::pwritev2(file.fd, &raw const vector, 1, at, flags) })
}

fn answer(result: isize) -> i32 {
    if result < 0 { negated(&io::Error::last_os_error()) } else { i32::try_from(result).unwrap_or(i32::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    #[test]
    fn a_disk_that_hangs_leaves_threads_for_the_others() {
        // Scenario: more requests than there are threads for one disk, to a disk that does not answer, then one to
        // another. The table of work gives the latter to the next free thread.
        let task = |key, fd| Task {
            key: RequestKey(key),
            request: Request::Flush { file: Target { fd, slot: None } },
        };
        let mut work = Work::default();
        work.tasks.extend((0..100).map(|key| task(key, 3)));
        work.tasks.push_back(task(100, 4));
        let taken: Vec<_> = std::iter::from_fn(|| work.take()).map(|task| task.key.0).collect();
        assert_eq!(taken, vec![0, 1, 2, 3, 4, 5, 6, 7, 100]);
        work.done(3);
        assert_eq!(work.take().map(|task| task.key.0), Some(8));
    }

    #[test]
    fn a_wait_ends_when_a_thread_has_answered() {
        let parker = Parker::new().unwrap();
        let mut driver = Threads::new(Arc::clone(&parker));
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        let target = Target { fd: file.as_raw_fd(), slot: None };
        let mut answers = Vec::new();
        driver.push(RequestKey(7), Request::Flush { file: target });
        while answers.is_empty() {
            parker.park();
            driver.poll_once(Wait::Forever, &mut answers);
        }
        assert_eq!(answers, vec![(RequestKey(7), 0)]);
    }
}
