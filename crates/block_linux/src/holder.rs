//! Who holds the lock of a disk.
//!
//! A lock survives its process for as long as commands of it are under way. Only a process that lives means that somebody
//! else uses the disk; the other case ends by itself, or with the disk. Two things tell them apart:
//!
//! - the kernel's table of locks names the process. It leaves out those of other namespaces of process numbers, so that
//!   of another container nothing is seen, and does not name files on btrfs by numbers that a program could know;
//! - a *mark*: a second lock, on a file opened for it alone, to which no command is ever given. It ends with its process
//!   whatever is under way, and is asked for by whoever can reach the file, wherever its process runs.
//!
//! Where neither is certain that the process has ended, it counts as one that lives: to wait for nothing costs a message,
//! to go on beside a living owner costs the pool.

use std::fmt;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::geometry::{self, Kind};

/// The kernel's table of locks.
const TABLE: &str = "/proc/locks";
/// The byte that is locked as a mark. It lies beyond the content of any disk, where no other program locks anything.
const MARK_AT: libc::off_t = 0x4d41_524b_0000_0000;

/// A process that holds a lock, and is not known to have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// It can be seen from here.
    Process {
        /// Its number.
        pid: u32,
        /// What it calls itself.
        name: String,
    },
    /// It cannot.
    Unseen,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, name } => write!(f, "process {pid} ({name})"),
            Self::Unseen => {
                f.write_str("a process that cannot be seen from here, such as one in another container")
            }
        }
    }
}

/// Who holds the lock on what is at the path; nobody where only commands are left of a process that has ended.
pub(crate) fn holder(path: &Path) -> Option<Holder> {
    match listed(path) {
        Listed::Living(holder) => Some(holder),
        Listed::Ended => None,
        Listed::Not => is_used(path).then_some(Holder::Unseen),
    }
}

/// What the table of locks says of the process that holds a lock.
#[derive(Debug, PartialEq, Eq)]
enum Listed {
    Living(Holder),
    /// It only waits for its parent to look, or for its last commands.
    Ended,
    /// Nothing, or a process that is not there.
    Not,
}

fn listed(path: &Path) -> Listed {
    let Ok(status) = fs::metadata(path) else { return Listed::Not };
    let (major, minor) = (rustix::fs::major(status.dev()), rustix::fs::minor(status.dev()));
    let wanted = format!("{major:02x}:{minor:02x}:{}", status.ino());
    let pid = fs::read_to_string(TABLE).ok().and_then(|table| pid_of(&table, &wanted));
    pid.map_or(Listed::Not, process)
}

/// The process that the table names for a `flock` on a file. Lines look like
/// `1: FLOCK  ADVISORY  WRITE 29623 fe:00:5357574 0 EOF`; those of processes that wait have an arrow behind the number.
fn pid_of(table: &str, wanted: &str) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        if words.next() != Some("FLOCK") {
            return None;
        }
        let mut words = words.skip(2);
        let pid = words.next()?;
        if words.next() == Some(wanted) { pid.parse().ok() } else { None }
    })
}

fn process(pid: u32) -> Listed {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return Listed::Not };
    let Some((head, tail)) = status.rsplit_once(") ") else { return Listed::Not };
    if tail.starts_with(['Z', 'X']) {
        return Listed::Ended;
    }
    let name = head.split_once(" (").map_or_else(String::new, |(_, name)| name.to_owned());
    Listed::Living(Holder::Process { pid, name })
}

/// Marks a file as used by this process, for as long as the answer lives. Whoever calls this holds the lock by `file`.
///
/// `None` where the file system refuses: those on a network take both locks for the same kind, and the one that is held
/// shows in the place of the mark.
///
/// # Errors
/// Where no further file may be open: without its mark the disk would seem to be nobody's to others.
pub(crate) fn mark(file: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    // The very file, opened once more: its path may lead elsewhere by now.
    let fd = match open_to_ask(format!("/proc/self/fd/{}", file.as_raw_fd())) {
        Ok(fd) => fd,
        Err(error @ (Errno::MFILE | Errno::NFILE)) => return Err(error),
        Err(error) => {
            note_unmarked(&error.into());
            return Ok(None);
        }
    };
    // SAFETY: the descriptor is open for the whole call, and the kernel only reads the struct.
    let set = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &mark_of(libc::F_RDLCK)) };
    if set != 0 {
        note_unmarked(&std::io::Error::last_os_error());
    }
    Ok((set == 0).then_some(fd))
}

/// Notes that a lock has no mark beside it.
fn note_unmarked(error: &std::io::Error) {
    match error.raw_os_error() {
        // The lock itself shows in the mark's place.
        Some(libc::EAGAIN | libc::EACCES) => tracing::debug!(%error, "a lock has no mark beside it"),
        _ => tracing::error!(
            %error,
            "a disk could not be marked as used: a daemon in another container may take it for one that nobody uses; start no other on this host"
        ),
    }
}

/// Whether a process that may live uses what is at the path, of which the lock was refused.
fn is_used(path: &Path) -> bool {
    let Ok(fd) = open_to_ask(path) else { return true };
    is_marked(&fd) || !is_locked_here(&fd)
}

fn is_marked(fd: &OwnedFd) -> bool {
    let mut mark = mark_of(libc::F_WRLCK);
    // SAFETY: the descriptor is open for the whole call, and the kernel reads and writes the struct that is lent to it.
    let asked = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_GETLK, &raw mut mark) };
    asked != 0 || libc::c_int::from(mark.l_type) != libc::F_UNLCK
}

/// Whether the lock is held by way of this very file. Of a block device there may be several, one in each container's
/// `/dev`; whoever opened it by another one has left its mark there.
fn is_locked_here(fd: &OwnedFd) -> bool {
    match geometry::status(fd.as_fd()).map(|status| geometry::kind(&status)) {
        Ok(Some(Kind::File)) => true,
        _ => flock(fd, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK),
    }
}

fn open_to_ask(path: impl Arg) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK,
        Mode::empty(),
    )
}

fn mark_of(kind: libc::c_int) -> libc::flock {
    // SAFETY: all of its fields are numbers, and zeros are what the kernel expects of those that are not set here.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::c_short::try_from(kind).unwrap_or_default();
    lock.l_whence = libc::c_short::try_from(libc::SEEK_SET).unwrap_or_default();
    (lock.l_start, lock.l_len) = (MARK_AT, 1);
    lock
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_locks_names_the_process() {
        let table = "1: POSIX  ADVISORY  WRITE 11 fe:00:7 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 fe:00:8 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 fe:00:9 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 14 fe:00:7 0 EOF\n\
                     4: FLOCK";
        assert_eq!(pid_of(table, "fe:00:7"), Some(14));
        assert_eq!(pid_of(table, "fe:00:8"), Some(12));
        assert_eq!(pid_of(table, "fe:00:9"), None, "it waits, and holds nothing");
        assert_eq!(pid_of(table, "fe:00:1"), None);
    }

    #[test]
    fn the_holder_of_a_lock_is_named_while_it_lives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let file = fs::File::create(&path).unwrap();
        assert_eq!(holder(&path), None);
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(
            matches!(holder(&path), Some(Holder::Process { pid, .. }) if pid == std::process::id()),
            "{:?}",
            holder(&path)
        );
        assert_eq!(process(u32::MAX), Listed::Not);
    }

    #[test]
    fn a_mark_is_seen_by_whoever_can_reach_the_file_and_ends_with_its_owner() {
        // Scenario: the table of locks names nobody, as on btrfs and for what runs in another container.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::write(&path, b"disk").unwrap();
        assert!(!is_used(&path));
        let marked = || mark(&fs::File::open(&path).unwrap().into()).unwrap().unwrap();
        let (first, second) = (marked(), marked());
        assert!(is_used(&path));
        // One that is opened and closed beside it, as whoever looks at disks does, takes nothing away.
        drop((fs::File::open(&path).unwrap(), second));
        assert!(is_used(&path));
        drop(first);
        assert!(!is_used(&path));
        assert!(is_used(&folder.path().join("none")), "what cannot be asked may be used");
    }
}
