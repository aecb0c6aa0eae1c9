//! Tokens of programs.

use serde_json::json;

use crate::client::Web;
use crate::fake_daemon::FakeDaemon;

/// Scenario: tokens that are wrong, malformed, removed, expired, or of a time to come. Each is refused, and a cookie beside it does not
/// help.
#[test]
fn a_token_that_does_not_hold_is_refused() {
    let daemon = FakeDaemon::new();
    let web = Web::new(daemon.socket());
    web.add_user("anna", "admin");
    let session = web.sign_in("anna");
    let token = web.token("backup", "viewer");
    let status = |header: &str| web.get("/api/v1/status", header).status;
    assert_eq!(status(&token), 200);
    for header in [
        format!("Authorization: Bearer dolmen_{}\r\n", "0".repeat(64)),
        "Authorization: Bearer dolmen_\r\n".to_owned(),
        "Authorization: Bearer x\r\n".to_owned(),
        "Authorization: Basic YTpi\r\n".to_owned(),
        "Authorization:\r\n".to_owned(),
        token.replace("dolmen_", "dolmen_0"),
        format!("{token}{token}"),
    ] {
        assert_eq!(status(&header), 401, "{header}");
        assert_eq!(status(&format!("{header}{session}")), 401, "{header}");
    }
    for (field, value) in [("expires_s", 1), ("created_s", 99_999_999_999u64)] {
        let mut before = json!(null);
        web.edit(|accounts| before = std::mem::replace(&mut accounts["tokens"][0][field], json!(value)));
        assert_eq!(status(&token), 401, "{field}");
        web.edit(|accounts| accounts["tokens"][0][field] = before);
        assert_eq!(status(&token), 200);
    }
    web.run(&["token", "remove", "backup"], "");
    assert_eq!(status(&token), 401);
}

/// Scenario: a token of an administrator is used on accounts, and one of a viewer for a change. Both are refused.
#[test]
fn a_token_changes_no_account_and_nothing_above_its_role() {
    let daemon = FakeDaemon::new();
    let web = Web::new(daemon.socket());
    web.add_user("anna", "admin");
    let admin = web.token("admin", "admin");
    let user = json!({"user": "eve", "password": "a long password", "role": "admin"});
    assert_eq!(web.post("/account/users", &admin, &user).status, 403);
    assert_eq!(web.get("/account/tokens", &admin).status, 403);
    assert_eq!(web.get("/account/audit", &admin).status, 403);
    let viewer = web.token("viewer", "viewer");
    assert_eq!(web.post("/api/v1/pools/tank/scrub", &viewer, &json!({})).status, 403);
    assert_eq!(daemon.take().len(), 0);
    let session = web.sign_in("anna");
    let made = web.post("/account/tokens", &session, &json!({"name": "t", "role": "operator", "days": 1}));
    let header = format!("Authorization: Bearer {}\r\n", made.json()["token"].as_str().unwrap());
    assert_eq!(web.post("/api/v1/pools/tank/scrub", &header, &json!({})).status, 200);
    for (role, days) in [("viewer", 0), ("viewer", 3651), ("admin", 367)] {
        let body = json!({"name": "u", "role": role, "days": days});
        assert_eq!(web.post("/account/tokens", &session, &body).status, 400, "{role} {days}");
    }
}

/// Scenario: an administrator makes tokens, is lowered to operator, and then removed. The tokens above the role end with the first, all
/// others with the second, by a command and over the network alike. Those of others stay.
#[test]
fn tokens_end_with_the_rights_of_the_user_who_made_them() {
    let daemon = FakeDaemon::new();
    let web = Web::new(daemon.socket());
    web.add_user("anna", "admin");
    let anna = web.sign_in("anna");
    for is_by_command in [true, false] {
        web.add_user("mallory", "admin");
        let mallory = web.sign_in("mallory");
        let token = |who: &str, name: &str, role: &str| {
            let made = web.post("/account/tokens", who, &json!({"name": name, "role": role, "days": 10}));
            assert_eq!(made.status, 200, "{made:?}");
            format!("Authorization: Bearer {}\r\n", made.json()["token"].as_str().unwrap())
        };
        let admin = token(&mallory, "m-admin", "admin");
        let viewer = token(&mallory, "m-viewer", "viewer");
        let other = token(&anna, &format!("other-{is_by_command}"), "admin");
        let status = |header: &str| web.get("/api/v1/status", header).status;
        assert_eq!([&admin, &viewer, &other].map(|token| status(token)), [200; 3]);
        let ended = if is_by_command {
            web.run(&["user", "role", "mallory", "operator"], "")
        } else {
            let body = json!({"role": "operator"});
            web.post("/account/users/mallory/role", &anna, &body).json()["ended_tokens"].to_string()
        };
        assert!(ended.contains("m-admin") && !ended.contains("m-viewer"), "{ended}");
        assert_eq!([&admin, &viewer, &other].map(|token| status(token)), [401, 200, 200]);
        let ended = if is_by_command {
            web.run(&["user", "remove", "mallory"], "")
        } else {
            web.post("/account/users/mallory/remove", &anna, &json!({})).json()["ended_tokens"].to_string()
        };
        assert!(ended.contains("m-viewer"), "{ended}");
        assert_eq!([&viewer, &other].map(|token| status(token)), [401, 200]);
    }
}
