//! Removals that meet what nobody foresaw (docs/design/0010).

use serde_json::{Value, json};

use crate::client::{World, eventually, pattern};
use crate::jobs::{change, ended, expect, full, idle, job, leaving, paused};

const SPACES: &str = "/v1/pools/tank/spaces";

/// Makes spaces that take all the room there is; their names.
fn fill(world: &World) -> Vec<String> {
    let (mut names, mut mib) = (Vec::new(), 128);
    while mib > 0 {
        let name = format!("f{}", names.len());
        let space = json!({
            "name": name, "size_bytes": mib << 20, "resiliency": "simple", "row_bytes": 1 << 20, "provisioning": "fixed"
        });
        let (status, _) = world.try_ask("POST", SPACES, space.to_string().as_bytes()).unwrap();
        if status == 200 {
            names.push(name);
        } else {
            mib /= 2;
        }
    }
    names
}

/// Scenario: while a removal is paused, others take the room that it needs. Resumed, it is put off and says so; when the room is
/// given back, it goes on by itself under its number.
#[test]
fn a_removal_short_of_room_waits_and_goes_on_when_there_is_some() {
    let mut world = full(&["d0", "d1", "d2"]);
    // More than disks keep for moves.
    world.post(&format!("{SPACES}/m/resize"), &json!({"size_bytes": 176 << 20}));
    (6..11).for_each(|part| world.nbd().write(part << 24, &pattern(9, 1 << 24)));
    world.nbd().flush();
    let id = leaving(&mut world);
    let names = fill(&world);
    change(&world, &id, "resume");
    let is_settled = |job: &Value| !job["waits_for"].is_null() || !job["ended_s"].is_null();
    let waits = eventually("it is put off", || Some(job(&world, &id)).filter(is_settled));
    assert_eq!(waits["state"], "waiting", "{waits} {} {}", world.get("/v1/pools/tank/disks"), world.get(SPACES));
    assert!(waits["waits_for"].as_str().unwrap().contains("room on the other disks"), "{waits}");
    expect(&world);
    for name in names {
        world.post(&format!("{SPACES}/{name}/delete"), &json!({"purge": true, "destroy": name}));
    }
    let done = ended(&world, &id);
    assert_eq!(done["state"], "done", "{done}");
    idle(&world);
    expect(&world);
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
