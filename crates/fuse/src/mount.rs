//! Opening `/dev/fuse`, mounting the folder, and looking at what is mounted.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use dolmen_block_linux::SPACES_FILE_SYSTEM;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::nodes::FOLDER_MODE;

/// Why attached spaces cannot be offered on this host.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel has no FUSE, or its module is not loaded.
    #[error(
        "opening /dev/fuse: {source}; load it with `modprobe fuse`, or use the space over NBD with `dolmen serve`"
    )]
    NoFuse {
        /// What the system said.
        source: io::Error,
    },
    /// Only root may mount.
    #[error("mounting the folder of attached spaces at {}: {source}; run the daemon as root, or use the space over NBD with `dolmen serve`", at.display())]
    NotPermitted {
        /// Where.
        at: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else.
    #[error("{doing} the folder of attached spaces at {}: {source}", at.display())]
    Failed {
        /// "making", "mounting" or "unmounting".
        doing: &'static str,
        /// Where.
        at: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else is mounted there.
    #[error("mounting the folder of attached spaces at {}: a file system of type {found} is mounted there; unmount it, or give the daemon another --run folder", at.display())]
    Occupied {
        /// Where.
        at: PathBuf,
        /// Its type.
        found: String,
    },
}

impl MountError {
    /// Whether the connection that was to be mounted has ended.
    pub(crate) fn is_of_ended(&self) -> bool {
        matches!(self, Self::Failed { source, .. } if source.raw_os_error() == Some(libc::ENOTCONN))
    }
}

/// Opens a new connection to the kernel, not mounted yet.
pub(crate) fn open_fuse() -> Result<OwnedFd, MountError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open("/dev/fuse", flags, Mode::empty()).map_err(|error| match error {
        Errno::ACCESS | Errno::PERM => {
            MountError::NotPermitted { at: PathBuf::from("/dev/fuse"), source: error.into() }
        }
        _ => MountError::NoFuse { source: error.into() },
    })
}

/// Mounts the folder that the connection serves.
pub(crate) fn mount(fuse: impl AsFd, at: &Path) -> Result<(), MountError> {
    let failed = |doing: &'static str, source| MountError::Failed { doing, at: at.to_owned(), source };
    fs::create_dir_all(at).map_err(|source| failed("making", source))?;
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let fd = fuse.as_fd().as_raw_fd();
    let options =
        format!("fd={fd},rootmode={FOLDER_MODE:o},user_id={uid},group_id={gid},default_permissions\0");
    let options = std::ffi::CStr::from_bytes_until_nul(options.as_bytes())
        .map_err(|error| failed("mounting", io::Error::other(error)))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOATIME;
    rustix::mount::mount("dolmen", at, SPACES_FILE_SYSTEM, flags, options).map_err(|error| match error {
        Errno::PERM | Errno::ACCESS => MountError::NotPermitted { at: at.to_owned(), source: error.into() },
        Errno::NODEV => MountError::NoFuse { source: error.into() },
        _ => failed("mounting", error.into()),
    })
}

/// Unmounts the folder, which nothing may use any more.
pub(crate) fn unmount(at: &Path) -> Result<(), MountError> {
    unmount_with(at, UnmountFlags::empty())
}

/// Ends the connection of a folder: every request on it fails, now and later. The folder stays if it is used.
pub(crate) fn abort(at: &Path) {
    // Whether it could be unmounted as well is seen later; that nothing is mounted is what was wanted.
    let _ = unmount_with(at, UnmountFlags::FORCE);
}

/// Takes a folder whose connection has ended out of sight. Whoever still uses it gets errors, as before.
pub(crate) fn unmount_dead(at: &Path) -> Result<(), MountError> {
    unmount_with(at, UnmountFlags::DETACH)
}

fn unmount_with(at: &Path, flags: UnmountFlags) -> Result<(), MountError> {
    match rustix::mount::unmount(at, flags) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(error) => {
            Err(MountError::Failed { doing: "unmounting", at: at.to_owned(), source: error.into() })
        }
    }
}

/// What is mounted at `at`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mounted {
    Nothing,
    Ours,
    Other { kind: String },
}

/// Looks at the uppermost mount at `at`, in the kernel's table: looking at the folder itself could wait for us.
pub(crate) fn mounted(at: &Path) -> Mounted {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    match kind_at(&table, at) {
        None => Mounted::Nothing,
        Some(kind) if kind == SPACES_FILE_SYSTEM => Mounted::Ours,
        Some(kind) => Mounted::Other { kind },
    }
}

fn kind_at(table: &str, at: &Path) -> Option<String> {
    let line = table.lines().rfind(|line| line.split(' ').nth(4).is_some_and(|path| unescape(path) == at))?;
    line.split(" - ").nth(1)?.split(' ').next().map(str::to_owned)
}

/// Undoes the octal escapes (`\040` for a space) of the kernel's tables.
fn unescape(text: &str) -> PathBuf {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits =
            tail.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(code.unwrap_or(*first));
        rest = if code.is_some() { tail.get(3..).unwrap_or_default() } else { tail };
    }
    std::ffi::OsString::from_vec(plain).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uppermost_mount_counts_and_escapes_are_undone() {
        let table = "36 35 98:0 / /run/a\\040b rw,noatime shared:1 - tmpfs tmpfs rw\n\
                     37 36 0:40 / /run/a\\040b rw - fuse.dolmen dolmen rw,user_id=0\n\
                     38 36 0:41 / /run/c rw - ext4 /dev/sda rw\n";
        assert_eq!(kind_at(table, Path::new("/run/a b")).as_deref(), Some("fuse.dolmen"));
        assert_eq!(kind_at(table, Path::new("/run/c")).as_deref(), Some("ext4"));
        assert_eq!(kind_at(table, Path::new("/run")), None);
        assert_eq!(unescape(r"a\134b\04"), Path::new(r"a\b\04"));
    }

    #[test]
    fn the_root_is_mounted_and_not_ours() {
        assert!(matches!(mounted(Path::new("/")), Mounted::Other { .. }));
        assert_eq!(mounted(Path::new("/no/such/mount")), Mounted::Nothing);
    }
}
