//! Spaces become others while they are used, also over kills of the daemon (docs/design/0020).

use std::process::Command;
use std::time::Duration;
use std::{fs, io, thread};

use serde_json::{Value, json};

use crate::client::{World, eventually, pattern};
use crate::jobs::{change, ended, expect, full, idle, job, keep_busy, paused, record};

const CONVERT: &str = "/v1/pools/tank/spaces/m/convert";
const SPACE: &str = "/v1/pools/tank/spaces/m";
/// Kills while a space goes back and forth between two layouts.
const KILLS: usize = 20;

fn space(world: &World) -> Value {
    world.get(SPACE)["space"].clone()
}

fn parity() -> Value {
    json!({"resiliency": "parity", "columns": 2})
}

fn mirror() -> Value {
    json!({"resiliency": "mirror"})
}

fn dry(mut body: Value) -> Value {
    body["dry_run"] = json!(true);
    body
}

/// Scenario: a dry run says what a conversion takes, and changes nothing. The conversion does that while a client writes and reads;
/// then the space is what it was to be, less is taken on the disks, and everything is there, also behind a restart. Once more, there
/// is nothing to do.
#[test]
fn a_mirror_becomes_parity_while_a_client_goes_on() {
    let mut world = full(&["d0", "d1", "d2"]);
    let before = space(&world);
    let planned = world.post(CONVERT, &dry(parity()));
    let plan = &planned["plan"];
    assert_eq!(
        (&planned["is_changed"], &planned["job"], space(&world)),
        (&json!(false), &Value::Null, before.clone())
    );
    let steps = plan["steps"].to_string();
    assert!(steps.contains("write cache") && steps.contains("clients go on meanwhile"), "{steps}");
    assert!(
        plan["undo"].as_str().unwrap().starts_with("dolmen space convert tank/m --resiliency mirror"),
        "{plan}"
    );

    let begun = world.post(CONVERT, &parity());
    assert_eq!(&begun["plan"], plan);
    let id = begun["job"]["id"].clone();
    let mut client = world.nbd();
    let mut round = 0;
    while !["done", "failed"].contains(&job(&world, &id)["state"].as_str().unwrap()) {
        // What is there is written again, and read.
        let at = (round * 7 % 24) << 20;
        let part = pattern(9, 16 << 20);
        let from = at % (16 << 20);
        client.write(at as u64, &part[from..from + (64 << 10)]);
        assert!(client.read(at as u64, 64 << 10) == part[from..from + (64 << 10)]);
        round += 1;
    }
    let done = ended(&world, &id);
    assert_eq!((&done["state"], &done["kind"]), (&json!("done"), &json!("convert")), "{done}");
    expect(&world);
    let after = space(&world);
    assert_eq!(
        (&after["resiliency"], &after["columns"], &after["integrity"]),
        (&json!("parity"), &json!(2), &json!("strict"))
    );
    assert_eq!(after["converted_from"], Value::Null);
    let taken = |space: &Value| space["footprint_bytes"].as_u64().unwrap();
    assert!(taken(&after) * 5 < taken(&before) * 4, "{before} {after}");
    let again = world.post(CONVERT, &parity());
    assert_eq!((&again["is_changed"], &again["job"]), (&json!(false), &Value::Null), "{again}");
    world.kill();
    world.start();
    expect(&world);
    assert_eq!(space(&world)["resiliency"], "parity");
    assert_eq!(world.get("/v1/status")["health"], "healthy");
}

/// Scenario: a space goes to parity and back, again and again, and the daemon is killed at twenty places of that while a client
/// writes. Each time what was written is there, and the job goes on under its number.
#[test]
fn a_conversion_that_is_killed_anywhere_goes_on() {
    let mut world = full(&["d0", "d1", "d2"]);
    let mut to = [parity(), mirror()].into_iter().cycle();
    let mut id = Value::Null;
    let mut caught = 0;
    for kill in 0..KILLS {
        if id.is_null() || job(&world, &id)["state"] == "done" {
            id = world.post(CONVERT, &to.next().unwrap())["job"]["id"].clone();
        }
        let mut client = world.nbd();
        let part = pattern(9, 16 << 20);
        for write in 0..kill % 5 {
            let from = (write * 3 + kill) % 250 * (64 << 10);
            client.write(from as u64, &part[from..from + (64 << 10)]);
        }
        // As long as it takes to ask so often.
        (0..kill * 7 % 40).for_each(|_| drop(world.get("/v1/jobs")));
        caught += usize::from(job(&world, &id)["state"] == "running");
        world.kill();
        world.start();
        // All of it in the end; reading it each time would be most of the test.
        let at = kill % 6 * (16 << 20);
        assert!(
            world.nbd().read(at as u64, 16 << 20) == pattern(9, 16 << 20),
            "part {at} behind kill {kill}"
        );
    }
    assert!(caught >= KILLS / 4, "only {caught} of {KILLS} kills were in the midst of one");
    assert_eq!(ended(&world, &id)["state"], "done");
    expect(&world);
    idle(&world);
    let scrub = world.post("/v1/pools/tank/scrub", &json!({}))["job"]["id"].clone();
    assert_eq!(ended(&world, &scrub)["state"], "done");
    assert_eq!(world.get("/v1/status")["health"], "healthy");
}

/// Scenario: a conversion is paused, and what does not fit it is refused. It is stopped, and the space has rows of both kinds; it
/// goes back, and is what it was.
#[test]
fn a_conversion_is_paused_stopped_and_reversed() {
    let mut world = full(&["d0", "d1", "d2"]);
    let before = space(&world);
    let id = paused(&mut world, |world, attempt| {
        idle(world);
        if space(world)["resiliency"] == "parity" {
            world.post(CONVERT, &mirror());
            idle(world);
        }
        keep_busy(world, attempt);
        world.post(CONVERT, &parity())
    });
    assert_eq!(space(&world)["converted_from"]["resiliency"], "mirror");
    let error = world.refused(CONVERT, &mirror());
    assert!(error["code"] == "busy" && error["hint"].to_string().contains("dolmen job stop"), "{error}");
    world.kill();
    world.start();
    assert_eq!(job(&world, &id)["state"], "paused");
    expect(&world);
    change(&world, &id, "stop");
    let off = ended(&world, &id);
    assert_eq!(off["state"], "called_off", "{off}");
    let error = world.refused(CONVERT, &json!({"resiliency": "simple"}));
    assert!(error["message"].to_string().contains("is being converted from mirror"), "{error}");
    let back = world.post(CONVERT, &mirror());
    assert_eq!(ended(&world, &back["job"]["id"])["state"], "done", "{back}");
    expect(&world);
    let after = space(&world);
    for key in ["resiliency", "copies", "columns", "interleave_bytes", "integrity", "footprint_bytes"] {
        assert_eq!(after[key], before[key], "{key}");
    }
}

/// Scenario: what cannot be is refused before anything changes, with the reason.
#[test]
fn what_a_space_cannot_become_is_refused_with_the_reason() {
    let world = full(&["d0", "d1", "d2"]);
    let before = space(&world);
    for (body, word) in [
        (json!({"resiliency": "parity", "parity": 2}), "needs"),
        (json!({"resiliency": "mirror", "copies": 4}), "needs"),
        (json!({"resiliency": "mirror", "copies": 9}), "copies"),
        (json!({"resiliency": "parity", "parity": 3}), "1 or 2 parities"),
        (json!({"resiliency": "parity", "copies": 2}), "only a mirror"),
        (json!({"resiliency": "simple", "parity": 1}), "only a space with parity"),
        (json!({"resiliency": "parity", "integrity": "relaxed"}), "relaxed space with parity"),
        (json!({"interleave_bytes": 5000}), "interleave"),
        (json!({"resiliency": "parity", "columns": 7}), "needs"),
    ] {
        for body in [dry(body.clone()), body] {
            let error = world.refused(CONVERT, &body);
            assert!(error.to_string().contains(word), "{body}: {error}");
            assert_eq!(space(&world), before, "{body}");
        }
    }
    // Twice as much is more than there is.
    world.post("/v1/pools/tank/spaces/m/resize", &json!({"size_bytes": 1u64 << 40}));
    let error = world.refused(CONVERT, &json!({"provisioning": "fixed"}));
    assert!(error["code"] == "bad_size", "{error}");
}

/// Scenario: a thin space becomes fixed, and thin again.
#[test]
fn a_thin_space_becomes_fixed_and_thin_again() {
    let world = full(&["d0", "d1", "d2"]);
    world.post("/v1/pools/tank/spaces/m/resize", &json!({"size_bytes": 112 << 20}));
    let claimed = || space(&world)["claimed_bytes"].as_u64().unwrap();
    let before = claimed();
    let usable =
        |change: &Value, when: &str| change["plan"][format!("usable_{when}_bytes")].as_u64().unwrap();
    for (provisioning, bytes) in [("fixed", 112 << 20), ("thin", before)] {
        let to = json!({"provisioning": provisioning});
        let (planned, begun) = (world.post(CONVERT, &dry(to.clone())), world.post(CONVERT, &to));
        assert_eq!(planned["message"], format!("tank/m would become {provisioning}"));
        assert!(
            begun["message"].as_str().unwrap().starts_with(&format!("tank/m becomes {provisioning}, job "))
        );
        assert_eq!(begun["job"]["subject"], format!("space tank/m to {provisioning}"));
        let (had, will) = (usable(&planned, "before"), usable(&planned, "after"));
        assert_eq!(will < had, provisioning == "fixed", "{planned}");
        assert_eq!(ended(&world, &begun["job"]["id"])["state"], "done", "{begun}");
        assert_eq!((space(&world)["provisioning"].clone(), claimed()), (json!(provisioning), bytes));
        let scrub = world.post("/v1/pools/tank/scrub", &dry(json!({})));
        // The plan reckons with disks that are all as full as one another.
        assert!(usable(&scrub, "before") + (8 << 20) >= will, "{planned}: {scrub}");
        assert!(provisioning == "thin" || usable(&scrub, "before") <= will + (8 << 20), "{planned}: {scrub}");
        expect(&world);
    }
    eventually("the pool is healthy", || (world.get("/v1/status")["health"] == "healthy").then_some(()));
}

/// Scenario: a conversion for which nobody works is resumed, and the record of jobs takes long to be written. The pool goes on with the
/// job by itself meanwhile, and it is not begun once more behind that.
#[test]
#[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
fn a_job_that_is_resumed_is_begun_once() {
    let mut world = full(&["d0", "d1", "d2"]);
    let mut to = [parity(), mirror()].into_iter().cycle();
    let bodies: Vec<Value> = (0..8).map(|_| to.next().unwrap()).collect();
    let id = paused(&mut world, |world, attempt| {
        idle(world);
        world.post(CONVERT, &bodies[attempt as usize])
    });
    world.kill();
    world.start();
    assert_eq!(job(&world, &id)["state"], "paused");
    // Whoever writes the record waits until somebody reads it.
    let (pipe, aside) = (record(&world, "jobs.json.new"), record(&world, "pipe"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    thread::scope(|scope| {
        let resumed = scope.spawn(|| world.post(&format!("/v1/jobs/{id}/resume"), &json!({})));
        thread::sleep(Duration::from_secs(8));
        fs::rename(&pipe, &aside).unwrap();
        io::copy(&mut fs::File::open(&aside).unwrap(), &mut io::sink()).unwrap();
        resumed.join().unwrap();
    });
    let done = ended(&world, &id);
    assert_eq!(done["state"], "done", "{done}");
    let result = done["result"].as_str().unwrap();
    assert!(!result.contains("; 0 rows were moved"), "{result}");
    expect(&world);
}
