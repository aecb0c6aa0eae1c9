//! Mounting and unmounting by name, and never over anything.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path};

use dolmen_mutation::mutation;
use dolmen_volume::making::may_mount;
use dolmen_volume::mount_table::{DeviceNumber, MountTable};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::FdFlags;

use crate::content::content;
use crate::device::{self, number_of};
use crate::protocol::{Failure, FailureCode, Outcome, Volume};
use crate::tool;

const TABLE: &str = "/proc/self/mountinfo";

/// Mounts a volume, and makes its mount point. One that is mounted there already stays so.
pub(crate) fn mount(volume: &Volume) -> Result<Outcome, Failure> {
    let _pinned = device::pin(volume)?;
    let table = table()?;
    let number = number_of(volume)?;
    let (at, device) = (volume.record.mount_point.as_str(), text_of(&volume.device)?);
    if let Some(there) = table.on(at) {
        if there.is_of(number, device) {
            return Ok(Outcome::WasDone);
        }
        let source = String::from_utf8_lossy(&there.source).into_owned();
        return Err(in_use(
            volume,
            &format!("{source} is mounted there"),
            &format!("`umount {at}`, or choose another mount point"),
        ));
    }
    if let Some(elsewhere) = table.of_device(number, device).next() {
        let path = String::from_utf8_lossy(&elsewhere.path).into_owned();
        return Err(in_use(volume, &format!("the volume is mounted at {path}"), &format!("umount {path}")));
    }
    require_own(volume)?;
    let place = mount_point(volume)?;
    let mounted = mount_on(volume, &place.folder);
    if mounted.is_err() {
        place.unmake();
    }
    mounted
}

/// Mounts a volume on a folder, if that is empty.
fn mount_on(volume: &Volume, folder: &File) -> Result<Outcome, Failure> {
    let (at, device) = (volume.record.mount_point.as_str(), text_of(&volume.device)?);
    require_empty(volume, folder)?;
    let (kind, options) = (volume.record.file_system.name(), volume.record.options_for_mount());
    // The folder that was looked at is the one that gets the mount, whatever its path leads to by now.
    let held = format!("/proc/self/fd/{}", folder.as_raw_fd());
    let target = if mutation!(MountedByPath) { at } else { &held };
    // Without `-c`, the tool would look its target up by the path again.
    tool::succeed("mount", &["-c", "-t", kind, "-o", &options, "--", device, target])?;
    match require_mounted(volume) {
        Ok(_) => Ok(Outcome::Done),
        Err(failure) => {
            undo(volume, number_of(volume)?)?;
            Err(failure)
        }
    }
}

/// Takes a mount off that is not at its path: the folder was moved meanwhile.
fn undo(volume: &Volume, number: DeviceNumber) -> Result<(), Failure> {
    for mount in table()?.of_device(number, text_of(&volume.device)?) {
        let path = String::from_utf8_lossy(&mount.path).into_owned();
        tool::succeed("umount", &["-c", "--", &path])?;
    }
    Ok(())
}

/// Opens the root of a volume that is mounted where it is to be.
pub(crate) fn root_of(volume: &Volume) -> Result<File, Failure> {
    let id = require_mounted(volume)?;
    let path = Path::new(volume.record.mount_point.as_str());
    let root = File::open(path).map_err(|error| bad_path(path, &error, ""))?;
    require_mount(volume, &root, id)?;
    Ok(root)
}

/// Fails unless a folder is of the mount with this number. The file system is not asked: one that was shut down answers nothing.
fn require_mount(volume: &Volume, folder: &impl AsRawFd, id: u64) -> Result<(), Failure> {
    let path = format!("/proc/self/fdinfo/{}", folder.as_raw_fd());
    let told = fs::read_to_string(&path).map_err(|error| bad_path(Path::new(&path), &error, ""))?;
    let found = told.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    if found != Some(id) {
        return Err(in_use(volume, "the path leads to another mount", "do not move folders above it"));
    }
    Ok(())
}

/// Unmounts a volume; one that is not mounted where it is to be stays so.
pub(crate) fn unmount(volume: &Volume) -> Result<Outcome, Failure> {
    let at = volume.record.mount_point.as_str();
    let number = number_of(volume)?;
    let table = table()?;
    let device = text_of(&volume.device)?;
    let Some(there) = table.on(at).filter(|there| there.is_of(number, device)) else {
        return Ok(Outcome::WasDone);
    };
    if let Some(below) = table.below(at).next() {
        let path = String::from_utf8_lossy(&below.path).into_owned();
        return Err(in_use(volume, &format!("{path} is mounted below it"), &format!("umount {path}")));
    }
    if !mutation!(UnmountedByPath) {
        // The table knows a mount by the folders that it was made on, which others may cover or move.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(at, flags, Mode::empty())
            .map_err(|error| bad_path(Path::new(at), &io::Error::from(error), ""))?;
        require_mount(volume, &folder, there.id)?;
    }
    // Without `-c`, the tool would look for another path first.
    let ran = tool::run("umount", &["-c", "--", at])?;
    match ran.status.success() {
        true => Ok(Outcome::Done),
        false => {
            let hint = format!("`fuser -vm {at}` shows who uses it; end them, and unmount again");
            Err(in_use(volume, ran.text.trim(), &hint))
        }
    }
}

/// Fails unless the volume is mounted where it is to be. Returns the number of the mount.
pub(crate) fn require_mounted(volume: &Volume) -> Result<u64, Failure> {
    let (at, device) = (volume.record.mount_point.as_str(), text_of(&volume.device)?);
    let number = number_of(volume)?;
    let table = table()?;
    match table.on(at) {
        Some(there) if there.is_of(number, device) => Ok(there.id),
        Some(other) => {
            let source = String::from_utf8_lossy(&other.source).into_owned();
            Err(in_use(volume, &format!("{source} is mounted there"), &format!("umount {at}")))
        }
        None => Err(in_use(volume, "the volume is not mounted", "mount it with `dolmen volume mount`")),
    }
}

/// Fails if the volume is mounted anywhere.
pub(crate) fn require_unmounted(volume: &Volume) -> Result<(), Failure> {
    let number = number_of(volume)?;
    match table()?.of_device(number, text_of(&volume.device)?).next() {
        None => Ok(()),
        Some(mount) => {
            let path = String::from_utf8_lossy(&mount.path).into_owned();
            let hint = "unmount it with `dolmen volume unmount`";
            Err(in_use(volume, &format!("the volume is mounted at {path}"), hint))
        }
    }
}

/// Fails unless the device holds the file system that the record names, and the record lets it be mounted.
pub(crate) fn require_own(volume: &Volume) -> Result<(), Failure> {
    let found = content(&volume.device)?.decided();
    may_mount(&volume.record, &found).map_err(|error| Failure {
        code: FailureCode::ForeignData,
        message: format!("{}: {error}", volume.device.display()),
        hint: String::new(),
    })
}

fn in_use(volume: &Volume, finding: &str, hint: &str) -> Failure {
    let message =
        format!("mount point {}: {finding}; nothing was changed", volume.record.mount_point.as_str());
    Failure { code: FailureCode::InUse, message, hint: hint.to_owned() }
}

fn bad_path(path: &Path, finding: &dyn std::fmt::Display, hint: &str) -> Failure {
    let message = format!("{}: {finding}; nothing was changed", path.display());
    Failure { code: FailureCode::BadPath, message, hint: hint.to_owned() }
}

fn table() -> Result<MountTable, Failure> {
    let path = Path::new(TABLE);
    let bytes = fs::read(path).map_err(|error| bad_path(path, &error, ""))?;
    MountTable::parse(&bytes).map_err(|error| bad_path(path, &error, ""))
}

fn text_of(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| bad_path(path, &"the path is not UTF-8", "choose another one"))
}

/// A mount point that is open, and the folders that were made for it.
struct Place {
    folder: File,
    made: Vec<(OwnedFd, OsString)>,
}

impl Place {
    /// Removes the folders that were made. What is in use or filled by now stays.
    fn unmake(self) {
        unmake(self.made);
    }
}

/// Removes folders that were made, the last one first; the first one that stays keeps those above it.
fn unmake(made: Vec<(OwnedFd, OsString)>) {
    for (parent, name) in made.into_iter().rev() {
        if rustix::fs::unlinkat(&parent, &name, AtFlags::REMOVEDIR).is_err() {
            return;
        }
    }
}

/// Opens the mount point, and makes what is not there of it.
fn mount_point(volume: &Volume) -> Result<Place, Failure> {
    let mut made = Vec::new();
    match open_mount_point(volume, &mut made) {
        Ok(folder) => Ok(Place { folder, made }),
        Err(failure) => {
            unmake(made);
            Err(failure)
        }
    }
}

/// Opens the mount point, folder by folder and through no symbolic link, and makes what is not there. Tools inherit the file.
fn open_mount_point(volume: &Volume, all_made: &mut Vec<(OwnedFd, OsString)>) -> Result<File, Failure> {
    let path = Path::new(volume.record.mount_point.as_str());
    let open = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let mut folder = rustix::fs::openat(CWD, "/", open, Mode::empty())
        .map_err(|error| bad_path(path, &io::Error::from(error), ""))?;
    for component in path.components() {
        let name = match component {
            Component::RootDir => continue,
            Component::Normal(name) => name,
            _ => return Err(bad_path(path, &"it is not an absolute path without `..`", "name it in full")),
        };
        let made = rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755));
        if let Err(error) = made
            && error != rustix::io::Errno::EXIST
        {
            return Err(bad_path(path, &io::Error::from(error), "choose a path that can be made"));
        }
        if made.is_ok() {
            let parent = folder.try_clone().map_err(|error| bad_path(path, &error, ""))?;
            all_made.push((parent, name.to_owned()));
        }
        folder = rustix::fs::openat(&folder, name, open, Mode::empty()).map_err(|error| {
            let name = name.to_string_lossy();
            let finding = format!("{name:?} in it is no folder, or a symbolic link ({error})");
            bad_path(path, &finding, "name the folder that it leads to")
        })?;
    }
    rustix::io::fcntl_setfd(&folder, FdFlags::empty())
        .map_err(|error| bad_path(path, &io::Error::from(error), ""))?;
    Ok(File::from(folder))
}

fn require_empty(volume: &Volume, folder: &File) -> Result<(), Failure> {
    let entries = rustix::fs::Dir::read_from(folder).map_err(|error| {
        bad_path(Path::new(volume.record.mount_point.as_str()), &io::Error::from(error), "")
    })?;
    for entry in entries {
        let entry = entry.map_err(|error| {
            bad_path(Path::new(volume.record.mount_point.as_str()), &io::Error::from(error), "")
        })?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            let name = String::from_utf8_lossy(name).into_owned();
            let hint = "choose an empty folder, or move what is there away: it would be hidden";
            return Err(in_use(volume, &format!("it is not empty: {name:?} is there"), hint));
        }
    }
    Ok(())
}
