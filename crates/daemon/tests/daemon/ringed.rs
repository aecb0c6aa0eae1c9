//! Spaces attached over io_uring: only for who asks by name, and gone with the daemon.
//!
//! They need root, FUSE and loop devices, and where the kernel is asked for rings, that it has them switched on
//! (`/sys/module/fuse/parameters/enable_uring`), which no test here does. Where one of them is missing the test says so and
//! ends; `scripts/integration/kernel.sh` can be asked to switch it on.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::client::{World, eventually};
use crate::mounts;

const ATTACH: &str = "/v1/pools/tank/spaces/m/attach";
const DETACH: &str = "/v1/pools/tank/spaces/m/detach";

/// Takes away what a test that failed would leave.
struct Cleaned(World);

impl Cleaned {
    fn new() -> Self {
        let world = World::new(2);
        world.make_tank(&["d0", "d1"]);
        let grown = json!({"size_bytes": 160 << 20});
        world.post("/v1/pools/tank/spaces/m/unserve", &json!({}));
        world.post("/v1/pools/tank/spaces/m/resize", &grown);
        Self(world)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.folder.path().join(name)
    }
}

impl Drop for Cleaned {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", &self.path("mnt").display().to_string()]);
        if !self.0.is_running() {
            self.0.start();
        }
        let _ = self.0.try_ask("POST", DETACH, b"{}");
        let _ = self.0.try_ask("POST", "/v1/shutdown", b"{}");
        for folder in ["run/attached", "run/attached-uring"] {
            let _ = run("umount", &["-l", &self.path(folder).display().to_string()]);
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Attaches the space over rings; why not, where this machine cannot.
fn attached(world: &World) -> Result<Value, Value> {
    let (status, answer) = world.try_ask("POST", ATTACH, br#"{"transport":"loop_uring"}"#).unwrap();
    if status == 200 { Ok(answer["attachment"].clone()) } else { Err(answer["error"].clone()) }
}

#[test]
fn it_is_refused_where_the_kernel_has_it_not_and_nothing_is_made() {
    // Scenario: the kernel has no FUSE over io_uring, or has it switched off. Asked for by name it is refused, also by a dry
    // run, in words that say how it is switched on; the switch stays as it was, and so does all else.
    let _mounts = mounts::mounting();
    let cleaned = Cleaned::new();
    let world = &cleaned.0;
    let switch = "/sys/module/fuse/parameters/enable_uring";
    let before = std::fs::read_to_string(switch).unwrap_or_default();
    let error = match attached(world) {
        Ok(_) => return println!("skipped: this kernel has FUSE over io_uring switched on"),
        Err(error) => error,
    };
    let code = &error["code"];
    if code == "permission" {
        return println!("skipped: {}", error["message"]);
    }
    assert_eq!(code, "missing", "{error}");
    if before.trim() == "N" {
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(&format!("`echo 1 > {switch}`")), "{error}");
        assert!(message.contains("dolmen does not do that by itself"), "{error}");
    }
    assert_eq!(
        world.refused(ATTACH, &json!({"transport": "loop_uring", "dry_run": true}))["code"],
        "missing"
    );
    assert_eq!(std::fs::read_to_string(switch).unwrap_or_default(), before);
    assert!(!cleaned.path("run/attached-uring").exists());
    assert!(!cleaned.path("state/attached_uring.json").exists());
    assert_eq!(world.get("/v1/attachments")["attachments"], json!([]));
}

#[test]
fn an_attachment_that_ends_with_the_daemon_says_so() {
    // Scenario: a space is attached over rings: the answer says that it does not survive the daemon. It has one way at a
    // time, keeps what fio writes, and in use keeps the daemon from ending and from handing over. The daemon is killed: I/O
    // fails and nothing hangs; the next one says what is not attached any more, and clears it once it is unmounted. It is
    // attached again, holds what was synced, and is detached when the daemon hands over.
    let _mounts = mounts::mounting();
    let mut cleaned = Cleaned::new();
    let first = match attached(&cleaned.0) {
        Ok(first) => first,
        Err(error) => return println!("skipped: {}", error["message"]),
    };
    assert_eq!((&first["transport"], &first["survives_daemon"]), (&json!("loop_uring"), &json!(false)));
    assert!(first["limits"][0].as_str().unwrap().contains("does not survive its daemon"), "{first}");
    for transport in ["loop", "ublk"] {
        assert_eq!(cleaned.0.refused(ATTACH, &json!({"transport": transport}))["code"], "busy");
    }
    assert_eq!(cleaned.0.post(ATTACH, &json!({}))["attachment"]["transport"], "loop_uring");

    let (link, mnt) = (cleaned.path("dev/tank/m").display().to_string(), cleaned.path("mnt"));
    std::fs::create_dir(&mnt).unwrap();
    let mnt = mnt.display().to_string();
    if let Err(why) = run("mkfs.ext4", &["-q", "-F", &link]).and_then(|()| run("fio", &["--version"])) {
        return println!("skipped: {why}");
    }
    run("mount", &[&link, &mnt]).unwrap();
    let verify = [
        "--name=v",
        "--size=64M",
        "--rw=randwrite",
        "--bsrange=4k-64k",
        "--ioengine=libaio",
        "--iodepth=32",
        "--direct=1",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--do_verify=1",
        "--fsync=128",
    ];
    run("fio", &[&verify[..], &[&format!("--directory={mnt}")]].concat()).unwrap();
    for hand_over in [false, true] {
        let error = cleaned.0.refused("/v1/shutdown", &json!({"hand_over": hand_over}));
        assert_eq!(error["code"], "busy");
        assert!(error["hint"].as_str().unwrap().contains("--transport loop-uring"), "{error}");
    }
    assert_eq!(cleaned.0.refused(DETACH, &json!({}))["code"], "busy");
    std::fs::write(cleaned.path("mnt/kept"), b"what was synced").unwrap();
    run("sync", &["-f", &mnt]).unwrap();

    die_under_load(&mut cleaned, &mnt);
    cleaned.0.start();
    let status = cleaned.0.get("/v1/status");
    assert!(status["why"].to_string().contains("space tank/m was attached by io_uring"), "{status}");
    assert!(status["todo"].to_string().contains("`dolmen space attach tank/m`"), "{status}");
    assert_eq!(cleaned.0.get("/v1/attachments")["attachments"], json!([]));
    run("umount", &[&mnt]).unwrap();

    let again = attached(&cleaned.0).unwrap();
    assert_eq!(again["transport"], "loop_uring");
    assert!(!cleaned.0.get("/v1/status")["why"].to_string().contains("was attached by io_uring"));
    let device = PathBuf::from(first["device"].as_str().unwrap());
    let backing = Path::new("/sys/block").join(device.file_name().unwrap()).join("loop/backing_file");
    assert!(again["device"] == first["device"] || !backing.exists(), "the dead device is cleared");
    run("mount", &[&link, &mnt]).unwrap();
    assert_eq!(std::fs::read(cleaned.path("mnt/kept")).unwrap(), b"what was synced");
    run("umount", &[&mnt]).unwrap();
    run("fsck.ext4", &["-fn", &link]).unwrap();
    cleaned.0.post("/v1/shutdown", &json!({"hand_over": true}));
    assert!(cleaned.0.ended().success());
    cleaned.0.start();
    assert_eq!(cleaned.0.get("/v1/attachments")["attachments"], json!([]));
    assert!(!cleaned.0.get("/v1/status")["why"].to_string().contains("was attached by io_uring"));
}

/// Kills the daemon while fio writes and somebody syncs; both see errors and end.
fn die_under_load(cleaned: &mut Cleaned, mnt: &str) {
    let load = [
        "--name=l",
        "--size=32M",
        "--rw=randwrite",
        "--bs=4k",
        "--ioengine=libaio",
        "--iodepth=64",
        "--direct=1",
        "--time_based",
        "--runtime=60",
    ];
    let mut fio = Command::new("fio")
        .args(load)
        .arg(format!("--directory={mnt}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let file = format!("{mnt}/l.0.0");
    eventually("fio writes", || std::fs::metadata(&file).ok().filter(|status| status.len() == 32 << 20));
    let mut dd = Command::new("dd")
        .args([
            "if=/dev/zero",
            &format!("of={mnt}/dd"),
            "bs=64K",
            "count=16000",
            "oflag=dsync",
            "status=none",
        ])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = format!("{mnt}/dd");
    eventually("dd writes", || std::fs::metadata(&begun).ok().filter(|status| status.len() > 1 << 18));
    cleaned.0.kill();
    for load in [&mut fio, &mut dd] {
        let ended = eventually("whoever was at work sees an error", || load.try_wait().unwrap());
        assert!(!ended.success(), "{ended}");
    }
}
