//! Ends of the server: killed, asked to end, asked to read its certificate again.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::process::Signal;
use serde_json::json;

use crate::client::{Web, eventually};
use crate::whole::Daemon;

/// Asks the daemon itself; whether it answers.
fn answers(daemon: &Daemon) -> bool {
    let Ok(mut stream) = UnixStream::connect(daemon.socket()) else { return false };
    let _ = stream.write_all(b"GET /v1/status HTTP/1.1\r\nhost: d\r\nconnection: close\r\n\r\n");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer.starts_with("HTTP/1.1 200")
}

/// Scenario: the server is killed again and again while the daemon serves others, and while it has requests under way. The daemon
/// answers all along, and sessions go on after the restart.
#[test]
fn a_killed_server_leaves_the_daemon_and_the_sessions() {
    let daemon = Daemon::new(3);
    let mut web = Web::new(daemon.socket());
    web.add_user("anna", "admin");
    let anna = web.sign_in("anna");
    let disks = ["d0", "d1", "d2"].map(|name| daemon.disk(name));
    let pool = json!({"name": "tank", "disks": disks});
    assert_eq!(web.post("/api/v1/pools", &anna, &pool).status, 200);
    let (is_over, answered) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert!(answers(&daemon));
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
        for round in 0..5 {
            let body = json!({"name": format!("s{round}"), "size_bytes": 32 << 20}).to_string();
            let mut stream = web.connect();
            let request = format!(
                "POST /api/v1/pools/tank/spaces HTTP/1.1\r\nhost: h\r\n{anna}content-type: application/json\r\ndolmen-request: 1\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(request.as_bytes()).unwrap();
            stream.flush().unwrap();
            web.kill();
            web.start();
            assert_eq!(web.get("/account", &anna).json()["user"], "anna", "round {round}");
        }
        is_over.store(true, Ordering::Relaxed);
        other.join().unwrap();
    });
    assert!(answered.load(Ordering::Relaxed) > 0);
    assert_eq!(web.get("/api/v1/pools/tank", &anna).status, 200);
}

/// Scenario: the supervisor asks for the end, and for a new look at the certificate. The server ends well; it takes the new
/// certificate, and keeps the one in force where the new one is damaged.
#[test]
fn signals_end_the_server_or_read_the_certificate_again() {
    let mut web = Web::alone();
    let path = web.folder.path().join("certificate.pem");
    let fingerprint = || web.run(&["certificate", "show"], "");
    let before = fingerprint();
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    web.signal(Signal::HUP);
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(web.get("/", "").status, 200, "the certificate in force stays");
    std::fs::remove_file(&path).unwrap();
    web.signal(Signal::HUP);
    eventually("a new certificate is made", || path.exists().then_some(()));
    eventually("it is in force", || {
        let mut stream = web.connect();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").ok()?;
        stream.flush().ok()
    });
    assert_ne!(fingerprint(), before);
    web.signal(Signal::TERM);
    assert!(web.ended().success());
}
