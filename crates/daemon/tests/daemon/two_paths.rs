//! One disk by two paths. It needs root and loop devices; where one of them is missing the test says so and ends.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::client::{World, pattern};

/// A loop device over a file.
struct Loop(String);

impl Loop {
    /// Says why there is none.
    fn over(file: &str, options: &[&str]) -> Option<Self> {
        let output = Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output();
        let shown = output.ok().filter(|output| output.status.success());
        let device = shown.map(|output| Self(String::from_utf8(output.stdout).unwrap().trim().to_owned()));
        if device.is_none() {
            println!("skipped: that takes root and loop devices");
        }
        device
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).output();
    }
}

/// Scenario: a file has two loop devices. They are not two disks of a pool, nor is one of them and the file; when one is a disk of a
/// pool, the other and the file are none of another. Parts of the file that have nothing in common are two disks.
#[test]
fn a_disk_by_two_paths_is_one_disk() {
    let mut world = World::new(0);
    let (file, small) = (world.make_disk("a", 256 << 20), world.make_disk("b", 256 << 20));
    let mut one = Loop::over(&file, &[]);
    let Some(first) = one.as_ref().map(|one| one.0.clone()) else { return };
    let Some(two) = Loop::over(&file, &[]) else { return };
    let pool = |name: &str, disks: &[&str]| json!({"name": name, "disks": disks});
    for disks in [[&first, &two.0], [&first, &file], [&file, &two.0]].map(|pair| pair.map(String::as_str)) {
        let error = world.refused("/v1/pools", &pool("tank", &disks));
        assert_eq!(error["code"], "unfit_device", "{error}");
        assert!(
            error["message"].as_str().unwrap().ends_with("are one disk by two paths; nothing was written"),
            "{error}"
        );
    }
    assert!(fs::read(&file).unwrap().iter().all(|byte| *byte == 0), "it was written");
    world.post("/v1/pools", &pool("tank", &[&first, &small]));
    world
        .post("/v1/pools/tank/spaces", &json!({"name": "m", "size_bytes": 32 << 20, "resiliency": "mirror"}));
    world.post("/v1/pools/tank/spaces/m/serve", &json!({}));
    let mut client = world.nbd();
    client.write(0, &pattern(5, 1 << 20));
    client.flush();
    for other in [&two.0, &file] {
        let new = json!({"name": "more", "disks": [other], "destroy": [other]});
        let error = world.refused("/v1/pools", &new);
        assert_eq!(error["code"], "device_in_use", "{error}");
        let added = json!({"disks": [other], "destroy": [other]});
        assert_eq!(world.refused("/v1/pools/tank/disks", &added)["code"], "device_in_use", "{other}");
    }

    // Another path is seen first behind a restart; and the path that it had is gone behind the next.
    drop(client);
    for is_released in [false, true] {
        world.post("/v1/shutdown", &json!({}));
        assert!(world.ended().success());
        if is_released {
            one = None;
        }
        let mut command = world.command("state", "run");
        command.args(["--look-in", &two.0]);
        world.begin(command);
        let disks = world.get("/v1/pools/tank/disks")["disks"].clone();
        let paths: Vec<&str> =
            disks.as_array().unwrap().iter().map(|disk| disk["path"].as_str().unwrap()).collect();
        // The file lies beside the other disk of the pool, and is found there.
        let is_used =
            |path: &&str| if is_released { [two.0.as_str(), &file].contains(path) } else { *path == first };
        assert!(paths.iter().any(is_used) && paths.len() == 2, "{disks}");
        assert!(world.nbd().read(0, 1 << 20) == pattern(5, 1 << 20));
        assert_eq!(world.get("/v1/status")["health"], "healthy");
    }
    drop(one);
}

/// Scenario: two loop devices over parts of one file that have nothing in common, and one over both. The first two make a pool, the
/// third is none of its disks and of no other.
#[test]
fn parts_of_a_file_are_disks_of_their_own_where_they_have_nothing_in_common() {
    let world = World::new(0);
    let file = world.make_disk("a", 512 << 20);
    let half = (256_u64 << 20).to_string();
    let Some(first) = Loop::over(&file, &["--sizelimit", &half]) else { return };
    let Some(second) = Loop::over(&file, &["--offset", &half]) else { return };
    let Some(both) = Loop::over(&file, &[]) else { return };
    world.post("/v1/pools", &json!({"name": "tank", "disks": [first.0, second.0]}));
    let error = world.refused("/v1/pools", &json!({"name": "more", "disks": [both.0], "destroy": [both.0]}));
    assert_eq!(error["code"], "device_in_use", "{error}");
}
