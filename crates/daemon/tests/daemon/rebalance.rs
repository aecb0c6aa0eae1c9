//! What is there is evened out: behind the adding of disks, and when it is asked for (docs/design/0012).

use std::fs;

use serde_json::{Value, json};

use crate::client::{World, eventually};
use crate::jobs::{change, ended, expect, full, idle, job, keep_busy, numbers, paused, record};

/// Tries to catch a job before it has ended.
const TRIES_MAX: u32 = 8;
const REBALANCE: &str = "/v1/pools/tank/rebalance";
const CANCEL: &str = "/v1/pools/tank/rebalance/cancel";
const DISKS: &str = "/v1/pools/tank/disks";
/// Two slabs of rows of 1 MiB, with their tables: as near as a rebalance brings disks.
const NEAR: u64 = 3 << 20;

fn free(world: &World) -> Vec<u64> {
    let disks = world.get(DISKS)["disks"].clone();
    disks.as_array().unwrap().iter().map(|disk| disk["free_bytes"].as_u64().unwrap()).collect()
}

fn expect_even(world: &World) {
    let free = free(world);
    let (least, most) = (free.iter().min().unwrap(), free.iter().max().unwrap());
    assert!(most - least <= NEAR, "{free:?}");
}

/// Has `d2` join the pool while all rows stay on the other disks.
fn unbalance(world: &World) {
    idle(world);
    let disks = world.get(DISKS)["disks"].clone();
    let d2 = world.disk("d2");
    if let Some(there) = disks.as_array().unwrap().iter().find(|disk| disk["path"] == d2.as_str()) {
        world.post(&format!("{DISKS}/{}/remove", there["slot"]), &json!({}));
        idle(world);
    }
    world.post(DISKS, &json!({"disks": [d2], "stays": true}));
}

fn rebalances(world: &World) -> Vec<u64> {
    let jobs = world.get("/v1/jobs")["jobs"].clone();
    let is_meant = |job: &&Value| job["kind"] == "rebalance";
    jobs.as_array().unwrap().iter().filter(is_meant).map(|job| job["id"].as_u64().unwrap()).collect()
}

/// A rebalance that was paused before it had ended.
fn held(world: &mut World) -> Value {
    paused(world, |world, attempt| {
        unbalance(world);
        keep_busy(world, attempt);
        world.post(REBALANCE, &json!({}))
    })
}

fn dry(mut body: Value) -> Value {
    body["dry_run"] = json!(true);
    body
}

/// Scenario: a disk joins a pool whose rows are to stay: nothing moves. A dry run of a rebalance says what would, and changes
/// nothing; the rebalance does it, and another one has nothing to do. The next disk is filled without being asked for.
#[test]
fn disks_that_are_added_are_filled_unless_rows_are_to_stay() {
    let world = full(&["d0", "d1"]);
    let add = json!({"disks": [world.disk("d2")], "stays": true});
    let planned = world.post(DISKS, &dry(add.clone()));
    let made = world.post(DISKS, &add);
    assert_eq!((&planned["plan"], &planned["plan"]["moved_bytes"]), (&made["plan"], &json!(0)), "{planned}");
    assert_eq!((&made["job"], numbers(&world)), (&Value::Null, vec![]), "{made}");
    let before = free(&world);
    let planned = world.post(REBALANCE, &json!({"dry_run": true}));
    let plan = &planned["plan"];
    assert_eq!((&planned["is_changed"], &planned["job"]), (&json!(false), &Value::Null), "{planned}");
    assert!(plan["moved_bytes"].as_u64().unwrap() > 32 << 20, "{plan}");
    assert_eq!(plan["usable_before_bytes"], plan["usable_after_bytes"]);
    assert_eq!((&plan["is_reversible"], &plan["undo"]), (&json!(true), &Value::Null));
    assert!(
        plan["steps"][0].as_str().unwrap().ends_with("to emptier disks; clients go on meanwhile"),
        "{plan}"
    );
    assert_eq!((free(&world), numbers(&world)), (before, vec![]));

    let begun = world.post(REBALANCE, &json!({}));
    assert_eq!(&begun["plan"], plan);
    assert_eq!((&begun["job"]["kind"], &begun["job"]["id"]), (&json!("rebalance"), &json!(1)), "{begun}");
    let done = ended(&world, &begun["job"]["id"]);
    assert_eq!((&done["state"], &done["subject"]), (&json!("done"), &json!("pool tank")), "{done}");
    assert_eq!(done["result"], "everything is as even as rows and disks allow");
    expect_even(&world);
    expect(&world);
    let again = world.post(REBALANCE, &json!({}));
    assert_eq!(
        (&again["is_changed"], &again["job"], &again["plan"]["steps"]),
        (&json!(false), &Value::Null, &json!([]))
    );
    assert!(again["message"].as_str().unwrap().contains("as even already"), "{again}");

    let add = json!({"disks": [world.disk("d3")]});
    let planned = world.post(DISKS, &dry(add.clone()));
    assert_eq!(numbers(&world), [1]);
    let made = world.post(DISKS, &add);
    assert_eq!(planned["plan"], made["plan"]);
    assert!(made["plan"]["moved_bytes"].as_u64().unwrap() > 24 << 20, "{made}");
    let steps = made["plan"]["steps"].to_string();
    assert!(steps.contains("`dolmen pool rebalance tank --cancel` calls off"), "{steps}");
    assert_eq!(made["message"], "1 disk was added to pool tank; job 2 evens out what is there");
    assert_eq!(ended(&world, &made["job"]["id"])["state"], "done");
    expect_even(&world);
    expect(&world);
    assert_eq!(world.get("/v1/status")["health"], "healthy");
}

/// Scenario: a rebalance is paused; another one is refused, and a disk that is added has none of its own. It stays paused over a
/// kill, goes on under its number and fills that disk, too. Another one is called off, and nothing is left to be called off.
#[test]
fn a_rebalance_is_paused_over_a_kill_resumed_and_called_off() {
    let mut world = full(&["d0", "d1"]);
    let id = held(&mut world);
    for body in [json!({}), json!({"dry_run": true})] {
        let error = world.refused(REBALANCE, &body);
        let message = error["message"].as_str().unwrap();
        assert!(
            error["code"] == "busy" && message.contains(&format!("job {id} (rebalance pool tank) is paused")),
            "{error}"
        );
        assert!(error["hint"].as_str().unwrap().contains("dolmen pool rebalance tank --cancel"), "{error}");
    }
    let added = world.post(DISKS, &json!({"disks": [world.disk("d3")]}));
    assert_eq!(added["job"]["id"], id, "{added}");
    assert!(added["warnings"].to_string().contains(&format!("dolmen job resume {id}")), "{added}");
    world.kill();
    world.start();
    let halted = job(&world, &id);
    assert_eq!((&halted["state"], &halted["kind"]), (&json!("paused"), &json!("rebalance")), "{halted}");
    let status = world.get("/v1/status");
    assert_eq!((&status["health"], &status["doing"]), (&json!("healthy"), &json!([])), "{status}");
    expect(&world);
    let before = rebalances(&world);
    change(&world, &id, "resume");
    assert_eq!(ended(&world, &id)["state"], "done");
    assert_eq!(rebalances(&world), before, "nothing else was begun for it");
    expect_even(&world);
    expect(&world);

    let d3 = world.get(DISKS)["disks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|disk| disk["path"] == world.disk("d3").as_str())
        .unwrap()["slot"]
        .clone();
    world.post(&format!("{DISKS}/{d3}/remove"), &json!({}));
    let id = held(&mut world);
    let planned = world.post(CANCEL, &json!({"dry_run": true}));
    assert_eq!(
        (&planned["is_changed"], &planned["plan"]["undo"]),
        (&json!(false), &json!("dolmen pool rebalance tank"))
    );
    assert_eq!(job(&world, &id)["state"], "paused");
    let answer = world.post(CANCEL, &json!({}));
    assert_eq!((&answer["job"]["id"], &answer["job"]["state"]), (&id, &json!("called_off")), "{answer}");
    assert!(job(&world, &id)["result"].as_str().unwrap().contains("what was moved stays where it is"));
    let error = world.refused(CANCEL, &json!({}));
    assert!(
        error["code"] == "bad_request"
            && error["message"].as_str().unwrap().contains("is not being evened out"),
        "{error}"
    );
    // By its number, too.
    let id = held(&mut world);
    assert_eq!(change(&world, &id, "stop")["job"]["state"], "called_off");
    expect(&world);
    world.post(REBALANCE, &json!({}));
    assert_eq!(world.last_job()["state"], "done");
    expect_even(&world);
}

/// Scenario: the daemon is killed while a rebalance runs or waits. The next one goes on with it under its number.
#[test]
fn a_rebalance_that_a_kill_has_cut_short_is_done_under_its_number() {
    let mut world = full(&["d0", "d1"]);
    let was_cut_short = (0..TRIES_MAX).any(|_| {
        unbalance(&world);
        let id = world.post(REBALANCE, &json!({}))["job"]["id"].clone();
        world.kill();
        let recorded: Value =
            serde_json::from_slice(&fs::read(record(&world, "jobs.json")).unwrap()).unwrap();
        let recorded =
            recorded["jobs"].as_array().unwrap().iter().find(|job| job["id"] == id).unwrap().clone();
        world.start();
        let done = ended(&world, &id);
        assert_eq!(done["state"], "done", "{done}");
        assert_eq!(rebalances(&world).last(), id.as_u64().as_ref());
        expect_even(&world);
        expect(&world);
        recorded["state"] == "waiting"
    });
    assert!(was_cut_short, "each rebalance ended before the daemon was killed");
}

/// Scenario: the daemon is asked to end at some moment of a rebalance. It ends when the row that is moved is whole: nothing fails
/// after the close of the pool, no disk leaves it, and the next daemon has no row to mend.
#[test]
fn a_daemon_that_ends_in_a_rebalance_leaves_whole_rows() {
    let mut world = full(&["d0", "d1"]);
    let log = world.folder.path().join("log");
    for attempt in 0..TRIES_MAX {
        if world.is_running() {
            world.kill();
        }
        let mut command = world.command("state", "run");
        command.stderr(fs::File::create(&log).unwrap());
        world.begin(command);
        unbalance(&world);
        let id = world.post(REBALANCE, &json!({}))["job"]["id"].clone();
        eventually("the job has begun", || {
            let job = job(&world, &id);
            let moved = job["done_bytes"].as_u64().unwrap();
            (moved >= u64::from(attempt) << 22 || job["state"] == "done").then_some(())
        });
        world.post("/v1/shutdown", &json!({}));
        assert!(world.ended().success());
        let logged = fs::read_to_string(&log).unwrap();
        assert!(
            !logged.contains("ERROR") && !logged.contains("leaves the pool"),
            "attempt {attempt}: {logged}"
        );
    }
    world.start();
    expect(&world);
}

/// Scenario: a disk is to leave while a rebalance is at work. It makes way, both are done, and all is there.
#[test]
fn a_rebalance_yields_to_a_removal_and_continues_after_it() {
    let world = full(&["d0", "d1"]);
    world.post(DISKS, &json!({"disks": [world.disk("d2"), world.disk("d3")], "stays": true}));
    let rebalance = world.post(REBALANCE, &json!({}))["job"]["id"].clone();
    let removal = world.post(&format!("{DISKS}/0/remove"), &json!({}))["job"]["id"].clone();
    for id in [removal, rebalance] {
        let done = ended(&world, &id);
        assert_eq!(done["state"], "done", "{done}");
    }
    expect_even(&world);
    expect(&world);
    assert_eq!(world.get("/v1/status")["health"], "healthy");
}

/// Scenario: a mirror of three copies has a part of each row on each of three disks, of which one is larger. Expected: nothing is to be
/// moved, and the answer names the fullest and the emptiest disk, and what keeps them so.
#[test]
fn disks_that_stay_unevenly_full_are_reported_with_the_cause() {
    let world = World::new(2);
    let large = world.make_disk("large", 2 << 30);
    world.post("/v1/pools", &json!({"name": "tank", "disks": [world.disk("d0"), world.disk("d1"), large]}));
    let space = json!({"name": "m", "size_bytes": 128 << 20, "resiliency": "mirror", "copies": 3,
        "provisioning": "fixed"});
    world.post("/v1/pools/tank/spaces", &space);
    let answer = world.post(REBALANCE, &json!({}));
    let message = answer["message"].as_str().unwrap();
    assert!(
        answer["is_changed"] == false && message.contains("as even already as rows and disks allow: "),
        "{answer}"
    );
    let (large_at, because) = (message.find("/large is "), message.find("because the parts of a row"));
    assert!(large_at.is_some() && large_at < because, "{answer}");
}
