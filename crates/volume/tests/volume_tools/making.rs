//! Profiles, made by the real tools in files of their own.

use crate::{printed, run};
use dolmen_volume::check_output::{self, CheckOutcome};
use dolmen_volume::file_system::{FileSystem, FileSystemUuid};
use dolmen_volume::making::Making;
use dolmen_volume::profile::{
    Host, Profile, ProfileRequest, Provisioning, Purpose, Redundancy, SpaceShape, Stripe,
};
use dolmen_volume::tool_versions::{self, Tool};
use dolmen_volume::version::Version;
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;

fn version_of(tool: Tool) -> Option<Version> {
    let [program, argument] = tool.command();
    run(program, &[argument]).map(|output| tool_versions::parse(tool, &printed(&output)).unwrap())
}

/// Place of the UUID and of the label in a device.
fn places(file_system: FileSystem) -> (u64, u64) {
    match file_system {
        FileSystem::Xfs => (32, 108),
        FileSystem::Btrfs => (0x1_0020, 0x1_012b),
        FileSystem::Ext4 => (1024 + 104, 1024 + 120),
    }
}

/// Each file system, thin and fixed, for an old and a new kernel, is made twice, the second time with force: the tool accepts all
/// options, the device has the UUID and the label that were asked for, and the tool's check finds it clean.
#[test]
fn the_installed_tools_make_what_a_profile_plans() {
    let host = Host {
        xfsprogs: version_of(Tool::MkfsXfs),
        btrfs_progs: version_of(Tool::MkfsBtrfs),
        e2fsprogs: version_of(Tool::Mke2fs),
        kernel: Version::new(7, 2),
        oldest_kernel: None,
        not_mountable: BTreeSet::new(),
    };
    let folder = std::env::temp_dir().join(format!("dolmen-volume-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let device = folder.join("space");
    let path = device.to_str().unwrap();
    let label = "a b%\"\\-";
    for file_system in FileSystem::ALL.into_iter().filter(|file_system| host.tools(*file_system).is_some()) {
        for (case, oldest, provisioning, bytes) in [
            (1, None, Provisioning::Thin, file_system.bytes_min()),
            (2, Some(Version::new(5, 10)), Provisioning::Fixed, file_system.bytes_min()),
            (3, Some(Version::new(5, 10)), Provisioning::Fixed, 1 << 30),
        ] {
            let uuid = FileSystemUuid([case; 16]);
            let request = ProfileRequest {
                purpose: Purpose::Files,
                file_system: Some(file_system),
                label: Some(label.to_owned()),
                uuid,
            };
            let space = SpaceShape {
                bytes,
                provisioning,
                redundancy: Redundancy::Present,
                stripe: Some(Stripe { interleave_bytes: 65536, data_columns: 4 }),
                sector_bytes: 512,
            };
            let profile =
                Profile::choose(&request, &Host { oldest_kernel: oldest, ..host.clone() }, space).unwrap();
            let file = std::fs::File::create(&device).unwrap();
            file.set_len(space.bytes).unwrap();
            for making in [Making::Make, Making::MakeAgain] {
                if let Some(range) = profile.zeros_before(making) {
                    let device = std::fs::File::options().write(true).open(&device).unwrap();
                    let zeros = vec![0; usize::try_from(range.end - range.start).unwrap()];
                    device.write_all_at(&zeros, range.start).unwrap();
                }
                let argv = profile.mkfs(path, making).unwrap().unwrap();
                let output = run(&argv[0], &argv[1..]).unwrap();
                assert!(output.status.success(), "{argv:?}: {}", printed(&output));
                let (at_uuid, at_label) = places(file_system);
                let file = std::fs::File::open(&device).unwrap();
                let (mut found, mut text) = ([0; 16], [0; 8]);
                file.read_exact_at(&mut found, at_uuid).unwrap();
                file.read_exact_at(&mut text, at_label).unwrap();
                assert_eq!(FileSystemUuid(found), uuid, "{argv:?}");
                assert_eq!(std::str::from_utf8(&text[..label.len()]), Ok(label), "{argv:?}");
                let check = check_output::check_command(file_system, path);
                let output = run(&check[0], &check[1..]).unwrap();
                let report =
                    check_output::parse(file_system, output.status.code(), printed(&output).as_bytes());
                assert_eq!(report.outcome, CheckOutcome::Clean, "{report:?}: {}", printed(&output));
                assert_eq!(report.findings, [], "{}", printed(&output));
            }
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A device with content is refused by the tool as long as no force is given.
#[test]
fn xfs_and_btrfs_refuse_a_device_with_content_unless_forced() {
    let folder = std::env::temp_dir().join(format!("dolmen-volume-content-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let device = folder.join("space");
    let path = device.to_str().unwrap();
    std::fs::File::create(&device).unwrap().set_len(FileSystem::Xfs.bytes_min()).unwrap();
    let made = run("mke2fs", &["-q", "-F", path]);
    for program in ["mkfs.xfs", "mkfs.btrfs"] {
        if let (Some(_), Some(output)) = (&made, run(program, &[path])) {
            assert!(!output.status.success(), "{program}: {}", printed(&output));
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
