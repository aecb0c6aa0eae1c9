//! Jobs: their numbers and what came of them over restarts; paused, resumed and stopped (docs/design/0011).

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::client::{World, eventually, pattern};

/// Tries to catch a job before it has ended.
const TRIES_MAX: u32 = 8;
/// Seconds since 1970 when this was written.
const LONG_AGO: u64 = 1_700_000_000;
const PART: usize = 16 << 20;

/// A pool `tank` of these disks, and the mirror `m` of it, full.
pub(crate) fn full(disks: &[&str]) -> World {
    let world = World::new(4);
    world.make_tank(disks);
    world.post("/v1/pools/tank/spaces/m/resize", &json!({"size_bytes": 96 << 20}));
    for part in 0..6 {
        world.nbd().write(part * PART as u64, &pattern(9, PART));
    }
    world.nbd().flush();
    world
}

pub(crate) fn expect(world: &World) {
    for part in 0..6 {
        assert!(world.nbd().read(part * PART as u64, PART) == pattern(9, PART), "part {part}");
    }
}

pub(crate) fn job(world: &World, id: &Value) -> Value {
    world.get(&format!("/v1/jobs/{id}"))["job"].clone()
}

pub(crate) fn change(world: &World, id: &Value, verb: &str) -> Value {
    world.post(&format!("/v1/jobs/{id}/{verb}"), &json!({}))
}

pub(crate) fn ended(world: &World, id: &Value) -> Value {
    let is_open = |job: &Value| ["waiting", "running", "paused"].contains(&job["state"].as_str().unwrap());
    eventually("the job ends", || Some(job(world, id)).filter(|job| !is_open(job)))
}

pub(crate) fn numbers(world: &World) -> Vec<u64> {
    let jobs = world.get("/v1/jobs")["jobs"].clone();
    jobs.as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()).collect()
}

/// Has the pool scrubbed, so that what is begun next begins when the scrub has yielded to it; not at the first attempt, and not
/// where a scrub is paused.
pub(crate) fn keep_busy(world: &World, attempt: u32) {
    if attempt > 0 {
        world.try_ask("POST", "/v1/pools/tank/scrub", b"{}").unwrap();
    }
}

/// Begins a job and pauses it before it has ended, which may need several attempts; its number.
pub(crate) fn paused(world: &mut World, begin: impl Fn(&mut World, u32) -> Value) -> Value {
    for attempt in 0..TRIES_MAX {
        let id = begin(world, attempt)["job"]["id"].clone();
        let pause = format!("/v1/jobs/{id}/pause");
        if let Some((200, planned)) = world.try_ask("POST", &pause, br#"{"dry_run":true}"#) {
            assert_eq!(planned["is_changed"], false, "{planned}");
        }
        let (status, answer) = world.try_ask("POST", &pause, b"{}").unwrap();
        if status != 200 {
            assert!(answer["error"]["message"].as_str().unwrap().contains("has ended already"), "{answer}");
            continue;
        }
        let halted = || Some(job(world, &id)).filter(|job| job["is_pausing"] == false);
        let job = eventually("the job stands, or has ended", halted);
        if job["state"] == "paused" {
            idle(world);
            return id;
        }
    }
    panic!("every job ended before it was paused");
}

/// Waits until no job runs or waits for the slot.
pub(crate) fn idle(world: &World) {
    eventually("jobs end", || {
        let jobs = world.get("/v1/jobs")["jobs"].clone();
        let is_at_it = |job: &Value| job["state"] == "running" || job["state"] == "waiting";
        (!jobs.as_array().unwrap().iter().any(is_at_it)).then_some(())
    });
}

fn convert(world: &World, resiliency: &str) -> Value {
    world.post("/v1/pools/tank/spaces/m/convert", &json!({"resiliency": resiliency}))
}

pub(crate) fn scrub(world: &mut World) -> Value {
    paused(world, |world, _| world.post("/v1/pools/tank/scrub", &json!({})))
}

fn resized(world: &mut World) -> Value {
    let resize = |mib: u64| json!({"size_bytes": mib << 20});
    let path = "/v1/pools/tank/write_cache/resize";
    paused(world, |world, attempt| {
        idle(world);
        // Where the one before ended too early, it is made large again.
        if cache_mib(world) < 16 {
            world.post(path, &resize(16));
            world.last_job();
        }
        if attempt > 0 {
            // Of two jobs that a person asks for, the second waits for the first.
            convert(world, ["mirror", "simple"][attempt as usize % 2]);
        }
        world.post(path, &resize(5))
    })
}

fn cache_mib(world: &World) -> u64 {
    world.get("/v1/pools/tank")["pool"]["write_caches"][0]["size_bytes"].as_u64().unwrap() >> 20
}

/// The fullest disk is removed; the one that left before, where that attempt ended too early, is there again.
fn leaving(world: &mut World) -> Value {
    paused(world, |world, attempt| {
        idle(world);
        let disks = || world.get("/v1/pools/tank/disks")["disks"].as_array().unwrap().clone();
        let here = disks();
        let gone = ["d0", "d1", "d2"].map(|name| world.disk(name)).into_iter();
        for path in gone.filter(|path| here.iter().all(|disk| disk["path"] != path.as_str())) {
            world.post("/v1/pools/tank/disks", &json!({"disks": [path], "stays": true}));
        }
        let fullest = disks().into_iter().min_by_key(|disk| disk["free_bytes"].as_u64()).unwrap();
        keep_busy(world, attempt);
        world.post(&format!("/v1/pools/tank/disks/{}/remove", fullest["slot"]), &json!({}))
    })
}

/// The disk that is replaced, and the one that takes its place, change with each try.
fn replaced(world: &mut World) -> Value {
    paused(world, |world, attempt| {
        idle(world);
        let disks = world.get("/v1/pools/tank/disks")["disks"].clone();
        let paths: Vec<&str> =
            disks.as_array().unwrap().iter().map(|disk| disk["path"].as_str().unwrap()).collect();
        let (d0, d3) = (world.disk("d0"), world.disk("d3"));
        let (old, new) = if paths.contains(&d0.as_str()) { (d0, d3) } else { (d3, d0) };
        let slot = disks.as_array().unwrap().iter().find(|one| one["path"] == old.as_str()).unwrap();
        keep_busy(world, attempt);
        world.post(&format!("/v1/pools/tank/disks/{}/replace", slot["slot"]), &json!({"with": new}))
    })
}

fn todo(world: &World) -> String {
    world.get("/v1/status")["todo"].to_string()
}

pub(crate) fn record(world: &World, name: &str) -> PathBuf {
    world.folder.path().join("state").join(name)
}

/// Scenario: jobs end, the daemon is killed, ends well, and is started again. What has ended stays listed as it was, and numbers go
/// on; also where it was killed between a number and its record.
#[test]
fn numbers_grow_over_restarts_and_what_has_ended_stays_listed() {
    let mut world = full(&["d0", "d1"]);
    for _ in 0..2 {
        world.post("/v1/pools/tank/scrub", &json!({}));
        world.last_job();
    }
    assert_eq!(numbers(&world), [1, 2]);
    let before = world.get("/v1/jobs");
    let last = &before["jobs"][1];
    let [began, ended, now] =
        [&last["began_s"], &last["ended_s"], &before["now_s"]].map(|at| at.as_u64().unwrap());
    assert!(LONG_AGO < began && began <= ended && ended <= now, "{before}");
    assert!(last["result"].as_str().unwrap().ends_with("all sound"), "{last}");
    for _ in 0..2 {
        world.kill();
        world.start();
        assert_eq!(world.get("/v1/jobs")["jobs"], before["jobs"]);
    }
    world.post("/v1/shutdown", &json!({}));
    assert!(world.ended().success());
    fs::write(record(&world, "job-number"), "40\n").unwrap();
    world.start();
    assert_eq!(world.post("/v1/pools/tank/scrub", &json!({}))["job"]["id"], 41);
    world.last_job();
    assert_eq!(numbers(&world), [1, 2, 41]);
}

/// Scenario: a scrub is paused, twice; a conversion passes it; the daemon ends and is killed meanwhile. It stays paused, and goes on
/// under its number where it stood; after a restart it says so.
#[test]
fn a_paused_job_blocks_no_other_and_continues_when_resumed() {
    let mut world = full(&["d0", "d1"]);
    let id = scrub(&mut world);
    let again = change(&world, &id, "pause");
    assert_eq!((&again["is_changed"], &again["job"]["state"]), (&json!(false), &json!("paused")), "{again}");
    assert!(todo(&world).contains(&format!("dolmen job resume {id}")), "{}", todo(&world));
    let passed_by = convert(&world, "simple")["job"]["id"].clone();
    assert_eq!(ended(&world, &passed_by)["state"], "done");
    let halted = job(&world, &id);
    assert_eq!(halted["state"], "paused", "{halted}");
    let dry = json!({"dry_run": true});
    assert_eq!(world.post(&format!("/v1/jobs/{id}/resume"), &dry)["is_changed"], false);
    assert_eq!(job(&world, &id)["state"], "paused");
    change(&world, &id, "resume");
    let done = ended(&world, &id);
    assert_eq!((&done["state"], &done["rows_done"]), (&json!("done"), &done["rows_total"]), "{done}");
    assert!(done["result"].as_str().unwrap().ends_with("all sound"), "{done}");

    let id = scrub(&mut world);
    world.post("/v1/shutdown", &json!({}));
    assert!(world.ended().success());
    world.start();
    assert_eq!(job(&world, &id)["state"], "paused");
    world.kill();
    world.start();
    assert_eq!(job(&world, &id)["state"], "paused");
    assert!(todo(&world).contains(&format!("dolmen job resume {id}")));
    change(&world, &id, "resume");
    let done = ended(&world, &id);
    assert_eq!(done["state"], "done", "{done}");
    assert!(done["result"].as_str().unwrap().ends_with("; resumed where it was interrupted"), "{done}");
    let id = scrub(&mut world);
    assert!(change(&world, &id, "resume")["message"].as_str().unwrap().ends_with(" goes on"));
    world.last_job();
    assert_eq!(world.get("/v1/status")["health"], "healthy");
}

/// Scenario: a scrub runs when the daemon is killed. The next one goes on with it under its number.
#[test]
fn a_scrub_that_a_kill_has_cut_short_is_done_under_its_number() {
    let mut world = full(&["d0", "d1"]);
    let id = (0..TRIES_MAX).find_map(|_| {
        let id = world.post("/v1/pools/tank/scrub", &json!({}))["job"]["id"].clone();
        world.kill();
        world.start();
        let done = ended(&world, &id);
        assert_eq!(done["state"], "done", "{done}");
        done["result"].as_str().unwrap().contains("resumed").then_some(id)
    });
    let id = id.expect("each scrub ended before the daemon was killed");
    assert_eq!(numbers(&world).last(), id.as_u64().as_ref());
}

/// Scenario: jobs are stopped while they are paused. They say so when they have ended; what has ended, and numbers that are none,
/// are refused, but that to stop a job twice is fine.
#[test]
fn a_job_that_is_stopped_is_called_off_and_stays_so() {
    let mut world = full(&["d0", "d1"]);
    let id = scrub(&mut world);
    let stop = format!("/v1/jobs/{id}/stop");
    let planned = world.post(&stop, &json!({"dry_run": true}));
    assert!(
        planned["is_changed"] == false && planned["plan"]["steps"].to_string().contains("end job"),
        "{planned}"
    );
    assert_eq!(job(&world, &id)["state"], "paused");
    assert_eq!(change(&world, &id, "stop")["job"]["state"], "called_off");
    let again = change(&world, &id, "stop");
    assert_eq!(
        (&again["is_changed"], &again["job"]["state"]),
        (&json!(false), &json!("called_off")),
        "{again}"
    );
    let called_off = job(&world, &id);
    assert!(called_off["result"].as_str().unwrap().contains("by then"), "{called_off}");
    for verb in ["pause", "resume"] {
        let error = world.refused(&format!("/v1/jobs/{id}/{verb}"), &json!({}));
        let message = error["message"].as_str().unwrap();
        assert!(error["code"] == "bad_request" && message.contains("it was called off"), "{error}");
    }
    world.post("/v1/pools/tank/scrub", &json!({}));
    let done = world.last_job()["id"].clone();
    for (id, code) in [(done, "bad_request"), (json!(4000), "no_such_job"), (json!(-1), "no_such_job")] {
        for verb in ["pause", "resume", "stop"] {
            assert_eq!(
                world.refused(&format!("/v1/jobs/{id}/{verb}"), &json!({}))["code"],
                code,
                "{id} {verb}"
            );
        }
    }
    // One that nobody works on, because it was paused when the daemon was killed.
    let id = scrub(&mut world);
    world.kill();
    world.start();
    assert_eq!(change(&world, &id, "stop")["job"]["state"], "called_off");
    world.kill();
    world.start();
    assert_eq!(job(&world, &id)["state"], "called_off");
}

/// Scenario: a removal is paused and the daemon killed; it stays paused, nothing else begins it, and all is as redundant as before.
/// It is resumed under its number; another one is stopped, and the disk stays.
#[test]
fn a_removal_is_paused_over_a_kill_resumed_and_stopped() {
    let mut world = full(&["d0", "d1", "d2"]);
    let id = leaving(&mut world);
    for is_killed in [false, true] {
        if is_killed {
            world.kill();
            world.start();
        }
        let halted = job(&world, &id);
        assert_eq!((&halted["state"], &halted["kind"]), (&json!("paused"), &json!("drain")), "{halted}");
        let status = world.get("/v1/status");
        assert_eq!((&status["health"], &status["doing"]), (&json!("healthy"), &json!([])), "{status}");
        assert!(todo(&world).contains(&format!("dolmen job resume {id}")));
        let disks = world.get("/v1/pools/tank/disks")["disks"].clone();
        let mut others = disks.as_array().unwrap().iter().filter(|disk| disk["path"] != halted["subject"]);
        let other = format!("/v1/pools/tank/disks/{}/remove", others.next().unwrap()["slot"]);
        let error = world.refused(&other, &json!({}));
        assert!(error["message"].as_str().unwrap().contains("is being removed already"), "{error}");
    }
    expect(&world);
    change(&world, &id, "resume");
    let done = ended(&world, &id);
    assert_eq!(done["state"], "done", "{done}");
    expect(&world);
    let id = leaving(&mut world);
    world.kill();
    world.start();
    let answer = change(&world, &id, "stop");
    assert!(answer["message"].as_str().unwrap().contains("is called off"), "{answer}");
    let called_off = ended(&world, &id);
    assert_eq!(called_off["state"], "called_off", "{called_off}");
    assert!(called_off["result"].as_str().unwrap().contains("is not removed any more"), "{called_off}");
    assert_eq!(world.get("/v1/pools/tank/disks")["disks"].as_array().unwrap().len(), 3);
    expect(&world);
}

/// Scenario: the same with a replacement; stopped, another job moves back what was moved.
#[test]
fn a_replacement_is_paused_over_a_kill_resumed_and_stopped() {
    let mut world = full(&["d0", "d1", "d2"]);
    let id = replaced(&mut world);
    world.kill();
    world.start();
    let last = numbers(&world).last().copied();
    assert_eq!(job(&world, &id)["state"], "paused");
    // Slabs that are filled beside the old ones make no row shorter.
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    expect(&world);
    change(&world, &id, "resume");
    let done = ended(&world, &id);
    assert_eq!(done["state"], "done", "{done}");
    assert_eq!(numbers(&world).last().copied(), last, "nothing else was begun for it");
    let id = replaced(&mut world);
    let answer = change(&world, &id, "stop");
    assert!(answer["job"]["id"].as_u64() > id.as_u64(), "{answer}");
    assert_eq!(ended(&world, &id)["state"], "called_off");
    assert_eq!(ended(&world, &answer["job"]["id"])["state"], "done");
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    expect(&world);
}

/// Scenario: a replacement waits for an absent disk with the only copy of something. It is one job over a kill; paused, it is not
/// tried when the disk comes back, and resumed, it ends.
#[test]
fn a_job_that_is_put_off_keeps_its_number_and_can_be_paused() {
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let simple = json!({"name": "s", "size_bytes": 16 << 20, "resiliency": "simple", "row_bytes": 1 << 20, "provisioning": "fixed"});
    world.post("/v1/pools/tank/spaces", &simple);
    world.nbd().write(0, &pattern(3, 4 << 20));
    world.kill();
    let away = world.folder.path().join("away");
    fs::rename(world.disk("d1"), &away).unwrap();
    world.start();
    let new = world.make_disk("new", 300 << 20);
    let id = world.post("/v1/pools/tank/disks/1/replace", &json!({"with": new}))["job"]["id"].clone();
    let put_off = |world: &World| {
        let is_put_off = |job: &Value| job["state"] == "waiting" && job["result"].is_string();
        eventually("the job is put off", || Some(job(world, &id)).filter(is_put_off))
    };
    put_off(&world);
    world.kill();
    world.start();
    put_off(&world);
    assert_eq!(numbers(&world), [id.as_u64().unwrap()], "it is one job");
    assert_eq!(change(&world, &id, "pause")["job"]["state"], "paused");
    fs::rename(&away, world.disk("d1")).unwrap();
    world.post("/v1/pools/tank/disks/1/online", &json!({"path": world.disk("d1")}));
    idle(&world);
    assert_eq!(job(&world, &id)["state"], "paused");
    change(&world, &id, "resume");
    let done = ended(&world, &id);
    assert_eq!((&done["state"], &done["ended_s"].is_u64()), (&json!("done"), &true), "{done}");
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    assert!(world.nbd().read(0, 4 << 20) == pattern(3, 4 << 20));
}

/// Scenario: a disk was away and comes back; what it missed is paused, over a kill. It cannot be stopped, nothing else begins it,
/// and it is done under its number.
#[test]
fn a_resync_is_paused_and_cannot_be_stopped() {
    let mut world = full(&["d0", "d1", "d2"]);
    let away = world.folder.path().join("away");
    let id = paused(&mut world, |world, _| {
        idle(world);
        world.kill();
        fs::rename(world.disk("d1"), &away).unwrap();
        world.start();
        for part in 0..6 {
            world.nbd().write(part * PART as u64, &pattern(8, PART));
            world.nbd().write(part * PART as u64, &pattern(9, PART));
        }
        fs::rename(&away, world.disk("d1")).unwrap();
        world.post("/v1/pools/tank/disks/1/online", &json!({}))
    });
    let error = world.refused(&format!("/v1/jobs/{id}/stop"), &json!({}));
    assert!(error["hint"].as_str().unwrap().contains(&format!("dolmen job pause {id}")), "{error}");
    let asked = world.post("/v1/pools/tank/resync", &json!({}));
    assert!(asked["is_changed"] == false && asked["message"].as_str().unwrap().contains("paused"), "{asked}");
    world.kill();
    world.start();
    let halted = job(&world, &id);
    assert_eq!((&halted["state"], &halted["kind"]), (&json!("paused"), &json!("resync")), "{halted}");
    assert!(world.get("/v1/status")["why"].to_string().contains("not on all their disks yet"));
    let before = numbers(&world);
    change(&world, &id, "resume");
    let done = ended(&world, &id);
    assert_eq!(done["state"], "done", "{done}");
    assert_eq!(numbers(&world), before);
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    expect(&world);
}

/// Scenario: a write cache is made smaller; that is paused, the daemon killed, and it goes on under its number. Another one is
/// stopped, and the cache keeps its size.
#[test]
fn another_size_of_a_write_cache_is_paused_over_a_kill_and_stopped() {
    let mut world = full(&["d0", "d1", "d2"]);
    let parity = json!({"name": "p", "size_bytes": 64 << 20, "resiliency": "parity", "row_bytes": 2 << 20});
    world.post("/v1/pools/tank/spaces", &parity);
    let id = resized(&mut world);
    assert!(cache_mib(&world) > 5);
    world.kill();
    world.start();
    assert_eq!(job(&world, &id)["state"], "paused");
    change(&world, &id, "resume");
    let done = ended(&world, &id);
    assert_eq!((&done["state"], cache_mib(&world)), (&json!("done"), 5), "{done}");
    let id = resized(&mut world);
    let before = cache_mib(&world);
    change(&world, &id, "stop");
    let called_off = ended(&world, &id);
    assert_eq!((&called_off["state"], cache_mib(&world)), (&json!("called_off"), before), "{called_off}");
}

/// Scenario: the record is torn, garbled, of a later version, or both files are. It is kept aside, the daemon starts, the pool is as
/// it was, and no number is given twice.
#[test]
fn a_record_that_cannot_be_used_is_kept_aside_and_numbers_go_on() {
    let mut world = full(&["d0", "d1"]);
    world.post("/v1/pools/tank/scrub", &json!({}));
    let mut last = world.last_job()["id"].as_u64().unwrap();
    let torn = fs::read(record(&world, "jobs.json")).unwrap();
    let cases =
        [torn[..torn.len() / 2].to_vec(), b"\0\xff\0".to_vec(), br#"{"version":7,"jobs":{}}"#.to_vec()];
    for (at, content) in cases.iter().enumerate() {
        world.kill();
        fs::write(record(&world, "jobs.json"), content).unwrap();
        if at == 2 {
            fs::write(record(&world, "job-number"), "many").unwrap();
        }
        world.start();
        assert_eq!(world.get("/v1/jobs")["jobs"], json!([]));
        let id = world.post("/v1/pools/tank/scrub", &json!({}))["job"]["id"].as_u64().unwrap();
        assert!(if at == 2 { id > LONG_AGO } else { id == last + 1 }, "{id} behind {last}");
        last = id;
        world.last_job();
    }
    let asides = fs::read_dir(world.folder.path().join("state")).unwrap();
    let asides =
        asides.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains(".aside-"));
    assert!(asides.count() >= 2);
    assert_eq!(world.get("/v1/status")["health"], "healthy");
}

/// Scenario: nothing can be written to the daemon's folder for a while. Jobs are begun all the same, who pauses one is told, and all
/// of it goes on record when it can.
#[test]
fn a_record_that_cannot_be_written_refuses_nothing_and_is_written_later() {
    let mut world = full(&["d0", "d1"]);
    let in_the_way = ["jobs.json.new", "job-number.new"].map(|name| record(&world, name));
    in_the_way.iter().for_each(|path| fs::create_dir(path).unwrap());
    let id = scrub(&mut world);
    change(&world, &id, "resume");
    assert_eq!(ended(&world, &id)["state"], "done");
    world.post("/v1/pools/tank/scrub", &json!({}));
    let last = world.get("/v1/jobs")["jobs"].as_array().unwrap().last().unwrap()["id"].clone();
    let (status, answer) = world.try_ask("POST", &format!("/v1/jobs/{last}/pause"), b"{}").unwrap();
    // It may have ended already.
    let was_paused = status == 200 && answer["is_changed"] == true;
    assert!(!was_paused || answer["warnings"].to_string().contains("not on record"), "{answer}");
    in_the_way.iter().for_each(|path| fs::remove_dir(path).unwrap());
    let is_on_record = || {
        let text = fs::read_to_string(record(&world, "jobs.json")).unwrap_or_default();
        let number = fs::read_to_string(record(&world, "job-number")).unwrap_or_default();
        (text.contains(&format!("\"last\":{last},")) && number == format!("{last}\n")).then_some(())
    };
    eventually("it is on record", is_on_record);
    let before = numbers(&world);
    world.kill();
    world.start();
    assert_eq!(numbers(&world), before);
}

/// Scenario: pools with a paused job are exported and destroyed; and one is forgotten behind the daemon's back. Their jobs are called
/// off and say why, and a pool that comes back has new ones.
#[test]
fn jobs_of_an_unknown_pool_are_called_off() {
    let mut world = full(&["d0", "d1"]);
    let id = scrub(&mut world);
    let folder = world.folder.path().join("disks");
    world.post("/v1/pools/tank/export", &json!({}));
    let called_off = job(&world, &id);
    assert_eq!(called_off["state"], "called_off", "{called_off}");
    assert!(called_off["result"].as_str().unwrap().contains("was exported"), "{called_off}");
    world.post("/v1/pools/import", &json!({"pool": "tank", "paths": [folder]}));
    let id = scrub(&mut world);
    world.kill();
    for entry in fs::read_dir(world.folder.path().join("state/pools")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    world.start();
    let called_off = job(&world, &id);
    assert_eq!(called_off["state"], "called_off", "{called_off}");
    assert!(called_off["result"].as_str().unwrap().contains("not known here"), "{called_off}");
    world.post("/v1/pools/import", &json!({"pool": "tank", "paths": [folder]}));
    world.last_job();
    let id = scrub(&mut world);
    world.post("/v1/pools/tank/spaces/m/unserve", &json!({}));
    world.post("/v1/pools/tank/destroy", &json!({"destroy": "tank"}));
    assert!(job(&world, &id)["result"].as_str().unwrap().contains("was destroyed"));
}

/// Scenario: the disks of a pool with a paused and a running job are away when the daemon begins. Its jobs wait for it.
#[test]
fn jobs_of_a_pool_that_is_not_here_wait_for_it() {
    let mut world = full(&["d0", "d1"]);
    let held = scrub(&mut world);
    let id = paused(&mut world, |world, attempt| convert(world, ["simple", "mirror"][attempt as usize % 2]));
    change(&world, &id, "resume");
    world.kill();
    let (disks, away) = (world.folder.path().join("disks"), world.folder.path().join("away"));
    fs::rename(&disks, &away).unwrap();
    world.start();
    assert_eq!(job(&world, &held)["state"], "paused");
    let waits = job(&world, &id);
    // It may have ended before the daemon did.
    if waits["state"] != "done" {
        assert_eq!(
            (&waits["state"], &waits["waits_for"]),
            (&json!("waiting"), &json!("pool tank to be open for writing"))
        );
    }
    fs::rename(&away, &disks).unwrap();
    world.post("/v1/pools/import", &json!({"pool": "tank", "paths": [disks]}));
    assert_eq!(ended(&world, &id)["state"], "done");
    assert_eq!(job(&world, &held)["state"], "paused");
    change(&world, &held, "resume");
    assert_eq!(ended(&world, &held)["state"], "done");
}

/// Scrubs, and pauses that when it has verified some rows and not all; its number.
fn scrub_halfway(world: &mut World) -> Value {
    for _ in 0..TRIES_MAX {
        let id = paused(world, |world, _| {
            let begun = world.post("/v1/pools/tank/scrub", &json!({}));
            eventually("a row is verified", || {
                (job(world, &begun["job"]["id"])["rows_done"].as_u64() > Some(0)).then_some(())
            });
            begun
        });
        let view = job(world, &id);
        if view["rows_done"].as_u64() < view["rows_total"].as_u64() {
            return id;
        }
        change(world, &id, "resume");
        ended(world, &id);
    }
    panic!("each scrub had read everything when it was paused");
}

/// Scenario: a scrub is paused halfway, and the daemon is killed. The next one knows how far it was, reads what is left, and tells of
/// all blocks, each of them once.
#[test]
fn a_scrub_resumes_where_it_was_after_a_kill() {
    let mut world = full(&["d0", "d1"]);
    world.post("/v1/pools/tank/scrub", &json!({}));
    let whole = world.last_job()["result"].as_str().unwrap().to_owned();
    let id = scrub_halfway(&mut world);
    let before = job(&world, &id);
    world.kill();
    world.start();
    let after = job(&world, &id);
    for figure in ["rows_done", "rows_total", "done_bytes", "state"] {
        assert_eq!(after[figure], before[figure], "{figure}: {before} {after}");
    }
    change(&world, &id, "resume");
    let done = ended(&world, &id);
    assert_eq!(done["result"], format!("{whole}; resumed where it was interrupted"), "{done}");
    assert_eq!((&done["rows_done"], &done["done_bytes"]), (&done["rows_total"], &json!(96 << 20)), "{done}");
}

/// Scenario: a scrub that was paused is asked for again, then while it runs, then while its record is garbled. It is refused by its
/// number, then joined, and then read from its beginning.
#[test]
fn a_second_scrub_is_refused_while_the_first_is_paused_and_joins_it_while_it_runs() {
    let mut world = full(&["d0", "d1"]);
    let path = "/v1/pools/tank/scrub";
    let id = (0..TRIES_MAX).find_map(|_| {
        let id = scrub_halfway(&mut world);
        let error = world.refused(path, &json!({}));
        assert_eq!(error["code"], "busy", "{error}");
        assert!(
            error["message"].as_str().unwrap().starts_with(&format!("job {id} (scrub pool tank) is paused")),
            "{error}"
        );
        assert!(error["hint"].as_str().unwrap().contains(&format!("dolmen job resume {id}")), "{error}");
        change(&world, &id, "resume");
        let joined = world.post(path, &json!({}));
        if joined["job"]["id"] != id {
            // It had ended by then.
            ended(&world, &joined["job"]["id"]);
            return None;
        }
        assert_eq!(joined["is_changed"], false, "{joined}");
        let message = joined["message"].as_str().unwrap();
        assert!(message.contains(&format!("by job {id}, which this request joins; ")), "{joined}");
        Some(id)
    });
    let id = id.expect("each scrub ended before it was joined");
    assert_eq!(ended(&world, &id)["state"], "done");
    assert_eq!(numbers(&world).last(), id.as_u64().as_ref(), "one scrub");

    let id = scrub_halfway(&mut world);
    world.kill();
    let record = record(&world, "jobs.json");
    let text = fs::read_to_string(&record).unwrap();
    let garbled = text.replacen("\"next\":[", "\"next\":[\"x\",", 1);
    assert_ne!(garbled, text);
    fs::write(&record, garbled).unwrap();
    world.start();
    change(&world, &id, "resume");
    let done = ended(&world, &id);
    assert_eq!((&done["state"], &done["rows_done"]), (&json!("done"), &done["rows_total"]), "{done}");
    assert!(done["result"].as_str().unwrap().starts_with("24576 blocks verified, all sound"), "{done}");
}

fn job_share(world: &World, id: &Value) -> (Value, Value) {
    let job = job(world, id);
    (job["priority"].clone(), job["latency_limit_ms"].clone())
}

/// Scenario: a scrub and a removal have the efforts of their kinds. That of the scrub is set, twice and with what cannot be, over a
/// kill; by one part alone the other stays. When it has ended, nothing is set any more.
#[test]
fn what_a_job_leaves_to_clients_is_set_and_survives_a_restart() {
    let mut world = full(&["d0", "d1", "d2"]);
    let leaving = leaving(&mut world);
    assert_eq!(job_share(&world, &leaving), (json!("normal"), Value::Null));
    let id = scrub(&mut world);
    let set = format!("/v1/jobs/{id}/set");
    assert_eq!(job_share(&world, &id), (json!("low"), json!(50)));
    let high = json!({"priority": "high", "latency_limit_ms": 0});
    let planned = world.post(&set, &json!({"priority": "high", "latency_limit_ms": 0, "dry_run": true}));
    assert_eq!((&planned["is_changed"], job_share(&world, &id)), (&json!(false), (json!("low"), json!(50))));
    let made = world.post(&set, &high);
    assert_eq!(made["plan"], planned["plan"]);
    assert_eq!(made["plan"]["undo"], format!("dolmen job set {id} --priority low --latency-limit 50ms"));
    assert_eq!(made["message"], format!("job {id} (scrub pool tank) has priority high and no latency limit"));
    assert_eq!((&made["job"]["priority"], &made["job"]["state"]), (&json!("high"), &json!("paused")));
    assert_eq!(world.post(&set, &high)["is_changed"], false);
    world.kill();
    world.start();
    assert_eq!(job_share(&world, &id), (json!("high"), Value::Null));
    world.post(&set, &json!({"latency_limit_ms": 2000}));
    for (body, reported) in [
        (json!({}), "neither a priority nor a latency limit"),
        (json!({"dry_run": true}), "neither a priority nor a latency limit"),
        (json!({"latency_limit_ms": 60_001}), "a latency limit of 60001 ms is more than 60000 ms"),
        (json!({"latency_limit_ms": -1}), "cannot be read"),
        (json!({"priority": "utmost"}), "utmost"),
    ] {
        let error = world.refused(&set, &body);
        assert!(
            error["code"] == "bad_request" && error["message"].as_str().unwrap().contains(reported),
            "{error}"
        );
    }
    assert_eq!(job_share(&world, &id), (json!("high"), json!(2000)));
    assert_eq!(world.refused("/v1/jobs/4000/set", &high)["code"], "no_such_job");
    change(&world, &id, "resume");
    let done = ended(&world, &id);
    assert_eq!((&done["state"], &done["priority"]), (&json!("done"), &json!("high")), "{done}");
    let error = world.refused(&set, &high);
    assert!(error["message"].as_str().unwrap().contains("has ended already"), "{error}");
    world.kill();
    world.start();
    assert_eq!(job_share(&world, &id), (json!("high"), json!(2000)));
    assert_eq!(job_share(&world, &leaving), (json!("normal"), Value::Null));
}
