//! Disks that say of themselves that they fail, or say nothing: a script stands for `smartctl`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{World, eventually, pattern};

const MIB: u64 = 1 << 20;
const PASSES: &str =
    r#"{"model_name":"Paper 256","smart_status":{"passed":true},"temperature":{"current":30}}"#;
const FAILS: &str =
    r#"{"model_name":"Paper 256","smart_status":{"passed":false},"temperature":{"current":30}}"#;

/// Has a disk say something from the next time on that it is asked.
fn set_answer(world: &World, disk: &str, answer: &str) {
    fs::write(world.folder.path().join(format!("{disk}.json")), answer).unwrap();
}

/// Starts a daemon that asks a script; a disk for which it has no answer hangs.
fn start(world: &mut World) {
    let folder = world.folder.path();
    let script = folder.join("smartctl");
    let text = format!(
        "#!/bin/sh\nanswer={}/$(basename \"$3\").json\n[ -e \"$answer\" ] || exec sleep 60\nexec cat \"$answer\"\n",
        folder.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = world.command("state", "run");
    command.arg("--smartctl").arg(script);
    world.begin(command);
}

/// A daemon with a pool of four disks that say that they are well, and a mirror with 64 MiB of content.
fn stage() -> World {
    let mut world = World::new(4);
    world.kill();
    ["d0", "d1", "d2", "d3"].into_iter().for_each(|disk| set_answer(&world, disk, PASSES));
    start(&mut world);
    let disks: Vec<String> = ["d0", "d1", "d2", "d3"].iter().map(|name| world.disk(name)).collect();
    world.post("/v1/pools", &json!({"name": "tank", "disks": disks}));
    let space = json!({"name": "m", "size_bytes": 128 * MIB, "resiliency": "mirror", "row_bytes": MIB});
    world.post("/v1/pools/tank/spaces", &space);
    world.post("/v1/pools/tank/spaces/m/serve", &json!({}));
    let mut client = world.nbd();
    (0..64).for_each(|at| client.write(at * MIB, &content()));
    client.flush();
    drop(client);
    world
}

fn content() -> Vec<u8> {
    pattern(9, usize::try_from(MIB).unwrap())
}

fn disk(world: &World, slot: usize) -> Value {
    world.get("/v1/pools/tank/disks")["disks"][slot].clone()
}

fn used(world: &World, slot: usize) -> u64 {
    let disk = disk(world, slot);
    disk["data_bytes"].as_u64().unwrap() - disk["free_bytes"].as_u64().unwrap()
}

fn why(world: &World) -> String {
    world.get("/v1/status")["why"].to_string()
}

fn emptyings(world: &World) -> Vec<Value> {
    let jobs = world.get("/v1/jobs")["jobs"].as_array().unwrap().clone();
    jobs.into_iter().filter(|job| job["kind"] == "empty").collect()
}

/// Scenario: disks say that they are well, and one of them that it fails when the next daemon asks. It is named, with what to do, and
/// emptied by itself; it stays in the pool, new rows go elsewhere, and everything is there.
#[test]
fn a_disk_that_says_that_it_fails_is_named_and_emptied() {
    let mut world = stage();
    let stated =
        eventually("disks are asked", || Some(disk(&world, 3)).filter(|disk| !disk["smart"].is_null()));
    assert_eq!((&stated["smart"]["passed"], &stated["smart"]["temperature_c"]), (&json!(true), &json!(30)));
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    assert!(used(&world, 1) > 0);
    world.kill();
    set_answer(&world, "d1", FAILS);
    start(&mut world);
    eventually("it is named", || why(&world).contains("about to fail").then_some(()));
    eventually("it is emptied", || (used(&world, 1) == 0).then_some(()));
    let ended =
        eventually("the job ends", || emptyings(&world).into_iter().find(|job| job["state"] == "done"));
    assert_eq!(ended["subject"], world.disk("d1"));
    let jobs = world.get("/v1/jobs")["jobs"].to_string();
    assert!(!jobs.contains("resync"), "what is being filled is no matter of a resync: {jobs}");
    let todo = world.get("/v1/status")["todo"].to_string();
    assert!(todo.contains("holds nothing") && todo.contains("dolmen disk replace tank 1 NEW"), "{todo}");
    let failing = disk(&world, 1);
    assert!(failing["state"] == "present" && failing["score"].as_u64().unwrap() <= 40, "{failing}");
    let mut client = world.nbd();
    (64..80).for_each(|at| client.write(at * MIB, &content()));
    (0..80).for_each(|at| assert!(client.read(at * MIB, content().len()) == content(), "MiB {at}"));
    assert_eq!(used(&world, 1), 0, "new rows go elsewhere");
    let reported = world.get("/v1/events")["events"].to_string();
    assert!(reported.contains("about to fail"), "{reported}");
}

/// Scenario: somebody stops the emptying of a disk. It is called off, and neither this daemon nor the next one begins it again,
/// whom the disk answers nothing: what it said before stands until it says otherwise.
#[test]
#[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
fn an_emptying_that_was_stopped_is_not_begun_again() {
    let mut world = stage();
    world.kill();
    set_answer(&world, "d2", FAILS);
    start(&mut world);
    let begun = Instant::now();
    let job = loop {
        if let Some(job) = emptyings(&world).pop() {
            break job;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "no job begins");
    };
    let stop = format!("/v1/jobs/{}/stop", job["id"]);
    let planned = world.post(&stop, &json!({"dry_run": true}));
    assert_eq!(planned["is_changed"], false, "{planned}");
    world.post(&stop, &json!({}));
    let ended = eventually("it ends", || emptyings(&world).pop().filter(|job| job["state"] != "running"));
    assert_eq!(ended["state"], "called_off", "{ended}");
    let held = used(&world, 2);
    assert!(held > 0, "it was stopped in the midst");
    std::thread::sleep(Duration::from_secs(6));
    world.kill();
    fs::remove_file(world.folder.path().join("d2.json")).unwrap();
    start(&mut world);
    eventually("it is named", || why(&world).contains("about to fail").then_some(()));
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!((emptyings(&world).len(), used(&world, 2)), (1, held));
    let todo = world.get("/v1/status")["todo"].to_string();
    assert!(todo.contains("what it has stays there"), "{todo}");
    set_answer(&world, "d2", PASSES);
    world.kill();
    start(&mut world);
    eventually("it is well", || (!why(&world).contains("about to fail")).then_some(()));
}

/// Scenario: the emptying of a disk is paused, and another disk says that it fails. That one is emptied; then the first job is resumed,
/// and done.
#[test]
#[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
fn an_emptying_that_is_paused_keeps_no_other_disk_from_being_emptied() {
    let mut world = stage();
    world.kill();
    set_answer(&world, "d2", FAILS);
    start(&mut world);
    let begun = Instant::now();
    let id = loop {
        if let Some(job) = emptyings(&world).pop() {
            break job["id"].clone();
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "no job begins");
    };
    world.post(&format!("/v1/jobs/{id}/pause"), &json!({}));
    eventually("it stands", || (emptyings(&world)[0]["state"] == "paused").then_some(()));
    let held = used(&world, 2);
    assert!(held > 0, "it stands in the midst");
    world.kill();
    set_answer(&world, "d1", FAILS);
    start(&mut world);
    eventually("the other one is emptied", || (used(&world, 1) == 0).then_some(()));
    assert_eq!(emptyings(&world)[0]["state"], "paused");
    world.post(&format!("/v1/jobs/{id}/resume"), &json!({}));
    let are_done = || emptyings(&world).iter().all(|job| job["state"] == "done").then_some(());
    eventually("both are done", are_done);
    assert_eq!((used(&world, 1), used(&world, 2)), (0, 0));
    let mut client = world.nbd();
    (0..64).for_each(|at| assert!(client.read(at * MIB, content().len()) == content(), "MiB {at}"));
}

/// Scenario: of one disk the program hangs, of one it says garbage, of one nothing; one says that it has bad places. Requests are
/// answered meanwhile, what is not known is told without any warning, and the bad places until somebody acknowledges them, also
/// by the next daemon, until there are more.
#[test]
fn a_program_that_hangs_or_talks_garbage_delays_nothing_and_warns_of_nothing() {
    let mut world = World::new(4);
    world.kill();
    set_answer(&world, "d1", "\u{1}\u{2} no JSON");
    set_answer(&world, "d2", "{}");
    let bad = |count: u64| {
        format!("{{\"ata_smart_attributes\":{{\"table\":[{{\"id\":197,\"raw\":{{\"value\":{count}}}}}]}}}}")
    };
    set_answer(&world, "d3", &bad(3));
    start(&mut world);
    world.make_tank(&["d0", "d1", "d2", "d3"]);
    let mut client = world.nbd();
    client.write(0, &content());
    for (slot, expected) in [(0, "did not answer"), (1, "makes no sense"), (2, "says nothing")] {
        let silence = eventually("it is told why nothing is known", || {
            disk(&world, slot)["smart_silence"].as_str().map(str::to_owned)
        });
        assert!(silence.contains(expected), "{silence}");
    }
    assert!(client.read(0, content().len()) == content());
    eventually("bad places are told", || why(&world).contains("3 pending").then_some(()));
    assert!(!why(&world).contains("d0") && !why(&world).contains("d1"), "{}", why(&world));
    assert!(disk(&world, 3)["score"].as_u64().unwrap() < 100);
    world.post("/v1/pools/tank/acknowledge", &json!({}));
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    drop(client);
    for (count, health) in [(3, "healthy"), (4, "warning")] {
        world.kill();
        set_answer(&world, "d3", &bad(count));
        start(&mut world);
        let asked = || disk(&world, 3)["smart"]["pending_sectors"] == json!(count);
        eventually("it is asked again", || asked().then_some(()));
        assert_eq!(world.get("/v1/status")["health"], health, "{count}");
    }
}

/// Scenario: nobody has named a program, and disks are files. That they have no SMART is said, and nothing more.
#[test]
fn files_have_no_smart() {
    let world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let silence = eventually("it is told", || disk(&world, 0)["smart_silence"].as_str().map(str::to_owned));
    assert_eq!(silence, "a file has none");
    assert_eq!(world.get("/v1/status")["health"], "healthy");
}
