//! Pools over restarts, lost disks and other hands.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use serde_json::json;

use crate::client::{World, eventually, pattern};

/// Where the first label of a disk stands.
const LABEL_AT: u64 = 128 << 10;
/// Looks at something that happens at once, without a pause between them.
const LOOKS_MAX: u32 = 10_000_000;

#[test]
fn what_was_acknowledged_survives_a_killed_daemon_and_clients_find_it_again() {
    // Scenario: writes, half of them flushed, then SIGKILL; the next daemon opens and serves by itself. Twice.
    let mut world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    let first = pattern(1, 3 << 20);
    let second = pattern(2, 1 << 20);
    let mut client = world.nbd();
    assert_eq!(client.size, 32 << 20);
    client.write(0, &first);
    client.flush();
    client.write(2 << 20, &second);
    client.write(20 << 20, &second);
    for _ in 0..2 {
        world.kill();
        world.start();
        let mut client = world.nbd();
        assert!(client.read(0, 2 << 20) == first[..2 << 20]);
        assert!(client.read(2 << 20, 1 << 20) == second);
        assert!(client.read(20 << 20, 1 << 20) == second);
        assert!(client.read(10 << 20, 1 << 20).iter().all(|byte| *byte == 0));
    }
    assert_eq!(world.get("/v1/status")["health"], "healthy");
}

#[test]
fn a_lost_disk_is_a_warning_and_comes_back_by_a_resync() {
    // Scenario: files renamed, one missing; the pool opens without a flag, takes writes; the disk returns and a scrub
    // finds every copy sound.
    let mut world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    world.nbd().write(0, &pattern(3, 8 << 20));
    world.post("/v1/shutdown", &json!({}));
    assert!(world.ended().success());
    fs::rename(world.disk("d0"), world.disk("renamed")).unwrap();
    fs::rename(world.disk("d2"), world.folder.path().join("away")).unwrap();
    world.start();
    let status = world.get("/v1/status");
    assert_eq!(status["health"], "warning", "{status}");
    assert!(!status["todo"].as_array().unwrap().is_empty());
    let mut client = world.nbd();
    assert!(client.read(0, 8 << 20) == pattern(3, 8 << 20));
    client.write(1 << 20, &pattern(4, 4 << 20));
    assert_eq!(world.refused("/v1/pools/tank/disks/2/online", &json!({}))["code"], "no_such_device");
    fs::rename(world.folder.path().join("away"), world.disk("back")).unwrap();
    world.post("/v1/pools/tank/disks/2/online", &json!({}));
    assert_eq!(world.last_job()["state"], "done");
    world.post("/v1/pools/tank/scrub", &json!({}));
    let job = world.last_job();
    assert_eq!(job["state"], "done", "{job}");
    assert!(job["result"].as_str().unwrap().ends_with("all sound"), "{job}");
    assert_eq!(world.get("/v1/status")["health"], "healthy");
}

#[test]
fn a_disk_is_replaced_and_what_was_taken_out_is_free_again() {
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let content = pattern(5, 6 << 20);
    world.nbd().write(0, &content);
    let new = world.make_disk("new", 300 << 20);
    let old = world.disk("d1");
    world.post("/v1/pools/tank/disks/1/replace", &json!({"with": new}));
    let job = world.last_job();
    assert_eq!((&job["state"], &job["kind"]), (&json!("done"), &json!("replace")), "{job}");
    let disks = world.get("/v1/pools/tank/disks")["disks"].clone();
    let paths: Vec<&str> =
        disks.as_array().unwrap().iter().map(|disk| disk["path"].as_str().unwrap()).collect();
    assert_eq!(paths, [world.disk("d0").as_str(), new.as_str()]);
    world.kill();
    // Only the new disk is left, and the old one belongs to nobody.
    fs::remove_file(world.disk("d0")).unwrap();
    world.start();
    assert!(world.nbd().read(0, 6 << 20) == content);
    world.post("/v1/pools", &json!({"name": "other", "disks": [old]}));
}

#[test]
fn a_disk_is_not_replaced_by_one_that_is_too_small_for_what_it_holds() {
    // Scenario: the disk to be replaced is there, then it is gone; a tiny one is refused before anything is begun, and one as
    // large as the old one is taken although nobody can ask that how much it holds.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let fixed =
        json!({"name": "f", "size_bytes": 160 << 20, "resiliency": "mirror", "provisioning": "fixed"});
    world.post("/v1/pools/tank/spaces", &fixed);
    let tiny = world.make_disk("tiny", 96 << 20);
    for verb in ["holds", "may hold"] {
        for dry_run in [true, false] {
            let request = json!({"with": tiny, "dry_run": dry_run});
            let error = world.refused("/v1/pools/tank/disks/1/replace", &request);
            let message = error["message"].as_str().unwrap();
            assert!(error["code"] == "unfit_device" && message.contains(verb), "{error}");
        }
        world.kill();
        if verb == "holds" {
            fs::remove_file(world.disk("d1")).unwrap();
        }
        world.start();
    }
    let size = fs::metadata(world.disk("d0")).unwrap().len();
    let new = world.make_disk("new", size);
    world.post("/v1/pools/tank/disks/1/replace", &json!({"with": new}));
    assert_eq!(world.last_job()["state"], "done");
}

#[test]
fn a_replacement_that_was_cut_short_goes_on_with_the_next_daemon() {
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    // All of the space, so that it takes a while.
    let content = pattern(9, 32 << 20);
    for (number, part) in content.chunks(16 << 20).enumerate() {
        world.nbd().write((number as u64) << 24, part);
    }
    let new = world.make_disk("new", 300 << 20);
    let begun = world.post("/v1/pools/tank/disks/0/replace", &json!({"with": new}));
    world.kill();
    world.start();
    let jobs = world.get("/v1/jobs")["jobs"].clone();
    let kinds: Vec<_> = jobs.as_array().unwrap().iter().map(|job| job["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["replace"], "no resync that has nothing to do");
    assert_eq!(jobs[0]["id"], begun["job"]["id"]);
    world.last_job();
    let disks = world.get("/v1/pools/tank/disks")["disks"].clone();
    let paths: Vec<&str> =
        disks.as_array().unwrap().iter().map(|disk| disk["path"].as_str().unwrap()).collect();
    assert_eq!(paths, [world.disk("d1").as_str(), new.as_str()]);
    for (number, part) in content.chunks(16 << 20).enumerate() {
        assert!(world.nbd().read((number as u64) << 24, 16 << 20) == part);
    }
}

#[test]
fn the_totals_of_a_job_stay_as_they_are_while_it_runs() {
    // Scenario: three spaces, rows of which some are full and some nearly empty; a scrub and a replacement are looked at from
    // their first row to their end.
    let world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    for name in ["n", "o"] {
        let space = json!({"name": name, "size_bytes": 16 << 20, "resiliency": "mirror", "row_bytes": 1 << 20, "provisioning": "fixed"});
        world.post("/v1/pools/tank/spaces", &space);
    }
    world.nbd().write(0, &pattern(7, 16 << 20));
    let new = world.make_disk("new", 300 << 20);
    let scrub = ("/v1/pools/tank/scrub", json!({}));
    for (path, body) in [scrub, ("/v1/pools/tank/disks/0/replace", json!({"with": new}))] {
        let id = world.post(path, &body)["job"]["id"].clone();
        let mut totals = std::collections::BTreeSet::new();
        eventually("the job ends", || {
            let job = (0..20).map(|_| world.get(&format!("/v1/jobs/{id}"))["job"].clone()).inspect(|job| {
                if job["rows_done"] != 0 || job["done_bytes"] != 0 {
                    totals
                        .insert((job["rows_total"].as_u64().unwrap(), job["total_bytes"].as_u64().unwrap()));
                }
            });
            job.last().filter(|job| job["state"] == "done")
        });
        assert_eq!(totals.len(), 1, "{path}: {totals:?}");
    }
}

#[test]
fn a_disk_that_was_replaced_is_called_what_it_is_when_it_comes_again() {
    // Scenario: a disk is away, and somebody adds it instead of taking it back in; then it is replaced while it is away, comes
    // back with its label, and is added.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    world.nbd().write(0, &pattern(5, 4 << 20));
    let (disk, away) = (world.disk("d1"), world.folder.path().join("away"));
    world.kill();
    fs::rename(&disk, &away).unwrap();
    world.start();
    fs::rename(&away, &disk).unwrap();
    let add = json!({"disks": [&disk]});
    let error = world.refused("/v1/pools/tank/disks", &add);
    let message = error["message"].as_str().unwrap();
    assert!(error["code"] == "foreign_data" && message.contains("is disk 1 of pool tank itself"), "{error}");
    assert!(message.contains("dolmen disk online tank 1"), "{error}");
    fs::rename(&disk, &away).unwrap();
    let new = world.make_disk("new", 300 << 20);
    world.post("/v1/pools/tank/disks/1/replace", &json!({"with": new}));
    assert_eq!(world.last_job()["state"], "done");
    fs::rename(&away, &disk).unwrap();
    for (path, body) in
        [("/v1/pools/tank/disks", add), ("/v1/pools/tank/disks/0/replace", json!({"with": &disk}))]
    {
        let error = world.refused(path, &body);
        let message = error["message"].as_str().unwrap();
        let reported = format!("{disk} was a disk of pool tank and has left it");
        assert!(error["code"] == "foreign_data" && message.starts_with(&reported), "{error}");
    }
    // Whoever wants it back in, or looks for it in the list, is told the same, and what to do.
    let online = format!("/v1/pools/tank/disks/{}/online", disk.replace('/', "%2F"));
    let error = world.refused(&online, &json!({}));
    assert!(error["message"].as_str().unwrap().contains("has left it"), "{error}");
    let add_it = format!("`dolmen pool add tank {disk} --destroy={disk}`");
    assert!(error["code"] == "no_such_disk" && error["hint"].as_str().unwrap().contains(&add_it), "{error}");
    world.kill();
    let mut command = world.command("state", "run");
    command.arg("--look-in").arg(&disk);
    world.begin(command);
    let listed = world.get("/v1/devices")["devices"].clone();
    let listed = listed.as_array().unwrap().iter().find(|device| device["path"] == json!(disk)).unwrap();
    assert_eq!(
        (&listed["what"], &listed["has_left"]),
        (&json!("was a disk of pool tank, and has left it"), &json!(true))
    );
    // What was listed is compared: another file of the same size under the name is not what somebody has agreed to lose.
    let body = json!({"disks": [&disk], "destroy": [&disk], "seen": [&listed["identity"]]});
    assert!(listed["identity"].is_string(), "{listed}");
    let aside = format!("{disk}.aside");
    fs::rename(&disk, &aside).unwrap();
    fs::copy(&aside, &disk).unwrap();
    let error = world.refused("/v1/pools/tank/disks", &body);
    assert!(error["code"] == "foreign_data" && error["message"].as_str().unwrap().contains("another device"));
    fs::rename(&aside, &disk).unwrap();
    let many = json!({"disks": [&disk], "destroy": [&disk], "seen": ["", ""]});
    assert_eq!(world.refused("/v1/pools/tank/disks", &many)["code"], "bad_request");
    world.post("/v1/pools/tank/disks", &body);
    assert_eq!(world.get("/v1/status")["health"], "healthy");
}

/// Tries to call a replacement off before it has ended.
const TRIES_MAX: u32 = 8;

/// Begins to replace `d0` by another disk, and calls that off before it has ended: what was begun, a dry run of calling it off, and
/// what came of it. One that has ended before is taken back, and tried again.
fn called_off(world: &World, with: &str) -> [serde_json::Value; 3] {
    let call_off = "/v1/pools/tank/disks/0/replace/cancel";
    for _ in 0..TRIES_MAX {
        let begun = world.post("/v1/pools/tank/disks/0/replace", &json!({"with": with}));
        let ask = |body: &[u8]| world.try_ask("POST", call_off, body).unwrap();
        let (asked, answer) = (ask(br#"{"dry_run": true}"#), ask(b"{}"));
        if (asked.0, answer.0) == (200, 200) {
            return [begun, asked.1, answer.1];
        }
        let code = &answer.1["error"]["code"];
        // A disk that is being removed is a member still, and its replacement cannot be called off any more.
        assert!(code == "no_such_disk" || code == "busy", "it has ended, or is about to: {}", answer.1);
        assert_eq!(world.last_job()["state"], "done");
        let disks = world.get("/v1/pools/tank/disks")["disks"].clone();
        let slot =
            disks.as_array().unwrap().iter().find(|disk| disk["path"] == with).unwrap()["slot"].clone();
        world.post(&format!("/v1/pools/tank/disks/{slot}/replace"), &json!({"with": world.disk("d0")}));
        assert_eq!(world.last_job()["state"], "done");
    }
    panic!("each replacement ended before it was called off");
}

#[test]
fn a_replacement_is_called_off_while_it_runs_and_with_the_next_daemon() {
    // Scenario: the wrong disk was named. Called off while everything is being moved, and killed on the way back: the disks
    // are those from before, nothing is lost, and the disk that was named belongs to nobody.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let content = pattern(9, 32 << 20);
    for (number, part) in content.chunks(16 << 20).enumerate() {
        world.nbd().write((number as u64) << 24, part);
    }
    let wrong = world.make_disk("wrong", 300 << 20);
    let call_off = "/v1/pools/tank/disks/0/replace/cancel";
    assert_eq!(world.refused(call_off, &json!({}))["code"], "bad_request", "nothing is being replaced");
    let [begun, asked, answer] = called_off(&world, &wrong);
    assert!(asked["plan"]["steps"].to_string().contains(&format!("evict {wrong}")), "{asked}");
    assert_eq!(answer["job"]["subject"], format!("{wrong} by {}", world.disk("d0")), "{answer}");
    world.kill();
    world.start();
    let job = world.last_job();
    assert_eq!((&job["state"], &job["subject"]), (&json!("done"), &answer["job"]["subject"]), "{job}");
    let paths = |world: &World| {
        let disks = world.get("/v1/pools/tank/disks")["disks"].clone();
        let path = |disk: &serde_json::Value| disk["path"].as_str().unwrap().to_owned();
        disks.as_array().unwrap().iter().map(path).collect::<Vec<_>>()
    };
    assert_eq!(paths(&world), [world.disk("d0"), world.disk("d1")]);
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    // Again, without a kill: the job that was running says that it is wanted no more.
    let [again, ..] = called_off(&world, &wrong);
    assert_eq!(again["plan"], begun["plan"], "all is as it was before");
    assert_eq!(world.last_job()["state"], "done");
    let first = world.get(&format!("/v1/jobs/{}", again["job"]["id"]))["job"].clone();
    assert!(first["result"].as_str().unwrap().contains("is not replaced by"), "{first}");
    assert_eq!(paths(&world), [world.disk("d0"), world.disk("d1")]);
    world.kill();
    fs::remove_file(world.disk("d1")).unwrap();
    world.start();
    for (number, part) in content.chunks(16 << 20).enumerate() {
        assert!(world.nbd().read((number as u64) << 24, 16 << 20) == part);
    }
    world.post("/v1/pools", &json!({"name": "other", "disks": [wrong]}));
}

#[test]
fn a_replacement_of_an_absent_disk_is_not_called_off() {
    // Scenario: what the new disk has is the second copy of everything; called off, there would be one.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let simple = json!({"name": "s", "size_bytes": 16 << 20, "resiliency": "simple", "row_bytes": 1 << 20, "provisioning": "fixed"});
    world.post("/v1/pools/tank/spaces", &simple);
    world.nbd().write(0, &pattern(3, 4 << 20));
    world.kill();
    fs::rename(world.disk("d1"), world.folder.path().join("away")).unwrap();
    world.start();
    let new = world.make_disk("new", 300 << 20);
    world.post("/v1/pools/tank/disks/1/replace", &json!({"with": new}));
    assert_eq!(world.last_job()["state"], "waiting");
    for named in ["1", "2"] {
        let error = world.refused(&format!("/v1/pools/tank/disks/{named}/replace/cancel"), &json!({}));
        let hint = error["hint"].as_str().unwrap();
        assert!(error["code"] == "no_such_device" && hint.contains("dolmen disk online"), "{error}");
    }
    // It is back: now there is a way.
    fs::rename(world.folder.path().join("away"), world.disk("d1")).unwrap();
    let request = json!({"path": world.disk("d1")});
    world.post("/v1/pools/tank/disks/1/online", &request);
    eventually("the replacement ends", || Some(world.last_job()).filter(|job| job["state"] == "done"));
}

#[test]
fn a_simple_space_keeps_no_mirror_from_being_repaired() {
    // Scenario: a disk is gone with a part of a simple space, and is replaced. The mirror is whole again, the job names what
    // is left, and asked for again it goes on: in vain while the simple space is there; and to its end, without a word from
    // anybody, when it was deleted.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let content = pattern(3, 4 << 20);
    world.nbd().write(0, &content);
    world.nbd().flush();
    let simple = json!({"name": "s", "size_bytes": 16 << 20, "resiliency": "simple", "row_bytes": 1 << 20, "provisioning": "fixed"});
    world.post("/v1/pools/tank/spaces", &simple);
    world.kill();
    fs::remove_file(world.disk("d1")).unwrap();
    world.start();
    let new = world.make_disk("new", 300 << 20);
    let asked = world.post("/v1/pools/tank/disks/1/replace", &json!({"with": new, "dry_run": true}));
    let steps = asked["plan"]["steps"].to_string();
    assert!(steps.contains("alone holds of s waits") && !steps.contains("move everything"), "{steps}");
    let request = json!({"with": new});
    world.post("/v1/pools/tank/disks/1/replace", &request);
    let job = world.last_job();
    let result = job["result"].as_str().unwrap();
    assert!(job["state"] == "waiting" && result.contains("the rest, of s, waits for"), "{job}");
    assert_eq!(job["waits_for"], world.disk("d1").as_str(), "it is called by the path that it had: {job}");
    let health = world.get("/v1/pools/tank/spaces/m")["space"]["health"].clone();
    assert_eq!(health, "healthy", "the mirror is whole, whatever waits for the disk");
    let status = world.get("/v1/status");
    let why = status["why"].as_array().unwrap();
    assert!(why[0].as_str().unwrap().contains("parts of space tank/s may be out of reach"), "{why:?}");
    let text = status["why"].to_string();
    assert!(
        !text.contains("tank/m") && text.contains("the parts of tank/s that the old one alone holds"),
        "{text}"
    );
    assert!(status["todo"].to_string().contains("or delete tank/s for good; its replacement"), "{status}");
    let other = world.make_disk("other", 300 << 20);
    let error = world.refused("/v1/pools/tank/disks/1/replace", &json!({"with": other}));
    assert!(error["code"] == "busy" && error["hint"].to_string().contains(&new), "{error}");
    world.post("/v1/pools/tank/disks/1/replace", &request);
    let again = world.last_job();
    assert_eq!((&again["state"], &again["id"]), (&json!("waiting"), &job["id"]), "it is one job, {again}");
    world.post("/v1/pools/tank/spaces/s/delete", &json!({"purge": true, "destroy": "s"}));
    let job = eventually("the replacement goes on", || {
        let job = world.get(&format!("/v1/jobs/{}", job["id"]))["job"].clone();
        Some(job).filter(|job| job["state"] == "done")
    });
    assert!(job["result"].as_str().unwrap().contains("has taken the place of"), "{job}");
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    assert!(world.nbd().read(0, 4 << 20) == content);
}

#[test]
fn an_exported_pool_is_let_go_of_and_imported_again() {
    let world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    let mut client = world.nbd();
    client.write(0, &pattern(6, 1 << 20));
    let error = world.refused("/v1/pools/tank/export", &json!({}));
    assert_eq!(error["code"], "busy", "a client has a space open");
    drop(client);
    eventually("the client is seen to be gone", || {
        world.get("/v1/exports")["exports"][0]["client_count"].as_u64().filter(|count| *count == 0)
    });
    world.post("/v1/pools/tank/export", &json!({}));
    assert_eq!(world.get("/v1/pools")["pools"], json!([]));
    let folder = world.folder.path().join("disks");
    world.post("/v1/pools/import", &json!({"pool": "tank", "paths": [folder]}));
    world.post("/v1/pools/tank/spaces/m/serve", &json!({}));
    assert!(world.nbd().read(0, 1 << 20) == pattern(6, 1 << 20));
}

#[test]
fn the_pool_that_is_imported_is_the_one_whose_disk_is_named() {
    // Scenario: disks of two pools of one name lie side by side, and a file that is of none.
    let world = World::new(5);
    let disk = |name: &str| world.folder.path().join("disks").join(name);
    let identity = || world.get("/v1/pools/tank")["pool"]["id"].clone();
    let mut ids = Vec::new();
    for disks in [["d0", "d1"], ["d2", "d3"]] {
        let paths: Vec<_> = disks.iter().map(|name| disk(name)).collect();
        world.post("/v1/pools", &json!({"name": "tank", "disks": paths}));
        ids.push(identity());
        world.post("/v1/pools/tank/export", &json!({}));
    }
    assert_ne!(ids[0], ids[1]);
    let error = world.refused("/v1/pools/import", &json!({"paths": [world.folder.path().join("disks")]}));
    let message = error["message"].as_str().unwrap();
    assert!(ids.iter().all(|id| message.contains(&format!("tank ({})", id.as_str().unwrap()))), "{message}");
    let error = world.refused("/v1/pools/import", &json!({"paths": [disk("d4")]}));
    assert_eq!(error["code"], "no_such_pool");
    assert!(error["hint"].as_str().unwrap().contains(ids[1].as_str().unwrap()), "{error}");
    for (name, id) in ["d3", "d0"].iter().zip(ids.iter().rev()) {
        let change = world.post("/v1/pools/import", &json!({"paths": [disk(name)]}));
        assert_eq!(change["warnings"], json!([]));
        assert_eq!(identity(), *id, "{name} is of the other pool");
        assert_eq!(world.get("/v1/pools/tank")["pool"]["health"], "healthy", "its other disk was found too");
        world.post("/v1/pools/tank/export", &json!({}));
    }
}

#[test]
fn a_daemon_has_as_many_pools_as_it_says_and_refuses_the_next() {
    // Scenario: pools are made until one is refused. All of them are served, disks can be looked at beside them, and when one is
    // gone another can be made.
    let mut world = World::new(18);
    let folder = world.folder.path().join("disks");
    let disk = |number: usize| folder.join(format!("d{number}"));
    let request = |number: usize| json!({"name": format!("p{number}"), "disks": [disk(number)]});
    for number in 0..16 {
        world.post("/v1/pools", &request(number));
    }
    let error = world.refused("/v1/pools", &request(16));
    assert_eq!(error["code"], "busy");
    assert!(error["message"].as_str().unwrap().contains("16 pools"), "{error}");
    assert_eq!(world.get("/v1/pools")["pools"].as_array().unwrap().len(), 16);
    world.post("/v1/pools/p3/export", &json!({}));
    world.post("/v1/pools", &request(16));
    let error = world.refused("/v1/pools/import", &json!({"paths": [disk(3)]}));
    assert_eq!(error["code"], "busy");
    world.kill();
    world.start();
    let pools = world.get("/v1/pools");
    let is_open = |pool: &serde_json::Value| pool["state"] == "writable";
    assert_eq!(pools["pools"].as_array().unwrap().iter().filter(|pool| is_open(pool)).count(), 16, "{pools}");
}

#[test]
fn a_change_that_waits_for_an_export_does_nothing() {
    // Scenario: a pool is exported while others ask to serve a space of it, some of them before and some behind, so often that
    // some have waited for it. Whatever they were told, a pool that was given up is given up: the next daemon does not open it.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    world.post("/v1/pools/tank/spaces/m/unserve", &json!({}));
    let folder = world.folder.path().join("disks");
    let (mut refused, mut rounds) = (0, 0);
    while rounds < 8 || (refused == 0 && rounds < 80) {
        rounds += 1;
        std::thread::scope(|scope| {
            let serve = || world.try_ask("POST", "/v1/pools/tank/spaces/m/serve", b"{}").unwrap();
            let exported = scope.spawn(|| world.try_ask("POST", "/v1/pools/tank/export", b"{}").unwrap());
            let served: Vec<_> = (0..12).map(|_| scope.spawn(serve)).collect();
            let (status, answer) = exported.join().unwrap();
            assert_eq!(status, 200, "{answer}");
            let answers = served.into_iter().map(|served| served.join().unwrap());
            refused += answers.filter(|(_, answer)| answer["error"]["code"] == "busy").count();
        });
        world.kill();
        world.start();
        assert_eq!(world.get("/v1/pools")["pools"], json!([]), "the pool is on record here again");
        world.post("/v1/pools/import", &json!({"pool": "tank", "paths": [folder]}));
    }
    assert!(refused > 0, "nobody waited behind an export");
}

#[test]
fn a_disk_whose_labels_are_damaged_is_named_by_the_import() {
    // Scenario: a bit turns in one copy of a disk's labels, which nobody has to hear of; then in all of them. The pool opens
    // without that disk, and the import says of which file that is so, and why; so does its dry run.
    let world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    let folder = world.folder.path().join("disks");
    let import = |dry_run: bool| json!({"pool": "tank", "paths": [folder], "dry_run": dry_run});
    let labels = [64 << 10, 128 << 10, 255 << 20, (255 << 20) + (64 << 10)];
    for (count, is_reported) in [(1, false), (4, true)] {
        world.post("/v1/pools/tank/export", &json!({}));
        let disk = fs::OpenOptions::new().read(true).write(true).open(world.disk("d1")).unwrap();
        for at in &labels[..count] {
            let mut byte = [0];
            disk.read_exact_at(&mut byte, at + 300).unwrap();
            disk.write_all_at(&[byte[0] ^ 4], at + 300).unwrap();
        }
        for dry_run in [true, false] {
            let warnings = world.post("/v1/pools/import", &import(dry_run))["warnings"].to_string();
            let reported =
                format!("{} has labels of a pool, and is left out: the label at byte", world.disk("d1"));
            assert_eq!(warnings.contains(&reported), is_reported, "{count} labels: {warnings}");
        }
    }
}

#[test]
fn a_pool_whose_making_was_cut_short_is_there_or_can_be_made_again() {
    // Scenario: killed as soon as the first of many labels is there, and then after each further one. The next daemon has
    // opened the pool, or the same command makes it, without a word about what the disks hold.
    const DISKS: usize = 20;
    let (mut was_there, mut was_made) = (0, 0);
    for labels in [1, 1, 8, DISKS, DISKS] {
        let mut world = World::new(0);
        let disks: Vec<String> =
            (0..DISKS).map(|index| world.make_disk(&format!("d{index}"), 64 << 20)).collect();
        let request = json!({"name": "tank", "disks": disks});
        std::thread::scope(|scope| {
            // Nobody answers when it is killed.
            scope.spawn(|| world.try_ask("POST", "/v1/pools", request.to_string().as_bytes()));
            let is_time = || disks.iter().filter(|disk| has_label(disk)).count() >= labels;
            assert!((0..LOOKS_MAX).any(|_| is_time()), "no pool comes to be");
            kill_process(Pid::from_raw(world.pid().cast_signed()).unwrap(), Signal::KILL).unwrap();
        });
        world.kill();
        let before = disks.iter().filter(|disk| has_label(disk)).count();
        world.start();
        let pools = world.get("/v1/pools")["pools"].clone();
        if pools == json!([]) {
            was_made += 1;
            assert!(before < DISKS, "all labels were there");
            world.post("/v1/pools", &request);
        } else {
            was_there += 1;
        }
        let status = world.get("/v1/status");
        assert_eq!(
            (&status["health"], &status["pools"][0]["state"]),
            (&json!("healthy"), &json!("writable")),
            "{status}"
        );
        assert_eq!(status["pools"][0]["disks"].as_array().unwrap().len(), DISKS);
    }
    assert!(was_there > 0 && was_made > 0, "there: {was_there}, made again: {was_made}");
}

/// Whether a disk carries a label.
fn has_label(path: &str) -> bool {
    let mut first = [0; 8];
    fs::File::open(path).unwrap().read_exact_at(&mut first, LABEL_AT).unwrap();
    first != [0; 8]
}

#[test]
fn only_the_right_name_destroys_and_then_the_disks_are_free() {
    let world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    // Served, although nobody is connected: somebody's machine may be off.
    for body in [json!({"destroy": "tank"}), json!({"dry_run": true})] {
        let error = world.refused("/v1/pools/tank/destroy", &body);
        assert!(
            error["code"] == "busy" && error["message"].to_string().contains("tank/m is served"),
            "{error}"
        );
        assert!(error["hint"].to_string().contains("dolmen unserve tank/m"), "{error}");
    }
    world.post("/v1/pools/tank/spaces/m/unserve", &json!({}));
    for wrong in [json!({}), json!({"destroy": "tan"}), json!({"destroy": ""})] {
        assert_eq!(world.refused("/v1/pools/tank/destroy", &wrong)["code"], "needs_confirmation");
        let mut purge = wrong;
        purge["purge"] = json!(true);
        assert_eq!(world.refused("/v1/pools/tank/spaces/m/delete", &purge)["code"], "needs_confirmation");
    }
    world.post("/v1/pools/tank/spaces/m/delete", &json!({"purge": true, "destroy": "tank/m"}));
    assert_eq!(world.get("/v1/spaces")["spaces"], json!([]));
    world.post("/v1/pools/tank/destroy", &json!({"destroy": "tank"}));
    world.post("/v1/pools", &json!({"name": "again", "disks": [world.disk("d0"), world.disk("d1")]}));
}

#[test]
fn a_second_daemon_reports_the_first() {
    // Scenario: the same state; the same socket with another state. Both end with the code for "busy", and the first
    // goes on.
    let world = World::new(0);
    let pid = format!("(pid {})", world.pid());
    let same_state = world.command("state", "other-run").output().unwrap();
    assert_eq!(same_state.status.code(), Some(75));
    assert!(String::from_utf8_lossy(&same_state.stderr).contains(&pid));
    let mut command = world.command("other-state", "third-run");
    let same_socket = command.arg("--socket").arg(world.socket()).output().unwrap();
    assert_eq!(same_socket.status.code(), Some(75));
    world.get("/v1/status");
}

#[test]
fn a_daemon_waits_for_the_end_of_the_one_before() {
    // Scenario: the second is started while the first is there, and says that it waits; then the first is killed. The second
    // has the pool and serves it.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    world.nbd().write(0, &pattern(4, 1 << 20));
    let mut next = world.command("state", "run");
    let mut next = next.env("DOLMEN_LOG", "info").stderr(Stdio::piped()).spawn().unwrap();
    let mut stated = BufReader::new(next.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("waiting for its end") {
        line.clear();
        assert!(stated.read_line(&mut line).unwrap() > 0, "it has ended instead");
    }
    assert!(line.contains(&world.pid().to_string()), "{line}");
    world.replace(next);
    eventually("the next one answers", || {
        let (status, body) = world.try_ask("GET", "/v1/status", b"")?;
        (status == 200 && body["health"] == "healthy").then_some(())
    });
    assert!(world.nbd().read(0, 1 << 20) == pattern(4, 1 << 20));
    // Until here it has somebody to tell what it does.
    drop(stated);
}

#[test]
fn a_pool_that_is_open_elsewhere_is_not_touched() {
    // Scenario: two daemons with state of their own; the second may neither make nor import a pool of the first's disks.
    let first = World::new(2);
    first.make_tank(&["d0", "d1"]);
    let second = World::new(0);
    let disk = first.disk("d0");
    assert_eq!(second.refused("/v1/pools", &json!({"name": "x", "disks": [disk]}))["code"], "device_in_use");
    let import = json!({"paths": [first.folder.path().join("disks")], "mode": "confirmed"});
    assert_eq!(second.refused("/v1/pools/import", &import)["code"], "device_in_use");
    first.nbd().write(0, &pattern(7, 1 << 20));
}

#[test]
fn a_pool_of_which_another_holds_a_disk_is_not_opened_without_it() {
    // Scenario: one of two disks is in the hands of another daemon, which took it while this one was away.
    let mut first = World::new(2);
    first.make_tank(&["d0", "d1"]);
    first.kill();
    let second = World::new(0);
    let import = json!({"paths": [first.folder.path().join("disks")]});
    second.post("/v1/pools/import", &import);
    first.start();
    let pool = first.get("/v1/pools")["pools"][0].clone();
    assert_eq!(pool["state"], "closed", "{pool}");
    assert!(pool["state_cause"].as_str().unwrap().contains("in other hands on this host"), "{pool}");
    second.post("/v1/pools/tank/spaces/m/serve", &json!({}));
    second.nbd().write(0, &pattern(7, 1 << 20));
    // It need not wait for ever.
    first.post("/v1/pools/tank/export", &json!({}));
    assert_eq!(first.get("/v1/pools")["pools"], json!([]));
}

#[test]
fn a_pool_waits_for_a_disk_whose_last_owner_is_ending() {
    // Scenario: the process that took the lock of a disk is dead, and the lock lasts a little longer than it, as it does while
    // commands of it are under way.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    world.kill();
    let hold = "exec 9<>\"$1\"; flock 9; echo held; exec sleep 1";
    let mut holder = Command::new("sh");
    holder.args(["-c", hold, "sh"]).arg(world.disk("d1")).stdout(Stdio::piped());
    let mut holder = holder.spawn().unwrap();
    let mut stated = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut stated).unwrap();
    assert_eq!(stated, "held\n");
    world.start();
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    assert!(holder.wait().unwrap().success());
}

#[test]
fn a_copy_of_a_disk_is_not_destroyed_with_the_pool() {
    // Scenario: somebody copies a disk and then destroys the pool; the daemon is killed before the first label goes. The next
    // one ends it: the disks are free, and the copy is as it was.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    world.kill();
    let pools = world.folder.path().join("state/pools");
    let record = fs::read_dir(pools).unwrap().next().unwrap().unwrap().path();
    let mut remembered: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    remembered["is_being_destroyed"] = json!(true);
    fs::write(&record, remembered.to_string()).unwrap();
    fs::copy(world.disk("d1"), world.disk("copy")).unwrap();
    let before = fs::read(world.disk("copy")).unwrap();
    world.start();
    assert_eq!(world.get("/v1/pools")["pools"], json!([]));
    assert!(fs::read(world.disk("copy")).unwrap() == before, "the copy was changed");
    world.post("/v1/pools", &json!({"name": "again", "disks": [world.disk("d0"), world.disk("d1")]}));
}

#[test]
fn what_is_open_for_reading_only_is_neither_destroyed_nor_offered_for_writing() {
    let world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    world.nbd().write(0, &pattern(8, 1 << 20));
    eventually("the client is seen to be gone", || {
        world.get("/v1/exports")["exports"][0]["client_count"].as_u64().filter(|count| *count == 0)
    });
    world.post("/v1/pools/tank/export", &json!({}));
    let folder = world.folder.path().join("disks");
    world.post("/v1/pools/import", &json!({"paths": [folder], "mode": "read"}));
    assert_eq!(world.refused("/v1/pools/tank/destroy", &json!({"destroy": "tank"}))["code"], "read_only");
    assert_eq!(
        world.refused("/v1/pools/tank/spaces/m/delete", &json!({"purge": true, "destroy": "m"}))["code"],
        "read_only"
    );
    let export = world.post("/v1/pools/tank/spaces/m/serve", &json!({}));
    assert_eq!(export["export"]["is_read_only"], true, "{export}");
    assert!(world.nbd().read(0, 1 << 20) == pattern(8, 1 << 20));
}

#[test]
fn a_thin_space_at_the_end_of_its_pool_is_reported() {
    let world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    assert_eq!(world.get("/v1/status")["health"], "healthy");
    let fits = world.get("/v1/pools/tank/df")["fits"].as_array().unwrap().clone();
    let mirror = fits.iter().find(|fits| fits["resiliency"] == "mirror" && fits["copies"] == 2).unwrap();
    let claim = |number: u64, size: u64| {
        let (name, fixed) = (format!("rest{number}"), "fixed");
        let space = json!({"name": name, "size_bytes": size, "resiliency": "mirror", "provisioning": fixed,
            "row_bytes": 1 << 20});
        world.try_ask("POST", "/v1/pools/tank/spaces", &serde_json::to_vec(&space).unwrap()).unwrap()
    };
    assert_eq!(claim(0, mirror["usable_bytes"].as_u64().unwrap()).0, 200);
    let refused = (1..64).map(|number| claim(number, 1 << 20)).find(|(status, _)| *status != 200);
    assert_eq!(refused.unwrap().1["error"]["code"], "bad_size");
    let status = world.get("/v1/status");
    assert_eq!(status["health"], "warning", "{status}");
    // Whether the pool is called full before or behind that depends on when its fill was looked at.
    let set_answer = |list: &str, words: &str| {
        status[list].as_array().unwrap().iter().any(|one| one.as_str().unwrap().contains(words))
    };
    assert!(set_answer("why", "tank/m has met the end of pool tank"), "{status}");
    assert!(set_answer("todo", "add a disk to pool tank"), "{status}");
    world.post("/v1/pools/tank/spaces/rest0/delete", &json!({"purge": true, "destroy": "tank/rest0"}));
    assert_eq!(world.get("/v1/status")["health"], "healthy");
}

/// Scenario: all that can be asked of a pool is asked, again and again, while clients claim rows of two kinds of spaces; then what a
/// dry run says of room that stays as it is. No pool is filled on paper on the engine's thread, where clients would wait for that.
#[test]
fn no_question_is_computed_where_clients_would_wait_for_it() {
    let world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    let other = json!({"name": "p", "size_bytes": 64 << 20, "resiliency": "parity", "parity": 1});
    world.post("/v1/pools/tank/spaces", &other);
    let mut client = world.nbd();
    let fillings = || world.get("/v1/counters")["fillings"].as_u64().unwrap();
    let before = fillings();
    for round in 0..6 {
        client.write(round << 20, &pattern(3, 1 << 20));
        for path in [
            "status",
            "pools",
            "pools/tank",
            "pools/tank/df",
            "pools/tank/disks",
            "pools/tank/spaces",
            "spaces",
            "events",
            "jobs",
            "devices",
            "trash",
            "why/tank",
            "why/tank%2Fm",
            "exports",
        ] {
            world.get(&format!("/v1/{path}"));
        }
        world.post("/v1/pools/tank/scrub", &json!({"dry_run": true}));
        assert_eq!(fillings(), before, "in round {round}");
    }
}

#[test]
fn discards_give_room_back() {
    let world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let mut client = world.nbd();
    client.write(0, &pattern(8, 4 << 20));
    client.flush();
    let used = || world.get("/v1/pools/tank/df")["used_bytes"].as_u64().unwrap();
    assert!(used() >= 8 << 20);
    client.trim(0, 4 << 20);
    client.flush();
    assert_eq!(used(), 0);
}

#[test]
fn a_mirror_takes_new_rows_on_the_disks_that_are_left() {
    // Scenario: of three disks two are gone. A thin mirror still takes new rows; a space that is striped over three takes none,
    // and what is said of it names the disks. They come back and get what they missed, and then the third may go.
    let mut world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    let wide = json!({"name": "wide", "size_bytes": 32 << 20, "resiliency": "simple", "columns": 3});
    world.post("/v1/pools/tank/spaces", &wide);
    world.kill();
    let away = |name| world.folder.path().join(name).with_extension("away");
    let (first, second) = (away("d1"), away("d2"));
    fs::rename(world.disk("d1"), &first).unwrap();
    fs::rename(world.disk("d2"), &second).unwrap();
    world.start();
    let status = world.get("/v1/status").to_string();
    assert!(status.contains("tank/wide needs more disks than pool tank has in use"), "{status}");
    assert!(!status.contains("tank/m needs more disks"), "{status}");
    assert!(!status.contains("purge or trim"), "{status}");
    let content = pattern(9, 1 << 20);
    let mut client = world.nbd();
    client.write(20 << 20, &content);
    client.flush();
    world.kill();
    fs::rename(&first, world.disk("d1")).unwrap();
    fs::rename(&second, world.disk("d2")).unwrap();
    world.start();
    let job = world.last_job();
    assert!(job["result"].as_str().unwrap().contains("brought up to date, 256 blocks copied"), "{job}");
    world.kill();
    fs::remove_file(world.disk("d0")).unwrap();
    world.start();
    assert_eq!(world.nbd().read(20 << 20, 1 << 20), content);
}

#[test]
fn a_scrub_says_what_it_has_healed() {
    // Scenario: a bit of one copy turns while the daemon is down. The first scrub heals it and says so, the next finds nothing.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let content = pattern(7, 1 << 20);
    let mut client = world.nbd();
    client.write(0, &content);
    client.flush();
    world.kill();
    let mut image = fs::read(world.disk("d0")).unwrap();
    let at = image.windows(4096).step_by(4096).position(|block| block == &content[..4096]).unwrap() * 4096;
    image[at + 100] ^= 1;
    fs::write(world.disk("d0"), image).unwrap();
    world.start();
    for stated in ["1 copy of a block healed; all sound now", "blocks verified, all sound"] {
        world.post("/v1/pools/tank/scrub", &json!({}));
        let job = world.last_job();
        assert!(job["result"].as_str().unwrap().ends_with(stated), "{job}");
    }
}

#[test]
fn healed_errors_are_a_warning_until_somebody_has_seen_them() {
    // Scenario: bits of one copy turn, twice, and are healed. The warning says what to do; acknowledged, it ends, and the
    // counters stay. The second time there is a warning again, of what is new.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let content = pattern(7, 1 << 20);
    let mut client = world.nbd();
    client.write(0, &content);
    client.flush();
    drop(client);
    world.kill();
    let image = fs::read(world.disk("d0")).unwrap();
    let at =
        image.windows(4096).step_by(4096).position(|block| block == &content[..4096]).unwrap() as u64 * 4096;
    world.start();
    let acknowledge = "/v1/pools/tank/acknowledge";
    assert_eq!(world.post(acknowledge, &json!({}))["is_changed"], false, "there is nothing to acknowledge");
    for (round, turned) in [vec![at + 100], vec![at + 4096, at + 8192]].iter().enumerate() {
        let disk = fs::OpenOptions::new().read(true).write(true).open(world.disk("d0")).unwrap();
        for at in turned {
            let mut byte = [0];
            disk.read_exact_at(&mut byte, *at).unwrap();
            disk.write_all_at(&[byte[0] ^ 1], *at).unwrap();
        }
        disk.sync_all().unwrap();
        world.post("/v1/pools/tank/scrub", &json!({}));
        assert_eq!(world.last_job()["state"], "done");
        let status = world.get("/v1/status");
        let reported =
            ["0 failed reads, 0 failed writes, 1 damaged block\"", "0 failed writes, 2 damaged blocks"]
                [round];
        let reported = reported.trim_end_matches('"');
        assert!(status["why"].to_string().contains(reported), "{status}");
        assert!(status["todo"].to_string().contains("dolmen pool acknowledge tank"), "{status}");
        assert_eq!(world.post(acknowledge, &json!({"dry_run": true}))["is_changed"], false);
        assert_eq!(world.get("/v1/status")["health"], "warning");
        assert!(world.post(acknowledge, &json!({}))["message"].to_string().contains(reported));
        let status = world.get("/v1/status");
        assert_eq!((&status["health"], &status["todo"]), (&json!("healthy"), &json!([])), "{status}");
        let disks = world.get("/v1/pools/tank/disks")["disks"].clone();
        assert_eq!(disks[0]["checksum_errors"], [1, 3][round], "what was counted stays");
    }
}

#[test]
fn the_status_says_which_copy_of_a_disk_has_to_go() {
    // Scenario: a copy of a disk lies beside it when the daemon begins again: the pool is not open, and what to do names the
    // copy alone; once it is away, the pool is imported.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    world.post("/v1/shutdown", &json!({}));
    assert!(world.ended().success());
    fs::copy(world.disk("d1"), world.disk("a-copy")).unwrap();
    world.start();
    let status = world.get("/v1/status");
    let todo = status["todo"][0].as_str().unwrap_or_default();
    assert!(todo.contains(&world.disk("a-copy")) && !todo.contains(&world.disk("d1")), "{status}");
    fs::remove_file(world.disk("a-copy")).unwrap();
    world.post("/v1/pools/import", &json!({"pool": "tank"}));
    assert_eq!(world.get("/v1/status")["health"], "healthy");
}

/// Scenario: somebody uses a space over NBD. What the end of the daemon would do names them, and nothing is done.
#[test]
fn attachments_that_end_with_the_daemon_are_announced() {
    let world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let mut client = world.nbd();
    let planned = world.post("/v1/shutdown", &json!({"dry_run": true}));
    let steps = planned["plan"]["steps"].to_string();
    assert!(steps.contains("cut off 1 NBD client of tank/m over NBD"), "{steps}");
    assert_eq!(client.read(0, 4096), [0; 4096]);
}
