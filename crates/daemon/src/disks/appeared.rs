//! Devices and files that may be members of pools, as the kernel shows them: one look at names and numbers, which opens no disk and wakes none.
//!
//! It runs on the watcher's thread, because a file system may hang. Two equal looks have seen the same disks, so labels are read
//! again only where a look differs from the one before.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use dolmen_block_linux::{DeviceStacks, path_of};

use crate::config::Scan;
use crate::disks::devices::add_places;
use crate::disks::provider::{ENTRIES_MAX, Places};
use crate::disks::providers::PROVIDERS;
use crate::state::{Connection, Identity};

const BLOCK_CLASS: &str = "/sys/class/block";

/// Places to look at.
pub(crate) struct PlacesToWatch {
    /// Places where absent disks were.
    pub(crate) hints: Vec<PathBuf>,
    pub(crate) look_in: Vec<PathBuf>,
    pub(crate) scan: Scan,
    /// Devices of attached spaces, which are no disks.
    pub(crate) attached: Vec<PathBuf>,
    /// Devices and files that pools have in use: their times of change say nothing.
    pub(crate) held: BTreeSet<Identity>,
}

/// Device or file at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    connection: Connection,
    bytes: u64,
    /// Time of the last change of a file: one that is being copied into its place changes at each look.
    changed: Option<(i64, i64)>,
}

/// Paths that may lead to disks of pools, and the devices and files there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Appeared(BTreeMap<PathBuf, Seen>);

impl PlacesToWatch {
    /// Looks at all of them.
    pub(crate) fn look(&self) -> io::Result<Appeared> {
        let is_space =
            |path: &Path| self.attached.iter().any(|one| one == path) || dolmen_ublk::is_attached_space(path);
        let stacks = DeviceStacks::read(&is_space)?;
        let mut places = Places::new(&stacks, PROVIDERS);
        add_places(&mut places, &self.hints, &self.look_in);
        let mut seen: BTreeMap<PathBuf, Seen> =
            places.into_found().into_iter().filter_map(|path| self.see(path)).collect();
        if self.scan == Scan::System {
            seen.extend(devices_of_system());
        }
        Ok(Appeared(seen))
    }

    fn see(&self, path: PathBuf) -> Option<(PathBuf, Seen)> {
        let connection = Connection::at(&path)?;
        let status = fs::metadata(path_of(&path)).ok()?;
        let is_watched = status.is_file() && !self.held.contains(&connection.identity());
        let changed = is_watched.then(|| (status.mtime(), status.mtime_nsec()));
        Some((path, Seen { connection, bytes: status.len(), changed }))
    }
}

/// Returns the block devices of the system that have a node and hold something.
fn devices_of_system() -> impl Iterator<Item = (PathBuf, Seen)> {
    let entries = fs::read_dir(BLOCK_CLASS).into_iter().flatten().flatten().take(ENTRIES_MAX);
    entries.filter_map(|entry| {
        let sectors: u64 = fs::read_to_string(entry.path().join("size")).ok()?.trim().parse().ok()?;
        let path = Path::new("/dev").join(entry.file_name());
        let connection = Connection::at(&path).filter(|_| sectors > 0)?;
        Some((path, Seen { connection, bytes: sectors, changed: None }))
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn places(hints: Vec<PathBuf>) -> PlacesToWatch {
        let (look_in, attached, held) = Default::default();
        PlacesToWatch { hints, look_in, scan: Scan::NamedOnly, attached, held }
    }

    /// Scenario: a disk that is a file returns to its folder under another name, is written to, and grows. Each makes a look
    /// that differs; without a change two looks are equal.
    #[test]
    fn a_file_that_appears_or_changes_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let watched = places(vec![at("away")]);
        let mut looks = vec![watched.look().unwrap()];
        let file = File::create(at("back")).unwrap();
        for length in [64 << 20, 65 << 20] {
            file.set_len(length).unwrap();
            looks.push(watched.look().unwrap());
        }
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        looks.push(watched.look().unwrap());
        for pair in looks.windows(2) {
            assert_ne!(pair[0], pair[1]);
        }
        assert_eq!(looks.last(), Some(&watched.look().unwrap()));
    }

    /// Scenario: a pool writes to its disk, which is a file. Looks stay equal.
    #[test]
    fn what_pools_write_is_no_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let file = File::create(&path).unwrap();
        file.set_len(64 << 20).unwrap();
        let mut watched = places(vec![path.clone()]);
        watched.held = Connection::at(&path).map(|one| one.identity()).into_iter().collect();
        let before = watched.look().unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(watched.look().unwrap(), before);
    }
}
