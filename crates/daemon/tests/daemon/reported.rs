//! What is reported to people: errors and damage over restarts, of disks that come and go, of a pool that has stopped.

use std::fs;
use std::os::unix::fs::FileExt;

use serde_json::{Value, json};

use crate::client::{Nbd, World, eventually, pattern};

const ACKNOWLEDGE: &str = "/v1/pools/tank/acknowledge";
const BLOCK: usize = 4096;

/// Where a disk has these blocks. Nobody may have it open.
fn find(world: &World, disk: &str, content: &[u8]) -> u64 {
    let image = fs::read(world.disk(disk)).unwrap();
    let at = image.windows(BLOCK).step_by(BLOCK).position(|block| block == &content[..BLOCK]);
    (at.unwrap() * BLOCK) as u64
}

fn flip_a_bit(world: &World, disk: &str, at: u64) {
    let disk = fs::OpenOptions::new().read(true).write(true).open(world.disk(disk)).unwrap();
    let mut byte = [0];
    disk.read_exact_at(&mut byte, at).unwrap();
    disk.write_all_at(&[byte[0] ^ 1], at).unwrap();
    disk.sync_all().unwrap();
}

/// Ends the daemon in good order and starts another one.
fn restart(world: &mut World) {
    world.post("/v1/shutdown", &json!({}));
    assert!(world.ended().success());
    world.start();
}

fn scrub(world: &World) -> Value {
    world.post("/v1/pools/tank/scrub", &json!({}));
    world.last_job()
}

/// The health, and why.
fn health(world: &World) -> (Value, String) {
    let status = world.get("/v1/status");
    (status["health"].clone(), status["why"].to_string())
}

/// The one file in a folder of the state; one that is about to take its place does not count.
fn record(world: &World, folder: &str) -> std::path::PathBuf {
    let folder = world.folder.path().join("state").join(folder);
    let mut paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.find(|path| path.extension().is_some_and(|extension| extension == "json")).unwrap()
}

#[test]
fn errors_and_what_was_acknowledged_of_them_survive_a_restart() {
    // Scenario: a bit of one copy turns and is healed. The next daemon warns as this one did; acknowledged, and killed at once,
    // there is no warning, and what was counted stays. A history that makes no sense is none, and nothing else.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let content = pattern(7, 1 << 20);
    let mut client = world.nbd();
    client.write(0, &content);
    client.flush();
    drop(client);
    restart(&mut world);
    world.kill();
    let at = find(&world, "d0", &content);
    world.start();
    flip_a_bit(&world, "d0", at + 100);
    assert_eq!(scrub(&world)["state"], "done");
    let reported = health(&world);
    assert!(
        reported.0 == "warning" && reported.1.contains("0 failed writes, 1 damaged block"),
        "{reported:?}"
    );
    restart(&mut world);
    assert_eq!(health(&world), reported);
    world.post(ACKNOWLEDGE, &json!({}));
    world.kill();
    world.start();
    assert_eq!(health(&world).0, "healthy");
    assert_eq!(world.get("/v1/pools/tank/disks")["disks"][0]["checksum_errors"], 1);
    world.kill();
    fs::write(record(&world, "history"), "{").unwrap();
    world.start();
    assert_eq!(health(&world).0, "healthy");
    assert_eq!(world.get("/v1/pools/tank/disks")["disks"][0]["checksum_errors"], 0);
}

#[test]
fn what_is_lost_is_listed_until_it_can_be_read_whatever_daemon_runs() {
    // Scenario: both copies of a block rot. The next daemon says where; then the block is written again, and the range is listed
    // no more.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let content = pattern(7, 1 << 20);
    let mut client = world.nbd();
    client.write(0, &content);
    client.flush();
    drop(client);
    restart(&mut world);
    world.kill();
    let second = &content[BLOCK..];
    let places = ["d0", "d1"].map(|disk| (disk, find(&world, disk, second)));
    world.start();
    places.iter().for_each(|(disk, at)| flip_a_bit(&world, disk, *at + 7));
    assert_eq!(scrub(&world)["state"], "failed");
    let lost = |world: &World| {
        let (health, why) = health(world);
        let is_reported = why.contains("space tank/m has lost data in 1 places, first: 4 KiB at byte 4096");
        assert_eq!(health == "unhealthy", is_reported, "{health} {why}");
        is_reported
    };
    assert!(lost(&world));
    restart(&mut world);
    assert!(lost(&world));
    world.post(ACKNOWLEDGE, &json!({}));
    assert!(lost(&world), "it cannot be read, whoever has seen that");
    world.nbd().write(BLOCK as u64, &second[..BLOCK]);
    let change = world.post(ACKNOWLEDGE, &json!({}));
    assert!(change["message"].to_string().contains("4 KiB that were lost can be read by now"), "{change}");
    assert_eq!(health(&world).0, "healthy");
    restart(&mut world);
    assert_eq!(health(&world).0, "healthy");
}

#[test]
fn unverified_content_is_a_warning_until_it_is_acknowledged() {
    // Scenario: a daemon before has noted two ranges of a space, and one of a space that is gone.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    restart(&mut world);
    world.post("/v1/shutdown", &json!({}));
    world.ended();
    let path = record(&world, "history");
    let mut recorded: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let pool: Value = serde_json::from_slice(&fs::read(record(&world, "pools")).unwrap()).unwrap();
    let space = pool["served"][0]["space"].as_u64().unwrap();
    let range = |space: u64, at: u64| json!({"space": space, "at": at, "length": 4096, "kind": "accepted_unverified"});
    recorded["ranges"] = json!([range(space, 0), range(space, 1 << 20), range(space + 1000, 0)]);
    fs::write(&path, recorded.to_string()).unwrap();
    world.start();
    let (word, why) = health(&world);
    assert!(word == "warning" && why.contains("in 2 places of space tank/m"), "{why}");
    assert!(world.get("/v1/status")["todo"].to_string().contains("dolmen pool acknowledge tank"));
    let plan = world.post(ACKNOWLEDGE, &json!({"dry_run": true}));
    assert!(plan["plan"]["steps"].to_string().contains("2 places of space tank/m"), "{plan}");
    assert_eq!(health(&world).0, "warning");
    world.post(ACKNOWLEDGE, &json!({}));
    assert_eq!(health(&world).0, "healthy");
    world.kill();
    world.start();
    assert_eq!(health(&world).0, "healthy");
}

#[test]
fn a_disk_that_was_absent_at_the_start_is_known_by_the_path_that_it_had_and_has() {
    // Scenario: a disk is away when the daemon begins, and is written past. It is shown where it was; taken in by the path where
    // it turns up, after a dry run that says how much is copied.
    let mut world = World::new(3);
    world.make_tank(&["d0", "d1"]);
    world.nbd().write(0, &pattern(3, 1 << 20));
    restart(&mut world);
    world.kill();
    let (was, back) = (world.disk("d1"), world.disk("back"));
    let away = world.folder.path().join("away");
    fs::rename(&was, &away).unwrap();
    world.start();
    let disk = world.get("/v1/pools/tank/disks")["disks"][1].clone();
    assert_eq!(
        (&disk["state"], &disk["path"], &disk["last_path"]),
        (&json!("absent"), &Value::Null, &json!(was))
    );
    world.nbd().write(0, &pattern(4, 1 << 20));
    fs::rename(&away, &back).unwrap();
    let online = |path: &str| format!("/v1/pools/tank/disks/{}/online", path.replace('/', "%2F"));
    for stranger in [world.disk("d2"), world.disk("nothing")] {
        assert_eq!(world.refused(&online(&stranger), &json!({}))["code"], "no_such_disk");
    }
    let plan = world.post(&online(&back), &json!({"dry_run": true}))["plan"].clone();
    assert_eq!(plan["moved_bytes"], 1 << 20, "{plan}");
    assert!(plan["steps"].to_string().contains("copy what it missed of 1 row, 1 MiB at most"), "{plan}");
    world.post(&online(&back), &json!({}));
    eventually("it is brought up to date", || (health(&world).0 == "healthy").then_some(()));
    let disk = world.get("/v1/pools/tank/disks")["disks"][1].clone();
    assert_eq!((&disk["path"], &disk["last_path"]), (&json!(back), &Value::Null));
    let again = world.post(&online(&back), &json!({"dry_run": true}));
    assert_eq!(again["plan"]["steps"], json!([format!("leave it: {back} takes part already")]));
}

#[test]
fn a_renamed_disk_is_called_by_its_new_name() {
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let (old, new) = (world.disk("d1"), world.folder.path().join("moved"));
    fs::rename(&old, &new).unwrap();
    eventually("it is called so", || {
        let disk = world.get("/v1/pools/tank/disks")["disks"][1].clone();
        (disk["path"] == json!(new)).then_some(())
    });
    eventually("it is on record", || {
        fs::read_to_string(record(&world, "pools")).unwrap().contains("moved").then_some(())
    });
    world.kill();
    world.start();
    assert_eq!(health(&world), (json!("healthy"), "[]".to_owned()));
}

#[test]
fn a_pool_that_has_stopped_says_so_to_whoever_tries_to_mend_it() {
    // Scenario: the host's record cannot be written when the pool needs a new epoch. Whoever takes a disk in, or imports the
    // pool, gets the answer that it has stopped, and what helps.
    let world = World::new(3);
    world.make_tank(&["d0", "d1"]);
    fs::rename(world.folder.path().join("state/epochs"), world.folder.path().join("elsewhere")).unwrap();
    world.refused("/v1/pools/tank/disks", &json!({"disks": [world.disk("d2")]}));
    assert_eq!(world.get("/v1/pools/tank")["pool"]["state"], "stopped");
    let import = json!({"paths": [world.folder.path().join("disks")]});
    for (path, request) in [
        ("/v1/pools/tank/disks/0/online", json!({})),
        ("/v1/pools/tank/disks/0/online", json!({"dry_run": true})),
        ("/v1/pools/import", import),
        ("/v1/pools/import", json!({"pool": "tank", "paths": [world.disk("d0")]})),
    ] {
        let error = world.refused(path, &request);
        let hint = error["hint"].as_str().unwrap_or_default();
        assert!(
            error["code"] == "pool_stopped" && hint.contains("start the daemon again"),
            "{path}: {error}"
        );
    }
}

#[test]
fn a_dry_run_of_an_import_reports_the_room_and_its_purpose() {
    let world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    let fixed = json!({"name": "f", "size_bytes": 32 << 20, "resiliency": "mirror", "provisioning": "fixed"});
    world.post("/v1/pools/tank/spaces", &fixed);
    for (mode, is_said) in [("read", true), ("write", false)] {
        world.post("/v1/pools/tank/export", &json!({}));
        let before = fs::read(world.disk("d0")).unwrap();
        let request = |dry_run: bool| json!({"paths": [world.disk("d0")], "mode": mode, "dry_run": dry_run});
        let (plan, made) = (world.post("/v1/pools/import", &request(true)), {
            assert!(fs::read(world.disk("d0")).unwrap() == before, "a dry run writes nothing");
            world.post("/v1/pools/import", &request(false))
        });
        assert!(plan["plan"]["usable_after_bytes"].as_u64().unwrap() > 0, "{plan}");
        assert_eq!(plan["plan"], made["plan"], "{mode}");
        for reported in [&plan["message"], &plan["plan"]["steps"][0], &made["message"]] {
            assert_eq!(reported.to_string().contains("for reading only"), is_said, "{reported}");
        }
    }
}

#[test]
fn an_import_that_names_disks_of_an_open_pool_reports_them() {
    let world = World::new(4);
    for (name, disks) in [("one", ["d0", "d1"]), ("two", ["d2", "d3"])] {
        let disks: Vec<String> = disks.iter().map(|disk| world.disk(disk)).collect();
        world.post("/v1/pools", &json!({"name": name, "disks": disks}));
    }
    world.post("/v1/pools/two/export", &json!({}));
    let paths = ["d0", "d2", "d3"].map(|disk| world.disk(disk));
    for dry_run in [true, false] {
        let change = world.post("/v1/pools/import", &json!({"paths": paths, "dry_run": dry_run}));
        let reported = format!("{} is a disk of pool one, which is open here already", world.disk("d0"));
        assert_eq!(change["warnings"], json!([reported]));
    }
}

/// The second disk of the pool, and what the status says to do.
fn second_disk(world: &World) -> (Value, String) {
    let disk = world.get("/v1/pools/tank/disks")["disks"][1].clone();
    (disk, world.get("/v1/status")["todo"].to_string())
}

#[test]
fn a_disk_whose_file_is_removed_is_reported_before_it_is_lost_and_can_be_replaced() {
    // Scenario: somebody removes the file of a disk in use. Nothing fails, and without a word nobody would know before the daemon
    // ends, which is when it is gone. It works on: what is written has both copies, and it is replaced by moving what it has.
    let mut world = World::new(3);
    world.make_tank(&["d0", "d1"]);
    world.nbd().write(0, &pattern(1, 1 << 20));
    fs::remove_file(world.disk("d1")).unwrap();
    eventually("it is told", || (second_disk(&world).0["backing_state"] == "removed").then_some(()));
    let reported = health(&world);
    assert!(
        reported.0 == "warning"
            && reported.1.contains("was removed")
            && reported.1.contains("lost when it ends"),
        "{reported:?}"
    );
    let (disk, todo) = second_disk(&world);
    assert_eq!(disk["state"], "present", "it is given up by nobody");
    assert!(todo.contains("dolmen disk replace tank 1 NEW"), "{todo}");
    let mut client = world.nbd();
    client.write(1 << 20, &pattern(2, 1 << 20));
    client.flush();
    drop(client);
    world.post("/v1/pools/tank/disks/1/replace", &json!({"with": world.disk("d2")}));
    assert_eq!(world.last_job()["state"], "done");
    eventually("it is over", || (health(&world).0 == "healthy").then_some(()));
    restart(&mut world);
    fs::remove_file(world.disk("d0")).unwrap();
    world.kill();
    world.start();
    let content = [pattern(1, 1 << 20), pattern(2, 1 << 20)].concat();
    assert!(world.nbd().read(0, 2 << 20) == content, "the new disk has all of it");
}

#[test]
fn a_truncated_disk_is_reported_at_once() {
    // Scenario: somebody cuts the file of a disk in use to nothing. It is told before anything is written; with the next flush the
    // disk leaves, and who wants it back, as it is or with its length given back, is told what is there.
    let world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let file = fs::OpenOptions::new().write(true).open(world.disk("d1")).unwrap();
    file.set_len(0).unwrap();
    eventually("it is told", || (second_disk(&world).0["backing_state"] == "cut_short").then_some(()));
    let reported = health(&world);
    assert!(reported.0 == "warning" && reported.1.contains("was cut to 0 B"), "{reported:?}");
    let mut client = world.nbd();
    client.write(0, &pattern(1, 1 << 20));
    client.flush();
    let (disk, _) = second_disk(&world);
    assert_eq!((&disk["state"], &disk["backing_state"]), (&json!("absent"), &Value::Null));
    let online = "/v1/pools/tank/disks/1/online";
    let cut = world.refused(online, &json!({}));
    let is_there = format!("{} is there, and is not disk 1 of pool tank any more", world.disk("d1"));
    assert!(cut["message"].as_str().unwrap().starts_with(&is_there), "{cut}");
    assert!(cut["hint"].as_str().unwrap().contains("dolmen disk replace tank 1 NEW"), "{cut}");
    file.set_len(256 << 20).unwrap();
    let empty = world.refused(online, &json!({}));
    assert!(empty["message"].as_str().unwrap().contains("it has no label"), "{empty}");
    fs::remove_file(world.disk("d1")).unwrap();
    let gone = world.refused(online, &json!({}));
    assert!(gone["message"].as_str().unwrap().contains("was not found anywhere"), "{gone}");
    assert!(client.read(0, 1 << 20) == pattern(1, 1 << 20));
}

#[test]
fn a_truncated_disk_of_a_space_without_redundancy_is_unhealthy_at_once() {
    // Scenario: a simple space has data on a disk whose file is cut. Before anything is read or written, the status is unhealthy,
    // names the space, and says that a replacement does not bring its data back; a mirror beside it is not named.
    let world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    world.nbd().write(0, &pattern(1, 1 << 20));
    let space = json!({"name": "s", "size_bytes": 32 << 20, "resiliency": "simple", "columns": 2});
    world.post("/v1/pools/tank/spaces", &space);
    world.post("/v1/pools/tank/spaces/s/serve", &json!({}));
    let mut client = crate::client::Nbd::connect(&world.folder.path().join("run/nbd.sock"), "tank/s");
    client.write(0, &pattern(2, 1 << 20));
    client.flush();
    let file = fs::OpenOptions::new().write(true).open(world.disk("d1")).unwrap();
    file.set_len(1 << 20).unwrap();
    eventually("it is unhealthy", || (health(&world).0 == "unhealthy").then_some(()));
    let status = world.get("/v1/status");
    let text = status.to_string();
    assert!(!text.contains("nothing is lost"), "{text}");
    assert!(text.contains("space tank/s may have lost data"), "{text}");
    assert!(text.contains("tank/s then has to be restored from a backup"), "{text}");
    let spaces = status["spaces"].as_array().unwrap();
    let of = |name: &str| spaces.iter().find(|space| space["name"] == name).unwrap()["health"].clone();
    assert_eq!((of("s"), of("m") == "unhealthy"), (json!("unhealthy"), false), "{text}");
}

/// A daemon that was killed when the disk had left that alone had what was written last, and the disk as it was before that.
fn killed_with_unflushed() -> World {
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let space = json!({"name": "s", "size_bytes": 32 << 20, "resiliency": "simple", "columns": 1, "row_bytes": 1 << 20});
    world.post("/v1/pools/tank/spaces", &space);
    world.post("/v1/pools/tank/spaces/s/serve", &json!({}));
    let mut client = served(&world, "tank/s");
    client.write(0, &pattern(1, BLOCK));
    client.flush();
    let has_it = |disk: &&&str| {
        let image = fs::read(world.disk(disk)).unwrap();
        image.chunks_exact(BLOCK).any(|block| block == pattern(1, BLOCK))
    };
    let disk = ["d0", "d1"].iter().find(has_it).unwrap().to_string();
    let before = world.folder.path().join("before");
    fs::copy(world.disk(&disk), &before).unwrap();
    client.write(0, &pattern(2, BLOCK));
    fs::OpenOptions::new().write(true).open(world.disk(&disk)).unwrap().set_len(0).unwrap();
    assert_ne!(client.try_flush(), 0);
    world.kill();
    fs::rename(before, world.disk(&disk)).unwrap();
    world
}

fn served(world: &World, name: &str) -> Nbd {
    Nbd::connect(&world.folder.path().join("run/nbd.sock"), name)
}

#[test]
fn one_flush_reports_loss_to_clients_that_survive_the_daemon_and_not_the_system() {
    // Scenario: a disk alone has what was acknowledged and not flushed, is cut, and is put back as it was before. Whoever has
    // survived the daemon has a flush fail once. Where the system was started since, nobody has, and no file system that is
    // mounted then is to meet an error.
    for is_same_boot in [true, false] {
        let mut world = killed_with_unflushed();
        if !is_same_boot {
            let path = record(&world, "pools");
            let mut pool: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            assert!(pool["boot"].is_string(), "{pool}");
            pool["boot"] = json!("another");
            fs::write(path, pool.to_string()).unwrap();
        }
        world.start();
        let mut client = served(&world, "tank/s");
        assert!(client.read(0, BLOCK) == pattern(1, BLOCK));
        assert_eq!(client.try_flush() != 0, is_same_boot);
        client.flush();
    }
}
