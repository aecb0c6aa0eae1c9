//! Connection of a disk to the system: a device that was taken out and plugged in again is another connection, also under the same
//! name and number.

use std::fs;
use std::path::Path;

use crate::state::identity::{Identity, identity};

/// Connection of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Connection {
    identity: Identity,
    /// Number that the kernel gives each medium of a block device once, where it has such numbers.
    sequence: Option<u64>,
}

impl Connection {
    /// Returns the connection of what is at a path.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        let identity = identity(path)?;
        Some(Self { identity, sequence: sequence_of(identity) })
    }

    /// Returns what the device or file is.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns whether the system has this connection no more. The path is where a file was.
    pub(crate) fn has_ended(&self, path: &Path) -> bool {
        match self.identity.0 {
            true => is_unplugged(self.identity) || sequence_of(self.identity) != self.sequence,
            false => identity(path) != Some(self.identity),
        }
    }
}

/// Returns the folder of a block device in sysfs.
fn folder_of(number: u64) -> String {
    format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number))
}

fn sequence_of((is_device, number, _): Identity) -> Option<u64> {
    let folder = is_device.then(|| folder_of(number))?;
    // The folder of a partition lies in that of its disk, which has the number.
    let text = ["diskseq", "../diskseq"].map(|file| fs::read_to_string(format!("{folder}/{file}")).ok());
    text.into_iter().flatten().next()?.trim().parse().ok()
}

/// Returns whether the system has no such device any more, or makes it empty before it takes it away.
pub(crate) fn is_unplugged((is_device, number, _): Identity) -> bool {
    let folder = folder_of(number);
    is_device
        && match fs::read_to_string(format!("{folder}/size")) {
            Ok(sectors) => sectors.trim() == "0",
            Err(_) => Path::new("/sys/dev/block").exists() && !Path::new(&folder).exists(),
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a file is renamed, and another one takes its name. Its connection has ended at that path, and the other one is a
    /// connection of its own.
    #[test]
    fn another_file_under_the_name_is_another_connection() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        fs::write(&path, "one").unwrap();
        let one = Connection::at(&path).unwrap();
        assert!(!one.has_ended(&path));
        fs::rename(&path, folder.path().join("away")).unwrap();
        assert!(one.has_ended(&path));
        fs::write(&path, "other").unwrap();
        assert!(one.has_ended(&path) && Connection::at(&path) != Some(one));
        fs::rename(folder.path().join("away"), &path).unwrap();
        assert!(!one.has_ended(&path));
    }

    /// Scenario: a device has a later number of its medium than the connection that is remembered. That connection has ended.
    #[test]
    fn a_device_with_another_medium_is_another_connection() {
        let numbered = |entry: fs::DirEntry| {
            let (major, minor) =
                entry.file_name().to_str()?.split_once(':').map(|(a, b)| (a.parse(), b.parse()))?;
            let identity = (true, rustix::fs::makedev(major.ok()?, minor.ok()?), 0);
            sequence_of(identity).filter(|_| !is_unplugged(identity)).map(|sequence| (identity, sequence))
        };
        let devices = fs::read_dir("/sys/dev/block").into_iter().flatten().flatten();
        for (identity, sequence) in devices.filter_map(numbered) {
            let before = Connection { identity, sequence: Some(sequence + 1) };
            assert!(before.has_ended(Path::new("/dev/null")), "{before:?}");
        }
    }
}
