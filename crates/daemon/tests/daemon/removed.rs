//! Removals that meet what nobody foresaw (docs/design/0010).

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{World, eventually, pattern};
use crate::jobs::{change, ended, expect, full, idle, job, paused};

/// MiB of the space, in parts of 16.
const PARTS: u64 = 16;

/// Scenario: while the removal of a disk is paused, another disk stays away and is done without, which takes the room that the removal
/// needs. Resumed, it moves what has a place, is put off and says so; when there is another disk, it goes on by itself under its number.
#[test]
#[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
fn a_removal_short_of_room_moves_what_it_can_and_goes_on_when_there_is_more() {
    let mut world = World::new(5);
    world.make_tank(&["d0", "d1", "d2", "d3"]);
    world.post("/v1/pools/tank/spaces/m/resize", &json!({"size_bytes": PARTS << 24}));
    (0..PARTS).for_each(|part| world.nbd().write(part << 24, &pattern(9, 1 << 24)));
    world.nbd().flush();
    let id = paused(&mut world, |world, _| world.post("/v1/pools/tank/disks/0/remove", &json!({})));
    world.kill();
    fs::remove_file(world.disk("d1")).unwrap();
    world.start();
    world.post("/v1/pools/tank/repair_after", &json!({"seconds": 1}));
    let disks = || world.get("/v1/pools/tank/disks")["disks"].as_array().unwrap().clone();
    eventually("the other disk is done without", || (disks().len() == 3).then_some(()));
    change(&world, &id, "resume");
    let is_settled = |job: &Value| !job["waits_for"].is_null() || !job["ended_s"].is_null();
    eventually("it is put off", || Some(job(&world, &id)).filter(is_settled));
    // It is tried again meanwhile, when nothing at all has a place.
    std::thread::sleep(Duration::from_secs(5));
    let waits = eventually("it is put off again", || Some(job(&world, &id)).filter(is_settled));
    assert_eq!(waits["state"], "waiting", "{waits}");
    assert!(waits["waits_for"].as_str().unwrap().contains("room on the other disks"), "{waits}");
    world.post("/v1/pools/tank/disks", &json!({"disks": [world.disk("d4")]}));
    let done = ended(&world, &id);
    assert_eq!(done["state"], "done", "{done}");
    idle(&world);
    (0..PARTS).for_each(|part| assert!(world.nbd().read(part << 24, 1 << 24) == pattern(9, 1 << 24)));
    assert_eq!(world.get("/v1/status")["health"], "healthy");
}

/// Scenario: the emptying of a disk that is being retired is paused, and the disk removed. Resumed, it is done: the disk has left.
#[test]
fn a_disk_that_is_being_retired_is_removed_and_both_jobs_are_done() {
    let mut world = full(&["d0", "d1", "d2"]);
    let id = paused(&mut world, |world, _| {
        idle(world);
        world.post("/v1/pools/tank/disks/2/role", &json!({"role": "member"}));
        world.post("/v1/pools/tank/rebalance", &json!({}));
        idle(world);
        world.post("/v1/pools/tank/disks/2/role", &json!({"role": "retired"}))
    });
    let removal = world.post("/v1/pools/tank/disks/2/remove", &json!({}))["job"]["id"].clone();
    assert_eq!(ended(&world, &removal)["state"], "done");
    let (status, answer) = world.try_ask("POST", &format!("/v1/jobs/{id}/resume"), b"{}").unwrap();
    assert!(status == 200, "{answer}");
    let done = ended(&world, &id);
    assert_eq!(done["state"], "done", "{done}");
    assert!(done["result"].as_str().unwrap().contains("has left the pool"), "{done}");
    expect(&world);
}
