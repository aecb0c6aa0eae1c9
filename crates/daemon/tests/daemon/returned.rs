//! Disks that come back, and pools whose disks appear late, without a command (docs/design/0037).

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{World, eventually, pattern};
use crate::cut;
use crate::jobs::{expect, full, idle};

const TANK: &str = "/v1/pools/tank";

fn state_of(world: &World, pool: &str, slot: usize) -> Value {
    world.get(&format!("/v1/pools/{pool}/disks"))["disks"][slot]["state"].clone()
}

/// Texts of the events with this code, of one pool.
fn events(world: &World, pool: &str, code: &str) -> Vec<String> {
    let events = world.get("/v1/events?since=0")["events"].as_array().unwrap().clone();
    // Not asked for by the pool: one that this daemon has not met yet is no name to it.
    let of_code = events.iter().filter(|event| event["code"] == code && event["object"]["pool"] == pool);
    of_code.map(|event| event["text"].as_str().unwrap().to_owned()).collect()
}

/// As [`eventually`], for what takes a few looks of the daemon, two seconds apart.
pub(crate) fn in_time<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    const WAITS: u32 = 4;
    for _ in 0..WAITS {
        let mut polls = 0;
        let found = eventually(what, || {
            polls += 1;
            let found = ready();
            (found.is_some() || polls > 300).then_some(found)
        });
        if let Some(found) = found {
            return found;
        }
    }
    panic!("waited in vain: {what}");
}

/// Waits until the daemon has looked so often, every two seconds.
fn looked(times: u64) {
    #[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
    std::thread::sleep(Duration::from_secs(2 * times));
}

fn is_back(world: &World, pool: &str, slot: usize) {
    in_time("the disk takes part again", || (state_of(world, pool, slot) == "present").then_some(()));
}

fn is_healthy(world: &World) {
    in_time("all is healthy", || (world.get("/v1/status")["health"] == "healthy").then_some(()));
}

fn is_left_out(world: &World, pool: &str, parts: &[&str]) {
    let text = in_time("it is reported that the disk is left out", || {
        assert!(events(world, pool, "disk_online").is_empty(), "a disk was taken in that is to be left out");
        events(world, pool, "disk_left_out").into_iter().last()
    });
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

fn away(world: &World, name: &str) -> String {
    world.folder.path().join(name).display().to_string()
}

/// The daemon is killed, and the next one finds these disks absent.
fn begun_without(world: &mut World, names: &[&str]) {
    world.kill();
    for name in names {
        fs::rename(world.disk(name), away(world, name)).unwrap();
    }
    world.start();
}

fn returns(world: &World, name: &str) {
    fs::rename(away(world, name), world.disk(name)).unwrap();
}

/// A second pool, `zeta`, of which one disk is absent when the daemon begins. When it is taken in, the daemon has read the
/// labels of all disks that are there.
fn with_zeta(world: &mut World) {
    let disks = ["z0", "z1"].map(|name| world.make_disk(name, 256 << 20));
    world.post("/v1/pools", &json!({"name": "zeta", "disks": disks}));
    begun_without(world, &["z1"]);
}

/// Scenario: a disk is absent when the daemon begins, misses writes, and comes back under another name. Without a command it takes
/// part again and has what it missed; an event says so.
#[test]
fn a_disk_that_returns_is_taken_in_without_a_command() {
    let mut world = full(&["d0", "d1", "d2"]);
    begun_without(&mut world, &["d2"]);
    assert_eq!(state_of(&world, "tank", 2), "absent");
    world.nbd().write(0, &pattern(5, 1 << 20));
    world.nbd().flush();
    fs::rename(away(&world, "d2"), world.disk("back")).unwrap();
    is_back(&world, "tank", 2);
    let text = in_time("it is reported", || events(&world, "tank", "disk_online").into_iter().last());
    assert!(text.contains("back takes part again: it came back"), "{text}");
    is_healthy(&world);
    world.nbd().write(0, &pattern(9, 1 << 20));
    world.nbd().flush();
    world.kill();
    fs::remove_file(world.disk("d0")).unwrap();
    world.start();
    expect(&world);
}

/// Scenario: the daemon is killed around the return of a disk: when two looks have or have not seen it, and as soon as it takes part.
/// The next daemon ends what was begun, and that disk alone has all that was acknowledged.
#[test]
fn a_kill_around_a_return_loses_nothing() {
    for (seed, looks) in [(1, Some(0)), (2, Some(1)), (3, Some(2)), (4, None)] {
        let mut world = World::new(2);
        world.make_tank(&["d0", "d1"]);
        begun_without(&mut world, &["d1"]);
        let content = pattern(seed, 4 << 20);
        world.nbd().write(0, &content);
        world.nbd().flush();
        returns(&world, "d1");
        match looks {
            Some(looks) => looked(looks),
            None => is_back(&world, "tank", 1),
        }
        world.kill();
        world.start();
        is_back(&world, "tank", 1);
        is_healthy(&world);
        world.kill();
        fs::remove_file(world.disk("d0")).unwrap();
        world.start();
        assert!(world.nbd().read(0, 4 << 20) == content, "killed after {looks:?} looks");
    }
}

/// Scenario: a command takes a disk offline; it is carried away and comes back. It is left alone until a command takes it in.
#[test]
fn a_disk_that_a_command_took_offline_is_left_alone() {
    let mut world = full(&["d0", "d1", "d2"]);
    with_zeta(&mut world);
    world.post(&format!("{TANK}/disks/2/offline"), &json!({}));
    fs::rename(world.disk("d2"), away(&world, "d2")).unwrap();
    // The disk of another pool shows that the daemon has looked while this one was away.
    returns(&world, "z1");
    is_back(&world, "zeta", 1);
    in_time("it is reported", || events(&world, "zeta", "disk_online").into_iter().last());
    returns(&world, "d2");
    looked(3);
    assert_eq!(state_of(&world, "tank", 2), "absent", "a disk was taken in that a command took offline");
    world.post(&format!("{TANK}/disks/2/online"), &json!({}));
    assert_eq!(state_of(&world, "tank", 2), "present");
}

/// Scenario: a disk fails while its file stays where it is, and could be read again later. It did not come back: it waits for a
/// command.
#[test]
fn a_disk_that_failed_and_did_not_go_away_waits_for_a_command() {
    let mut world = cut::written();
    with_zeta(&mut world);
    cut::leaves_for_its_cut(&world, cut::CUT_LESS);
    cut::set_length(&world, cut::LENGTH);
    returns(&world, "z1");
    is_back(&world, "zeta", 1);
    in_time("it is reported", || events(&world, "zeta", "disk_online").into_iter().last());
    assert_eq!(state_of(&world, "tank", 1), "absent");
    let tried = events(&world, "tank", "disk_left_out");
    assert!(tried.is_empty(), "a disk that did not come back was tried: {tried:?}");
}

/// Scenario: a disk comes back together with a copy of it. None is taken in, and an event names both, once; when the copy is away,
/// the disk takes part.
#[test]
fn of_a_disk_and_its_copy_none_is_taken_in() {
    let mut world = full(&["d0", "d1", "d2"]);
    begun_without(&mut world, &["d2"]);
    fs::copy(away(&world, "d2"), away(&world, "copy")).unwrap();
    returns(&world, "copy");
    returns(&world, "d2");
    let (disk, copy) = (world.disk("d2"), world.disk("copy"));
    is_left_out(&world, "tank", &[&disk, &copy, "one of them is a copy, and none is taken in"]);
    assert_eq!(state_of(&world, "tank", 2), "absent");
    fs::remove_file(&copy).unwrap();
    is_back(&world, "tank", 2);
    is_healthy(&world);
    assert_eq!(events(&world, "tank", "disk_left_out").len(), 1);
    expect(&world);
}

/// Scenario: in the place of an absent disk appears an image of it of before the last starts. It is left out and not written; the
/// event says how a command takes it in.
#[test]
fn a_disk_as_it_was_before_is_left_to_a_command() {
    let mut world = full(&["d0", "d1", "d2"]);
    world.kill();
    fs::copy(world.disk("d2"), away(&world, "old")).unwrap();
    for _ in 0..2 {
        world.start();
        world.nbd().write(0, &pattern(9, 1 << 20));
        world.nbd().flush();
        world.kill();
    }
    fs::remove_file(world.disk("d2")).unwrap();
    world.start();
    fs::rename(away(&world, "old"), world.disk("d2")).unwrap();
    let before = fs::read(world.disk("d2")).unwrap();
    is_left_out(&world, "tank", &["as it was in epoch", "`dolmen disk online tank 2` takes it in"]);
    assert!(fs::read(world.disk("d2")).unwrap() == before, "an old disk was written");
    assert_eq!(state_of(&world, "tank", 2), "absent");
}

/// Scenario: a disk leaves because its file is cut, and comes back whole, again and again. The fourth time within ten minutes it is
/// left out, with an event that names the command that takes it in.
#[test]
fn a_disk_that_comes_and_goes_is_left_out() {
    let world = cut::written();
    for round in 0..4 {
        fs::copy(world.disk("d1"), away(&world, "d1")).unwrap();
        cut::leaves_for_its_cut(&world, cut::CUT_LESS);
        fs::remove_file(world.disk("d1")).unwrap();
        returns(&world, "d1");
        if round < 3 {
            is_back(&world, "tank", 1);
            is_healthy(&world);
        }
    }
    let text = in_time("it is reported", || events(&world, "tank", "disk_left_out").into_iter().last());
    assert!(text.contains("came back more than 3 times within 10 minutes"), "{text}");
    assert!(text.contains("dolmen disk online tank 1"), "{text}");
    assert_eq!(state_of(&world, "tank", 1), "absent");
    assert_eq!(events(&world, "tank", "disk_online").len(), 3);
    world.post(cut::ONLINE, &json!({}));
    idle(&world);
    assert_eq!(state_of(&world, "tank", 1), "present");
    cut::expect(&world);
}

fn pool_state(world: &World) -> Value {
    world.get("/v1/pools")["pools"][0]["state"].clone()
}

/// Scenario: no disk of a pool is there when the daemon begins. One appears, and the other a moment later: the pool is opened with
/// both, and its space is served.
#[test]
fn a_pool_whose_disks_appear_late_is_opened_with_all_of_them() {
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    world.nbd().write(0, &pattern(4, 1 << 20));
    world.nbd().flush();
    begun_without(&mut world, &["d0", "d1"]);
    assert_eq!(pool_state(&world), "closed");
    returns(&world, "d0");
    let mut polls = 0;
    eventually("the first disk has been there for two looks", || {
        polls += 1;
        (polls > 100).then_some(())
    });
    returns(&world, "d1");
    in_time("the pool is open", || (pool_state(&world) == "writable").then_some(()));
    assert!(world.nbd().read(0, 1 << 20) == pattern(4, 1 << 20));
    eventually("it is reported", || (events(&world, "tank", "pool_opened").len() == 1).then_some(()));
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    let absent: Vec<_> = world.get("/v1/events?since=0")["events"].as_array().unwrap().clone();
    assert!(
        !absent.iter().any(|event| event["finding"] == "disk_absent"),
        "it was opened degraded: {absent:?}"
    );
}

/// Scenario: of a mirror one disk appears after the start, and the other stays away. The pool is opened degraded, as a start opens it.
#[test]
fn a_pool_that_waits_in_vain_for_the_rest_is_opened_degraded() {
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    world.nbd().write(0, &pattern(4, 1 << 20));
    world.nbd().flush();
    begun_without(&mut world, &["d0", "d1"]);
    returns(&world, "d0");
    in_time("the pool is open", || (pool_state(&world) == "writable").then_some(()));
    assert!(world.nbd().read(0, 1 << 20) == pattern(4, 1 << 20));
    assert_eq!(state_of(&world, "tank", 1), "absent");
    returns(&world, "d1");
    is_back(&world, "tank", 1);
    is_healthy(&world);
}

/// Scenario: while the daemon is away, another one opens the pool and exports it. Its disks appear when the first daemon runs again:
/// the pool stays closed, and an event says why.
#[test]
fn a_pool_that_was_exported_elsewhere_stays_closed() {
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    begun_without(&mut world, &["d0", "d1"]);
    let other = World::new(0);
    for name in ["d0", "d1"] {
        fs::rename(away(&world, name), other.disk(name)).unwrap();
    }
    other.post("/v1/pools/import", &json!({"paths": [other.disk("d0"), other.disk("d1")]}));
    other.post("/v1/pools/tank/export", &json!({}));
    for name in ["d0", "d1"] {
        fs::rename(other.disk(name), away(&world, name)).unwrap();
        returns(&world, name);
    }
    let text = in_time("it is reported", || {
        assert_eq!(pool_state(&world), "closed", "an exported pool was opened");
        events(&world, "tank", "pool_left_closed").into_iter().last()
    });
    assert!(text.contains("was exported since it was open here"), "{text}");
    world.post("/v1/pools/import", &json!({"pool": "tank"}));
}
