//! Room that is kept for repair (docs/design/0023), against the real daemon.

use std::fs;

use serde_json::{Value, json};

use crate::client::{World, eventually, pattern};
use crate::jobs::{expect, full, idle};

const KEEP: &str = "/v1/pools/tank/keep_room";

fn fits(world: &World, resiliency: &str) -> u64 {
    let df = world.get("/v1/pools/tank/df");
    let of = |fits: &&Value| fits["resiliency"] == resiliency && fits["copies"] != 3 && fits["copies"] != 4;
    df["fits"].as_array().unwrap().iter().find(of).unwrap()["usable_fixed_bytes"].as_u64().unwrap()
}

fn fixed(name: &str, bytes: u64) -> Value {
    json!({"name": name, "size_bytes": bytes, "resiliency": "mirror", "copies": 2, "provisioning": "fixed",
        "row_bytes": 64 << 20})
}

#[test]
fn what_df_says_fits_next_to_kept_room_and_a_lost_disk_heals_into_it() {
    // Scenario: room for the loss of a disk is kept, and all is claimed that df says fits; one row more is refused, and says why.
    // A disk is lost: the pool is healthy again by itself but for the room that is used, until a disk is added.
    let mut world = full(&["d0", "d1", "d2", "d3"]);
    let before = fits(&world, "mirror");
    let pool = || world.get("/v1/pools/tank")["pool"].clone();
    let unchanged = pool();
    let planned = world.post(KEEP, &json!({"losses": 1, "dry_run": true}));
    assert!(planned["is_changed"] == false && !planned["plan"]["steps"].as_array().unwrap().is_empty());
    assert_eq!((pool(), fits(&world, "mirror")), (unchanged, before));
    let set = world.post(KEEP, &json!({"losses": 1}));
    assert!(
        set["plan"]["usable_after_bytes"].as_u64() < set["plan"]["usable_before_bytes"].as_u64(),
        "{set}"
    );
    let message = set["message"].as_str().unwrap();
    assert!(message.contains("; usable are ") && message.contains(", and were "), "{set}");
    assert!(set["plan"]["undo"].as_str().unwrap().ends_with("--keep-room-for 0"), "{set}");
    let pool = world.get("/v1/pools/tank")["pool"].clone();
    assert_eq!((&pool["keep_room_for"], &pool["has_room_for"]), (&json!(1), &json!(1)));
    assert!(world.get("/v1/pools/tank/df")["kept_bytes"].as_u64().unwrap() > 0);
    let room = fits(&world, "mirror");
    assert!(room > 0 && room < before, "{room} of {before}");
    world.post("/v1/pools/tank/spaces", &fixed("f", room));
    assert_eq!(fits(&world, "mirror"), 0);
    let refused = world.refused("/v1/pools/tank/spaces", &fixed("g", 64 << 20));
    assert_eq!(refused["code"], "bad_size", "{refused}");
    let hint = refused["hint"].as_str().unwrap();
    assert_eq!(
        (hint.matches("--keep-room-for").count(), refused["message"].to_string().contains("keep")),
        (1, false)
    );
    world.post("/v1/pools/tank/repair_after", &json!({"seconds": 1}));
    world.kill();
    fs::remove_file(world.disk("d3")).unwrap();
    world.start();
    eventually("it has left", || {
        (world.get("/v1/pools/tank/disks")["disks"].as_array().unwrap().len() == 3).then_some(())
    });
    idle(&world);
    expect(&world);
    let status = world.get("/v1/status");
    assert!(status["why"].to_string().contains("no room to repair the loss of a disk"), "{status}");
    assert!(status["todo"].to_string().contains("--keep-room-for 0"), "{status}");
    let path = world.make_disk("d9", 256 << 20);
    world.post("/v1/pools/tank/disks", &json!({"disks": [path]}));
    assert_eq!(world.get("/v1/status")["health"], "healthy");
}

#[test]
fn room_that_is_used_is_not_promised() {
    // Scenario: a mirror on two disks, and one that has taken most of three: neither can be repaired on what is left. Both are
    // refused with the figures, and nothing is changed.
    let world = full(&["d0", "d1"]);
    let refused = world.refused(KEEP, &json!({"losses": 1}));
    assert!(refused["message"].as_str().unwrap().contains("nothing was changed"), "{refused}");
    assert_eq!(world.get("/v1/pools/tank")["pool"]["keep_room_for"], 0);
    world.post("/v1/pools/tank/disks", &json!({"disks": [world.disk("d2")]}));
    let room = fits(&world, "mirror");
    world.post("/v1/pools/tank/spaces", &fixed("f", room));
    let refused = world.refused(KEEP, &json!({"losses": 1}));
    let text = refused["message"].as_str().unwrap();
    assert!(text.contains("the others would have to hold") && refused["code"] == "no_space", "{refused}");
    assert_eq!(world.refused(KEEP, &json!({"losses": 9}))["code"], "bad_request");
}

fn disk_of(world: &World, slot: u64) -> Value {
    let disks = world.get("/v1/pools/tank/disks")["disks"].as_array().unwrap().clone();
    disks.into_iter().find(|disk| disk["slot"] == slot).unwrap_or_default()
}

#[test]
fn a_spare_takes_the_place_of_a_lost_disk_by_itself_over_kills() {
    // Scenario: a spare is added to a mirror on two disks, and holds nothing. One of these is lost: the pool has its redundancy
    // back with nobody at the keyboard, although the daemon is killed on the way; and one of the two that are left may go.
    let mut world = full(&["d0", "d1"]);
    let path = world.disk("d2");
    let add = json!({"disks": [path], "spare": true, "dry_run": true});
    assert_eq!(world.post("/v1/pools/tank/disks", &add)["is_changed"], false);
    world.post("/v1/pools/tank/disks", &json!({"disks": [path], "spare": true}));
    let spare = disk_of(&world, 2);
    assert_eq!((&spare["state"], &spare["data_bytes"]), (&json!("spare"), &spare["free_bytes"]));
    assert_eq!(world.post(KEEP, &json!({"losses": 1}))["is_changed"], true, "it counts as room");
    world.kill();
    fs::remove_file(world.disk("d0")).unwrap();
    world.start();
    assert_eq!(disk_of(&world, 2)["state"], "spare");
    world.post("/v1/pools/tank/repair_after", &json!({"seconds": 1}));
    eventually("the spare is called", || (disk_of(&world, 2)["state"] == "present").then_some(()));
    world.kill();
    world.start();
    eventually("the lost disk has left", || disk_of(&world, 0).is_null().then_some(()));
    idle(&world);
    expect(&world);
    world.kill();
    fs::remove_file(world.disk("d1")).unwrap();
    world.start();
    expect(&world);
}

#[test]
fn a_disk_is_replaced_by_a_spare_at_once_when_that_is_asked_for() {
    // Scenario: a disk is lost, and a spare is a member of the pool. The status names the spare, when it is called and the command
    // that calls it now. That command, given once, gives the pool its redundancy back, also over a kill.
    let mut world = full(&["d0", "d1"]);
    let path = world.disk("d2");
    world.post("/v1/pools/tank/disks", &json!({"disks": [path], "spare": true}));
    world.kill();
    fs::remove_file(world.disk("d0")).unwrap();
    world.start();
    let status = eventually("the status names the spare", || {
        let status = world.get("/v1/status").to_string();
        status.contains("takes its place in").then_some(status)
    });
    assert!(status.contains(&format!("`dolmen disk replace tank 0 {path}`")), "{status}");
    assert!(status.contains(&format!("else the spare {path} takes its place in ")), "{status}");
    let replace = "/v1/pools/tank/disks/0/replace";
    let dry = world.post(replace, &json!({"with": path, "dry_run": true}));
    assert_eq!((&dry["is_changed"], disk_of(&world, 2)["state"] == "spare"), (&json!(false), true), "{dry}");
    let begun = world.post(replace, &json!({"with": path}));
    assert!(begun["message"].as_str().unwrap().ends_with(&format!("is being replaced by the spare {path}")));
    world.kill();
    world.start();
    eventually("the lost disk has left", || disk_of(&world, 0).is_null().then_some(()));
    idle(&world);
    assert_eq!(disk_of(&world, 2)["state"], "present");
    world.kill();
    fs::remove_file(world.disk("d1")).unwrap();
    world.start();
    expect(&world);
}

#[test]
fn a_retired_disk_is_emptied_and_stays() {
    // Scenario: a disk is retired, the daemon killed on the way; it ends empty, and a member. It takes data again when it is told
    // to; where the others have no place for what it holds nothing is begun, and the way out is named.
    let mut world = full(&["d0", "d1", "d2"]);
    let role = "/v1/pools/tank/disks/2/role";
    assert_eq!(world.post(role, &json!({"role": "retired", "dry_run": true}))["is_changed"], false);
    world.post(role, &json!({"role": "retired"}));
    world.kill();
    world.start();
    eventually("it is empty", || (disk_of(&world, 2)["state"] == "idle").then_some(()));
    idle(&world);
    expect(&world);
    assert_eq!(disk_of(&world, 2)["free_bytes"], disk_of(&world, 2)["data_bytes"]);
    let refused = world.refused("/v1/pools/tank/disks/1/role", &json!({"role": "spare"}));
    assert!(refused["message"].as_str().unwrap().contains("no other disk can take"), "{refused}");
    world.post(role, &json!({"role": "member"}));
    assert_eq!(disk_of(&world, 2)["state"], "present");
    assert_eq!(world.post(role, &json!({"role": "member"}))["is_changed"], false);
}

#[test]
fn a_ghost_is_forgotten_only_where_nothing_was_on_it_alone() {
    // Scenario: a disk is gone for good. While a space of one copy had a part there, it is told which bytes of it that are, and
    // nothing is done; with that space gone, the disk is forgotten although another such space is there, and what it had is rebuilt.
    let mut world = full(&["d0", "d1", "d2"]);
    let span = |name: &str, bytes: u64| json!({"name": name, "size_bytes": bytes, "resiliency": "span", "provisioning": "fixed", "row_bytes": 1 << 20});
    world.post("/v1/pools/tank/spaces", &span("here", 2 << 20));
    let slot = |world: &World, name: &str| {
        let before = world.get(&format!("/v1/pools/tank/spaces/{name}"));
        before["space"]["footprint_bytes"].as_u64().unwrap()
    };
    assert!(slot(&world, "here") > 0);
    let forget = |slot: u64| format!("/v1/pools/tank/disks/{slot}/forget");
    assert_eq!(world.refused(&forget(0), &json!({}))["code"], "busy", "it is no ghost");
    // A span lies on one disk: on which, its loss tells.
    let mut lost_on = None;
    for slot in 0..3u64 {
        world.kill();
        fs::rename(world.disk(&format!("d{slot}")), world.folder.path().join("away")).unwrap();
        world.start();
        let (status, answer) = world.try_ask("POST", &forget(slot), br#"{"dry_run": true}"#).unwrap();
        if status != 200 {
            let text = answer["error"]["message"].as_str().unwrap();
            assert!(text.contains("of tank/here in bytes 0-2097152"), "{answer}");
            assert!(
                answer["error"]["hint"].as_str().unwrap().contains("space delete tank/here --purge"),
                "{answer}"
            );
            lost_on = Some(slot);
        }
        fs::rename(world.folder.path().join("away"), world.disk(&format!("d{slot}"))).unwrap();
        world.post(&format!("/v1/pools/tank/disks/{slot}/online"), &json!({}));
        idle(&world);
    }
    let ghost = if lost_on == Some(2) { 1 } else { 2 };
    assert!(lost_on.is_some());
    world.kill();
    fs::remove_file(world.disk(&format!("d{ghost}"))).unwrap();
    world.start();
    assert_eq!(
        world.refused(&format!("/v1/pools/tank/disks/{ghost}/remove"), &json!({}))["code"],
        "no_such_device"
    );
    world.post(&forget(ghost), &json!({}));
    eventually("it has left", || disk_of(&world, ghost).is_null().then_some(()));
    idle(&world);
    expect(&world);
}

/// Scenario: three disks, a mirror that is nearly empty, room for the loss of one. A disk is lost for good: its rows are on the other
/// two, of which new rows need both. Writes go on, the pool says that another loss could not be repaired, and by name which rows; no
/// further mirror is begun, and neither is that promised again. With a disk more all is well.
#[test]
fn a_pool_whose_rows_need_all_disks_that_are_left_goes_on_to_write() {
    let mut world = World::new(4);
    world.make_tank(&["d0", "d1", "d2"]);
    let content = pattern(7, 1 << 20);
    let mut client = world.nbd();
    (0..4).for_each(|at| client.write(at << 20, &content));
    client.flush();
    drop(client);
    world.post(KEEP, &json!({"losses": 1}));
    world.post("/v1/pools/tank/repair_after", &json!({"seconds": 1}));
    world.kill();
    fs::remove_file(world.disk("d2")).unwrap();
    world.start();
    eventually("it has left", || {
        (world.get("/v1/pools/tank/disks")["disks"].as_array().unwrap().len() == 2).then_some(())
    });
    idle(&world);
    let mut client = world.nbd();
    (4..32).for_each(|at| client.write(at << 20, &content));
    (0..32).for_each(|at| assert!(client.read(at << 20, 1 << 20) == content, "MiB {at}"));
    drop(client);
    let status = world.get("/v1/status");
    assert!(
        status["why"].to_string().contains("rows of tank/m need more disks than would be left"),
        "{status}"
    );
    assert!(status["todo"].to_string().contains("--keep-room-for 0"), "{status}");
    assert_eq!(world.get("/v1/pools/tank")["pool"]["has_room_for"], 0);
    let another = json!({"name": "n", "size_bytes": 8 << 20, "resiliency": "mirror"});
    let refused = world.refused("/v1/pools/tank/spaces", &another);
    assert!(refused["message"].as_str().unwrap().contains("--keep-room-for"), "{refused}");
    world.post(KEEP, &json!({"losses": 0}));
    let refused = world.refused(KEEP, &json!({"losses": 1}));
    assert!(refused["message"].as_str().unwrap().contains("rows of tank/m need more disks"), "{refused}");
    world.post("/v1/pools/tank/disks", &json!({"disks": [world.disk("d3")], "stays": true}));
    world.post(KEEP, &json!({"losses": 1}));
    assert_eq!(world.get("/v1/status")["health"], "healthy");
}
