//! History of pools, spaces and disks: over a daemon that is killed, over an export, and what is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::client::{Nbd, World, eventually, pattern};

#[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
fn wait(seconds: u64) {
    std::thread::sleep(Duration::from_secs(seconds));
}

fn points(world: &World, query: &str) -> Vec<Value> {
    let history = world.get(&format!("/v1/pools/tank/history?step_s=10{query}"));
    assert_eq!(history["step_s"], 10, "{history}");
    history["points"].as_array().unwrap().clone()
}

fn sum(points: &[Value], of: impl Fn(&Value) -> &Value) -> u64 {
    points.iter().map(|point| of(point).as_u64().unwrap()).sum()
}

/// The pool is sampled once more at least.
fn sampled(world: &World) {
    let before = points(world, "").last().map(|point| point["at_s"].clone());
    eventually("a sample", || {
        let last = points(world, "").last()?["at_s"].clone();
        (Some(&last) != before.as_ref()).then_some(())
    });
}

/// Writes without an end, and counts what is done.
#[allow(
    clippy::disallowed_methods,
    reason = "the daemon under test lives in real time, and this client beside the test"
)]
fn keep_writing(
    mut client: Nbd,
    is_over: &Arc<AtomicBool>,
    done: &Arc<AtomicU64>,
) -> std::thread::JoinHandle<()> {
    let (is_over, done) = (Arc::clone(is_over), Arc::clone(done));
    std::thread::spawn(move || {
        let data = pattern(5, 64 << 10);
        for nth in 0_u64.. {
            let written = client.asked(1, nth % 64 * (64 << 10), data.len(), &data, &mut []);
            if is_over.load(Ordering::Relaxed) || written.is_err() {
                return;
            }
            done.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(20));
        }
    })
}

#[test]
fn a_killed_daemon_loses_ten_seconds_and_a_pool_takes_its_history_along() {
    // Scenario: a client writes for 80 seconds, in which history is saved once, and the daemon is killed. The next one knows all but
    // the last ten seconds, of the pool, its space and its disks. Then the pool is exported, and another daemon imports it: what it
    // knows of before is the same. It is imported for reading: it shows the same, and records nothing.
    let mut world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let (is_over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let began_s = now_s();
    let writing = keep_writing(world.nbd(), &is_over, &done);
    wait(68);
    let done_before = done.load(Ordering::Relaxed);
    wait(12);
    world.kill();
    let (ended_s, done_in_all) = (now_s(), done.load(Ordering::Relaxed));
    is_over.store(true, Ordering::Relaxed);
    writing.join().unwrap();
    world.start();
    eventually("the pool has history", || (!points(&world, "").is_empty()).then_some(()));
    for (of, copies) in [("", 1), ("&of=space&name=m", 1), ("&of=disk&name=0", 1), ("&of=disk&name=1", 1)] {
        let found = points(&world, of);
        let before: Vec<Value> =
            found.into_iter().filter(|point| point["at_s"].as_u64().unwrap() < ended_s).collect();
        let covered_s = sum(&before, |point| &point["covered_s"]);
        assert!(covered_s + 11 >= ended_s - began_s, "{covered_s} of {} seconds{of}", ended_s - began_s);
        let bytes = sum(&before, |point| &point["writes"]["bytes"]);
        assert!(bytes >= copies * (done_before << 16), "{bytes} bytes of {done_before} writes{of}");
        let times = before.iter().map(|point| point["at_s"].as_u64().unwrap());
        assert!(times.clone().zip(times.skip(1)).all(|(one, next)| next - one <= 20), "{before:?}");
    }
    let writes = sum(&points(&world, "&of=space&name=m"), |point| &point["writes"]["count"]);
    assert!((done_before..=done_in_all + 1).contains(&writes), "{done_before} {writes} {done_in_all}");
    sampled(&world);
    world.post("/v1/pools/tank/spaces/m/unserve", &json!({}));
    let kept = points(&world, "&of=space&name=m");
    world.post("/v1/pools/tank/export", &json!({}));
    let exported_s = now_s();
    let other = World::new(0);
    let import = json!({"paths": [world.disk("d0"), world.disk("d1")]});
    other.post("/v1/pools/import", &import);
    eventually("history is loaded", || (!points(&other, "").is_empty()).then_some(()));
    let moved = points(&other, "&of=space&name=m");
    assert_eq!(moved[..kept.len() - 1], kept[..kept.len() - 1]);
    let covered_s = sum(&moved, |point| &point["covered_s"]);
    assert!(covered_s + 16 >= exported_s - began_s, "{covered_s} of {}", exported_s - began_s);
    sampled(&other);
    assert!(points(&other, "").last().unwrap()["at_s"].as_u64().unwrap() + 10 >= exported_s);
    other.post("/v1/pools/tank/export", &json!({}));
    let read = json!({"paths": [world.disk("d0"), world.disk("d1")], "mode": "read"});
    other.post("/v1/pools/import", &read);
    let history = other.get("/v1/pools/tank/history?of=space&name=m&step_s=10");
    assert_eq!(history["points"].as_array().unwrap()[..moved.len() - 1], moved[..moved.len() - 1]);
    let problem = history["problem"].as_str().unwrap();
    assert!(problem.contains("for reading only"), "{problem}");
    assert_eq!(other.get("/v1/pools/tank")["pool"]["history_problem"], problem);
}

#[test]
fn history_of_nothing_and_of_nonsense_is_refused_by_name() {
    // Scenario: a new pool. Its fill is unknown; questions that make no sense are refused, each with what is wrong.
    let world = World::new(2);
    world.make_tank(&["d0", "d1"]);
    let pool = world.get("/v1/pools/tank")["pool"].clone();
    assert_eq!((&pool["fill"]["state"], &pool["fill"]["full_at_s"]), (&json!("unknown"), &Value::Null));
    assert_eq!(pool["history_problem"], Value::Null);
    let history = world.get("/v1/pools/tank/history");
    assert_eq!(
        (&history["of"], &history["name"], &history["step_s"]),
        (&json!("pool"), &json!("tank"), &json!(10))
    );
    assert_eq!(world.get("/v1/pools/tank/history?from_s=0")["step_s"], 86_400);
    for (query, code, reported) in [
        ("of=space", "bad_request", "no name of one was given"),
        ("of=disk", "bad_request", "no name of one was given"),
        ("name=m", "bad_request", "the name m as well"),
        ("of=volume&name=m", "bad_request", "`of` is pool, space or disk"),
        ("of=space&name=n", "no_such_space", "n"),
        ("of=disk&name=7", "no_such_disk", "7"),
        ("from_s=20&to_s=10", "bad_request", "ends before it begins"),
        ("from_s=0&to_s=100000&step_s=1", "bad_request", "10000 points of 10 seconds"),
        ("from_s=yesterday", "bad_request", "cannot be read"),
        ("from_s=-1", "bad_request", "cannot be read"),
        ("until=7", "bad_request", "unknown field"),
    ] {
        let (status, answer) = world.try_ask("GET", &format!("/v1/pools/tank/history?{query}"), b"").unwrap();
        assert!((400..500).contains(&status), "{query}: {answer}");
        assert_eq!(answer["error"]["code"], code, "{query}: {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(reported), "{query}: {answer}");
    }
    let (_, answer) = world.try_ask("GET", "/v1/pools/pond/history", b"").unwrap();
    assert_eq!(answer["error"]["code"], "no_such_pool");
}
