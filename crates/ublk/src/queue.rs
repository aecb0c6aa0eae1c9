//! The queue: the one thread that speaks with a device's channel.
//!
//! Every tag is always in one of three hands: the kernel's (its command waits for a request), the host's (a [`Ticket`]
//! lives), or on the board, with its result. Only this thread gives commands to the kernel, which insists on it.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use dolmen_attach::{Access, Board, Fault, SpaceKey, Wait, enter};
use dolmen_block_io::Durability;
use io_uring::{IoUring, opcode, squeue, types};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::CapabilitySet;
use zerocopy::IntoBytes;

use crate::DEPTH;
use crate::request::{Host, IO_BYTES_MAX, Operation, Request};
use crate::wire::{IO_IS_THERE, IoCommand, IoDescriptor, channel, operation};

/// Entries of the ring: a command for each tag, and the poll on the board.
const RING_ENTRIES: u32 = 256;
const _: () = assert!(RING_ENTRIES as usize > DEPTH as usize, "every tag's command fits");
/// Words of the board: a bit for each tag.
const WORDS: usize = DEPTH as usize / 64;
const _: () = assert!(WORDS * 64 == DEPTH as usize, "each tag has a place on the board");
/// User data of the poll on the board; tags are below.
const WAKE: u64 = u64::MAX;
/// The unit of the kernel's addresses and lengths.
const SECTOR_BYTES: u64 = 512;

/// Where a queue stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    Serving = 0,
    /// What is not answered is left for the next daemon.
    LetGo = 1,
}

/// What a queue was asked since it began.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct QueueCounters {
    /// Requests that the kernel gave.
    pub requests: u64,
    /// Answers given.
    pub answers: u64,
}

/// Whether the kernel may look for partitions when it starts the device.
///
/// It does so in `START_DEV`, with the device locked, and waits for its reads uninterruptibly. A daemon that is killed
/// meanwhile would never be gone, and its device never be taken over. It leaves that out for servers without the right
/// to administer the system; newer kernels look on a thread of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Partitions {
    /// It may.
    Shown,
    /// It must not: the queue's thread drops that right.
    Hidden,
}

/// What a queue serves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Served {
    pub(crate) space: SpaceKey,
    pub(crate) access: Access,
    pub(crate) sector_bytes: u32,
    pub(crate) size_bytes: u64,
    pub(crate) partitions: Partitions,
}

/// What the thread and the requests on their way share.
pub(crate) struct Shared {
    served: Served,
    size_bytes: AtomicU64,
    channel: OwnedFd,
    host: Arc<dyn Host>,
    board: Board<WORDS>,
    phase: AtomicU8,
    /// Tags in the host's hands.
    outstanding: AtomicU32,
    requests: AtomicU64,
    answers: AtomicU64,
}

impl Shared {
    fn is_let_go(&self) -> bool {
        self.phase.load(Ordering::SeqCst) == Phase::LetGo as u8
    }

    fn has_outstanding(&self) -> bool {
        self.outstanding.load(Ordering::SeqCst) > 0
    }
}

/// The right and the duty to answer one request.
#[must_use]
pub(crate) struct Ticket {
    shared: Arc<Shared>,
    tag: u16,
    answered: bool,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket(tag {} of {})", self.tag, self.shared.served.space)
    }
}

impl Ticket {
    pub(crate) fn space(&self) -> SpaceKey {
        self.shared.served.space
    }

    pub(crate) fn tag(&self) -> u16 {
        self.tag
    }

    pub(crate) fn channel(&self) -> BorrowedFd<'_> {
        self.shared.channel.as_fd()
    }

    /// Answers, with bytes or the negative of an error number.
    pub(crate) fn finish(mut self, result: i32) {
        self.post(result);
    }

    fn post(&mut self, result: i32) {
        self.answered = true;
        self.shared.answers.fetch_add(1, Ordering::Relaxed);
        self.shared.board.post(self.tag, result);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.answered && !self.shared.is_let_go() {
            tracing::error!(?self, "a request was dropped without an answer; it fails");
            self.post(-Fault::Io.errno());
        }
        // Behind the result: a queue that sees that nothing is outstanding has all results.
        self.shared.outstanding.fetch_sub(1, Ordering::SeqCst);
        if self.shared.is_let_go() {
            self.shared.board.wake();
        }
    }
}

/// The descriptors of requests, in memory that the kernel writes.
struct Descriptors {
    first: NonNull<IoDescriptor>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, and is valid on any thread.
unsafe impl Send for Descriptors {}

impl Descriptors {
    fn map(channel: &OwnedFd) -> io::Result<Self> {
        // The kernel counts in pages, whatever their size.
        let len = usize::from(DEPTH) * size_of::<IoDescriptor>();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::POPULATE,
                channel,
                0,
            )
        }?;
        let first = NonNull::new(address.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
        Ok(Self { first, len })
    }

    /// The descriptor of a tag whose command has just completed.
    fn get(&self, tag: u16) -> IoDescriptor {
        assert!(tag < DEPTH, "tag {tag} is none of ours");
        // SAFETY: the mapping has room for all tags. The kernel writes this one before it completes the tag's command,
        // and not again before it is given the next.
        unsafe { self.first.add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, and nothing refers into it any more.
        let _ = unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), self.len) };
    }
}

/// A queue at work.
pub(crate) struct Queue {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

impl Queue {
    /// A queue all of whose tags wait for requests.
    pub(crate) fn start(channel: OwnedFd, served: Served, host: Arc<dyn Host>) -> io::Result<Self> {
        let descriptors = Descriptors::map(&channel)?;
        let shared = Arc::new(Shared {
            served,
            size_bytes: AtomicU64::new(served.size_bytes),
            channel,
            host,
            board: Board::new()?,
            phase: AtomicU8::new(Phase::Serving as u8),
            outstanding: AtomicU32::new(0),
            requests: AtomicU64::new(0),
            answers: AtomicU64::new(0),
        });
        let (begun, begins) = sync_channel(1);
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("ublk".to_owned()).spawn(move || {
            let _guard = AbortOnPanic;
            // Allocations of the kernel on this thread's behalf must not wait for our own device. Without the privilege
            // the daemon has warned already, for its engine's thread needs the same.
            let _ = rustix::process::configure_io_flusher_behavior(true);
            serve(&of_thread, &descriptors, &begun);
        })?;
        let queue = Self { shared, thread: Some(thread) };
        match begins.recv() {
            Ok(Ok(())) => Ok(queue),
            Ok(Err(error)) => {
                queue.join();
                Err(error)
            }
            Err(_) => Err(io::Error::from_raw_os_error(libc::ECANCELED)),
        }
    }

    pub(crate) fn counters(&self) -> QueueCounters {
        QueueCounters {
            requests: self.shared.requests.load(Ordering::Relaxed),
            answers: self.shared.answers.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set_size(&self, size_bytes: u64) {
        self.shared.size_bytes.store(size_bytes, Ordering::SeqCst);
    }

    /// From now on nothing is given to the host; the thread ends when the host has answered or dropped what it has.
    pub(crate) fn let_go(&self) {
        self.shared.phase.store(Phase::LetGo as u8, Ordering::SeqCst);
        self.shared.board.wake();
    }

    /// Waits until the thread has ended, which it does when the device was stopped, or let go and all is answered; and
    /// closes the channel.
    pub(crate) fn join(mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic has aborted the process.
            let _ = thread.join();
        }
    }
}

/// Ends the process when the queue's thread panics: requests would wait for ever, while a new daemon takes them up.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a thread that serves an attached space panicked; the daemon ends");
            std::process::abort();
        }
    }
}

fn serve(shared: &Arc<Shared>, descriptors: &Descriptors, begun: &SyncSender<io::Result<()>>) {
    let ring = IoUring::builder().setup_single_issuer().setup_coop_taskrun().build(RING_ENTRIES);
    let mut talk = match ring {
        Ok(ring) => Talk { shared, descriptors, ring, dead_tags: 0, armed: false },
        Err(error) => {
            let _ = begun.send(Err(error));
            return;
        }
    };
    let fetched = match shared.served.partitions {
        Partitions::Shown => Ok(()),
        Partitions::Hidden => abandon_administration(),
    };
    let fetched = fetched.and_then(|()| talk.fetch_all());
    let works = fetched.is_ok();
    let _ = begun.send(fetched);
    if works {
        talk.go_on();
    }
}

/// Takes the right to administer the system from this thread, which is what the kernel looks at.
fn abandon_administration() -> io::Result<()> {
    let mut rights = rustix::thread::capabilities(None)?;
    rights.effective.remove(CapabilitySet::SYS_ADMIN);
    Ok(rustix::thread::set_capabilities(None, rights)?)
}

/// The thread's side of the conversation.
struct Talk<'a> {
    shared: &'a Arc<Shared>,
    descriptors: &'a Descriptors,
    ring: IoUring,
    /// Tags whose command the kernel has given back for good.
    dead_tags: u16,
    /// Whether a poll on the board is under way.
    armed: bool,
}

impl Talk<'_> {
    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: commands to the channel point to no memory of ours, and its file, like that of the board, lives as
        // long as the shared part, which survives the ring.
        let pushed = unsafe { self.ring.submission().push(entry) };
        assert!(pushed.is_ok(), "the ring has room for a command of each tag");
    }

    fn command(&mut self, number: u32, tag: u16, result: i32) {
        let command = IoCommand { queue: 0, tag, result, address: 0 };
        let mut bytes = [0; size_of::<IoCommand>()];
        bytes.iter_mut().zip(command.as_bytes()).for_each(|(to, from)| *to = *from);
        let file = types::Fd(self.shared.channel.as_raw_fd());
        let entry = opcode::UringCmd16::new(file, number).cmd(bytes).build().user_data(u64::from(tag));
        self.push(&entry);
    }

    /// Gives the kernel a command for each tag. One that it refuses comes back at once; and so may one with a request: newer
    /// kernels do not wait with those of a device that is taken up until that is declared to be over.
    fn fetch_all(&mut self) -> io::Result<()> {
        for tag in 0..DEPTH {
            self.command(channel::FETCH, tag, 0);
        }
        enter(&self.ring, Wait::No)?;
        let mut refused = Ok(());
        for _ in 0..DEPTH {
            let Some(done) = self.ring.completion().next() else { break };
            match u16::try_from(done.user_data()) {
                Ok(tag) if done.result() == IO_IS_THERE => self.dispatch(tag),
                _ => refused = Err(io::Error::from_raw_os_error(-done.result())),
            }
        }
        refused
    }

    fn go_on(&mut self) {
        loop {
            self.commit();
            self.reap();
            if self.is_over() {
                break;
            }
            if !self.armed {
                let file = types::Fd(self.shared.board.event().as_raw_fd());
                let events = u32::from(libc::POLLIN.unsigned_abs());
                self.push(&opcode::PollAdd::new(file, events).build().user_data(WAKE));
                self.armed = true;
            }
            let shared = self.shared;
            let sleeps = shared.board.lie_down(|| shared.is_let_go() && !shared.has_outstanding());
            let entered = enter(&self.ring, if sleeps { Wait::ForOne } else { Wait::No });
            shared.board.get_up();
            if let Err(error) = entered {
                tracing::error!(space = %shared.served.space, %error, "the ring of an attached space failed; its I/O stands still until the daemon is restarted");
                return;
            }
        }
        // What was committed last is with the kernel before the ring is closed.
        if let Err(error) = enter(&self.ring, Wait::No) {
            tracing::debug!(%error, "the last answers were not handed over; the next daemon is asked again");
        }
    }

    /// Hands results to the kernel, with the command for the tag's next request.
    fn commit(&mut self) {
        let shared = self.shared;
        shared.board.take(|tag, result| self.command(channel::COMMIT_AND_FETCH, tag, result));
    }

    fn reap(&mut self) {
        // As many as there are places: what comes meanwhile is for the next round.
        for _ in 0..=RING_ENTRIES {
            let Some(done) = self.ring.completion().next() else { break };
            match u16::try_from(done.user_data()) {
                Ok(tag) if done.result() == IO_IS_THERE => self.dispatch(tag),
                Ok(tag) => {
                    // `ENODEV` is how the kernel says that the device is stopped.
                    if done.result() != -libc::ENODEV {
                        let error = io::Error::from_raw_os_error(-done.result());
                        tracing::error!(space = %self.shared.served.space, tag, %error, "the kernel refused a command of an attached space");
                    }
                    self.dead_tags += 1;
                }
                Err(_) => {
                    self.armed = false;
                    self.shared.board.drain();
                }
            }
        }
    }

    fn is_over(&self) -> bool {
        let shared = self.shared;
        let ends = shared.is_let_go() || self.dead_tags == DEPTH;
        // In this order: when nothing is outstanding, every result is on the board or was committed.
        ends && !shared.has_outstanding() && shared.board.is_empty()
    }

    /// Gives a request to the host, or answers it here if it makes no sense.
    fn dispatch(&mut self, tag: u16) {
        // What comes after the device was let go stays with the kernel, which gives it to the next daemon.
        if self.shared.is_let_go() {
            return;
        }
        let descriptor = self.descriptors.get(tag);
        self.shared.requests.fetch_add(1, Ordering::Relaxed);
        self.shared.outstanding.fetch_add(1, Ordering::SeqCst);
        let ticket = Ticket { shared: Arc::clone(self.shared), tag, answered: false };
        match understand(&descriptor, &self.shared.served, self.shared.size_bytes.load(Ordering::SeqCst)) {
            Ok((operation, at, len)) => self.shared.host.take(Request { ticket, operation, at, len }),
            Err(errno) => ticket.finish(-errno),
        }
    }
}

/// What a descriptor asks for: operation, first byte, length. The error number that answers it, if it may not be.
fn understand(
    descriptor: &IoDescriptor,
    served: &Served,
    size_bytes: u64,
) -> Result<(Operation, u64, u64), i32> {
    let flags = descriptor.operation_and_flags;
    let write = if flags & operation::FUA != 0 { Durability::Durable } else { Durability::Cached };
    let wanted = match flags & operation::MASK {
        operation::READ => Operation::Read,
        operation::WRITE => Operation::Write(write),
        operation::FLUSH => return Ok((Operation::Flush, 0, 0)),
        operation::DISCARD => Operation::Discard,
        operation::WRITE_ZEROES => Operation::WriteZeroes,
        _ => return Err(libc::EOPNOTSUPP),
    };
    let len = u64::from(descriptor.sectors) * SECTOR_BYTES;
    let at = descriptor.first_sector.checked_mul(SECTOR_BYTES).ok_or(libc::EINVAL)?;
    let end = at.checked_add(len).ok_or(libc::EINVAL)?;
    let sector = u64::from(served.sector_bytes);
    let carries = matches!(wanted, Operation::Read | Operation::Write(_));
    if len == 0 || !at.is_multiple_of(sector) || !len.is_multiple_of(sector) || end > size_bytes {
        return Err(libc::EINVAL);
    }
    if carries && len > u64::from(IO_BYTES_MAX) {
        return Err(libc::EINVAL);
    }
    if wanted != Operation::Read && served.access == Access::ReadOnly {
        return Err(libc::EROFS);
    }
    Ok((wanted, at, len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dolmen_units::{PoolId, SpaceId};

    const SIZE: u64 = 1 << 20;

    fn served(access: Access) -> Served {
        let space = SpaceKey { pool: PoolId([1; 16]), space: SpaceId(1) };
        Served { space, access, sector_bytes: 4096, size_bytes: SIZE, partitions: Partitions::Hidden }
    }

    fn asked(what: u32, first_sector: u64, sectors: u32) -> IoDescriptor {
        IoDescriptor { operation_and_flags: what, sectors, first_sector, address: 0 }
    }

    #[test]
    fn what_the_kernel_asks_is_understood() {
        let understood = |descriptor| understand(&descriptor, &served(Access::ReadWrite), SIZE);
        assert_eq!(understood(asked(operation::READ | 1 << 11, 8, 16)), Ok((Operation::Read, 4096, 8192)));
        assert_eq!(
            understood(asked(operation::WRITE, 0, 8)),
            Ok((Operation::Write(Durability::Cached), 0, 4096))
        );
        assert_eq!(
            understood(asked(operation::WRITE | operation::FUA, 0, 8)),
            Ok((Operation::Write(Durability::Durable), 0, 4096))
        );
        assert_eq!(understood(asked(operation::FLUSH, 77, 0)), Ok((Operation::Flush, 0, 0)));
        assert_eq!(understood(asked(operation::DISCARD, 0, 2048)), Ok((Operation::Discard, 0, SIZE)));
        assert_eq!(
            understood(asked(operation::WRITE_ZEROES | 1 << 15, 8, 8)),
            Ok((Operation::WriteZeroes, 4096, 4096))
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        // Scenario: nothing, not whole sectors, behind the end, beyond the numbers, too long, a change of what is read
        // only, an operation of zoned disks.
        let understood = |descriptor, access| understand(&descriptor, &served(access), SIZE).map(|_| ());
        let both = [Access::ReadWrite, Access::ReadOnly];
        for access in both {
            for descriptor in [
                asked(operation::READ, 0, 0),
                asked(operation::READ, 1, 8),
                asked(operation::READ, 0, 9),
                asked(operation::READ, 2048, 8),
                asked(operation::READ, 2040, 16),
                asked(operation::READ, u64::MAX - 7, 8),
                asked(operation::READ, u64::MAX / SECTOR_BYTES - 7, 2048),
                asked(operation::READ, 0, IO_BYTES_MAX / 512 + 8),
            ] {
                assert_eq!(understood(descriptor, access), Err(libc::EINVAL), "{descriptor:?}");
            }
            assert_eq!(understood(asked(11, 0, 8), access), Err(libc::EOPNOTSUPP));
        }
        for what in [operation::WRITE, operation::DISCARD, operation::WRITE_ZEROES] {
            assert_eq!(understood(asked(what, 0, 8), Access::ReadOnly), Err(libc::EROFS));
        }
        assert_eq!(understood(asked(operation::READ, 0, 8), Access::ReadOnly), Ok(()));
    }
}
