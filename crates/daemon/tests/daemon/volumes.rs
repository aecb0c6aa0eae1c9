//! Volumes, with the worker of this build behind a script that stops, ends or fails where a test says so. They need root, FUSE, loop
//! devices and the tools of ext4; where one of them is missing the test says so and ends.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::attached::run;
use crate::client::{World, eventually};
use crate::mounts;
use crate::returned::in_time;

/// What stands in for the worker: it notes each order and, as far as files of these names exist, stops in front of an operation or
/// behind it, waits for a command and stops, ends without a message, fails, or gives an answer of the test.
const SCRIPT: &str = r#"#!/bin/sh
read -r order
name=${order#*'"do":"'}
name=${name%%'"'*}
echo "$name" >>FOLDER/orders
printf '%s\n' "$order" >"FOLDER/order-$name"
hold() {
    [ -e "FOLDER/$1" ] || return 0
    echo $$ >"FOLDER/pid" && mv "FOLDER/pid" "FOLDER/held"
    while [ -e "FOLDER/$1" ]; do sleep 0.05; done
}
hold "before-$name"
if [ -e "FOLDER/reads-$name" ]; then
    read -r command
    echo "$command" >"FOLDER/command"
    echo '{"say":"done","outcome":{"is":"stopped"}}'
    exit 0
fi
[ ! -e "FOLDER/dies-$name" ] || kill -9 $$
if [ -e "FOLDER/fails-$name" ]; then
    echo '{"say":"failed","failure":{"code":"refused","message":"planted","hint":"mend it"}}'
    exit 1
fi
if [ -e "FOLDER/answer-$name" ]; then
    cat "FOLDER/answer-$name"
    exit 0
fi
case $name in
# Servers of this host take no part.
share_list) said='{"say":"done","outcome":{"is":"shares","shares":[]}}' ;;
share_*) said='{"say":"done","outcome":{"is":"shared","is_changed":true,"notes":[]}}' ;;
*) said=$(printf '%s\n' "$order" | WORKER) ;;
esac
hold "after-$name"
printf '%s\n' "$said"
"#;

pub(crate) const SHOW: &str = "/v1/pools/tank/volumes/v";

/// A daemon with a pool of two disks and the script, and a place for mounts.
pub(crate) struct Rig {
    pub(crate) world: World,
    pub(crate) control: PathBuf,
}

impl Rig {
    /// One with a pool; none, with its reason printed, where this machine cannot attach and make ext4.
    pub(crate) fn new() -> Option<Self> {
        let worker = Path::new(env!("CARGO_BIN_EXE_dolmend")).with_file_name("dolmen-worker");
        // A part of this build that is missing is no lack of the machine: nothing is skipped for it.
        assert!(
            worker.exists(),
            "build it first: cargo build -p dolmen-worker --bins; {} is missing",
            worker.display()
        );
        let mut world = World::new(2);
        world.kill();
        let control = world.folder.path().join("control");
        std::fs::create_dir(&control).unwrap();
        let script = SCRIPT.replace("FOLDER", &control.display().to_string());
        let script = script.replace("WORKER", &worker.display().to_string());
        let path = control.join("worker");
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut rig = Self { world, control };
        rig.start();
        rig.world.make_tank(&["d0", "d1"]);
        rig.world.post("/v1/pools/tank/spaces/m/unserve", &json!({}));
        let (status, answer) = rig.world.try_ask("POST", "/v1/pools/tank/spaces/m/attach", b"{}").unwrap();
        if status != 200 {
            let code = &answer["error"]["code"];
            assert!(code == "missing" || code == "permission", "{answer}");
            println!("skipped: {}", answer["error"]["message"]);
            return None;
        }
        rig.world.post("/v1/pools/tank/spaces/m/detach", &json!({}));
        let plan =
            rig.world.try_ask("POST", "/v1/pools/tank/volumes", rig.request(true).to_string().as_bytes());
        let (status, answer) = plan.unwrap();
        if status != 200 {
            assert_eq!(answer["error"]["code"], "missing", "{answer}");
            println!("skipped: {}", answer["error"]["message"]);
            return None;
        }
        Some(rig)
    }

    pub(crate) fn start(&mut self) {
        self.start_with(|_| {});
    }

    /// Starts a daemon whose command is changed first.
    fn start_with(&mut self, change: impl Fn(&mut Command)) {
        let mut command = self.world.command("state", "run");
        change(&mut command);
        command.env("DOLMEN_WORKER", self.control.join("worker"));
        let servers = self.control.join("servers.json");
        let exports = json!({"by": "kernel", "exports_dir": self.control.join("exports")});
        let text = json!({"lock": self.control.join("lock"), "smb_conf": "/absent", "nfs": exports});
        std::fs::write(&servers, text.to_string()).unwrap();
        command.env("DOLMEN_SERVERS", servers);
        self.world.begin(command);
    }

    pub(crate) fn mount(&self) -> PathBuf {
        self.world.folder.path().join("mnt")
    }

    pub(crate) fn request(&self, dry_run: bool) -> Value {
        json!({"name": "v", "size_bytes": 64 << 20, "purpose": "files", "file_system": "ext4", "resiliency": "mirror",
               "row_bytes": 1 << 20, "mount_point": self.mount(), "dry_run": dry_run})
    }

    pub(crate) fn create(&self) -> u64 {
        let made = self.world.post("/v1/pools/tank/volumes", &self.request(false));
        made["job"]["id"].as_u64().unwrap()
    }

    /// Has the script do something, or not any more.
    pub(crate) fn plant(&self, what: &str) {
        std::fs::write(self.control.join(what), "").unwrap();
    }

    pub(crate) fn lift(&self, what: &str) {
        std::fs::remove_file(self.control.join(what)).unwrap();
        let _ = std::fs::remove_file(self.control.join("held"));
    }

    pub(crate) fn is_held(&self) {
        eventually("the worker is held", || self.control.join("held").exists().then_some(()));
    }

    pub(crate) fn orders(&self, name: &str) -> usize {
        let orders = std::fs::read_to_string(self.control.join("orders")).unwrap_or_default();
        orders.lines().filter(|order| *order == name).count()
    }

    pub(crate) fn volume(&self) -> Value {
        self.world.get(SHOW)["volume"].clone()
    }

    pub(crate) fn job(&self, id: u64) -> Value {
        self.world.get(&format!("/v1/jobs/{id}"))["job"].clone()
    }

    pub(crate) fn ended(&self, id: u64) -> Value {
        eventually("the job ends", || {
            let job = self.job(id);
            ["done", "failed", "called_off"].iter().any(|state| job["state"] == **state).then_some(job)
        })
    }

    /// Asks for a change from a thread of its own.
    #[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
    fn ask_later(&self, path: String) -> std::thread::JoinHandle<Value> {
        let mut asking = std::os::unix::net::UnixStream::connect(self.world.socket()).unwrap();
        std::thread::spawn(move || {
            let request = format!(
                "POST {path} HTTP/1.1\r\nhost: d\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}"
            );
            std::io::Write::write_all(&mut asking, request.as_bytes()).unwrap();
            let mut answer = String::new();
            std::io::Read::read_to_string(&mut asking, &mut answer).unwrap();
            serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
        })
    }

    /// Waits until the volume is mounted and whole.
    pub(crate) fn mounted(&self) -> Value {
        let mount = self.mount().display().to_string();
        eventually("the volume is mounted", || {
            let volume = self.volume();
            (volume["state"] == "ready" && volume["mounted_at"] == mount.as_str()).then_some(volume)
        })
    }

    /// Sends a request, and does not wait for its answer.
    pub(crate) fn send(&self, path: &str, body: &Value) -> UnixStream {
        let body = body.to_string();
        let mut client = UnixStream::connect(self.world.socket()).unwrap();
        let head = format!("POST {path} HTTP/1.1\r\nHost: d\r\nContent-Length: {}\r\n\r\n", body.len());
        client.write_all((head + &body).as_bytes()).unwrap();
        client
    }

    /// Sends a request for a document, and does not wait for its answer.
    pub(crate) fn send_get(&self, path: &str) -> UnixStream {
        let mut client = UnixStream::connect(self.world.socket()).unwrap();
        client.write_all(format!("GET {path} HTTP/1.1\r\nHost: d\r\n\r\n").as_bytes()).unwrap();
        client
    }

    pub(crate) fn stop(&mut self) {
        self.world.post("/v1/shutdown", &json!({}));
        assert!(self.world.ended().success());
    }
}

/// Takes off what a test that failed has left mounted and attached: others would meet it.
pub(crate) fn abandon_volume(world: &World, mount: &Path) {
    let _ = Command::new("umount").arg("-l").arg(mount).output();
    for space in ["v", "m"] {
        let path = format!("/v1/pools/tank/spaces/{space}/detach");
        let abandon = json!({"discard_unflushed": format!("tank/{space}")}).to_string();
        let _ = world.try_ask("POST", &path, abandon.as_bytes());
    }
    let _ = world.try_ask("POST", "/v1/shutdown", b"{}");
    let _ = Command::new("umount").arg("-l").arg(world.folder.path().join("run/attached")).output();
}

impl Drop for Rig {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(&self.control).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if ["before-", "after-", "reads-", "dies-", "fails-", "answer-"]
                .iter()
                .any(|plant| name.starts_with(plant))
            {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        if !std::thread::panicking() {
            return;
        }
        if !self.world.is_running() {
            self.start();
        }
        abandon_volume(&self.world, &self.mount());
    }
}

/// Scenario: the daemon is killed behind the record, in front of mkfs and behind it, in front of the mount and behind it. The next
/// daemon makes the same volume, with the UUID on record, and one file system is mounted.
#[test]
fn a_creation_that_is_killed_at_any_step_is_ended_by_the_next_daemon() {
    let _mounts = mounts::mounting();
    // The one that is killed at once comes last: where it is then depends on the speed of the machine.
    for step in ["before-make", "after-make", "before-mount", "after-mount", ""] {
        let Some(mut rig) = Rig::new() else { return };
        if !step.is_empty() {
            rig.plant(step);
        }
        let job = rig.create();
        if !step.is_empty() {
            rig.is_held();
        }
        let before = rig.volume();
        let is_made = match step {
            "" => before["state"] == "ready",
            step => step.ends_with("mount"),
        };
        assert_eq!(before["state"], if is_made { "ready" } else { "making" }, "{step}: {before}");
        rig.world.kill();
        if !step.is_empty() {
            rig.lift(step);
        }
        rig.start();
        let after = rig.mounted();
        assert_eq!(after["uuid"], before["uuid"], "{step}");
        if !is_made {
            assert_eq!(rig.ended(job)["state"], "done", "{step}: the job goes on under its number");
        }
        std::fs::write(rig.mount().join("file"), step).unwrap();
        rig.stop();
        assert!(std::fs::read_dir(rig.mount()).unwrap().next().is_none(), "{step}: the end unmounts");
        rig.start();
        rig.mounted();
        assert_eq!(std::fs::read_to_string(rig.mount().join("file")).unwrap(), step);
        rig.stop();
    }
}

/// Scenario: a creation is called off while the worker of mkfs is held. Space and record are deleted, and nothing is attached.
#[test]
fn a_creation_that_is_called_off_before_it_is_ready_leaves_nothing() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.plant("before-make");
    let job = rig.create();
    rig.is_held();
    let refused = rig.world.refused("/v1/pools/tank/spaces/v/delete", &json!({}));
    assert_eq!(refused["code"], "busy");
    rig.world.post(&format!("/v1/jobs/{job}/stop"), &json!({}));
    rig.lift("before-make");
    assert_eq!(rig.ended(job)["state"], "called_off");
    assert_eq!(rig.world.get("/v1/volumes")["volumes"], json!([]));
    assert!(
        rig.world.get("/v1/trash")["spaces"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["can_be_restored"] == false)
    );
    assert_eq!(rig.world.get("/v1/attachments")["attachments"], json!([]));
    assert_eq!(rig.orders("mount"), 0);
    rig.stop();
}

/// Scenario: mkfs ends without a message, then fails, and is asked for again by a mount. Each failure says what happened, the volume
/// is never `ready` before, and the last try makes it.
#[test]
fn a_worker_that_dies_or_fails_leaves_a_volume_that_is_not_ready() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.plant("dies-make");
    let job = rig.create();
    let failed = rig.ended(job);
    assert_eq!(failed["state"], "failed");
    let result = failed["result"].as_str().unwrap();
    assert!(result.contains("ended by signal 9 without a message"), "{result}");
    assert_eq!(rig.volume()["state"], "making");
    assert!(rig.volume()["why"][0].as_str().unwrap().contains("signal 9"));
    rig.lift("dies-make");
    rig.plant("fails-make");
    let again = rig.world.post(&format!("{SHOW}/mount"), &json!({}));
    let failed = rig.ended(again["job"]["id"].as_u64().unwrap());
    assert!(failed["result"].as_str().unwrap().contains("planted"), "{failed}");
    assert_eq!((&rig.volume()["state"], rig.orders("mount")), (&json!("making"), 0));
    rig.lift("fails-make");
    rig.world.post(&format!("{SHOW}/mount"), &json!({}));
    rig.mounted();
    assert_eq!(rig.volume()["why"], json!([]));
    rig.stop();
}

/// Scenario: mkfs is killed when it has written what no tool knows. The record says that it was begun, and a mount makes the volume;
/// unknown bytes that are there before mkfs begins are left alone.
#[test]
fn a_mkfs_that_was_cut_short_is_made_again() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    let write = |rig: &Rig| {
        let attached = rig.world.get("/v1/attachments")["attachments"][0]["device"].clone();
        let device = std::fs::File::options().write(true).open(attached.as_str().unwrap()).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&device, b"!BHRfS_M", 65_600).unwrap();
        device.sync_all().unwrap();
    };
    rig.plant("before-probe");
    let job = rig.create();
    rig.is_held();
    write(&rig);
    rig.lift("before-probe");
    let failed = rig.ended(job);
    assert!(failed["result"].as_str().unwrap().contains("data that no tool knows"), "{failed}");
    rig.world.post(&format!("{SHOW}/delete"), &json!({}));
    rig.plant("dies-make");
    rig.ended(rig.create());
    write(&rig);
    rig.lift("dies-make");
    rig.world.post(&format!("{SHOW}/mount"), &json!({}));
    rig.mounted();
    rig.stop();
}

/// Scenario: a mounted volume is deleted into the trash and restored; its space is deleted, served, detached, renamed and shrunk by
/// hand before. What would harm it is refused with its name, and it comes back mounted with its file.
#[test]
fn a_mounted_volume_is_kept_from_harm_and_comes_back_from_the_trash() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.ended(rig.create());
    rig.mounted();
    std::fs::write(rig.mount().join("file"), "kept").unwrap();
    for (verb, request) in
        [("delete", json!({})), ("detach", json!({})), ("serve", json!({})), ("rename", json!({"name": "w"}))]
    {
        let refused = rig.world.refused(&format!("/v1/pools/tank/spaces/v/{verb}"), &request);
        assert_eq!(refused["code"], "busy", "{verb}: {refused}");
        assert!(refused["message"].as_str().unwrap().contains("volume tank/v"), "{verb}: {refused}");
    }
    let open = std::fs::File::open(rig.mount().join("file")).unwrap();
    for path in
        [&format!("{SHOW}/unmount"), &format!("{SHOW}/delete"), "/v1/pools/tank/export", "/v1/shutdown"]
    {
        let refused = rig.world.refused(path, &json!({}));
        let me = format!("process {}", std::process::id());
        assert_eq!(refused["code"], "busy", "{path}: {refused}");
        assert!(refused["message"].as_str().unwrap().contains(&me), "{path}: {refused}");
        rig.mounted();
    }
    drop(open);
    let deleted = rig.world.post(&format!("{SHOW}/delete"), &json!({}));
    assert_eq!(deleted["is_changed"], true);
    assert_eq!(rig.world.get("/v1/volumes")["volumes"], json!([]));
    rig.world.post("/v1/pools/tank/trash/v/restore", &json!({}));
    rig.mounted();
    assert_eq!(std::fs::read_to_string(rig.mount().join("file")).unwrap(), "kept");
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    let shrink = rig.world.refused("/v1/pools/tank/spaces/v/resize", &json!({"size_bytes": 60 << 20}));
    assert!(shrink["message"].as_str().unwrap().contains("carries a volume"), "{shrink}");
    rig.stop();
    rig.start();
    assert_eq!(rig.volume()["mounted_at"], Value::Null, "what people unmounted stays so");
    rig.stop();
}

/// Scenario: the worker of the mount is held, so a request for it is answered while its worker goes on. Another pool's volume does not wait, the
/// process is named, and the end of the worker ends the wait.
#[test]
fn a_worker_that_hangs_is_named_and_holds_nothing_else() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.plant("before-mount");
    rig.create();
    rig.is_held();
    let worker = rig.volume()["worker"].clone();
    let pid = std::fs::read_to_string(rig.control.join("held")).unwrap();
    assert_eq!(worker["pid"].to_string(), pid.trim());
    assert_eq!(worker["operation"], "the mount");
    let refused = rig.world.refused(&format!("{SHOW}/delete"), &json!({}));
    assert_eq!(refused["code"], "busy");
    let other = json!({"name": "other", "size_bytes": 32 << 20, "resiliency": "mirror"});
    rig.world.post("/v1/pools/tank/spaces", &other);
    rig.lift("before-mount");
    rig.mounted();
    rig.stop();
}

/// Scenario: the disks of a pool with a volume are away when the daemon begins, and appear later. The volume is mounted again without
/// a command, with its file.
#[test]
fn a_volume_of_a_pool_whose_disks_appear_late_is_mounted() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.ended(rig.create());
    rig.mounted();
    std::fs::write(rig.mount().join("file"), "kept").unwrap();
    rig.stop();
    let (disks, away) = (rig.world.folder.path().join("disks"), rig.world.folder.path().join("away"));
    std::fs::rename(&disks, &away).unwrap();
    rig.start();
    assert_eq!(rig.world.get("/v1/pools")["pools"][0]["state"], "closed");
    std::fs::rename(&away, &disks).unwrap();
    let is_open = || (rig.world.get("/v1/pools")["pools"][0]["state"] == "writable").then_some(());
    in_time("the pool is open", is_open);
    rig.mounted();
    assert_eq!(std::fs::read_to_string(rig.mount().join("file")).unwrap(), "kept");
    rig.stop();
}

/// Scenario: the file system is mounted, and the worker of the mount is held behind that, first by the job of the creation, then by
/// the start of the next daemon. The volume is `mounting`, an unmount, a deletion and the end of the daemon wait, and each is
/// carried out when the step has ended. A volume that is shown as mounted is unmounted at once.
#[test]
#[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
fn a_volume_that_is_shown_as_mounted_can_be_unmounted_at_once() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    let state = |rig: &Rig| {
        let volume = rig.volume();
        (volume["mount_state"].as_str().unwrap().to_owned(), volume["mounted_at"].is_string())
    };
    rig.plant("before-make");
    rig.create();
    rig.is_held();
    assert_eq!(state(&rig), ("making".to_owned(), false));
    rig.plant("after-mount");
    rig.lift("before-make");
    rig.is_held();
    assert_eq!(state(&rig), ("mounting".to_owned(), false), "it is being mounted until its job has ended");
    let asked = rig.ask_later(format!("{SHOW}/unmount"));
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!asked.is_finished(), "the unmount waits for the step");
    rig.lift("after-mount");
    let answer = asked.join().unwrap();
    assert_eq!(
        (&answer["is_changed"], &answer["volume"]["mount_state"]),
        (&json!(true), &json!("unmounted"))
    );
    let mounted = rig.world.post(&format!("{SHOW}/mount"), &json!({}));
    assert_eq!(mounted["volume"]["mount_state"], "mounted");
    rig.world.kill();
    for path in ["/v1/shutdown".to_owned(), format!("{SHOW}/delete")] {
        rig.plant("after-mount");
        rig.start();
        rig.is_held();
        assert_eq!(state(&rig), ("mounting".to_owned(), false), "{path}");
        let asked = rig.ask_later(path.clone());
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert!(!asked.is_finished(), "{path} waits for the step");
        rig.lift("after-mount");
        assert_eq!(asked.join().unwrap()["is_changed"], true, "{path}");
        if path.ends_with("shutdown") {
            assert!(rig.world.ended().success());
        }
    }
    rig.world.post("/v1/pools/tank/trash/v/restore", &json!({}));
    rig.mounted();
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    rig.stop();
}

/// Scenario: a daemon under a supervisor writes units. Its volume is made, is in use when the supervisor asks for the end, and is
/// not a second later; the next daemon exports the pool. The daemon notifies the supervisor of each, ends when the user has, and
/// units come and go with the volume.
#[test]
fn a_supervisor_is_notified_and_its_stop_is_tried_again_until_users_have_ended() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.stop();
    let folder = rig.world.folder.path().to_path_buf();
    let units = folder.join("units");
    std::fs::create_dir(&units).unwrap();
    let supervisor = std::os::unix::net::UnixDatagram::bind(folder.join("notify")).unwrap();
    supervisor.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let supervised = |command: &mut Command| {
        command.env("NOTIFY_SOCKET", folder.join("notify")).arg("--units").arg(&units);
    };
    let noted = || {
        let mut note = [0; 4096];
        let length = supervisor.recv(&mut note).unwrap();
        String::from_utf8(note[..length].to_vec()).unwrap()
    };
    let is_linked =
        |name: &str| std::fs::symlink_metadata(units.join("dolmend.service.wants").join(name)).is_ok();
    rig.start_with(supervised);
    assert!(noted().starts_with("READY=1\n"));
    rig.ended(rig.create());
    rig.mounted();
    let files =
        std::fs::read_dir(&units).unwrap().flatten().map(|one| one.file_name().into_string().unwrap());
    let name = files.into_iter().find(|name| name.ends_with(".mount")).expect("a mount unit");
    assert!(std::fs::read_to_string(units.join(&name)).unwrap().contains("\nWhat=dolmen:tank/v\n"));
    assert!(is_linked(&name));
    let open = std::fs::File::create(rig.mount().join("file")).unwrap();
    let pid = rig.world.pid().to_string();
    assert!(run("kill", &[Path::new(&pid)]));
    assert!(noted().starts_with("STOPPING=1\n"));
    let refusal = noted();
    assert!(refusal.contains("cannot end yet") && refusal.contains("is in use"), "{refusal}");
    drop(open);
    assert!(rig.world.ended().success());
    assert!(units.join(&name).exists(), "the unit stays for the next boot");
    rig.start_with(supervised);
    rig.mounted();
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    eventually("the start of the daemon leaves the unit", || (!is_linked(&name)).then_some(()));
    assert!(units.join(&name).exists(), "units that require it still fail");
    rig.world.post("/v1/pools/tank/export", &json!({}));
    assert!(!units.join(&name).exists(), "the pool is no pool of this host any more");
    rig.stop();
}

/// Scenario: a deletion is killed while its unmount is held. Nothing was put on record, so the next daemon has the volume mounted.
#[test]
fn a_deletion_that_is_killed_before_its_record_leaves_the_volume() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.ended(rig.create());
    rig.mounted();
    rig.plant("before-unmount");
    let mut asking = std::os::unix::net::UnixStream::connect(rig.world.socket()).unwrap();
    let request = format!("POST {SHOW}/delete HTTP/1.1\r\nhost: d\r\ncontent-length: 2\r\n\r\n{{}}");
    std::io::Write::write_all(&mut asking, request.as_bytes()).unwrap();
    rig.is_held();
    rig.world.kill();
    drop(asking);
    let pid = std::fs::read_to_string(rig.control.join("held")).unwrap();
    assert!(run("kill", &[Path::new("-9"), Path::new(pid.trim())]));
    rig.lift("before-unmount");
    rig.start();
    rig.mounted();
    rig.world.post(&format!("{SHOW}/delete"), &json!({}));
    rig.world.post("/v1/pools/tank/trash/v/restore", &json!({}));
    rig.mounted();
    rig.stop();
}

/// Scenario: a volume grows while it is mounted, is unmounted and checked, and another file system is adopted, which is never made
/// again. A space without a file system is refused.
#[test]
fn a_volume_is_checked_and_a_foreign_file_system_is_adopted() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.ended(rig.create());
    rig.mounted();
    let mounted = rig.world.refused(&format!("{SHOW}/check"), &json!({}));
    assert_eq!(mounted["code"], "busy");
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    let planned = rig.world.post(&format!("{SHOW}/check"), &json!({"repair": true, "dry_run": true}));
    assert_eq!((&planned["is_changed"], &planned["plan"]["is_reversible"]), (&json!(false), &json!(false)));
    let checked = rig.world.post(&format!("{SHOW}/check"), &json!({}));
    let checked = rig.ended(checked["job"]["id"].as_u64().unwrap());
    assert_eq!((&checked["state"], &checked["result"]), (&json!("done"), &json!("volume tank/v is clean")));
    let untyped = rig.world.refused(&format!("{SHOW}/check"), &json!({"repair": true}));
    assert_eq!(untyped["code"], "needs_confirmation");
    let adopt = "/v1/pools/tank/volumes/m/adopt";
    let place = json!({"mount_point": rig.world.folder.path().join("foreign")});
    assert_eq!(rig.world.refused(adopt, &place)["code"], "foreign_data");
    let attached = rig.world.post("/v1/pools/tank/spaces/m/attach", &json!({}));
    let device = PathBuf::from(attached["attachment"]["path"].as_str().unwrap());
    assert!(run("mkfs.ext4", &[Path::new("-q"), Path::new("-F"), &device]));
    rig.world.post("/v1/pools/tank/spaces/m/detach", &json!({}));
    let makes = rig.orders("make");
    let mut dry = place.clone();
    dry["dry_run"] = json!(true);
    assert_eq!(rig.world.post(adopt, &dry)["is_changed"], false);
    assert_eq!(rig.world.get("/v1/attachments")["attachments"], json!([]));
    let adopted = rig.world.post(adopt, &place);
    assert_eq!(
        (&adopted["volume"]["state"], &adopted["volume"]["purpose"]),
        (&json!("foreign"), &Value::Null)
    );
    rig.stop();
    rig.start();
    eventually("the adopted volume is mounted again", || {
        let volume = rig.world.get("/v1/pools/tank/volumes/m")["volume"].clone();
        volume["mounted_at"].is_string().then_some(())
    });
    assert_eq!(rig.orders("make"), makes, "no mkfs on what was adopted");
    assert_eq!(rig.orders("grow"), 0, "a file system grew that nobody asked to grow");
    rig.world.post("/v1/pools/tank/volumes/m/delete", &json!({}));
    rig.world.post("/v1/pools/tank/trash/m/restore", &json!({}));
    let restored = rig.world.get("/v1/pools/tank/volumes/m")["volume"].clone();
    assert_eq!(restored["state"], "foreign", "{restored}");
    eventually("it is mounted", || {
        rig.world.get("/v1/pools/tank/volumes/m")["volume"]["mounted_at"].is_string().then_some(())
    });
    rig.stop();
}

/// Scenario: a mounted volume grows, a destruction of its pool is refused, and the volume is unmounted. The answer
/// to the growth has the room of the new size, the refusal names the unmount, and events tell each step of the volume once.
#[test]
fn a_grown_volume_shows_its_room_and_each_of_its_steps_is_one_event() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.ended(rig.create());
    rig.mounted();
    let total = |volume: &Value| volume["total_bytes"].as_u64();
    let before = eventually("its room is counted", || total(&rig.volume()));
    let growth = json!({"size_bytes": 128 << 20}).to_string();
    let (status, grown) = rig.world.try_ask("POST", &format!("{SHOW}/grow"), growth.as_bytes()).unwrap();
    if status == 200 {
        assert_eq!(grown["volume"]["size_bytes"], 128 << 20, "{grown}");
        assert!(
            total(&grown["volume"]).is_some_and(|after| after > before + (32 << 20)),
            "{before}: {grown}"
        );
    } else {
        // The kernel lets ext4 grow for those with CAP_SYS_RESOURCE alone. The space has grown all the same.
        let message = grown["error"]["message"].as_str().unwrap();
        assert!(message.ends_with("resize2fs: Permission denied to resize filesystem"), "{grown}");
        println!("skipped: the room after a growth ({message})");
    }
    let refused = rig.world.refused("/v1/pools/tank/destroy", &json!({"destroy": "tank"}));
    let hint = refused["hint"].as_str().unwrap();
    assert!(
        hint.contains("`dolmen volume unmount tank/v`") && !hint.contains("space detach tank/v"),
        "{hint}"
    );
    let count = |code: &str| {
        let events = rig.world.get("/v1/events?pool=tank")["events"].clone();
        let is_it = |event: &&Value| event["code"] == code && event["text"].to_string().contains("tank/v");
        events.as_array().unwrap().iter().filter(is_it).count()
    };
    // A volume that is mounted and unmounted between two looks would have no event.
    eventually("the mount is an event", || (count("volume_mounted") == 1).then_some(()));
    eventually("the growth is an event", || (count("space_resized") == 1).then_some(()));
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    eventually("the unmount is an event", || (count("volume_unmounted") == 1).then_some(()));
    assert_eq!((count("volume_mounted"), count("space_resized")), (1, 1));
    rig.stop();
}

/// Scenario: dry runs of all changes. Nothing is ordered, attached or written.
#[test]
fn a_dry_run_shows_the_plan_of_a_volume_and_makes_nothing() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    let planned = rig.world.post("/v1/pools/tank/volumes", &rig.request(true));
    let plan = &planned["volume_plan"];
    assert_eq!(plan["file_system"], "ext4");
    assert!(plan["mkfs"].as_array().unwrap().iter().any(|word| word == "-U"), "{plan}");
    assert!(plan["reasons"].as_array().unwrap().len() > 1, "{plan}");
    assert_eq!(rig.world.get("/v1/volumes")["volumes"], json!([]));
    rig.ended(rig.create());
    rig.mounted();
    let (before, orders) = (rig.volume(), std::fs::read_to_string(rig.control.join("orders")).unwrap());
    let dry = json!({"dry_run": true});
    for verb in ["unmount", "delete", "trim", "mount"] {
        let planned = rig.world.post(&format!("{SHOW}/{verb}"), &dry);
        assert_eq!(planned["is_changed"], false, "{verb}");
    }
    rig.world.post(&format!("{SHOW}/grow"), &json!({"size_bytes": 96 << 20, "dry_run": true}));
    for path in ["/v1/pools/tank/export", "/v1/shutdown"] {
        let planned = rig.world.post(path, &dry);
        let steps = planned["plan"]["steps"].to_string();
        assert!(steps.contains("unmount tank/v from"), "{path}: {steps}");
    }
    assert_eq!(rig.volume()["mounted_at"], before["mounted_at"]);
    assert_eq!(
        std::fs::read_to_string(rig.control.join("orders")).unwrap().replace("usage\n", ""),
        orders.replace("usage\n", "")
    );
    rig.stop();
}

/// Scenario: the device of a volume is open while the volume is deleted, so the deletion ends behind its record; then the daemon is
/// killed. The next daemon moves the space into the trash, and a restore brings the volume back.
#[test]
fn a_deletion_that_is_cut_short_is_ended_by_the_next_daemon() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.ended(rig.create());
    rig.mounted();
    std::fs::write(rig.mount().join("file"), "kept").unwrap();
    let device = std::fs::File::open(rig.world.folder.path().join("dev/tank/v")).unwrap();
    let refused = rig.world.refused(&format!("{SHOW}/delete"), &json!({}));
    assert_eq!(refused["code"], "busy", "{refused}");
    assert_eq!(rig.volume()["state"], "deleting");
    rig.world.kill();
    drop(device);
    rig.start();
    eventually("the space is in the trash", || {
        let trash = rig.world.get("/v1/trash")["spaces"].clone();
        (trash[0]["name"] == "v" && trash[0]["can_be_restored"] == true).then_some(())
    });
    rig.world.post("/v1/pools/tank/trash/v/restore", &json!({}));
    rig.mounted();
    assert_eq!(std::fs::read_to_string(rig.mount().join("file")).unwrap(), "kept");
    rig.stop();
}

/// Scenario: somebody unmounts a volume by hand. The status says so and what to do, and the mount ends it.
#[test]
fn a_volume_that_somebody_unmounted_is_reported_until_it_is_mounted_again() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.ended(rig.create());
    rig.mounted();
    let tells = |rig: &Rig| {
        let status = rig.world.get("/v1/status");
        let why = status["why"].as_array().unwrap().iter();
        why.filter_map(Value::as_str).any(|why| why.contains("volume tank/v is to be mounted"))
    };
    assert!(!tells(&rig));
    assert!(run("umount", &[&rig.mount()]));
    eventually("the status tells", || tells(&rig).then_some(()));
    let todo = rig.world.get("/v1/status")["todo"].to_string();
    assert!(todo.contains("dolmen volume mount tank/v"), "{todo}");
    eventually("its space is free", || {
        rig.world
            .try_ask("POST", "/v1/pools/tank/spaces/v/detach", b"{}")
            .filter(|(status, _)| *status == 200)
    });
    rig.world.post(&format!("{SHOW}/mount"), &json!({}));
    rig.mounted();
    eventually("the status is silent", || (!tells(&rig)).then_some(()));
    rig.stop();
}

/// Scenario: the space of a mounted volume is served for reading, and the volume is deleted. The deletion is refused before anything
/// is done, and goes through when the space is not served.
#[test]
fn a_deletion_that_is_refused_leaves_the_volume_mounted() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.ended(rig.create());
    rig.mounted();
    rig.world.post("/v1/pools/tank/spaces/v/serve", &json!({"read_only": true}));
    for dry_run in [true, false] {
        let refused = rig.world.refused(&format!("{SHOW}/delete"), &json!({"dry_run": dry_run}));
        assert!(refused["message"].as_str().unwrap().contains("while it is served"), "{refused}");
    }
    let volume = rig.volume();
    let state = (&volume["state"], &volume["mounted_at"]);
    assert_eq!(state, (&json!("ready"), &json!(rig.mount())), "a refused deletion unmounted it");
    assert_eq!(rig.orders("unmount"), 0);
    rig.world.post("/v1/pools/tank/spaces/v/unserve", &json!({}));
    rig.world.post(&format!("{SHOW}/delete"), &json!({}));
    rig.stop();
}

/// Scenario: a volume is mounted at another place. First the mount is refused, and the record of before stays; then the daemon is
/// killed behind the mount. The next daemon has the volume there, and can unmount it.
#[test]
fn a_mount_elsewhere_that_is_killed_is_on_record() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.ended(rig.create());
    rig.mounted();
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    let other = json!(rig.world.folder.path().join("other"));
    let request = json!({"mount_point": other});
    rig.plant("fails-mount");
    rig.world.refused(&format!("{SHOW}/mount"), &request);
    let refused = rig.volume();
    let kept = (&refused["mount_point"], &refused["is_to_be_mounted"]);
    assert_eq!(kept, (&json!(rig.mount()), &json!(false)), "a refused mount changed the record");
    rig.lift("fails-mount");
    rig.plant("after-mount");
    let client = rig.send(&format!("{SHOW}/mount"), &request);
    rig.is_held();
    rig.world.kill();
    drop(client);
    rig.lift("after-mount");
    rig.start();
    let volume = rig.volume();
    let place = (&volume["mount_point"], &volume["is_to_be_mounted"]);
    if *place.0 != other {
        // The rig unmounts its own place alone.
        run("umount", &[&rig.world.folder.path().join("other")]);
    }
    assert_eq!(place, (&other, &json!(true)), "the place of the mount is not on record");
    eventually("the volume is mounted there", || (rig.volume()["mounted_at"] == other).then_some(()));
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    rig.stop();
}

/// Scenario: an adoption is refused by the mount, and leaves nothing; the next one is killed behind the mount. The next daemon has the
/// volume on record and mounted.
#[test]
fn an_adoption_that_is_killed_after_its_mount_is_on_record() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    let attached = rig.world.post("/v1/pools/tank/spaces/m/attach", &json!({}));
    let device = PathBuf::from(attached["attachment"]["path"].as_str().unwrap());
    assert!(run("mkfs.ext4", &[Path::new("-q"), Path::new("-F"), &device]));
    rig.world.post("/v1/pools/tank/spaces/m/detach", &json!({}));
    let adopt = "/v1/pools/tank/volumes/m/adopt";
    let place = json!({"mount_point": rig.mount()});
    rig.plant("fails-mount");
    rig.world.refused(adopt, &place);
    assert_eq!(rig.world.get("/v1/volumes")["volumes"], json!([]), "a refused adoption left a record");
    assert_eq!(rig.world.get("/v1/attachments")["attachments"], json!([]));
    rig.lift("fails-mount");
    rig.plant("after-mount");
    let client = rig.send(adopt, &place);
    rig.is_held();
    rig.world.kill();
    drop(client);
    rig.lift("after-mount");
    rig.start();
    let volumes = rig.world.get("/v1/volumes")["volumes"].clone();
    assert_eq!(volumes[0]["state"], "foreign", "a file system is mounted without a record: {volumes}");
    eventually("the adopted volume is mounted", || {
        let volume = rig.world.get("/v1/pools/tank/volumes/m")["volume"].clone();
        (volume["mounted_at"] == json!(rig.mount())).then_some(())
    });
    rig.stop();
}

/// Scenario: mkfs of a volume fails, the volume is deleted into the trash and restored. It was never made, so it is made then.
#[test]
fn a_volume_that_was_never_made_is_made_when_it_is_restored() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.plant("fails-make");
    let job = rig.create();
    assert_eq!(rig.ended(job)["state"], "failed");
    rig.world.post(&format!("{SHOW}/delete"), &json!({}));
    rig.lift("fails-make");
    rig.plant("before-make");
    rig.world.post("/v1/pools/tank/trash/v/restore", &json!({}));
    let restored = rig.volume();
    assert_eq!(restored["state"], "making", "a volume without a file system is called ready");
    rig.lift("before-make");
    rig.mounted();
    rig.stop();
}

/// Scenario: the repair of a volume fails. Its space is detached again, as it was found.
#[test]
fn a_repair_that_fails_detaches_its_space() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.ended(rig.create());
    rig.mounted();
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    rig.plant("fails-check");
    let repair = json!({"repair": true, "destroy": "v"});
    let job = rig.world.post(&format!("{SHOW}/check"), &repair)["job"]["id"].as_u64().unwrap();
    let failed = rig.ended(job);
    assert!(failed["result"].as_str().unwrap().contains("planted"), "{failed}");
    assert_eq!(rig.world.get("/v1/attachments")["attachments"], json!([]));
    rig.lift("fails-check");
    rig.stop();
}

/// Scenario: the space of a mounted volume is resized as a space. Its file system grows with it.
#[test]
fn a_space_that_is_resized_grows_its_volume() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.ended(rig.create());
    rig.mounted();
    let resize = "/v1/pools/tank/spaces/v/resize";
    let size = json!({"size_bytes": 96 << 20, "dry_run": true});
    let plan = rig.world.post(resize, &size);
    assert!(plan["plan"]["steps"].to_string().contains("grow ext4"), "{plan}");
    let orders = rig.orders("grow");
    // A container may not grow ext4.
    let done = json!({"say": "done", "outcome": {"is": "done"}}).to_string();
    std::fs::write(rig.control.join("answer-grow"), done + "\n").unwrap();
    let size = json!({"size_bytes": 96 << 20});
    let grown = rig.world.post(resize, &size);
    assert_eq!(grown["volume"]["size_bytes"], 96 << 20, "the space grew alone: {grown}");
    assert_eq!(rig.orders("grow"), orders + 1);
    assert_eq!(rig.world.post(resize, &size)["is_changed"], false);
    rig.stop();
}

/// Scenario: the tool that grows a file system fails, after more lines than a job keeps. The request has its sentence, and the job
/// its last lines. A growth that succeeds is a job that is done.
#[test]
fn a_growth_that_failed_shows_what_its_tool_printed() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.ended(rig.create());
    rig.mounted();
    let lines = (0..90).map(|line| format!("group {line} of the table\n")).collect::<String>();
    let message = format!(
        "resize2fs ended with exit status: 1: resize2fs: no room\n{lines}the device is short\nresize2fs: no room"
    );
    let failure = json!({"code": "refused", "message": message, "hint": "see dmesg"});
    let answer = rig.control.join("answer-grow");
    std::fs::write(&answer, json!({"say": "failed", "failure": failure}).to_string() + "\n").unwrap();
    let refused = rig.world.refused(&format!("{SHOW}/grow"), &json!({"size_bytes": 96 << 20}));
    let message = refused["message"].as_str().unwrap();
    assert!(message.ends_with("resize2fs: no room") && !message.contains("group"), "{refused}");
    let growths = |rig: &Rig| {
        let mut jobs = rig.world.get("/v1/jobs")["jobs"].as_array().unwrap().clone();
        jobs.retain(|job| job["kind"] == "volume_grow");
        jobs
    };
    let job = growths(&rig)[0].clone();
    assert!(
        refused["hint"].as_str().unwrap().starts_with(&format!("`dolmen jobs {}` shows", job["id"])),
        "{refused}"
    );
    let result = job["result"].as_str().unwrap();
    assert!(result.contains("the device is short | resize2fs: no room"), "{job}");
    assert!(job["state"] == "failed" && result.len() < 512 && !result.contains("group 1 "), "{job}");
    std::fs::write(&answer, json!({"say": "done", "outcome": {"is": "done"}}).to_string() + "\n").unwrap();
    let grown = rig.world.post(&format!("{SHOW}/grow"), &json!({"size_bytes": 96 << 20}));
    assert_eq!((grown["job"]["state"].clone(), growths(&rig).len()), (json!("done"), 2), "{grown}");
    rig.stop();
}

/// Scenario: a pool with a volume is imported for reading. Its volume takes no change, says why, is mounted when asked for, and
/// unmounted. The next import for writing mounts it.
#[test]
fn a_volume_of_a_pool_for_reading_takes_no_change() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.ended(rig.create());
    rig.mounted();
    std::fs::write(rig.mount().join("file"), "kept").unwrap();
    let import = |rig: &Rig, mode: &str| {
        let look_in = [rig.world.disk("d0"), rig.world.disk("d1")];
        rig.world.post("/v1/pools/tank/export", &json!({}));
        rig.world.post("/v1/pools/import", &json!({"pool": "tank", "paths": look_in, "mode": mode}));
    };
    import(&rig, "read");
    assert!(rig.volume()["why"].to_string().contains("open for reading"), "{}", rig.volume());
    let share = json!({"name": "docs", "protocols": ["nfs"]});
    let refuse = |rig: &Rig| {
        for (what, body) in [
            ("trim", json!({})),
            ("grow", json!({"size_bytes": 96 << 20})),
            ("quotas", json!({"folder": "docs", "limit_bytes": 1 << 20})),
            ("shares", share.clone()),
            ("dedup/run", json!({})),
            ("compact", json!({})),
            ("delete", json!({})),
        ] {
            let refused = rig.world.refused(&format!("{SHOW}/{what}"), &body);
            assert_eq!(refused["code"], "read_only", "{what}: {refused}");
            assert!(refused["message"].as_str().unwrap().contains("open for reading"), "{refused}");
        }
    };
    refuse(&rig);
    rig.world.post(&format!("{SHOW}/mount"), &json!({}));
    rig.mounted();
    assert_eq!(std::fs::read_to_string(rig.mount().join("file")).unwrap(), "kept");
    assert!(std::fs::write(rig.mount().join("file"), "changed").is_err());
    assert_eq!((rig.orders("share_put"), rig.volume()["health"].clone()), (0, json!("warning")));
    refuse(&rig);
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    assert_eq!(rig.volume()["mounted_at"], Value::Null);
    import(&rig, "write");
    rig.mounted();
    assert_eq!(std::fs::read_to_string(rig.mount().join("file")).unwrap(), "kept");
    rig.stop();
}

/// Scenario: a process has the device of a volume open that is deleted, so its space cannot be detached. A second deletion ends
/// the first one when the process has left; so does the next daemon.
#[test]
fn a_deletion_that_cannot_detach_goes_on() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.ended(rig.create());
    let delete = format!("{SHOW}/delete");
    for ended_by in ["a second deletion", "the next daemon"] {
        let device = rig.mounted()["device"].as_str().unwrap().to_owned();
        let open = std::fs::File::open(&device).unwrap();
        let refused = rig.world.refused(&delete, &json!({}));
        assert_eq!(
            (&refused["code"], &rig.volume()["state"]),
            (&json!("busy"), &json!("deleting")),
            "{refused}"
        );
        drop(open);
        if ended_by == "the next daemon" {
            rig.world.kill();
            rig.start();
        } else {
            rig.world.post(&delete, &json!({}));
        }
        eventually(ended_by, || (rig.world.get("/v1/volumes")["volumes"] == json!([])).then_some(()));
        rig.world.post("/v1/pools/tank/trash/v/restore", &json!({}));
    }
    rig.mounted();
    rig.stop();
}
