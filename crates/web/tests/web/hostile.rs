//! Clients that mean no good: too much, too slow, and paths that lead elsewhere.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::client::{Answer, Web, rest_of};
use crate::fake_daemon::FakeDaemon;

/// Scenario: paths that leave the folder of the console, or the verbs of the API, in several encodings. None is served, and none
/// reaches the daemon.
#[test]
fn paths_lead_to_nothing_but_what_is_served() {
    let daemon = FakeDaemon::new();
    let web = Web::new(daemon.socket());
    web.add_user("anna", "admin");
    let token = web.token("t", "admin");
    for path in [
        "/console/../accounts.json",
        "/console/%2e%2e/accounts.json",
        "/console/..%2faccounts.json",
        "/console/%2e%2e%2faccounts.json",
        "/console/..%5caccounts.json",
        "/console/%2fetc%2fpasswd",
        "/console/index.html%00.css",
        "/console/index.html/",
        "/console//index.html",
        "/console/",
        "/console",
        "//etc/passwd",
        "/accounts.json",
        "/api/v1/pools/..",
        "/api/v1/pools/%2e%2e",
        "/api/v1/pools/%2e",
        "/api/v1/pools/a%00b",
        "/api/v1/pools/a%0d%0aDolmen-Role:%20admin",
        "/api/v1/pools/%ff",
        "/api/v1/pools/",
        "/api/v1/../v1/status",
        "/api//v1/status",
        "/api/v1/status/",
        "/api/v2/status",
        "/api/v1/openapi.json",
        "/v1/status",
    ] {
        let answer = web.get(path, &token);
        assert!(matches!(answer.status, 400 | 404), "{path}: {answer:?}");
        assert!(!answer.body.contains("argon2id") && !answer.body.contains("root:"), "{path}");
        assert_eq!(daemon.take(), [], "{path}");
    }
    let answer = web.get(&format!("/api/v1/pools/{}", "a".repeat(5000)), &token);
    assert_eq!(answer.status, 414);
}

/// Scenario: bodies above the limit, by their length and in pieces. Both are refused, and the daemon sees nothing.
#[test]
fn a_body_above_the_limit_is_refused() {
    let daemon = FakeDaemon::new();
    let web = Web::new(daemon.socket());
    let token = web.token("t", "admin");
    let bytes = dolmen_api::REQUEST_BYTES_MAX + 1;
    let head = format!(
        "POST /api/v1/pools/tank/scrub HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{token}content-type: application/json\r\ndolmen-request: 1\r\n"
    );
    let by_length = format!("{head}content-length: {bytes}\r\n\r\n");
    assert_eq!(web.send(by_length.as_bytes()).status, 413);
    let in_pieces =
        format!("{head}transfer-encoding: chunked\r\n\r\n{bytes:x}\r\n{}\r\n0\r\n\r\n", " ".repeat(bytes));
    assert_eq!(web.send(in_pieces.as_bytes()).status, 413);
    let both = format!(
        "{head}content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"
    );
    let answer = web.send(both.as_bytes());
    assert!(!answer.body.contains("smuggled"), "{answer:?}");
    assert!(daemon.take().iter().all(|seen| seen.line == "POST /v1/pools/tank/scrub"));
}

/// Scenario: requests that are refused for their head: without a token, from a page of another site, of another kind. Each sends its body
/// a while after the head, in one piece and in two. It finds the refusal, and the connection serves the next request.
#[test]
fn a_refusal_reaches_a_client_that_is_still_sending() {
    let web = Web::alone();
    let token = web.token("t", "admin");
    let json = "content-type: application/json\r\n";
    for (headers, status) in [
        (format!("{json}dolmen-request: 1\r\n"), 401),
        (format!("{token}{json}"), 403),
        (format!("{token}content-type: text/plain\r\ndolmen-request: 1\r\n"), 415),
    ] {
        let mut stream = web.connect();
        let head = format!(
            "POST /api/v1/pools/tank/scrub HTTP/1.1\r\nhost: h\r\n{headers}content-length: 4\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        for part in ["{ ", " }"] {
            #[allow(clippy::disallowed_methods, reason = "the body comes when the head has been answered")]
            std::thread::sleep(Duration::from_millis(100));
            stream.write_all(part.as_bytes()).unwrap();
        }
        stream.write_all(b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").unwrap();
        let found = String::from_utf8_lossy(&rest_of(&mut stream)).into_owned();
        assert!(found.starts_with(&format!("HTTP/1.1 {status} ")), "{found:.200}");
        assert!(found.contains("HTTP/1.1 200 "), "the next request is served: {found:.300}");
    }
}

/// Scenario: heads that are no request, or too long. The connection ends, and the server goes on.
#[test]
fn heads_that_are_no_request_end_the_connection() {
    let web = Web::alone();
    for head in [
        "\r\n\r\n".to_owned(),
        "GET\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\r\n\r\n".to_owned(),
        format!("GET / HTTP/1.1\r\nhost: h\r\nx: {}\r\n\r\n", "y".repeat(100_000)),
        format!("GET / HTTP/1.1\r\nhost: h\r\n{}\r\n", "x: y\r\n".repeat(500)),
        "GET / HTTP/1.1\r\nhost : h\r\n\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
    ] {
        let mut stream = web.connect();
        let _ = stream.write_all(head.as_bytes());
        let found = rest_of(&mut stream);
        assert!(
            found.is_empty() || !found.starts_with(b"HTTP/1.1 2"),
            "{head:.50}: {:?}",
            String::from_utf8_lossy(&found)
        );
    }
    let mut plain = TcpStream::connect(("127.0.0.1", web.port)).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").unwrap();
    assert!(!rest_of(&mut plain).starts_with(b"HTTP"), "without TLS nothing is served");
    assert_eq!(web.get("/", "").status, 200);
}

/// Scenario: clients that begin a handshake, a head or a body, or keep a connection open, and then say nothing. Each is ended by the
/// server, and others are served meanwhile.
#[test]
fn slow_clients_are_ended() {
    let web = Web::alone();
    std::thread::scope(|scope| {
        let handshake = scope.spawn(|| {
            let mut stream = TcpStream::connect(("127.0.0.1", web.port)).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
            assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0);
        });
        let slow = |text: &'static str| {
            let web = &web;
            scope.spawn(move || {
                let mut stream = web.connect();
                stream.write_all(text.as_bytes()).unwrap();
                stream.flush().unwrap();
                rest_of(&mut stream)
            })
        };
        let head = slow("GET / HTTP/1.1\r\nhost: h\r\n");
        let idle = slow("GET /account HTTP/1.1\r\nhost: h\r\n\r\n");
        let body = slow(
            "POST /account/sign-in HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ndolmen-request: 1\r\ncontent-length: 50\r\n\r\n{",
        );
        assert_eq!(web.get("/", "").status, 200);
        handshake.join().unwrap();
        let head = head.join().unwrap();
        assert!(head.is_empty() || Answer::parse(&head).status == 408, "{head:?}");
        assert_eq!(Answer::parse(&idle.join().unwrap()).status, 200);
        assert_eq!(Answer::parse(&body.join().unwrap()).status, 408);
    });
    assert_eq!(web.get("/", "").status, 200);
}

/// Scenario: a session asks without pause, then another one asks. The first is told to wait, the other is served.
#[test]
fn a_client_that_asks_without_pause_has_to_wait() {
    let web = Web::alone();
    web.add_user("anna", "viewer");
    let [one, other] = [web.sign_in("anna"), web.sign_in("anna")];
    let mut stream = web.connect();
    let request = format!("GET /account HTTP/1.1\r\nhost: h\r\n{one}\r\n");
    for _ in 0..400 {
        stream.write_all(request.as_bytes()).unwrap();
    }
    stream
        .write_all(format!("GET /account HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{one}\r\n").as_bytes())
        .unwrap();
    let answers = String::from_utf8(rest_of(&mut stream)).unwrap();
    assert!(answers.contains("HTTP/1.1 429") && answers.contains("retry-after: 1"));
    assert!(answers.matches("HTTP/1.1 200").count() >= 100);
    assert_eq!(web.get("/account", &other).status, 200);
}
