//! Disks that are files and lost their end: cut, or cut and made as long as they were.

use std::fs;

use serde_json::{Value, json};

use crate::client::{World, eventually, pattern};
use crate::jobs::idle;

pub(crate) const LENGTH: u64 = 256 << 20;
/// In the midst of what the mirror has on each disk.
const CUT: u64 = 24 << 20;
/// So long, it may be a disk.
pub(crate) const CUT_LESS: u64 = 100 << 20;
const PART: usize = 16 << 20;
pub(crate) const ONLINE: &str = "/v1/pools/tank/disks/1/online";

pub(crate) fn set_length(world: &World, length: u64) {
    fs::OpenOptions::new().write(true).open(world.disk("d1")).unwrap().set_len(length).unwrap();
}

fn zero_after_cut(world: &World) {
    set_length(world, CUT);
    set_length(world, LENGTH);
}

pub(crate) fn expect(world: &World) {
    let mut client = world.nbd();
    (0..2).for_each(|part| assert!(client.read(part * PART as u64, PART) == pattern(1, PART)));
}

/// A mirror on two disks, written in full.
pub(crate) fn written() -> World {
    let world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let mut client = world.nbd();
    (0..2).for_each(|part| client.write(part * PART as u64, &pattern(1, PART)));
    client.flush();
    drop(client);
    world
}

/// The second disk leaves, because it is cut while it is written to: a little of what is there is written again.
pub(crate) fn leaves_for_its_cut(world: &World, length: u64) {
    set_length(world, length);
    let mut client = world.nbd();
    client.write(0, &pattern(1, 4096));
    client.flush();
    drop(client);
    eventually("it leaves", || (second_disk(world)["state"] == "absent").then_some(()));
}

fn second_disk(world: &World) -> Value {
    world.get("/v1/pools/tank/disks")["disks"][1].clone()
}

fn reported(world: &World) -> (String, String) {
    let status = world.get("/v1/status");
    (status["why"].to_string(), status["todo"].to_string())
}

/// Kinds of the jobs so far, and what the last said.
fn jobs(world: &World) -> (Vec<Value>, String) {
    let jobs = world.get("/v1/jobs")["jobs"].as_array().unwrap().clone();
    let last = jobs.last().map(|job| job["result"].to_string()).unwrap_or_default();
    (jobs.into_iter().map(|job| job["kind"].clone()).collect(), last)
}

#[test]
fn a_disk_that_is_too_short_is_not_taken_back_and_is_to_be_replaced() {
    // Scenario: the file of a disk in use is cut, and the disk leaves. Who wants it back is told why it is not, by this daemon and
    // the next, nothing is changed, and the status asks for nothing that cannot be.
    let mut world = written();
    leaves_for_its_cut(&world, CUT_LESS);
    for is_next in [false, true] {
        if is_next {
            world.kill();
            world.start();
        }
        let before = fs::read(world.disk("d1")).unwrap();
        for request in [json!({"dry_run": true}), json!({}), json!({"path": world.disk("d1")})] {
            let refused = world.refused(ONLINE, &request);
            let (message, hint) = (refused["message"].to_string(), refused["hint"].to_string());
            assert!(
                message.contains("the device has 100 MiB, but its label says that data reaches"),
                "{refused}"
            );
            assert!(hint.contains("dolmen disk replace tank 1 NEW"), "{refused}");
        }
        assert!(fs::read(world.disk("d1")).unwrap() == before, "nothing is written to it");
        assert_eq!((second_disk(&world)["state"].clone(), jobs(&world).0.len()), (json!("absent"), 0));
        eventually("it is told", || {
            let (why, todo) = reported(&world);
            let is_reported =
                why.contains("the image was cut short") && todo.contains("disk replace tank 1 NEW");
            (is_reported && !todo.contains("disk online")).then_some(())
        });
    }
    // Its length alone brings it back, with what it lacks.
    set_length(&world, LENGTH);
    eventually("it may be tried", || reported(&world).1.contains("disk online tank 1").then_some(()));
    world.post(ONLINE, &json!({}));
}

#[test]
fn a_disk_that_comes_back_without_a_label_is_reported_and_verified() {
    // Scenario: a disk is cut, leaves, and has its length again, with zeros. Taken back in, it says that labels are gone, and all
    // of the pool is verified behind the resync; then it has all that the other one has. The warning survives the daemon, and ends
    // when somebody has seen it.
    let mut world = written();
    leaves_for_its_cut(&world, CUT);
    set_length(&world, LENGTH);
    let back = world.post(ONLINE, &json!({}));
    assert!(back["warnings"].to_string().contains("all of pool tank is verified by job 2"), "{back}");
    idle(&world);
    let (kinds, last) = jobs(&world);
    assert_eq!(kinds, ["resync", "scrub"]);
    assert!(last.contains("healed; all sound now"), "{last}");
    reported_until_acknowledged(&mut world);
    expect_of_second_alone(&mut world);
}

#[test]
fn a_disk_without_a_label_at_opening_is_reported_and_verified() {
    // Scenario: the same while no daemon runs: nothing is stale, and only reading all of it tells what is gone.
    let mut world = written();
    world.kill();
    zero_after_cut(&world);
    world.start();
    idle(&world);
    let (kinds, last) = jobs(&world);
    assert_eq!(kinds, ["scrub"]);
    assert!(last.contains("healed; all sound now"), "{last}");
    reported_until_acknowledged(&mut world);
    expect_of_second_alone(&mut world);
}

fn reported_until_acknowledged(world: &mut World) {
    let is_reported = |world: &World| {
        reported(world).0.contains("disks/d1 at byte") && reported(world).0.contains("gone when it")
    };
    assert!(is_reported(world), "{:?}", reported(world));
    let count = jobs(world).0.len();
    world.kill();
    world.start();
    assert!(is_reported(world), "{:?}", reported(world));
    assert!(reported(world).1.contains("dolmen pool acknowledge tank"), "{:?}", reported(world));
    assert_eq!(jobs(world).0.len(), count, "it is verified once");
    let planned = world.post("/v1/pools/tank/acknowledge", &json!({"dry_run": true}));
    assert!(planned["message"].to_string().contains("disks/d1 at byte") && is_reported(world), "{planned}");
    world.post("/v1/pools/tank/acknowledge", &json!({}));
    assert!(!is_reported(world));
    world.kill();
    world.start();
    assert!(!is_reported(world), "{:?}", reported(world));
}

fn expect_of_second_alone(world: &mut World) {
    world.kill();
    fs::remove_file(world.disk("d0")).unwrap();
    world.start();
    expect(world);
}

#[test]
fn a_scrub_says_which_disks_it_has_not_seen() {
    // Scenario: with a disk away, all that is here is sound: that says nothing of what the disk has.
    let world = written();
    let scrub = || {
        world.post("/v1/pools/tank/scrub", &json!({}));
        idle(&world);
        jobs(&world).1
    };
    assert!(scrub().ends_with("all sound\""));
    world.post("/v1/pools/tank/disks/1/offline", &json!({}));
    let last = scrub();
    let away = format!("all sound; what {} has was not verified: it is absent", world.disk("d1"));
    assert!(last.contains(&away), "{last}");
}
