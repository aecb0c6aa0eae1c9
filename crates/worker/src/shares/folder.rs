//! The folder of a share on this host: within its volume, and through no symbolic link.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dolmen_mutation::mutation;
use dolmen_volume::mount_table::{DeviceNumber, MountTable};
use dolmen_volume::record::ShareRecord;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::order::SharedVolume;
use crate::protocol::{Failure, FailureCode};

const TABLE: &str = "/proc/self/mountinfo";
/// End of each refusal.
pub(super) const UNCHANGED: &str = "; no server was changed";

fn refused(code: FailureCode, path: &str, finding: &dyn std::fmt::Display, hint: &str) -> Failure {
    let message = format!("folder {path} cannot be shared: {finding}{UNCHANGED}");
    Failure { code, message, hint: hint.to_owned() }
}

/// Returns the path of the folder that a share offers.
///
/// # Errors
/// [`FailureCode::InUse`] if the volume is not mounted; [`FailureCode::BadPath`] if the folder is absent, no folder, or lies
/// behind a symbolic link: through one, clients would get another part of the host. [`FailureCode::Refused`] if that is not known.
pub(super) fn shared_folder(volume: &SharedVolume, record: &ShareRecord) -> Result<String, Failure> {
    let root = volume.mount_point.as_str();
    let path = volume.mount_point.join(&record.folder);
    require_mounted(volume, &path)?;
    let open = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH;
    let bad = |error: Errno| not_there(&path, error);
    let top = rustix::fs::openat2(CWD, root, open, Mode::empty(), ResolveFlags::NO_SYMLINKS).map_err(bad)?;
    let beneath = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let folder = if record.folder.is_root() { "." } else { path.get(root.len() + 1..).unwrap_or(".") };
    rustix::fs::openat2(&top, folder, open, Mode::empty(), beneath).map_err(bad)?;
    Ok(path)
}

/// Words an answer of the kernel about the way to a folder.
pub(super) fn not_there(path: &str, error: Errno) -> Failure {
    let hint = "make the folder, or name the one that a link leads to";
    match error {
        Errno::LOOP => refused(FailureCode::BadPath, path, &"a symbolic link is on the way to it", hint),
        Errno::NOENT | Errno::NOTDIR => {
            refused(FailureCode::BadPath, path, &std::io::Error::from(error), hint)
        }
        // No memory, no free descriptor, a file system that fails: the folder may be what it was.
        error => refused(FailureCode::Refused, path, &std::io::Error::from(error), "`dmesg` may say more"),
    }
}

/// Fails unless the device of the volume is mounted at its mount point: clients would write beside the volume.
fn require_mounted(volume: &SharedVolume, path: &str) -> Result<(), Failure> {
    let Some(device) = &volume.device else { return Ok(()) };
    if mutation!(ShareOfUnmountedVolume) {
        return Ok(());
    }
    let root = volume.mount_point.as_str();
    let failed =
        |finding: &dyn std::fmt::Display| refused(FailureCode::InUse, path, finding, "mount the volume");
    let unknown = |error: &dyn std::fmt::Display| refused(FailureCode::Refused, path, error, "look again");
    let bytes = fs::read(TABLE).map_err(|error| unknown(&error))?;
    let table = MountTable::parse(&bytes).map_err(|error| unknown(&error))?;
    let number = match number_of(device) {
        Ok(number) => number,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(failed(&format!("{} is absent", device.display())));
        }
        Err(error) => return Err(unknown(&error)),
    };
    let there = table.on(root).ok_or_else(|| failed(&format!("nothing is mounted on {root}")))?;
    if there.is_of(number, &device.to_string_lossy()) {
        return Ok(());
    }
    let source = String::from_utf8_lossy(&there.source).into_owned();
    Err(failed(&format!("{source} is mounted on {root}, and not {}", device.display())))
}

fn number_of(device: &Path) -> std::io::Result<DeviceNumber> {
    let number = fs::metadata(device)?.rdev();
    Ok(DeviceNumber { major: rustix::fs::major(number), minor: rustix::fs::minor(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(root: &Path, folder: &str) -> (SharedVolume, ShareRecord) {
        let volume = serde_json::json!({
            "name": "tank/home", "mount_point": root.to_str().unwrap(), "file_system": "xfs",
        });
        let record = serde_json::json!({
            "name": "docs", "folder": folder, "protocols": ["smb"], "desired": "served",
        });
        (serde_json::from_value(volume).unwrap(), serde_json::from_value(record).unwrap())
    }

    #[test]
    fn a_folder_reached_by_a_link_or_of_an_unmounted_volume_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("docs/2026")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        std::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
        for name in ["", "docs", "docs/2026"] {
            let (volume, record) = share(&root, name);
            let path = shared_folder(&volume, &record).unwrap();
            assert_eq!(Path::new(&path), root.join(name).components().as_path());
        }
        for name in ["link", "link/ssl", "file", "absent"] {
            let (volume, record) = share(&root, name);
            assert_eq!(shared_folder(&volume, &record).unwrap_err().code, FailureCode::BadPath, "{name}");
        }
        let (volume, record) = share(&root, "docs");
        let unmounted = SharedVolume { device: Some("/dev/null".into()), ..volume };
        let code = shared_folder(&unmounted, &record).map_err(|failure| failure.code);
        assert_eq!(code, Err(FailureCode::InUse), "a folder was shared without its volume");
    }
}
