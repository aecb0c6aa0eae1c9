//! The descriptor holder: a process that does nothing but hold descriptors while the daemon is away.
//!
//! The kernel ends a FUSE connection, and fails every request on it, when its last descriptor is closed. So a second
//! process holds it, together with the memory file of the request slots, and gives both to the next daemon over a Unix
//! socket. It is a program of its own (the daemon's binary with a hidden subcommand) because a forked child of a daemon
//! with threads may do almost nothing safely, and would keep the daemon's whole memory.
//!
//! It survives the daemon: a session of its own, deaf to hang-ups and to SIGINT and SIGTERM (at shutdown the system's
//! manager sends those to all at once, while file systems on attached spaces are still to be unmounted), exempt from the
//! out-of-memory killer. All its memory is locked before it answers its first request, and it allocates none after, so it
//! needs no memory that only the daemon could free. It ends on request, or when the folder has been unmounted.
//! Under systemd the unit must say `KillMode=process`, or stopping the daemon stops the descriptor holder too.
//!
//! The conversation, over `SOCK_SEQPACKET`: one question per connection; one byte asks, one byte answers,
//! descriptors ride along.
//!
//! | question | answer |
//! |---|---|
//! | `P` + FUSE connection + slots | `+`; `-` when it holds some already |
//! | `G` | `+` with both; `-` when it holds none |
//! | `W` | `+`; from now on the end of the connection ends the descriptor holder |
//! | `E` | `+`; it lets go and ends |

use std::ffi::{CStr, OsString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{MapFlags, MlockAllFlags, ProtFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

const PUT: u8 = b'P';
const GET: u8 = b'G';
const WATCH: u8 = b'W';
const END: u8 = b'E';
const YES: u8 = b'+';
const NO: u8 = b'-';

/// How long one side waits for the other: both answer at once or are stuck.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Daemons that wait to be heard, at most.
const BACKLOG: i32 = 4;

/// The program that keeps: called with these arguments it must call [`keep`] and exit with the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescriptorHolderProgram {
    /// The program, usually the daemon's own.
    pub path: PathBuf,
    /// Its arguments, usually the hidden subcommand.
    pub arguments: Vec<OsString>,
}

/// Why a descriptor holder could not be reached or started.
#[derive(Debug, thiserror::Error)]
pub enum DescriptorHolderError {
    /// The socket could not be made.
    #[error("making the descriptor holder's socket {}: {source}", socket.display())]
    Socket {
        /// The path.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The program did not start.
    #[error("starting the descriptor holder {}: {source}; without it attached spaces would fail when the daemon ends", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It did not answer as expected.
    #[error("asking the descriptor holder at {} to {doing}: {source}", socket.display())]
    Conversation {
        /// What it was asked.
        doing: &'static str,
        /// Its socket.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It refused: it holds something where it should hold nothing, or the other way round.
    #[error("asking the descriptor holder at {} to {doing}: it refused", socket.display())]
    Refused {
        /// What it was asked.
        doing: &'static str,
        /// Its socket.
        socket: PathBuf,
    },
}

/// What a descriptor holder holds.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) fuse: OwnedFd,
    pub(crate) slots: OwnedFd,
}

/// The daemon's end. It connects for each question: a connection that it held open would keep the next daemon waiting.
#[derive(Debug)]
pub(crate) struct DescriptorHolder {
    socket: PathBuf,
    /// Present if this daemon started it.
    child: Option<Child>,
}

fn new_socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

fn connect(socket: &Path) -> Result<OwnedFd, Errno> {
    let connection = new_socket()?;
    for direction in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&connection, direction, Some(ANSWER_LIMIT))?;
    }
    rustix::net::connect(&connection, &SocketAddrUnix::new(socket)?)?;
    Ok(connection)
}

impl DescriptorHolder {
    /// Reaches the descriptor holder that listens there; `None` when there is none.
    pub(crate) fn find(socket: &Path) -> Result<Option<Self>, DescriptorHolderError> {
        match connect(socket) {
            Ok(_) => Ok(Some(Self { socket: socket.to_owned(), child: None })),
            Err(Errno::NOENT | Errno::CONNREFUSED) => Ok(None),
            Err(error) => {
                Err(DescriptorHolderError::Socket { socket: socket.to_owned(), source: error.into() })
            }
        }
    }

    /// Starts a descriptor holder that listens there. The socket of a dead one is replaced.
    pub(crate) fn start(
        program: &DescriptorHolderProgram,
        socket: &Path,
    ) -> Result<Self, DescriptorHolderError> {
        let listener = Self::listen(socket).map_err(|error| DescriptorHolderError::Socket {
            socket: socket.to_owned(),
            source: error.into(),
        })?;
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).current_dir("/");
        command.stdin(Stdio::from(listener)).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command
            .spawn()
            .map_err(|source| DescriptorHolderError::Start { program: program.path.clone(), source })?;
        Ok(Self { socket: socket.to_owned(), child: Some(child) })
    }

    fn listen(socket: &Path) -> Result<OwnedFd, Errno> {
        match rustix::fs::unlink(socket) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        let listener = new_socket()?;
        rustix::net::bind(&listener, &SocketAddrUnix::new(socket)?)?;
        rustix::fs::chmod(socket, rustix::fs::Mode::from_raw_mode(0o600))?;
        rustix::net::listen(&listener, BACKLOG)?;
        Ok(listener)
    }

    fn ask(
        &self,
        doing: &'static str,
        question: u8,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Vec<OwnedFd>, DescriptorHolderError> {
        let socket = || self.socket.clone();
        let failed = |error: Errno| DescriptorHolderError::Conversation {
            doing,
            socket: socket(),
            source: error.into(),
        };
        let connection = connect(&self.socket).map_err(failed)?;
        send(&connection, question, fds).map_err(failed)?;
        let (answer, received) = receive(&connection).map_err(failed)?;
        match answer {
            Some(YES) => Ok(received.into_iter().flatten().collect()),
            Some(_) => Err(DescriptorHolderError::Refused { doing, socket: socket() }),
            None => Err(failed(Errno::CONNRESET)),
        }
    }

    /// Gives it what to hold.
    pub(crate) fn put(
        &self,
        fuse: BorrowedFd<'_>,
        slots: BorrowedFd<'_>,
    ) -> Result<(), DescriptorHolderError> {
        self.ask("hold the connection", PUT, &[fuse, slots]).map(|_| ())
    }

    /// Asks for what it holds; it goes on holding it. `None` when it holds nothing, or has just died.
    pub(crate) fn get(&self) -> Result<Option<Kept>, DescriptorHolderError> {
        let doing = "hand out the connection";
        let fds = match self.ask(doing, GET, &[]) {
            Ok(fds) => fds,
            Err(DescriptorHolderError::Refused { .. }) => return Ok(None),
            Err(DescriptorHolderError::Conversation { source, .. }) if is_closed(&source) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Ok([fuse, slots]) = <[OwnedFd; 2]>::try_from(fds) else {
            return Err(DescriptorHolderError::Refused { doing, socket: self.socket.clone() });
        };
        Ok(Some(Kept { fuse, slots }))
    }

    /// Tells it that the connection is alive, so that it ends with it.
    pub(crate) fn watch(&self) -> Result<(), DescriptorHolderError> {
        self.ask("watch the connection", WATCH, &[]).map(|_| ())
    }

    /// Tells it to let go and to end. It may have ended by itself, when the folder was unmounted.
    pub(crate) fn end(mut self) -> Result<(), DescriptorHolderError> {
        match self.ask("end", END, &[]) {
            Ok(_) => {}
            Err(DescriptorHolderError::Conversation { source, .. }) if is_closed(&source) => {}
            Err(error) => return Err(error),
        }
        if let Some(mut child) = self.child.take() {
            // It has promised to end; only its place in the table of processes is left to free.
            let _ = child.wait();
        }
        match rustix::fs::unlink(&self.socket) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => {
                Err(DescriptorHolderError::Socket { socket: self.socket.clone(), source: error.into() })
            }
        }
    }

    /// The descriptor holder's process.
    pub(crate) fn pid(&self) -> Option<i32> {
        match &self.child {
            Some(child) => i32::try_from(child.id()).ok(),
            None => {
                let peer = connect(&self.socket).and_then(socket_peercred).ok()?;
                Some(peer.pid.as_raw_nonzero().get())
            }
        }
    }
}

/// Whether nobody is on the other side any more.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound};
    matches!(error.kind(), BrokenPipe | ConnectionRefused | ConnectionReset | NotFound)
}

fn send(connection: &impl AsFd, byte: u8, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let byte = [byte];
    let parts = [IoSlice::new(&byte)];
    let sent = retry_on_intr(|| rustix::net::sendmsg(connection, &parts, &mut control, SendFlags::NOSIGNAL));
    sent.map(|_| ())
}

/// One message: its byte, if the other side has not closed, and at most two descriptors.
fn receive(connection: &impl AsFd) -> Result<(Option<u8>, [Option<OwnedFd>; 2]), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8; 1];
    // Also what ends for this thread elsewhere in the kernel, such as a ring of io_uring, interrupts it.
    let received = retry_on_intr(|| {
        let parts = &mut [IoSliceMut::new(&mut byte)];
        rustix::net::recvmsg(connection, parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut fds = [None, None];
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(arrived) = message {
            fds.iter_mut().zip(arrived).for_each(|(place, fd)| *place = Some(fd));
        }
    }
    let byte = if received.bytes == 0 { None } else { byte.first().copied() };
    Ok((byte, fds))
}

/// What the descriptor holder's process holds.
#[derive(Default)]
struct Hold {
    fuse: Option<OwnedFd>,
    slots: Option<OwnedFd>,
    watching: bool,
}

/// Name of the process in lists.
const PROCESS_NAME: &CStr = c"dolmen-holder";

/// The descriptor holder's whole life. Standard input is the listening socket. Returns the process's exit code.
#[must_use]
pub fn keep() -> u8 {
    match prepare().and_then(|()| serve()) {
        Ok(()) => 0,
        // There is nobody to tell: the daemon sees that its question is not answered.
        Err(_) => 70,
    }
}

/// Cuts the ties to whoever started it, and locks its memory. Only the lock and the deafness are needed for its work;
/// where one of the others is forbidden it still keeps.
fn prepare() -> Result<(), Errno> {
    // Who ends the daemon by the name of its program means the daemon alone.
    let _ = rustix::thread::set_name(PROCESS_NAME);
    let _ = rustix::process::setsid();
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGPIPE] {
        // SAFETY: ignoring a signal installs no handler and touches no memory.
        let before = unsafe { libc::signal(signal, libc::SIG_IGN) };
        if before == libc::SIG_ERR {
            return Err(Errno::INVAL);
        }
    }
    let _ = rustix::mm::mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE);
    // The socket listens already; this makes the descriptor holder the one that it is known by on the other side.
    rustix::net::listen(rustix::stdio::stdin(), BACKLOG)
}

fn serve() -> Result<(), Errno> {
    let listener = rustix::stdio::stdin();
    let mut hold = Hold::default();
    loop {
        if !wait(listener, &hold)? {
            return Ok(());
        }
        // A daemon that died while it connected is none of our business.
        let Ok(connection) = rustix::net::accept_with(listener, SocketFlags::CLOEXEC) else { continue };
        if talk(&connection, &mut hold) == Some(END) {
            return Ok(());
        }
    }
}

/// Waits for a daemon; false when the connection has ended instead.
fn wait(listener: BorrowedFd<'_>, hold: &Hold) -> Result<bool, Errno> {
    loop {
        let fuse = hold.fuse.as_ref().filter(|_| hold.watching).map_or(listener, AsFd::as_fd);
        let mut fds = [
            PollFd::from_borrowed_fd(listener, PollFlags::IN),
            PollFd::from_borrowed_fd(fuse, PollFlags::empty()),
        ];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let [at_listener, at_fuse] = fds.map(|fd| fd.revents());
        if hold.watching && at_fuse.contains(PollFlags::ERR) {
            return Ok(false);
        }
        if at_listener.contains(PollFlags::IN) {
            return Ok(true);
        }
    }
}

/// Answers the one question of a daemon, which must come at once. Returns the question.
fn talk(connection: &OwnedFd, hold: &mut Hold) -> Option<u8> {
    let trusted = socket_peercred(connection).is_ok_and(|peer| peer.uid == rustix::process::geteuid());
    let limited = set_socket_timeout(connection, Timeout::Recv, Some(ANSWER_LIMIT));
    if !trusted || limited.is_err() {
        return None;
    }
    let Ok((Some(question), fds)) = receive(connection) else { return None };
    // A daemon that does not wait for its answer asks again.
    let _ = answer(connection, question, fds, hold);
    Some(question)
}

fn answer(
    connection: &OwnedFd,
    question: u8,
    fds: [Option<OwnedFd>; 2],
    hold: &mut Hold,
) -> Result<(), Errno> {
    match (question, fds) {
        (PUT, [Some(fuse), Some(slots)]) if hold.fuse.is_none() => {
            make_resident(&slots);
            (hold.fuse, hold.slots) = (Some(fuse), Some(slots));
            send(connection, YES, &[])
        }
        (GET, _) => match (&hold.fuse, &hold.slots) {
            (Some(fuse), Some(slots)) => send(connection, YES, &[fuse.as_fd(), slots.as_fd()]),
            _ => send(connection, NO, &[]),
        },
        (WATCH, _) if hold.fuse.is_some() => {
            hold.watching = true;
            send(connection, YES, &[])
        }
        (END, _) => {
            *hold = Hold::default();
            send(connection, YES, &[])
        }
        _ => send(connection, NO, &[]),
    }
}

/// Maps the slots for as long as the descriptor holder lives, so that they stay in memory while no daemon does: were they swapped
/// out to an attached space, the next daemon could not read them without itself. Where it fails, only that is lost.
fn make_resident(slots: &OwnedFd) {
    let len = rustix::fs::fstat(slots).map_or(0, |status| usize::try_from(status.st_size).unwrap_or(0));
    // SAFETY: a new mapping at an address of the kernel's choice, which nothing here ever accesses.
    let mapped =
        unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, slots, 0) };
    if let Ok(address) = mapped {
        // SAFETY: the range was just mapped.
        let _ = unsafe { rustix::mm::mlock(address, len) };
    }
}
