//! Disks that leave a pool without another in their place.

use std::fs;

use serde_json::{Value, json};

use crate::client::{World, eventually, pattern};

const REMOVE: &str = "/v1/pools/tank/disks/1/remove";
const CANCEL: &str = "/v1/pools/tank/disks/1/remove/cancel";

fn paths(world: &World) -> Vec<String> {
    let disks = world.get("/v1/pools/tank/disks")["disks"].clone();
    disks.as_array().unwrap().iter().map(|disk| disk["path"].as_str().unwrap_or("-").to_owned()).collect()
}

fn fill(world: &World) -> Vec<u8> {
    let content = pattern(9, 32 << 20);
    for (number, part) in content.chunks(16 << 20).enumerate() {
        world.nbd().write((number as u64) << 24, part);
    }
    world.nbd().flush();
    content
}

fn expect(world: &World, content: &[u8]) {
    for (number, part) in content.chunks(16 << 20).enumerate() {
        assert!(world.nbd().read((number as u64) << 24, 16 << 20) == part, "part {number}");
    }
}

#[test]
fn a_disk_leaves_over_a_killed_daemon_and_belongs_to_nobody() {
    // Scenario: what is asked before says what it does; the daemon is killed on the way, and the next one goes on. Then one of
    // those that stay is gone too: nothing is lost, and the disk that left is free.
    let mut world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    let content = fill(&world);
    let asked = world.post(REMOVE, &json!({"dry_run": true}));
    assert_eq!(asked["is_changed"], false);
    let plan = &asked["plan"];
    assert!(plan["moved_bytes"].as_u64().unwrap() > 8 << 20, "{plan}");
    assert!(plan["usable_after_bytes"].as_u64() < plan["usable_before_bytes"].as_u64(), "{plan}");
    assert!(plan["undo"].as_str().unwrap().contains("dolmen pool remove tank 1 --cancel"), "{plan}");
    let begun = world.post(REMOVE, &json!({}));
    assert_eq!(begun["plan"], asked["plan"]);
    assert_eq!(begun["job"]["kind"], "drain");
    world.kill();
    world.start();
    let gone = || Some(paths(&world)).filter(|paths| paths.len() == 2);
    assert_eq!(eventually("the disk leaves", gone), [world.disk("d0"), world.disk("d2")]);
    assert_eq!(world.last_job()["state"], "done");
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    expect(&world, &content);
    world.post("/v1/pools", &json!({"name": "other", "disks": [world.disk("d1")]}));
    world.kill();
    fs::remove_file(world.disk("d0")).unwrap();
    world.start();
    expect(&world, &content);
}

#[test]
fn a_removal_is_called_off_and_one_without_an_end_is_not_begun() {
    // Scenario: the wrong disk was named, and it is called off. Then the only other disk is to leave, whose mirror needs two; and
    // one that is away, with a part of a space of one copy: refused with what to do, and nothing is changed.
    let mut world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    let content = fill(&world);
    assert_eq!(world.refused(CANCEL, &json!({}))["code"], "bad_request", "nothing is being removed");
    let begun = world.post(REMOVE, &json!({}))["job"]["id"].clone();
    if let Some((200, asked)) = world.try_ask("POST", CANCEL, br#"{"dry_run": true}"#) {
        assert_eq!(asked["is_changed"], false, "{asked}");
    }
    // It may have ended already.
    let (status, _) = world.try_ask("POST", CANCEL, b"{}").unwrap();
    // Another one may begin right behind it.
    world.last_job();
    let job = world.get(&format!("/v1/jobs/{begun}"))["job"].clone();
    if status == 200 {
        assert!(job["result"].as_str().unwrap().contains("is not removed any more"), "{job}");
        assert_eq!(paths(&world).len(), 3);
        world.post(REMOVE, &json!({}));
    }
    assert_eq!(
        eventually("the disk leaves", || Some(paths(&world)).filter(|paths| paths.len() == 2)).len(),
        2
    );
    // Its labels are wiped behind that.
    assert_eq!(world.last_job()["state"], "done");
    let before = paths(&world);
    for dry_run in [true, false] {
        let error = world.refused("/v1/pools/tank/disks/0/remove", &json!({"dry_run": dry_run}));
        let message = error["message"].as_str().unwrap();
        assert!(error["code"] == "no_space" && message.contains("of m have a part on"), "{error}");
        assert!(error["hint"].as_str().unwrap().contains("dolmen disk replace"), "{error}");
    }
    assert_eq!(paths(&world), before);
    world.post("/v1/pools/tank/disks", &json!({"disks": [world.disk("d1")], "stays": true}));
    let simple = json!({"name": "s", "size_bytes": 8 << 20, "resiliency": "simple", "provisioning": "fixed"});
    world.post("/v1/pools/tank/spaces", &simple);
    world.kill();
    fs::rename(world.disk("d2"), world.folder.path().join("away")).unwrap();
    world.start();
    let error = world.refused("/v1/pools/tank/disks/2/remove", &json!({}));
    assert!(error["message"].as_str().unwrap().contains("tank/s has no other copy"), "{error}");
    world.post("/v1/pools/tank/spaces/s/delete", &json!({"purge": true, "destroy": "s"}));
    // It is lost for good: what it had is rebuilt on the one that was added.
    let begun: Value = world.post("/v1/pools/tank/disks/2/remove", &json!({}));
    assert!(begun["plan"]["steps"].to_string().contains("rebuild on other disks"), "{begun}");
    let both = || Some(paths(&world)).filter(|paths| paths.len() == 2);
    assert_eq!(eventually("it is struck", both), [world.disk("d0"), world.disk("d1")]);
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    expect(&world, &content);
}
