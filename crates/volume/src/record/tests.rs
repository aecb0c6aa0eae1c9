//! Tests of the records.

use super::*;
use crate::file_system::{FileSystem, FileSystemUuid};
use crate::nfs::tests::any_client;
use crate::profile::Purpose;
use crate::schedule::tests::any_schedule;
use crate::version::Version;
use dolmen_units::HostId;
use proptest::prelude::*;

/// A volume with a value in each field.
pub(crate) fn a_volume() -> VolumeRecord {
    VolumeRecord {
        state: VolumeState::Ready,
        desired: DesiredVolume::Mounted,
        file_system: FileSystem::Xfs,
        uuid: FileSystemUuid([7; 16]),
        label: Some("home".to_owned()),
        purpose: Some(Purpose::Files),
        mkfs_options: vec!["-m".to_owned(), "rmapbt=1".to_owned()],
        is_mkfs_begun: false,
        is_growing: false,
        mount_options: vec!["noatime".parse().unwrap()],
        mount_point: "/srv/home".parse().unwrap(),
        placed_by: Some(HostId([3; 16])),
        oldest_kernel: Some(Version::new(6, 1)),
        schedules: Schedules { trim: "weekly sunday 02:00".parse().unwrap(), ..Schedules::default() },
        deduplication: None,
        unknown: Unknown::new(),
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[a-z]{1,3}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Fields with names that no build has.
fn any_unknown() -> impl Strategy<Value = Unknown> {
    proptest::collection::btree_map("x-.{0,6}", any_value(), 0..3).prop_map(|map| map.into_iter().collect())
}

fn any_folder() -> impl Strategy<Value = crate::mount_point::Folder> {
    "([^/.\\p{C}]{1,6}(/[^/.\\p{C}]{1,6}){0,2})?".prop_map(|text| text.parse().unwrap())
}

fn any_volume() -> impl Strategy<Value = VolumeRecord> {
    let choices = (0..4_usize, any::<bool>(), 0..3_usize, any::<[u8; 16]>(), 0..6_usize);
    let texts = (
        proptest::option::of(".{0,12}"),
        proptest::collection::vec(".{0,12}", 0..4),
        proptest::collection::vec("[^,\\s\\p{C}]{1,12}", 0..4),
        "/[^/.\\p{C}]{1,12}",
    );
    let schedules = (any_schedule(), any_schedule(), any_schedule(), any_unknown())
        .prop_map(|(check, trim, deduplication, unknown)| Schedules { check, trim, deduplication, unknown });
    let deduplication =
        (any::<(bool, u32, u64)>(), proptest::collection::vec(any_folder(), 0..3), any_unknown());
    let more = (proptest::collection::vec(".{0,8}", 0..3), any::<Option<u64>>());
    let deduplication = (deduplication, more).prop_map(|((numbers, excluded, unknown), more)| {
        let (background, age_days_min, file_bytes_min) = numbers;
        let (excluded_names, memory_bytes) = more;
        let mode = if background { DeduplicationMode::Background } else { DeduplicationMode::Throughput };
        Deduplication { mode, age_days_min, file_bytes_min, excluded, excluded_names, memory_bytes, unknown }
    });
    let kernel = proptest::option::of(any::<(u32, u32)>());
    (choices, texts, schedules, proptest::option::of(deduplication), kernel, any_unknown()).prop_map(
        |(
            (state, mounted, kind, uuid, purpose),
            (label, mkfs, mount, point),
            schedules,
            deduplication,
            kernel,
            unknown,
        )| {
            VolumeRecord {
                state: VolumeState::ALL[state],
                desired: if mounted { DesiredVolume::Mounted } else { DesiredVolume::Unmounted },
                file_system: FileSystem::ALL[kind],
                uuid: FileSystemUuid(uuid),
                label,
                purpose: Purpose::ALL.get(purpose).copied(),
                is_mkfs_begun: uuid[0] % 2 == 0,
                is_growing: uuid[3] % 2 == 0,
                mkfs_options: mkfs,
                mount_options: mount.iter().map(|text| text.parse().unwrap()).collect(),
                mount_point: point.parse().unwrap(),
                placed_by: (uuid[1] % 3 != 0).then_some(HostId([uuid[2]; 16])),
                oldest_kernel: kernel.map(|(major, minor)| Version::new(major, minor)),
                schedules,
                deduplication,
                unknown,
            }
        },
    )
}

fn any_share() -> impl Strategy<Value = ShareRecord> {
    let access = |write| if write { Access::ReadWrite } else { Access::ReadOnly };
    let account = (any::<(bool, bool)>(), "[^\"%@+&\\s\\p{C}][^\"%\\s\\p{C}]{0,8}", any_unknown());
    let account = account.prop_map(move |((group, write), name, unknown)| AccountGrant {
        to: if group { AccountKind::Group } else { AccountKind::User },
        name: name.parse().unwrap(),
        access: access(write),
        unknown,
    });
    let network = (any_client(), any::<bool>(), any_unknown())
        .prop_map(move |(client, write, unknown)| NetworkGrant { client, access: access(write), unknown });
    let lists = (proptest::collection::vec(account, 0..3), proptest::collection::vec(network, 0..3));
    ("x[a-z0-9 ]{0,8}x", any_folder(), any::<(bool, bool, bool)>(), lists, any_unknown()).prop_map(
        |(name, folder, (smb, nfs, served), (accounts, networks), unknown)| ShareRecord {
            name: name.parse().unwrap(),
            folder,
            protocols: [(smb, Protocol::Smb), (nfs, Protocol::Nfs)]
                .into_iter()
                .filter_map(|(has, protocol)| has.then_some(protocol))
                .collect(),
            desired: if served { DesiredShare::Served } else { DesiredShare::Off },
            accounts,
            encryption: if smb == served { Encryption::Required } else { Encryption::Desired },
            time_machine_bytes: (smb && nfs).then_some(1 << 40),
            networks,
            granted_by: smb.then_some(HostId([7; 16])),
            unknown,
        },
    )
}

#[test]
fn the_version_comes_first() {
    let text = String::from_utf8(a_volume().encode().unwrap()).unwrap();
    assert!(text.starts_with("{\"version\":1,\"state\":\"ready\","), "{text}");
}

/// A later version, and what is no record, are errors that name the record; nothing is read of them.
#[test]
fn a_later_version_and_nonsense_are_typed_errors() {
    let later = VolumeRecord::decode(br#"{"version":2,"state":"folded"}"#);
    assert_eq!(later, Err(RecordError::Later { record: "volume", found: 2 }));
    for bytes in [
        b"".as_slice(),
        b"\xff\xfe",
        b"[]",
        b"{}",
        b"null",
        br#"{"version":0}"#,
        br#"{"version":"1"}"#,
        br#"{"version":-1}"#,
        br#"{"version":1,"version":1}"#,
    ] {
        let error = ShareRecord::decode(bytes).unwrap_err();
        assert!(matches!(error, RecordError::NoVersion { record: "share", .. }), "{error}");
    }
    let text = String::from_utf8(a_volume().encode().unwrap()).unwrap();
    for (from, to) in [
        ("\"ready\"", "\"frozen\""),
        ("\"/srv/home\"", "\"/srv/../etc\""),
        ("[\"noatime\"]", "[\"noatime,suid\"]"),
        ("\"xfs\"", "\"zfs\""),
        ("\"state\":", "\"status\":"),
        ("\"state\":\"ready\"", "\"state\":\"ready\",\"state\":\"making\""),
        ("\"6.1\"", "\"six\""),
        ("\"weekly sunday 02:00\"", "\"weekly\""),
    ] {
        let changed = text.replace(from, to);
        assert_ne!(changed, text, "{from}");
        let error = VolumeRecord::decode(changed.as_bytes()).unwrap_err();
        assert!(matches!(error, RecordError::Field { record: "volume", .. }), "{from}: {error}");
    }
    let none = br#"{"version":1,"folder":"a","project_id":0}"#;
    assert!(matches!(QuotaRecord::decode(none), Err(RecordError::Field { record: "quota", .. })));
}

#[test]
fn a_record_that_the_map_cannot_keep_is_refused() {
    let mut record = a_volume();
    let bytes = record.encode().unwrap().len();
    let fill = |count: usize| Some("x".repeat(4 + count));
    record.label = fill(RECORD_BYTES_MAX - bytes);
    let most = record.encode().unwrap();
    assert_eq!((most.len(), VolumeRecord::decode(&most)), (RECORD_BYTES_MAX, Ok(record.clone())));
    record.label = fill(RECORD_BYTES_MAX - bytes + 1);
    let found = RECORD_BYTES_MAX + 1;
    assert_eq!(record.encode(), Err(RecordError::TooLong { record: "volume", found }));
    let bytes = [most.as_slice(), b" "].concat();
    assert_eq!(VolumeRecord::decode(&bytes), Err(RecordError::TooLong { record: "volume", found }));
}

/// Devices and set-user-id programs of a volume are obeyed where its record asks for them, and nowhere else.
#[test]
fn a_mount_obeys_no_devices_and_no_set_user_id_programs_unless_asked() {
    let options = |list: &[&str]| {
        let mount_options = list.iter().map(|option| option.parse().unwrap()).collect();
        VolumeRecord { mount_options, ..a_volume() }.options_for_mount()
    };
    assert_eq!(options(&[]), "nodev,nosuid", "the guards of a mount");
    assert_eq!(options(&["noatime", "nosuid"]), "noatime,nosuid,nodev");
    assert_eq!(options(&["dev", "suid"]), "dev,suid");
    assert_eq!(options(&["defaults"]), "defaults,nodev,nosuid");
}

proptest! {
    #[test]
    fn a_volume_and_its_unknown_fields_come_back(record in any_volume()) {
        if let Ok(bytes) = record.encode() {
            prop_assert_eq!(VolumeRecord::decode(&bytes), Ok(record));
        }
    }

    #[test]
    fn a_share_and_its_unknown_fields_come_back(record in any_share()) {
        if let Ok(bytes) = record.encode() {
            prop_assert_eq!(ShareRecord::decode(&bytes), Ok(record));
        }
    }

    #[test]
    fn a_quota_and_its_unknown_fields_come_back(
        folder in any_folder(), limit_bytes: Option<u64>, limit_files: Option<u64>, project_id: std::num::NonZeroU32, is_pending: bool,
        is_being_removed: bool, unknown in any_unknown(),
    ) {
        let record =
            QuotaRecord { folder, limit_bytes, limit_files, project_id, is_pending, is_being_removed, unknown };
        if let Ok(bytes) = record.encode() {
            prop_assert_eq!(QuotaRecord::decode(&bytes), Ok(record));
        }
    }

    #[test]
    fn a_run_and_its_unknown_fields_come_back(
        numbers: [u64; 8], background: bool, is_stopped: bool, unknown in any_unknown(),
    ) {
        let [began_s, ended_s, saved_bytes, released_bytes, held_bytes, compressed_bytes, freed_bytes, undone_bytes] =
            numbers;
        let mode = if background { DeduplicationMode::Background } else { DeduplicationMode::Throughput };
        let run = DeduplicationRun {
            began_s, ended_s, mode, saved_bytes, released_bytes, held_bytes, compressed_bytes, freed_bytes,
            undone_bytes, undos: undone_bytes / 2, is_stopped, unknown,
        };
        if let Ok(bytes) = run.encode() {
            prop_assert_eq!(DeduplicationRun::decode(&bytes), Ok(run));
        }
    }

    #[test]
    fn no_bytes_stop_the_readers(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = (VolumeRecord::decode(&bytes), QuotaRecord::decode(&bytes), ShareRecord::decode(&bytes));
        let _ = DeduplicationRun::decode(&bytes);
    }

    /// One byte of a record is changed: it reads as a record or as a typed error.
    #[test]
    fn a_damaged_record_is_read_or_refused(at: proptest::sample::Index, byte: u8) {
        let mut bytes = a_volume().encode().unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(record) = VolumeRecord::decode(&bytes) {
            prop_assert_eq!(VolumeRecord::decode(&record.encode().unwrap()), Ok(record));
        }
    }

    #[test]
    fn an_option_of_a_mount_is_one_option(text in ".*") {
        if let Ok(option) = text.parse::<MountOption>() {
            prop_assert_eq!(option.as_str().split(',').count(), 1);
        }
    }
}
