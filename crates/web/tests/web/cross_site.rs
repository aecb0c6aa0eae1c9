//! Pages of other sites: what they may not cause, and what may not frame the console.

use serde_json::json;

use crate::client::Web;
use crate::fake_daemon::FakeDaemon;

/// Scenario: changes with the cookie of a session, as a page of another site could cause them. None reaches the daemon, and none signs
/// in or out.
#[test]
fn a_page_of_another_site_changes_nothing() {
    let daemon = FakeDaemon::new();
    let web = Web::new(daemon.socket());
    web.add_user("anna", "admin");
    let session = web.sign_in("anna");
    let own = format!("origin: https://127.0.0.1:{}\r\n", web.port);
    let json = "content-type: application/json\r\n";
    let mark = "dolmen-request: 1\r\n";
    for (why, headers, status) in [
        ("without the header", format!("{json}{own}"), 403),
        ("another value", format!("{json}{own}dolmen-request: 2\r\n"), 403),
        ("another site", format!("{json}{mark}origin: https://example.org\r\n"), 403),
        ("another port", format!("{json}{mark}origin: https://127.0.0.1:1\r\n"), 403),
        ("no TLS", format!("{json}{mark}origin: http://127.0.0.1:{}\r\n", web.port), 403),
        ("an opaque page", format!("{json}{mark}origin: null\r\n"), 403),
        ("a browser that knows", format!("{json}{mark}sec-fetch-site: cross-site\r\n"), 403),
        ("a neighbour", format!("{json}{mark}sec-fetch-site: same-site\r\n"), 403),
        ("a form", format!("{mark}{own}content-type: application/x-www-form-urlencoded\r\n"), 415),
        ("a form of text", format!("{mark}{own}content-type: text/plain\r\n"), 415),
        ("no kind", format!("{mark}{own}"), 415),
    ] {
        for path in ["/api/v1/pools/tank/scrub", "/account/sign-out", "/account/sign-in"] {
            let answer = web.ask(&format!("POST {path}"), &format!("{session}{headers}"), "{}");
            assert_eq!((answer.status, daemon.take().len()), (status, 0), "{why} at {path}: {answer:?}");
        }
    }
    assert_eq!(web.get("/account", &session).json()["user"], "anna");
    assert_eq!(web.post("/api/v1/pools/tank/scrub", &session, &json!({})).status, 200);
    let preflight = web.ask("OPTIONS /api/v1/pools", "origin: https://example.org\r\n", "");
    assert_eq!(preflight.status, 405);
    assert!(preflight.header("access-control-allow-origin").is_none());
}

/// Scenario: pages, files, documents, refusals and unknown paths. Each answer forbids frames, foreign scripts and guesses of its type;
/// documents are not kept.
#[test]
fn every_answer_carries_the_headers_of_security() {
    let web = Web::alone();
    for (path, is_page) in [
        ("/", true),
        ("/console/style.css", true),
        ("/console/none.js", true),
        ("/api/v1/status", false),
        ("/account", false),
        ("/none", false),
    ] {
        let answer = web.get(path, "");
        let policy = answer.header("content-security-policy").unwrap();
        for rule in ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "script-src 'self'"] {
            assert!(policy.contains(rule), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("strict-transport-security", "max-age=31536000"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
        if !is_page {
            assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        }
    }
}
