//! Which process holds the lock of a disk.
//!
//! A lock outlives its process for as long as commands of it are under way. Only a process that lives means that somebody
//! else uses the disk; the other case ends by itself, or with the disk.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The kernel's table of locks.
const TABLE: &str = "/proc/locks";

/// A process that lives and holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The process.
    pub pid: u32,
    /// What it calls itself.
    pub name: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

/// Who holds the lock on what is at the path: a process that lives and can be seen from here. File systems that show
/// programs other device numbers than the kernel's own, such as btrfs, hide it.
pub(crate) fn holder(path: &Path) -> Option<Holder> {
    let status = fs::metadata(path).ok()?;
    let (major, minor) = (rustix::fs::major(status.dev()), rustix::fs::minor(status.dev()));
    let wanted = format!("{major:02x}:{minor:02x}:{}", status.ino());
    living(pid_of(&fs::read_to_string(TABLE).ok()?, &wanted)?)
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

/// The process, unless it has ended and only waits for its parent to look, or for its last commands.
fn living(pid: u32) -> Option<Holder> {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = status.rsplit_once(") ")?;
    if tail.starts_with(['Z', 'X']) {
        return None;
    }
    let name = head.split_once(" (").map_or_else(String::new, |(_, name)| name.to_owned());
    Some(Holder { pid, name })
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
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(holder(&path).unwrap().pid, std::process::id());
        assert!(living(u32::MAX).is_none());
    }
}
