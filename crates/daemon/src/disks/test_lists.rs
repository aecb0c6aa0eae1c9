//! A kind of place that only tests have: a file that lists disks. It proves that a kind is one file and one line of the table.

use std::fs::{self, Metadata};
use std::path::Path;

use crate::disks::provider::{DeviceProvider, Places};

/// A file with the path of a disk in each line.
pub(super) struct TestLists;

impl DeviceProvider for TestLists {
    fn takes(&self, path: &Path, status: &Metadata) -> bool {
        status.is_file() && path.extension().is_some_and(|extension| extension == "test-list")
    }

    fn add(&self, path: &Path, _status: &Metadata, places: &mut Places<'_>) {
        for line in fs::read_to_string(path).unwrap_or_default().lines() {
            places.add(Path::new(line));
        }
    }
}
