//! Block devices of the system: disks and partitions.

use std::fs::{self, Metadata};
use std::path::Path;

use dolmen_block_linux::in_use;

use crate::disks::provider::{DeviceProvider, ENTRIES_MAX, Places};

/// Where the kernel lists block devices.
pub(super) const BLOCK_CLASS: &str = "/sys/class/block";

/// A device, or whatever else is neither a folder nor a regular file: what opens it refuses what is no disk.
pub(super) struct SystemDevices;

impl DeviceProvider for SystemDevices {
    fn takes(&self, _path: &Path, status: &Metadata) -> bool {
        !status.is_dir() && !status.is_file()
    }

    fn add(&self, path: &Path, _status: &Metadata, places: &mut Places<'_>) {
        places.note(path);
    }

    /// Adds the disks and partitions that nothing uses; not those that daemons provide.
    fn scan(&self, places: &mut Places<'_>) {
        let entries = fs::read_dir(BLOCK_CLASS).into_iter().flatten().flatten().take(ENTRIES_MAX);
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        for name in names {
            let folder = Path::new(BLOCK_CLASS).join(&name);
            let size = fs::read_to_string(folder.join("size")).unwrap_or_default();
            let path = Path::new("/dev").join(&name);
            let is_empty = matches!(size.trim(), "" | "0");
            if !is_empty && !places.is_on_space(&path) && matches!(in_use(&path), Ok(None)) {
                places.add(&path);
            }
        }
    }
}
