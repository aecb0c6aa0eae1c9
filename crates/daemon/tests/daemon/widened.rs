//! Rows become wider behind the adding of disks, and narrower where a disk could not leave otherwise (docs/design/0020).

use serde_json::{Value, json};

use crate::client::{Nbd, World, eventually, pattern};
use crate::jobs::{ended, idle, job, keep_busy, paused};

const DISKS: &str = "/v1/pools/tank/disks";
const SPACE: &str = "/v1/pools/tank/spaces/p";
/// Bytes that go in one request, and how many of them the space has.
const PART: usize = 16 << 20;
const PARTS: usize = 6;

fn footprint(world: &World) -> u64 {
    world.get(SPACE)["space"]["footprint_bytes"].as_u64().unwrap()
}

fn dry(mut body: Value) -> Value {
    body["dry_run"] = json!(true);
    body
}

fn nbd(world: &World) -> Nbd {
    Nbd::connect(&world.folder.path().join("run/nbd.sock"), "tank/p")
}

/// A pool of four disks with a space of parity that leaves its width to the pool.
fn four() -> World {
    let world = World::new(4);
    world.make_tank(&["d0", "d1", "d2", "d3"]);
    let space = json!({"name": "p", "size_bytes": 192 << 20, "resiliency": "parity"});
    world.post("/v1/pools/tank/spaces", &space);
    world.post(&format!("{SPACE}/serve"), &json!({}));
    for part in 0..PARTS {
        nbd(&world).write((part * PART) as u64, &pattern(9, PART));
    }
    nbd(&world).flush();
    world
}

fn expect(world: &World) {
    for part in 0..PARTS {
        assert!(nbd(world).read((part * PART) as u64, PART) == pattern(9, PART), "part {part}");
    }
}

fn slot_of(world: &World, disk: &str) -> Value {
    let disks = world.get(DISKS)["disks"].clone();
    let found = disks.as_array().unwrap().iter().find(|one| one["path"] == disk);
    found.map_or(Value::Null, |one| one["slot"].clone())
}

fn remove(world: &World, disk: &str) -> String {
    format!("{DISKS}/{}/remove", slot_of(world, disk))
}

/// Scenario: a disk is added to a pool whose rows are as wide as it was, and what is there becomes wider by itself, and takes less
/// room. Then the disk is to leave again: rows become as narrow as they were, and it is evicted. A disk that is added so that all
/// stays widens nothing, and leaves at once.
#[test]
fn rows_become_as_wide_as_the_pool_and_a_disk_that_was_added_leaves_again() {
    let world = four();
    let before = footprint(&world);
    let d4 = world.make_disk("d4", 256 << 20);
    let add = json!({"disks": [d4]});
    let planned = world.post(DISKS, &dry(add.clone()));
    let steps = planned["plan"]["steps"].to_string();
    assert!(
        steps.contains("of tank/p as wide as the pool") && steps.contains("--stays leaves out"),
        "{steps}"
    );
    let made = world.post(DISKS, &add);
    assert_eq!(made["plan"], planned["plan"]);
    let message = made["message"].as_str().unwrap();
    assert!(message.contains("widens rows of tank/p"), "{made}");
    let further = made["further_jobs"].as_array().map_or(0, Vec::len);
    assert_eq!(message.matches("; job ").count(), 1 + further, "{made}");
    assert_eq!(ended(&world, &made["job"]["id"])["state"], "done");
    idle(&world);
    expect(&world);
    let wide = footprint(&world);
    // Five quarters of the data instead of four thirds, with the write cache.
    assert!(wide < before && (before - wide) * 20 > before, "{before} before, {wide} after");

    let planned = world.post(&remove(&world, &d4), &dry(json!({})));
    let steps = planned["plan"]["steps"].to_string();
    assert!(steps.contains("of tank/p narrower") && steps.contains("evict"), "{steps}");
    assert_eq!(footprint(&world), wide);
    let begun = world.post(&remove(&world, &d4), &json!({}));
    assert_eq!(begun["plan"], planned["plan"]);
    let done = ended(&world, &begun["job"]["id"]);
    assert_eq!((&done["state"], &done["kind"]), (&json!("done"), &json!("drain")), "{done}");
    idle(&world);
    expect(&world);
    assert_eq!((footprint(&world), slot_of(&world, &d4)), (before, Value::Null));
    assert_eq!(world.get(SPACE)["space"]["converted_from"], Value::Null);
    assert_eq!(world.get("/v1/status")["health"], "healthy");

    let made = world.post(DISKS, &json!({"disks": [d4], "stays": true}));
    assert_eq!((&made["job"], footprint(&world)), (&Value::Null, before), "{made}");
    let begun = world.post(&remove(&world, &d4), &json!({}));
    assert_eq!(ended(&world, &begun["job"]["id"])["state"], "done");
}

/// Single blocks, which go to the write cache: over what is there, and into rows that hold nothing else.
fn write_into_each_row(world: &World) {
    for at in (8192..192 << 20).step_by(4 << 20) {
        nbd(world).write(at as u64, &pattern(9, PART)[at % PART..][..4096]);
    }
    nbd(world).flush();
}

/// Scenario: rows are as wide as the pool, and one of its disks, which has a part of the write cache too, is let go of and stays away.
/// What it had is rebuilt on the others by itself, as wide as those are, and once; whoever would remove it or have it forgotten is
/// told the same.
#[test]
fn what_a_lost_disk_had_of_rows_as_wide_as_the_pool_is_rebuilt_on_fewer() {
    let world = four();
    let made = world.post(DISKS, &json!({"disks": [world.make_disk("d4", 256 << 20)]}));
    assert_eq!(ended(&world, &made["job"]["id"])["state"], "done");
    idle(&world);
    let lost = format!("{DISKS}/{}", slot_of(&world, &world.disk("d0")));
    write_into_each_row(&world);
    world.post(&format!("{lost}/offline"), &json!({}));
    write_into_each_row(&world);
    let [removed, forgotten] = ["remove", "forget"]
        .map(|transport| world.post(&format!("{lost}/{transport}"), &dry(json!({})))["plan"].clone());
    assert!(removed["steps"].to_string().contains("of tank/p narrower"), "{removed}");
    for field in ["steps", "moved_bytes", "usable_after"] {
        assert_eq!(removed[field], forgotten[field]);
    }
    world.post("/v1/pools/tank/repair_after", &json!({"seconds": 1}));
    let begun = eventually("it is given up", || crate::absent::drain(&world));
    let done = ended(&world, &begun["id"]);
    assert_eq!(done["state"], "done", "{done}");
    let copied = done["done_bytes"].as_u64().unwrap();
    assert!(copied < 250 << 20, "rows were laid again and thrown away: {done}");
    idle(&world);
    assert_eq!(world.get(DISKS)["disks"].as_array().unwrap().len(), 4);
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    expect(&world);
}

/// Scenario: a removal that makes rows narrower is held and the daemon killed; it goes on. Another one is called off: the disk takes
/// data again, and all is there.
#[test]
fn a_disk_that_leaves_rows_that_are_too_wide_is_killed_in_the_midst_and_called_off() {
    let mut world = four();
    let d4 = world.make_disk("d4", 256 << 20);
    let add_and_remove = |world: &mut World| {
        paused(world, |world, attempt| {
            if slot_of(world, &d4).is_null() {
                world.post(DISKS, &json!({"disks": [d4]}));
            }
            idle(world);
            keep_busy(world, attempt);
            world.post(&remove(world, &d4), &json!({}))
        })
    };
    let id = add_and_remove(&mut world);
    world.kill();
    world.start();
    assert_eq!(job(&world, &id)["state"], "paused");
    world.post(&format!("/v1/jobs/{id}/resume"), &json!({}));
    assert_eq!(ended(&world, &id)["state"], "done");
    idle(&world);
    expect(&world);
    assert_eq!(slot_of(&world, &d4), Value::Null);

    let id = add_and_remove(&mut world);
    world.post(&format!("{}/cancel", remove(&world, &d4)), &json!({}));
    assert_eq!(ended(&world, &id)["state"], "called_off");
    idle(&world);
    expect(&world);
    assert!(slot_of(&world, &d4).is_u64());
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    assert_eq!(world.get(SPACE)["space"]["converted_from"], Value::Null);
}

/// Scenario: a removal stands in the midst of making rows narrower when the daemon is killed, and is called off before anybody goes on
/// with it. The space is one of one width again by itself.
#[test]
fn a_removal_that_is_called_off_while_nobody_is_at_it_leaves_no_space_with_two_widths() {
    let mut world = World::new(5);
    world.make_tank(&["d0", "d1", "d2", "d3", "d4"]);
    let space = json!({"name": "p", "size_bytes": 192 << 20, "resiliency": "parity", "row_bytes": 4 << 20});
    world.post("/v1/pools/tank/spaces", &space);
    world.post(&format!("{SPACE}/serve"), &json!({}));
    for part in 0..PARTS {
        nbd(&world).write((part * PART) as u64, &pattern(9, PART));
    }
    nbd(&world).flush();
    let d4 = world.disk("d4");
    let has_two = |world: &World| !world.get(SPACE)["space"]["converted_from"].is_null();
    let caught = (0..8).any(|_| {
        let id = world.post(&remove(&world, &d4), &json!({}))["job"]["id"].clone();
        while !has_two(&world) && job(&world, &id)["ended_s"].is_null() {}
        let _ = world.try_ask("POST", &format!("/v1/jobs/{id}/pause"), b"{}");
        idle(&world);
        let is_caught = has_two(&world);
        if !is_caught && slot_of(&world, &d4).is_null() {
            world.post(DISKS, &json!({"disks": [d4]}));
            idle(&world);
        } else if !is_caught {
            world.post(&format!("{}/cancel", remove(&world, &d4)), &json!({}));
            idle(&world);
        }
        is_caught
    });
    assert!(caught, "each removal was too fast");
    world.kill();
    world.start();
    assert!(has_two(&world));
    world.post(&format!("{}/cancel", remove(&world, &d4)), &json!({}));
    eventually("the space is of one width", || (!has_two(&world)).then_some(()));
    idle(&world);
    expect(&world);
    assert_eq!(world.get("/v1/status")["health"], "healthy");
}

/// Scenario: a disk is added to a pool with a space whose width was chosen, and one without content. Expected: the answer, and that of
/// the dry run, say why the first is not widened, and nothing of the second.
#[test]
fn rows_that_are_not_widened_are_reported_with_the_cause() {
    let world = World::new(4);
    world.make_tank(&["d0", "d1", "d2", "d3"]);
    let space =
        |name: &str| json!({"name": name, "size_bytes": 64 << 20, "resiliency": "parity", "columns": 2});
    world.post("/v1/pools/tank/spaces", &space("p"));
    world.post("/v1/pools/tank/spaces", &space("empty"));
    world.post(&format!("{SPACE}/serve"), &json!({}));
    nbd(&world).write(0, &pattern(9, PART));
    let add = json!({"disks": [world.make_disk("d4", 256 << 20)]});
    for answer in [world.post(DISKS, &dry(add.clone())), world.post(DISKS, &add)] {
        let message = answer["message"].as_str().unwrap();
        assert!(
            message.contains("rows of tank/p keep their width, because 2 data columns were asked for; `dolmen space convert tank/p --columns auto`"),
            "{answer}"
        );
        assert!(!message.contains("tank/empty"), "{answer}");
    }
}
