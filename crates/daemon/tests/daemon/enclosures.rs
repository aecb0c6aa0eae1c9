//! What disks are in, by name (docs/design/0023), against the real daemon.

use std::fs;

use serde_json::{Value, json};

use crate::client::World;
use crate::jobs::{ended, expect, full, idle};

fn disk_of(world: &World, slot: u64) -> Value {
    let disks = world.get("/v1/pools/tank/disks")["disks"].as_array().unwrap().clone();
    disks.into_iter().find(|disk| disk["slot"] == slot).unwrap_or_default()
}

fn set(world: &World, slot: u64, name: Option<&str>) -> Value {
    world.post(&format!("/v1/pools/tank/disks/{slot}/enclosure"), &json!({"name": name}))
}

#[test]
fn rows_that_share_an_enclosure_are_named_and_moved_apart() {
    // Scenario: a mirror on four disks, which are put in two enclosures then: some rows have both copies in one. That is told, also
    // by the next daemon, and a rebalance mends it; then either enclosure may go.
    let mut world = full(&["d0", "d1", "d2", "d3"]);
    for (slot, name) in [(0, "left"), (1, "left"), (2, "right"), (3, "right")] {
        set(&world, slot, Some(name));
    }
    assert_eq!(disk_of(&world, 1)["enclosure"], "left");
    assert_eq!(disk_of(&world, 0)["fault_domain"], disk_of(&world, 1)["fault_domain"]);
    world.kill();
    world.start();
    assert_eq!(disk_of(&world, 3)["enclosure"], "right");
    let status = world.get("/v1/status");
    assert!(status["why"].to_string().contains("of one enclosure that could be apart"), "{status}");
    assert!(status["todo"].to_string().contains("dolmen pool rebalance tank"), "{status}");
    let job = world.post("/v1/pools/tank/rebalance", &json!({}))["job"]["id"].clone();
    ended(&world, &job);
    idle(&world);
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    world.kill();
    fs::remove_file(world.disk("d0")).unwrap();
    fs::remove_file(world.disk("d1")).unwrap();
    world.start();
    expect(&world);
}

#[test]
fn an_enclosure_that_leaves_a_space_too_few_is_refused() {
    // Scenario: a mirror of three on three disks. Two of them in one enclosure would leave two: refused, and nothing is changed.
    // With a fourth disk, which is added in an enclosure, it may be.
    let world = full(&["d0", "d1", "d2"]);
    let three = json!({"name": "t", "size_bytes": 8 << 20, "resiliency": "mirror", "copies": 3});
    world.post("/v1/pools/tank/spaces", &three);
    set(&world, 0, Some("shelf"));
    let refused = world.refused("/v1/pools/tank/disks/1/enclosure", &json!({"name": "shelf"}));
    assert_eq!(refused["code"], "too_few_disks");
    assert!(refused["message"].as_str().unwrap().contains("tank/t keeps its rows apart over 3"), "{refused}");
    assert_eq!(disk_of(&world, 1)["enclosure"], Value::Null);
    world.post(
        "/v1/pools/tank/disks",
        &json!({"disks": [world.disk("d3")], "enclosures": ["other"], "stays": true}),
    );
    assert_eq!(disk_of(&world, 3)["enclosure"], "other");
    set(&world, 1, Some("shelf"));
    set(&world, 0, None);
    assert_eq!(disk_of(&world, 0)["fault_domain"], 0);
    let bad = json!({"name": "not a name"});
    assert_eq!(world.refused("/v1/pools/tank/disks/0/enclosure", &bad)["code"], "bad_request");
}
