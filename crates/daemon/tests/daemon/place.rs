//! Where a disk is in the hands of people: bays that they name, and lights.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{World, eventually};

const DISKS: &str = "/v1/pools/tank/disks";

fn disk(world: &World, slot: usize) -> Value {
    world.get(DISKS)["disks"][slot].clone()
}

fn set_bay(world: &World, slot: usize, bay: &str) -> Value {
    world.post(&format!("{DISKS}/{slot}/set"), &json!({"bay": bay}))
}

/// Scenario: bays are named, named as they are, as another one is, and by what is no name. They are listed, stand in what is to be
/// done about an absent disk, and are known to the next daemon, and not after they were taken away.
#[test]
fn a_bay_is_named_wherever_somebody_takes_a_disk_in_hand() {
    let mut world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    let asked = world.post(&format!("{DISKS}/1/set"), &json!({"bay": "left 3", "dry_run": true}));
    assert_eq!((&asked["is_changed"], &disk(&world, 1)["bay"]), (&json!(false), &Value::Null));
    let named = set_bay(&world, 1, " left 3 ");
    assert_eq!(named["is_changed"], true, "{named}");
    assert_eq!(named["plan"]["undo"], "dolmen disk set tank 1 --bay ''");
    assert_eq!(set_bay(&world, 1, "left 3")["is_changed"], false, "it is there already");
    let set = format!("{DISKS}/2/set");
    let taken = world.refused(&set, &json!({"bay": "left 3"}));
    assert!(taken["code"] == "name_taken" && taken["message"].as_str().unwrap().contains("d1"), "{taken}");
    for bad in ["a\nb".to_owned(), "x".repeat(65), "it's".to_owned()] {
        assert_eq!(world.refused(&set, &json!({"bay": bad}))["code"], "bad_name");
    }
    assert_eq!(set_bay(&world, 2, "ü")["is_changed"], true);
    world.kill();
    world.start();
    let bays: Vec<Value> = (0..3).map(|slot| disk(&world, slot)["bay"].clone()).collect();
    assert_eq!(bays, [json!(null), json!("left 3"), json!("ü")]);
    world.post(&format!("{DISKS}/1/offline"), &json!({}));
    let status = world.get("/v1/status");
    for reported in [&status["why"], &status["todo"]] {
        assert!(reported.to_string().contains("d1 (bay left 3)"), "{reported}");
    }
    assert_eq!(disk(&world, 1)["bay"], "left 3", "an absent disk has its bay");
    world.post(&format!("{DISKS}/1/online"), &json!({}));
    set_bay(&world, 1, "");
    world.kill();
    world.start();
    assert_eq!(disk(&world, 1)["bay"], Value::Null);
}

/// Scenario: a disk that has a bay leaves, and another one gets its number. It is in no bay.
#[test]
fn a_bay_is_that_of_its_disk_and_not_of_its_number() {
    let mut world = World::new(4);
    world.make_tank(&["d0", "d1", "d2"]);
    set_bay(&world, 2, "left");
    world.post(&format!("{DISKS}/2/remove"), &json!({}));
    eventually("it leaves", || (world.get(DISKS)["disks"].as_array().unwrap().len() == 2).then_some(()));
    world.post(DISKS, &json!({"disks": [world.disk("d3")], "stays": true}));
    assert_eq!((&disk(&world, 2)["slot"], &disk(&world, 2)["bay"]), (&json!(2), &Value::Null));
    world.kill();
    world.start();
    assert_eq!(disk(&world, 2)["bay"], Value::Null);
}

fn reads(world: &World, slot: usize) -> u64 {
    world.get("/v1/figures")["disks"][slot]["load"]["reads"]["count"].as_u64().unwrap()
}

#[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Scenario: one disk is in an enclosure with a light, one is not. The light is put on and goes out by itself, and by request, also
/// one that a killed daemon has left on; the other disk is read in bursts, few reads, until it is called off.
#[test]
fn a_disk_shows_where_it_is_for_a_while() {
    let mut world = World::new(3);
    world.kill();
    let sys = world.folder.path().join("sys");
    let place = sys.join("class/block/d1/device/enclosure_device:Slot 1");
    fs::create_dir_all(&place).unwrap();
    let light = place.join("locate");
    fs::write(&light, "0").unwrap();
    let state = || fs::read_to_string(&light).unwrap();
    let start = |world: &mut World, sys: &PathBuf| {
        let mut command = world.command("state", "run");
        command.arg("--sys").arg(sys);
        world.begin(command);
    };
    start(&mut world, &sys);
    world.make_tank(&["d0", "d1", "d2"]);
    let locate = |slot: usize| format!("{DISKS}/{slot}/locate");
    assert_eq!(world.post(&locate(1), &json!({"dry_run": true}))["is_changed"], false);
    assert_eq!(state(), "0", "a dry run puts nothing on");
    let shown = world.post(&locate(1), &json!({"seconds": 2}));
    assert!(shown["message"].as_str().unwrap().contains("light of its place is on"), "{shown}");
    assert_eq!(state(), "1");
    eventually("it goes out", || (state() == "0").then_some(()));
    world.post(&locate(1), &json!({}));
    assert_eq!(state(), "1");
    world.post(&locate(1), &json!({"off": true}));
    assert_eq!(state(), "0");
    world.post(&locate(1), &json!({}));
    world.kill();
    start(&mut world, &sys);
    assert_eq!(world.post(&locate(1), &json!({"off": true}))["is_changed"], true);
    assert_eq!(state(), "0", "what a daemon before has left on is put out");

    let before = reads(&world, 0);
    let shown = world.post(&locate(0), &json!({"seconds": 60}));
    // It is a file here, of which no light is promised.
    let message = shown["message"].as_str().unwrap();
    assert!(message.contains("it is a file") && !message.contains("blinks"), "{shown}");
    pause(Duration::from_secs(4));
    let in_bursts = reads(&world, 0) - before;
    assert!((20..400).contains(&in_bursts), "{in_bursts} reads in four seconds");
    world.post(&locate(0), &json!({"off": true}));
    pause(Duration::from_millis(500));
    let at_the_end = reads(&world, 0);
    pause(Duration::from_secs(3));
    assert!(reads(&world, 0) <= at_the_end + 4, "it was called off");
    assert_eq!(world.post(&locate(0), &json!({"off": true}))["is_changed"], false);
    for seconds in [0, 3601] {
        assert_eq!(world.refused(&locate(0), &json!({"seconds": seconds}))["code"], "bad_request");
    }
    world.post(&format!("{DISKS}/2/offline"), &json!({}));
    assert_eq!(world.refused(&locate(2), &json!({}))["code"], "no_such_device");
    assert_eq!(world.get("/v1/status")["pools"][0]["disks"][0]["read_errors"], 0);
}
