//! Live data.

use std::io::{BufRead, BufReader, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use crate::client::{Tls, Web, eventually};
use crate::fake_daemon::FakeDaemon;

/// A daemon whose status says of itself how often it was asked, and whose health is what a number says.
fn daemon(health: &Arc<AtomicU64>) -> FakeDaemon {
    let (health, asked) = (Arc::clone(health), AtomicU64::new(0));
    FakeDaemon::answering(move |path| {
        let asked = asked.fetch_add(1, Ordering::Relaxed);
        let health = health.load(Ordering::Relaxed);
        let document = match path.split('?').next().unwrap() {
            "/v1/status" => json!({"schema": 1, "uptime_s": asked, "health": health}),
            "/v1/events" => json!({"schema": 1, "events": [], "last": health + 1, "now_s": asked}),
            "/v1/figures" => json!({"schema": 1, "at_us": asked}),
            _ => json!({"schema": 1, "jobs": []}),
        };
        (200, document.to_string())
    })
}

fn listen(web: &Web, headers: &str) -> BufReader<Tls> {
    let mut stream = web.connect();
    stream.write_all(format!("GET /api/v1/stream HTTP/1.1\r\nhost: h\r\n{headers}\r\n").as_bytes()).unwrap();
    stream.flush().unwrap();
    BufReader::new(stream)
}

/// The next event's name and data; none at the end.
fn next(stream: &mut BufReader<Tls>) -> Option<(String, String)> {
    let mut name = None;
    loop {
        let mut line = String::new();
        match stream.read_line(&mut line) {
            Ok(1..) => {}
            Ok(0) | Err(_) => return None,
        }
        if let Some(found) = line.strip_prefix("event: ") {
            name = Some(found.trim_end().to_owned());
        }
        if let (Some(data), Some(name)) =
            (line.strip_prefix("data: "), name.take_if(|_| line.starts_with("data: ")))
        {
            return Some((name, data.trim_end().to_owned()));
        }
    }
}

/// Scenario: two consoles look on, one after the other. Each gets all documents first; then figures, and what has changed.
#[test]
fn a_listener_gets_everything_first_and_then_what_changes() {
    let health = Arc::default();
    let daemon = daemon(&health);
    let web = Web::new(daemon.socket());
    assert_eq!(web.get("/api/v1/stream", "").status, 401);
    let mut streams = Vec::new();
    for name in ["one", "two"] {
        let mut stream = listen(&web, &web.token(name, "viewer"));
        let mut first: Vec<String> = (0..4).map(|_| next(&mut stream).unwrap().0).collect();
        first.sort();
        assert_eq!(first, ["events", "figures", "jobs", "status"], "{name}");
        streams.push(stream);
    }
    assert_eq!(next(&mut streams[1]).unwrap().0, "figures", "nothing has changed");
    health.store(7, Ordering::Relaxed);
    for stream in &mut streams {
        let mut found = Vec::new();
        while !(found.contains(&"status".to_owned()) && found.contains(&"events".to_owned())) {
            let (name, data) = next(stream).unwrap();
            assert!(
                name != "status" || data.contains("\"health\":7") || data.contains("\"health\":0"),
                "{data}"
            );
            if name != "status" || data.contains("\"health\":7") {
                found.push(name);
            }
        }
        assert!(!found.contains(&"jobs".to_owned()), "{found:?}");
    }
    assert!(daemon.take().iter().all(|seen| seen.role == "viewer"));
    drop(streams);
    eventually("the daemon is left alone when none looks on", || {
        #[allow(clippy::disallowed_methods, reason = "two looks of the server have to pass")]
        std::thread::sleep(std::time::Duration::from_millis(2500));
        daemon.take().is_empty().then_some(())
    });
}

/// Scenario: a session ends, a token is removed, a role is lowered, each while its stream is open. The streams end.
#[test]
fn a_stream_ends_with_what_admitted_it() {
    let health = Arc::default();
    let daemon = daemon(&health);
    let web = Web::new(daemon.socket());
    web.add_user("anna", "admin");
    web.add_user("ben", "admin");
    let [anna, ben, token] = [web.sign_in("anna"), web.sign_in("ben"), web.token("t", "viewer")];
    let mut streams = [&anna, &ben, &token].map(|headers| listen(&web, headers));
    for stream in &mut streams {
        next(stream).unwrap();
    }
    web.post("/account/sign-out", &anna, &json!({}));
    web.run(&["user", "role", "ben", "viewer"], "");
    web.run(&["token", "remove", "t"], "");
    for stream in &mut streams {
        // Figures come every second, so a stream that goes on is told from one that ends.
        assert!((0..60).any(|_| next(stream).is_none()), "the stream goes on");
    }
    assert_eq!(web.get("/account", &ben).json()["role"], "viewer", "the session goes on with its new role");
}

/// Scenario: more consoles look on than are served. The others are refused until one leaves.
#[test]
fn listeners_are_bounded() {
    let health = Arc::default();
    let daemon = daemon(&health);
    let web = Web::new(daemon.socket());
    let tokens = ["a", "b", "c", "d", "e", "f", "g", "h", "t"].map(|name| web.token(name, "viewer"));
    let [held @ .., token] = &tokens;
    let mut streams: Vec<_> =
        held.iter().flat_map(|token| [token; 4]).map(|token| listen(&web, token)).collect();
    for stream in &mut streams {
        next(stream).unwrap();
    }
    assert_eq!(web.get("/api/v1/stream", token).status, 503);
    streams.pop();
    eventually("a place is free again", || {
        let mut stream = listen(&web, token);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        line.starts_with("HTTP/1.1 200").then_some(())
    });
}

/// Scenario: the daemon does not run. The stream says so in place of the status.
#[test]
fn a_daemon_that_is_away_is_an_event() {
    let web = Web::alone();
    let mut stream = listen(&web, &web.token("t", "viewer"));
    let (name, data) = next(&mut stream).unwrap();
    assert_eq!(name, "status");
    assert!(data.contains("\"error\""), "{data}");
}

/// Scenario: a token opens stream after stream. It gets four; another token and a session still get theirs, and so does it when one
/// of its own has ended.
#[test]
fn one_token_takes_no_stream_of_the_others() {
    let daemon = daemon(&Arc::default());
    let web = Web::new(daemon.socket());
    web.add_user("anna", "viewer");
    let (token, other) = (web.token("one", "viewer"), web.token("two", "viewer"));
    let mut streams: Vec<_> = (0..4).map(|_| listen(&web, &token)).collect();
    streams.iter_mut().for_each(|stream| assert!(next(stream).is_some()));
    let answer = web.get("/api/v1/stream", &token);
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (503, Some("busy")), "{answer:?}");
    for who in [other, web.sign_in("anna")] {
        assert!(next(&mut listen(&web, &who)).is_some());
    }
    drop(streams.pop());
    eventually("a place is free again", || next(&mut listen(&web, &token)));
}
