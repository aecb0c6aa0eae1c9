//! What disks lie on: neither a space nor what lies on one is a disk of a pool ([docs/design/0028](../../../docs/design/0028-what-a-disk-lies-on.md)).
//!
//! A daemon that reads a file on a space waits for a file system that waits for the daemon. So a path that comes from a
//! request, from a record or from a list of folders is followed through the kernel's tables before anything at it is
//! touched.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::{fs, io};

use dolmen_block_linux::{DeviceStacks, OnSpace, unescaped};
use dolmen_mutation::mutation;
use dolmen_ublk::{Abandoned, ClearError};

use crate::error::DaemonError;

/// Runs something with the kernel's tables of mounts and devices as they are now.
pub(crate) fn with_stacks<T>(run: impl FnOnce(&DeviceStacks<'_>) -> T) -> io::Result<T> {
    Ok(run(&DeviceStacks::read(&dolmen_ublk::is_attached_space)?))
}

/// Whether a path lies on an attached space, or may: where the kernel does not say, nothing at it is touched.
pub(crate) fn is_on_space(path: &Path) -> bool {
    with_stacks(|stacks| space_in(stacks, path).is_some()).unwrap_or(true)
}

/// Returns the attached space that a path lies on.
pub(crate) fn space_in(stacks: &DeviceStacks<'_>, path: &Path) -> Option<OnSpace> {
    // Its name may have escapes; to see whether it has, it would have to be touched.
    let below = |path: &Path| stacks.space_below(path);
    let found = below(path).or_else(|| unescaped(path).and_then(|path| below(&path)));
    found.filter(|found| found.mounted_at.is_none() || !mutation!(DiskOnSpace))
}

/// Refuses a folder of the daemon's own that lies on a space which only the daemon with this run folder can serve. A folder on a
/// space of another daemon is that one's affair.
pub(crate) fn check_own_folder(folder: &Path, run: &Path, option: &'static str) -> Result<(), DaemonError> {
    // Where the tables cannot be read, what follows says why.
    let found = with_stacks(|stacks| space_in(stacks, folder)).ok().flatten();
    let Some(device) = found.and_then(|found| found.device) else { return Ok(()) };
    let name = device.file_name().unwrap_or_default();
    let backing = fs::read(Path::new("/sys/block").join(name).join("loop/backing_file")).unwrap_or_default();
    if !Path::new(OsStr::from_bytes(&backing)).starts_with(run) && !is_unserved(&device) {
        return Ok(());
    }
    Err(DaemonError::OnOwnSpace { path: folder.to_path_buf(), device, option })
}

/// Returns whether a device is a ublk device of a space that no daemon serves. A ublk device names no run folder; but this daemon
/// serves nothing yet, so that its own devices are among these, and a folder on any of them would not answer.
fn is_unserved(device: &Path) -> bool {
    match Abandoned::find(device) {
        Ok(_) => true,
        // The kernel may not have noticed yet that the server has ended.
        Err(ClearError::Served { pid, .. }) => !Path::new("/proc").join(pid.to_string()).exists(),
        Err(_) => false,
    }
}
