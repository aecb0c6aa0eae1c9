//! Reports of benchmarks that the daemon has run, as they are shown.

use dolmen_api::ExitCode;
use serde_json::{Value, json};

use super::fake::{Fake, NOBODY, answer};

fn report() -> Value {
    let figure = |value: f64| json!({"median": value, "least": value, "most": value, "spread_percent": 30.0});
    let place = json!({"profile": "database", "target": "tank/b", "flush": "every 32", "outstanding": 8});
    let mut point = place.clone();
    let figures = json!({"rounds": 5, "ios_per_s": figure(1234.0), "bytes_per_s": figure(80e6), "mean_ns": 1e6, "p50_ns": 1.5e6,
        "p95_ns": 2e6, "p99_ns": 3e6, "p999_ns": 4e6, "writes_per_flush": 31.5, "is_noisy": true});
    let mut comparison = place;
    let ratio = json!({"against": "tank/a", "ratio": {"median": 1.25, "least": 1.1, "most": 1.4, "verdict": "too_noisy"}});
    for (into, from) in [(&mut point, figures), (&mut comparison, ratio)] {
        into.as_object_mut().unwrap().extend(from.as_object().unwrap().clone());
    }
    let profile = json!({"name": "database", "title": "Database", "summary": "random", "reads_percent": 67});
    json!({"schema": 1, "job": 7, "file": "/f", "figures": {"is_complete": false, "started_s": 1, "runtime_s": 1, "rounds": 5,
        "warnings": ["the page cache"], "targets": [], "profiles": [profile], "points": [point], "knees": [], "comparisons": [comparison]}})
}

/// Scenario: no report, then two and a benchmark under way, then one report. Text for people, and the documents for programs.
#[test]
fn reports_of_benchmarks_are_listed_and_shown() {
    let list = |work: Value, reports: Value| json!({"schema": 1, "groups": [], "profiles": [], "work": work, "reports": reports});
    let fake = Fake::play(move |_, _| answer(200, &list(Value::Null, json!([]))));
    let ended = fake.run("bench --reports", &NOBODY);
    assert!(ended.code == ExitCode::Ok && ended.results.starts_with("no reports; "), "{ended:?}");
    let fake = Fake::play(move |_, _| {
        let line = |job: u64, whole: bool| {
            json!({"job": job, "spaces": ["tank/a", "tank/b"], "profiles": ["database"], "started_s": 1, "points": 12,
            "is_complete": whole})
        };
        let work = json!({"job": 9, "step": "round 1 of 5", "done": 3, "total": 20, "left_s": 8});
        answer(200, &list(work, json!([line(8, true), line(7, false)])))
    });
    let ended = fake.run("bench --reports", &NOBODY);
    let lines: Vec<&str> = ended.results.lines().collect();
    assert_eq!(lines[0], "job 9 measures, 3 of 20 done: round 1 of 5");
    assert!(
        lines[2].contains("8  tank/a, tank/b  database") && lines[3].ends_with("incomplete"),
        "{lines:?}"
    );
    let fake = Fake::play(|_, _| answer(200, &report()));
    let ended = fake.run("bench --report 7", &NOBODY);
    for needle in [
        "Database (database): random",
        "every 32",
        "1234",
        "31.5",
        "tank/b has 1.25 times tank/a: too noisy",
        "note: the page cache",
    ] {
        assert!(ended.results.contains(needle), "{needle}: {}", ended.results);
    }
    let ended = fake.run("-o json bench --report 7", &NOBODY);
    assert_eq!(serde_json::from_str::<Value>(&ended.results).unwrap(), report());
    let asked: Vec<String> = fake.asked().into_iter().map(|asked| asked.line).collect();
    assert_eq!(asked, ["GET /v1/benchmarks/7"; 2]);
}
