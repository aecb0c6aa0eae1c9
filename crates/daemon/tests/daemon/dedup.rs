//! Deduplication and compaction of volumes through the daemon, with the worker of this build. They need root, FUSE, loop devices, and
//! the tools and kernel of XFS and btrfs; where one of them is missing the test says so and ends.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{World, eventually};
use crate::mounts;
use crate::volumes::abandon_volume;

/// What stands in for the worker: it notes each order, stops in front of an operation and behind it as far as files say so, and passes
/// commands and messages on.
const SCRIPT: &str = r#"#!/bin/sh
exec 4<&0
read -r order
name=${order#*'"do":"'}
name=${name%%'"'*}
echo "$name" >>FOLDER/orders
while [ -e "FOLDER/before-$name" ]; do echo $$ >"FOLDER/held"; sleep 0.05; done
mkfifo FOLDER/in.$$
WORKER <FOLDER/in.$$ &
worker=$!
exec 3>FOLDER/in.$$
rm FOLDER/in.$$
printf '%s\n' "$order" >&3
cat <&4 >&3 &
passing=$!
exec 3>&-
wait $worker
while [ -e "FOLDER/after-$name" ]; do echo $$ >"FOLDER/held"; sleep 0.05; done
kill $passing 2>/dev/null
exit 0
"#;

const DEDUP: &str = "/v1/pools/tank/volumes/v/dedup";
const MIB: usize = 1 << 20;

/// A daemon with a pool of two disks and a mounted volume.
struct Rig {
    world: World,
    control: PathBuf,
}

impl Rig {
    /// One with a volume of a file system; none, with its reason printed, where this machine has none.
    fn new(file_system: &'static str) -> Option<Self> {
        let worker = Path::new(env!("CARGO_BIN_EXE_dolmend")).with_file_name("dolmen-worker");
        // A part of this build that is missing is no lack of the machine: nothing is skipped for it.
        assert!(
            worker.exists(),
            "build it first: cargo build -p dolmen-worker --bins; {} is missing",
            worker.display()
        );
        let mut world = World::new(0);
        world.kill();
        ["d0", "d1"].iter().for_each(|name| drop(world.make_disk(name, 768 << 20)));
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
            println!("skipped: {}", answer["error"]["message"]);
            return None;
        }
        rig.world.post("/v1/pools/tank/spaces/m/detach", &json!({}));
        let size_bytes = if file_system == "ext4" { 192 << 20 } else { 320 << 20 };
        let request = json!({"name": "v", "size_bytes": size_bytes, "purpose": "files", "file_system": file_system,
                             "resiliency": "mirror", "row_bytes": 1 << 20, "mount_point": rig.mount()});
        let (status, answer) =
            rig.world.try_ask("POST", "/v1/pools/tank/volumes", request.to_string().as_bytes()).unwrap();
        if status != 200 {
            assert_eq!(answer["error"]["code"], "missing", "{answer}");
            println!("skipped: {}", answer["error"]["message"]);
            return None;
        }
        rig.mounted();
        Some(rig)
    }

    fn start(&mut self) {
        let mut command = self.world.command("state", "run");
        command.env("DOLMEN_WORKER", self.control.join("worker"));
        self.world.begin(command);
    }

    fn mount(&self) -> PathBuf {
        self.world.folder.path().join("mnt")
    }

    fn mounted(&self) {
        let mount = self.mount().display().to_string();
        eventually("the volume is mounted", || {
            let volume = self.world.get("/v1/pools/tank/volumes/v")["volume"].clone();
            (volume["mounted_at"] == mount.as_str()).then_some(())
        });
    }

    /// Claimed bytes of the volume, when they have not changed for two seconds.
    fn claimed_at_rest(&self) -> u64 {
        let claimed =
            || self.world.get("/v1/pools/tank/volumes/v")["volume"]["claimed_bytes"].as_u64().unwrap();
        let mut seen = claimed();
        loop {
            #[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
            std::thread::sleep(Duration::from_secs(2));
            let now = claimed();
            if now == seen {
                return now;
            }
            seen = now;
        }
    }

    fn dedup(&self) -> Value {
        self.world.get(DEDUP)
    }

    /// Writes two equal files and one of its own, and lets runs take them.
    fn fill(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let files = [("a", 1), ("b", 1), ("c", 2)].map(|(name, seed)| {
            let (path, content) = (self.mount().join(name), noise(seed, 8 * MIB));
            std::fs::write(&path, &content).unwrap();
            (path, content)
        });
        assert!(Command::new("sync").arg("-f").arg(self.mount()).status().unwrap().success());
        let policy = json!({"min_age_days": 0, "min_file_bytes": 4096, "schedule": "never"});
        let set = self.world.post(&format!("{DEDUP}/enable"), &policy);
        assert_eq!(set["is_changed"], true, "{set}");
        files.into()
    }

    fn begin(&self, verb: &str) -> u64 {
        let begun = self.world.post(&format!("{DEDUP}/{verb}"), &json!({}));
        begun["job"]["id"].as_u64().unwrap()
    }

    fn job(&self, id: u64) -> Value {
        self.world.get(&format!("/v1/jobs/{id}"))["job"].clone()
    }

    fn reaches(&self, id: u64, states: &[&str]) -> Value {
        eventually("the job reaches a state", || {
            let job = self.job(id);
            states.iter().any(|state| job["state"] == **state).then_some(job)
        })
    }

    fn ended(&self, id: u64) -> Value {
        self.reaches(id, &["done", "failed", "called_off"])
    }

    fn orders(&self, name: &str) -> usize {
        let orders = std::fs::read_to_string(self.control.join("orders")).unwrap_or_default();
        orders.lines().filter(|order| *order == name).count()
    }

    fn hold(&self) {
        std::fs::write(self.control.join("before-dedup"), "").unwrap();
    }

    fn is_held(&self) {
        eventually("the worker is held", || self.control.join("held").exists().then_some(()));
    }

    fn lift(&self) {
        std::fs::remove_file(self.control.join("before-dedup")).unwrap();
        let _ = std::fs::remove_file(self.control.join("held"));
    }

    fn stop(&mut self) {
        self.world.post("/v1/shutdown", &json!({}));
        assert!(self.world.ended().success());
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for plant in ["before-dedup", "before-compact", "after-compact"] {
            let _ = std::fs::remove_file(self.control.join(plant));
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

/// Bytes that compress badly, the same for the same seed.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    next.take(bytes / 8).flatten().collect()
}

fn are_whole(files: &[(PathBuf, Vec<u8>)]) {
    for (path, content) in files {
        assert!(std::fs::read(path).unwrap() == *content, "{}", path.display());
    }
}

/// Scenario: a volume with two equal files is estimated, deduplicated, compacted and undone, on each file system. Each job is done, no
/// byte of a file changes, and the three numbers of the run are there after a restart.
#[test]
fn a_deduplication_saves_and_leaves_content_as_it_is() {
    let _mounts = mounts::mounting();
    for file_system in ["btrfs", "xfs"] {
        let Some(mut rig) = Rig::new(file_system) else { return };
        let before = rig.dedup();
        assert_eq!((&before["policy"], &before["last"]), (&Value::Null, &Value::Null), "{before}");
        let files = rig.fill();
        let policy = json!({"min_age_days": 0});
        let same = rig.world.post(&format!("{DEDUP}/enable"), &policy);
        assert_eq!(same["is_changed"], false, "the policy is that already: {same}");
        let estimate = rig.ended(rig.begin("estimate"));
        assert_eq!(estimate["state"], "done", "{estimate}");
        assert!(estimate["result"].as_str().unwrap().contains("would be saved"), "{estimate}");
        let run = rig.ended(rig.begin("run"));
        assert_eq!(run["state"], "done", "{run}");
        assert!(run["result"].as_str().unwrap().contains("saved in volume tank/v"), "{run}");
        let last = rig.dedup()["last"].clone();
        let saved = last["saved_bytes"].as_u64().unwrap();
        assert!((7 << 20..=9 << 20).contains(&saved), "{file_system}: {last}");
        assert_eq!((&last["mode"], &last["is_stopped"]), (&json!("background"), &json!(false)));
        are_whole(&files);
        let compacted =
            rig.world.post("/v1/pools/tank/volumes/v/compact", &json!({"budget_bytes": 64 << 20}));
        let compacted = rig.ended(compacted["job"]["id"].as_u64().unwrap());
        assert_eq!(compacted["state"], "done", "{file_system}: {compacted}");
        let undone = rig.ended(rig.begin("undo"));
        assert_eq!(undone["state"], "done", "{undone}");
        assert!(undone["result"].as_str().unwrap().contains("free room fell by"), "{undone}");
        let last = rig.dedup()["last"].clone();
        let given_back = last["undone_bytes"].as_u64().unwrap();
        assert!((7 << 20..=9 << 20).contains(&given_back), "the status has the undo: {last}");
        are_whole(&files);
        rig.stop();
        rig.start();
        rig.mounted();
        assert_eq!(rig.dedup()["last"], last, "the run is on record in the pool");
        are_whole(&files);
        rig.stop();
    }
}

/// Scenario: each change as a dry run, and two with a path that the volume does not have. Dry runs have steps, the undo is refused,
/// the exclusion has a warning, and nothing is ordered or put on record.
#[test]
fn a_dry_run_of_a_deduplication_begins_nothing() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new("xfs") else { return };
    rig.fill();
    let (before, orders) = (rig.dedup()["policy"].clone(), rig.orders("dedup"));
    for verb in ["compact", "dedup/estimate", "dedup/enable", "dedup/run", "dedup/undo"] {
        let mut request = json!({"dry_run": true});
        if verb == "dedup/enable" {
            request["off"] = json!(true);
        }
        let planned = rig.world.post(&format!("/v1/pools/tank/volumes/v/{verb}"), &request);
        assert_eq!((&planned["is_changed"], &planned["job"]), (&json!(false), &Value::Null), "{verb}");
        assert!(!planned["plan"]["steps"].as_array().unwrap().is_empty(), "{verb}: {planned}");
    }
    let refused = rig.world.refused(&format!("{DEDUP}/undo"), &json!({"paths": ["a", "nope"]}));
    assert_eq!(refused["code"], "bad_request", "{refused}");
    assert!(
        refused["message"].as_str().unwrap().contains("no file or folder nope on volume tank/v"),
        "{refused}"
    );
    let request = json!({"excluded_folders": ["nope"], "dry_run": true});
    let warned = rig.world.post(&format!("{DEDUP}/enable"), &request);
    assert!(warned["warnings"][0].as_str().unwrap().contains("no folder nope"), "{warned}");
    assert_eq!((rig.dedup()["policy"].clone(), rig.orders("dedup")), (before, orders));
    rig.stop();
}

/// Scenario: a volume on ext4. Each change says why it cannot be, and nothing is ordered.
#[test]
fn ext4_is_refused_with_the_reason() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new("ext4") else { return };
    assert!(rig.dedup()["unsupported"].as_str().unwrap().contains("ext4"));
    for verb in ["dedup/estimate", "dedup/enable", "dedup/run", "dedup/undo", "compact"] {
        let refused = rig.world.refused(&format!("/v1/pools/tank/volumes/v/{verb}"), &json!({}));
        assert_eq!(refused["code"], "unsupported", "{verb}: {refused}");
        assert!(refused["message"].as_str().unwrap().contains("ext4"), "{verb}: {refused}");
    }
    assert_eq!(rig.orders("dedup") + rig.orders("compact") + rig.orders("estimate"), 0);
    rig.stop();
}

/// Scenario: the daemon is killed while its worker is in front of a deduplication. The worker goes on; the next daemon waits for it and
/// gives the order again under the same number.
#[test]
fn a_deduplication_of_a_killed_daemon_is_ended_by_the_next() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new("btrfs") else { return };
    let files = rig.fill();
    rig.hold();
    let job = rig.begin("run");
    rig.is_held();
    let refused = rig.world.refused("/v1/pools/tank/volumes/v/unmount", &json!({}));
    assert_eq!(refused["code"], "busy", "{refused}");
    rig.world.kill();
    rig.lift();
    rig.start();
    let ended = rig.ended(job);
    assert_eq!(ended["state"], "done", "{ended}");
    assert!(rig.orders("dedup") >= 2, "one of each daemon, and one for each look at the lock");
    are_whole(&files);
    rig.stop();
}

/// Scenario: the daemon is killed in front of the process of a compaction, behind it, and while it waits for the rows to come to rest.
/// Expected: the next daemon ends the job under its number, files are whole, and the rows are as few as without a kill.
#[test]
fn a_compaction_that_is_killed_at_any_step_has_one_end() {
    let _mounts = mounts::mounting();
    let mut claimed_without_kill = None;
    for step in ["", "before-compact", "after-compact", "rest"] {
        let Some(mut rig) = Rig::new("xfs") else { return };
        let files = rig.fill();
        for number in 0..40 {
            std::fs::write(rig.mount().join(format!("s{number}")), noise(number, MIB)).unwrap();
        }
        assert!(Command::new("sync").arg("-f").arg(rig.mount()).status().unwrap().success());
        (0..40).filter(|number| number % 4 > 0).for_each(|number| {
            std::fs::remove_file(rig.mount().join(format!("s{number}"))).unwrap();
        });
        let plant = rig.control.join(step);
        if step.ends_with("-compact") {
            std::fs::write(&plant, "").unwrap();
        }
        let begun = rig.world.post("/v1/pools/tank/volumes/v/compact", &json!({}));
        let job = begun["job"]["id"].as_u64().unwrap();
        match step {
            "" => {}
            "rest" => {
                let show = || rig.world.get("/v1/pools/tank/volumes/v")["volume"]["worker"].is_null();
                eventually("its process has ended", || (rig.orders("compact") == 1 && show()).then_some(()));
                rig.world.kill();
                rig.start();
            }
            _ => {
                rig.is_held();
                rig.world.kill();
                std::fs::remove_file(&plant).unwrap();
                let _ = std::fs::remove_file(rig.control.join("held"));
                rig.start();
            }
        }
        let ended = rig.ended(job);
        assert_eq!(ended["state"], "done", "{step}: {ended}");
        are_whole(&files);
        let claimed = rig.world.get("/v1/pools/tank/volumes/v")["volume"]["claimed_bytes"].as_u64().unwrap();
        let expected = *claimed_without_kill.get_or_insert(claimed);
        assert!(claimed <= expected + (4 << 20), "{step}: {claimed} bytes are claimed, and not {expected}");
        rig.stop();
    }
}

/// Scenario: a btrfs lost 60 % of its files at random, and is trimmed. It is compacted, and in a second round the daemon is killed while
/// the kernel moves a block group. Expected: the job is done under its number, the space claims a quarter less at least and says so, no
/// balance is left, and files are whole.
#[test]
fn a_compaction_of_btrfs_gives_rows_back_to_the_pool() {
    let _mounts = mounts::mounting();
    for is_killed in [false, true] {
        let Some(mut rig) = Rig::new("btrfs") else { return };
        let mut files = Vec::new();
        for number in 0..320u64 {
            let path = rig.mount().join(format!("s{number}"));
            // A multiple of 4 KiB up to 600 KiB, and a lot, which are far from each other in numbers that follow each other.
            let draw = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let content = noise(number, (usize::try_from(draw % 150).unwrap() + 1) << 12);
            std::fs::write(&path, &content).unwrap();
            files.push((draw / 150 % 10, (path, content)));
        }
        let sync = || assert!(Command::new("sync").arg("-f").arg(rig.mount()).status().unwrap().success());
        sync();
        files
            .iter()
            .filter(|(lot, _)| *lot < 6)
            .for_each(|(_, (path, _))| std::fs::remove_file(path).unwrap());
        let files: Vec<_> = files.into_iter().filter(|(lot, _)| *lot >= 6).map(|(_, file)| file).collect();
        sync();
        rig.world.post("/v1/pools/tank/volumes/v/trim", &json!({}));
        let before = rig.claimed_at_rest();
        let begun = rig.world.post("/v1/pools/tank/volumes/v/compact", &json!({}));
        let job = begun["job"]["id"].as_u64().unwrap();
        let balance = || {
            let status = Command::new("btrfs").args(["balance", "status"]).arg(rig.mount()).output().unwrap();
            String::from_utf8_lossy(&status.stdout).into_owned()
        };
        if is_killed {
            let is_over = || !["running", "queued"].contains(&rig.job(job)["state"].as_str().unwrap());
            eventually("the kernel moves a block group", || {
                (0..50)
                    .any(|_| balance().contains("is running"))
                    .then_some(())
                    .or_else(|| is_over().then_some(()))
            });
            assert!(!is_over(), "the job had ended before");
            rig.world.kill();
            rig.start();
        }
        let ended = rig.ended(job);
        assert_eq!(ended["state"], "done", "{ended}");
        let after = rig.claimed_at_rest();
        println!("killed: {is_killed}; {before} bytes claimed, then {after}: {}", ended["result"]);
        assert!(after * 4 <= before * 3, "{after} bytes are claimed of {before}: {ended}");
        let result = ended["result"].as_str().unwrap();
        assert!(result.contains("given back to pool tank") && result.contains("rows emptied"), "{ended}");
        let status = Command::new("btrfs").args(["balance", "status"]).arg(rig.mount()).output().unwrap();
        let status = String::from_utf8_lossy(&status.stdout);
        assert!(status.contains("No balance found"), "{status}");
        are_whole(&files);
        rig.stop();
    }
}

/// Scenario: a deduplication is paused before its worker begins, resumed, and another one is stopped. A paused one is ended by the end
/// of the daemon, and the next daemon goes on with it once it is resumed.
#[test]
fn a_deduplication_is_paused_resumed_and_stopped() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new("btrfs") else { return };
    let files = rig.fill();
    rig.hold();
    let job = rig.begin("run");
    rig.is_held();
    rig.world.post(&format!("/v1/jobs/{job}/pause"), &json!({}));
    rig.lift();
    rig.reaches(job, &["paused"]);
    assert_eq!(rig.dedup()["work"]["job"], job);
    rig.world.post(&format!("/v1/jobs/{job}/resume"), &json!({}));
    assert_eq!(rig.ended(job)["state"], "done");
    rig.hold();
    let stopped = rig.begin("run");
    rig.is_held();
    rig.world.post(&format!("/v1/jobs/{stopped}/stop"), &json!({}));
    rig.lift();
    assert_eq!(rig.ended(stopped)["state"], "called_off");
    rig.hold();
    let paused = rig.begin("run");
    rig.is_held();
    rig.world.post(&format!("/v1/jobs/{paused}/pause"), &json!({}));
    rig.lift();
    rig.reaches(paused, &["paused"]);
    rig.stop();
    rig.start();
    rig.mounted();
    assert_eq!(rig.job(paused)["state"], "paused");
    rig.world.post(&format!("/v1/jobs/{paused}/resume"), &json!({}));
    assert_eq!(rig.ended(paused)["state"], "done");
    are_whole(&files);
    rig.stop();
}
