//! Signing in: the first time, with guesses, and with cookies of others.

use serde_json::json;

use crate::client::{PASSWORD, Web, cookie_header};

/// Scenario: a new server awaits the first sign-in. The code of the host makes one administrator, once; a wrong one makes none.
#[test]
fn the_first_sign_in_takes_a_code_once() {
    let web = Web::alone();
    assert_eq!(web.get("/account", "").json(), json!({"schema": 1, "user": null, "first": true}));
    let code = web.run(&["code"], "");
    let first = |code: &str, password: &str| {
        web.post("/account/first", "", &json!({"code": code, "user": "anna", "password": password}))
    };
    assert_eq!(first("AAAA-AAAA-AAAA-AAAA", PASSWORD).status, 401);
    assert_eq!(first(code.trim(), "too short").status, 400);
    let answer = first(&code.trim().to_lowercase(), PASSWORD);
    assert_eq!(answer.status, 200, "{answer:?}");
    let account = web.get("/account", &cookie_header(&answer.cookie())).json();
    assert_eq!((account["user"].as_str(), account["role"].as_str()), (Some("anna"), Some("admin")));
    assert!(account["certificate"]["until_s"].as_u64().is_some());
    assert_eq!(first(code.trim(), PASSWORD).status, 409);
    assert!(web.refused(&["code"], "").contains("there are users already"));
    assert_eq!(web.get("/account", "").json()["first"], false);
    let record = std::fs::read_to_string(web.accounts()).unwrap();
    assert!(!record.contains(PASSWORD) && !record.contains(code.trim()));
}

/// Scenario: a browser comes with a cookie that an attacker has set, then with that of an earlier session. After the sign-in neither
/// is a session.
#[test]
fn a_cookie_from_before_the_sign_in_is_no_session_after_it() {
    let web = Web::alone();
    web.add_user("anna", "viewer");
    let user_of = |cookie: &str| web.get("/account", cookie).json()["user"].clone();
    let mut before = cookie_header(&"a1".repeat(32));
    for _ in 0..2 {
        let answer = web.post("/account/sign-in", &before, &json!({"user": "anna", "password": PASSWORD}));
        let after = cookie_header(&answer.cookie());
        assert_ne!(before, after);
        assert_eq!((user_of(&before), user_of(&after)), (json!(null), json!("anna")));
        before = after;
    }
    let [first, second] = [before.clone(), cookie_header(&"a1".repeat(32))];
    assert_eq!(user_of(&format!("{first}{second}")), json!(null), "two cookies, and one of them planted");
    assert_eq!(web.post("/account/sign-out", &before, &json!({})).status, 200);
    assert_eq!(user_of(&before), json!(null));
}

/// Scenario: wrong passwords, for a user who exists and for one who does not. The answers are the same. After five of them the right
/// password is refused as well, with the time to wait.
#[test]
fn guesses_get_one_answer_and_then_have_to_wait() {
    let web = Web::alone();
    web.add_user("anna", "viewer");
    let sign_in = |user: &str, password: &str| {
        web.post("/account/sign-in", "", &json!({"user": user, "password": password}))
    };
    let known = sign_in("anna", "wrong password");
    let unknown = sign_in("nobody", "wrong password");
    assert_eq!((known.status, &known.body), (401, &unknown.body));
    for _ in 0..3 {
        assert_eq!(sign_in("anna", "wrong password").status, 401);
    }
    let answer = sign_in("anna", PASSWORD);
    assert_eq!(answer.status, 429, "{answer:?}");
    let wait_s: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=5).contains(&wait_s), "{wait_s}");
    let log = std::fs::read_to_string(web.folder.path().join("access.log")).unwrap();
    assert!(
        log.lines().filter(|line| line.contains("sign-in") && line.contains("401")).count() >= 5,
        "{log}"
    );
    assert!(!log.contains("wrong password"));
}

/// Scenario: a user changes the password. Other sessions end, the one that asked goes on under a new cookie.
#[test]
fn a_new_password_ends_other_sessions() {
    let web = Web::alone();
    web.add_user("anna", "viewer");
    let [one, other] = [web.sign_in("anna"), web.sign_in("anna")];
    let change = |old: &str, new: &str| web.post("/account/password", &one, &json!({"old": old, "new": new}));
    assert_eq!(change("wrong password", "another password").status, 401);
    assert_eq!(change(PASSWORD, "short").status, 400);
    let answer = change(PASSWORD, "another password");
    assert_eq!(answer.status, 200, "{answer:?}");
    let user_of = |cookie: &str| web.get("/account", cookie).json()["user"].clone();
    assert_eq!(user_of(&one), json!(null));
    assert_eq!(user_of(&other), json!(null));
    assert_eq!(user_of(&cookie_header(&answer.cookie())), "anna");
}
