//! A lost disk is declared lost (docs/design/0025), against the real daemon.

use std::fs;

use serde_json::{Value, json};

use crate::client::{Nbd, World, eventually, pattern};
use crate::jobs::{change, expect, full, idle, keep_busy, paused};

const SIZE: usize = 24 << 20;
const MIB: usize = 1 << 20;

/// A pool whose space `s` of one copy has something on each disk, beside the mirror `m`.
fn world_with_s() -> World {
    let world = full(&["d0", "d1", "d2"]);
    let simple = json!({"name": "s", "size_bytes": SIZE, "resiliency": "simple", "row_bytes": 1 << 20, "provisioning": "fixed"});
    world.post("/v1/pools/tank/spaces", &simple);
    world.post("/v1/pools/tank/spaces/s/serve", &json!({}));
    let mut client = client(&world);
    client.write(0, &pattern(3, SIZE));
    client.flush();
    drop(client);
    world.post("/v1/pools/tank/repair_after", &json!({"seconds": 0}));
    world
}

/// The same; the disk `d2` is gone for good.
fn world_without_d2() -> World {
    let mut world = world_with_s();
    world.kill();
    fs::remove_file(world.disk("d2")).unwrap();
    world.start();
    world
}

fn client(world: &World) -> Nbd {
    Nbd::connect(&world.folder.path().join("run/nbd.sock"), "tank/s")
}

/// The MiB of the space of which something cannot be read; all others are what was written.
fn unreadable(world: &World) -> Vec<usize> {
    let mut client = client(world);
    let content = pattern(3, SIZE);
    let mut lost = Vec::new();
    for at in 0..SIZE / MIB {
        match client.try_read((at * MIB) as u64, MIB) {
            Ok(found) => assert!(found == content[at * MIB..(at + 1) * MIB], "MiB {at} is something else"),
            Err(_) => lost.push(at),
        }
    }
    lost
}

fn disks(world: &World) -> Vec<Value> {
    world.get("/v1/pools/tank/disks")["disks"].as_array().unwrap().clone()
}

fn refused(world: &World, path: &str, request: &Value) -> String {
    let refused = world.refused(path, request);
    assert_eq!(refused["code"], "needs_confirmation", "{refused}");
    refused["message"].as_str().unwrap().to_owned()
}

/// Writing mends what was declared lost: all of it can be read then, and nothing is the matter any more.
fn mend(world: &World) {
    let mut client = client(world);
    client.write(0, &pattern(3, SIZE));
    client.flush();
    drop(client);
    assert!(unreadable(world).is_empty());
    world.post("/v1/pools/tank/acknowledge", &json!({}));
    eventually("all is well", || (world.get("/v1/status")["health"] == "healthy").then_some(()));
    expect(world);
}

/// Scenario: a disk is lost for good, and a space of one copy had a part of it there. It is told which, and nothing is done before the
/// name of the pool is typed; then that part is an error, all the rest is there, the disk leaves although the daemon is killed on
/// the way, and what is written again can be read.
#[test]
fn data_of_a_lost_disk_alone_is_declared_lost_when_its_pool_is_named() {
    let mut world = world_without_d2();
    let forget = "/v1/pools/tank/disks/2/forget";
    let hint = world.refused(forget, &json!({}))["hint"].as_str().unwrap().to_owned();
    assert!(
        hint.contains("`dolmen disk forget tank 2 --accept-data-loss` declares lost those parts"),
        "{hint}"
    );
    let lost = unreadable(&world);
    assert!(!lost.is_empty() && lost.len() < SIZE / MIB, "{lost:?}");
    let planned = world.post(forget, &json!({"accept_data_loss": true, "dry_run": true}));
    assert_eq!((&planned["is_changed"], &planned["plan"]["is_reversible"]), (&json!(false), &json!(false)));
    let step = planned["plan"]["steps"][0].as_str().unwrap();
    assert!(
        step.starts_with("declare lost parts of tank/s in bytes ") && step.contains("written again"),
        "{step}"
    );
    assert!(refused(&world, forget, &json!({"accept_data_loss": true})).contains("of pool tank"));
    assert!(
        refused(&world, forget, &json!({"accept_data_loss": true, "destroy": "s"})).contains("not the same")
    );
    assert_eq!(disks(&world)[2]["state"], "absent", "nothing was changed");
    world.post(forget, &json!({"accept_data_loss": true, "destroy": "tank"}));
    world.kill();
    world.start();
    eventually("it has left", || (disks(&world).len() == 2).then_some(()));
    idle(&world);
    assert_eq!(unreadable(&world), lost);
    expect(&world);
    let reported = world.get("/v1/jobs").to_string();
    assert!(reported.contains("declared lost, and not readable before it is written again: "), "{reported}");
    let runs = lost.iter().filter(|at| **at == 0 || !lost.contains(&(**at - 1))).count();
    let reported = format!("space tank/s has lost data in {runs} places, first: ");
    let status = world.get("/v1/status").to_string();
    assert!(status.contains(&reported), "{reported}: {status}");
    let readable = world.post("/v1/pools/tank/acknowledge", &json!({}))["message"].to_string();
    assert!(!readable.contains("can be read by now"), "nothing was mended: {readable}");
    mend(&world);
}

/// Scenario: the lost disk is being replaced, and the replacement waits for what it alone had. That is given up, and the new disk
/// takes its place.
#[test]
fn a_replacement_does_not_wait_for_data_declared_lost() {
    let world = world_without_d2();
    let new = world.make_disk("n2", 256 << 20);
    world.post("/v1/pools/tank/disks/2/replace", &json!({"with": new}));
    let waits = "which has all but the parts of tank/s";
    eventually("it waits", || world.get("/v1/status")["why"].to_string().contains(waits).then_some(()));
    let lost = unreadable(&world);
    let forget = "/v1/pools/tank/disks/2/forget";
    assert_eq!(world.refused(forget, &json!({}))["code"], "busy");
    assert!(refused(&world, forget, &json!({"accept_data_loss": true})).contains("of pool tank"));
    world.post(forget, &json!({"accept_data_loss": true, "destroy": "tank"}));
    eventually("it has left", || {
        let disks = disks(&world);
        (disks.len() == 3 && disks.iter().all(|disk| disk["state"] == "present")).then_some(())
    });
    idle(&world);
    assert_eq!(unreadable(&world), lost);
    mend(&world);
}

/// Scenario: the disk was about to leave when it was lost, and its removal waits for what it alone had.
#[test]
fn a_removal_does_not_wait_for_data_declared_lost() {
    let mut world = world_with_s();
    let remove = |world: &mut World, attempt: u32| {
        keep_busy(world, attempt);
        world.post("/v1/pools/tank/disks/2/remove", &json!({}))
    };
    let id = paused(&mut world, remove);
    world.kill();
    fs::remove_file(world.disk("d2")).unwrap();
    world.start();
    change(&world, &id, "resume");
    eventually("it waits", || {
        world.get("/v1/status")["todo"]
            .to_string()
            .contains("--accept-data-loss` if it is lost")
            .then_some(())
    });
    let lost = unreadable(&world);
    assert!(!lost.is_empty());
    let forget = "/v1/pools/tank/disks/2/forget";
    assert_eq!(world.refused(forget, &json!({}))["code"], "busy", "it leaves already");
    world.post(forget, &json!({"accept_data_loss": true, "destroy": "tank"}));
    eventually("it has left", || (disks(&world).len() == 2).then_some(()));
    assert_eq!(unreadable(&world), lost);
    mend(&world);
}

/// Scenario: both disks of a mirror's rows are lost. Each of them is waited for as long as the other alone is given up; with both given
/// up the rows are lost that nobody else has, and the pool goes on with the disks that are left.
#[test]
fn two_lost_disks_are_declared_lost_one_after_the_other() {
    let mut world = full(&["d0", "d1", "d2", "d3"]);
    world.post("/v1/pools/tank/repair_after", &json!({"seconds": 0}));
    world.kill();
    fs::remove_file(world.disk("d2")).unwrap();
    fs::remove_file(world.disk("d3")).unwrap();
    world.start();
    let lost = || (0..96).filter(|at| world.nbd().try_read(at << 20, MIB).is_err()).count();
    let before = lost();
    assert!(before > 0 && before < 96, "{before}");
    let forget = |slot: u32| format!("/v1/pools/tank/disks/{slot}/forget");
    let hint = world.refused(&forget(2), &json!({}))["hint"].as_str().unwrap().to_owned();
    assert!(
        hint.contains("forget tank 2 --accept-data-loss` and `dolmen disk forget tank 3 --accept-data-loss`"),
        "{hint}"
    );
    let typed = json!({"accept_data_loss": true, "destroy": "tank"});
    assert!(refused(&world, &forget(2), &json!({"accept_data_loss": true})).contains("of pool tank"));
    let first = world.post(&forget(2), &typed)["message"].as_str().unwrap().to_owned();
    assert!(first.contains("may have of them is waited for"), "{first}");
    let advice = "d3, or `dolmen disk forget tank 3 --accept-data-loss` if it is lost";
    eventually("it waits", || world.get("/v1/status")["todo"].to_string().contains(advice).then_some(()));
    assert_eq!(disks(&world).len(), 4, "the other one may come back");
    let second = world.post(&forget(3), &typed)["message"].as_str().unwrap().to_owned();
    assert!(!second.contains("waited for"), "{second}");
    eventually("both have left", || (disks(&world).len() == 2).then_some(()));
    idle(&world);
    assert_eq!(lost(), before);
}
