//! What is seen: events, codes.

use std::io::{self, Cursor, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use dolmen_api::ExitCode;
use serde_json::{Value, json};

use super::fake::{Fake, NOBODY, Reply, answer, refuse, run};
use crate::session::poll_interval::PollInterval;
use crate::terminal::out::{Kind, Out};
use crate::terminal::paint::Paint;

fn event(number: u64) -> Value {
    json!({"number": number, "at_s": 1_709_251_200 + number, "code": "trouble_began", "finding": "disk_absent",
        "object": {"kind": "disk", "pool": "tank", "name": "2"}, "text": format!("event {number}")})
}

fn events(numbers: std::ops::Range<u64>, last: u64, dropped: u64) -> Reply {
    let events: Vec<Value> = numbers.map(event).collect();
    answer(
        200,
        &json!({"schema": 1, "events": events, "last": last, "dropped": dropped, "now_s": 1_709_251_300u64}),
    )
}

/// Plays a daemon that answers by how often it was asked, and refuses in the end, which ends who follows.
fn in_sequence(answers: impl Fn(usize) -> Option<Reply> + Send + 'static) -> Fake {
    let count = AtomicUsize::new(0);
    let end = || refuse(400, "bad_request", "that was all", "events");
    Fake::play(move |line, _| match line {
        "GET /v1/version" => answer(200, &json!({"schema": 1, "daemon": "0.1.0", "api": 1})),
        _ => answers(count.fetch_add(1, Ordering::Relaxed)).unwrap_or_else(end),
    })
}

fn asked(fake: &Fake) -> Vec<String> {
    fake.asked().into_iter().map(|question| question.line).filter(|line| line.contains("/events")).collect()
}

/// Scenario: no daemon, then one with a disk that is absent. The first is a metric and an error; the second has all families, and the
/// room of the pools that are open.
#[test]
fn metrics_are_printed_and_a_daemon_that_does_not_answer_is_one() {
    let ended = run(&["dolmen", "--socket", "/nonexistent/api", "metrics"], &NOBODY);
    assert_ne!(ended.code, ExitCode::Ok);
    assert!(ended.results.contains("\ndolmen_up 0\n"), "{}", ended.results);
    let fake = Fake::play(|line, _| {
        let document = match line {
            "GET /v1/status" => {
                json!({"schema": 1, "health": "healthy", "summary": "", "why": [], "doing": [], "todo": [],
                "findings": [{"code": "disk_absent", "health": "warning", "object": {"kind": "disk", "pool": "tank", "name": "2"}, "text": "a"}],
                "version": {"schema": 1, "daemon": "0.1.0", "api": 1}, "uptime_s": 7, "pid": 1, "pools": [], "spaces": []})
            }
            "GET /v1/figures" => json!({"schema": 1, "run": "a", "at_us": 1, "spaces": [], "disks": []}),
            "GET /v1/counters" => {
                json!({"schema": 1, "driver": "io_uring", "messages": 1, "unparks": 1, "polls": 1, "fillings": 0, "pools": []})
            }
            "GET /v1/jobs" => json!({"schema": 1, "jobs": [], "now_s": 1}),
            "GET /v1/volumes" => json!({"schema": 1, "volumes": []}),
            _ => json!({"schema": 1, "daemon": "0.1.0", "api": 1}),
        };
        answer(200, &document)
    });
    let ended = fake.run("metrics", &NOBODY);
    assert_eq!(ended.code, ExitCode::Ok, "{}", ended.messages);
    for line in [
        "dolmen_up 1",
        "dolmen_uptime_seconds 7",
        "dolmen_engine_info{driver=\"io_uring\"} 1",
        "object=\"2\"} 1",
    ] {
        assert!(ended.results.contains(line), "{line}: {}", ended.results);
    }
}

/// Scenario: nothing is new at first; then two events come, one of them of another pool; then the daemon hangs up once and the next
/// one has more; then some are kept no more; then numbers begin again.
#[test]
fn a_follower_gets_each_event_once_and_gaps_are_reported() {
    let fake = in_sequence(|attempt| match attempt {
        0 => Some(events(1..3, 2, 0)),
        1 => Some(events(3..3, 2, 0)),
        2 => Some(events(3..4, 4, 0)),
        3 | 4 => Some(Reply::Bytes(Vec::new())),
        5 => Some(events(5..6, 5, 0)),
        6 => Some(events(9..10, 9, 3)),
        7 => Some(events(1..1, 1, 0)),
        8 => Some(events(1..2, 1, 0)),
        _ => None,
    });
    let ended = fake.run("events -f --pool tank --since 0", &NOBODY);
    let numbers: Vec<&str> =
        ended.results.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(numbers, ["1", "2", "3", "5", "9", "1"], "{}", ended.results);
    assert!(
        ended.results.starts_with("    1  2024-03-01 00:00:01Z  event 1 [disk_absent]\n"),
        "{}",
        ended.results
    );
    let path = |since| format!("GET /v1/events?pool=tank&since={since}");
    assert_eq!(asked(&fake), [0, 2, 2, 4, 4, 4, 5, 9, 0, 1].map(path));
    assert!(ended.messages.contains("warning: 3 events before these are kept no more"), "{}", ended.messages);
    assert!(ended.messages.contains("has begun again"), "{}", ended.messages);
    assert_eq!(ended.messages.matches("waiting for a daemon").count(), 1, "{}", ended.messages);
    assert_eq!(ended.code, ExitCode::Usage, "the end of this test");
}

#[test]
fn programs_get_the_documents_of_events() {
    let fake = in_sequence(|attempt| {
        (attempt < 3).then(|| if attempt == 1 { events(3..3, 2, 0) } else { events(1..3, 2, 0) })
    });
    let ended = fake.run("events -f -o json", &NOBODY);
    let documents: Vec<Value> =
        ended.results.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(documents.len(), 3, "an answer with nothing new is no line; the last is the error");
    assert_eq!(documents[0]["events"][1], event(2));
}

#[test]
fn a_code_is_explained_and_a_slip_is_answered_with_the_nearest() {
    let ended = run(&["dolmen", "explain", "disk_absent"], &NOBODY);
    assert!(
        ended.results.starts_with("disk_absent (finding)\n  means      A disk of the pool"),
        "{}",
        ended.results
    );
    for part in ["\n  by itself  Spaces go on", "\n  to do      Attach it and `dolmen disk online POOL DISK`"]
    {
        assert!(ended.results.contains(part), "{}", ended.results);
    }
    let all = run(&["dolmen", "explain"], &NOBODY);
    for word in ["disk_absent", "job_done", "no_such_pool", "what has happened:"] {
        assert!(all.results.contains(word), "{}", all.results);
    }
    let json = run(&["dolmen", "explain", "Disk-Absent", "-o", "json"], &NOBODY);
    let document: Value = serde_json::from_str(&json.results).unwrap();
    assert_eq!((&document["schema"], &document["codes"][0]["kind"]), (&json!(1), &json!("finding")));
    let slip = run(&["dolmen", "explain", "disk_abset"], &NOBODY);
    assert_eq!((slip.code, slip.results.as_str()), (ExitCode::Usage, ""));
    assert!(slip.messages.contains("hint: the nearest are disk_absent, "), "{}", slip.messages);
}

/// A reader who takes so many pieces and goes.
struct Reader {
    left: usize,
    text: Vec<u8>,
}

impl Write for Reader {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.left -= 1;
        self.text.extend(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a reader who takes so many pieces sees of a command, and how that ends.
fn seen(fake: &Fake, line: &str, kind: Kind, left: usize) -> (ExitCode, String) {
    let socket = fake.socket.to_str().unwrap();
    let words = ["dolmen", "--socket", socket].into_iter().chain(line.split_whitespace());
    let arguments = crate::arguments::parse::parse(words).unwrap();
    let mut reader = Reader { left, text: Vec::new() };
    let mut out = Out {
        results: &mut reader,
        results_kind: kind,
        messages: &mut Vec::new(),
        messages_kind: kind,
        answers: &mut Cursor::new(b""),
        answers_kind: kind,
        paint_results: Paint::Never,
        columns: None,
        is_unread: false,
        unwritten: None,
    };
    let code = crate::run(arguments, &mut out, PollInterval::USUAL);
    (code, String::from_utf8(reader.text).unwrap())
}

fn status(text: &str) -> Reply {
    answer(
        200,
        &json!({"schema": 1, "health": "healthy", "summary": text, "why": [], "doing": [], "todo": [],
        "version": {"schema": 1, "daemon": env!("CARGO_PKG_VERSION"), "api": 1}, "uptime_s": 5, "pid": 1,
        "pools": [], "spaces": []}),
    )
}

/// Scenario: the daemon is away for one look in between. A pipe gets a block for each look, a terminal is written over; who stops
/// reading ends it.
#[test]
fn a_watched_status_repeats_until_the_reader_closes() {
    let play = || {
        let count = AtomicUsize::new(0);
        Fake::play(move |line, _| match (line, count.load(Ordering::Relaxed)) {
            ("GET /v1/status", attempt) => {
                count.store(attempt + 1, Ordering::Relaxed);
                if attempt == 1 { Reply::Bytes(Vec::new()) } else { status(&format!("look {attempt}")) }
            }
            _ => refuse(404, "no_such_route", "there are no devices", "devices"),
        })
    };
    let (code, text) = seen(&play(), "-w 1", Kind::Plain, 3);
    assert_eq!(code, ExitCode::Ok);
    let blocks: Vec<&str> = text.split("--- ").skip(1).collect();
    assert_eq!(blocks.len(), 3, "{text}");
    for (block, reported) in blocks.iter().zip(["healthy: look 0\n\n", "dolmen: ", "healthy: look 2\n"]) {
        let (head, rest) = block.split_once('\n').unwrap();
        assert!(head.ends_with("Z, every 1 s"), "{head}");
        assert!(rest.starts_with(reported), "{rest}");
    }
    let (_, text) = seen(&play(), "status --watch 1", Kind::Terminal, 1);
    assert!(text.starts_with("\x1b[H") && text.ends_with("healthy: look 0\x1b[K\n\x1b[J"), "{text:?}");
    let (_, text) = seen(&play(), "status -w 1 -o json", Kind::Plain, 1);
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["summary"], "look 0");
}

/// What cannot be seen at all is an error, and no picture.
#[test]
fn a_watch_that_sees_nothing_at_first_ends_with_the_error() {
    let fake = Fake::play(|_, _| refuse(500, "internal", "it is broken", "status"));
    assert_eq!(fake.run("-w 1", &NOBODY).code, ExitCode::Internal);
}

/// Scenario: a space, a disk that it lacks, and what is known of the path. Causes stand below what they are the cause of; what to do
/// is told once although two things come from it.
#[test]
fn why_shows_a_chain_of_causes_down_to_what_to_do() {
    let disk = json!({"text": "/d2 of pool tank is absent", "code": "disk_absent", "since_s": 1_709_251_200u64,
        "todo": ["attach /d2"], "causes": [{"text": "there is nothing at /d2 any more"}]});
    let document = json!({"schema": 1, "object": {"kind": "pool", "pool": "tank", "name": "tank"}, "state": "pool tank has something to look at",
        "health": "warning", "doing": ["verifying pool tank (job 1, 5 %)"], "now_s": 1_709_251_260u64, "causes": [
            {"text": "space tank/x survives less", "code": "space_degraded", "causes": [disk]},
            {"text": "space tank/y survives less", "code": "space_degraded", "causes": [disk]}]});
    let fake = Fake::play(move |_, _| answer(200, &document));
    let ended = fake.run("why tank/x", &NOBODY);
    let of_disk = "    because /d2 of pool tank is absent, since 2024-03-01 00:00:00Z (1 min) [disk_absent]\n      \
                   because there is nothing at /d2 any more\n";
    let expected = format!(
        "pool tank has something to look at\n  because space tank/x survives less [space_degraded]\n{of_disk}      to do   attach /d2\n  \
         because space tank/y survives less [space_degraded]\n{of_disk}doing  verifying pool tank (job 1, 5 %)\n"
    );
    assert_eq!(ended.results, expected);
    assert_eq!(fake.asked()[0].line, "GET /v1/why/tank%2Fx");
}

#[test]
fn what_a_check_finds_is_explained_by_number_and_by_name() {
    for asked in ["D303", "d303", "lost"] {
        let ended = run(&["dolmen", "explain", asked], &NOBODY);
        assert_eq!(ended.code, ExitCode::Ok, "{}", ended.messages);
        assert!(ended.results.starts_with("lost (D303, check)\n"), "{asked}: {}", ended.results);
    }
    let all = run(&["dolmen", "explain"], &NOBODY);
    assert!(all.results.contains("D101 label_damaged"), "{}", all.results);
}
