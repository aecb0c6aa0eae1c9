//! Errors that the kernel has found in a mounted file system: XFS says what is sick, ext4 and btrfs count.
//!
//! Facts: `XFS_IOC_FSGEOMETRY` and `XFS_IOC_AG_GEOMETRY` (ioctl_xfs_fsgeometry(2), ioctl_xfs_ag_geometry(2)),
//! `/sys/fs/ext4/DEVICE` (ext4(5)), `/sys/fs/btrfs/UUID/devinfo` (btrfs(5)).

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use dolmen_files::volume::{is_read_only, xfs_geometry, xfs_group_damage};
use dolmen_volume::file_system::FileSystem;

use crate::protocol::Volume;

/// Findings that are said, at most.
const ERRORS_MAX: usize = 16;

/// Bits of `sick` of a whole XFS.
const WHOLE: [&str; 10] = [
    "summary counters",
    "user quotas",
    "group quotas",
    "project quotas",
    "realtime bitmap",
    "realtime summary",
    "quota counts",
    "link counts",
    "metadata folder",
    "metadata paths",
];

/// Bits of `sick` of an allocation group of XFS.
const GROUP: [&str; 11] = [
    "superblock",
    "header of free room",
    "list of free blocks",
    "header of inodes",
    "free room by block",
    "free room by length",
    "inodes",
    "free inodes",
    "reverse mapping",
    "reference counts",
    "inodes that were dropped from memory",
];

/// Returns what the kernel has found wrong with a mounted volume, a sentence each.
pub(crate) fn kernel_errors(volume: &Volume, root: &File) -> Vec<String> {
    let mut errors = match volume.record.file_system {
        FileSystem::Xfs => of_xfs(root),
        FileSystem::Ext4 => {
            let device = root.metadata().map(|found| found.dev()).unwrap_or_default();
            let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
            let link = fs::read_link(format!("/sys/dev/block/{major}:{minor}")).unwrap_or_default();
            let name = link.file_name().unwrap_or_default();
            of_ext4(&Path::new("/sys/fs/ext4").join(name))
        }
        FileSystem::Btrfs => of_btrfs(&Path::new("/sys/fs/btrfs").join(volume.record.uuid.to_string())),
    };
    let is_to_be = volume.record.options_for_mount().split(',').any(|option| option == "ro");
    if !is_to_be && is_read_only(root).is_ok_and(|read_only| read_only) {
        errors.push("it is read-only although it was mounted writable".to_owned());
    }
    errors.truncate(ERRORS_MAX);
    errors
}

fn of_xfs(root: &File) -> Vec<String> {
    let Ok(geometry) = xfs_geometry(root) else { return Vec::new() };
    let mut errors = Vec::new();
    if geometry.sick != 0 {
        errors.push(format!("the kernel found damage: {}", named(geometry.sick, &WHOLE)));
    }
    let groups = geometry.data_blocks.div_ceil(u64::from(geometry.group_blocks.max(1)));
    for group in 0..u32::try_from(groups).unwrap_or(u32::MAX) {
        // Kernels before 5.2 do not have the call.
        let Ok(sick) = xfs_group_damage(root, group) else { break };
        if sick != 0 {
            errors.push(format!(
                "the kernel found damage in allocation group {group}: {}",
                named(sick, &GROUP)
            ));
        }
        if errors.len() >= ERRORS_MAX {
            break;
        }
    }
    errors
}

/// Returns the parts whose bits are set, in words.
fn named(sick: u32, parts: &[&str]) -> String {
    let bits = (0..u32::BITS).filter(|bit| sick >> bit & 1 == 1);
    let name = |bit: u32| {
        let known = usize::try_from(bit).ok().and_then(|bit| parts.get(bit));
        known.map_or_else(|| format!("part {bit}"), |name| (*name).to_owned())
    };
    bits.map(name).collect::<Vec<_>>().join(", ")
}

fn of_ext4(folder: &Path) -> Vec<String> {
    let value = |name: &str| fs::read_to_string(folder.join(name)).map(|text| text.trim().to_owned()).ok();
    let Some(count) = value("errors_count").filter(|count| count != "0") else { return Vec::new() };
    let last: Vec<String> =
        [("function", "last_error_func"), ("inode", "last_error_ino"), ("block", "last_error_block")]
            .into_iter()
            .filter_map(|(word, name)| {
                Some(format!("{word} {}", value(name).filter(|one| !one.is_empty() && one != "0")?))
            })
            .collect();
    let last = if last.is_empty() { String::new() } else { format!(", the last one: {}", last.join(", ")) };
    vec![format!("the kernel counted {count} errors since the last check{last}")]
}

fn of_btrfs(folder: &Path) -> Vec<String> {
    let Ok(devices) = fs::read_dir(folder.join("devinfo")) else { return Vec::new() };
    let mut errors = Vec::new();
    for device in devices.flatten() {
        let Ok(text) = fs::read_to_string(device.path().join("error_stats")) else { continue };
        let counted = |line: &str| {
            let (name, count) = line.split_once(' ')?;
            (count.trim() != "0").then(|| format!("{} {}", count.trim(), name.replace('_', " ")))
        };
        let counted: Vec<String> = text.lines().filter_map(counted).collect();
        if !counted.is_empty() {
            errors.push(format!("the kernel counted {}", counted.join(", ")));
        }
    }
    errors
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn damaged_parts_have_names() {
        assert_eq!(named(0b101, &WHOLE), "summary counters, group quotas");
        assert_eq!(named(1 << 9 | 1 << 31, &GROUP), "reference counts, part 31");
    }

    #[test]
    fn counters_of_ext4_and_btrfs_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(of_ext4(folder.path()), [""; 0]);
        write("errors_count", "0\n");
        assert_eq!(of_ext4(folder.path()), [""; 0]);
        write("errors_count", "2\n");
        assert_eq!(of_ext4(folder.path()), ["the kernel counted 2 errors since the last check"]);
        write("last_error_func", "ext4_lookup\n");
        write("last_error_ino", "12\n");
        write("last_error_block", "0\n");
        let whole =
            "the kernel counted 2 errors since the last check, the last one: function ext4_lookup, inode 12";
        assert_eq!(of_ext4(folder.path()), [whole]);
        let stats = "write_errs 0\nread_errs 3\nflush_errs 0\ncorruption_errs 1\ngeneration_errs 0\n";
        write("devinfo/1/error_stats", stats);
        write("devinfo/2/error_stats", "write_errs 0\n");
        assert_eq!(of_btrfs(folder.path()), ["the kernel counted 3 read errs, 1 corruption errs"]);
    }
}
