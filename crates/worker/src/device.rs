//! The device of an order: the one that the daemon attached, and not another one under its number.
//!
//! An order names a device by its path. The kernel gives the number of a loop device to the next image once the device is released,
//! so a worker whose daemon died could find another image there. The order therefore carries the *incarnation* of the device, and a
//! worker keeps the device open: the kernel releases neither number nor name of an open device.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use dolmen_block_linux::mounted_elsewhere;
use dolmen_mutation::mutation;
use dolmen_volume::mount_table::DeviceNumber;
use rustix::fs::OFlags;
use rustix::io::FdFlags;
use rustix::time::Timespec;

use crate::protocol::{Failure, FailureCode, Volume};

/// Tries to open a device that is busy, and the pause between two: a second together.
const OPENS_MAX: u32 = 20;
const OPEN_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Returns what tells a block device from another one that gets its number later: the sequence number that the kernel gives each disk,
/// or before Linux 5.15 the file under a loop device and the size. `None` for what is no block device, or is absent.
#[must_use]
pub fn incarnation_of(device: &Path) -> Option<String> {
    incarnation(&fs::metadata(device).ok()?)
}

fn incarnation(found: &fs::Metadata) -> Option<String> {
    if !found.file_type().is_block_device() {
        return None;
    }
    let DeviceNumber { major, minor } = number(found);
    let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let attribute =
        |name: &str| fs::read_to_string(folder.join(name)).ok().map(|text| text.trim().to_owned());
    match attribute("diskseq") {
        Some(sequence) => Some(format!("disk {sequence}")),
        None => {
            let file = attribute("loop/backing_file").unwrap_or_default();
            Some(format!("{} sectors of {file:?}", attribute("size")?))
        }
    }
}

fn number(found: &fs::Metadata) -> DeviceNumber {
    let number = found.rdev();
    DeviceNumber { major: rustix::fs::major(number), minor: rustix::fs::minor(number) }
}

/// Opens the device of an order. As long as the file is open, here or in a tool, its path leads to this device.
///
/// # Errors
/// [`FailureCode::ForeignData`] if the device is another one than that of the order.
pub(crate) fn pin(volume: &Volume) -> Result<File, Failure> {
    let path = &volume.device;
    let failed = |finding: &dyn std::fmt::Display| Failure {
        code: FailureCode::BadPath,
        message: format!("device {} cannot be used: {finding}; nothing was changed", path.display()),
        hint: "attach the space".to_owned(),
    };
    let file = File::open(path).map_err(|error| failed(&error))?;
    // Tools inherit it: one that goes on after a killed worker keeps its device, too.
    rustix::io::fcntl_setfd(&file, FdFlags::empty()).map_err(|error| failed(&error))?;
    let found = file.metadata().map_err(|error| failed(&error))?;
    if found.file_type().is_block_device() {
        require_meant(volume, incarnation(&found), true)?;
    }
    Ok(file)
}

/// Returns the numbers of the device of an order, whatever links lead to it.
pub(crate) fn number_of(volume: &Volume) -> Result<DeviceNumber, Failure> {
    let path = &volume.device;
    let failed = |finding: &dyn std::fmt::Display| Failure {
        code: FailureCode::BadPath,
        message: format!("{}: {finding}; nothing was changed", path.display()),
        hint: "attach the space".to_owned(),
    };
    let found = fs::metadata(path).map_err(|error| failed(&error))?;
    if !found.file_type().is_block_device() {
        return Err(failed(&"it is no block device"));
    }
    require_meant(volume, incarnation(&found), false)?;
    Ok(number(&found))
}

/// Fails unless a device is that of an order. An order that does not say which one it means is refused where that `is_needed`.
fn require_meant(volume: &Volume, found: Option<String>, is_needed: bool) -> Result<(), Failure> {
    let is_meant = match &volume.incarnation {
        Some(meant) => found.as_ref() == Some(meant),
        None => !is_needed,
    };
    if is_meant || mutation!(DeviceTakenByName) {
        return Ok(());
    }
    let words = |incarnation: Option<&String>| incarnation.cloned().unwrap_or_else(|| "none".to_owned());
    Err(Failure {
        code: FailureCode::ForeignData,
        message: format!(
            "{} is another device than the one that was attached: it is {}, and the order means {}; nothing was changed",
            volume.device.display(),
            words(found.as_ref()),
            words(volume.incarnation.as_ref())
        ),
        hint: "ask for the operation again: the daemon attaches the space first".to_owned(),
    })
}

/// Opens a device for this process alone. The kernel refuses that while the device is mounted, in whatever mount namespace.
///
/// A namespace that a tool has for a moment keeps what was just unmounted: the device is asked for again for a second.
pub(crate) fn exclusive(device: &Path, access: Access) -> std::io::Result<File> {
    let exclusive = i32::try_from(OFlags::EXCL.bits()).unwrap_or(0);
    let mut options = File::options();
    options.read(true).write(access == Access::Write).custom_flags(exclusive);
    for _ in 1..OPENS_MAX {
        match options.open(device) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                // A signal that cuts it short costs one more try.
                let _ = rustix::thread::nanosleep(&OPEN_PAUSE);
            }
            opened => return opened,
        }
    }
    options.open(device)
}

/// Fails if anything uses the device of an order: a mount here, a mount that a container took along, or another program.
pub(crate) fn require_unused(volume: &Volume) -> Result<(), Failure> {
    let path = &volume.device;
    let error = match exclusive(path, Access::Read) {
        Err(error) if !mutation!(CheckedWhileInUse) => error,
        Ok(_) | Err(_) => return Ok(()),
    };
    let users: Vec<String> = mounted_elsewhere(path).iter().map(ToString::to_string).collect();
    let by = if users.is_empty() { String::new() } else { format!(": it is {}", users.join(", ")) };
    Err(Failure {
        code: FailureCode::InUse,
        message: format!("device {} is in use: {error}{by}; nothing was changed", path.display()),
        hint: "end what uses it: a container may have the folder of the volume".to_owned(),
    })
}

/// Purpose for which a device is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// It is read.
    Read,
    /// It is written, too.
    Write,
}
