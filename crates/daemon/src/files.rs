//! The daemon's own files: locks, the host's identity, and writing so that a crash leaves the old or the new content.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use dolmen_checksum::crc64;
use dolmen_units::HostId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::{ClockId, clock_gettime};

use crate::error::DaemonError;

/// Who this host is, in the state folder.
const HOST_FILE: &str = "host-id";
/// Which start of the system this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const MACHINE_ID: &str = "/etc/machine-id";
/// The pause between two looks at a lock whose holder is gone, or not known.
const LOOK_AGAIN_NS: i64 = 20_000_000;
/// The longest of the daemon's own files that is read.
pub(crate) const FILE_BYTES_MAX: u64 = 4 << 20;

/// How long daemons that come before this one may take to end, all of them together.
#[derive(Debug)]
pub(crate) struct Deadline {
    at: Timespec,
    is_reported: Cell<bool>,
}

impl Deadline {
    /// From now on.
    pub(crate) fn after(timeout: Duration) -> Self {
        let limit = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        Self { at: clock_gettime(ClockId::Monotonic) + limit, is_reported: Cell::new(false) }
    }

    /// Waits until a process has ended, or one that is not known may have; whether the lock is to be tried again.
    fn wait_for_end_of(&self, path: &Path, pid: Option<i32>) -> bool {
        let left = self.at - clock_gettime(ClockId::Monotonic);
        if left.tv_sec < 0 {
            return false;
        }
        if !self.is_reported.replace(true) {
            tracing::info!(path = %path.display(), pid, seconds = left.tv_sec + 1, "another daemon holds a lock; waiting for its end");
        }
        let process = pid.and_then(Pid::from_raw).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let pause = Timespec { tv_sec: 0, tv_nsec: LOOK_AGAIN_NS };
        match process {
            // Readable once it has ended. Its locks may last a moment longer, as commands of it do that are under way.
            Some(process) => {
                let mut ended = [PollFd::new(&process, PollFlags::IN)];
                let was_running = poll(&mut ended, Some(&left)).is_ok_and(|count| count == 0);
                if !was_running {
                    let _ = poll(&mut [], Some(&pause));
                }
            }
            // It is gone already, or another one has not written its name yet.
            None => drop(poll(&mut [], Some(&pause))),
        }
        true
    }
}

/// A lock that is held as long as this lives, or the process does.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock. Whoever has it may be on its way out: it gets until `deadline` to end, and then it is said who has it.
    pub(crate) fn take(path: &Path, deadline: &Deadline) -> Result<Self, DaemonError> {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(path)
            .map_err(DaemonError::file("opening the lock", path))?;
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut text = String::new();
            let _ = file.rewind().and_then(|()| file.read_to_string(&mut text));
            let pid = text.trim().parse().ok();
            if !deadline.wait_for_end_of(path, pid) {
                return Err(DaemonError::Locked { path: path.to_path_buf(), pid });
            }
        }
        let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(DaemonError::file("writing the lock", path))?;
        Ok(Self { _file: file })
    }
}

/// Makes a folder that only its owner may enter.
pub(crate) fn make_folder(path: &Path) -> Result<(), DaemonError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(DaemonError::file("making the folder", path))
}

/// Writes a file so that after a crash it has its old or its new content, and has the new one once this returns.
pub(crate) fn write_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    let fresh = folder.join(name);
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&fresh)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    File::open(folder)?.sync_all()
}

/// Removes a file durably; one that is not there is as good. The folder is synced in either case: an earlier removal may have
/// failed at its sync, and a power cut would bring the file back.
pub(crate) fn remove_durably(path: &Path) -> io::Result<()> {
    let not_there = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match fs::remove_file(path) {
        Err(error) if !not_there(&error) => return Err(error),
        Ok(()) | Err(_) => {}
    }
    match File::open(path.parent().unwrap_or(Path::new("/"))) {
        Ok(folder) => folder.sync_all(),
        // Without a folder there is no file.
        Err(error) if not_there(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Reads a file, if there is one.
pub(crate) fn read_if_any(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(Some(text))
}

/// Which start of the system this is; `None` where it does not say.
pub(crate) fn boot_id() -> Option<String> {
    fs::read_to_string(BOOT_ID).ok().map(|id| id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Who this host is: as on record, else derived from the system's own identity, so that a lost record does not make the
/// host a stranger to its pools, else drawn. Recorded before it is used.
pub(crate) fn host_id(state: &Path) -> Result<HostId, DaemonError> {
    let path = state.join(HOST_FILE);
    let text = read_if_any(&path).map_err(DaemonError::file("reading", &path))?;
    if let Some(text) = text {
        let parsed = text.trim().parse().ok().filter(|host: &HostId| !host.is_none());
        return parsed
            .ok_or_else(|| DaemonError::HostId { path, found: text.trim().chars().take(80).collect() });
    }
    let host = match fs::read_to_string(MACHINE_ID) {
        Ok(machine) if machine.trim().len() >= 32 => derived_id(machine.trim()),
        _ => drawn_id().map_err(DaemonError::file("reading", Path::new("/dev/urandom")))?,
    };
    write_durably(&path, format!("{host}\n").as_bytes()).map_err(DaemonError::file("writing", &path))?;
    Ok(host)
}

/// The machine's identity must not stand on disks that travel: it is mixed, forwards and backwards.
fn derived_id(machine: &str) -> HostId {
    let forwards: Vec<u8> = b"dolmen host ".iter().copied().chain(machine.bytes()).collect();
    let backwards: Vec<u8> = forwards.iter().rev().copied().collect();
    let mut id = [0; 16];
    let halves = [crc64(&forwards), crc64(&backwards)].map(u64::to_be_bytes);
    id.iter_mut().zip(halves.iter().flatten()).for_each(|(to, from)| *to = *from);
    HostId(id)
}

fn drawn_id() -> io::Result<HostId> {
    let mut id = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut id)?;
    Ok(HostId(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_keeps_its_identity_and_a_damaged_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let first = host_id(folder.path()).unwrap();
        assert!(!first.is_none());
        assert_eq!(host_id(folder.path()).unwrap(), first);
        fs::write(folder.path().join(HOST_FILE), "tank\n").unwrap();
        assert!(matches!(host_id(folder.path()), Err(DaemonError::HostId { .. })));
    }

    #[test]
    fn a_lock_keeps_the_second_out_and_names_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let at_once = Deadline::after(Duration::ZERO);
        let first = Lock::take(&path, &at_once).unwrap();
        let Err(DaemonError::Locked { pid, .. }) = Lock::take(&path, &at_once) else { panic!("taken twice") };
        assert_eq!(pid, Some(std::process::id().cast_signed()));
        drop(first);
        Lock::take(&path, &at_once).unwrap();
    }

    #[test]
    fn a_file_is_replaced_whole_without_leftovers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write_durably(&path, b"one").unwrap();
        write_durably(&path, b"two").unwrap();
        assert_eq!(read_if_any(&path).unwrap().as_deref(), Some("two"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        remove_durably(&path).unwrap();
        remove_durably(&path).unwrap();
        remove_durably(&folder.path().join("none").join("file")).unwrap();
        assert_eq!(read_if_any(&path).unwrap(), None);
    }
}
