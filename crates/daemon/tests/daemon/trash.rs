//! Deleted spaces: in the trash, restored, purged by people and by themselves (docs/design/0018).

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Nbd, World, eventually, pattern};
use crate::jobs::{ended, expect, full};

const SPACES: &str = "/v1/pools/tank/spaces";
const TRASH: &str = "/v1/pools/tank/trash";
const PURGE: &str = "/v1/pools/tank/trash/purge";

fn delete(world: &World, name: &str) -> Value {
    let _ = world.post(&format!("{SPACES}/{name}/unserve"), &json!({}));
    world.post(&format!("{SPACES}/{name}/delete"), &json!({}))
}

fn purge_now(name: &str) -> Value {
    json!({"purge": true, "destroy": name})
}

fn trash(world: &World) -> Vec<Value> {
    world.get(TRASH)["spaces"].as_array().unwrap().clone()
}

fn make(world: &World, name: &str) {
    let space = json!({"name": name, "size_bytes": 8 << 20, "resiliency": "mirror", "row_bytes": 1 << 20});
    world.post(SPACES, &space);
}

fn names(world: &World) -> Vec<String> {
    let spaces = world.get(SPACES)["spaces"].clone();
    spaces.as_array().unwrap().iter().map(|space| space["name"].as_str().unwrap().to_owned()).collect()
}

fn used(world: &World) -> u64 {
    world.get("/v1/pools/tank/df")["used_bytes"].as_u64().unwrap()
}

fn is_reported(world: &World, code: &str) {
    eventually("it is told", || {
        let events = world.get("/v1/events")["events"].clone();
        events.as_array().unwrap().iter().any(|event| event["code"] == code).then_some(())
    });
}

/// Scenario: a full space is deleted, its name given to another one, and the daemon killed. It is in the trash all the while, with its
/// room, is not restored under a name that is another's, and is back with every byte under a new one, which a kill does not change.
#[test]
fn a_deleted_space_is_restored_with_every_byte_over_kills() {
    let mut world = full(&["d0", "d1"]);
    let before = used(&world);
    let deleted = delete(&world, "m");
    assert_eq!((&deleted["is_changed"], &deleted["job"]), (&json!(true), &Value::Null), "{deleted}");
    make(&world, "m");
    world.kill();
    world.start();
    let found = trash(&world);
    let one = &found[0];
    assert_eq!((found.len(), &one["name"], &one["can_be_restored"]), (1, &json!("m"), &json!(true)), "{one}");
    assert_eq!((used(&world), one["footprint_bytes"].as_u64().unwrap()), (before, before));
    assert!(one["stays_s"].as_u64().unwrap() > 6 * 86_400, "{one}");
    assert_eq!(names(&world), ["m"]);
    let (df, pool) = (world.get("/v1/pools/tank/df"), world.get("/v1/pools/tank")["pool"].clone());
    assert_eq!(df["trash_bytes"], one["footprint_bytes"]);
    assert_eq!((&pool["trash_count"], &pool["trash_bytes"]), (&json!(1), &one["footprint_bytes"]));
    is_reported(&world, "space_trashed");
    let undo = deleted["plan"]["undo"].as_str().unwrap();
    assert_eq!(undo, format!("dolmen trash restore tank/{}", one["id"]));
    let refused = world.refused(&format!("{TRASH}/m/restore"), &json!({}));
    assert_eq!(refused["code"], "name_taken");
    assert!(refused["hint"].as_str().unwrap().contains("--as NAME"), "{refused}");
    let restore = format!("{TRASH}/{}/restore", one["id"]);
    let restored = world.post(&restore, &json!({"name": "back"}));
    assert_eq!(restored["space"]["name"], "back");
    is_reported(&world, "space_restored");
    world.kill();
    world.start();
    assert_eq!((names(&world), trash(&world).len()), (vec!["back".to_owned(), "m".to_owned()], 0));
    delete(&world, "m");
    world.post(&format!("{SPACES}/back/rename"), &json!({"name": "m"}));
    world.post(&format!("{SPACES}/m/serve"), &json!({}));
    expect(&world);
}

/// Scenario: spaces are purged: one by its name, two of one name by their numbers, all by the name of the pool, and one that was not
/// in the trash. Nothing is without what has to be typed; all room is back; what was purged cannot be restored.
#[test]
fn a_purged_space_is_deleted_and_its_room_is_free() {
    let world = full(&["d0", "d1"]);
    delete(&world, "m");
    for _ in 0..2 {
        make(&world, "twin");
        delete(&world, "twin");
    }
    make(&world, "last");
    let twins: Vec<String> = trash(&world).iter().skip(1).map(|one| one["id"].to_string()).collect();
    // What begins and ends between two looks of the daemon is no event.
    is_reported(&world, "space_trashed");
    let one = json!({"spaces": ["m"]});
    let all = json!({"all": true});
    for (body, typed) in [(&one, None), (&one, Some("tank")), (&all, None), (&all, Some("m"))] {
        let mut body = body.clone();
        body["destroy"] = json!(typed);
        assert_eq!(world.refused(PURGE, &body)["code"], "needs_confirmation", "{body}");
    }
    let refused = world.refused(&format!("{SPACES}/last/delete"), &json!({"purge": true}));
    assert_eq!(refused["code"], "needs_confirmation");
    assert_eq!((trash(&world).len(), names(&world)), (3, vec!["last".to_owned()]));
    let ambiguous = world.refused(&format!("{TRASH}/twin/restore"), &json!({}));
    assert!(twins.iter().all(|twin| ambiguous["hint"].as_str().unwrap().contains(twin)), "{ambiguous}");
    let ambiguous = world.refused(PURGE, &json!({"spaces": ["twin"], "dry_run": true}));
    let command = format!("`dolmen trash purge tank/{} --destroy=tank/twin`", twins[1]);
    assert!(ambiguous["hint"].as_str().unwrap().contains(&command), "{ambiguous}");
    // A number says which one is meant, and is no name; a dry run judges what is typed as it would be without.
    for typed in [twins[0].clone(), format!("tank/{}", twins[0]), "m".to_owned()] {
        for dry_run in [true, false] {
            let body = json!({"spaces": [twins[0]], "destroy": typed, "dry_run": dry_run});
            assert_eq!(world.refused(PURGE, &body)["code"], "needs_confirmation", "{body}");
        }
    }
    world.post(PURGE, &json!({"spaces": [twins[0]], "destroy": "tank/twin", "dry_run": true}));
    assert_eq!(trash(&world).len(), 3);
    let purged = world.post(PURGE, &json!({"spaces": ["m"], "destroy": "m"}));
    assert_eq!(purged["plan"]["is_reversible"], false, "{purged}");
    assert!(purged["message"].as_str().unwrap().starts_with("space tank/m (number "), "{purged}");
    assert!(purged["job"]["subject"].as_str().unwrap().starts_with("space tank/m (number "), "{purged}");
    let job = ended(&world, &purged["job"]["id"]);
    assert_eq!(
        (&job["kind"], &job["state"], &job["rows_done"]),
        (&json!("purge"), &json!("done"), &json!(96))
    );
    let gone = world.refused(&format!("{TRASH}/m/restore"), &json!({}));
    assert_eq!(gone["code"], "no_such_space");
    world.post(PURGE, &json!({"spaces": twins, "destroy": "tank"}));
    let deleted = world.post(&format!("{SPACES}/last/delete"), &purge_now("tank/last"));
    ended(&world, &deleted["job"]["id"]);
    let nothing = world.post(PURGE, &json!({"all": true, "destroy": "tank"}));
    assert_eq!(nothing["is_changed"], false, "{nothing}");
    eventually("all room is back", || (used(&world) == 0 && trash(&world).is_empty()).then_some(()));
    is_reported(&world, "space_purged");
}

/// Scenario: the daemon is killed at several moments of a purge of a large space. The next one goes on with it behind its opening, or
/// finds the space where it was; nothing is there in part, and all room comes back.
#[test]
fn a_purge_that_a_kill_has_cut_short_is_ended_by_the_next_daemon() {
    let mut cut_short = 0;
    for millis in [0, 2, 4, 8, 15, 30] {
        let mut world = full(&["d0", "d1"]);
        world.post(&format!("{SPACES}/m/unserve"), &json!({}));
        // Nobody waits for the answer.
        let body = purge_now("m").to_string();
        let head = format!(
            "POST {SPACES}/m/delete HTTP/1.1\r\nhost: d\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = UnixStream::connect(world.socket()).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        #[allow(clippy::disallowed_methods, reason = "the moment of a kill; nothing depends on it")]
        std::thread::sleep(Duration::from_millis(millis));
        world.kill();
        world.start();
        if names(&world) == ["m"] {
            world.post(&format!("{SPACES}/m/serve"), &json!({}));
            expect(&world);
            continue;
        }
        cut_short += 1;
        assert!(trash(&world).iter().all(|one| one["can_be_restored"] == false));
        eventually("all room is back", || (used(&world) == 0 && trash(&world).is_empty()).then_some(()));
        let jobs = world.get("/v1/jobs")["jobs"].clone();
        let ids: Vec<u64> = jobs.as_array().unwrap().iter().map(|job| job["id"].as_u64().unwrap()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{jobs}");
        assert!(jobs.as_array().unwrap().iter().all(|job| job["state"] == "done"), "{jobs}");
        make(&world, "m");
    }
    assert!(cut_short > 0, "the daemon was always killed before it had begun");
}

/// Scenario: spaces are kept in the trash for an hour. One was seen there for nearly as long by the daemon before, as its record says,
/// and is purged by itself soon; another one was not, however long ago the clock says that it was deleted, and stays.
#[test]
fn a_space_is_purged_by_itself_when_its_time_was_seen_to_be_over() {
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    make(&world, "other");
    world.kill();
    world.start_with_trash_after(3600);
    delete(&world, "m");
    delete(&world, "other");
    let record = world.folder.path().join("state/trash.json");
    let read = || -> Option<Value> { serde_json::from_str(&fs::read_to_string(&record).ok()?).ok() };
    // It is on record by the time the daemon has ended well, if not before.
    let is_seen = |one: &Value| one["stays_s"].as_u64().unwrap() < 3600;
    eventually("they are seen", || trash(&world).iter().all(is_seen).then_some(()));
    world.post("/v1/shutdown", &json!({}));
    world.ended();
    let mut found = read().unwrap();
    let stays = found["spaces"].as_array().unwrap().clone();
    assert_eq!(stays.len(), 2, "{found}");
    assert!(stays.iter().all(|one| one["seen_s"].as_u64().unwrap() < 3000), "{found}");
    found["spaces"][0]["seen_s"] = json!(3599);
    fs::write(&record, found.to_string()).unwrap();
    world.start_with_trash_after(3600);
    eventually("its time is over", || (trash(&world).len() == 1).then_some(()));
    assert_eq!(trash(&world)[0]["name"], "other");
    is_reported(&world, "space_purged");
    // What cannot be read is begun again, and keeps what is there.
    world.kill();
    fs::write(&record, "{\"version\":1,\"spaces\":[").unwrap();
    world.start_with_trash_after(3600);
    assert!(trash(&world)[0]["stays_s"].as_u64().unwrap() > 3500);
    // A few seconds that the daemon sees are enough where people want that.
    world.kill();
    world.start_with_trash_after(5);
    eventually("its time is over", || trash(&world).is_empty().then_some(()));
    eventually("all room is back", || (used(&world) == 0).then_some(()));
}

/// Scenario: a pool is filled to its last row by a space that is then deleted. What fails for want of room names the trash, and so do
/// the status and `df`; behind a purge it succeeds.
#[test]
fn a_full_pool_names_the_trash_and_a_purge_gives_it_room() {
    let world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let large = json!({"name": "large", "size_bytes": 1 << 30, "resiliency": "mirror", "row_bytes": 1 << 20});
    world.post(SPACES, &large);
    world.post(&format!("{SPACES}/large/serve"), &json!({}));
    let mut nbd = Nbd::connect(&world.folder.path().join("run/nbd.sock"), "tank/large");
    let mut at = 0;
    while nbd.try_write(at, &pattern(3, 1 << 20)) == 0 {
        at += 1 << 20;
    }
    assert!(at > 64 << 20, "{at}");
    drop(nbd);
    let fixed = json!({"name": "f", "size_bytes": 64 << 20, "resiliency": "mirror", "provisioning": "fixed", "row_bytes": 1 << 20});
    let refused = world.refused(SPACES, &fixed);
    assert!(!refused["hint"].to_string().contains("trash purge"), "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("not one row of it finds room"), "{refused}");
    eventually("no client is left", || {
        let path = format!("{SPACES}/large/unserve");
        world.try_ask("POST", &path, b"{}").filter(|(status, _)| *status == 200)
    });
    delete(&world, "large");
    let refused = world.refused(SPACES, &fixed);
    let purge = "`dolmen trash purge --all tank`";
    assert!(refused["hint"].as_str().unwrap().contains(purge), "{refused}");
    let status = world.get("/v1/status");
    assert!(status["todo"].to_string().contains(purge), "{status}");
    let purged = world.post(PURGE, &json!({"all": true, "destroy": "tank"}));
    ended(&world, &purged["job"]["id"]);
    world.post(SPACES, &fixed);
    assert!(!world.get("/v1/status")["todo"].to_string().contains(purge));
}

/// Scenario: the trash goes with its pool to where it is imported, and is counted by who destroys the pool.
#[test]
fn the_trash_goes_where_its_pool_goes() {
    let world = full(&["d0", "d1"]);
    delete(&world, "m");
    world.post("/v1/pools/tank/export", &json!({}));
    let folder = world.folder.path().join("disks");
    world.post("/v1/pools/import", &json!({"paths": [folder], "mode": "write"}));
    assert_eq!(trash(&world).len(), 1);
    let planned = world.post("/v1/pools/tank/destroy", &json!({"dry_run": true}));
    assert!(planned["plan"]["steps"][0].as_str().unwrap().contains("1 space"), "{planned}");
    world.post(&format!("{TRASH}/m/restore"), &json!({}));
    world.post(&format!("{SPACES}/m/serve"), &json!({}));
    expect(&world);
}

/// Scenario: requests that make no sense, each of which names what is wrong and changes nothing.
#[test]
fn what_cannot_be_done_with_the_trash_is_refused_by_name() {
    let world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let served = world.refused(&format!("{SPACES}/m/delete"), &json!({}));
    assert_eq!(served["code"], "busy");
    make(&world, "other");
    delete(&world, "m");
    let before = world.get(TRASH)["spaces"].clone();
    for (path, body, code) in [
        (format!("{TRASH}/none/restore"), json!({}), "no_such_space"),
        (format!("{TRASH}/other/restore"), json!({}), "no_such_space"),
        (format!("{TRASH}/m/restore"), json!({"name": "other"}), "name_taken"),
        (format!("{TRASH}/m/restore"), json!({"name": "no name"}), "bad_name"),
        (format!("{SPACES}/m/delete"), json!({}), "no_such_space"),
        (format!("{SPACES}/m/serve"), json!({}), "no_such_space"),
        (format!("{SPACES}/m/resize"), json!({"size_bytes": 64 << 20}), "no_such_space"),
        (PURGE.to_owned(), json!({}), "bad_request"),
        (PURGE.to_owned(), json!({"spaces": ["m"], "all": true, "destroy": "tank"}), "bad_request"),
        (PURGE.to_owned(), json!({"spaces": ["other"], "destroy": "other"}), "no_such_space"),
        (PURGE.to_owned(), json!({"spaces": ["m", "none"], "destroy": "tank"}), "no_such_space"),
        ("/v1/pools/none/trash/purge".to_owned(), json!({"all": true}), "no_such_pool"),
    ] {
        let refused = world.refused(&path, &body);
        assert_eq!(refused["code"], code, "{path} {body}: {refused}");
    }
    assert_eq!(world.get(TRASH)["spaces"], before);
    assert_eq!(names(&world), ["other"]);
    assert_eq!(world.get("/v1/trash")["spaces"], before);
}
