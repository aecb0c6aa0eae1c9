//! Accounts over the network and on the host, and the file that holds them.

use serde_json::json;

use crate::client::{PASSWORD, Web};

/// Scenario: the only administrator is lowered and removed, over the network and on the host. Both are refused until there is another.
#[test]
fn the_last_administrator_stays() {
    let web = Web::alone();
    web.add_user("anna", "admin");
    web.add_user("ben", "operator");
    let session = web.sign_in("anna");
    let lower = || web.post("/account/users/anna/role", &session, &json!({"role": "viewer"})).status;
    let remove = || web.post("/account/users/anna/remove", &session, &json!({})).status;
    assert_eq!((lower(), remove()), (409, 409));
    assert!(web.refused(&["user", "remove", "anna"], "").contains("the last administrator"));
    assert!(web.refused(&["user", "role", "anna", "operator"], "").contains("the last administrator"));
    assert_eq!(web.post("/account/users/ben/role", &session, &json!({"role": "admin"})).status, 200);
    assert_eq!(remove(), 200);
    assert_eq!(
        web.get("/account", &session).json()["user"],
        json!(null),
        "the sessions of a user end with it"
    );
    assert!(web.refused(&["user", "remove", "ben"], "").contains("the last administrator"));
}

/// Scenario: users with lower roles ask for what administrators may, and for fields that nobody knows.
#[test]
fn accounts_are_for_administrators_and_unknown_fields_are_refused() {
    let web = Web::alone();
    web.add_user("anna", "admin");
    web.add_user("ben", "operator");
    let [anna, ben] = ["anna", "ben"].map(|name| web.sign_in(name));
    let user = json!({"user": "eve", "password": PASSWORD, "role": "admin"});
    for (path, body) in [
        ("/account/users", &user),
        ("/account/users/anna/remove", &json!({})),
        ("/account/users/ben/role", &json!({"role": "admin"})),
        ("/account/tokens", &json!({"name": "t", "role": "admin", "days": 1})),
        ("/account/tokens/t/remove", &json!({})),
    ] {
        assert_eq!(web.post(path, &ben, body).status, 403, "{path}");
        assert_eq!(web.post(path, "", body).status, 401, "{path}");
        let mut more = body.clone();
        more["more"] = json!(1);
        assert_eq!(web.post(path, &anna, &more).status, 400, "{path}");
    }
    for path in ["/account/users", "/account/tokens", "/account/audit"] {
        assert_eq!((web.get(path, &ben).status, web.get(path, "").status), (403, 401), "{path}");
        assert_eq!(web.get(path, &anna).status, 200, "{path}");
    }
    for (name, password, role, status) in [
        ("eve", "short", "viewer", 400),
        ("../eve", PASSWORD, "viewer", 400),
        ("", PASSWORD, "viewer", 400),
        ("eve", PASSWORD, "root", 400),
        ("anna", PASSWORD, "viewer", 409),
        ("eve", PASSWORD, "viewer", 200),
    ] {
        let body = json!({"user": name, "password": password, "role": role});
        assert_eq!(web.post("/account/users", &anna, &body).status, status, "{body}");
    }
    let sessions = web.get("/account/sessions", &ben).json();
    let own = sessions["sessions"].as_array().unwrap();
    assert!(own.len() == 1 && own[0]["user"] == "ben", "{sessions}");
    let of_anna = web.get("/account/sessions", &anna).json();
    let of_anna = of_anna["sessions"].as_array().unwrap();
    let id = |user: &str| {
        of_anna.iter().find(|one| one["user"] == user).unwrap()["id"].as_str().unwrap().to_owned()
    };
    assert_eq!(web.post(&format!("/account/sessions/{}/end", id("anna")), &ben, &json!({})).status, 404);
    assert_eq!(web.post(&format!("/account/sessions/{}/end", id("ben")), &anna, &json!({})).status, 200);
    assert_eq!(web.get("/account", &ben).json()["user"], json!(null));
    let audit = web.get("/account/audit", &anna).json().to_string();
    for entry in ["add user eve as viewer", "end session", "add user", "403 permission"] {
        assert!(audit.contains(entry), "{entry}: {audit}");
    }
    assert!(!audit.contains(PASSWORD));
}

/// Scenario: commands on the host change the file while the server runs. It follows each of them at once.
#[test]
fn the_server_follows_commands_on_the_host() {
    let web = Web::alone();
    web.add_user("anna", "admin");
    let session = web.sign_in("anna");
    let role = || web.get("/account", &session).json()["role"].clone();
    web.add_user("ben", "admin");
    assert_eq!(role(), "admin");
    web.run(&["user", "role", "anna", "viewer"], "");
    assert_eq!(role(), "viewer");
    assert!(web.run(&["user", "list"], "").contains("anna  viewer"));
    let listed = web.run(&["session", "list"], "");
    let id = listed.lines().nth(1).unwrap().split_whitespace().next().unwrap();
    web.run(&["session", "end", id], "");
    assert_eq!(role(), json!(null));
    let session = web.sign_in("anna");
    web.run(&["user", "password", "anna"], "another password\n");
    assert_eq!(web.get("/account", &session).json()["user"], json!(null));
    assert!(web.refused(&["user", "password", "eve"], "another password\n").contains("there is no user eve"));
    assert!(web.refused(&["user", "add", "eve", "--role", "viewer"], "short\n").contains("5 characters"));
    assert!(web.refused(&["user", "add", "eve", "--role", "viewer"], "").contains("standard input"));
    assert!(web.run(&["certificate", "show"], "").contains("fingerprint  SHA-256 "));
}

/// Scenario: the file of accounts is damaged, before the start and while the server runs. Each time it is refused by name, nobody gets
/// in, and its bytes stay.
#[test]
fn a_damaged_file_is_refused_by_name_and_not_overwritten() {
    let mut web = Web::alone();
    web.add_user("anna", "admin");
    let session = web.sign_in("anna");
    let whole = std::fs::read(web.accounts()).unwrap();
    let cut = &whole[..whole.len() / 2];
    std::fs::write(web.accounts(), cut).unwrap();
    let answer = web.get("/account", &session);
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (500, Some("config")));
    assert!(!answer.body.contains(web.folder.path().to_str().unwrap()), "paths of the host stay there");
    let answer = web.post("/account/sign-in", "", &json!({"user": "anna", "password": PASSWORD}));
    assert_eq!(answer.status, 500);
    assert!(web.refused(&["code"], "").contains("accounts.json"));
    assert_eq!(std::fs::read(web.accounts()).unwrap(), cut);
    web.kill();
    assert!(web.refuses_to_start().contains("accounts.json"));
    assert_eq!(std::fs::read(web.accounts()).unwrap(), cut);
    std::fs::write(web.accounts(), &whole).unwrap();
    web.start();
    assert_eq!(web.get("/account", &session).json()["user"], "anna");
}

/// Scenario: the clock of the wall jumps. A session that began in the future by it has ended, one that is too old too.
#[test]
fn sessions_end_when_the_clock_jumps() {
    let web = Web::alone();
    web.add_user("anna", "admin");
    for (field, days) in [("created_s", 30), ("seen_s", 30), ("created_s", -8)] {
        let session = web.sign_in("anna");
        web.edit(|accounts| {
            let last = accounts["sessions"].as_array_mut().unwrap().last_mut().unwrap();
            last[field] = json!(last[field].as_i64().unwrap() + days * 86_400);
        });
        assert_eq!(web.get("/account", &session).json()["user"], json!(null), "{field} {days}");
        assert_eq!(web.get("/api/v1/status", &session).status, 401);
    }
}
