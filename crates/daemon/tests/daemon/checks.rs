//! Checks, repairs and scrubs of volumes, with answers of tools that the tests plant. They need what those of volumes need.

use serde_json::{Value, json};

use crate::mounts;
use crate::volumes::{Rig, SHOW};

/// A rig with a mounted volume of a file system; none where this machine cannot make it.
fn rig(file_system: &str) -> Option<Rig> {
    let mut rig = Rig::new()?;
    let mut request = rig.request(false);
    if file_system != "ext4" {
        // More room than the two disks of the rig have: these file systems ask for it.
        let added = ["d2", "d3"].map(|name| rig.world.make_disk(name, 768 << 20));
        rig.world.post("/v1/pools/tank/disks", &json!({"disks": added, "destroy": added}));
        (request["file_system"], request["size_bytes"]) = (file_system.into(), (320 << 20).into());
    }
    let made = rig.world.try_ask("POST", "/v1/pools/tank/volumes", request.to_string().as_bytes()).unwrap();
    if made.0 != 200 {
        assert_eq!(made.1["error"]["code"], "missing", "{}", made.1);
        println!("skipped: {}", made.1["error"]["message"]);
        rig.stop();
        return None;
    }
    rig.mounted();
    Some(rig)
}

fn answer(rig: &Rig, operation: &str, outcome: &Value) {
    let said = json!({"say": "done", "outcome": outcome}).to_string();
    std::fs::write(rig.control.join(format!("answer-{operation}")), said + "\n").unwrap();
}

/// Asks for a check, and returns its job at its end.
fn checked(rig: &Rig, request: &Value) -> Value {
    let begun = rig.world.post(&format!("{SHOW}/check"), request);
    rig.ended(begun["job"]["id"].as_u64().unwrap())
}

fn report(rig: &Rig) -> Value {
    rig.world.get(&format!("{SHOW}/check"))
}

/// Scenario: a volume was never checked; then a check finds five things, and the daemon is started again. The job names three of them and
/// how to see all, and the report has all of them, with the output of the tool, also after the start.
#[test]
fn a_check_keeps_all_that_it_found() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig("ext4") else { return };
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    let (status, none) = rig.world.try_ask("GET", &format!("{SHOW}/check"), b"").unwrap();
    assert_eq!((status, &none["error"]["code"]), (404, &json!("no_such_object")), "{none}");
    let line = |number: u32| {
        format!("Entry 'f{number}' in /docs (12) has deleted/unused inode {number}.  Clear? no\n")
    };
    let text: String = (1..=5).map(line).collect();
    answer(&rig, "check", &json!({"is": "checked", "code": 4, "text": text}));
    let job = checked(&rig, &json!({}));
    let result = job["result"].as_str().unwrap();
    assert!(
        job["state"] == "failed" && result.contains("5 findings") && result.contains("--report"),
        "{job}"
    );
    assert!(!result.contains("f4"), "{job}");
    let found = report(&rig);
    assert_eq!(
        (&found["job"], &found["result"], &found["kind"]),
        (&job["id"], &json!("damaged"), &json!("check"))
    );
    let paths: Vec<&str> =
        found["findings"].as_array().unwrap().iter().filter_map(|one| one["path"].as_str()).collect();
    assert_eq!(paths, ["/docs/f1", "/docs/f2", "/docs/f3", "/docs/f4", "/docs/f5"]);
    assert_eq!(std::fs::read_to_string(found["file"].as_str().unwrap()).unwrap(), text);
    rig.stop();
    rig.start();
    assert_eq!(report(&rig)["findings"], found["findings"]);
    rig.stop();
}

/// Scenario: an XFS whose log no mount replays is repaired, by a repair that leaves the log and one that drops it. The first one repairs
/// nothing and names the other; that one has a step of its own in the plan, wants the name, and is the only one that says so to the worker.
#[test]
fn a_volume_whose_log_cannot_be_replayed_has_a_way_out() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig("xfs") else { return };
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    let path = format!("{SHOW}/check");
    let alone = rig.world.refused(&path, &json!({"drop_log": true}));
    assert_eq!(alone["code"], "bad_request", "{alone}");
    let log = "Phase 2 - using internal log\nERROR: The filesystem has valuable metadata changes in a log which needs to\n";
    answer(&rig, "check", &json!({"is": "checked", "code": 2, "text": log}));
    let checks = rig.orders("check");
    let job = checked(&rig, &json!({"repair": true, "destroy": "v"}));
    let result = job["result"].as_str().unwrap();
    assert!(job["state"] == "failed" && result.contains("log was not replayed"), "{job}");
    assert_eq!(rig.orders("check"), checks + 1, "a repair that repaired nothing is followed by a check");
    let order = || std::fs::read_to_string(rig.control.join("order-check")).unwrap();
    assert!(order().contains("\"drop_log\":false"), "{}", order());
    assert_eq!(
        (&report(&rig)["kind"], &report(&rig)["result"]),
        (&json!("repair"), &json!("log_not_replayed"))
    );
    let drop = json!({"repair": true, "drop_log": true, "dry_run": true});
    let plan = rig.world.post(&path, &drop);
    assert!(plan["plan"]["steps"][0].as_str().unwrap().contains("drop the log"), "{plan}");
    let untyped = rig.world.refused(&path, &json!({"repair": true, "drop_log": true}));
    assert_eq!(untyped["code"], "needs_confirmation", "{untyped}");
    answer(&rig, "check", &json!({"is": "checked", "code": 0, "text": ""}));
    let job = checked(&rig, &json!({"repair": true, "drop_log": true, "destroy": "v"}));
    assert_eq!(job["state"], "done", "{job}");
    assert_eq!(rig.orders("check"), checks + 3);
    rig.stop();
}

/// Scenario: a mounted btrfs is checked: a scrub that finds a block of a file, and one that the job stops. XFS and ext4 stay refused.
#[test]
fn a_mounted_btrfs_is_scrubbed_and_the_file_is_named() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig("btrfs") else { return };
    let line = "BTRFS warning (device loop3): checksum error at logical 1 on dev /dev/loop3, physical 1, root 5, inode 257, \
                offset 0, length 4096, links 1 (path: docs/a)";
    let found = json!({"is": "scrubbed", "bytes": 4096, "read_errors": 0, "checksum_errors": 1, "verify_errors": 0,
                       "super_errors": 0, "uncorrectable": 1, "corrected": 0, "messages": [line], "stopped": false});
    answer(&rig, "scrub", &found);
    let plan = rig.world.post(&format!("{SHOW}/check"), &json!({"dry_run": true}));
    assert!(plan["plan"]["steps"][0].as_str().unwrap().contains("scrub btrfs"), "{plan}");
    let job = checked(&rig, &json!({}));
    assert!(job["state"] == "failed" && job["result"].as_str().unwrap().contains("/docs/a"), "{job}");
    let shown = report(&rig);
    assert_eq!((&shown["kind"], &shown["result"]), (&json!("scrub"), &json!("damaged")));
    assert_eq!(shown["findings"][1]["path"], "/docs/a", "{shown}");
    rig.mounted();
    std::fs::remove_file(rig.control.join("answer-scrub")).unwrap();
    rig.plant("reads-scrub");
    let begun = rig.world.post(&format!("{SHOW}/check"), &json!({}));
    let id = begun["job"]["id"].as_u64().unwrap();
    rig.world.post(&format!("/v1/jobs/{id}/stop"), &json!({}));
    assert_eq!(rig.ended(id)["state"], "called_off");
    rig.lift("reads-scrub");
    let repair = rig.world.refused(&format!("{SHOW}/check"), &json!({"repair": true, "destroy": "v"}));
    assert_eq!(repair["code"], "busy", "{repair}");
    rig.stop();
}

/// Scenario: a volume is made for an older kernel. The plan says what that costs, the record keeps it, and what is no version is refused.
#[test]
fn a_volume_for_an_older_kernel_says_what_that_costs() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    let asked = |kernel: &str, dry_run: bool| {
        let mut request = rig.request(dry_run);
        request["oldest_kernel"] = kernel.into();
        request
    };
    let plan = rig.world.post("/v1/pools/tank/volumes", &asked("5.10", true));
    let reasons = plan["volume_plan"]["reasons"].to_string();
    assert!(reasons.contains("Kernel 5.10 is to mount it"), "{reasons}");
    for kernel in ["newest", "5.9"] {
        let refused = rig.world.refused("/v1/pools/tank/volumes", &asked(kernel, true));
        assert_eq!(refused["code"], "bad_request", "{refused}");
    }
    let made = rig.world.post("/v1/pools/tank/volumes", &asked("6.1", false));
    rig.ended(made["job"]["id"].as_u64().unwrap());
    assert_eq!(rig.mounted()["oldest_kernel"], "6.1");
    rig.stop();
}
