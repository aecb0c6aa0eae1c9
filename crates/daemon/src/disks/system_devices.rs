//! Block devices of the system: disks and partitions.

use std::fs::Metadata;
use std::path::Path;

use dolmen_block_linux::unused_devices;

use crate::disks::provider::{DeviceProvider, Places};

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
        let unused = unused_devices(&|path| places.is_on_space(path));
        unused.iter().for_each(|path| places.add(path));
    }
}
