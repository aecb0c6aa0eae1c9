//! Attached spaces that cannot be flushed, because the disk with the only copy of what was written last is gone.
//!
//! They need root, FUSE and loop devices; where one of them is missing the test says so and ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::client::{World, eventually};
use crate::mounts;

/// Takes away what a test that failed would leave.
struct Cleaned(World);

impl Drop for Cleaned {
    fn drop(&mut self) {
        if !self.0.is_running() {
            self.0.start();
        }
        let _ = self.0.try_ask("POST", "/v1/pools/tank/spaces/s/detach", br#"{"discard_unflushed":"s"}"#);
        let _ = self.0.try_ask("POST", "/v1/shutdown", b"{}");
        let folder = self.0.folder.path().join("run/attached");
        let _ = Command::new("umount").arg("-l").arg(folder).output();
    }
}

const DETACH: &str = "/v1/pools/tank/spaces/s/detach";

/// A pool of two disks and a space with one copy, attached and written to without a flush; the daemon is killed, and one of
/// the disks is away when the next one begins. Nothing where the machine cannot attach.
fn stuck() -> Option<(Cleaned, PathBuf)> {
    let mut world = World::new(2);
    world.post("/v1/pools", &json!({"name": "tank", "disks": [world.disk("d0"), world.disk("d1")]}));
    let space = json!({"name": "s", "size_bytes": 32 << 20, "resiliency": "simple", "row_bytes": 1 << 20});
    world.post("/v1/pools/tank/spaces", &space);
    let (status, answer) =
        world.try_ask("POST", "/v1/pools/tank/spaces/s/attach", br#"{"transport":"loop"}"#).unwrap();
    if status != 200 {
        println!("skipped: {}", answer["error"]["message"]);
        return None;
    }
    let device = fs::canonicalize(world.folder.path().join("dev/tank/s")).unwrap();
    let of = format!("of={}", device.display());
    let wrote = Command::new("dd")
        .args(["if=/dev/urandom", &of, "bs=1M", "count=8", "oflag=direct", "status=none"])
        .status()
        .unwrap();
    assert!(wrote.success());
    world.kill();
    fs::rename(world.disk("d1"), world.folder.path().join("away")).unwrap();
    world.start();
    Some((Cleaned(world), device))
}

fn is_configured(device: &Path) -> bool {
    let name = device.file_name().unwrap().to_str().unwrap();
    Path::new("/sys/block").join(name).join("loop/backing_file").exists()
}

#[test]
fn what_cannot_be_flushed_is_detached_once_that_is_confirmed() {
    // Scenario: a space whose last writes are on a disk that is gone is neither detached, nor deleted, exported or ended with
    // its daemon, and each says what helps; a dry run says what is lost; another name is none; while a process has the
    // device open, it is refused. Then its unflushed writes are discarded, its device is detached, and the space can be deleted.
    let _mounts = mounts::mounting();
    let Some((cleaned, device)) = stuck() else { return };
    let world = &cleaned.0;
    let transport_of = "dolmen space detach tank/s --discard-unflushed=tank/s";
    for (path, request) in [
        (DETACH, json!({})),
        (DETACH, json!({"dry_run": true})),
        ("/v1/pools/tank/spaces/s/delete", json!({"purge": true, "destroy": "s"})),
        ("/v1/pools/tank/export", json!({})),
        ("/v1/pools/tank/destroy", json!({"destroy": "tank"})),
        ("/v1/shutdown", json!({})),
    ] {
        let error = world.refused(path, &request);
        let hint = error["hint"].as_str().unwrap();
        assert!(hint.contains(transport_of), "{path}: {error}");
    }
    let error = world.refused(DETACH, &json!({}));
    assert!(error["message"].as_str().unwrap().contains("which is absent"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("dolmen disk online tank 1"), "{error}");
    assert_eq!(world.refused(DETACH, &json!({"discard_unflushed": "m"}))["code"], "needs_confirmation");
    let sure = json!({"discard_unflushed": "tank/s"});
    let plan = world.post(DETACH, &json!({"discard_unflushed": "tank/s", "dry_run": true}));
    let step = plan["plan"]["steps"][0].as_str().unwrap();
    assert!(step.contains("acknowledged and never flushed") && step.contains("MiB"), "{plan}");
    assert!(plan["plan"]["is_reversible"] == json!(false) && is_configured(&device), "{plan}");
    assert!(plan["warnings"][0].as_str().unwrap().contains("disk online tank 1"), "{plan}");
    let open = Command::new("sleep").arg("600").stdin(fs::File::open(&device).unwrap()).spawn();
    let mut open = open.unwrap();
    let error = world.refused(DETACH, &sure);
    open.kill().unwrap();
    open.wait().unwrap();
    assert_eq!(error["code"], "busy");
    assert!(error["message"].as_str().unwrap().contains(&open.id().to_string()), "{error}");
    let change = world.post(DETACH, &sure);
    assert!(change["warnings"][0].as_str().unwrap().contains("discarded"), "{change}");
    assert!(!is_configured(&device));
    world.post("/v1/pools/tank/spaces/s/delete", &json!({"purge": true, "destroy": "s"}));
    world.post("/v1/pools/tank/export", &json!({}));
}

#[test]
fn what_the_page_cache_cannot_write_is_discarded_too() {
    // Scenario: as before, and then the kernel holds writes in its page cache that meet the absent disk; giving up does not
    // hang. The disk comes back to another daemon: a plain detach would have done.
    let _mounts = mounts::mounting();
    let Some((mut cleaned, device)) = stuck() else { return };
    let of = format!("of={}", device.display());
    let _ = Command::new("dd").args(["if=/dev/urandom", &of, "bs=1M", "count=8", "status=none"]).status();
    let world = &mut cleaned.0;
    world.kill();
    world.start();
    world.post(DETACH, &json!({"discard_unflushed": "s"}));
    assert!(!is_configured(&device));
    world.post("/v1/shutdown", &json!({}));
    assert!(world.ended().success());
}

#[test]
fn a_space_whose_disk_is_back_is_detached_as_ever() {
    // Scenario: the disk that was away is back; with and without the name, a detach loses nothing and warns of nothing.
    let _mounts = mounts::mounting();
    let Some((cleaned, device)) = stuck() else { return };
    let world = &cleaned.0;
    fs::rename(world.folder.path().join("away"), world.disk("d1")).unwrap();
    world.post("/v1/pools/tank/disks/1/online", &json!({}));
    eventually("the space is detached", || {
        // The first flush behind it may tell that writes went with the disk.
        let (status, answer) = world.try_ask("POST", DETACH, b"{}")?;
        (status == 200).then_some(answer)
    });
    assert!(!is_configured(&device));
}

#[test]
fn a_space_of_a_pool_that_is_not_open_is_detached_by_its_name() {
    // Scenario: all disks of the pool are away when the daemon begins again: the pool cannot be forgotten while its space is
    // attached, the daemon does not end, and the space is detached once that is confirmed. Then the pool is forgotten.
    let _mounts = mounts::mounting();
    let Some((mut cleaned, device)) = stuck() else { return };
    let world = &mut cleaned.0;
    world.kill();
    fs::rename(world.disk("d0"), world.folder.path().join("away0")).unwrap();
    world.start();
    for (path, request) in
        [("/v1/pools/tank/export", json!({})), ("/v1/shutdown", json!({})), (DETACH, json!({}))]
    {
        let hint = world.refused(path, &request)["hint"].as_str().unwrap().to_owned();
        assert!(hint.contains("--discard-unflushed=tank/s"), "{path}: {hint}");
    }
    world.post(DETACH, &json!({"discard_unflushed": "tank/s"}));
    assert!(!is_configured(&device));
    world.post("/v1/pools/tank/export", &json!({}));
    world.post("/v1/shutdown", &json!({}));
    assert!(world.ended().success());
}
