//! Disks whose device has become larger (docs/design/0034).

use std::fs;

use serde_json::{Value, json};

use crate::client::{World, pattern};
use crate::jobs::idle;

const BEFORE: u64 = 256 << 20;
const AFTER: u64 = 1 << 30;
const PART: usize = 16 << 20;

fn set_length(world: &World, name: &str, length: u64) {
    fs::OpenOptions::new().write(true).open(world.disk(name)).unwrap().set_len(length).unwrap();
}

fn expect(world: &World) {
    let mut client = world.nbd();
    (0..2).for_each(|part| assert!(client.read(part * PART as u64, PART) == pattern(1, PART)));
}

fn data_bytes(world: &World) -> u64 {
    world.get("/v1/pools/tank")["pool"]["data_bytes"].as_u64().unwrap()
}

fn all_present(world: &World) {
    let disks = world.get("/v1/pools/tank/disks")["disks"].as_array().unwrap().clone();
    assert!(disks.iter().all(|disk| disk["state"] == "present"), "{disks:?}");
}

fn grown(world: &World) -> Vec<Value> {
    let why = world.get("/v1/status")["why"].as_array().unwrap().clone();
    why.into_iter().filter(|why| why.to_string().contains("has grown")).collect()
}

fn written() -> World {
    let world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let mut client = world.nbd();
    (0..2).for_each(|part| client.write(part * PART as u64, &pattern(1, PART)));
    client.flush();
    drop(client);
    world
}

/// Makes both disks larger, one while it is in use, one while the daemon is down.
fn grow_both(world: &mut World) {
    set_length(world, "d0", AFTER);
    expect(world);
    let found = grown(world);
    assert_eq!(found.len(), 1, "{found:?}");
    world.kill();
    set_length(world, "d1", AFTER);
    world.start();
    expect(world);
    all_present(world);
    assert_eq!(grown(world).len(), 2);
}

#[test]
fn a_disk_that_has_grown_is_reported_and_used_on_request() {
    // Scenario: one disk becomes larger in use, one while the daemon is down. Nothing is lost and nothing changes, and the status says
    // what to do. A dry run changes nothing. Then the room is there, also after a kill, and with the labels in front overwritten.
    let mut world = written();
    grow_both(&mut world);
    let before = data_bytes(&world);
    let todo = world.get("/v1/status")["todo"].to_string();
    assert!(todo.contains("dolmen disk grow tank 0") && todo.contains("768"), "{todo}");
    for slot in 0..2 {
        let path = format!("/v1/pools/tank/disks/{slot}/grow");
        let asked = world.post(&path, &json!({"dry_run": true}));
        assert!(asked["is_changed"] == false && asked["plan"]["is_reversible"] == false, "{asked}");
        let room = |which: &str| asked["plan"][which].as_u64().unwrap();
        assert_eq!(room("usable_before_bytes") < room("usable_after_bytes"), slot == 1, "{asked}");
        assert_eq!(data_bytes(&world), before + slot * (AFTER - BEFORE));
        let done = world.post(&path, &json!({}));
        assert!(done["is_changed"] == true && done["message"].to_string().contains("768"), "{done}");
        let again = world.post(&path, &json!({}));
        assert!(again["is_changed"] == false, "{again}");
    }
    let after = before + 2 * (AFTER - BEFORE);
    assert_eq!(data_bytes(&world), after);
    let status = world.get("/v1/status");
    assert!(grown(&world).is_empty() && status["health"] == "healthy", "{status}");
    world.kill();
    let zeros = vec![0; 1 << 20];
    std::os::unix::fs::FileExt::write_all_at(
        &fs::OpenOptions::new().write(true).open(world.disk("d0")).unwrap(),
        &zeros,
        0,
    )
    .unwrap();
    world.start();
    idle(&world);
    all_present(&world);
    assert_eq!(data_bytes(&world), after);
    expect(&world);
    let mut client = world.nbd();
    client.write(0, &pattern(2, PART));
    client.flush();
    assert!(client.read(0, PART) == pattern(2, PART));
}

#[test]
fn a_disk_that_is_as_small_again_as_it_was_takes_part() {
    // Scenario: disks become larger, their room is not used, and they are made as small again while the daemon is down.
    let mut world = written();
    grow_both(&mut world);
    world.kill();
    (0..2).for_each(|disk| set_length(&world, &format!("d{disk}"), BEFORE));
    world.start();
    all_present(&world);
    expect(&world);
    let status = world.get("/v1/status");
    assert_eq!(status["health"], "healthy", "{status}");
}

#[test]
fn an_absent_disk_does_not_grow() {
    // Scenario: the disk that is to grow is offline. The request names what to do, and nothing changes.
    let world = written();
    world.post("/v1/pools/tank/disks/1/offline", &json!({}));
    let error = world.refused("/v1/pools/tank/disks/1/grow", &json!({}));
    assert_eq!(error["code"], "no_such_device", "{error}");
    assert!(error["hint"].to_string().contains("dolmen disk online tank 1"), "{error}");
}
