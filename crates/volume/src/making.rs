//! May `mkfs` run, and may a volume be mounted: the decisions that stand between Dolmen and data that it did not make.
//!
//! Both are tables over the state on record and what was read from the device just before. `mkfs` gets force in one case:
//! the record is `making`, so nobody was ever given the volume, and the device has this record's own file system, or what a `mkfs`
//! left that was cut short: bytes that no tool knows, on a device that read as zeros before.

use crate::file_system::{FileSystem, FileSystemUuid};
use crate::record::{VolumeRecord, VolumeState};
use dolmen_mutation::mutation;

/// Content at the begin of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Zeros, as on a new space.
    Zeros,
    /// A file system with its UUID.
    FileSystem {
        /// Name of the file system, as the probe reports it.
        kind: String,
        /// Its UUID.
        uuid: FileSystemUuid,
    },
    /// Bytes that no tool knows, as a `mkfs` leaves them that is cut short.
    Unknown,
    /// Something else, or a file system without a UUID that can be read.
    Other {
        /// Name of the content, as the probe reports it.
        kind: String,
    },
}

/// The next step of a volume that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Making {
    /// Run `mkfs` without force: it refuses a device with content by itself.
    Make,
    /// Run `mkfs` with force: an earlier run was killed.
    MakeAgain,
    /// Nothing to make.
    Made,
}

/// A volume that cannot be made or mounted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// The device has content of another origin.
    #[error(
        "the device of a new volume has {found}, not zeros or its own {expected}; it is left as it is: delete the volume, and look at its space first if others wrote there"
    )]
    ForeignContent {
        /// Content of the device.
        found: String,
        /// File system and UUID on record.
        expected: String,
    },
    /// The file system of a finished volume is absent or another one.
    #[error(
        "the device has {found}, and the record expects {expected}; it is not mounted: check that the space is the right one"
    )]
    NotTheVolume {
        /// Content of the device.
        found: String,
        /// File system and UUID on record.
        expected: String,
    },
    /// The record has an option that no mount obeys.
    #[error(
        "the record has the mount option {option:?}, and a mount obeys those that profiles and quotas give; it is not mounted: adopt the space again, without the option"
    )]
    Option {
        /// The first such option.
        option: String,
    },
    /// The record has a mount point within the system.
    #[error(
        "the record has the mount point {path}, which is part of {tree}, where no volume is mounted; mount it elsewhere: `dolmen volume mount` with --mount gives it another one"
    )]
    Place {
        /// Mount point.
        path: String,
        /// Tree of the system.
        tree: &'static str,
    },
    /// The record has an option of `mkfs` that no profile gives.
    #[error(
        "the record has the mkfs option {option:?}, and mkfs obeys those that profiles give; nothing is made: delete the volume, and create it again"
    )]
    MkfsOption {
        /// The first such option, with its value.
        option: String,
    },
    /// The state on record forbids it.
    #[error(
        "the volume is {state:?}, and only a ready or adopted one is mounted; wait for its job, or look at its state"
    )]
    State {
        /// State on record.
        state: VolumeState,
    },
}

fn describe(content: &Content) -> String {
    match content {
        Content::Zeros => "zeros".to_owned(),
        Content::FileSystem { kind, uuid } => format!("{kind:?} with UUID {uuid}"),
        Content::Unknown => "data that no tool knows".to_owned(),
        Content::Other { kind } => format!("{kind:?}"),
    }
}

fn expected(record: &VolumeRecord) -> String {
    format!("{} with UUID {}", record.file_system, record.uuid)
}

/// Decides what is to be made on the device of a volume.
///
/// # Errors
/// Fails if the device has content that this record does not own, or lacks content that it must have, or if `mkfs` would run with an
/// option that no profile gives.
pub fn next_making(record: &VolumeRecord, content: &Content) -> Result<Making, ContentError> {
    let making = making_over(record, content)?;
    match (making, record.mkfs_option_not_obeyed()) {
        (Making::Make | Making::MakeAgain, Some(option)) => Err(ContentError::MkfsOption { option }),
        (Making::Make | Making::MakeAgain, None) | (Making::Made, _) => Ok(making),
    }
}

/// Decides by state and content alone.
fn making_over(record: &VolumeRecord, content: &Content) -> Result<Making, ContentError> {
    let own = is_own(record.file_system, record.uuid, content);
    let foreign = record.state == VolumeState::Foreign && !mutation!(AdoptedFormatted);
    match record.state {
        VolumeState::Making | VolumeState::Foreign if !foreign => match content {
            Content::Zeros => Ok(Making::Make),
            Content::Unknown if record.is_mkfs_begun || mutation!(UnknownContentFormatted) => {
                Ok(Making::MakeAgain)
            }
            Content::FileSystem { .. } | Content::Other { .. } if own || mutation!(MkfsWithoutUuidCheck) => {
                Ok(Making::MakeAgain)
            }
            Content::Unknown | Content::FileSystem { .. } | Content::Other { .. } => {
                Err(ContentError::ForeignContent { found: describe(content), expected: expected(record) })
            }
        },
        _ if own => Ok(Making::Made),
        _ => Err(ContentError::NotTheVolume { found: describe(content), expected: expected(record) }),
    }
}

/// Decides whether a device may be mounted as the volume of a record.
///
/// # Errors
/// Fails if the volume is not whole, if its record has an option that no mount obeys or a place of the system, or if the device has
/// another file system than the one on record.
pub fn may_mount(record: &VolumeRecord, content: &Content) -> Result<(), ContentError> {
    match record.state {
        VolumeState::Ready | VolumeState::Foreign => {}
        VolumeState::Making | VolumeState::Deleting => {
            return Err(ContentError::State { state: record.state });
        }
    }
    if let Some(option) = record.option_not_obeyed() {
        return Err(ContentError::Option { option: option.to_string() });
    }
    if let Some(tree) = record.mount_point.system_tree().filter(|_| !mutation!(SystemTreeMounted)) {
        return Err(ContentError::Place { path: record.mount_point.to_string(), tree });
    }
    if is_own(record.file_system, record.uuid, content) || mutation!(MountedWithoutUuid) {
        Ok(())
    } else {
        Err(ContentError::NotTheVolume { found: describe(content), expected: expected(record) })
    }
}

/// Whether a device has the file system of a record.
fn is_own(file_system: FileSystem, uuid: FileSystemUuid, content: &Content) -> bool {
    match content {
        Content::FileSystem { kind, uuid: found } => kind == file_system.name() && *found == uuid,
        Content::Zeros | Content::Unknown | Content::Other { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::a_volume;

    fn contents(record: &VolumeRecord) -> [(&'static str, Content); 7] {
        let file_system = |kind: &str, uuid| Content::FileSystem { kind: kind.to_owned(), uuid };
        let other = FileSystemUuid([9; 16]);
        [
            ("zeros", Content::Zeros),
            ("own", file_system(record.file_system.name(), record.uuid)),
            ("other uuid", file_system(record.file_system.name(), other)),
            ("other kind", file_system("btrfs", record.uuid)),
            ("unknown kind", file_system("zfs_member", other)),
            ("unknown data", Content::Unknown),
            ("no file system", Content::Other { kind: "LVM2_member".to_owned() }),
        ]
    }

    /// Each state meets each content: `mkfs` runs on a volume in the making alone, and only over zeros or its own file system.
    #[test]
    fn mkfs_runs_over_zeros_or_its_own_file_system_alone() {
        let states = VolumeState::ALL.into_iter().flat_map(|state| [(state, false), (state, true)]);
        for (state, is_mkfs_begun) in states {
            let record = VolumeRecord { state, is_mkfs_begun, ..a_volume() };
            for (name, content) in contents(&record) {
                let found = next_making(&record, &content);
                let expected = match (state, name) {
                    (VolumeState::Making, "zeros") => Some(Making::Make),
                    (VolumeState::Making, "own") => Some(Making::MakeAgain),
                    (VolumeState::Making, "unknown data") if is_mkfs_begun => Some(Making::MakeAgain),
                    (_, "own") => Some(Making::Made),
                    _ => None,
                };
                assert_eq!(
                    found.clone().ok(),
                    expected,
                    "mkfs over {name} of a volume that is {state:?}, begun {is_mkfs_begun}: {found:?}"
                );
            }
        }
    }

    #[test]
    fn a_volume_is_mounted_by_its_uuid_alone() {
        for state in VolumeState::ALL {
            let record = VolumeRecord { state, ..a_volume() };
            for (name, content) in contents(&record) {
                let whole = matches!(state, VolumeState::Ready | VolumeState::Foreign);
                let found = may_mount(&record, &content);
                assert_eq!(found.is_ok(), whole && name == "own", "a mount of {name}, {state:?}: {found:?}");
            }
        }
    }

    #[test]
    fn a_record_with_an_option_of_another_origin_is_not_mounted() {
        let content = contents(&a_volume())[1].1.clone();
        let mount = |option: &str| {
            let mount_options = vec!["noatime".parse().unwrap(), option.parse().unwrap()];
            may_mount(&VolumeRecord { mount_options, ..a_volume() }, &content)
        };
        let obeyed = ["nodev", "nosuid", "nodiscard", "compress=zstd:3", "prjquota", "ro"];
        for option in obeyed {
            assert_eq!(mount(option), Ok(()), "{option}");
        }
        let refused = [
            "suid",
            "dev",
            "logdev=/dev/sda",
            "journal_path=/dev/sda",
            "loop",
            "bind",
            "compress=zstd:3x",
            "compress=",
        ];
        for option in refused {
            let error = ContentError::Option { option: option.to_owned() };
            assert_eq!(mount(option), Err(error), "the option {option} was obeyed");
        }
    }

    #[test]
    fn no_record_is_mounted_within_the_system() {
        let content = contents(&a_volume())[1].1.clone();
        for path in ["/usr/local/sbin", "/etc/cron.d", concat!("/root", "/.ssh"), "/var/lib"] {
            let record = VolumeRecord { mount_point: path.parse().unwrap(), ..a_volume() };
            let error = may_mount(&record, &content).expect_err("a mount within the system");
            assert!(error.to_string().contains(path), "{error}");
        }
    }

    /// Scenario: a record in the making, with each kind of option that no profile gives, on a device that reads as zeros and on one
    /// that an earlier run has written.
    #[test]
    fn mkfs_gets_no_option_that_no_profile_gives() {
        let make = |file_system, options: &[&str], content: &Content| {
            let mkfs_options = options.iter().map(|option| (*option).to_owned()).collect();
            let state = VolumeState::Making;
            next_making(&VolumeRecord { state, file_system, mkfs_options, ..a_volume() }, content)
        };
        for (file_system, options, named) in [
            (FileSystem::Xfs, &["-q", "-l", "logdev=/dev/sdb"][..], "-l"),
            (FileSystem::Xfs, &["-r", "rtdev=/dev/sdb"], "-r"),
            (FileSystem::Xfs, &["-d", "noalign,name=/dev/sdb"], "-d noalign,name=/dev/sdb"),
            (FileSystem::Xfs, &["-d", "file=1"], "-d file=1"),
            (FileSystem::Xfs, &["-m", "rmapbt=1,uuid=x"], "-m rmapbt=1,uuid=x"),
            (FileSystem::Xfs, &["-p", "/etc/shadow"], "-p"),
            (FileSystem::Xfs, &["-K", "/dev/sdb"], "/dev/sdb"),
            (FileSystem::Xfs, &["-c", "options=/etc/x"], "-c"),
            (FileSystem::Xfs, &["-L"], "-L"),
            (FileSystem::Xfs, &["-L", "thirteen bytes"], "-L thirteen bytes"),
            (FileSystem::Btrfs, &["-r", "/etc"], "-r"),
            (FileSystem::Btrfs, &["-d", "raid1", "/dev/sdb"], "-d raid1"),
            (FileSystem::Btrfs, &["--rootdir=/etc"], "--rootdir=/etc"),
            (FileSystem::Ext4, &["-d", "/etc"], "-d"),
            (FileSystem::Ext4, &["-J", "device=/dev/sdb"], "-J"),
            (FileSystem::Ext4, &["-E", "stride=16,offset=512"], "-E stride=16,offset=512"),
            (FileSystem::Ext4, &["-z", "/etc/undo"], "-z"),
            (FileSystem::Ext4, &["-l", "/etc/shadow"], "-l"),
        ] {
            let own = Content::FileSystem { kind: file_system.name().to_owned(), uuid: a_volume().uuid };
            let error = Err(ContentError::MkfsOption { option: named.to_owned() });
            for content in [&Content::Zeros, &own] {
                let found = make(file_system, options, content);
                assert_eq!(found, error, "mkfs of {file_system} obeyed {options:?}");
            }
        }
    }

    #[test]
    fn the_error_shows_what_was_found_and_what_was_expected() {
        let record = VolumeRecord { state: VolumeState::Making, ..a_volume() };
        let error =
            next_making(&record, &Content::Other { kind: "LVM2_member".to_owned() }).unwrap_err().to_string();
        assert!(error.contains("LVM2_member") && error.contains(&record.uuid.to_string()), "{error}");
    }
}
