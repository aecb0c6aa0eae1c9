//! Room that is reserved for a thin space (docs/design/0024), against the real daemon.

use serde_json::json;

use crate::client::{World, pattern};

const PATH: &str = "/v1/pools/tank/spaces/m/reserve";
const ROW: u64 = 1 << 20;
/// What a write is told that finds no room.
const NO_SPACE: u32 = 28;

/// Thin spaces that take all that the pool has.
fn crowd(world: &World) {
    let room = world.get("/v1/pools/tank")["pool"]["data_bytes"].as_u64().unwrap();
    let space = json!({"name": "crowd", "size_bytes": room, "resiliency": "simple", "row_bytes": 1 << 20});
    world.post("/v1/pools/tank/spaces", &space);
    world.post("/v1/pools/tank/spaces/crowd/serve", &json!({}));
    let mut client = crate::client::Nbd::connect(&world.folder.path().join("run/nbd.sock"), "tank/crowd");
    let block = pattern(9, 4096);
    let taken = (0..room / ROW).take_while(|row| client.try_write(row * ROW, &block) == 0).count();
    assert!(taken > 50 && (taken as u64) < room / ROW, "{taken} rows");
}

#[test]
fn what_is_reserved_can_be_written_in_a_full_pool_over_kills_and_exports() {
    // Scenario: 8 MiB are reserved for a thin space of 32 MiB, first as a dry run; another space takes all else. The daemon is
    // killed. Eight rows of it can be written, the ninth cannot; what is discarded can be written elsewhere, also behind an
    // export. What cannot be reserved is refused and changes nothing.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    for (bytes, code, reported) in [
        (33u64 << 20, "bad_size", "32 MiB at most: it is no larger"),
        (u64::MAX, "bad_size", "it is no larger"),
    ] {
        for dry_run in [true, false] {
            let refused = world.refused(PATH, &json!({"bytes": bytes, "dry_run": dry_run}));
            let message = refused["message"].as_str().unwrap();
            assert!(refused["code"] == code && message.contains(reported), "{refused}");
            assert!(message.contains("nothing was changed"), "{refused}");
        }
    }
    let plan = world.post(PATH, &json!({"bytes": 8 << 20, "dry_run": true}));
    let space = || world.get("/v1/pools/tank/spaces/m")["space"].clone();
    assert_eq!((&plan["is_changed"], &space()["claimed_bytes"]), (&json!(false), &json!(0)));
    let made = world.post(PATH, &json!({"bytes": 8 << 20}));
    assert_eq!(plan["plan"], made["plan"]);
    assert_eq!(made["plan"]["undo"], "dolmen space set tank/m --reserve none");
    let kept = (json!(8 << 20), json!(8 << 20), json!(8 << 20));
    let of = |space: &serde_json::Value| {
        ["reserve_bytes", "reserve_unused_bytes", "claimed_bytes"].map(|name| space[name].clone())
    };
    assert_eq!(of(&space()), [kept.0.clone(), kept.1.clone(), kept.2.clone()]);
    crowd(&world);
    world.kill();
    world.start();
    let space = |world: &World| world.get("/v1/pools/tank/spaces/m")["space"].clone();
    assert_eq!(of(&space(&world)), [kept.0, kept.1, kept.2]);
    let why = world.get("/v1/status")["why"].to_string();
    assert!(why.contains("thin space tank/crowd has met the end") && !why.contains("tank/m"), "{why}");
    let mut client = world.nbd();
    let reported: Vec<u32> =
        (0..9).map(|nth| client.try_write((31 - 3 * nth) * ROW, &pattern(1, 4096))).collect();
    assert_eq!(reported, [vec![0; 8], vec![NO_SPACE]].concat());
    client.trim(31 * ROW, usize::try_from(ROW).unwrap());
    client.flush();
    drop(client);
    assert_eq!(space(&world)["claimed_bytes"], 8 << 20);
    for name in ["m", "crowd"] {
        world.post(&format!("/v1/pools/tank/spaces/{name}/unserve"), &json!({}));
    }
    world.post("/v1/pools/tank/export", &json!({}));
    world.post("/v1/pools/import", &json!({"paths": [world.disk("d0"), world.disk("d1")]}));
    world.post("/v1/pools/tank/spaces/m/serve", &json!({}));
    let mut client = world.nbd();
    assert_eq!(client.try_write(0, &pattern(2, 4096)), 0);
    assert_eq!(client.try_write(ROW, &pattern(2, 4096)), NO_SPACE);
    assert!(client.read(28 * ROW, 4096) == pattern(1, 4096) && client.read(31 * ROW, 4096) == vec![0; 4096]);
    let more = world.refused(PATH, &json!({"bytes": 9 << 20}));
    assert!(more["message"].as_str().unwrap().contains("nothing more is free for it"), "{more}");
    let none = world.post(PATH, &json!({"bytes": 0}));
    assert_eq!(none["space"]["claimed_bytes"], 8 << 20, "what is written stays");
    assert_eq!(world.post(PATH, &json!({"bytes": 0}))["is_changed"], false);
}
