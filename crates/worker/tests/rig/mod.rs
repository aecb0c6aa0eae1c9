//! The program over loop devices, with the tools of this machine.
#![allow(dead_code)] // each test program uses a part

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use dolmen_volume::record::VolumeRecord;
use dolmen_worker::protocol::{Failure, Message, Operation, Order, Outcome, Volume};

pub(crate) const MIB: u64 = 1 << 20;

/// A UUID that no other file system of this run has: the kernel refuses to mount two.
fn next_uuid() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("6f8e2c1a-0b7d-4a55-9a1e-{:08x}{number:04x}", std::process::id())
}

/// Gives the program an order; whether it succeeded, and what it wrote.
pub(crate) fn work(order: &[u8]) -> (bool, String) {
    let mut worker = Command::new(env!("CARGO_BIN_EXE_dolmen-worker"));
    let mut child = worker.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // The end of the input would stop a long operation.
    let mut input = child.stdin.take().unwrap();
    input.write_all(order).and_then(|()| input.write_all(b"\n")).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(input);
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

/// A loop device over a file, with a folder for mount points.
pub(crate) struct Rig {
    folder: tempfile::TempDir,
    pub(crate) image: PathBuf,
    pub(crate) device: PathBuf,
    pub(crate) kind: &'static str,
    pub(crate) uuid: String,
}

impl Rig {
    /// One with a file system of a kind to be made; none, with its reason printed, where this machine cannot.
    pub(crate) fn new(kind: &'static str) -> Option<Self> {
        Self::new_in(kind, None)
    }

    /// The same, with its image in a folder.
    fn new_in(kind: &'static str, parent: Option<&Path>) -> Option<Self> {
        let is_root = rustix::process::geteuid().is_root();
        let has_tool = Command::new(format!("mkfs.{kind}")).arg("-V").output().is_ok();
        if !is_root || !has_tool || !Path::new("/dev/loop-control").exists() {
            println!("skipped: that takes root, loop devices and mkfs.{kind}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let image = parent.unwrap_or(folder.path()).join("image");
        File::create(&image).unwrap().set_len(400 * MIB).unwrap();
        let made = Command::new("losetup").args(["-f", "--show"]).arg(&image).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let device = PathBuf::from(String::from_utf8(made.stdout).unwrap().trim());
        Some(Self { folder, image, device, kind, uuid: next_uuid() })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn volume_at(&self, state: &str, name: &str) -> Volume {
        let uuid = &self.uuid;
        let options = match self.kind {
            "xfs" => serde_json::json!(["-q", "-m", format!("uuid={uuid},rmapbt=1,reflink=1"), "-K"]),
            _ => serde_json::json!(["-q", "-U", uuid]),
        };
        let record: VolumeRecord = serde_json::from_value(serde_json::json!({
            "state": state, "desired": "mounted", "file_system": self.kind, "uuid": uuid,
            "mkfs_options": options, "mount_point": self.path(name), "mount_options": ["noatime"],
        }))
        .unwrap();
        let incarnation = dolmen_worker::incarnation_of(&self.device);
        Volume { device: self.device.clone(), incarnation, record }
    }

    pub(crate) fn volume(&self) -> Volume {
        self.volume_at("ready", "home")
    }

    pub(crate) fn run(&self, operation: Operation) -> Result<Outcome, Failure> {
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
            other => panic!("the last line is {other:?}"),
        }
    }

    pub(crate) fn made(kind: &'static str) -> Option<Self> {
        Self::made_in(kind, None)
    }

    pub(crate) fn made_in(kind: &'static str, parent: Option<&Path>) -> Option<Self> {
        let rig = Self::new_in(kind, parent)?;
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
