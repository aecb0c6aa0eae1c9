//! The program on loop devices, with the tools of this machine.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod rig;

use std::fs::{self, File};
use std::process::Command;

use dolmen_worker::protocol::{FailureCode, Operation, Order, Outcome};
use rig::{MIB, Rig, work};

/// Whether this process may grow a mounted ext4.
fn may_grow_ext4() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    let cap_sys_resource = 24;
    u64::from_str_radix(effective.trim(), 16).unwrap() >> cap_sys_resource & 1 == 1
}

fn a_volume_lives(kind: &'static str) {
    let Some(rig) = Rig::made(kind) else { return };
    let volume = rig.volume();
    let mount = || rig.run(Operation::Mount { volume: volume.clone() });
    let unmount = || rig.run(Operation::Unmount { volume: volume.clone() });
    assert_eq!(mount(), Ok(Outcome::Done));
    assert_eq!(mount(), Ok(Outcome::WasDone));
    fs::write(rig.path("home/file"), vec![7; 1 << 20]).unwrap();
    let total = || match rig.run(Operation::Usage { volume: volume.clone() }) {
        Ok(Outcome::Usage { total, free, .. }) if free < total => total,
        other => panic!("{other:?}"),
    };
    let before = total();
    File::options().write(true).open(rig.path("image")).unwrap().set_len(800 * MIB).unwrap();
    assert!(Command::new("losetup").arg("-c").arg(&rig.device).status().unwrap().success());
    let grows = kind != "ext4" || may_grow_ext4();
    if !grows {
        println!("skipped: a mounted ext4 grows with CAP_SYS_RESOURCE alone");
    }
    for _ in 0..if grows { 2 } else { 0 } {
        assert_eq!(rig.run(Operation::Grow { volume: volume.clone() }), Ok(Outcome::Done));
    }
    assert!(!grows || total() > before + 300 * MIB, "{before}");
    let trimmed = rig.run(Operation::Trim { volume: volume.clone(), minimum: 4096 });
    assert!(matches!(trimmed, Ok(Outcome::Trimmed { bytes }) if bytes > 0), "{trimmed:?}");
    let check = |repair| rig.run(Operation::Check { volume: volume.clone(), repair });
    assert_eq!(check(false).unwrap_err().code, FailureCode::InUse);
    assert_eq!(unmount(), Ok(Outcome::Done));
    assert_eq!(unmount(), Ok(Outcome::WasDone));
    assert!(matches!(check(false), Ok(Outcome::Checked { code: 0, .. })));
    assert_eq!(
        rig.run(Operation::Trim { volume: volume.clone(), minimum: 0 }).unwrap_err().code,
        FailureCode::InUse
    );
    assert_eq!(mount(), Ok(Outcome::Done));
    assert_eq!(fs::read(rig.path("home/file")).unwrap(), vec![7; 1 << 20]);
    assert_eq!(unmount(), Ok(Outcome::Done));
}

#[test]
fn a_volume_on_xfs_is_made_mounted_grown_trimmed_and_checked() {
    a_volume_lives("xfs");
}

#[test]
fn a_volume_on_btrfs_is_made_mounted_grown_trimmed_and_checked() {
    a_volume_lives("btrfs");
}

#[test]
fn a_volume_on_ext4_is_made_mounted_grown_trimmed_and_checked() {
    a_volume_lives("ext4");
}

#[test]
fn nothing_is_mounted_over_what_is_there() {
    // Scenario: a folder with a file; a symbolic link on the way; a file; the volume mounted elsewhere; another mount there.
    let Some(rig) = Rig::made("xfs") else { return };
    let mount = |name: &str| rig.run(Operation::Mount { volume: rig.volume_at("ready", name) });
    fs::create_dir(rig.path("full")).unwrap();
    fs::write(rig.path("full/kept"), b"x").unwrap();
    let refused = mount("full").unwrap_err();
    assert!(refused.code == FailureCode::InUse && refused.message.contains("kept"), "{refused}");
    std::os::unix::fs::symlink(rig.path("full"), rig.path("link")).unwrap();
    for name in ["link", "link/below"] {
        let refused = mount(name).unwrap_err();
        assert!(refused.code == FailureCode::BadPath && refused.message.contains("\"link\""), "{refused}");
    }
    assert_eq!(mount("full/kept").unwrap_err().code, FailureCode::BadPath);
    assert_eq!(mount("elsewhere"), Ok(Outcome::Done));
    let refused = mount("home").unwrap_err();
    assert!(refused.code == FailureCode::InUse && refused.message.contains("elsewhere"), "{refused}");
    assert!(!rig.path("home").exists());
    let other = Rig::made("ext4").unwrap();
    let mut over = other.volume();
    over.record.mount_point = rig.path("elsewhere").to_str().unwrap().parse().unwrap();
    let refused = other.run(Operation::Mount { volume: over.clone() }).unwrap_err();
    assert_eq!(refused.code, FailureCode::InUse);
    assert_eq!(other.run(Operation::Unmount { volume: over }), Ok(Outcome::WasDone));
    assert!(mount("elsewhere") == Ok(Outcome::WasDone));
}

#[test]
fn a_volume_in_use_stays_mounted_and_another_file_system_is_not_mounted() {
    let Some(rig) = Rig::made("xfs") else { return };
    assert_eq!(rig.run(Operation::Mount { volume: rig.volume() }), Ok(Outcome::Done));
    let held = File::create(rig.path("home/held")).unwrap();
    let refused = rig.run(Operation::Unmount { volume: rig.volume() }).unwrap_err();
    assert_eq!(refused.code, FailureCode::InUse);
    drop(held);
    assert_eq!(rig.run(Operation::Unmount { volume: rig.volume() }), Ok(Outcome::Done));
    let mut other = rig.volume();
    other.record.uuid = "7f8e2c1a-0b7d-4a55-9a1e-52d0a3c4b5e7".parse().unwrap();
    let refused = rig.run(Operation::Mount { volume: other }).unwrap_err();
    assert!(refused.code == FailureCode::ForeignData && refused.message.contains(&rig.uuid), "{refused}");
    let making = rig.volume_at("making", "home");
    assert!(rig.run(Operation::Mount { volume: making }).is_err());
}

#[test]
fn two_workers_never_have_one_volume_and_nonsense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let lock = folder.path().join("lock");
    let held = File::create(&lock).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    let order = Order { lock, operation: Operation::Probe { device: "/dev/null".into() } };
    let (is_done, output) = work(&serde_json::to_vec(&order).unwrap());
    assert!(!is_done && output.contains("\"busy\""), "{output}");
    for nonsense in
        ["", "{}", "{\"lock\": 7}", "\u{0}", "{\"lock\":\"/x\",\"operation\":{\"do\":\"format\"}}"]
    {
        let (is_done, output) = work(nonsense.as_bytes());
        assert!(!is_done && output.contains("bad_order"), "{nonsense}: {output}");
    }
}
