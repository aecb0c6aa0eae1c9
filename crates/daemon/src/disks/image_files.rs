//! Regular files that are disks.

use std::fs::Metadata;
use std::path::Path;

use crate::disks::provider::{DeviceProvider, Places};

/// Smaller files cannot be disks.
const FILE_BYTES_MIN: u64 = 64 << 20;

/// A regular file.
pub(super) struct ImageFiles;

impl DeviceProvider for ImageFiles {
    fn takes(&self, _path: &Path, status: &Metadata) -> bool {
        status.is_file()
    }

    fn add(&self, path: &Path, status: &Metadata, places: &mut Places<'_>) {
        if status.len() >= FILE_BYTES_MIN {
            places.note(path);
        }
    }
}
