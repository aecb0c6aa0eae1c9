//! Disks of the system that nothing uses, found in the kernel's tables without opening any.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use dolmen_units::{Bytes, SECTOR_BYTES};
use rustix::fs::{major, minor};

use crate::in_use::in_use;
use crate::medium::{MediumExtent, by_medium};
use crate::path_name::name_of;
use crate::stack::{DeviceStacks, IsSpace};

const BLOCK_CLASS: &str = "/sys/class/block";
/// Devices that are looked at, at most.
const DEVICES_MAX: usize = 4096;

/// A disk of the system that nothing uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusedDisk {
    /// Its device.
    pub path: PathBuf,
    /// Its size.
    pub size: Bytes,
}

/// Returns the disks of the system that nothing uses, without opening any. A partition is listed only where its whole disk is not.
/// `is_space` tells the devices of attached spaces, which are no disks.
///
/// # Errors
/// When the table of mounts cannot be read: what a device lies on is not known then.
pub fn unused_disks(is_space: &IsSpace<'_>) -> io::Result<Vec<UnusedDisk>> {
    let stacks = DeviceStacks::read(is_space)?;
    let devices = unused_devices(&|path| stacks.space_below(path).is_some());
    let devices: Vec<PathBuf> = devices
        .into_iter()
        .filter(|path| MediumExtent::at(path).is_some())
        .filter_map(|path| fs::canonicalize(path).ok())
        .collect();
    let folder = |path: &Path| fs::canonicalize(Path::new(BLOCK_CLASS).join(path.file_name()?)).ok();
    let first =
        by_medium(&devices).into_iter().filter_map(|paths| paths.first().map(|path| path.to_path_buf()));
    let found = first.filter_map(|path| Some((folder(&path)?, path))).collect();
    let sized = |(own, path): (PathBuf, PathBuf)| {
        let sectors: u64 = fs::read_to_string(own.join("size")).ok()?.trim().parse().ok()?;
        Some(UnusedDisk { path: name_of(&path).into(), size: Bytes(sectors.checked_mul(SECTOR_BYTES)?) })
    };
    Ok(without_parts(found).into_iter().filter_map(sized).collect())
}

/// Returns the disks and partitions of the system that nothing uses, less those that are, or lie on, an attached space.
#[must_use]
pub fn unused_devices(is_on_space: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(BLOCK_CLASS).into_iter().flatten().flatten().take(DEVICES_MAX);
    let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    names.sort();
    let is_unused = |name: &std::ffi::OsString| {
        let size = fs::read_to_string(Path::new(BLOCK_CLASS).join(name).join("size")).unwrap_or_default();
        let path = Path::new("/dev").join(name);
        !matches!(size.trim(), "" | "0") && !is_on_space(&path) && matches!(in_use(&path), Ok(None))
    };
    names.into_iter().filter(is_unused).map(|name| Path::new("/dev").join(name)).collect()
}

/// Returns whether a path leads to a block device that takes no writes. Such a device can be opened for writing all the same, and
/// the other disks named beside it would have been wiped by the time that its first write fails.
#[must_use]
pub fn is_read_only(path: &Path) -> bool {
    let Ok(status) = fs::metadata(path) else { return false };
    if !status.file_type().is_block_device() {
        return false;
    }
    let (major, minor) = (major(status.rdev()), minor(status.rdev()));
    fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro")).is_ok_and(|text| text.trim() == "1")
}

/// Returns devices with their folders in sysfs, less the partitions of others: a partition's folder lies in that of its disk.
fn without_parts(found: Vec<(PathBuf, PathBuf)>) -> Vec<(PathBuf, PathBuf)> {
    let folders: BTreeSet<PathBuf> = found.iter().map(|(folder, _)| folder.clone()).collect();
    let is_whole = |folder: &Path| !folder.parent().is_some_and(|whole| folders.contains(whole));
    found.into_iter().filter(|(folder, _)| is_whole(folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_listed_where_its_disk_is_not() {
        let device = |folder: &str, path: &str| (PathBuf::from(folder), PathBuf::from(path));
        let found = vec![
            device("/sys/devices/0/block/sda", "/dev/sda"),
            device("/sys/devices/0/block/sda/sda1", "/dev/sda1"),
            device("/sys/devices/1/block/sdb/sdb2", "/dev/sdb2"),
        ];
        let paths: Vec<PathBuf> = without_parts(found).into_iter().map(|(_, path)| path).collect();
        assert_eq!(paths, [PathBuf::from("/dev/sda"), PathBuf::from("/dev/sdb2")]);
    }
}
