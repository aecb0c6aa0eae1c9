//! Tests of the profiles.

use super::*;
use proptest::prelude::*;

fn host() -> Host {
    Host {
        xfsprogs: Some(Version::new(6, 13)),
        btrfs_progs: Some(Version::new(6, 14)),
        e2fsprogs: Some(Version::new(1, 47)),
        kernel: Version::new(6, 12),
        oldest_kernel: None,
        not_mountable: BTreeSet::new(),
    }
}

const SHAPE: SpaceShape = SpaceShape {
    bytes: 1 << 40,
    provisioning: Provisioning::Thin,
    redundancy: Redundancy::Present,
    stripe: Some(Stripe { interleave_bytes: 65536, data_columns: 4 }),
    sector_bytes: 4096,
};

fn request(purpose: Purpose) -> ProfileRequest {
    ProfileRequest { purpose, file_system: None, label: None, uuid: FileSystemUuid([7; 16]) }
}

fn choose(purpose: Purpose, host: &Host) -> Profile {
    Profile::choose(&request(purpose), host, SHAPE).unwrap()
}

fn argv(profile: &Profile, making: Making) -> String {
    profile.mkfs("/dev/loop0", making).unwrap().unwrap().join(" ")
}

const UUID: &str = "07070707-0707-0707-0707-070707070707";

#[test]
fn files_vms_and_databases_get_xfs_with_all_that_repair_needs() {
    for purpose in [Purpose::Files, Purpose::Vms, Purpose::Database] {
        let profile = choose(purpose, &host());
        let features = format!(
            "-m uuid={UUID},reflink=1,rmapbt=1,bigtime=1,inobtcount=1,metadir=0 -i nrext64=1,exchange=1 -n parent=1"
        );
        let rest = "-d noalign -s size=4096";
        assert_eq!(argv(&profile, Making::Make), format!("mkfs.xfs {features} {rest} -K /dev/loop0"));
        assert_eq!(argv(&profile, Making::MakeAgain), format!("mkfs.xfs -f {features} {rest} /dev/loop0"));
        assert_eq!(profile.mkfs("/dev/loop0", Making::Made), Ok(None));
        let mount: Vec<_> = profile.mount_options.iter().map(MountOption::as_str).collect();
        assert_eq!(mount, ["noatime", "nodev", "nosuid"]);
        assert_eq!(profile.missing, []);
    }
}

#[test]
fn the_cost_of_an_older_kernel_is_named_feature_by_feature() {
    let cost = |file_system, oldest| {
        let host = Host { oldest_kernel: Some(oldest), ..host() };
        let asked = ProfileRequest { file_system: Some(file_system), ..request(Purpose::Files) };
        let profile = Profile::choose(&asked, &host, SHAPE).unwrap();
        let reason = profile.reasons.iter().find(|reason| reason.starts_with("Kernel ")).cloned().unwrap();
        reason.rsplit_once(": ").unwrap().1.to_owned()
    };
    let nothing = "it reads all that mkfs turns on.";
    for (file_system, oldest, expected) in [
        (FileSystem::Xfs, (6, 1), "nrext64, exchange, parent."),
        (FileSystem::Xfs, (5, 10), "bigtime, inobtcount, nrext64, exchange, parent."),
        (FileSystem::Xfs, (6, 12), nothing),
        (FileSystem::Xfs, (7, 0), nothing),
        (FileSystem::Btrfs, (5, 15), "block-group-tree."),
        (FileSystem::Btrfs, (6, 1), nothing),
        (FileSystem::Ext4, (5, 10), "orphan_file."),
    ] {
        assert_eq!(cost(file_system, Version::new(oldest.0, oldest.1)), expected, "{file_system} {oldest:?}");
    }
    assert!(choose(Purpose::Files, &host()).reasons.iter().all(|reason| !reason.starts_with("Kernel ")));
}

/// The oldest kernel decides, not the one that makes the volume; an option that the tool lacks is never given.
#[test]
fn features_follow_the_oldest_kernel_and_the_tools() {
    let old = Host { oldest_kernel: Some(Version::new(6, 1)), ..host() };
    let profile = choose(Purpose::Files, &old);
    assert!(argv(&profile, Making::Make).contains("-i nrext64=0,exchange=0 -n parent=0"), "{profile:?}");
    let [missing] = profile.missing.as_slice() else { panic!("{:?}", profile.missing) };
    assert_eq!((missing.package, missing.needed), ("kernel", Version::new(6, 10)));

    let debian_12 = Host { xfsprogs: Some(Version::new(6, 1)), kernel: Version::new(6, 1), ..host() };
    let text = argv(&choose(Purpose::Files, &debian_12), Making::Make);
    assert!(text.contains(",inobtcount=1 -i nrext64=0 -d") && !text.contains("parent"), "{text}");

    let old_tools = Host { xfsprogs: Some(Version::new(6, 1)), ..host() };
    let profile = choose(Purpose::Files, &old_tools);
    let [missing] = profile.missing.as_slice() else { panic!("{:?}", profile.missing) };
    assert_eq!((missing.package, missing.needed), ("xfsprogs", Version::new(6, 10)));
    assert!(missing.lost.contains("repair"), "{}", missing.lost);

    let later = Host { oldest_kernel: Some(Version::new(7, 2)), ..old };
    assert_eq!(later.oldest(), Version::new(6, 12), "this host mounts it, too");
}

#[test]
fn documents_and_backups_are_compressed_where_the_host_can() {
    for purpose in [Purpose::Documents, Purpose::Backup] {
        let profile = choose(purpose, &host());
        let options = format!("-U {UUID} -d single -m single -s 4096 -O block-group-tree");
        assert_eq!(argv(&profile, Making::Make), format!("mkfs.btrfs {options} -K /dev/loop0"));
        assert_eq!(argv(&profile, Making::MakeAgain), format!("mkfs.btrfs -f {options} /dev/loop0"));
        assert!(profile.mount_options.iter().any(|option| option.as_str() == "compress=zstd:3"));
        for lacking in [
            Host { btrfs_progs: None, ..host() },
            Host { btrfs_progs: Some(Version::new(5, 10)), ..host() },
            Host { not_mountable: BTreeSet::from([FileSystem::Btrfs]), ..host() },
        ] {
            let profile = choose(purpose, &lacking);
            assert_eq!(profile.file_system, FileSystem::Xfs);
            assert!(profile.missing[0].lost.contains("not compressed"), "{:?}", profile.missing);
        }
    }
}

/// Of a volume of less than 1 GiB, with and without redundancy below it.
#[test]
fn block_groups_of_a_small_btrfs_are_mixed() {
    for redundancy in [Redundancy::Present, Redundancy::Absent] {
        let shape = |bytes| SpaceShape { bytes, redundancy, ..SHAPE };
        let made = |bytes| {
            let asked = request(Purpose::Documents);
            argv(&Profile::choose(&asked, &host(), shape(bytes)).unwrap(), Making::Make)
        };
        assert!(
            made((1 << 30) - 4096).contains("-d single -m single --mixed -n 4096 -s 4096"),
            "{redundancy:?}"
        );
        assert!(!made(1 << 30).contains("--mixed"), "{redundancy:?}");
    }
}

#[test]
fn metadata_of_btrfs_is_doubled_where_the_pool_cannot_heal_it() {
    let space = SpaceShape { redundancy: Redundancy::Absent, ..SHAPE };
    let profile = Profile::choose(&request(Purpose::Documents), &host(), space).unwrap();
    assert!(argv(&profile, Making::Make).contains("-m dup"));
    let old = Host { oldest_kernel: Some(Version::new(5, 15)), ..host() };
    assert!(argv(&choose(Purpose::Documents, &old), Making::Make).contains("-O ^block-group-tree"));
}

#[test]
fn only_a_fixed_parity_space_is_aligned_to() {
    let fixed = SpaceShape { provisioning: Provisioning::Fixed, ..SHAPE };
    let xfs = Profile::choose(&request(Purpose::Files), &host(), fixed).unwrap();
    assert!(argv(&xfs, Making::Make).contains("-d su=65536,sw=4"));
    let asked = ProfileRequest { file_system: Some(FileSystem::Ext4), ..request(Purpose::Files) };
    let ext4 = Profile::choose(&asked, &host(), fixed).unwrap();
    let common = format!(
        "-t ext4 -b 4096 -I 256 -m 0 -e remount-ro -O metadata_csum,64bit,orphan_file -U {UUID} -E stride=16,stripe_width=64"
    );
    assert_eq!(
        argv(&ext4, Making::Make),
        format!("mke2fs {common},nodiscard,assume_storage_prezeroed=1 /dev/loop0")
    );
    assert_eq!(argv(&ext4, Making::MakeAgain), format!("mke2fs -F {common} /dev/loop0"));
    let odd = SpaceShape { stripe: Some(Stripe { interleave_bytes: 6000, data_columns: 4 }), ..fixed };
    let xfs = Profile::choose(&request(Purpose::Files), &host(), odd).unwrap();
    assert!(argv(&xfs, Making::Make).contains("-d noalign"));
}

#[test]
fn what_cannot_be_made_is_refused_with_package_and_version() {
    let asked = |file_system| ProfileRequest { file_system: Some(file_system), ..request(Purpose::Files) };
    let bare = Host { xfsprogs: None, btrfs_progs: Some(Version::new(5, 10)), ..host() };
    let error = Profile::choose(&request(Purpose::Files), &bare, SHAPE).unwrap_err().to_string();
    assert_eq!(
        error,
        "making xfs needs xfsprogs 5.10 or later, and it is not installed; install it, or choose another file system"
    );
    let error = Profile::choose(&asked(FileSystem::Btrfs), &bare, SHAPE).unwrap_err().to_string();
    assert!(error.contains("btrfs-progs 5.15 or later, and 5.10 is installed"), "{error}");
    let without = Host { not_mountable: BTreeSet::from([FileSystem::Btrfs]), ..host() };
    let error = Profile::choose(&asked(FileSystem::Btrfs), &without, SHAPE).unwrap_err();
    assert!(matches!(error, ProfileError::NotMountable { .. }), "{error}");
    let old = Host { oldest_kernel: Some(Version::new(5, 4)), ..host() };
    let error = Profile::choose(&request(Purpose::Files), &old, SHAPE).unwrap_err();
    assert!(matches!(error, ProfileError::Kernel { .. }), "{error}");
    let small = SpaceShape { bytes: 100 << 20, ..SHAPE };
    let error = Profile::choose(&request(Purpose::Files), &host(), small).unwrap_err();
    assert!(matches!(error, ProfileError::TooSmall { .. }), "{error}");
    let large = SpaceShape { sector_bytes: 8192, ..SHAPE };
    let error = Profile::choose(&request(Purpose::Files), &host(), large).unwrap_err();
    assert!(matches!(error, ProfileError::Sector { .. }), "{error}");
    for device in ["", "loop0", "-f"] {
        let error = choose(Purpose::Files, &host()).mkfs(device, Making::Make).unwrap_err();
        assert!(matches!(error, ProfileError::Device { .. }), "{error}");
    }
}

#[test]
fn only_a_killed_run_of_mkfs_btrfs_leaves_a_superblock_to_erase() {
    let superblock = 65536..69632;
    let btrfs = choose(Purpose::Documents, &host());
    assert_eq!(btrfs.zeros_before(Making::MakeAgain), Some(superblock));
    assert_eq!(btrfs.zeros_before(Making::Make), None);
    assert_eq!(choose(Purpose::Files, &host()).zeros_before(Making::MakeAgain), None);
}

#[test]
fn reasons_are_sentences() {
    for purpose in Purpose::ALL {
        for file_system in FileSystem::ALL {
            let asked = ProfileRequest { file_system: Some(file_system), ..request(purpose) };
            for reason in Profile::choose(&asked, &host(), SHAPE).unwrap().reasons {
                assert!(reason.ends_with('.') && reason.split(' ').count() <= 25, "{reason}");
            }
        }
    }
}

proptest! {
    /// Whatever a profile chooses has a form that `mkfs` obeys.
    #[test]
    fn every_option_of_a_profile_is_obeyed(
        kind in 0..3_usize, label in proptest::option::of(".{1,20}"), purpose in 0..5_usize, versions in any::<[(bool, bool); 4]>(),
        fixed: bool, is_redundant: bool, stripe in proptest::option::of((1_u64..64, 1_u32..9)),
    ) {
        let version = |(old, newer): (bool, bool), versions: [(u32, u32); 3]| {
            let (major, minor) = versions[if old { 0 } else { 1 + usize::from(newer) }];
            Version::new(major, minor)
        };
        let host = Host {
            xfsprogs: Some(version(versions[0], [(5, 10), (6, 1), (6, 13)])),
            btrfs_progs: Some(version(versions[1], [(5, 15), (6, 2), (6, 14)])),
            e2fsprogs: Some(version(versions[2], [(1, 45), (1, 46), (1, 47)])),
            kernel: version(versions[3], [(5, 10), (6, 1), (6, 12)]),
            ..host()
        };
        let asked = ProfileRequest { file_system: Some(FileSystem::ALL[kind]), label, ..request(Purpose::ALL[purpose]) };
        let space = SpaceShape {
            provisioning: if fixed { Provisioning::Fixed } else { Provisioning::Thin },
            redundancy: if is_redundant { Redundancy::Present } else { Redundancy::Absent },
            stripe: stripe.map(|(blocks, data_columns)| Stripe { interleave_bytes: blocks * BLOCK_BYTES, data_columns }),
            ..SHAPE
        };
        let Ok(profile) = Profile::choose(&asked, &host, space) else { return Ok(()) };
        for options in [&profile.mkfs_options, &profile.mkfs_options_again] {
            prop_assert_eq!(option_of_no_profile(profile.file_system, options), None, "{:?}", options);
        }
    }

    /// Any label that a file system accepts is one argument behind `-L`, and changes no other.
    #[test]
    fn a_label_is_one_argument(text in ".{1,20}", kind in 0..3_usize, again: bool) {
        let file_system = Some(FileSystem::ALL[kind]);
        let with = ProfileRequest { file_system, label: Some(text.clone()), ..request(Purpose::Files) };
        let Ok(profile) = Profile::choose(&with, &host(), SHAPE) else { return Ok(()) };
        let without = ProfileRequest { file_system, ..request(Purpose::Files) };
        let without = Profile::choose(&without, &host(), SHAPE).unwrap();
        let making = if again { Making::MakeAgain } else { Making::Make };
        let mut found = profile.mkfs("/dev/x", making).unwrap().unwrap();
        let at = found.iter().position(|argument| argument == "-L").unwrap();
        let removed: Vec<_> = found.drain(at..at + 2).collect();
        prop_assert_eq!(&removed[1], &text);
        prop_assert_eq!(found, without.mkfs("/dev/x", making).unwrap().unwrap());
    }
}
