//! Events: what happened is reported once, in order, also over kills (docs/design/0016).

use std::fs;

use serde_json::{Value, json};

use crate::client::{World, eventually};

fn events(world: &World, since: u64) -> Value {
    world.get(&format!("/v1/events?since={since}"))
}

/// Somebody who asks for what is new, again and again.
#[derive(Default)]
struct Follower {
    last: u64,
    seen: Vec<Value>,
}

impl Follower {
    fn look(&mut self, world: &World) {
        let answer = events(world, self.last);
        assert_eq!(answer["dropped"], 0);
        self.last = answer["last"].as_u64().unwrap();
        self.seen.extend(answer["events"].as_array().unwrap().iter().cloned());
    }

    /// Waits for an event with this code, or this finding.
    fn sees(&mut self, world: &World, code: &str) -> Value {
        let from = self.seen.len();
        eventually(code, || {
            self.look(world);
            self.seen[from..].iter().find(|event| event["code"] == code || event["finding"] == code).cloned()
        })
    }

    fn count(&self, code: &str, finding: &Value) -> usize {
        self.seen.iter().filter(|event| event["code"] == code && event["finding"] == *finding).count()
    }
}

/// Scenario: a pool is made, a disk is let go of and carried away, the daemon is killed at once and again later, the disk is taken back in, all is
/// scrubbed, the space is deleted and the pool destroyed. Who follows sees each of that once, as who asks for all of it at the end.
#[test]
fn events_are_reported_once_and_in_order_also_over_kills() {
    let mut world = World::new(3);
    let mut follower = Follower::default();
    assert!(follower.sees(&world, "daemon_started")["text"].as_str().unwrap().ends_with("was started"));
    world.make_tank(&["d0", "d1", "d2"]);
    world.nbd().write(0, &[1; 4096]);
    world.nbd().flush();
    follower.sees(&world, "space_served");
    world.post("/v1/pools/tank/disks/2/offline", &json!({}));
    world.kill();
    let away = world.folder.path().join("away");
    fs::rename(world.disk("d2"), &away).unwrap();
    world.start();
    let absent = follower.sees(&world, "disk_absent");
    assert_eq!(absent["object"], json!({"kind": "disk", "pool": "tank", "name": "2"}));
    assert!(absent["text"].as_str().unwrap().ends_with(" of pool tank is absent"), "{absent}");
    world.kill();
    world.start();
    let started = follower.sees(&world, "pool_opened");
    assert_eq!(started["object"]["name"], "tank");
    fs::rename(&away, world.disk("d2")).unwrap();
    world.post("/v1/pools/tank/disks/2/online", &json!({"path": world.disk("d2")}));
    let over = follower.sees(&world, "trouble_over");
    assert!(over["text"].as_str().unwrap().starts_with("over: "), "{over}");
    world.post("/v1/pools/tank/scrub", &json!({}));
    let done = follower.sees(&world, "job_done");
    assert_eq!(done["object"]["kind"], "job");
    world.post("/v1/pools/tank/spaces/m/unserve", &json!({}));
    world.post("/v1/pools/tank/spaces/m/delete", &json!({"purge": true, "destroy": "m"}));
    follower.sees(&world, "space_deleted");
    world.last_job();
    world.post("/v1/pools/tank/destroy", &json!({"destroy": "tank"}));
    follower.sees(&world, "pool_destroyed");
    for (code, finding, count) in [
        ("daemon_started", Value::Null, 3),
        ("pool_created", Value::Null, 1),
        ("space_created", Value::Null, 1),
        ("space_served", Value::Null, 1),
        ("trouble_began", json!("disk_absent"), 1),
        ("trouble_over", json!("disk_absent"), 1),
        ("trouble_began", json!("space_degraded"), 1),
        ("pool_opened", Value::Null, 2),
        ("pool_unknown", Value::Null, 0),
        ("pool_destroyed", Value::Null, 1),
    ] {
        assert_eq!(follower.count(code, &finding), count, "{code} {finding}: {:#?}", follower.seen);
    }
    assert_eq!(events(&world, 0)["events"], json!(follower.seen));
    let numbers = follower.seen.iter().map(|event| event["number"].as_u64().unwrap());
    assert!(numbers.eq(1..=follower.last));
    let of_tank = world.get("/v1/events?pool=tank")["events"].as_array().unwrap().clone();
    assert_eq!(of_tank.len(), follower.seen.len() - 3, "all but the starts of the daemon");
}

/// Scenario: an administrator takes a disk offline and back, changes limits, a reserve, a bay and settings of the pool, and asks for
/// two dry runs and one change that changes nothing. Each change is one event that names the user; the rest are none.
#[test]
fn changes_of_settings_are_events_that_name_the_user() {
    let world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    let mut follower = Follower::default();
    follower.sees(&world, "space_served");
    let changes = [
        ("/v1/pools/tank/disks/2/offline", json!({}), "disk_offline", "disk"),
        ("/v1/pools/tank/disks/2/online", json!({}), "disk_online", "disk"),
        ("/v1/pools/tank/disks/1/set", json!({"bay": "7"}), "setting_changed", "disk"),
        ("/v1/pools/tank/spaces/m/limits", json!({"iops_max": 500}), "setting_changed", "space"),
        ("/v1/pools/tank/spaces/m/reserve", json!({"bytes": 8 << 20}), "setting_changed", "space"),
        ("/v1/pools/tank/alert_at", json!({"percents": [50]}), "setting_changed", "pool"),
        ("/v1/pools/tank/repair_after", json!({"seconds": 60}), "setting_changed", "pool"),
    ];
    let user = if rustix::process::geteuid().is_root() { "(by root)" } else { "(by user " };
    for (path, request, code, kind) in changes {
        let mut dry = request.clone();
        dry["dry_run"] = json!(true);
        follower.look(&world);
        let before = follower.seen.len();
        world.post(path, &dry);
        let message = world.post(path, &request)["message"].as_str().unwrap().to_owned();
        let event = follower.sees(&world, code);
        assert_eq!(
            (&event["object"]["kind"], &event["object"]["pool"]),
            (&json!(kind), &json!("tank")),
            "{event}"
        );
        let text = event["text"].as_str().unwrap();
        assert!(text.starts_with(&message) && text.contains(user), "{event}");
        let same = follower.seen[before..].iter().filter(|event| event["code"] == code);
        assert_eq!(same.count(), 1, "{path}");
    }
    follower.look(&world);
    let before = follower.seen.len();
    world.post("/v1/pools/tank/repair_after", &json!({"seconds": 60}));
    follower.look(&world);
    assert!(follower.seen[before..].iter().all(|event| event["code"] != "setting_changed"));
}

/// Scenario: the record of events is torn while no daemon runs. It is kept aside, and numbers that were given are not given again.
#[test]
fn a_torn_record_is_kept_aside_and_no_number_is_given_twice() {
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let mut follower = Follower::default();
    follower.sees(&world, "pool_created");
    world.kill();
    let state = world.folder.path().join("state");
    let text = fs::read(state.join("events.json")).unwrap();
    fs::write(state.join("events.json"), &text[..text.len() / 2]).unwrap();
    world.start();
    let opened = eventually("the pool is told of", || {
        let all = events(&world, 0)["events"].as_array().unwrap().clone();
        all.into_iter().find(|event| event["code"] == "pool_opened")
    });
    assert!(opened["number"].as_u64().unwrap() > 1_000_000_000, "{opened}");
    let names = fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().any(|name| name.to_string_lossy().starts_with("events.json.aside-")));
}

#[test]
fn what_cannot_be_asked_of_events_is_refused() {
    let world = World::new(0);
    for (query, code) in
        [("since=x", "bad_request"), ("since=-1", "bad_request"), ("pool=nope", "no_such_pool")]
    {
        let (status, answer) = world.try_ask("GET", &format!("/v1/events?{query}"), b"").unwrap();
        assert!((400..500).contains(&status), "{answer}");
        assert_eq!(answer["error"]["code"], code, "{answer}");
    }
}

fn why(world: &World, object: &str) -> Value {
    world.get(&format!("/v1/why/{}", object.replace('/', "%2F")))
}

/// The texts of a chain that begins with this cause, each the first of those of the one before.
fn chain(cause: &Value) -> Vec<String> {
    let mut texts = Vec::new();
    let mut next = cause;
    while next.is_object() {
        texts.push(next["text"].as_str().unwrap().to_owned());
        next = &next["causes"][0];
    }
    texts
}

/// Scenario: a disk is let go of and its file taken away. Why the space has less redundancy leads over the disk to the path where
/// nothing is, with what to do; so does why the pool and the disk are as they are. All of them say nothing when it is back.
#[test]
fn why_leads_from_a_space_to_what_can_be_done() {
    let world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    for at in 0..32u64 {
        world.nbd().write(at << 20, &[1; 4096]);
    }
    world.nbd().flush();
    assert_eq!(why(&world, "tank/m")["causes"], json!([]));
    world.post("/v1/pools/tank/disks/2/offline", &json!({}));
    let away = world.folder.path().join("away");
    fs::rename(world.disk("d2"), &away).unwrap();
    let degraded = eventually("the path is looked at", || {
        let why = why(&world, "tank/m");
        let text = why.to_string();
        (text.contains("there is nothing at") && text.contains("since_s\":1")).then_some(why)
    });
    assert_eq!(
        (&degraded["health"], &degraded["state"]),
        (&json!("warning"), &json!("space tank/m has something to look at"))
    );
    let cause = &degraded["causes"][0];
    assert_eq!(cause["code"], "space_degraded");
    let texts = chain(cause);
    assert_eq!(texts[0], "space tank/m is degraded: it survives the loss of 0 more disks instead of 1");
    assert!(texts[1].ends_with("d2 of pool tank is absent"), "{texts:?}");
    assert_eq!(texts[2], "it was taken offline with `dolmen disk offline`");
    let absent = &cause["causes"][0];
    assert!(absent["todo"][0].as_str().unwrap().contains("dolmen disk online tank 2"), "{absent}");
    assert!(absent["causes"][1]["text"].as_str().unwrap().starts_with("there is nothing at /"), "{absent}");
    for object in ["tank/2", &world.disk("d2"), "tank"] {
        let of = why(&world, object);
        assert!(of["causes"].to_string().contains("d2 of pool tank is absent"), "{object}: {of}");
    }
    let of_pool = why(&world, "tank")["causes"].as_array().unwrap().clone();
    assert!(!of_pool.iter().any(|cause| cause["code"] == "disk_absent"), "told below the space: {of_pool:?}");
    let (status, answer) = world.try_ask("GET", "/v1/why/nobody", b"").unwrap();
    assert_eq!((status, &answer["error"]["code"]), (404, &json!("no_such_object")));
    fs::rename(&away, world.disk("d2")).unwrap();
    world.post("/v1/pools/tank/disks/2/online", &json!({}));
    world.last_job();
    for object in ["tank/m", "tank/2", "tank"] {
        assert_eq!(why(&world, object)["causes"], json!([]), "{object}");
    }
    let job = why(&world, &world.last_job()["id"].to_string());
    assert_eq!((&job["object"]["kind"], &job["health"]), (&json!("job"), &json!("healthy")));
    assert!(job["state"].as_str().unwrap().contains(" of pool tank is done: "), "{job}");
}

/// Scenario: of several spaces one needs all disks for a new row, and one of them is let go of and taken back. Though the room of one
/// space is reckoned at each look, both is told of the space that it is true of.
#[test]
fn every_space_that_lacks_disks_is_reported() {
    let world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    for (name, resiliency) in [("p", "parity"), ("s", "simple")] {
        let space = json!({"name": name, "size_bytes": 8 << 20, "resiliency": resiliency});
        world.post("/v1/pools/tank/spaces", &space);
    }
    let mut follower = Follower::default();
    follower.sees(&world, "space_created");
    world.post("/v1/pools/tank/disks/2/offline", &json!({}));
    let began = follower.sees(&world, "space_lacks_disks");
    assert_eq!((&began["code"], &began["object"]["name"]), (&json!("trouble_began"), &json!("p")));
    world.post("/v1/pools/tank/disks/2/online", &json!({}));
    let over = follower.sees(&world, "space_lacks_disks");
    assert_eq!((&over["code"], &over["object"]["name"]), (&json!("trouble_over"), &json!("p")));
    let others = follower.seen.iter().filter(|event| event["finding"] == "space_lacks_disks");
    assert_eq!(others.count(), 2);
}

/// Scenario: for a while the record cannot be written. Who follows is told all the same, and goes on behind a kill without a gap once
/// it could be written again.
#[test]
fn events_are_reported_although_the_record_cannot_be_written() {
    let mut world = World::new(2);
    let mut follower = Follower::default();
    follower.sees(&world, "daemon_started");
    let in_the_way = world.folder.path().join("state/events.json.new");
    fs::create_dir(&in_the_way).unwrap();
    world.make_tank(&["d0", "d1"]);
    follower.sees(&world, "pool_created");
    fs::remove_dir(&in_the_way).unwrap();
    world.post("/v1/pools/tank/scrub", &json!({}));
    follower.sees(&world, "job_done");
    eventually("the record is written", || {
        let text = fs::read_to_string(world.folder.path().join("state/events.json")).unwrap();
        text.contains("pool_created").then_some(())
    });
    world.kill();
    world.start();
    follower.sees(&world, "pool_opened");
    let numbers = follower.seen.iter().map(|event| event["number"].as_u64().unwrap());
    assert!(numbers.eq(1..=follower.last), "{:#?}", follower.seen);
}
