//! File systems are made on empty devices, and checked while they are not mounted.

use std::ffi::{OsStr, OsString};
use std::io::{Seek as _, SeekFrom};
use std::path::Path;

use dolmen_mutation::mutation;
use dolmen_volume::file_system::FileSystem;
use dolmen_volume::making::{Content, ContentError, Making, next_making};
use rustix::fs::FallocateFlags;

use crate::content::content;
use crate::device::{self, Access};
use crate::mount;
use crate::protocol::{Failure, FailureCode, Outcome, Volume};
use crate::tool;

/// Bytes that are discarded at a time. The kernel cuts longer ranges at the limit of the device, which for a loop device is no
/// whole number of blocks: the cut blocks would be written, and take room. A loop device takes 4 GiB less one sector, so half of that.
const DISCARDED_BYTES: u64 = 2 << 30;

/// Makes the file system of a record, where nothing else is on its device.
pub(crate) fn make(volume: &Volume) -> Result<Outcome, Failure> {
    let Volume { device, record, .. } = volume;
    // Open until the end: what was looked at is what is discarded and formatted.
    let _pinned = device::pin(volume)?;
    let refused = |error: ContentError| Failure {
        code: FailureCode::ForeignData,
        message: format!("{}: {error}", device.display()),
        hint: "the space of this volume was written by others; delete the volume, and create it again"
            .to_owned(),
    };
    let next = next_making(record, &content(device)?.decided()).map_err(refused)?;
    let force = match (next, record.file_system) {
        (Making::Made, _) => return Ok(Outcome::WasDone),
        (Making::Make, FileSystem::Xfs | FileSystem::Btrfs) => None,
        (Making::MakeAgain, FileSystem::Xfs | FileSystem::Btrfs) => Some("-f"),
        // Without it, mke2fs asks a person about devices with signatures.
        (Making::Make | Making::MakeAgain, FileSystem::Ext4) => Some("-F"),
    };
    discard(device)?;
    let mut arguments: Vec<OsString> = record.mkfs_options.iter().map(OsString::from).collect();
    arguments.extend(force.map(OsString::from));
    arguments.push(device.clone().into_os_string());
    let program = format!("mkfs.{}", record.file_system);
    match record.file_system {
        FileSystem::Btrfs => tool::succeed_alone(&program, &arguments, device)?,
        FileSystem::Xfs | FileSystem::Ext4 => tool::succeed(&program, &arguments)?,
    };
    // A tool that ended well has made what the record says, or is not trusted.
    match next_making(record, &content(device)?.decided()) {
        Ok(Making::MakeAgain) => Ok(Outcome::Done),
        Ok(Making::Make | Making::Made) => Err(not_made(volume, &program, "nothing was made")),
        Err(error) => Err(not_made(volume, &program, &error.to_string())),
    }
}

/// Discards all of a device, so that it reads as zeros: the options of a record are for such a device, and what an earlier run wrote
/// takes no room.
fn discard(device: &Path) -> Result<(), Failure> {
    let refused = |error: &dyn std::fmt::Display| Failure {
        code: FailureCode::Refused,
        message: format!("{} cannot be discarded: {error}", device.display()),
        hint: "nothing was made; the log of the kernel says more".to_owned(),
    };
    // Exclusive: the kernel refuses it while the device is mounted, also by another worker a moment ago.
    let mut file = device::exclusive(device, Access::Write).map_err(|error| refused(&error))?;
    let length = file.seek(SeekFrom::End(0)).map_err(|error| refused(&error))?;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let mut at = 0;
    while at < length {
        let piece = DISCARDED_BYTES.min(length - at);
        rustix::fs::fallocate(&file, punch, at, piece).map_err(|error| refused(&error))?;
        at += piece;
    }
    match content(device)?.decided() {
        Content::Zeros => Ok(()),
        Content::FileSystem { .. } | Content::Unknown | Content::Other { .. } => {
            Err(refused(&"it does not read as zeros afterwards"))
        }
    }
}

fn not_made(volume: &Volume, program: &str, finding: &str) -> Failure {
    let message = format!("{program} ended well on {}, but: {finding}", volume.device.display());
    Failure { code: FailureCode::Refused, message, hint: "nothing is mounted; report this".to_owned() }
}

/// A repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Repair {
    /// Whether a log that no mount replays is dropped.
    pub(crate) drops_log: bool,
}

/// Checks, and repairs if that is asked for, a file system that is not mounted.
pub(crate) fn check(volume: &Volume, repair: Option<Repair>) -> Result<Outcome, Failure> {
    let _pinned = device::pin(volume)?;
    mount::require_unmounted(volume)?;
    mount::require_own(volume)?;
    // What the table of mounts does not show counts, too: `xfs_repair -n` and `btrfs check` do not ask the kernel.
    device::require_unused(volume)?;
    let drops_log = repair.is_some_and(|repair| repair.drops_log || mutation!(LogDroppedUnasked));
    let (program, options): (&str, &[&str]) = match (volume.record.file_system, repair) {
        (FileSystem::Xfs, None) => ("xfs_repair", &["-n"]),
        (FileSystem::Xfs, Some(_)) if drops_log => ("xfs_repair", &["-L"]),
        (FileSystem::Xfs, Some(_)) => ("xfs_repair", &[]),
        (FileSystem::Btrfs, None) => ("btrfs", &["check", "--readonly"]),
        (FileSystem::Btrfs, Some(_)) => {
            if drops_log {
                tool::succeed(
                    "btrfs",
                    &[OsStr::new("rescue"), OsStr::new("zero-log"), volume.device.as_os_str()],
                )?;
            }
            ("btrfs", &["check", "--repair"])
        }
        (FileSystem::Ext4, None) => ("e2fsck", &["-f", "-n"]),
        // It replays its log, or drops one that is damaged.
        (FileSystem::Ext4, Some(_)) => ("e2fsck", &["-f", "-y"]),
    };
    let mut arguments: Vec<OsString> = options.iter().map(OsString::from).collect();
    arguments.push(volume.device.clone().into_os_string());
    let ran = tool::run(program, &arguments)?;
    match ran.status.code() {
        Some(code) => Ok(Outcome::Checked { code, text: ran.text }),
        None => {
            let message = format!("{program} on {} was ended: {}", volume.device.display(), ran.status);
            Err(Failure { code: FailureCode::Refused, message, hint: "check again".to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;

    use super::*;

    const UUID: &str = "6f8e2c1a-0b7d-4a55-9a1e-52d0a3c4b5e6";
    const OTHER: &str = "7f8e2c1a-0b7d-4a55-9a1e-52d0a3c4b5e7";

    fn volume(folder: &tempfile::TempDir, uuid: &str, state: &str) -> Volume {
        let device = folder.path().join("image");
        let record = serde_json::json!({
            "state": state, "desired": "mounted", "file_system": "ext4", "uuid": uuid,
            "mkfs_options": ["-q", "-U", uuid], "mount_point": "/srv/home",
        });
        Volume { device, incarnation: None, record: serde_json::from_value(record).unwrap() }
    }

    fn empty(folder: &tempfile::TempDir) -> PathBuf {
        let path = folder.path().join("image");
        File::create(&path).unwrap().set_len(64 << 20).unwrap();
        path
    }

    #[test]
    fn a_file_system_is_made_over_zeros_and_over_itself() {
        let folder = tempfile::tempdir().unwrap();
        let device = empty(&folder);
        for _ in 0..2 {
            assert_eq!(make(&volume(&folder, UUID, "making")).unwrap(), Outcome::Done);
            let found = content(&device).unwrap();
            assert_eq!((found.kind.as_deref(), found.uuid.as_deref()), (Some("ext4"), Some(UUID)));
        }
        assert_eq!(make(&volume(&folder, UUID, "ready")).unwrap(), Outcome::WasDone);
    }

    #[test]
    fn nothing_is_made_over_what_somebody_else_wrote() {
        // Scenario: another file system; one byte at the front; one byte in the last block.
        let folder = tempfile::tempdir().unwrap();
        empty(&folder);
        make(&volume(&folder, OTHER, "making")).unwrap();
        let refused = make(&volume(&folder, UUID, "making")).unwrap_err();
        assert_eq!(refused.code, FailureCode::ForeignData);
        assert!(refused.message.contains(OTHER) && refused.message.contains("ext4"), "{refused}");
        for at in [100, (64 << 20) - 1] {
            let device = empty(&folder);
            File::options().write(true).open(&device).unwrap().write_all_at(b"x", at).unwrap();
            let refused = make(&volume(&folder, UUID, "making")).unwrap_err();
            assert_eq!(refused.code, FailureCode::ForeignData);
            assert!(content(&device).unwrap().kind.is_none());
        }
    }

    #[test]
    fn a_mkfs_that_was_cut_short_is_made_again() {
        // Scenario: mkfs.btrfs is killed before it writes its magic, and leaves bytes that no tool knows.
        let folder = tempfile::tempdir().unwrap();
        let device = empty(&folder);
        for at in [65_600, (64 << 20) - 9] {
            File::options().write(true).open(&device).unwrap().write_all_at(b"!BHRfS_M", at).unwrap();
        }
        let mut cut_short = volume(&folder, UUID, "making");
        assert_eq!(make(&cut_short).unwrap_err().code, FailureCode::ForeignData);
        cut_short.record.is_mkfs_begun = true;
        assert_eq!(make(&cut_short).unwrap(), Outcome::Done);
        assert_eq!(content(&device).unwrap().uuid.as_deref(), Some(UUID));
    }

    #[test]
    fn a_tool_that_makes_another_uuid_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        empty(&folder);
        let mut wrong = volume(&folder, UUID, "making");
        wrong.record.mkfs_options = vec!["-q".to_owned(), "-U".to_owned(), OTHER.to_owned()];
        let refused = make(&wrong).unwrap_err();
        assert!(refused.message.contains(UUID) && refused.message.contains(OTHER), "{refused}");
    }
}
