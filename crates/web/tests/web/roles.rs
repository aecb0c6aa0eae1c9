//! The table of verbs with each role.

use dolmen_api::{CallerRole, VerbId, VerbKind};
use serde_json::json;

use crate::client::{Answer, Web, eventually};
use crate::fake_daemon::FakeDaemon;

/// Asks until no limit of requests a second refuses.
fn patiently(ask: impl Fn() -> Answer) -> Answer {
    eventually("a request is let through", || Some(ask()).filter(|answer| answer.status != 429))
}

/// Scenario: each verb is asked for with a token of each role, and without one. Above the role, nothing reaches the daemon. Else the
/// daemon gets the verb with the role and the name of the token, unless the body is no request of the verb.
#[test]
fn each_verb_reaches_the_daemon_with_its_role_alone() {
    let daemon = FakeDaemon::new();
    let web = Web::new(daemon.socket());
    let tokens = CallerRole::ALL.map(|role| (role, web.token(role.word(), role.word())));
    let mut passed = 0;
    for verb in VerbId::ALL.iter().map(|verb| verb.declaration()) {
        let path = verb.path_of(&vec!["a/b"; verb.parameters.len()]);
        let ask = |headers: &str| {
            patiently(|| match verb.kind {
                VerbKind::Question => web.get(&format!("/api{path}"), headers),
                VerbKind::Change => web.post(&format!("/api{path}"), headers, &json!({})),
            })
        };
        for (role, token) in &tokens {
            let answer = ask(token);
            let seen = daemon.take();
            if *role < verb.role {
                assert_eq!((answer.status, seen.len()), (403, 0), "{} as {role:?}: {answer:?}", verb.name);
                assert_eq!(answer.json()["error"]["code"], "permission");
                continue;
            }
            if answer.status == 400 {
                assert!(seen.is_empty() && verb.kind == VerbKind::Change, "{}: {answer:?}", verb.name);
                continue;
            }
            assert_eq!(answer.status, 200, "{}: {answer:?}", verb.name);
            let [seen] = &seen[..] else { panic!("{}: {seen:?}", verb.name) };
            assert_eq!(seen.line, format!("{} {path}", verb.kind.method()));
            assert_eq!(
                (seen.role.as_str(), seen.user.clone()),
                (role.word(), format!("token/{}", role.word()))
            );
            passed += 1;
        }
        let answer = ask("");
        assert_eq!((answer.status, daemon.take().len()), (401, 0), "{}", verb.name);
    }
    assert!(passed > VerbId::ALL.len(), "{passed}");
}

/// Scenario: bodies that are no request of the verb. They are refused before the daemon.
#[test]
fn bodies_that_are_no_request_of_the_verb_stop_here() {
    let daemon = FakeDaemon::new();
    let web = Web::new(daemon.socket());
    let token = web.token("t", "admin");
    let headers = format!("{token}content-type: application/json\r\ndolmen-request: 1\r\n");
    for body in [
        r#"{"no_such_field":1}"#,
        "[]",
        "{",
        "\"x\"",
        r#"{"dry_run":1}"#,
        r#"{"dry_run":true,"dry_run":true}"#,
        "\u{0}",
    ] {
        let answer = web.ask("POST /api/v1/pools/tank/scrub", &headers, body);
        assert_eq!((answer.status, daemon.take().len()), (400, 0), "{body}: {answer:?}");
    }
    let answer = web.ask("POST /api/v1/pools/tank/scrub", &headers, r#"{"dry_run":true}"#);
    assert_eq!((answer.status, daemon.take().len()), (200, 1), "{answer:?}");
}

/// Scenario: the daemon does not run, refuses, or answers nonsense. The client gets a document each time.
#[test]
fn a_daemon_that_is_away_or_refuses_is_reported_as_a_document() {
    let web = Web::alone();
    let answer = web.get("/api/v1/status", &web.token("t", "viewer"));
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].as_str()),
        (503, Some("stopping")),
        "{answer:?}"
    );
    for (status, document, expected) in [
        (409, r#"{"schema":1,"error":{"code":"busy","message":"m"}}"#, 409),
        (422, r#"{"schema":1,"error":{"code":"missing","message":"m"}}"#, 422),
    ] {
        let daemon = FakeDaemon::answering(move |_| (status, document.to_owned()));
        let web = Web::new(daemon.socket());
        let answer = web.get("/api/v1/status", &web.token("t", "viewer"));
        assert_eq!((answer.status, answer.body.as_str()), (expected, document));
    }
}
