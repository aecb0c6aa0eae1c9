//! Folders of files that are disks.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use crate::disks::provider::{DeviceProvider, ENTRIES_MAX, Places};

/// A folder. Each regular file in it is looked at; folders in it are not.
pub(super) struct Folders;

impl DeviceProvider for Folders {
    fn takes(&self, _path: &Path, status: &Metadata) -> bool {
        status.is_dir()
    }

    fn add(&self, folder: &Path, _status: &Metadata, places: &mut Places<'_>) {
        add_files(folder, places);
    }
}

/// Adds the files of a folder.
pub(super) fn add_files(folder: &Path, places: &mut Places<'_>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(ENTRIES_MAX);
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if !places.is_on_space(&path) && fs::metadata(&path).is_ok_and(|status| status.is_file()) {
            places.add(&path);
        }
    }
}
