//! The table of places where the daemon looks for disks: one line for each kind.

use crate::disks::folders::Folders;
use crate::disks::image_files::ImageFiles;
use crate::disks::provider::DeviceProvider;
use crate::disks::system_devices::SystemDevices;

/// All kinds of places. The first that takes a path adds it.
pub(super) static PROVIDERS: &[&dyn DeviceProvider] = &[
    #[cfg(test)]
    &crate::disks::test_lists::TestLists,
    &Folders,
    &ImageFiles,
    &SystemDevices,
];

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::PathBuf;

    use super::*;
    use crate::disks::below::with_stacks;
    use crate::disks::provider::Places;

    /// Scenario: a file of the kind that only this program has names two disks in a folder, beside a file that is too small. Each
    /// disk is found once, by the list as by the folder.
    #[test]
    fn a_place_of_another_kind_needs_only_its_file_and_its_line_of_the_table() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().canonicalize().unwrap().join(name);
        for (name, length) in [("a", 64 << 20), ("b", 80 << 20), ("small", 4096)] {
            File::create(at(name)).unwrap().set_len(length).unwrap();
        }
        let list = folder.path().join("disks.test-list");
        fs::write(&list, format!("{}\n{}\n", at("b").display(), at("small").display())).unwrap();
        let found = |paths: &[PathBuf]| {
            with_stacks(|stacks| {
                let mut places = Places::new(stacks, PROVIDERS);
                paths.iter().for_each(|path| places.add(path));
                places.into_found()
            })
            .unwrap()
        };
        assert_eq!(found(std::slice::from_ref(&list)), [at("b")]);
        assert_eq!(found(&[list, folder.path().to_path_buf()]), [at("b"), at("a")]);
    }
}
