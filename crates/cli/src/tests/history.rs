//! History, as it is shown.

use dolmen_api::ExitCode;
use serde_json::{Value, json};

use super::fake::{Fake, NOBODY, answer};

fn point(at_s: u64, writes: u64) -> Value {
    let none = json!({"count": 0, "bytes": 0, "per_s_min": 0, "per_s_max": 0, "bytes_per_s_min": 0, "bytes_per_s_max": 0});
    let mut written = none.clone();
    written["count"] = json!(writes);
    written["bytes"] = json!(writes << 20);
    written["p99_us"] = json!(1500);
    json!({"at_s": at_s, "covered_s": 60, "reads": none, "writes": written, "errors": 0, "busy_ms": 0, "queue_ms": 0,
        "used": {"min": 0, "mean": 1u64 << 30, "max": 1u64 << 30}, "waiting": {"min": 0, "mean": 0, "max": 0},
        "size_bytes": 1u64 << 31})
}

fn fake() -> Fake {
    Fake::play(|_, _| {
        let points: Vec<Value> =
            (0..5).filter(|nth| *nth != 2).map(|nth| point(1_700_000_040 + nth * 60, 60 * nth)).collect();
        answer(
            200,
            &json!({"schema": 1, "pool": "tank", "of": "space", "name": "home", "from_s": 1_700_000_040u64,
            "to_s": 1_700_000_339u64, "step_s": 60, "points": points}),
        )
    })
}

/// Scenario: five minutes of a space, of which the third was not recorded. The graphs have a gap there, and the table has no line.
#[test]
fn history_is_graphs_and_a_table_and_a_document_for_programs() {
    let fake = fake();
    let ended = fake.run("history tank --space home --last 1d", &NOBODY);
    assert_eq!((ended.code, ended.messages.as_str()), (ExitCode::Ok, ""));
    assert!(
        ended.results.starts_with("space tank/home: the last 4 min 59 s, in points of 1 min\n"),
        "{}",
        ended.results
    );
    assert!(ended.results.contains("▁▂ ▆█  4 MiB/s at most"), "{}", ended.results);
    let lines: Vec<&str> = ended.results.lines().filter(|line| line.starts_with("2023-11-14")).collect();
    assert_eq!(lines.len(), 4, "{}", ended.results);
    assert!(lines[3].contains("1.5 ms") && lines[3].contains("1 GiB"), "{}", lines[3]);
    let line = &fake.asked()[0].line;
    assert!(
        line.starts_with("GET /v1/pools/tank/history?from_s=") && line.ends_with("&name=home&of=space"),
        "{line}"
    );
    let ended = fake.run("-o json history tank --disk 3", &NOBODY);
    let document: Value = serde_json::from_str(&ended.results).unwrap();
    assert_eq!(document["points"].as_array().unwrap().len(), 4);
    assert!(fake.asked()[1].line.ends_with("&name=3&of=disk"), "{:?}", fake.asked());
}
