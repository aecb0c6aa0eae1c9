//! What the status advises, where a wrong word costs data: disks that are absent, and pools that are full.

use serde_json::{Value, json};

use crate::client::{Nbd, World, pattern};

const MIB: u64 = 1 << 20;

fn space(world: &World, name: &str, resiliency: &str, mib: u64) -> Nbd {
    let space = json!({"name": name, "size_bytes": mib * MIB, "resiliency": resiliency, "row_bytes": MIB});
    world.post("/v1/pools/tank/spaces", &space);
    world.post(&format!("/v1/pools/tank/spaces/{name}/serve"), &json!({}));
    Nbd::connect(&world.folder.path().join("run/nbd.sock"), &format!("tank/{name}"))
}

fn fill(mut client: Nbd, mib: u64) {
    (0..mib).for_each(|at| client.write(at * MIB, &pattern(7, 1 << 20)));
    client.flush();
}

fn tank(disks: usize) -> World {
    let world = World::new(disks);
    let disks: Vec<String> = (0..disks).map(|disk| world.disk(&format!("d{disk}"))).collect();
    world.post("/v1/pools", &json!({"name": "tank", "disks": disks}));
    world
}

fn lines(status: &Value, part: &str) -> String {
    status[part].as_array().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
}

/// Scenario: a disk is gone. Where it has the only data of a space, that space is named, with what gives the data up, and with what a
/// replacement waits for. Where all it has is elsewhere too, a replacement is all that it takes, and nothing is given up.
#[test]
fn an_absent_disk_with_the_only_data_of_a_space_has_advice_of_its_own() {
    for (resiliency, is_alone) in [("simple", true), ("mirror", false)] {
        let mut world = tank(3);
        fill(space(&world, "s", resiliency, 16), 16);
        world.kill();
        std::fs::remove_file(world.disk("d1")).unwrap();
        world.start();
        let status = world.get("/v1/status");
        let (why, todo) = (lines(&status, "why"), lines(&status, "todo"));
        assert!(todo.contains("dolmen disk replace tank 1 NEW"), "{todo}");
        assert_eq!(todo.contains("tank/s may have data there that no other disk has"), is_alone, "{todo}");
        assert_eq!(todo.contains("dolmen disk forget tank 1 --accept-data-loss"), is_alone, "{todo}");
        assert_eq!(todo.contains("restores all else, and waits for that"), is_alone, "{todo}");
        let is_degraded =
            why.contains("space tank/s is degraded: it survives the loss of 0 more disks instead of 1");
        assert_eq!(is_degraded, !is_alone, "{why}");
    }
}

/// Scenario: a disk is gone under two spaces; later the pool has too few disks to open. The status lists each finding with its code and
/// its object, whatever `why` puts together.
#[test]
fn the_status_lists_findings_for_programs() {
    let mut world = tank(3);
    assert_eq!(world.get("/v1/status")["findings"], json!([]));
    ["a", "b"].iter().for_each(|name| fill(space(&world, name, "mirror", 16), 16));
    let found = |world: &World| -> Vec<String> {
        let status = world.get("/v1/status");
        let findings = status["findings"].as_array().unwrap().iter();
        let mut found: Vec<String> = findings
            .map(|one| format!("{} {} {}", one["code"], one["object"]["pool"], one["object"]["name"]))
            .collect();
        found.sort();
        found
    };
    world.kill();
    std::fs::remove_file(world.disk("d1")).unwrap();
    world.start();
    let with_absent = found(&world);
    for expected in
        [r#""disk_absent" "tank" "1""#, r#""space_degraded" "tank" "a""#, r#""space_degraded" "tank" "b""#]
    {
        assert_eq!(with_absent.iter().filter(|one| *one == expected).count(), 1, "{with_absent:?}");
    }
    world.kill();
    ["d0", "d2"].iter().for_each(|name| std::fs::remove_file(world.disk(name)).unwrap());
    world.start();
    assert_eq!(found(&world), [r#""pool_not_open" "tank" "tank""#]);
}

/// Scenario: a thin space meets the end of its pool. The status says that writes fail, what that means for a file system, and names
/// each way to room: a purge, a disk, and deleted files whose room is given back.
#[test]
fn a_thin_space_at_the_end_of_its_pool_is_described_in_plain_words() {
    let world = tank(2);
    let mut client = space(&world, "thin", "mirror", 1024);
    let failed = (0..1024).find(|at| client.try_write(at * MIB, &pattern(7, 1 << 20)) != 0);
    assert!(failed.is_some_and(|at| at > 64), "{failed:?}");
    let status = world.get("/v1/status");
    let (why, todo) = (lines(&status, "why"), lines(&status, "todo"));
    assert!(why.contains("thin space tank/thin has met the end of pool tank"), "{why}");
    assert!(why.contains("writes to what was never written fail now"), "{why}");
    assert!(why.contains("a file system there can lose files that it has not flushed"), "{why}");
    assert!(todo.contains("add a disk to pool tank") && todo.contains("`fstrim MOUNT`"), "{todo}");
    let text = status["summary"].as_str().unwrap_or_default();
    assert!(!text.contains("nothing is lost") || text.contains("flushed"), "{text}");
}
