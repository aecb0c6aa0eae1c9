//! What spaces and disks do, as it is shown.

use std::sync::atomic::{AtomicU64, Ordering};

use dolmen_api::ExitCode;
use serde_json::{Value, json};

use super::fake::{Fake, NOBODY, answer, obey};

fn io(count: u64, bytes: u64, up_to_us: u64) -> Value {
    let latency = if count > 0 { json!([{"up_to_us": up_to_us, "count": count}]) } else { json!([]) };
    json!({"count": count, "bytes": bytes, "total_us": count * up_to_us, "latency": latency})
}

/// A daemon that runs for so many seconds, each of which brought as much.
fn figures(seconds: u64) -> Value {
    let us = seconds * 1_000_000;
    let space = json!({"since_us": 0, "under_way": 1, "queue_us": us * 3 / 2, "busy_us": us / 4, "errors": 0,
        "reads": io(120 * seconds, (120 * seconds) << 12, 850), "writes": io(2 * seconds, (2 * seconds) << 20, 12_287),
        "discards": io(0, 0, 0), "flushes": io(seconds, 0, 20_479)});
    let idle = json!({"since_us": 0, "under_way": 0, "queue_us": 0, "busy_us": 0, "errors": 0, "reads": io(0, 0, 0),
        "writes": io(0, 0, 0), "discards": io(0, 0, 0), "flushes": io(0, 0, 0)});
    json!({"schema": 1, "run": "7-1", "at_us": us,
        "spaces": [{"pool": "tank", "name": "idle", "load": idle}, {"pool": "tank", "name": "x", "load": space}],
        "disks": [{"pool": "tank", "slot": 0, "id": "0a0b0c0d-0405", "name": "/disks/a", "load": space},
            {"pool": "tank", "slot": 1, "id": "1a0b0c0d-0405", "name": "/disks/b", "load": idle}]})
}

fn fake() -> Fake {
    let looks = AtomicU64::new(0);
    Fake::play(move |line, _| match line {
        "GET /v1/figures" => answer(200, &figures(10 * (1 + looks.fetch_add(1, Ordering::Relaxed)))),
        _ => answer(200, &json!({"schema": 1, "daemon": "0.1.0", "api": 1})),
    })
}

#[test]
fn a_report_has_spaces_and_disks_a_line_each() {
    let ended = fake().run("iostat", &NOBODY);
    assert_eq!(
        (ended.code, ended.results.as_str(), ended.messages.as_str()),
        (
            ExitCode::Ok,
            "\
SPACE      R/S   W/S   READ/S  WRITE/S  QUEUE  BUSY   R AVG   R P99    W AVG    W P99   F/S    F P99
tank/idle    0     0      0 B      0 B      0   0 %
tank/x     120  2.00  480 KiB    2 MiB   1.50  25 %  850 µs  850 µs  12.3 ms  12.3 ms  1.00  20.5 ms

DISK    R/S   W/S   READ/S  WRITE/S  QUEUE  BUSY   R AVG   R P99    W AVG    W P99   F/S    F P99  PATH
tank/0  120  2.00  480 KiB    2 MiB   1.50  25 %  850 µs  850 µs  12.3 ms  12.3 ms  1.00  20.5 ms  /disks/a
tank/1    0     0      0 B      0 B      0   0 %                                                   /disks/b
",
            ""
        )
    );
}

#[test]
fn reports_for_programs_are_a_document_a_line_about_what_was_named() {
    let ended = fake().run("-o json iostat tank/x 1 2", &NOBODY);
    let lines: Vec<Value> = ended.results.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{}", ended.results);
    for line in lines {
        let [space] = &line["spaces"].as_array().unwrap()[..] else { panic!("{line}") };
        assert_eq!(
            (&space["name"], &space["seconds"], &space["reads"]["count"]),
            (&json!("tank/x"), &json!(10.0), &json!(1200))
        );
        assert_eq!(space["writes"]["latency"]["p999_us"], 12_287);
        assert_eq!((&line["schema"], &line["disks"]), (&json!(1), &json!([])));
    }
}

/// Options of every command stand behind objects and numbers as well; numbers that make no sense are refused as such there.
#[test]
fn options_come_after_the_subject_of_a_report() {
    for line in ["iostat tank/x -o json", "iostat tank/x 1 1 -o json", "iostat -o json tank/x"] {
        let ended = fake().run(line, &NOBODY);
        assert_eq!(ended.code, ExitCode::Ok, "{line}: {}", ended.messages);
        let report: Value = serde_json::from_str(ended.results.trim_end()).unwrap();
        assert_eq!(report["spaces"][0]["name"], "tank/x", "{line}");
    }
    let help = crate::arguments::parse::parse(["dolmen", "iostat", "tank", "--help"]).unwrap_err();
    assert_eq!(help.kind(), clap::error::ErrorKind::DisplayHelp);
    let unknown = crate::arguments::parse::parse(["dolmen", "iostat", "tank", "--colour"]).unwrap_err();
    assert!(unknown.to_string().contains("unexpected argument '--colour'"), "{unknown}");
    let ended = fake().run("iostat tank -1", &NOBODY);
    assert!(ended.messages.contains("not -1"), "{}", ended.messages);
}

#[test]
fn what_has_no_figures_is_named() {
    for (line, name) in [("iostat tank tank/y 1", "tank/y"), ("top /disks/c", "/disks/c")] {
        let ended = fake().run(line, &NOBODY);
        assert_eq!((ended.code, ended.results.as_str()), (ExitCode::Usage, ""), "{line}");
        assert!(ended.messages.starts_with(&format!("dolmen: {name} is no open pool")), "{}", ended.messages);
    }
}

/// A name and limits in one line: what cannot be done is refused before anything is, and the name comes last, because the path of
/// the space goes by it.
#[test]
fn limits_are_set_before_a_name_and_both_are_asked_for_first() {
    let fake = Fake::play(|_, body| obey(body));
    let ended = fake.run("space set tank/x --name y --iops-max 100 --rate-min none --rate-max 1M", &NOBODY);
    assert_eq!(ended.code, ExitCode::Ok, "{}", ended.messages);
    let asked: Vec<(String, bool)> = fake
        .asked()
        .into_iter()
        .map(|question| (question.line, question.body["dry_run"] == json!(true)))
        .collect();
    let (rename, limits) = ("POST /v1/pools/tank/spaces/x/rename", "POST /v1/pools/tank/spaces/x/limits");
    assert_eq!(
        asked,
        [(rename, true), (limits, false), (rename, false)].map(|(line, dry)| (line.to_owned(), dry))
    );
    let body = &fake.acts()[0].body;
    let sent = json!({"iops_max": 100, "iops_min": null, "bytes_per_s_max": 1 << 20, "bytes_per_s_min": 0, "dry_run": false});
    assert_eq!(body, &sent);
}
