//! No daemon, another daemon, something that is no daemon.

use std::time::Duration;

use dolmen_api::ExitCode;
use serde_json::{Value, json};

use super::fake::{Fake, NOBODY, Reply, answer, obey, run};
use crate::http::{Method, Peer};

#[test]
fn without_a_daemon_the_message_says_how_to_start_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api");
    let ended = run(&["dolmen", "--socket", path.to_str().unwrap()], &NOBODY);
    assert_eq!(ended.code, ExitCode::Busy);
    assert_eq!(ended.results, "");
    assert!(ended.messages.starts_with("dolmen: the dolmen daemon does not run: nothing listens at "));
    assert!(ended.messages.contains("\nhint: start it as root with `dolmen daemon`,"), "{}", ended.messages);
    // A socket that a killed daemon left behind is the same to a user.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert_eq!(run(&["dolmen", "--socket", path.to_str().unwrap()], &NOBODY).code, ExitCode::Busy);
    let long = format!("/{}", "x".repeat(200));
    assert_eq!(run(&["dolmen", "--socket", &long], &NOBODY).code, ExitCode::Config);
}

/// A newer daemon: it knows another API only, or other documents, or other words; its version is named where it says it.
#[test]
fn an_old_command_against_a_newer_daemon_says_so() {
    let newer = json!({"schema": 2, "daemon": "9.0.0", "api": 2});
    let status = json!({"schema": 1, "health": "radiant"});
    let no_route = json!({"schema": 2, "error": {"code": "no_such_route", "message": "no", "path": "/v1"}});
    for (code, body) in
        [(200, json!({"schema": 2})), (200, status), (404, no_route), (404, json!("gone")), (410, json!(0))]
    {
        let version = newer.clone();
        let fake = Fake::play(move |line, _| match line {
            "GET /v1/version" => answer(200, &version),
            _ => answer(code, &body),
        });
        let ended = fake.run("status", &NOBODY);
        assert_eq!(ended.code, ExitCode::Config, "{}", ended.messages);
        let expected = "dolmen: this dolmen 0.1.0 and the daemon 9.0.0 do not understand each other: ";
        assert!(ended.messages.starts_with(expected), "{}", ended.messages);
        assert!(ended.messages.contains("\nhint: use the command that was installed with the daemon"));
    }
}

/// A daemon without even `/v1/version`.
#[test]
fn a_daemon_that_says_nothing_of_itself_is_another_version_too() {
    let fake =
        Fake::play(|_, _| Reply::Bytes(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec()));
    let ended = fake.run("pool list", &NOBODY);
    assert_eq!(ended.code, ExitCode::Config);
    assert!(
        ended
            .messages
            .contains("and the daemon do not understand each other: the daemon does not know GET /v1/pools")
    );
}

/// An error code of a later version: the words are still shown, and the exit code follows from the status.
#[test]
fn an_unfamiliar_error_is_shown_in_the_daemons_words() {
    let body = json!({"schema": 1, "error": {"code": "too_sunny", "message": "resizing tank/x: the sun shines",
        "causes": ["no cloud"], "hint": "wait for the evening"}});
    let fake = Fake::play(move |_, _| answer(409, &body));
    let ended = fake.run("space resize tank/x 2G", &NOBODY);
    assert_eq!(ended.code, ExitCode::Busy);
    assert_eq!(
        ended.messages,
        "dolmen: resizing tank/x: the sun shines: no cloud\nhint: wait for the evening\n"
    );
}

/// An older daemon refuses what it does not know; the reason is its version, and nothing was done.
#[test]
fn an_older_daemon_is_named_when_it_refuses_a_request() {
    let fake = Fake::play(|line, _| match line {
        "GET /v1/version" => answer(200, &json!({"schema": 1, "daemon": "0.0.9", "api": 1})),
        _ => answer(
            400,
            &json!({"schema": 1, "error": {"code": "bad_request", "message": "unknown field `x`"}}),
        ),
    });
    let ended = fake.run("space resize tank/x 2G", &NOBODY);
    assert_eq!(ended.code, ExitCode::Usage);
    assert!(
        ended.messages.contains("hint: the daemon is version 0.0.9, this command 0.1.0"),
        "{}",
        ended.messages
    );
}

/// Errors have the exit code of their kind, for people and for programs.
#[test]
fn errors_of_the_daemon_keep_their_code_and_advice() {
    for (status, code, exit) in [
        (404, "no_such_pool", ExitCode::Usage),
        (409, "busy", ExitCode::Busy),
        (412, "needs_confirmation", ExitCode::Refused),
        (409, "no_space", ExitCode::Io),
        (403, "permission", ExitCode::Permission),
        (422, "missing", ExitCode::Missing),
    ] {
        let body = json!({"schema": 1, "error": {"code": code, "message": "m", "causes": ["c1", "c2"], "hint": "h", "object": null}});
        let played = body.clone();
        let fake = Fake::play(move |_, _| answer(status, &played));
        let ended = fake.run("pool export tank", &NOBODY);
        assert_eq!((ended.code, ended.messages.as_str()), (exit, "dolmen: m: c1: c2\nhint: h\n"));
        let ended = fake.run("pool export tank -o json", &NOBODY);
        assert_eq!(serde_json::from_str::<Value>(&ended.results).unwrap(), body);
    }
}

/// An error of this side looks the same to programs.
#[test]
fn errors_of_the_command_are_documents_too() {
    let ended = run(&["dolmen", "--socket", "/nowhere/at/all", "-o", "json"], &NOBODY);
    let document: Value = serde_json::from_str(&ended.results).unwrap();
    assert_eq!(document["schema"], 1);
    assert_eq!(document["error"]["code"], "busy");
    let fake = Fake::play(|_, body| obey(body));
    let ended = fake.run("pool destroy tank -o json", &NOBODY);
    let document: Value = serde_json::from_str(&ended.results).unwrap();
    assert_eq!(document["error"]["code"], "needs_confirmation");
}

/// Whatever listens there, the command ends with an error that says what was wrong; it never panics or hangs.
#[test]
fn broken_answers_are_distinguished() {
    let head = |rest: &str| format!("HTTP/1.1 200 OK\r\n{rest}");
    let cases = [
        ("SSH-2.0-OpenSSH\r\n".to_owned(), ExitCode::Config, "does not speak the daemon's protocol"),
        ("HTTP/1.1 2xx OK\r\n\r\n".to_owned(), ExitCode::Config, "expected HTTP/1.1 and a status"),
        ("HTTP/1.1 999 OK\r\n\r\n".to_owned(), ExitCode::Config, "expected HTTP/1.1 and a status"),
        (String::new(), ExitCode::Io, "in the middle of its answer"),
        ("HTTP/1.1 200".to_owned(), ExitCode::Io, "in the middle of its answer"),
        (head("Content-Length: 100\r\n\r\n{}"), ExitCode::Io, "2 of 100 bytes came"),
        (head("Content-Length: -1\r\n\r\n{}"), ExitCode::Config, "expected a length in bytes"),
        (head("Content-Length: 99999999999\r\n\r\n{}"), ExitCode::Io, "more than 67108864 bytes of body"),
        (head("no header\r\n\r\n"), ExitCode::Config, "expected a header"),
        (head(&"x: y\r\n".repeat(20_000)), ExitCode::Io, "more than 65536 bytes of headers"),
        (head("Transfer-Encoding: gzip\r\n\r\n"), ExitCode::Config, "expected a body of known length"),
        (head("Transfer-Encoding: chunked\r\n\r\nzz\r\n"), ExitCode::Config, "hexadecimal"),
        (
            head("Transfer-Encoding: chunked\r\n\r\n2\r\n{}{}\r\n0\r\n\r\n"),
            ExitCode::Config,
            "the end of a piece",
        ),
        (head("Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"), ExitCode::Io, "bytes of body"),
        (head("Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"), ExitCode::Io, "in the middle of its answer"),
        (
            head("Content-Length: 2\r\n\r\n{]"),
            ExitCode::Io,
            "the daemon's answer to GET /v1/status cannot be read",
        ),
        (head("Content-Length: 2\r\n\r\n{}"), ExitCode::Io, "cannot be read: missing field `schema`"),
    ];
    for (bytes, code, message) in cases {
        let stated = bytes.clone().into_bytes();
        let fake = Fake::play(move |_, _| Reply::Bytes(stated.clone()));
        let ended = fake.run("status", &NOBODY);
        assert_eq!(ended.code, code, "{bytes:.80?}: {}", ended.messages);
        assert!(ended.messages.contains(message), "{bytes:.80?}: {}", ended.messages);
    }
}

/// The same document, however the body is framed.
#[test]
fn bodies_are_read_however_their_end_is_marked() {
    for rest in [
        "Content-Length: 12\r\n\r\n{\"schema\":1}and more",
        "content-length:12\r\n\r\n{\"schema\":1}",
        "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\n{\"sch\r\n7\r\nema\":1}\r\n0\r\nTrailer: z\r\n\r\n",
        "\r\n{\"schema\":1}",
    ] {
        for before in ["", "HTTP/1.1 100 Continue\r\n\r\n"] {
            let stated = format!("{before}HTTP/1.1 200 OK\r\n{rest}").into_bytes();
            let fake = Fake::play(move |_, _| Reply::Bytes(stated.clone()));
            let peer = Peer { socket: fake.socket.clone(), limit: Duration::from_secs(10) };
            let answer = peer.ask(Method::Get, "/v1/x", None).unwrap();
            assert_eq!((answer.status, answer.body.as_slice()), (200, &b"{\"schema\":1}"[..]), "{rest}");
        }
    }
}

/// A daemon that hangs, before or in the middle of its answer.
#[test]
fn silence_ends_with_a_time_limit() {
    for stated in ["", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{"] {
        let fake = Fake::play(move |_, _| Reply::Silence(stated.as_bytes().to_vec()));
        let ended = fake.run("--timeout 1 pool export tank", &NOBODY);
        assert_eq!(ended.code, ExitCode::Busy);
        assert!(
            ended.messages.contains("did not answer within 1 s; what was asked may still be done"),
            "{}",
            ended.messages
        );
    }
}
