//! Places to mount volumes on, as they are before a volume is made: what a mount would refuse is refused before anything is made.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Returns what keeps a volume from being mounted at a place, in words; a place that does not exist is made by the mount.
///
/// The file systems that the place lies on may hang, so this is for a thread that may wait.
pub(super) fn obstacle(place: &Path) -> Option<String> {
    let mut path = PathBuf::from("/");
    let mut device = fs::symlink_metadata("/").map(|root| root.dev()).ok();
    for component in place.components() {
        let Component::Normal(name) = component else { continue };
        path.push(name);
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => return Some(format!("{} cannot be looked at: {error}", path.display())),
        };
        if found.is_symlink() {
            return Some(format!("{} is a symbolic link; name the folder that it leads to", path.display()));
        }
        if !found.is_dir() {
            return Some(format!("{} is no folder", path.display()));
        }
        if path == place && device.is_some_and(|device| device != found.dev()) {
            return Some("something is mounted there; unmount it".to_owned());
        }
        device = Some(found.dev());
    }
    match fs::read_dir(place).map(|mut entries| entries.next()) {
        Ok(None) => None,
        Ok(Some(entry)) => {
            let name = entry.map(|entry| entry.file_name().to_string_lossy().into_owned());
            Some(format!("it is not empty: {:?} is there", name.unwrap_or_default()))
        }
        Err(error) => Some(format!("it cannot be listed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_mount_would_refuse_is_found_before() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("empty")).unwrap();
        fs::create_dir_all(at("full/x")).unwrap();
        fs::write(at("file"), "").unwrap();
        std::os::unix::fs::symlink(at("nowhere"), at("link")).unwrap();
        assert_eq!(obstacle(&at("empty")), None);
        assert_eq!(obstacle(&at("empty/new/below")), None);
        for (place, expected) in [
            ("full", "it is not empty: \"x\" is there"),
            ("file", "is no folder"),
            ("file/below", "is no folder"),
            ("link", "is a symbolic link"),
            ("link/below", "is a symbolic link"),
        ] {
            let found = obstacle(&at(place)).unwrap();
            assert!(found.contains(expected), "{place}: {found}");
        }
        assert!(obstacle(Path::new("/proc")).is_some_and(|found| found.contains("mounted there")));
    }
}
