//! The program on loop devices, with the tools of this machine.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use dolmen_volume::record::VolumeRecord;
use dolmen_worker::protocol::{Failure, FailureCode, Message, Operation, Order, Outcome, Volume};

const MIB: u64 = 1 << 20;

/// A UUID that no other file system of this run has: the kernel refuses to mount two.
fn next_uuid() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("6f8e2c1a-0b7d-4a55-9a1e-{:08x}{number:04x}", std::process::id())
}

/// Whether this process may grow a mounted ext4.
fn may_grow_ext4() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    let cap_sys_resource = 24;
    u64::from_str_radix(effective.trim(), 16).unwrap() >> cap_sys_resource & 1 == 1
}

/// Gives the program an order; whether it succeeded, and what it wrote.
fn work(order: &[u8]) -> (bool, String) {
    let mut worker = Command::new(env!("CARGO_BIN_EXE_dolmen-worker"));
    let mut child = worker.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(order).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

/// A loop device over a file, with a folder for mount points.
struct Rig {
    folder: tempfile::TempDir,
    device: PathBuf,
    kind: &'static str,
    uuid: String,
}

impl Rig {
    /// One with a file system of a kind to be made; none, with its reason printed, where this machine cannot.
    fn new(kind: &'static str) -> Option<Self> {
        let is_root = rustix::process::geteuid().is_root();
        let has_tool = Command::new(format!("mkfs.{kind}")).arg("-V").output().is_ok();
        if !is_root || !has_tool || !Path::new("/dev/loop-control").exists() {
            println!("skipped: that takes root, loop devices and mkfs.{kind}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        File::create(&image).unwrap().set_len(400 * MIB).unwrap();
        let made = Command::new("losetup").args(["-f", "--show"]).arg(&image).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let device = PathBuf::from(String::from_utf8(made.stdout).unwrap().trim());
        Some(Self { folder, device, kind, uuid: next_uuid() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn volume_at(&self, state: &str, name: &str) -> Volume {
        let uuid = &self.uuid;
        let options = match self.kind {
            "xfs" => serde_json::json!(["-q", "-m", format!("uuid={uuid}"), "-K"]),
            _ => serde_json::json!(["-q", "-U", uuid]),
        };
        let record: VolumeRecord = serde_json::from_value(serde_json::json!({
            "state": state, "desired": "mounted", "file_system": self.kind, "uuid": uuid,
            "mkfs_options": options, "mount_point": self.path(name), "mount_options": ["noatime"],
        }))
        .unwrap();
        Volume { device: self.device.clone(), record }
    }

    fn volume(&self) -> Volume {
        self.volume_at("ready", "home")
    }

    fn run(&self, operation: Operation) -> Result<Outcome, Failure> {
        let order = Order { lock: self.path("lock"), operation };
        let (is_done, text) = work(&serde_json::to_vec(&order).unwrap());
        match serde_json::from_str(text.lines().last().unwrap()).unwrap() {
            Message::Done { outcome } => {
                assert!(is_done);
                Ok(outcome)
            }
            Message::Failed { failure } => {
                assert!(!is_done);
                Err(failure)
            }
        }
    }

    fn made(kind: &'static str) -> Option<Self> {
        let rig = Self::new(kind)?;
        // A second time, as behind a kill whose end nobody has seen.
        for _ in 0..2 {
            let made = rig.run(Operation::Make { volume: rig.volume_at("making", "home") });
            assert_eq!(made, Ok(Outcome::Done));
        }
        Some(rig)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for name in ["home", "elsewhere"] {
            let _ = Command::new("umount").arg("-q").arg(self.path(name)).status();
        }
        let _ = Command::new("losetup").arg("-d").arg(&self.device).status();
    }
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
