//! The server before the real daemon: pools, roles and events, from the first sign-in on.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{PASSWORD, Web, cookie_header, eventually};

/// A daemon with disks that are files.
pub(crate) struct Daemon {
    pub(crate) folder: TempDir,
    process: Child,
}

impl Daemon {
    pub(crate) fn new(disks: u32) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_dolmen-web")).with_file_name("dolmend");
        assert!(
            program.exists(),
            "{} is missing: `cargo build --workspace --bins --locked`",
            program.display()
        );
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for number in 0..disks {
            std::fs::File::create(path(&format!("d{number}"))).unwrap().set_len(256 << 20).unwrap();
        }
        let mut command = Command::new(program);
        command
            .arg("--state")
            .arg(path("state"))
            .arg("--run")
            .arg(path("run"))
            .arg("--links")
            .arg(path("dev"));
        command.arg("--named-only").env("DOLMEN_LOG", "warn").stdin(Stdio::null());
        let process = command.spawn().unwrap();
        let daemon = Self { folder, process };
        eventually("the daemon listens", || daemon.socket().exists().then_some(()));
        daemon
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("run/dolmen.sock")
    }

    pub(crate) fn disk(&self, name: &str) -> Value {
        json!(self.folder.path().join(name).display().to_string())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Scenario: the first administrator signs in with the code of the host, makes a pool and users. Each user does what its role allows.
/// The event of a change names its user, and the audit log has all of it.
#[test]
fn a_pool_is_made_and_kept_over_the_network() {
    let daemon = Daemon::new(3);
    let web = Web::new(daemon.socket());
    let code = web.run(&["code"], "");
    let first = json!({"code": code.trim(), "user": "anna", "password": PASSWORD});
    let anna = cookie_header(&web.post("/account/first", "", &first).cookie());
    for (name, role) in [("otto", "operator"), ("vera", "viewer")] {
        let user = json!({"user": name, "password": PASSWORD, "role": role});
        assert_eq!(web.post("/account/users", &anna, &user).status, 200);
    }
    let [otto, vera] = ["otto", "vera"].map(|name| web.sign_in(name));
    let disks = ["d0", "d1", "d2"].map(|name| daemon.disk(name));
    let pool = json!({"name": "tank", "disks": disks});
    for (who, status) in [(&vera, 403), (&otto, 403), (&anna, 200)] {
        let answer = web.post("/api/v1/pools", who, &pool);
        assert_eq!(answer.status, status, "{answer:?}");
    }
    let space = json!({"name": "m", "size_bytes": 32 << 20, "resiliency": "mirror"});
    for (who, status) in [(&vera, 403), (&otto, 200)] {
        assert_eq!(web.post("/api/v1/pools/tank/spaces", who, &space).status, status);
    }
    assert_eq!(web.post("/api/v1/pools/tank/alert_at", &otto, &json!({"percents": [60]})).status, 200);
    assert_eq!(web.get("/api/v1/spaces", &vera).json()["spaces"][0]["name"], "m");
    let events = eventually("the event is listed", || {
        let events = web.get("/api/v1/events?since=0&pool=tank", &vera).json().to_string();
        events.contains("of the console").then_some(events)
    });
    assert!(events.contains("(by user otto of the console)"), "{events}");
    let plan = json!({"percents": [61], "dry_run": true});
    assert_eq!(web.post("/api/v1/pools/tank/alert_at", &otto, &plan).status, 200);
    let changes = std::fs::read_to_string(web.folder.path().join("audit.log")).unwrap();
    assert!(!changes.contains("dry run") && !changes.contains("403"), "{changes}");
    let audit = web.get("/account/audit", &anna).json();
    let has = |user: &str, what: &str, outcome: &str| {
        audit["entries"].as_array().unwrap().iter().any(|entry| {
            let is =
                |field: &str, text: &str| entry[field].as_str().is_some_and(|found| found.starts_with(text));
            is("user", user) && is("what", what) && is("outcome", outcome) && entry["address"] == "127.0.0.1"
        })
    };
    assert!(has("anna", "CreatePool /v1/pools", "200"), "{audit}");
    assert!(has("vera", "CreatePool /v1/pools", "403 permission"), "{audit}");
    assert!(has("otto", "CreateSpace /v1/pools/tank/spaces", "200"), "{audit}");
    assert!(web.get("/api/openapi.json", &vera).json()["paths"]["/v1/pools"].is_object());
}
