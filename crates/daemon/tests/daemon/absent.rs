//! Disks that stay away: the pool does without them, and takes those back that return in time (docs/design/0015).

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Nbd, World, eventually, pattern};
use crate::jobs::{change, ended, expect, full, idle, job, keep_busy, paused};

const SET: &str = "/v1/pools/tank/repair_after";

fn disks(world: &World) -> Vec<Value> {
    world.get("/v1/pools/tank/disks")["disks"].as_array().unwrap().clone()
}

fn todo(world: &World) -> String {
    world.get("/v1/status")["todo"].to_string()
}

/// The daemon dies, and the next one finds a disk gone.
fn take_away(world: &mut World, name: &str) {
    world.kill();
    fs::rename(world.disk(name), world.folder.path().join("away")).unwrap();
    world.start();
}

fn bring_back(world: &World, name: &str) {
    fs::rename(world.folder.path().join("away"), world.disk(name)).unwrap();
}

/// The newest job that moves a disk's data.
pub(crate) fn drain(world: &World) -> Option<Value> {
    let jobs = world.get("/v1/jobs")["jobs"].as_array().unwrap().clone();
    jobs.into_iter().filter(|job| job["kind"] == "drain").max_by_key(|job| job["id"].as_u64())
}

/// The newest job that rebuilds what can do without a disk, which stays a member.
fn rebuild(world: &World) -> Option<Value> {
    let jobs = world.get("/v1/jobs")["jobs"].as_array().unwrap().clone();
    jobs.into_iter().filter(|job| job["kind"] == "empty").max_by_key(|job| job["id"].as_u64())
}

#[test]
fn a_disk_that_stays_away_is_done_without_over_a_killed_daemon() {
    // Scenario: half an hour is what nobody has to set. With a second, the pool has its redundancy back by itself, though the
    // daemon is killed on the way; then one of the others may go.
    let mut world = full(&["d0", "d1", "d2"]);
    assert_eq!(world.get("/v1/pools/tank")["pool"]["repair_after_s"], 1800);
    let asked = world.post(SET, &json!({"seconds": 1, "dry_run": true}));
    assert_eq!(asked["is_changed"], false);
    assert!(asked["plan"]["undo"].as_str().unwrap().contains("--repair-after 1800s"), "{asked}");
    take_away(&mut world, "d2");
    eventually("it is told", || todo(&world).contains("rebuilt on the other disks in").then_some(()));
    assert!(drain(&world).is_none());
    world.post(SET, &json!({"seconds": 1}));
    eventually("the disk is given up", || drain(&world));
    world.kill();
    world.start();
    eventually("it has left", || (disks(&world).len() == 2).then_some(()));
    idle(&world);
    assert_eq!(drain(&world).unwrap()["state"], "done");
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    expect(&world);
    world.kill();
    fs::remove_file(world.disk("d0")).unwrap();
    world.start();
    expect(&world);
}

#[test]
fn a_disk_that_is_back_in_time_is_a_member_as_before() {
    // Scenario: the disk is back while what it had is being rebuilt, or with the next daemon: it takes data again, and the job is
    // called off.
    for is_killed in [false, true] {
        let mut world = full(&["d0", "d1", "d2"]);
        world.post(SET, &json!({"seconds": 1}));
        let id = paused(&mut world, |world, attempt| {
            if disks(world).len() < 3 {
                // The attempt before was too late: the disk has left, and is a stranger.
                idle(world);
                bring_back(world, "d2");
                let path = world.disk("d2");
                world.post("/v1/pools/tank/disks", &json!({"disks": [path], "destroy": [path]}));
                idle(world);
            }
            let before = drain(world).map(|job| job["id"].clone());
            take_away(world, "d2");
            keep_busy(world, attempt);
            let begun = || drain(world).filter(|job| Some(&job["id"]) != before.as_ref());
            json!({"job": eventually("the disk is given up", begun)})
        });
        assert_eq!(disks(&world).len(), 3);
        if is_killed {
            world.kill();
            bring_back(&world, "d2");
            world.start();
        } else {
            bring_back(&world, "d2");
            world.post("/v1/pools/tank/disks/2/online", &json!({}));
        }
        let ended = ended(&world, &id);
        assert_eq!(ended["state"], "called_off", "{ended}");
        idle(&world);
        let states: Vec<Value> = disks(&world).iter().map(|disk| disk["state"].clone()).collect();
        assert_eq!(states, ["present", "present", "present"]);
        assert_eq!(world.get("/v1/status")["health"], "healthy");
        expect(&world);
    }
}

#[test]
fn a_disk_is_let_go_of_and_taken_back_with_what_it_missed() {
    // Scenario: a disk of a mirror is let go of, may be moved at once, misses writes and is taken back. What would take data out
    // of reach is refused, and so is what would take the last copy of the metadata along.
    const OFFLINE: &str = "/v1/pools/tank/disks/1/offline";
    let mut world = full(&["d0", "d1", "d2"]);
    let asked = world.post(OFFLINE, &json!({"dry_run": true}));
    assert_eq!((&asked["is_changed"], &asked["plan"]["moved_bytes"]), (&json!(false), &json!(0)));
    assert!(asked["plan"]["steps"].to_string().contains("once it was away for 30 min"), "{asked}");
    let gone = world.post(OFFLINE, &json!({}));
    assert_eq!(gone["plan"]["undo"], "dolmen disk online tank 1");
    assert_eq!(world.get("/v1/status")["health"], "warning");
    assert_eq!(world.post(OFFLINE, &json!({}))["is_changed"], false, "it is away already");
    // Nobody holds it: another program may have it.
    fs::rename(world.disk("d1"), world.folder.path().join("moved")).unwrap();
    let refused = world.refused("/v1/pools/tank/disks/0/offline", &json!({}));
    assert!(
        refused["code"] == "busy" && refused["message"].to_string().contains("parts of m may be"),
        "{refused}"
    );
    world.nbd().write(0, &pattern(3, 1 << 20));
    world.nbd().flush();
    let moved = world.folder.path().join("moved");
    world.post("/v1/pools/tank/disks/1/online", &json!({"path": moved}));
    idle(&world);
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    world.post("/v1/pools/tank/disks/2/offline", &json!({}));
    assert!(world.nbd().read(0, 1 << 20) == pattern(3, 1 << 20));
    world.kill();
    fs::remove_file(world.disk("d0")).unwrap();
    world.start();
    assert!(world.get("/v1/status")["health"] != "healthy");
}

#[test]
fn nothing_is_begun_that_cannot_end_or_that_nobody_wants() {
    // Scenario: a space has its only copy on the disk, perhaps; then the others have too few disks; then it is to wait for ever.
    // Nothing is begun, the status says why, and what is wrong is refused.
    let mut world = full(&["d0", "d1"]);
    let simple = json!({"name": "s", "size_bytes": 8 << 20, "resiliency": "simple", "provisioning": "fixed"});
    world.post("/v1/pools/tank/spaces", &simple);
    world.post(SET, &json!({"seconds": 1}));
    take_away(&mut world, "d1");
    let set_answer = |text: &str| eventually(text, || todo(&world).contains(text).then_some(()));
    set_answer("not rebuilt on other disks: ");
    set_answer("tank/s has no other copy of what it may hold");
    world.post("/v1/pools/tank/spaces/s/delete", &json!({"purge": true, "destroy": "s"}));
    world.post(SET, &json!({"seconds": 2}));
    set_answer("have a part on ");
    assert!(drain(&world).is_none());
    let reported = world.post(SET, &json!({"seconds": 0}));
    assert!(reported["message"].as_str().unwrap().contains("for ever"), "{reported}");
    assert!(!todo(&world).contains("rebuilt on"), "{}", todo(&world));
    assert_eq!(world.refused(SET, &json!({"seconds": 365 * 86_400 + 1}))["code"], "bad_request");
    assert_eq!(world.post(SET, &json!({"seconds": 0}))["is_changed"], false);
    expect(&world);
}

/// Scenario: rows of parity need all three disks, and one of these stays away. The mirror beside them has its redundancy back
/// nevertheless; the disk stays a member, is told to be missed for the rest, and is one as before when it is back.
#[test]
fn what_can_do_without_a_lost_disk_does_not_wait_for_what_cannot() {
    let mut world = full(&["d0", "d1", "d2"]);
    let parity =
        json!({"name": "p", "size_bytes": 16 << 20, "resiliency": "parity", "provisioning": "fixed"});
    world.post("/v1/pools/tank/spaces", &parity);
    idle(&world);
    let healths = |world: &World| {
        let spaces = world.get("/v1/pools/tank/spaces")["spaces"].as_array().unwrap().clone();
        spaces.into_iter().map(|space| (space["name"].clone(), space["health"].clone())).collect::<Vec<_>>()
    };
    let before = healths(&world);
    assert!(before.iter().all(|(_, health)| health == "healthy"), "{before:?}");
    take_away(&mut world, "d2");
    world.post(SET, &json!({"seconds": 1}));
    let begun = eventually("what can be is rebuilt", || rebuild(&world));
    let done = ended(&world, &begun["id"]);
    assert_eq!(done["state"], "done", "{done}");
    let result = done["result"].as_str().unwrap();
    assert!(result.contains("on other disks; it stays in the pool for the rest"), "{result}");
    let reported = "of what it had, some is rebuilt on other disks, and the rest is not: ";
    eventually("the rest is told", || todo(&world).contains(reported).then_some(()));
    let degraded: Vec<Value> =
        healths(&world).into_iter().filter(|(_, health)| health != "healthy").map(|(name, _)| name).collect();
    assert_eq!(degraded, ["p"]);
    assert!(drain(&world).is_none() && disks(&world).len() == 3);
    expect(&world);

    bring_back(&world, "d2");
    world.post("/v1/pools/tank/disks/2/online", &json!({}));
    eventually("it is healthy", || (world.get("/v1/status")["health"] == "healthy").then_some(()));
    idle(&world);
    assert_eq!(disks(&world).len(), 3);
    expect(&world);
}

/// Scenario: what can do without a lost disk is being rebuilt, and that is paused, and later stopped; the daemon is killed behind each.
/// It stays as it is, and nothing like it is begun, until the disk is back and lost again.
#[test]
#[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
fn a_rebuild_without_a_lost_disk_stays_paused_and_stopped_over_a_kill() {
    let mut world = full(&["d0", "d1", "d2"]);
    let parity =
        json!({"name": "p", "size_bytes": 16 << 20, "resiliency": "parity", "provisioning": "fixed"});
    world.post("/v1/pools/tank/spaces", &parity);
    idle(&world);
    world.post(SET, &json!({"seconds": 1}));
    let back = |world: &World| {
        bring_back(world, "d2");
        world.post("/v1/pools/tank/disks/2/online", &json!({}));
        idle(world);
    };
    let id = paused(&mut world, |world, attempt| {
        if attempt > 0 {
            back(world);
        }
        let before = rebuild(world).map(|job| job["id"].clone());
        take_away(world, "d2");
        keep_busy(world, attempt);
        let begun = || rebuild(world).filter(|job| Some(&job["id"]) != before.as_ref());
        json!({"job": eventually("what can be is rebuilt", begun)})
    });
    for (verb, state) in [("pause", "paused"), ("stop", "called_off")] {
        change(&world, &id, verb);
        assert_eq!(job(&world, &id)["state"], state);
        world.kill();
        world.start();
        // The first looks at what to do come within a second or two.
        std::thread::sleep(Duration::from_secs(5));
        idle(&world);
        assert_eq!(job(&world, &id)["state"], state);
        assert_eq!(rebuild(&world).unwrap()["id"], id, "behind {verb}");
        expect(&world);
    }
    back(&world);
    // That it was back is put on record by the next look.
    std::thread::sleep(Duration::from_secs(3));
    take_away(&mut world, "d2");
    eventually("what can be is rebuilt", || rebuild(&world).filter(|job| job["id"] != id));
}

/// Scenario: a space of one copy is in the trash, another one has its name by now, and a disk is lost. What is told to be given up is
/// the one in the trash; with a second disk away, that one is asked for first.
#[test]
fn what_would_be_lost_is_not_mixed_up_with_what_has_its_name() {
    let mut world = full(&["d0", "d1", "d2"]);
    let simple = json!({"name": "s", "size_bytes": 24 << 20, "resiliency": "simple", "row_bytes": 1 << 20, "provisioning": "fixed"});
    world.post("/v1/pools/tank/spaces", &simple);
    world.post("/v1/pools/tank/spaces/s/serve", &json!({}));
    let mut client = Nbd::connect(&world.folder.path().join("run/nbd.sock"), "tank/s");
    client.write(0, &pattern(3, 24 << 20));
    client.flush();
    drop(client);
    world.post("/v1/pools/tank/spaces/s/unserve", &json!({}));
    world.post("/v1/pools/tank/spaces/s/delete", &json!({}));
    world.post("/v1/pools/tank/spaces", &json!({"name": "s", "size_bytes": 1 << 20, "resiliency": "mirror"}));
    world.post(SET, &json!({"seconds": 0}));
    take_away(&mut world, "d2");
    let number = world.get("/v1/pools/tank/trash")["spaces"][0]["id"].clone();
    let refused = world.refused("/v1/pools/tank/disks/2/forget", &json!({}));
    let (message, hint) = (refused["message"].as_str().unwrap(), refused["hint"].as_str().unwrap());
    assert!(message.contains(&format!("of tank/s in the trash, number {number},")), "{message}");
    assert!(hint.contains(&format!("`dolmen trash purge tank/{number} --destroy=tank/s`")), "{hint}");
    assert!(!hint.contains("space delete"), "{hint}");
    let refused = world.refused("/v1/pools/tank/disks/2/remove", &json!({}));
    assert!(refused["message"].as_str().unwrap().contains("s in the trash, number"), "{refused}");
}

/// Scenario: a conversion waits for a disk that is away, and has been tried so often that the next try is a while away. That a disk
/// has been away for too long is looked at nevertheless.
#[test]
#[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
fn a_conversion_that_waits_delays_nothing_else() {
    let mut world = full(&["d0", "d1", "d2"]);
    let simple = json!({
        "name": "s", "size_bytes": 8 << 20, "resiliency": "simple", "row_bytes": 1 << 20, "provisioning": "fixed"
    });
    world.post("/v1/pools/tank/spaces", &simple);
    world.post("/v1/pools/tank/spaces/s/serve", &json!({}));
    let mut client = Nbd::connect(&world.folder.path().join("run/nbd.sock"), "tank/s");
    client.write(0, &pattern(3, 8 << 20));
    client.flush();
    drop(client);
    take_away(&mut world, "d2");
    let begun = world.post("/v1/pools/tank/spaces/s/convert", &json!({"resiliency": "mirror"}));
    let id = begun["job"]["id"].clone();
    eventually("it is put off", || (!job(&world, &id)["waits_for"].is_null()).then_some(()));
    // Tries behind 4, 8, 16 and 32 seconds.
    std::thread::sleep(Duration::from_secs(18));
    world.post(SET, &json!({"seconds": 1}));
    let asked = Instant::now();
    eventually("the disk is given up", || drain(&world));
    assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
    assert_eq!(job(&world, &id)["state"], "waiting");
}
