//! What the daemon counts of spaces and disks, and limits that it keeps to.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{World, pattern};

#[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
fn now() -> Instant {
    Instant::now()
}

/// Figures of a space, or of all disks together: how many of a kind, and bytes of them.
fn of_space(world: &World, name: &str, kind: &str) -> (u64, u64) {
    let figures = world.get("/v1/figures");
    let spaces = figures["spaces"].as_array().unwrap();
    let space = spaces.iter().find(|space| space["name"] == name).unwrap();
    numbers(&space["load"][kind])
}

fn numbers(line: &Value) -> (u64, u64) {
    let buckets = line["latency"].as_array().unwrap().iter();
    let counted: u64 = buckets.map(|bucket| bucket["count"].as_u64().unwrap()).sum();
    let count = line["count"].as_u64().unwrap();
    assert_eq!(counted, count, "each has a time: {line}");
    (count, line["bytes"].as_u64().unwrap())
}

fn of_disks(world: &World, kind: &str) -> Vec<(u64, u64)> {
    let figures = world.get("/v1/figures");
    figures["disks"].as_array().unwrap().iter().map(|disk| numbers(&disk["load"][kind])).collect()
}

#[test]
fn what_clients_ask_is_counted_exactly_and_disks_see_each_copy() {
    // Scenario: a mirror of two on two disks, and another space that nobody uses. Known writes, a flush, known reads; then the
    // daemon is killed, and the next one counts from nothing.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let idle = json!({"name": "idle", "size_bytes": 8 << 20, "resiliency": "mirror"});
    world.post("/v1/pools/tank/spaces", &idle);
    let before = of_disks(&world, "writes");
    let mut client = world.nbd();
    let began = ["reads", "writes", "flushes"].map(|kind| of_space(&world, "m", kind));
    for nth in 0..6 {
        client.write(nth << 20, &pattern(u8::try_from(nth).unwrap() + 1, 1 << 20));
    }
    client.flush();
    let since = |(count, bytes): (u64, u64), (count_before, bytes_before): (u64, u64)| {
        (count - count_before, bytes - bytes_before)
    };
    assert_eq!(since(of_space(&world, "m", "writes"), began[1]), (6, 6 << 20));
    assert_eq!(since(of_space(&world, "m", "flushes"), began[2]), (1, 0));
    for (after, before) in of_disks(&world, "writes").into_iter().zip(before) {
        let (count, bytes) = since(after, before);
        // All of the data, and some of log and tables.
        assert!(count >= 6 && (6 << 20..9 << 20).contains(&bytes), "{count} writes, {bytes} bytes");
    }
    let before = of_disks(&world, "reads");
    for nth in 0..40 {
        let at = nth * 8192 % (6 << 20);
        let whole = pattern(1, 1 << 20);
        let at_in = usize::try_from(at).unwrap();
        assert!(client.read(at, 4096) == whole[at_in..at_in + 4096]);
    }
    assert_eq!(since(of_space(&world, "m", "reads"), began[0]), (40, 40 * 4096));
    let read = of_disks(&world, "reads").into_iter().zip(before).map(|(after, before)| since(after, before));
    let read = read.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert_eq!(read, (40, 40 * 4096), "one copy of each");
    for kind in ["reads", "writes", "discards", "flushes"] {
        assert_eq!(of_space(&world, "idle", kind), (0, 0), "{kind}");
    }
    let run = world.get("/v1/figures")["run"].clone();
    drop(client);
    world.kill();
    world.start();
    assert_ne!(world.get("/v1/figures")["run"], run);
    assert_eq!(of_space(&world, "m", "writes"), (0, 0));
}

#[test]
fn limits_are_kept_over_a_kill_an_export_and_a_new_name_and_count_for_clients() {
    // Scenario: limits that make no sense are refused; those that do are set while a client is there, and hold it back. The
    // daemon is killed; the pool is exported and imported; then they are taken away, and nobody is held back.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let path = "/v1/pools/tank/spaces/m/limits";
    for (body, reported) in [
        (json!({"iops_min": 6, "iops_max": 5}), "has its minimum, 6, above its maximum, 5"),
        (
            json!({"bytes_per_s_min": 100 << 20, "bytes_per_s_max": 10 << 20}),
            "has its minimum, 100 MiB, above its maximum, 10 MiB",
        ),
        (json!({"bytes_per_s_max": 1000}), "is in whole KiB, not 1000 bytes"),
        (json!({"iops_max": 1u64 << 32}), "is 4294967295 at most"),
    ] {
        for dry_run in [true, false] {
            let mut body = body.clone();
            body["dry_run"] = json!(dry_run);
            let error = world.refused(path, &body);
            let message = error["message"].as_str().unwrap();
            assert!(message.contains(reported) && message.contains("nothing was changed"), "{error}");
        }
    }
    let limits = |world: &World| world.get("/v1/pools/tank/spaces/m")["space"]["limits"].clone();
    assert_eq!(limits(&world), Value::Null);
    let mut client = world.nbd();
    let request = json!({"iops_max": 20, "bytes_per_s_min": 1 << 20});
    let plan = world.post(path, &json!({"iops_max": 20, "bytes_per_s_min": 1 << 20, "dry_run": true}));
    assert_eq!((&plan["is_changed"], limits(&world)), (&json!(false), Value::Null));
    let made = world.post(path, &request);
    assert_eq!(plan["plan"], made["plan"]);
    assert_eq!(made["plan"]["undo"], "dolmen space set tank/m --iops-max none --rate-min none");
    let kept = json!({"iops_max": 20, "iops_min": null, "bytes_per_s_max": null, "bytes_per_s_min": 1 << 20});
    assert_eq!((&made["space"]["limits"], limits(&world)), (&kept, kept.clone()));
    // Two at once, and twenty a second: thirty-two take a second and a half.
    let took = |client: &mut crate::client::Nbd| {
        let began = now();
        (0..32).for_each(|nth| drop(client.read(nth * 4096, 4096)));
        began.elapsed()
    };
    let held = took(&mut client);
    assert!(held >= Duration::from_millis(1400), "{held:?}");
    drop(client);
    world.kill();
    world.start();
    assert_eq!(limits(&world), kept);
    let held = took(&mut world.nbd());
    assert!(held >= Duration::from_millis(1400), "{held:?} with the next daemon");
    world.post("/v1/pools/tank/spaces/m/unserve", &json!({}));
    world.post("/v1/pools/tank/export", &json!({}));
    world.post("/v1/pools/import", &json!({"paths": [world.disk("d0"), world.disk("d1")]}));
    assert_eq!(limits(&world), kept);
    world.post(path, &json!({"iops_max": 0, "bytes_per_s_min": 0}));
    assert_eq!(limits(&world), Value::Null);
    let again = world.post(path, &json!({"iops_max": 0}));
    assert_eq!(
        (&again["is_changed"], &again["message"]),
        (&json!(false), &json!("tank/m has no limits already"))
    );
}

#[test]
fn a_daemon_that_ends_does_not_wait_for_limits() {
    // Scenario: a client has asked for forty reads where its space may have one a second. The daemon is told to end, and does so
    // sooner than they would take.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    world.post("/v1/pools/tank/spaces/m/limits", &json!({"iops_max": 1}));
    let mut client = world.nbd();
    for _ in 0..40 {
        let request =
            [&0x2560_9513u32.to_be_bytes()[..], &[0; 4], &[7; 8], &[0; 8], &4096u32.to_be_bytes()].concat();
        client.stream.write_all(&request).unwrap();
    }
    client.stream.read_exact(&mut [0; 16]).unwrap();
    world.post("/v1/shutdown", &json!({}));
    assert!(world.ended().success());
}
